"""Walks over a scalar jaxpr and writes the body of the functor, equation by equation."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from jax_elementwise import _compat
from jax_elementwise._codegen import rules as rules  # registers them
from jax_elementwise._codegen.fusion import fused
from jax_elementwise._codegen.registry import RULES, Context
from jax_elementwise._codegen.values import (
    Array,
    UnsupportedError,
    Value,
    array_of,
    constant,
    known_dtype,
)
from jax_elementwise._codegen.writer import Writer
from jax_elementwise._functor import jaxprs
from jax_elementwise._functor.constants import MAX_ELEMENTS

__all__ = ["Body", "write_body"]


@dataclasses.dataclass(frozen=True)
class Body:
    """The C++ of a scalar function.

    Attributes:
      lines: statements.
      results: what to assign to the results afterwards.
      headers: what must be included besides ``kernel.h``.
      namespaces: what must stand before it.
    """

    lines: list[str]
    results: list[Value]
    headers: list[str]
    namespaces: list[str]


def write_body(
    jaxpr: Any, operands: Sequence[Value], *, max_elements: float = MAX_ELEMENTS
) -> Body:
    """The C++ that computes a closed scalar jaxpr.

    Args:
      jaxpr: the jaxpr.
      operands: what its operands are.
      max_elements: of arrays inside of it.

    Raises:
      NotImplementedError: for an operation with no C++, naming it and the user's line.
    """
    writer = Writer()
    try:
        with jaxprs.for_scalars():  # definitions of primitives are traced here
            arrays = [array_of([operand], ()) for operand in operands]
            results = _write(writer, max_elements, jaxpr, arrays)
    except UnsupportedError as error:
        raise _refusal(error, "") from None
    return Body(writer.lines, [x[()] for x in results], sorted(writer.headers), writer.namespaces)


def _write(
    writer: Writer, max_elements: float, jaxpr: Any, operands: Sequence[Array]
) -> list[Array]:
    """Writes a jaxpr's equations and returns its results."""
    body = _compat.open_jaxpr(jaxpr)
    env = dict(zip(body.invars, operands, strict=True))
    for var, const in zip(body.constvars, _compat.consts(jaxpr), strict=True):
        env[var] = _constants(const, var.aval, "a captured value")

    def read(atom: Any) -> Array:
        if _compat.is_literal(atom):
            return _constants(atom.val, atom.aval, "a constant")
        return env[atom]

    inside = functools.partial(_write, writer, max_elements)
    for equation in fused(body.eqns):
        try:
            context = Context(writer, equation, max_elements, inside)
            results = _write_equation(context, [read(atom) for atom in equation.invars])
        except UnsupportedError as error:
            location = _compat.user_location(equation)
            if not location:  # inside of a function that JAX jits, like jnp.sort: its caller's
                raise
            raise _refusal(error, location) from None
        env.update(zip(equation.outvars, results, strict=True))
    return [read(atom) for atom in body.outvars]


def _write_equation(context: Context, operands: Sequence[Array]) -> list[Array]:
    known = RULES.get(context.name)
    if known is not None:
        results = known.write(context, *operands)
        return list(results) if context.equation.primitive.multiple_results else [results]
    definition = jaxprs.definition(context.equation)
    if definition is None:
        raise UnsupportedError(f"the primitive {context.name!r}")
    return context.jaxpr(definition, operands)


def _constants(value: Any, aval: Any, what: str) -> Array:
    dtype = known_dtype(aval, what)
    return array_of([constant(x, dtype) for x in np.asarray(value).flat], aval.shape)


def _refusal(error: UnsupportedError, location: str) -> NotImplementedError:
    where = f", at {location}" if location else ""
    return NotImplementedError(
        f"cannot generate a kernel for {error}{where}. Compute it outside the elementwise "
        "function and pass the result as an argument, or use elementwise(..., lowering='xla'), "
        "which takes every JAX operation."
    )
