"""A call on a CPU: XLA's operations, or the kernel of CUDA, by the machine's C++ compiler."""

from __future__ import annotations

import functools
import warnings
from typing import TYPE_CHECKING, Any

from jax_elementwise import _kernels
from jax_elementwise._codegen.kernel import Kernel
from jax_elementwise._lowering import kernel, xla

if TYPE_CHECKING:
    from jax_elementwise._functor import Functor

__all__ = ["lower", "wants_kernel"]


def lower(ctx: Any, *operands: Any, functor: Functor, linear: Any, options: Any, index: Any) -> Any:
    """The lowering rule."""
    if not _takes_kernel(functor, options.lowering):
        return xla.lower(ctx, *operands, functor=functor, index=index)
    return kernel.lower(
        ctx,
        *operands,
        functor=functor,
        options=options,
        index=index,
        compile_here=_compile,
        warn=_warn_once,
    )


def _takes_kernel(functor: Functor, lowering: str) -> bool:
    if lowering == "xla" or functor.awaits_transpose:  # of the latter, JAX says what it is
        return False
    return lowering == "kernel" or wants_kernel(functor)


def wants_kernel(functor: Functor) -> bool:
    """Whether a functor is a kernel on a CPU: if it has loops, or C++ of a user's.

    Over arrays, XLA runs all elements for as many steps as the slowest one needs, and writes the
    arrays of every step. Straight lines it fuses and vectorises.
    """
    return functor.has_long_loop or functor.has_source


def _compile(kernel: Kernel) -> None:
    _kernels.compile(kernel, _kernels.HOST_CPU)


@functools.cache
def _warn_once(reason: str) -> None:
    """One warning per process and reason."""
    warnings.warn(
        "functions with loops and functors in CUDA C++ would be faster as kernels, and none can be "
        f"compiled here, so XLA's own operations are used: {reason}",
        stacklevel=2,
    )
