"""Elements of small arrays at an index that each element computes, in and out of bounds."""

from __future__ import annotations

import dataclasses
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from support import simt, small
from support.small import EVERY_KIND, FLOATS, Case

KINDS = ("float32", "int8", "bool", "complex64")
MODES = ("clip", "fill", "promise_in_bounds")
T = np.array([0.5, -1.0, 2.0, 3.0, -4.0, 8.0], np.float32)


def _values(x, y, n=6):
    """Values that are not known; some are booleans."""
    return jnp.stack(
        [x, y, y, x, x & y, x ^ y][:n] if x.dtype == bool else [x, y, -x, -y, y, x][:n]
    )


def _known(dtype):
    """A table of that dtype."""
    return jnp.asarray([1, 0, 2, 3, 0, 7], dtype)


def _index(i, mode, n):
    """An index; one in bounds where the mode promises so."""
    return jnp.abs(i % n) if mode == "promise_in_bounds" else i


# ---- Reading -------------------------------------------------------------------------------------


def _dynamic_slice(x, y, i):
    values, m = _values(x, y), _values(x, y).reshape(2, 3)
    small_index = (i % 8).astype(jnp.uint8)
    return (
        [lax.dynamic_slice(values, (i,), (n,)) for n in (1, 4, 6, 0)],
        [lax.dynamic_slice(m, starts, (1, 2)) for starts in ((i, 0), (1, i), (i, i - 1), (5, -5))],
        [lax.dynamic_slice(_known(x.dtype), (k,), (2,)) for k in (i, small_index)],
        lax.dynamic_index_in_dim(values, i, keepdims=False),
        values[i],
        _known(x.dtype)[i],
    )


def _gather(x, y, i):
    values, m = _values(x, y), _values(x, y).reshape(2, 3)
    known = _known(x.dtype)
    results = []
    for mode in MODES:
        k = _index(i, mode, 2)
        pair = jnp.stack([k, _index(i + 1, mode, 2)])
        get = {"mode": mode}
        results += [
            values.at[pair].get(**get),
            values.at[k].get(**get),
            known.at[pair].get(**get),
            known.at[jnp.stack([pair, pair[::-1]])].get(**get),
            m.at[:, pair].get(**get),
            m.at[k, pair].get(**get),
            m.at[pair, pair[::-1]].get(**get),
            m.at[pair].get(wrap_negative_indices=False, **get),
        ]
    return results


def _filled(x, y, i):
    at = _values(x, y).at[jnp.stack([i, i + 1, 7, 2])]
    return at.get(mode="fill", fill_value=1), at.get(mode="fill"), jnp.take(_known(x.dtype), i)


READING = {
    "dynamic_slice": Case(_dynamic_slice, KINDS),
    "gather": Case(_gather, KINDS),
    "filled": Case(_filled, (*EVERY_KIND, "uint8"), special=False),
    "nested_indices": Case(
        lambda x, y, i: jnp.asarray(T)[jnp.asarray(np.array([5, 2, 0, 1]))[i]] * x
    ),
    "by_vmap": Case(lambda x, y, i: jax.vmap(lambda k: jnp.asarray(T)[k])(jnp.stack([i, i + 1]))),
    "narrow_indices": Case(
        lambda x, y, i: [
            jnp.asarray(T)[i.astype(dtype)] for dtype in ("int8", "uint8", "uint32", "int16")
        ]
    ),
    "boolean_table": Case(lambda x, y, i: jnp.asarray(np.arange(9) % 3 == 0)[i]),
    "equal_values": Case(lambda x, y, i: (jnp.stack([x, x, x])[i], jnp.full(7, x)[i])),
    "interpolation": Case(
        lambda x, y, i: jnp.interp(x, np.arange(6.0), T), special=False, allowed=2
    ),
    "interpolation_with_ends": Case(
        lambda x, y, i: jnp.interp(x, np.arange(6.0) - 2, T, left=-1, right=9), FLOATS, allowed=2
    ),
    "search": Case(
        lambda x, y, i: [
            jnp.searchsorted(jnp.asarray(np.sort(T)), x, side=side, method=method)
            for side in ("left", "right")
            for method in ("scan", "scan_unrolled", "compare_all")
        ],
    ),
    "digitize": Case(lambda x, y, i: jnp.digitize(x, np.sort(T)), special=False),
    "pieces": Case(
        lambda x, y, i: jnp.piecewise(x, [x < -1, x > 1], [0.0, lambda x: x * 2, lambda x: -x]),
    ),
    "choose": Case(lambda x, y, i: jnp.choose(i % 3, [x, y, x + y], mode="clip")),
}

# ---- Writing -------------------------------------------------------------------------------------


def _dynamic_update_slice(x, y, i):
    values, m = _values(x, y), _values(y, x).reshape(2, 3)
    return (
        [lax.dynamic_update_slice(values, values[k:][::-1], (i,)) for k in (5, 2, 0, 6)],
        [
            lax.dynamic_update_slice(m, m[:1, 1:], starts)
            for starts in ((i, 1), (i, i - 1), (9, -9))
        ],
        lax.dynamic_update_index_in_dim(_known(x.dtype), y, i, 0),
    )


def _scatter(method):
    def scatter(x, y, i):
        values, m = _values(x, y), _values(y, x).reshape(2, 3)
        results = []
        for mode in MODES:
            k = _index(i, mode, 2)
            pair = jnp.stack([k, _index(i + 1, mode, 2)])
            apply = functools.partial(_updated, method, mode)
            results += [
                apply(values, pair, values[:2]),
                apply(_known(x.dtype), k, x),
                apply(m, (slice(None), k), m[:, 0]),
                apply(m, k, m[0]),
                apply(m, (k, pair[1]), x),
            ]
            if method != "set":  # the order of equal indices decides nothing
                results.append(apply(values[:3], jnp.stack([k, k, pair[1]]), values[1:4]))
        return results

    return scatter


def _updated(method, mode, array, index, values):
    return getattr(array.at[index], method)(values, mode=mode)


WRITING = {
    "dynamic_update_slice": Case(_dynamic_update_slice, KINDS),
    "scatter": Case(_scatter("set"), KINDS),
    "scatter-add": Case(_scatter("add"), ("float32", "bfloat16", "int8")),
    "scatter-sub": Case(_scatter("subtract"), ("float32", "bfloat16", "int8")),
    "scatter-mul": Case(_scatter("multiply"), ("float32", "complex64"), special=False),
    "scatter-min": Case(_scatter("min"), ("float32", "int8")),
    "scatter-max": Case(_scatter("max"), FLOATS),
    "negative_indices": Case(
        lambda x, y, i: [
            _values(x, y).at[-1].set(0),
            _values(x, y).at[-2:].add(y),
            _values(x, y).at[jnp.array([-1, 7])].set(9),
            _values(x, y).at[::2].multiply(2),
        ]
    ),
    "apply": Case(
        lambda x, y, i: [
            _values(x, y).at[jnp.stack([i, 2])].apply(lambda v: v * v + 1),
            _values(x, y).at[1].apply(jnp.cos),
        ],
        special=False,
    ),
    "swap": Case(
        lambda x, y, i: _values(x, y).at[jnp.array([0, 3])].set(_values(x, y)[jnp.array([3, 0])])
    ),
    "histogram": Case(lambda x, y, i: jnp.bincount(jnp.stack([i, 1, i % 5, 3]), length=5)),
    "one_hot": Case(lambda x, y, i: jax.nn.one_hot(i, 5) * y, special=False, zeros=False),
    "gradient_of_a_gather": Case(
        lambda x, y, i: jax.grad(lambda v: jnp.sum(v[jnp.stack([i, 1])] ** 2))(_values(x, y)),
        special=False,
    ),
}

ALL = READING | WRITING
RULES = [name for name in ALL if name == "gather" or name.startswith(("dynamic", "scatter"))]


TABLE = small.Table(ALL)


@pytest.mark.sampled
@pytest.mark.parametrize(("name", "dtype"), TABLE.parameters())
def test_indices_are_what_jax_makes_of_them(name, dtype):
    TABLE.check(name, dtype)


def test_reading_stays_inside_of_tables():
    """Under AddressSanitizer and UBSan."""
    cases = {n: dataclasses.replace(case, dtypes=("float32",)) for n, case in READING.items()}
    for (name, dtype), results in small.run(cases, sanitize=True).items():
        small.compare(cases[name], results, TABLE.found(name, dtype)[1])


@pytest.mark.parametrize("name", RULES)
def test_cases_are_about_their_rules(name):
    assert name in small.primitives(ALL[name])


# ---- The text ------------------------------------------------------------------------------------


def _text(fun, *dtypes):
    return simt.make_kernel(fun, dtypes).source


def test_a_table_is_written_once_and_read_at_the_index():
    def fun(x, i):
        table = jnp.asarray(T)
        inside = lax.cond(x > 0, lambda: table[i], lambda: table[i + 1])
        return table[i] + inside + jnp.asarray(T.copy())[i * 2]

    text = _text(fun, "float32", "int32")
    assert len(re.findall(r"static const float \w+\[\] = \{", text)) == 1
    assert text.count("table0[") == 1 + 4
    (declaration,) = re.findall(r"^ +static const.*$", text, re.MULTILINE)
    assert text.index(declaration) < text.index("const int v")  # before any branch


def test_different_tables_are_two_and_dtypes_tell_them_apart():
    def fun(i):
        floats = [jnp.asarray(T)[i], jnp.asarray(T[::-1].copy())[i]]
        return *floats, jnp.arange(6, dtype=jnp.int32)[i], jnp.arange(6, dtype=jnp.uint8)[i]

    assert len(re.findall(r"static const \w+ table\d\[\]", _text(fun, "int32"))) == 4


@pytest.mark.parametrize(
    "fun",
    [
        lambda x, i: jnp.asarray(T)[2] * x,
        lambda x, i: jnp.sum(jnp.asarray(T) * x),
        lambda x, i: jnp.polyval(T, x),
        lambda x, i: lax.scan(lambda c, t: (c * x + t, None), x, T)[0],
        lambda x, i: jnp.asarray(T[:4])[i] * x,  # selections
        lambda x, i: jnp.full(6, 2.0)[i] * x,  # one value
        lambda x, i: (x * T)[i],  # not known
    ],
    ids=["known", "sum", "polynomial", "scan", "four", "equal", "computed"],
)
def test_no_table_without_an_index_into_many_known_values(fun):
    assert "table" not in _text(fun, "float32", "int32")


def test_known_indices_select_nothing():
    def fun(x, y):
        values = jnp.stack([x, y, x * y])
        moved = lax.dynamic_update_slice(values, y[None], (1,))
        return lax.dynamic_slice(moved, (5,), (1,))[0] + moved[0] + values[-1]

    assert "?" not in _text(fun, "float32", "float32")
