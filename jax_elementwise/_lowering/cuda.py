"""A call as one packed CUDA kernel, through XLA's foreign function interface."""

from __future__ import annotations

import functools
import warnings
from typing import TYPE_CHECKING, Any

from jax_elementwise import _kernels
from jax_elementwise._codegen.kernel import Kernel
from jax_elementwise._lowering import kernel, xla

if TYPE_CHECKING:
    from jax_elementwise._functor import Functor

__all__ = ["lower"]


def lower(ctx: Any, *operands: Any, functor: Functor, linear: Any, options: Any, index: Any) -> Any:
    """The lowering rule."""
    if options.lowering == "xla" or functor.awaits_transpose:  # of the latter, JAX says what it is
        return xla.lower(ctx, *operands, functor=functor, index=index)
    return kernel.lower(
        ctx,
        *operands,
        functor=functor,
        options=options,
        index=index,
        compile_here=_compile,
        warn=_warn,
    )


def _compile(kernel: Kernel) -> None:
    """For the GPUs of this machine; there are none where one lowers for another machine."""
    for arch in sorted(set(_local_architectures())):
        _kernels.compile(kernel, arch)


@functools.cache
def _local_architectures() -> tuple[int, ...]:
    return tuple(_kernels.compute_capabilities())


def _warn(reason: str) -> None:
    warnings.warn(
        f"no CUDA kernel can be compiled here, so XLA's own operations are used: {reason}",
        stacklevel=2,
    )
