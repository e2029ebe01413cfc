"""Which loops end for all values, because they count."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp

from jax_elementwise import _compat
from jax_elementwise._functor import rewrite

__all__ = ["is_counted"]

_ENDS = {1: ("lt", "gt"), -1: ("gt", "lt")}  # by the counter's direction, on the left or the right


def is_counted(equation: Any) -> bool:
    """Whether a ``while`` ends for all values: an integer goes to a bound, in steps of one.

    Other conditions may end it before. In steps of more than one the integer could pass over the
    largest of its type.
    """
    params = equation.params
    body = _flat(params["body_jaxpr"])
    condition = _flat(params["cond_jaxpr"])
    count = params["cond_nconsts"]
    bounds = set(condition.invars[:count])
    counters = {}
    pairs = zip(body.invars[params["body_nconsts"] :], body.outvars, strict=True)
    for var, (before, after) in zip(condition.invars[count:], pairs, strict=True):
        if after is before:
            bounds.add(var)
        elif (direction := _direction(body, before, after)) is not None:
            counters[var] = _ENDS[direction]
    return any(
        name in _names(counters, left, 0, bounds, right)
        or name in _names(counters, right, 1, bounds, left)
        for name, left, right in _comparisons(condition)
    )


def _names(counters: Any, counter: Any, side: int, bounds: Any, bound: Any) -> tuple[str, ...]:
    """The comparisons of a counter, on one side, with a bound that are false in the end."""
    if _compat.is_literal(counter) or counter not in counters:
        return ()
    return (counters[counter][side],) if _compat.is_literal(bound) or bound in bounds else ()


def _flat(jaxpr: Any) -> Any:
    """A jaxpr with nested ``jit`` calls inlined."""
    if not any(equation.primitive.name == "jit" for equation in _compat.open_jaxpr(jaxpr).eqns):
        return _compat.open_jaxpr(jaxpr)
    inlined = rewrite.traced(lambda *args: rewrite.inline_jits(jaxpr, args), jaxpr)
    return _compat.open_jaxpr(inlined)


def _direction(body: Any, before: Any, after: Any) -> int | None:
    """1 if a step of a loop adds one to an integer, -1 if it subtracts one; else None."""
    if not jnp.issubdtype(before.aval.dtype, jnp.integer) or before.aval.shape:
        return None
    for equation in body.eqns:
        if after in equation.outvars and equation.primitive.name in ("add", "sub"):
            left, right = equation.invars
            if left is not before or not _compat.is_literal(right):
                return None
            step = int(right.val) if equation.primitive.name == "add" else -int(right.val)
            return step if step in _ENDS else None
    return None


def _comparisons(condition: Any) -> Iterator[tuple[str, Any, Any]]:
    """The comparisons, all of which must be true for a loop to go on."""
    origins = {equation.outvars[0]: equation for equation in condition.eqns}
    ahead = list(condition.outvars)
    while ahead:
        atom = ahead.pop()
        equation = None if _compat.is_literal(atom) else origins.get(atom)
        if equation is None:
            continue
        if equation.primitive.name in ("and", "convert_element_type"):
            ahead.extend(equation.invars)
        elif equation.primitive.name in ("lt", "gt"):
            yield (equation.primitive.name, *equation.invars)
