"""A call as a kernel, where one is wanted and can be compiled; else as XLA's operations."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from jax_elementwise import _compat, _extension
from jax_elementwise._codegen.kernel import Kernel
from jax_elementwise._lowering import custom_call, divided, xla

if TYPE_CHECKING:
    from jax_elementwise._functor import Functor
    from jax_elementwise._index import Index

__all__ = ["rule"]


def rule(
    wants_kernel: Callable[[Functor], bool], compile_here: Callable[[Kernel], None], warning: str
) -> Callable[..., Any]:
    """The lowering rule of one platform.

    ``wants_kernel`` decides where the user leaves it open. ``compile_here`` compiles for the
    devices of this machine, so that what does not compile fails now, by name. Where there is no
    compiler XLA takes over, with a warning and the reason, unless the kernel is required. Every
    other failure is an error, which a warning would hide.
    """

    def lower(
        ctx: Any,
        *operands: Any,
        functor: Functor,
        linear: Any,
        options: Any,
        index: Index | None,
    ) -> Any:
        del linear
        by_xla = options.lowering == "xla" or (
            functor.awaits_transpose  # of which JAX says what it is
            or not (options.lowering == "kernel" or wants_kernel(functor))
        )
        if by_xla:
            return xla.lower(ctx, *operands, functor=functor, index=index)
        prepare = divided.prepare if _compat.is_partitioned(ctx) else custom_call.prepare
        kernel, emit = prepare(ctx, functor, options, index)
        try:
            compile_here(kernel)
        except _extension.Unavailable as error:
            required = _requirement(functor, options)
            if required is not None:
                message = f"{str(error).rstrip('.')}. {required}".rstrip()
                raise _extension.Unavailable(message) from None
            _warn_once(f"{warning}, so XLA's own operations are used: {error}")
            return xla.lower(ctx, *operands, functor=functor, index=index)
        return emit(*operands)

    return lower


@functools.cache
def _warn_once(message: str) -> None:
    """One warning per process and reason, not per function."""
    warnings.warn(message, stacklevel=2)


def _requirement(functor: Functor, options: Any) -> str | None:
    """What to add to the error where no kernel can be compiled; None where XLA takes over."""
    if options.lowering == "kernel":
        return "" if functor.without_reference else "With lowering='auto', XLA would take over."
    if functor.without_reference:
        return (
            f"Or give {functor.without_reference!r} a reference=, a function of the same scalars "
            "in Python, for XLA to evaluate."
        )
    return None
