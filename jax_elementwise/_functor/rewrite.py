"""Jaxprs evaluated anew, with some of their equations replaced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.extend.core as jex

from jax_elementwise import _compat
from jax_elementwise._functor import jaxprs

__all__ = ["Rule", "bind_with", "evaluate", "evaluate_throughout", "inline_jits", "traced"]

# Gets an equation and its operands. Gives the results, or None where the equation stays as it is.
Rule = Callable[[Any, list[Any]], Sequence[Any] | None]


def _unchanged(equation: Any, operands: list[Any]) -> None:
    """Replaces nothing."""


def evaluate(
    jaxpr: Any,
    *operands: Any,
    rule: Rule = _unchanged,
    constants: Sequence[Any] | None = None,
) -> list[Any]:
    """A jaxpr's results, as of ``jax.core.eval_jaxpr``, but for equations that a rule replaces.

    ``constants`` take the place of the values that the jaxpr is closed over.
    """
    body = _compat.open_jaxpr(jaxpr)
    values = [*(_compat.consts(jaxpr) if constants is None else constants), *operands]
    env = dict(zip([*body.constvars, *body.invars], values, strict=True))

    def read(atom: Any) -> Any:
        return atom.val if _compat.is_literal(atom) else env[atom]

    for equation in body.eqns:
        given = [read(atom) for atom in equation.invars]
        results = rule(equation, given)
        if results is None:
            results = _compat.bind_again(equation, given)
        env.update(zip(equation.outvars, results, strict=True))
    return [read(atom) for atom in body.outvars]


def inline_jits(jaxpr: Any, operands: Sequence[Any]) -> list[Any]:
    """A jaxpr's results, with nested ``jit`` calls inlined, so that what they capture surfaces."""

    def rule(equation: Any, given: list[Any]) -> Sequence[Any] | None:
        if equation.primitive is not jex.primitives.jit_p:
            return None
        return evaluate(equation.params["jaxpr"], *given, rule=rule)

    return evaluate(jaxpr, *operands, rule=rule)


def evaluate_throughout(jaxpr: Any, operands: Sequence[Any], rule: Rule = _unchanged) -> list[Any]:
    """The same as ``evaluate``, with the equations of jaxprs inside of equations replaced, too."""

    def inner(jaxpr: Any) -> Callable[..., list[Any]]:
        return lambda *args: evaluate_throughout(jaxpr, args, rule)

    def everywhere(equation: Any, given: list[Any]) -> Sequence[Any] | None:
        if any(True for _ in jaxprs.subjaxprs(equation)):
            return bind_with(equation, given, inner)
        return rule(equation, given)

    return evaluate(jaxpr, *operands, rule=everywhere)


def bind_with(
    equation: Any, operands: Sequence[Any], transform: Callable[[Any], Callable[..., Any]]
) -> list[Any]:
    """An equation on other operands, with each jaxpr among its parameters replaced.

    ``transform`` makes a function of a closed jaxpr, of the same operands and types of results.
    """
    params = {key: _transformed(value, transform) for key, value in equation.params.items()}
    return _compat.bind_again(equation.replace(params=params), operands)


def _transformed(value: Any, transform: Callable[[Any], Callable[..., Any]]) -> Any:
    if isinstance(value, (tuple, list)):
        return type(value)(_transformed(item, transform) for item in value)
    if _compat.is_jaxpr(value):
        changed = traced(transform(value), value)
        return changed if hasattr(value, "jaxpr") else _compat.open_jaxpr(changed)
    if _compat.is_jaxpr(getattr(value, "jaxpr", None)):  # a functor
        return value.variant(traced(transform(value.jaxpr), value.jaxpr))
    return value


def traced(function: Callable[..., Any], like: Any) -> Any:
    """The closed jaxpr of a function whose operands and results have the types of a jaxpr's."""
    avals = like.in_avals

    def of_types(*operands: Any) -> list[Any]:
        pairs = zip(function(*operands), like.out_avals, strict=True)
        return [jax.lax.convert_element_type(x, aval.dtype) for x, aval in pairs]

    return jax.make_jaxpr(of_types)(
        *(jax.ShapeDtypeStruct(a.shape, a.dtype, weak_type=a.weak_type) for a in avals)
    )
