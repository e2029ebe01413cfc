"""The functor's jaxpr as ordinary XLA operations.

For every platform without a kernel, as the reference in tests, and as the way to debug.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import lax
from jax.interpreters import mlir

from jax_elementwise import _compat
from jax_elementwise._functor import jaxprs, rewrite
from jax_elementwise._functor.functor import Functor
from jax_elementwise._functor.index import Index, with_index
from jax_elementwise._lowering import explicit_axes

__all__ = ["evaluate", "lower", "spread"]


def evaluate(functor: Functor, operands: Sequence[Any], index: Index | None = None) -> list[Any]:
    """A functor's results on arrays that broadcast."""
    if index is not None:
        dtype = functor.in_avals[index.position].dtype
        operands = with_index(index, operands, index.array(dtype))
    if any(True for _ in jaxprs.calls(functor.jaxpr, "clamp")):
        return spread(
            lambda *xs: rewrite.evaluate_throughout(functor.jaxpr, xs, _mapped_clamp), operands
        )
    return spread(functor, operands)


def _mapped_clamp(equation: Any, operands: list[Any]) -> list[Any] | None:
    """``lax.clamp`` of something that is mapped wherever its upper bound is.

    JAX's rule for ``vmap`` of it raises a TypeError where only the upper bound is mapped (0.12).
    """
    if equation.primitive is not lax.clamp_p:
        return None
    low, x, high = operands
    return [lax.clamp(low, lax.select_n(lax.eq(high, high), x, x), high)]


def spread(fun: Callable[..., list[Any]], operands: Sequence[Any]) -> list[Any]:
    """A function of scalars on arrays that broadcast, by ``jax.vmap`` over every dimension.

    Operands that lack a dimension, or have one element along it, are not mapped over it, so none is
    broadcast before XLA sees where it is used.
    """
    rank = max((x.ndim for x in operands), default=0)
    # Per operand, which dimensions of the result it has; those of one element are squeezed away.
    has = [(False,) * (rank - x.ndim) + tuple(n != 1 for n in x.shape) for x in operands]
    squeezed = [lax.squeeze(x, [d for d, n in enumerate(x.shape) if n == 1]) for x in operands]
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
    with functor.wide_types(), _compat.without_varying_axes():
        return mlir.lower_fun(fun, multiple_results=True)(explicit_axes.local(ctx), *operands)
