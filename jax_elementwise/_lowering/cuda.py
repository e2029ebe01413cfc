"""A call as one packed CUDA kernel, through XLA's foreign function interface."""

from __future__ import annotations

import functools
import warnings
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from jax_elementwise import _kernels
from jax_elementwise._codegen.kernel import Kernel, kernel_for
from jax_elementwise._lowering import xla

if TYPE_CHECKING:
    from jax_elementwise._functor import Functor

__all__ = ["lower"]

# The name of the custom call and the layout of its attributes (kFormat of ffi_handlers.cc) are in
# exported programs: neither may change its meaning.
_TARGET = "jax_elementwise_kernel"
_FORMAT = 1

jax.ffi.register_ffi_target(_TARGET, _kernels.registrations(), platform="CUDA")


def lower(ctx: Any, *operands: Any, functor: Functor, linear: Any, options: Any) -> Any:
    """The lowering rule."""
    if options.lowering == "xla" or functor.awaits_transpose:  # of the latter, JAX says what it is
        return xla.lower(ctx, *operands, functor=functor)
    kernel = kernel_for(
        functor,
        [aval.shape for aval in ctx.avals_in],
        ctx.avals_out[0].shape,
        fast_math=options.fast_math,
        aliases=options.aliases,
    )
    if not _compiles_here(kernel, required=options.lowering == "kernel"):
        return xla.lower(ctx, *operands, functor=functor)
    # XLA then gives such a pair one buffer, into which it copies an operand that is read afterwards
    # or stands in the call twice: no other operand or result of the call lies in it.
    rule = jax.ffi.ffi_lowering(_TARGET, operand_output_aliases=dict(options.aliases))
    return rule(ctx, *operands, **_attributes(kernel))


def _attributes(kernel: Kernel) -> dict[str, Any]:
    return {
        "format": np.int64(_FORMAT),
        "digest": kernel.digest,
        "source": kernel.source,
        "name": kernel.name,
        "options": " ".join(kernel.options),
        "groups": np.array(kernel.space.groups, np.int64),
        "spans": np.array(kernel.space.spans, np.int64),
        "pack": np.int64(kernel.pack),
        "index_bits": np.int64(kernel.space.index_bits),
    }


def _compiles_here(kernel: Kernel, *, required: bool) -> bool:
    """Compiles for the GPUs of this machine, so that what does not compile fails here, by name.

    Without a GPU, as when lowering for another machine, there is nothing to compile. Without a
    compiler, or one for these GPUs, answers False, unless the kernel is required. Every other
    failure is an error, which a warning would hide.
    """
    try:
        for arch in sorted(set(_local_architectures())):
            _kernels.compile(kernel, arch)
    except _kernels.Unavailable as error:
        if required:
            raise
        warnings.warn(
            f"no CUDA kernel can be compiled here, so XLA's own operations are used: {error}",
            stacklevel=2,
        )
        return False
    return True


@functools.cache
def _local_architectures() -> tuple[int, ...]:
    return tuple(_kernels.compute_capabilities())
