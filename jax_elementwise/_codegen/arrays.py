"""Small arrays inside of a functor: captured tables, ``jnp.stack([x, y])``, sums over either.

An array is its elements, each a value of its own, so what moves elements about (reshaping, slicing,
concatenation) costs nothing: it is done here, when the code is written. Reductions are written out.
Indices are in ``_codegen/indexing.py``.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from jax_elementwise._codegen.primitives import OPERATORS
from jax_elementwise._codegen.types import DTYPES, DType
from jax_elementwise._codegen.values import (
    Array,
    UnsupportedError,
    Value,
    array_of,
    constant,
    round_if_needed,
)

__all__ = ["ARRAYS", "Call", "Writer", "apply_operator", "rule"]


class Writer(Protocol):
    """What rules need of the emitter."""

    def bind(self, value: Value) -> Value:
        """Gives a value a name, so that it is computed once."""

    def entry(self, values: Sequence[Value], index: Value) -> str:
        """The entry of an array of known values, in memory, at an index."""

    def use(self, header: str) -> None:
        """Includes a header."""

    def jaxpr(self, jaxpr: Any, operands: Sequence[Array]) -> list[Array]:
        """Writes a jaxpr's equations and returns its results."""


@dataclasses.dataclass(frozen=True)
class Call:
    """An equation to write.

    Attributes:
      writer: where to write.
      params: of the equation.
      xs: its operands.
      shape: of its (first) result.
      dtype: likewise.
    """

    writer: Writer
    params: dict[str, Any]
    xs: Sequence[Array]
    shape: tuple[int, ...]
    dtype: DType


# Returns an array, or a list of them where the equation has several results.
Rule = Callable[[Call], Any]

ARRAYS: dict[str, Rule] = {}


def rule(name: str) -> Callable[[Rule], Rule]:
    """Registers the rule of a primitive."""

    def register(function: Rule) -> Rule:
        ARRAYS[name] = function
        return function

    return register


def apply_operator(writer: Writer, name: str, operands: Sequence[Value], dtype: DType) -> Value:
    """Writes an operator of the table on scalars."""
    row, first = OPERATORS[name], operands[0].dtype
    form = row.form(first)
    if form is None:
        raise UnsupportedError(f"{name!r} of {first.name}")
    if row.header:
        writer.use(row.header)
    if form.startswith("complex_"):
        writer.use("complex_functions.h")
    if row.rounds:
        operands = [writer.bind(round_if_needed(x)) for x in operands]
    suffix = "f" if first.compute == "float" else ""
    codes = [x.code for x in operands]
    code = form.format(*codes, f=suffix, storage=first.storage, compute=first.compute)
    exact = not dtype.is_narrow or (name == "copy" and operands[0].exact)
    return writer.bind(Value(code, dtype, exact))


# ---- Elements that change their places -----------------------------------------------------------


@rule("squeeze")
@rule("reshape")
def _reshape(call: Call) -> Any:
    return call.xs[0].reshape(call.shape)


@rule("broadcast_in_dim")
def _broadcast_in_dim(call: Call) -> Any:
    padded = [1] * len(call.shape)
    for axis, extent in zip(call.params["broadcast_dimensions"], call.xs[0].shape, strict=True):
        padded[axis] = extent
    return np.broadcast_to(call.xs[0].reshape(padded), call.shape)


@rule("transpose")
def _transpose(call: Call) -> Any:
    return call.xs[0].transpose(call.params["permutation"])


@rule("rev")
def _rev(call: Call) -> Any:
    return np.flip(call.xs[0], call.params["dimensions"])


@rule("slice")
def _slice(call: Call) -> Any:
    strides = call.params["strides"] or (1,) * len(call.shape)
    limits = zip(call.params["start_indices"], call.params["limit_indices"], strides, strict=True)
    return call.xs[0][tuple(itertools.starmap(slice, limits))]


@rule("concatenate")
def _concatenate(call: Call) -> Any:
    return np.concatenate(call.xs, call.params["dimension"])


@rule("stack")
def _stack(call: Call) -> Any:
    return np.stack(call.xs, call.params["axis"])


@rule("unstack")
def _unstack(call: Call) -> Any:
    moved = np.moveaxis(call.xs[0], call.params["axis"], 0)
    return [moved[i, ...] for i in range(moved.shape[0])]


@rule("split")
def _split(call: Call) -> Any:
    return np.split(call.xs[0], np.cumsum(call.params["sizes"])[:-1], call.params["axis"])


@rule("tile")
def _tile(call: Call) -> Any:
    return np.tile(call.xs[0], call.params["reps"])


@rule("pad")
def _pad(call: Call) -> Any:
    x, padding = call.xs
    result = np.full(call.shape, padding[()], object)
    for position in np.ndindex(x.shape):
        config = zip(position, call.params["padding_config"], strict=True)
        target = tuple(low + i * (interior + 1) for i, (low, _, interior) in config)
        if all(0 <= i < n for i, n in zip(target, call.shape, strict=True)):
            result[target] = x[position]
    return result


@rule("iota")
def _iota(call: Call) -> Any:
    values = [
        constant(index[call.params["dimension"]], call.dtype) for index in np.ndindex(call.shape)
    ]
    return array_of(values, call.shape)


@rule("table")
def _table(call: Call) -> Any:
    """An array that the functor captured."""
    return array_of(
        [constant(value, call.dtype) for value in call.params["table"].values.flat], call.shape
    )


# ---- Reductions ----------------------------------------------------------------------------------

_REDUCTIONS = {
    "reduce_sum": "add",
    "reduce_prod": "mul",
    "reduce_max": "max",
    "reduce_min": "min",
    "reduce_and": "and",
    "reduce_or": "or",
    "reduce_xor": "xor",
}
_CUMULATIVE = {"cumsum": "add", "cumprod": "mul", "cummax": "max", "cummin": "min"}


def _rows(x: Array, *groups: Sequence[int]) -> Array:
    """The array with each group of its dimensions made one."""
    extents = [int(np.prod([x.shape[d] for d in group], dtype=int)) for group in groups]
    return x.transpose(*itertools.chain(*groups)).reshape(extents)


def _others(x: Array, *groups: Sequence[int]) -> list[int]:
    """The dimensions that are in none of the groups."""
    return [d for d in range(x.ndim) if not any(d in group for group in groups)]


def _neutral(operator: str, dtype: DType) -> Value:
    """What an operator leaves as it is: the result for no elements."""
    match operator:
        case "max" | "min":
            raise UnsupportedError(f"the {operator} of an empty array")
        case "and" if dtype.kind == "int":
            return constant(np.bitwise_not(np.zeros((), dtype.name)), dtype)
        case "mul" | "and":
            return constant(1, dtype)
        case _:
            return constant(0, dtype)


def _fold(writer: Writer, operator: str, values: Sequence[Value], dtype: DType) -> Value:
    """From the first value to the last."""
    if not len(values):
        return _neutral(operator, dtype)
    return functools.reduce(lambda x, y: apply_operator(writer, operator, [x, y], dtype), values)


def _reduce(operator: str, call: Call) -> Any:
    (x,), axes = call.xs, call.params["axes"]
    rows = _rows(x, _others(x, axes), axes)
    return array_of([_fold(call.writer, operator, row, call.dtype) for row in rows], call.shape)


def _accumulate(operator: str, call: Call) -> Any:
    (x,), axis = call.xs, call.params["axis"]
    x = np.flip(x, axis) if call.params["reverse"] else x
    rows = [
        list(
            itertools.accumulate(
                row, lambda x, y: apply_operator(call.writer, operator, [x, y], call.dtype)
            )
        )
        for row in _rows(x, _others(x, [axis]), [axis])
    ]
    moved = np.moveaxis(x, axis, -1).shape
    result = np.moveaxis(array_of(list(itertools.chain(*rows)), moved), -1, axis)
    return np.flip(result, axis) if call.params["reverse"] else result


for _name, _operator in _REDUCTIONS.items():
    rule(_name)(functools.partial(_reduce, _operator))
for _name, _operator in _CUMULATIVE.items():
    rule(_name)(functools.partial(_accumulate, _operator))


def _arg_reduce(better: str, call: Call) -> Any:
    """The index of the first of equal elements; NaN beats everything, as in NumPy."""
    (x,), axes = call.xs, call.params["axes"]

    def winner(row: Array) -> Value:
        best, index = row[0], constant(0, call.dtype)
        for i, candidate in enumerate(row[1:], 1):
            a, b = candidate.code, best.code
            test = f"{a} {better} {b} || ({a} != {a} && {b} == {b})"
            wins = call.writer.bind(Value(test, DTYPES["bool"], exact=True)).code
            exact = candidate.exact and best.exact
            best = call.writer.bind(Value(f"{wins} ? {a} : {b}", best.dtype, exact))
            new = constant(i, call.dtype).code
            index = call.writer.bind(Value(f"{wins} ? {new} : {index.code}", call.dtype, True))
        return index

    return array_of([winner(row) for row in _rows(x, _others(x, axes), axes)], call.shape)


rule("argmax")(functools.partial(_arg_reduce, ">"))
rule("argmin")(functools.partial(_arg_reduce, "<"))


@rule("dot_general")
def _dot_general(call: Call) -> Any:
    """A sum of products per element of the result: batch, then free dimensions of both operands."""
    if any(value.dtype != call.dtype for x in call.xs for value in x.flat):
        raise UnsupportedError("dot_general with a result of another dtype than its operands")
    sums, batches = call.params["dimension_numbers"]
    left, right = (
        _rows(x, batch, _others(x, batch, summed), summed)
        for x, batch, summed in zip(call.xs, batches, sums, strict=True)
    )
    values = []
    for row, column in (
        (row, column)
        for rows, columns in zip(left, right, strict=True)
        for row in rows
        for column in columns
    ):
        pairs = zip(row, column, strict=True)
        products = [apply_operator(call.writer, "mul", pair, call.dtype) for pair in pairs]
        values.append(_fold(call.writer, "add", products, call.dtype))
    return array_of(values, call.shape)
