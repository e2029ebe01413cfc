"""A call as a kernel, where one is wanted and can be compiled; else as XLA's operations."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Callable
from typing import Any

from jax_elementwise import _compat, _extension
from jax_elementwise._codegen.kernel import Kernel
from jax_elementwise._functor.functor import Functor
from jax_elementwise._functor.index import Index
from jax_elementwise._lowering import auto_axes, custom_call, xla
from jax_elementwise._options import Options

__all__ = ["is_kernel_on_cpu", "lower_cpu", "lower_cuda"]


def is_kernel_on_cpu(functor: Functor) -> bool:
    """Whether a functor is a kernel on a CPU: if it has loops, or C++ of a user's.

    Over arrays, XLA runs all elements for as many steps as the slowest one needs, and writes the
    arrays of every step. Straight lines it fuses and vectorises.
    """
    return functor.has_long_loop or functor.is_foreign


def _compile_for_cpu(kernel: Kernel) -> None:
    _extension.compile(kernel, _extension.HOST_CPU)


def _compile_for_gpus(kernel: Kernel) -> None:
    """For the GPUs of this machine; there are none where one lowers for another machine."""
    for arch in sorted(set(_local_architectures())):
        _extension.compile(kernel, arch)


@functools.cache
def _local_architectures() -> tuple[int, ...]:
    return tuple(_extension.compute_capabilities())


@dataclasses.dataclass(frozen=True)
class _Platform:
    """A platform that has kernels.

    Attributes:
      wants_kernel: decides where the user leaves it open.
      compile: compiles for the devices of this machine, so that what does not compile fails now, by
        name.
      warning: what users are told where no kernel can be compiled.
    """

    wants_kernel: Callable[[Functor], bool]
    compile: Callable[[Kernel], None]
    warning: str


_CPU = _Platform(
    is_kernel_on_cpu,
    _compile_for_cpu,
    "functions with loops and functors in CUDA C++ would be faster as kernels, and none can be "
    "compiled here",
)
_CUDA = _Platform(lambda functor: True, _compile_for_gpus, "no CUDA kernel can be compiled here")


def _lower(
    platform: _Platform,
    ctx: Any,
    *operands: Any,
    functor: Functor,
    linear: Any,
    options: Options,
    index: Index | None,
) -> Any:
    """The lowering rule of a platform.

    Where there is no compiler, or it refuses what the package generated, XLA takes over, with a
    warning and the reason, unless the kernel is required. Every other failure is an error, which a
    warning would hide: users want to know what is wrong with their C++.
    """
    del linear
    by_xla = options.lowering == "xla" or (
        functor.awaits_transpose  # of which JAX says what it is
        or not (options.lowering == "kernel" or platform.wants_kernel(functor))
    )
    if by_xla or _must_be_operations(ctx, functor):
        return xla.lower(ctx, *operands, functor=functor, index=index)
    prepare = auto_axes.prepare if _compat.is_partitioned(ctx) else custom_call.prepare
    kernel, emit = prepare(ctx, functor, options, index)
    try:
        platform.compile(kernel)
    except _extension.Unavailable as error:
        required = _requirement(functor, options)
        if required is not None:
            message = f"{str(error).rstrip('.')}. {required}".rstrip()
            raise _extension.Unavailable(message) from None
        _warn_once(f"{platform.warning}, so XLA's own operations are used: {error}")
        return xla.lower(ctx, *operands, functor=functor, index=index)
    except _extension.CompileError as error:
        if options.lowering == "kernel" or functor.is_foreign:
            raise
        # Whoever wrote Python has no part in this text, and XLA computes the same.
        what = "a derivative of " if functor.is_derivative else ""
        _warn_once(
            f"the compiler refused the kernel that was generated for {what}"
            f"{functor.origin!r}, so XLA's own operations are used. This is a fault of "
            "jax_elementwise. Please report it, with the function, the text that its "
            f".cuda_source() gives for the same arguments, and this: {error}"
        )
        return xla.lower(ctx, *operands, functor=functor, index=index)
    return emit(*operands)


lower_cuda = functools.partial(_lower, _CUDA)
lower_cpu = functools.partial(_lower, _CPU)


def _must_be_operations(ctx: Any, functor: Functor) -> bool:
    """Whether a call must be XLA's operations, since XLA would end the process at a custom call.

    That is so in the computation of another operation: the reducer of ``lax.reduce``, the update of
    a scatter, the comparator of a sort. These have scalars only. A function that the program calls
    may be called from there, too, which is not known here; so in functions all calls on scalars are
    operations, where they can be.

    Raises:
      NotImplementedError: for what XLA does not take there.
    """
    place, is_scalar = _compat.enclosing_operation(), not ctx.avals_out[0].shape
    if place == "main" or (place == "function" and not is_scalar):
        return False
    in_function = place == "function"
    if functor.without_reference:
        where = "with scalars in a nested jit" if in_function else f"by a {place}"
        otherwise = ", or call it with arrays, as x[None]" if in_function else ""
        raise NotImplementedError(
            f"{functor.without_reference!r} is CUDA C++, which XLA cannot evaluate, and is called "
            f"{where}. Give it a reference=, a function of the same scalars in Python{otherwise}."
        )
    if not in_function and not (is_scalar and functor.is_straight):
        raise NotImplementedError(
            f"{functor.origin!r} is called by a {place}, and so must consist of operations on "
            "scalars: XLA takes no loop, no branch and no array there."
        )
    return True


@functools.cache
def _warn_once(message: str) -> None:
    """One warning per process and reason, not per function."""
    warnings.warn(message, stacklevel=2)


def _requirement(functor: Functor, options: Options) -> str | None:
    """What to add to the error where no kernel can be compiled; None where XLA takes over."""
    if options.lowering == "kernel":
        return "" if functor.without_reference else "With lowering='auto', XLA would take over."
    if functor.without_reference:
        return (
            f"Or give {functor.without_reference!r} a reference=, a function of the same scalars "
            "in Python, for XLA to evaluate."
        )
    return None
