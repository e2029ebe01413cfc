"""A call as one packed CUDA kernel, through XLA's foreign function interface."""

from __future__ import annotations

import functools
import warnings
from typing import TYPE_CHECKING, Any

from jax_elementwise import _compat, _kernels
from jax_elementwise._codegen.kernel import Kernel
from jax_elementwise._lowering import custom_call, divided, xla

if TYPE_CHECKING:
    from jax_elementwise._functor import Functor
    from jax_elementwise._index import Index

__all__ = ["lower"]


def lower(
    ctx: Any,
    *operands: Any,
    functor: Functor,
    linear: Any,
    options: Any,
    index: Index | None,
) -> Any:
    """The lowering rule."""
    if options.lowering == "xla" or functor.awaits_transpose:  # of the latter, JAX says what it is
        return xla.lower(ctx, *operands, functor=functor, index=index)
    call = divided if _compat.is_partitioned(ctx) else custom_call
    kernel = call.kernel_of_call(ctx, functor, options, index)
    if not _compiles_here(kernel, custom_call.requirement(functor, options)):
        return xla.lower(ctx, *operands, functor=functor, index=index)
    return call.lower(ctx, *operands, kernel=kernel, functor=functor, options=options, index=index)


def _compiles_here(kernel: Kernel, required: str | None) -> bool:
    """Compiles for the GPUs of this machine, so that what does not compile fails here, by name.

    Without a GPU, as when lowering for another machine, there is nothing to compile. Without a
    compiler, or one for these GPUs, answers False, unless the kernel is required. Every other
    failure is an error, which a warning would hide.
    """
    try:
        for arch in sorted(set(_local_architectures())):
            _kernels.compile(kernel, arch)
    except _kernels.Unavailable as error:
        if required is not None:
            raise _kernels.Unavailable(f"{error}{required}") from None
        warnings.warn(
            f"no CUDA kernel can be compiled here, so XLA's own operations are used: {error}",
            stacklevel=2,
        )
        return False
    return True


@functools.cache
def _local_architectures() -> tuple[int, ...]:
    return tuple(_kernels.compute_capabilities())
