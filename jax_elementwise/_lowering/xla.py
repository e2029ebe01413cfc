"""The functor's jaxpr as ordinary XLA operations.

For every platform without a kernel, as the reference in tests, and as the way to debug.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
from jax import lax
from jax.interpreters import mlir

from jax_elementwise._index import Index, with_index
from jax_elementwise._lowering import partition

if TYPE_CHECKING:
    from jax_elementwise._functor import Functor

__all__ = ["evaluate", "lower"]


def evaluate(functor: Functor, operands: Sequence[Any], index: Index | None = None) -> list[Any]:
    """A functor's results on arrays that broadcast, by ``jax.vmap`` over every dimension.

    Operands that lack a dimension, or have one element along it, are not mapped over it, so none is
    broadcast before XLA sees where it is used.
    """
    if index is not None:
        dtype = functor.in_avals[index.position].dtype
        operands = with_index(index, operands, index.array(dtype))
    rank = max((x.ndim for x in operands), default=0)
    # Per operand, which dimensions of the result it has; those of one element are squeezed away.
    has = [(False,) * (rank - x.ndim) + tuple(n != 1 for n in x.shape) for x in operands]
    squeezed = [lax.squeeze(x, [d for d, n in enumerate(x.shape) if n == 1]) for x in operands]
    fun: Callable[..., list[Any]] = functor
    missing = []
    for d in reversed(range(rank)):
        axes = [0 if dims[d] else None for dims in has]
        if any(dims[d] for dims in has):
            fun = jax.vmap(fun, in_axes=axes)
        else:
            missing.append(d)
    return [lax.expand_dims(result, missing) for result in fun(*squeezed)]


def lower(ctx: Any, *operands: Any, functor: Functor, index: Index | None, **params: Any) -> Any:
    """The lowering rule."""
    del params

    def fun(*arrays: Any) -> list[Any]:
        return evaluate(functor, arrays, index)

    # Inside the functor scalars have no mesh; the arrays it is evaluated on must have none either.
    with functor.wide_types():
        return mlir.lower_fun(fun, multiple_results=True)(partition.local(ctx), *operands)
