"""A call as a kernel, where one can be compiled; else as XLA's operations."""

from __future__ import annotations

from collections.abc import Callable
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
    options: Any,
    index: Index | None,
    compile_here: Callable[[Kernel], None],
    warn: Callable[[str], None],
) -> Any:
    """The part of a lowering rule that platforms share.

    ``compile_here`` compiles for the devices of this machine, so that what does not compile fails
    now, by name. Where there is no compiler XLA takes over, and ``warn`` says why, unless the
    kernel is required. Every other failure is an error, which a warning would hide.
    """
    call = divided if _compat.is_partitioned(ctx) else custom_call
    kernel = call.kernel_of_call(ctx, functor, options, index)
    try:
        compile_here(kernel)
    except _kernels.Unavailable as error:
        required = custom_call.requirement(functor, options)
        if required is not None:
            raise _kernels.Unavailable(f"{str(error).rstrip('.')}. {required}".rstrip()) from None
        warn(str(error))
        return xla.lower(ctx, *operands, functor=functor, index=index)
    return call.lower(ctx, *operands, kernel=kernel, functor=functor, options=options, index=index)
