"""A call on a CPU: XLA's operations, or the kernel of CUDA, by the machine's C++ compiler."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jax_elementwise import _extension
from jax_elementwise._codegen.kernel import Kernel
from jax_elementwise._lowering.rule import rule

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
    _extension.compile(kernel, _extension.HOST_CPU)


lower = rule(
    wants_kernel,
    _compile,
    "functions with loops and functors in CUDA C++ would be faster as kernels, and none can be "
    "compiled here",
)
