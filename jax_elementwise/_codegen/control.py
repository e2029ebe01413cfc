"""Control flow: branches, loops, and calls of functions that this package made."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jax_elementwise import _compat, _jaxprs
from jax_elementwise._codegen.values import (
    Array,
    UnsupportedError,
    Value,
    array_of,
    round_if_needed,
)

if TYPE_CHECKING:
    from jax_elementwise._codegen.emit import Emitter

__all__ = ["CONTROL"]


def call(emitter: Emitter, equation: Any, operands: list[Array]) -> list[Array]:
    """A function made by this package, called from another one, perhaps on arrays."""
    shape, functor = equation.outvars[0].aval.shape, equation.params["functor"]
    if equation.params["index"] is not None:
        raise UnsupportedError(
            f"{functor.origin!r}, which asks for the index of the element, inside of another "
            "elementwise function"
        )
    columns = [np.broadcast_to(x, shape).ravel() for x in operands]
    results = [
        emitter.jaxpr(functor.jaxpr, [array_of([x], ()) for x in row])
        for row in zip(*columns, strict=True)
    ]
    by_result = zip(*results, strict=True) if results else [[]] * len(equation.outvars)
    return [array_of([x[()] for x in column], shape) for column in by_result]


def cond(emitter: Emitter, equation: Any, operands: list[Array]) -> list[Array]:
    """A branch that is really taken or not, so what is not chosen is not computed."""
    index, arguments = operands[0][()], operands[1:]
    branches = equation.params["branches"]
    results = [_variables(emitter, var.aval) for var in equation.outvars]
    for number, branch in enumerate(branches):
        # Indices outside the range go to the nearest branch, as in lax.switch.
        test = f"{index.code} <= {number}" if index.dtype.kind == "int" else f"!{index.code}"
        keyword = f"if ({test}) {{" if number == 0 else f"}} else if ({test}) {{"
        emitter.line("} else {" if number == len(branches) - 1 else keyword)
        emitter.indent += 1
        for result, values in zip(results, emitter.jaxpr(branch, arguments), strict=True):
            for variable, value in zip(result.flat, values.flat, strict=True):
                emitter.line(f"{variable.code} = {value.code};")
        emitter.indent -= 1
    emitter.line("}")
    return results


def _variables(emitter: Emitter, aval: Any) -> Array:
    """Variables to be assigned to."""
    dtype = emitter.dtype(aval, "a result of cond")
    emitter.declare(dtype)
    variables = [Value(emitter.name(), dtype) for _ in range(aval.size)]
    for variable in variables:
        emitter.line(f"{dtype.compute} {variable.code};")
    return array_of(variables, aval.shape)


# ---- Loops ---------------------------------------------------------------------------------------


def while_loop(emitter: Emitter, equation: Any, operands: list[Array]) -> list[Array]:
    """A loop that each element leaves when its own condition says so."""
    condition, step = equation.params["cond_jaxpr"], equation.params["body_jaxpr"]
    for_condition = equation.params["cond_nconsts"]
    for_step = for_condition + equation.params["body_nconsts"]
    state = _state(emitter, operands[for_step:])
    emitter.line("while (true) {")
    emitter.indent += 1
    (goes_on,) = emitter.jaxpr(condition, [*operands[:for_condition], *state])
    test = " || ".join(emitter.bind(value).code for value in goes_on.flat) or "false"
    emitter.line(f"if (!({test})) break;")
    values = emitter.jaxpr(step, [*operands[for_condition:for_step], *state])
    if goes_on.shape:  # one loop for all that jax.vmap made of one: some have ended already
        values = [
            _where(emitter, goes_on, new, old) for new, old in zip(values, state, strict=True)
        ]
    _advance(emitter, state, values)
    emitter.indent -= 1
    emitter.line("}")
    return state


def scan(emitter: Emitter, equation: Any, operands: list[Array]) -> list[Array]:
    """A loop of a known number of steps: written out if they are few, or differ."""
    length = equation.params["length"]
    constants, carry, columns = _compat.scan_operands(equation, operands)
    if not _jaxprs.is_long_scan(equation):
        return _written_out(emitter, equation, constants, carry, columns)
    state = _state(emitter, carry)
    counter = emitter.name()
    emitter.line(f"for (int64 {counter} = 0; {counter} < {length}; ++{counter}) {{")
    emitter.indent += 1
    _advance(emitter, state, emitter.jaxpr(equation.params["jaxpr"], [*constants, *state]))
    emitter.indent -= 1
    emitter.line("}")
    return state


def _written_out(
    emitter: Emitter,
    equation: Any,
    constants: list[Array],
    carry: list[Array],
    columns: list[Array],
) -> list[Array]:
    """A scan step by step: each gets an entry of what is scanned over, and may give one."""
    length, step = equation.params["length"], equation.params["jaxpr"]
    if length > emitter.max_elements:
        raise UnsupportedError(
            f"a scan of {length} steps (more than {emitter.max_elements}) over arrays"
        )
    stacked: list[list[Array]] = []
    for i in range(length)[:: -1 if equation.params["reverse"] else 1]:
        row = [column[i, ...] for column in columns]
        results = emitter.jaxpr(step, [*constants, *carry, *row])
        # Values that go around a loop are rounded, however many steps of it are written out.
        carry = [_rounded(emitter, value) for value in results[: len(carry)]]
        stacked.append(results[len(carry) :])
    if equation.params["reverse"]:
        stacked.reverse()
    if not stacked:
        shapes = [var.aval.shape for var in equation.outvars[len(carry) :]]
        return [*carry, *(np.empty(shape, object) for shape in shapes)]
    return [*carry, *(np.stack(column) for column in zip(*stacked, strict=True))]


def _where(emitter: Emitter, tests: Array, new: Array, old: Array) -> Array:
    """One array or the other, by tests for its leading dimensions."""
    tests = tests.reshape(tests.shape + (1,) * (new.ndim - tests.ndim))
    triples = zip(np.broadcast_to(tests, new.shape).flat, new.flat, old.flat, strict=True)
    values = [
        emitter.bind(Value(f"{t.code} ? {x.code} : {y.code}", x.dtype, x.exact and y.exact))
        for t, x, y in triples
    ]
    return array_of(values, new.shape)


def _state(emitter: Emitter, initial: Sequence[Array]) -> list[Array]:
    """Variables that go around a loop, with their first values."""
    state = []
    for values in (_rounded(emitter, x) for x in initial):
        variables = [Value(emitter.name(), value.dtype, exact=True) for value in values.flat]
        for variable, value in zip(variables, values.flat, strict=True):
            emitter.declare(value.dtype)
            emitter.line(f"{value.dtype.compute} {variable.code} = {value.code};")
        state.append(array_of(variables, values.shape))
    return state


def _advance(emitter: Emitter, state: Sequence[Array], values: Sequence[Array]) -> None:
    """Assigns the values of the next step, all at once."""
    variables = [x for array in state for x in array.flat]
    names = {x.code for x in variables}
    pairs = []
    for variable, value in zip(variables, (x for array in values for x in array.flat), strict=True):
        if value.code == variable.code:
            continue
        new = emitter.bind(round_if_needed(value))
        if new.code in names:  # another variable, which is about to change
            name = emitter.name()
            emitter.line(f"const {new.dtype.compute} {name} = {new.code};")
            new = dataclasses.replace(new, code=name)
        pairs.append((variable, new))
    for variable, new in pairs:
        emitter.line(f"{variable.code} = {new.code};")


def _rounded(emitter: Emitter, values: Array) -> Array:
    rounded = [emitter.bind(round_if_needed(value)) for value in values.flat]
    return array_of(rounded, values.shape)


CONTROL: dict[str, Callable[[Emitter, Any, list[Array]], list[Array]]] = {
    "cond": cond,
    "elementwise": call,
    "scan": scan,
    "while": while_loop,
}
