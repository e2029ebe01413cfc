"""Elements of small arrays at an index: a table in memory, or a chain of selections."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.extend.core as jex
import numpy as np

from jax_elementwise._codegen.registry import Context, array_rule
from jax_elementwise._codegen.rules.operators import apply_operator
from jax_elementwise._codegen.types import DTYPES, DType
from jax_elementwise._codegen.values import Array, UnsupportedError, Value, array_of, constant
from jax_elementwise._codegen.writer import Writer

__all__: list[str] = []  # its rules are in the registry

# Up to here selections are cheaper than a load.
_MOST_SELECTIONS = 4


def _look_up(writer: Writer, values: Sequence[Value], index: Value) -> Value:
    """The value at an index that is inside of the list."""
    if index.known is not None:
        return values[int(index.known)]
    if len(set(values)) == 1:
        return values[0]
    exact = all(value.exact for value in values)
    if len(values) > _MOST_SELECTIONS and all(map(_may_be_in_table, values)):
        return writer.bind(Value(writer.entry(values, index), values[0].dtype, exact))
    code = values[-1].code
    for number in reversed(range(len(values) - 1)):
        code = f"{index.code} == {number} ? {values[number].code} : ({code})"
    return writer.bind(Value(code, values[0].dtype, exact))


def _may_be_in_table(value: Value) -> bool:
    if value.dtype.kind == "complex":  # whose infinities and NaN are no constant expressions
        return value.known is not None and bool(np.isfinite(value.known))
    return value.known is not None


def _clamped(writer: Writer, index: Value, largest: int) -> Value:
    """An index between 0 and ``largest``, to which others are moved."""
    low, high = constant(0, index.dtype), constant(largest, index.dtype)
    if index.known is not None:
        return constant(min(max(int(index.known), 0), largest), index.dtype)
    if largest == 0:
        return low
    return writer.bind(
        Value(f"clamp({low.code}, {index.code}, {high.code})", index.dtype, exact=True)
    )


def _window(
    writer: Writer, x: Array, starts: Sequence[Value], offset: tuple[int, ...], sizes: Sequence[int]
) -> Value:
    """The element ``offset`` of the window that begins at ``starts``, which are in bounds."""
    places = [n - size + 1 for n, size in zip(x.shape, sizes, strict=True)]
    candidates = x[tuple(slice(k, k + n) for k, n in zip(offset, places, strict=True))]
    # One dimension after the other, so that indices which are known select nothing.
    for start in starts:
        rows = candidates.reshape(candidates.shape[0], -1)
        chosen = [_look_up(writer, list(column), start) for column in rows.T]
        candidates = array_of(chosen, candidates.shape[1:])
    result: Value = candidates[()]
    return result


@array_rule("dynamic_slice")
def _dynamic_slice(context: Context, *xs: Array) -> Any:
    x, starts = xs[0], [start[()] for start in xs[1:]]
    sizes = context.params["slice_sizes"]
    inside = [
        _clamped(context.writer, start, n - size)
        for start, n, size in zip(starts, x.shape, sizes, strict=True)
    ]
    values = [_window(context.writer, x, inside, offset, sizes) for offset in np.ndindex(*sizes)]
    return array_of(values, context.shape)


def _written(
    writer: Writer, x: Array, starts: Sequence[Value], offset: Sequence[int], places: Any, new: Any
) -> Array:
    """The array with one element replaced: that at ``starts + offset``.

    Nothing is replaced for starts that are not among the first ``places`` ones of each dimension.
    ``new`` gives the new value from the old one.
    """
    result = x.copy()
    for wanted in np.ndindex(*places):
        position = tuple(w + o for w, o in zip(wanted, offset, strict=True))
        pairs = list(zip(starts, wanted, strict=True))
        if any(s.known is not None and int(s.known) != w for s, w in pairs):
            continue
        tests = [f"{s.code} == {w}" for s, w in pairs if s.known is None]
        old = x[position]
        value = new(old)
        if tests:
            code = f"{' && '.join(tests)} ? {value.code} : {old.code}"
            value = writer.bind(Value(code, old.dtype, value.exact and old.exact))
        result[position] = value
    return result


@array_rule("dynamic_update_slice")
def _dynamic_update_slice(context: Context, *xs: Array) -> Any:
    x, update, *starts = xs
    places = [n - size + 1 for n, size in zip(x.shape, update.shape, strict=True)]
    inside = [
        _clamped(context.writer, start[()], place - 1)
        for start, place in zip(starts, places, strict=True)
    ]
    for offset in np.ndindex(update.shape):
        new = update[offset]
        x = _written(context.writer, x, inside, offset, places, lambda _, new=new: new)
    return x


def _starts(row: Array, axes: Sequence[int], rank: int) -> list[Value]:
    """Where a window begins, from a row of indices into the dimensions ``axes``."""
    given = dict(zip(axes, row, strict=True))
    zero = DTYPES["int32"] if not len(row) else row[0].dtype
    return [given.get(d, constant(0, zero)) for d in range(rank)]


@array_rule("gather")
def _gather(context: Context, *xs: Array) -> Any:
    """What indexing with arrays, ``jnp.take`` and the like become."""
    (x, indices), numbers = xs, context.params["dimension_numbers"]
    if numbers.operand_batching_dims:
        raise UnsupportedError("a gather with batch dimensions")
    sizes = context.params["slice_sizes"]
    windows = [d for d in range(x.ndim) if d not in numbers.collapsed_slice_dims]
    batch = [d for d in range(len(context.shape)) if d not in numbers.offset_dims]
    result = np.empty(context.shape, object)
    for position in np.ndindex(context.shape):
        offset = [0] * x.ndim
        for d, axis in zip(windows, numbers.offset_dims, strict=True):
            offset[d] = position[axis]
        row = indices[tuple(position[d] for d in batch)]
        starts = _starts(row, numbers.start_index_map, x.ndim)
        inside = [
            _clamped(context.writer, start, n - size)
            for start, n, size in zip(starts, x.shape, sizes, strict=True)
        ]
        value = _window(context.writer, x, inside, tuple(offset), sizes)
        if context.params["mode"] == jax.lax.GatherScatterMode.FILL_OR_DROP:
            fill = constant(_fill_value(context.dtype, context.params["fill_value"]), context.dtype)
            value = _filled(context.writer, value, fill, list(zip(starts, inside, strict=True)))
        result[position] = value
    return result


def _scatter(operator: str, context: Context, *xs: Array) -> Any:
    """What ``x.at[i].set(y)`` becomes, and the transpose of a gather."""
    (x, indices, updates), numbers = xs, context.params["dimension_numbers"]
    if numbers.operand_batching_dims:
        raise UnsupportedError("a scatter with batch dimensions")
    windows = [d for d in range(x.ndim) if d not in numbers.inserted_window_dims]
    batch = [d for d in range(updates.ndim) if d not in numbers.update_window_dims]
    sizes = [1] * x.ndim
    for d, axis in zip(windows, numbers.update_window_dims, strict=True):
        sizes[d] = updates.shape[axis]
    places = [n - size + 1 for n, size in zip(x.shape, sizes, strict=True)]
    for position in np.ndindex(updates.shape):
        offset = [0] * x.ndim
        for d, axis in zip(windows, numbers.update_window_dims, strict=True):
            offset[d] = position[axis]
        row = indices[tuple(position[d] for d in batch)]
        starts = _starts(row, numbers.scatter_dims_to_operand_dims, x.ndim)
        if context.params["mode"] == jax.lax.GatherScatterMode.CLIP:
            starts = [
                _clamped(context.writer, start, n - 1)
                for start, n in zip(starts, places, strict=True)
            ]

        def new(old: Value, update: Value = updates[position]) -> Value:
            if operator:
                return apply_operator(context.writer, operator, [old, update], context.dtype)
            return _updated(context, old, update)

        x = _written(context.writer, x, starts, offset, places, new)
    return x


def _updated(context: Context, old: Value, update: Value) -> Value:
    """What a plain scatter writes: the update, or what ``x.at[i].apply(f)`` makes of the old."""
    if context.params["update_jaxpr"] is None:
        return update
    function = jex.ClosedJaxpr(context.params["update_jaxpr"], context.params["update_consts"])
    (result,) = context.jaxpr(function, [array_of([x], ()) for x in (old, update)])
    value: Value = result[()]
    return value


for _name, _operator in {
    "scatter": "",
    "scatter-add": "add",
    "scatter-sub": "sub",
    "scatter-mul": "mul",
    "scatter-min": "min",
    "scatter-max": "max",
}.items():
    array_rule(_name)(functools.partial(_scatter, _operator))


def _filled(writer: Writer, value: Value, fill: Value, indices: Sequence[Any]) -> Value:
    """The value, or ``fill`` where an index had to be moved to be in bounds."""
    tests = []
    for start, inside in indices:
        if start.known is None:
            tests.append(f"{start.code} == {inside.code}")
        elif int(start.known) != int(inside.known):
            return fill
    if not tests:
        return value
    code = f"{' && '.join(tests)} ? {value.code} : {fill.code}"
    return writer.bind(Value(code, value.dtype, value.exact))


def _fill_value(dtype: DType, given: Any) -> Any:
    if given is not None:
        return given
    match dtype.kind:
        case "bool":
            return True
        case "int":
            limits = np.iinfo(dtype.name)
            return limits.min if limits.min < 0 else limits.max
        case _:
            return np.nan
