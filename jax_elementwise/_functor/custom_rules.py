"""Derivative rules that capture values of the function around them.

A ``custom_jvp`` or ``custom_vjp`` function inside of another function may have rules that use what
that function computes, without having it as an argument. JAX calls them when it differentiates, in
the midst of the function. A functor is differentiated when its trace is over, so what the rules
capture becomes arguments of theirs before.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_derivatives import SymbolicZero

from jax_elementwise import _compat
from jax_elementwise._functor import jaxprs, rewrite

__all__ = ["close", "needs_closing"]

_CALLS = ("custom_jvp_call", "custom_vjp_call")
_Env = dict[Any, Any]  # values of variables, those of enclosing jaxprs included


def needs_closing(jaxpr: Any) -> bool:
    """Whether a rule of a call in a jaxpr that was just traced captures traced values."""
    return any(_needs_closing(call) for name in _CALLS for call in jaxprs.calls(jaxpr, name))


def _needs_closing(equation: Any) -> bool:
    rule = _rule_of(equation)
    return rule is not None and (rule.gives_zeros or bool(rule.captured))


def close(jaxpr: Any, operands: Sequence[Any], outer: _Env | None = None) -> list[Any]:
    """A jaxpr's results, by calls whose rules have what they capture as arguments."""
    body = _compat.open_jaxpr(jaxpr)
    env = dict(outer or {})
    given = [*_compat.consts(jaxpr), *operands]
    env.update(zip([*body.constvars, *body.invars], given, strict=True))

    def read(atom: Any) -> Any:
        return atom.val if _compat.is_literal(atom) else env[atom]

    for equation in body.eqns:
        results = _closed(equation, [read(atom) for atom in equation.invars], env)
        env.update(zip(equation.outvars, results, strict=True))
    return [read(atom) for atom in body.outvars]


def _closed(equation: Any, operands: list[Any], env: _Env) -> Sequence[Any]:
    name, params = equation.primitive.name, equation.params
    if name in _CALLS and _needs_closing(equation):
        return _call(equation, operands, env)
    if not any(map(needs_closing, jaxprs.subjaxprs(equation))):
        return _compat.bind_again(equation, operands)

    def inner(jaxpr: Any, values: Sequence[Any]) -> list[Any]:
        results = close(jaxpr, values, env)
        pairs = zip(results, jaxpr.out_avals, strict=True)
        return [lax.convert_element_type(x, aval.dtype) for x, aval in pairs]

    match name:
        case "while":
            first = params["cond_nconsts"]
            start = first + params["body_nconsts"]
            return lax.while_loop(
                lambda carry: inner(params["cond_jaxpr"], [*operands[:first], *carry])[0],
                lambda carry: inner(params["body_jaxpr"], [*operands[first:start], *carry]),
                operands[start:],
            )
        case "scan":
            constants, carry, columns = _compat.scan_operands(equation, operands)

            def step(carry: Any, row: Any) -> Any:
                results = inner(params["jaxpr"], [*constants, *carry, *row])
                return results[: len(carry)], results[len(carry) :]

            last, stacked = lax.scan(
                step, carry, columns, length=params["length"], reverse=params["reverse"]
            )
            return [*last, *stacked]
        case "cond":
            branches = [
                lambda *values, branch=branch: inner(branch, values)
                for branch in params["branches"]
            ]
            results: list[Any] = lax.switch(operands[0], branches, *operands[1:])
            return results
    if name in jaxprs.WRAPPERS:
        return close(jaxprs.wrapped(equation), operands, env)
    return _compat.bind_again(equation, operands)


# ---- Rules ---------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Rule:
    """A rule as it was traced.

    Attributes:
      run: takes values in the place of the ``captured`` ones, then what the rule takes.
      captured: traced values.
      gives_zeros: whether it returns symbolic zeros without having been asked to, which JAX does
        not take everywhere.
    """

    run: Callable[..., list[Any]]
    captured: tuple[Any, ...]
    gives_zeros: bool = False


def _rule_of(equation: Any) -> _Rule | None:
    """The rule of a call; None where it cannot be traced, of which JAX tells when it is needed."""
    try:
        if equation.primitive.name == "custom_jvp_call":
            return _jvp_rule(equation)
        return _vjp_rule(equation)
    except Exception:
        return None


def _is_float(aval: Any) -> bool:
    return bool(jnp.issubdtype(aval.dtype, jnp.inexact))


def _differentiable(equation: Any) -> range:
    """The operands of a call that are arguments of its function, and not what it captures."""
    return range(equation.params["num_consts"], len(equation.invars))


def _jvp_rule(equation: Any) -> _Rule:
    """Of the operands, then of the tangents of floats; gives results and tangents of floats."""
    avals = [equation.invars[i].aval for i in _differentiable(equation)]
    jaxpr, constants, zeros = _compat.jvp_rule(equation, [not _is_float(aval) for aval in avals])
    run, captured = _split(jaxpr, constants)
    outs = [var.aval for var in equation.outvars]

    def of_floats(*values: Any) -> list[Any]:
        results = run(*values)
        dots = iter(results[len(outs) :])
        given = [None if is_zero else next(dots) for is_zero in zeros]
        tangents = [
            jnp.zeros(aval.shape, aval.dtype) if dot is None else dot
            for dot, aval in zip(given, outs, strict=True)
            if _is_float(aval)
        ]
        return [*results[: len(outs)], *tangents]

    unasked = any(is_zero and _is_float(aval) for is_zero, aval in zip(zeros, outs, strict=True))
    return _Rule(of_floats, captured, unasked and not equation.params["symbolic_zeros"])


def _vjp_rule(equation: Any) -> _Rule:
    """Of the operands, then of the cotangents of floats; gives results and cotangents of floats."""
    avals = [atom.aval for atom in equation.invars]
    floats = [i for i in _differentiable(equation) if _is_float(avals[i])]
    outs = [var.aval for var in equation.outvars]

    def forward_and_back(*values: Any) -> list[Any]:
        operands, cotangents = values[: len(avals)], values[len(avals) :]

        def of_floats(*chosen: Any) -> tuple[list[Any], list[Any]]:
            given = list(operands)
            for i, value in zip(floats, chosen, strict=True):
                given[i] = value
            results = _compat.bind_again(equation, given)
            return [x for x, aval in zip(results, outs, strict=True) if _is_float(aval)], results

        _, back, results = jax.vjp(of_floats, *(operands[i] for i in floats), has_aux=True)
        return [*results, *back(list(cotangents))]

    types = [
        jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in (*avals, *filter(_is_float, outs))
    ]
    closed = jax.make_jaxpr(forward_and_back)(*types)
    return _Rule(*_split(_compat.open_jaxpr(closed), _compat.consts(closed)))


def _split(
    jaxpr: Any, constants: Sequence[Any]
) -> tuple[Callable[..., list[Any]], tuple[Any, ...]]:
    """A jaxpr as a function that takes traced constants first; and these."""
    traced = [i for i, c in enumerate(constants) if isinstance(c, jax.core.Tracer)]

    def run(*values: Any) -> list[Any]:
        given = list(constants)
        for i, value in zip(traced, values[: len(traced)], strict=True):
            given[i] = value
        return jax.core.eval_jaxpr(jaxpr, given, *values[len(traced) :])

    return run, tuple(constants[i] for i in traced)


# ---- Calls ---------------------------------------------------------------------------------------


def _call(equation: Any, operands: list[Any], env: _Env) -> list[Any]:
    """A call whose rule captures, as one whose rule has all it needs."""
    rule = _rule_of(equation)
    assert rule is not None
    captured = [env.get(_compat.variable_of(value), value) for value in rule.captured]
    make = _custom_jvp if equation.primitive.name == "custom_jvp_call" else _custom_vjp
    return make(equation, rule)(captured, operands)


def _function(equation: Any) -> Callable[..., list[Any]]:
    wrapped = jaxprs.wrapped(equation)
    return lambda captured, operands: rewrite.evaluate(wrapped, *operands)


def _custom_jvp(equation: Any, rule: _Rule) -> Any:
    function = jax.custom_jvp(_function(equation))
    first = _differentiable(equation).start
    outs = [var.aval for var in equation.outvars]

    def jvp(primals: Any, tangents: Any) -> Any:
        (captured, operands), (of_captured, dots) = primals, tangents
        if not all(isinstance(dot, SymbolicZero) for dot in (*of_captured, *dots[:first])):
            raise ValueError(_differentiated("custom_jvp"))
        given = [
            jnp.zeros_like(x) if isinstance(dot, SymbolicZero) else dot
            for x, dot in zip(operands[first:], dots[first:], strict=True)
            if _is_float(jax.typeof(x))
        ]
        results = rule.run(*captured, *operands[first:], *given)
        found = iter(results[len(outs) :])
        return results[: len(outs)], [
            next(found) if _is_float(aval) else SymbolicZero(aval.to_tangent_aval())
            for aval in outs
        ]

    function.defjvp(jvp, symbolic_zeros=True)
    return function


def _custom_vjp(equation: Any, rule: _Rule) -> Any:
    function = jax.custom_vjp(_function(equation))
    arguments = _differentiable(equation)
    outs = [var.aval for var in equation.outvars]

    def forward(captured: Any, operands: Any) -> Any:
        if any(x.perturbed for x in (*captured, *operands[: arguments.start])):
            raise ValueError(_differentiated("custom_vjp"))
        captured, operands = jax.tree.map(lambda x: x.value, (captured, operands))
        zeros = [jnp.zeros(aval.shape, aval.dtype) for aval in filter(_is_float, outs)]
        results = rule.run(*captured, *operands, *zeros)[: len(outs)]
        return results, (captured, operands)

    def backward(residuals: Any, cotangents: Any) -> Any:
        captured, operands = residuals
        given = [
            jnp.zeros(aval.shape, aval.dtype) if isinstance(ct, SymbolicZero) else ct
            for ct, aval in zip(cotangents, outs, strict=True)
            if _is_float(aval)
        ]
        found = iter(rule.run(*captured, *operands, *given)[len(outs) :])
        gradients = [
            next(found) if i in arguments and _is_float(jax.typeof(x)) else None
            for i, x in enumerate(operands)
        ]
        return [None] * len(captured), gradients

    function.defvjp(forward, backward, symbolic_zeros=True)
    return function


def _differentiated(kind: str) -> str:
    return (
        "a derivative rule inside an elementwise function captures a value that is differentiated. "
        f"Pass it as an argument of the {kind} function."
    )
