"""A call as one custom call, which the handlers of ``csrc`` serve on CUDA and on CPUs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from jax_elementwise import _extension
from jax_elementwise._codegen.kernel import Kernel, kernel_for

if TYPE_CHECKING:
    from jax_elementwise._functor import Functor
    from jax_elementwise._index import Index

__all__ = ["TARGET", "emit", "prepare"]

# The name of the custom call and the layout of its attributes (kFormat of ffi_call.cc) are in
# exported programs: neither may change its meaning.
TARGET = "jax_elementwise_kernel"
_FORMAT = 1

jax.ffi.register_ffi_type(f"{TARGET}_state", _extension.gpu_state_type(), platform="CUDA")
for _platform in ("CUDA", "cpu"):
    jax.ffi.register_ffi_target(TARGET, _extension.registrations(_platform), platform=_platform)


def prepare(
    ctx: Any, functor: Functor, options: Any, index: Index | None
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
    return kernel, functools.partial(emit, ctx, kernel=kernel, options=options)


def emit(
    ctx: Any,
    *operands: Any,
    kernel: Kernel,
    options: Any,
    attributes: dict[str, Any] | None = None,
) -> Any:
    """The custom call, with more ``attributes`` of the operation."""
    # XLA gives an aliased pair one buffer, into which it copies an operand that is read afterwards
    # or stands in the call twice: no other operand or result of the call lies in it.
    aliases = {kernel.array_of(i): j for i, j in options.aliases}
    rule = jax.ffi.ffi_lowering(TARGET, operand_output_aliases=aliases, extra_attributes=attributes)
    return rule(ctx, *operands, **_backend_config(kernel))


def _backend_config(kernel: Kernel) -> dict[str, Any]:
    return {
        "format": np.int64(_FORMAT),
        "digest": kernel.digest,
        "source": kernel.source,
        "name": kernel.name,
        "options": " ".join(kernel.options),
        "groups": np.array(kernel.space.groups, np.int64),
        # The complement stands for an operand that is not given: the index of the element.
        "spans": np.array(
            [~s if i == kernel.index else s for i, s in enumerate(kernel.space.spans)], np.int64
        ),
        "pack": np.int64(kernel.pack),
        "index_bits": np.int64(kernel.space.index_bits),
    }
