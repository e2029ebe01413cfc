"""A call as one custom call, which the handlers of ``csrc`` serve on CUDA and on CPUs."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from jax_elementwise import _kernels
from jax_elementwise._codegen.kernel import Kernel, kernel_for
from jax_elementwise._index import Index, with_index

__all__ = ["TARGET", "kernel_of_call", "lower"]

# The name of the custom call and the layout of its attributes (kFormat of ffi_call.cc) are in
# exported programs: neither may change its meaning.
TARGET = "jax_elementwise_kernel"
_FORMAT = 1

jax.ffi.register_ffi_type(f"{TARGET}_state", _kernels.gpu_state_type(), platform="CUDA")
for _platform in ("CUDA", "cpu"):
    jax.ffi.register_ffi_target(TARGET, _kernels.registrations(_platform), platform=_platform)


def kernel_of_call(ctx: Any, functor: Any, options: Any, index: Index | None) -> Kernel:
    """The kernel of a call that is being lowered."""
    return kernel_for(
        functor,
        with_index(index, [aval.shape for aval in ctx.avals_in], index and index.shape),
        ctx.avals_out[0].shape,
        fast_math=options.fast_math,
        aliases=options.aliases,
        index=None if index is None else index.position,
    )


def lower(
    ctx: Any,
    *operands: Any,
    kernel: Kernel,
    options: Any,
    extra: dict[str, Any] | None = None,
    **params: Any,
) -> Any:
    """The custom call, with ``extra`` attributes of the operation."""
    del params
    # XLA gives an aliased pair one buffer, into which it copies an operand that is read afterwards
    # or stands in the call twice: no other operand or result of the call lies in it.
    aliases = {kernel.array_of(i): j for i, j in options.aliases}
    rule = jax.ffi.ffi_lowering(TARGET, operand_output_aliases=aliases, extra_attributes=extra)
    return rule(ctx, *operands, **_attributes(kernel))


def _attributes(kernel: Kernel) -> dict[str, Any]:
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
