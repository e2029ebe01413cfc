"""A call on a CPU: XLA's operations, or the kernel of CUDA, by the machine's C++ compiler."""

from __future__ import annotations

import functools
import warnings
from typing import TYPE_CHECKING

from jax_elementwise import _kernels
from jax_elementwise._codegen.kernel import Kernel
from jax_elementwise._lowering import kernel

if TYPE_CHECKING:
    from jax_elementwise._functor import Functor

__all__ = ["lower", "wants_kernel"]


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


lower = kernel.rule(lambda functor: wants_kernel(functor), _compile, _warn_once)
