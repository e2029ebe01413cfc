"""Control flow: branches, loops, and calls of functions that this package made."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from jax_elementwise import _compat
from jax_elementwise._codegen.registry import Context, rule
from jax_elementwise._codegen.values import (
    Array,
    UnsupportedError,
    Value,
    array_of,
    round_if_needed,
)
from jax_elementwise._codegen.writer import Writer
from jax_elementwise._functor import jaxprs
from jax_elementwise._functor.counted import is_counted

__all__: list[str] = []  # its rules are in the registry


@rule("optimization_barrier")
def _unchanged(context: Context, *operands: Array) -> list[Array]:
    del context
    return list(operands)


@rule(*jaxprs.WRAPPERS)
def _wrapped(context: Context, *operands: Array) -> list[Array]:
    return context.jaxpr(jaxprs.wrapped(context.equation), operands)


def inline(context: Context, jaxpr: Any, operands: Sequence[Array]) -> list[Array]:
    """Writes a jaxpr of scalars for every element of operands that broadcast."""
    shape = context.shape
    columns = [np.broadcast_to(x, shape).ravel() for x in operands]
    results = [
        context.jaxpr(jaxpr, [array_of([x], ()) for x in row]) for row in zip(*columns, strict=True)
    ]
    by_result = zip(*results, strict=True) if results else [[]] * len(context.equation.outvars)
    return [array_of([x[()] for x in column], shape) for column in by_result]


@rule("cond")
def _cond(context: Context, *operands: Array) -> list[Array]:
    """A branch that is really taken or not, so what is not chosen is not computed."""
    writer, branches = context.writer, context.params["branches"]
    index, arguments = operands[0][()], operands[1:]
    results = [_variables(context, var.aval) for var in context.equation.outvars]
    for number, branch in enumerate(branches):
        # Indices outside the range go to the nearest branch, as in lax.switch.
        test = f"{index.code} <= {number}" if index.dtype.kind == "int" else f"!{index.code}"
        keyword = f"if ({test}) {{" if number == 0 else f"}} else if ({test}) {{"
        writer.line("} else {" if number == len(branches) - 1 else keyword)
        with writer.indented():
            for result, values in zip(results, context.jaxpr(branch, arguments), strict=True):
                for variable, value in zip(result.flat, values.flat, strict=True):
                    writer.line(f"{variable.code} = {value.code};")
    writer.line("}")
    return results


def _variables(context: Context, aval: Any) -> Array:
    """Variables to be assigned to."""
    dtype = context.dtype_of(aval, "a result of cond")
    return array_of([context.writer.variable(dtype) for _ in range(aval.size)], aval.shape)


# ---- Loops ---------------------------------------------------------------------------------------


@rule("while")
def _while_loop(context: Context, *operands: Array) -> list[Array]:
    """A loop that each element leaves when its own condition says so."""
    writer, params = context.writer, context.params
    for_condition = params["cond_nconsts"]
    for_step = for_condition + params["body_nconsts"]
    state = _state(writer, operands[for_step:])
    writer.line("while (true) {")
    with writer.indented():
        (goes_on,) = context.jaxpr(params["cond_jaxpr"], [*operands[:for_condition], *state])
        test = " || ".join(writer.bind(value).code for value in goes_on.flat) or "false"
        test = test if is_counted(context.equation) else f"goes_on({test})"
        writer.line(f"if (!({test})) break;")
        values = context.jaxpr(params["body_jaxpr"], [*operands[for_condition:for_step], *state])
        if goes_on.shape:  # one loop for all that jax.vmap made of one: some have ended already
            pairs = zip(values, state, strict=True)
            values = [_where(writer, goes_on, new, old) for new, old in pairs]
        _advance(writer, state, values)
    writer.line("}")
    return state


@rule("scan")
def _scan(context: Context, *operands: Array) -> list[Array]:
    """A loop of a known number of steps: unrolled if they are few, or differ."""
    writer, length = context.writer, context.params["length"]
    constants, carry, columns = _compat.scan_operands(context.equation, list(operands))
    if not jaxprs.is_long_scan(context.equation):
        return _unrolled(context, constants, carry, columns)
    state = _state(writer, carry)
    counter = writer.name()
    writer.line(f"for (int64 {counter} = 0; {counter} < {length}; ++{counter}) {{")
    with writer.indented():
        _advance(writer, state, context.jaxpr(context.params["jaxpr"], [*constants, *state]))
    writer.line("}")
    return state


def _unrolled(
    context: Context, constants: list[Array], carry: list[Array], columns: list[Array]
) -> list[Array]:
    """A scan step by step: each gets an entry of what is scanned over, and may give one."""
    writer, params = context.writer, context.params
    length = params["length"]
    if length > context.max_elements:
        raise UnsupportedError(
            f"a scan of {length} steps (more than {context.max_elements}) over arrays"
        )
    stacked: list[list[Array]] = []
    for i in range(length)[:: -1 if params["reverse"] else 1]:
        row = [column[i, ...] for column in columns]
        results = context.jaxpr(params["jaxpr"], [*constants, *carry, *row])
        # Values that go around a loop are rounded, however many steps of it are unrolled.
        carry = [_rounded(writer, value) for value in results[: len(carry)]]
        stacked.append(results[len(carry) :])
    if params["reverse"]:
        stacked.reverse()
    if not stacked:
        shapes = [var.aval.shape for var in context.equation.outvars[len(carry) :]]
        return [*carry, *(np.empty(shape, object) for shape in shapes)]
    return [*carry, *(np.stack(column) for column in zip(*stacked, strict=True))]


def _where(writer: Writer, tests: Array, new: Array, old: Array) -> Array:
    """One array or the other, by tests for its leading dimensions."""
    tests = tests.reshape(tests.shape + (1,) * (new.ndim - tests.ndim))
    triples = zip(np.broadcast_to(tests, new.shape).flat, new.flat, old.flat, strict=True)
    values = [
        writer.bind(Value(f"{t.code} ? {x.code} : {y.code}", x.dtype, x.exact and y.exact))
        for t, x, y in triples
    ]
    return array_of(values, new.shape)


def _state(writer: Writer, initial: Sequence[Array]) -> list[Array]:
    """Variables that go around a loop, with their first values."""
    state = []
    for values in (_rounded(writer, x) for x in initial):
        variables = [Value(writer.name(), value.dtype, exact=True) for value in values.flat]
        for variable, value in zip(variables, values.flat, strict=True):
            writer.declare(value.dtype)
            writer.line(f"{value.dtype.compute} {variable.code} = {value.code};")
        state.append(array_of(variables, values.shape))
    return state


def _advance(writer: Writer, state: Sequence[Array], values: Sequence[Array]) -> None:
    """Assigns the values of the next step, all at once."""
    variables = [x for array in state for x in array.flat]
    names = {x.code for x in variables}
    pairs = []
    for variable, value in zip(variables, (x for array in values for x in array.flat), strict=True):
        if value.code == variable.code:
            continue
        new = writer.bind(round_if_needed(value))
        if new.code in names:  # another variable, which is about to change
            name = writer.name()
            writer.line(f"const {new.dtype.compute} {name} = {new.code};")
            new = dataclasses.replace(new, code=name)
        pairs.append((variable, new))
    for variable, new in pairs:
        writer.line(f"{variable.code} = {new.code};")


def _rounded(writer: Writer, values: Array) -> Array:
    rounded = [writer.bind(round_if_needed(value)) for value in values.flat]
    return array_of(rounded, values.shape)
