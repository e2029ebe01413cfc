"""Small arrays inside of a functor: captured tables, ``jnp.stack([x, y])``, sums over either.

An array is its elements, each a value of its own, so what moves elements about (reshaping, slicing,
concatenation) costs nothing: it is done here, when the code is written. Reductions are written out.
Indices are in ``indexing.py``.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from jax_elementwise._codegen.registry import Context, array_rule
from jax_elementwise._codegen.rules.operators import apply_operator
from jax_elementwise._codegen.types import DTYPES, DType
from jax_elementwise._codegen.values import Array, UnsupportedError, Value, array_of, constant
from jax_elementwise._codegen.writer import Writer
from jax_elementwise._functor.constants import constant_array_p

__all__: list[str] = []  # its rules are in the registry


# ---- Elements that change their places -----------------------------------------------------------


@array_rule("squeeze", "reshape")
def _reshape(context: Context, *xs: Array) -> Any:
    return xs[0].reshape(context.shape)


@array_rule("broadcast_in_dim")
def _broadcast_in_dim(context: Context, *xs: Array) -> Any:
    padded = [1] * len(context.shape)
    for axis, extent in zip(context.params["broadcast_dimensions"], xs[0].shape, strict=True):
        padded[axis] = extent
    return np.broadcast_to(xs[0].reshape(padded), context.shape)


@array_rule("transpose")
def _transpose(context: Context, *xs: Array) -> Any:
    return xs[0].transpose(context.params["permutation"])


@array_rule("rev")
def _rev(context: Context, *xs: Array) -> Any:
    return np.flip(xs[0], context.params["dimensions"])


@array_rule("slice")
def _slice(context: Context, *xs: Array) -> Any:
    strides = context.params["strides"] or (1,) * len(context.shape)
    limits = zip(
        context.params["start_indices"], context.params["limit_indices"], strides, strict=True
    )
    return xs[0][tuple(itertools.starmap(slice, limits))]


@array_rule("concatenate")
def _concatenate(context: Context, *xs: Array) -> Any:
    return np.concatenate(xs, context.params["dimension"])


@array_rule("stack")
def _stack(context: Context, *xs: Array) -> Any:
    return np.stack(xs, context.params["axis"])


@array_rule("unstack")
def _unstack(context: Context, *xs: Array) -> Any:
    moved = np.moveaxis(xs[0], context.params["axis"], 0)
    return [moved[i, ...] for i in range(moved.shape[0])]


@array_rule("split")
def _split(context: Context, *xs: Array) -> Any:
    return np.split(xs[0], np.cumsum(context.params["sizes"])[:-1], context.params["axis"])


@array_rule("tile")
def _tile(context: Context, *xs: Array) -> Any:
    return np.tile(xs[0], context.params["reps"])


@array_rule("pad")
def _pad(context: Context, *xs: Array) -> Any:
    x, padding = xs
    result = np.full(context.shape, padding[()], object)
    for position in np.ndindex(x.shape):
        config = zip(position, context.params["padding_config"], strict=True)
        target = tuple(low + i * (interior + 1) for i, (low, _, interior) in config)
        if all(0 <= i < n for i, n in zip(target, context.shape, strict=True)):
            result[target] = x[position]
    return result


@array_rule("iota")
def _iota(context: Context, *xs: Array) -> Any:
    values = [
        constant(index[context.params["dimension"]], context.dtype)
        for index in np.ndindex(context.shape)
    ]
    return array_of(values, context.shape)


@array_rule(constant_array_p.name)
def _constant_array(context: Context, *xs: Array) -> Any:
    """An array that the functor captured."""
    return array_of(
        [constant(value, context.dtype) for value in context.params["array"].values.flat],
        context.shape,
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


def _reduce(operator: str, context: Context, *xs: Array) -> Any:
    (x,), axes = xs, context.params["axes"]
    rows = _rows(x, _others(x, axes), axes)
    return array_of(
        [_fold(context.writer, operator, row, context.dtype) for row in rows], context.shape
    )


def _accumulate(operator: str, context: Context, *xs: Array) -> Any:
    (x,), axis = xs, context.params["axis"]
    x = np.flip(x, axis) if context.params["reverse"] else x
    rows = [
        list(
            itertools.accumulate(
                row, lambda x, y: apply_operator(context.writer, operator, [x, y], context.dtype)
            )
        )
        for row in _rows(x, _others(x, [axis]), [axis])
    ]
    moved = np.moveaxis(x, axis, -1).shape
    result = np.moveaxis(array_of(list(itertools.chain(*rows)), moved), -1, axis)
    return np.flip(result, axis) if context.params["reverse"] else result


for _name, _operator in _REDUCTIONS.items():
    array_rule(_name)(functools.partial(_reduce, _operator))
for _name, _operator in _CUMULATIVE.items():
    array_rule(_name)(functools.partial(_accumulate, _operator))


def _arg_reduce(better: str, context: Context, *xs: Array) -> Any:
    """The index of the first of equal elements; NaN beats everything, as in NumPy."""
    (x,), axes = xs, context.params["axes"]

    def winner(row: Array) -> Value:
        best, index = row[0], constant(0, context.dtype)
        for i, candidate in enumerate(row[1:], 1):
            a, b = candidate.code, best.code
            test = f"{a} {better} {b} || ({a} != {a} && {b} == {b})"
            wins = context.writer.bind(Value(test, DTYPES["bool"], exact=True)).code
            exact = candidate.exact and best.exact
            best = context.writer.bind(Value(f"{wins} ? {a} : {b}", best.dtype, exact))
            new = constant(i, context.dtype).code
            index = context.writer.bind(
                Value(f"{wins} ? {new} : {index.code}", context.dtype, True)
            )
        return index

    return array_of([winner(row) for row in _rows(x, _others(x, axes), axes)], context.shape)


array_rule("argmax")(functools.partial(_arg_reduce, ">"))
array_rule("argmin")(functools.partial(_arg_reduce, "<"))


@array_rule("dot_general")
def _dot_general(context: Context, *xs: Array) -> Any:
    """A sum of products per element of the result: batch, then free dimensions of both operands."""
    if any(value.dtype != context.dtype for x in xs for value in x.flat):
        raise UnsupportedError("dot_general with a result of another dtype than its operands")
    sums, batches = context.params["dimension_numbers"]
    left, right = (
        _rows(x, batch, _others(x, batch, summed), summed)
        for x, batch, summed in zip(xs, batches, sums, strict=True)
    )
    values = []
    for row, column in (
        (row, column)
        for rows, columns in zip(left, right, strict=True)
        for row in rows
        for column in columns
    ):
        pairs = zip(row, column, strict=True)
        products = [apply_operator(context.writer, "mul", pair, context.dtype) for pair in pairs]
        values.append(_fold(context.writer, "add", products, context.dtype))
    return array_of(values, context.shape)
