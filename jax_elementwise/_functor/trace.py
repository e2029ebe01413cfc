"""How a function of scalars becomes a functor."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.sharding import get_abstract_mesh

from jax_elementwise import _compat
from jax_elementwise._functor import custom_rules, jaxprs, rewrite
from jax_elementwise._functor.constants import check_captured, constant_array
from jax_elementwise._functor.functor import Functor

__all__ = ["Traced", "trace"]


@dataclasses.dataclass(frozen=True)
class Traced:
    """A user's function as a functor.

    Attributes:
      functor: its operands are the function's, then the captured values.
      captured: rank-0 arrays and tracers that the function closes over. Small arrays are part of
        the functor instead.
      out_tree: the structure that the function returns.
    """

    functor: Functor
    captured: tuple[Any, ...]
    out_tree: Any


def trace(fun: Callable[..., Any], avals: Sequence[Any], name: str) -> Traced:
    """Traces a function of scalars.

    Args:
      fun: takes one scalar per entry of ``avals``; returns a pytree of scalars.
      avals: dtypes and weak types of the operands.
      name: of the function, for messages and kernels.

    Raises:
      TypeError: if the function returns anything but scalars.
      CapturedArrayError: if it captures a large array, or one whose values are not known.
    """
    dtypes = [aval.dtype for aval in avals]
    is_manual = bool(get_abstract_mesh().manual_axes)
    closed, out = _jaxpr_of(fun, avals)
    _check_results(out, name)
    with jaxprs.for_scalars(*dtypes):
        if custom_rules.needs_closing(closed):
            closed = _again(custom_rules.close, closed)
        if any(map(_captures, closed.eqns)):
            closed = _again(rewrite.inline_jits, closed)
    values = tuple(_compat.consts(closed))
    for value in values:
        check_captured(value, f"{name!r} captures")
    captured = tuple(value for value in values if np.ndim(value) == 0)
    types = list(map(jax.typeof, captured))
    with jaxprs.for_scalars(*dtypes, *(aval.dtype for aval in types)):
        if values:
            closed = _uncaptured(closed, values)
        if is_manual:
            # Inside of it, too, no type is to show the axes over which a value varies.
            closed = _again(rewrite.evaluate_throughout, closed)
    return Traced(Functor(name, closed), captured, jax.tree.structure(out))


def _scalar(aval: Any) -> Any:
    return jax.ShapeDtypeStruct((), aval.dtype, weak_type=aval.weak_type)


def _again(evaluate: Callable[[Any, Sequence[Any]], list[Any]], jaxpr: Any) -> Any:
    """The closed jaxpr of the evaluation of one, for operands of the same types."""
    return jax.make_jaxpr(lambda *args: evaluate(jaxpr, args))(*map(_scalar, jaxpr.in_avals))


def _jaxpr_of(fun: Callable[..., Any], avals: Sequence[Any]) -> tuple[Any, Any]:
    """The closed jaxpr of a function as it stands, and the types of what it returns."""
    scalars = list(map(_scalar, avals))
    try:
        with jaxprs.for_scalars(*(aval.dtype for aval in avals)):
            return jax.make_jaxpr(fun, return_shape=True)(*scalars)
    except (AssertionError, TypeError):
        if not get_abstract_mesh().manual_axes:
            raise
    # What the function captures in shard_map is of another type there than its operands, which no
    # loop takes as its first state, nor a branch as its result. So let these be what they are.
    axes = tuple(sorted(frozenset[str]().union(*map(_compat.varying_axes, avals))))

    def varying(*operands: Any) -> Any:
        return fun(*(lax.pcast(x, axes, to="varying") for x in operands))

    with jaxprs.wide_types(*(aval.dtype for aval in avals)):
        return jax.make_jaxpr(varying, return_shape=True)(*scalars)


def _uncaptured(jaxpr: Any, values: Sequence[Any]) -> Any:
    """A jaxpr that is closed over nothing: scalars are operands, small arrays constant arrays."""
    count = len(jaxpr.in_avals)

    def fun(*args: Any) -> list[Any]:
        given = iter(args[count:])
        constants = [constant_array(value) if np.ndim(value) else next(given) for value in values]
        return rewrite.evaluate(jaxpr, *args[:count], constants=constants)

    types = [jax.typeof(value) for value in values if np.ndim(value) == 0]
    return jax.make_jaxpr(fun)(*map(_scalar, (*jaxpr.in_avals, *types)))


def _captures(equation: Any) -> bool:
    """Whether a jaxpr inside an equation is closed over values."""
    return any(
        _compat.consts(inner) or any(map(_captures, inner.eqns))
        for inner in jaxprs.subjaxprs(equation)
    )


def _check_results(out: Any, name: str) -> None:
    for path, leaf in jax.tree_util.tree_leaves_with_path(out):
        if leaf.shape != ():
            where = f" at {jax.tree_util.keystr(path)}" if path else ""
            raise TypeError(
                f"{name!r} must return scalars, one element's results, but returned an array of "
                f"shape {leaf.shape} and dtype {leaf.dtype}{where}. Several results are a "
                "tuple; an array that the function captures is a whole table, not one entry per "
                "element: pass it as an argument."
            )
