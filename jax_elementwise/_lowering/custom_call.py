"""A call as one custom call, which the handlers of ``csrc`` serve on CUDA and on CPUs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from jax_elementwise import _extension
from jax_elementwise._codegen.kernel import Kernel, kernel_for
from jax_elementwise._functor.functor import Functor
from jax_elementwise._functor.index import Index
from jax_elementwise._lowering import attributes
from jax_elementwise._options import Options

__all__ = ["TARGET", "custom_call", "prepare"]

# In exported programs, so it may not change its meaning.
TARGET = "jax_elementwise_kernel"

jax.ffi.register_ffi_type(f"{TARGET}_state", _extension.gpu_state_type(), platform="CUDA")
for _platform in ("CUDA", "cpu"):
    jax.ffi.register_ffi_target(TARGET, _extension.registrations(_platform), platform=_platform)


def prepare(
    ctx: Any, functor: Functor, options: Options, index: Index | None
) -> tuple[Kernel, Callable[..., Any]]:
    """The kernel of a call that is being lowered, and what makes the custom call of operands."""
    shapes = [aval.shape for aval in ctx.avals_in]
    kernel = kernel_for(
        functor,
        shapes,
        ctx.avals_out[0].shape,
        fast_math=options.fast_math,
        aliases=options.aliases,
        index=index,
    )
    return kernel, functools.partial(custom_call, ctx, kernel=kernel, options=options)


def custom_call(
    ctx: Any,
    *operands: Any,
    kernel: Kernel,
    options: Options,
    more: dict[str, Any] | None = None,
) -> Any:
    """The custom call, with ``more`` attributes of the operation."""
    # XLA gives an aliased pair one buffer, into which it copies an operand that is read afterwards
    # or stands in the call twice: no other operand or result of the call lies in it.
    aliases = {kernel.array_of(i): j for i, j in options.aliases}
    config: dict[str, Any] = {
        name: value if isinstance(value, str) else np.array(value, np.int64)[()]
        for name, value in attributes.of(kernel).items()
    }
    _extension.trust_program(config["digest"])
    rule = jax.ffi.ffi_lowering(TARGET, operand_output_aliases=aliases, extra_attributes=more)
    return rule(ctx, *operands, **config)
