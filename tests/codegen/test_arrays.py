"""Small arrays inside of functors: what moves their elements, reduces them and loops over them."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from support import simt, small
from support.small import EVERY_KIND, FLOATS, NUMBERS, REALS, Case

import jax_elementwise as je
from jax_elementwise._codegen import rules as rules
from jax_elementwise._codegen.registry import names_of

# ---- The rules -----------------------------------------------------------------------------------


def _six(x, y):
    """Six different values, some of them equal for some elements."""
    return jnp.stack([x, y, y, x, x & y, x ^ y] if x.dtype == bool else [x, y, -x, y * y, x, -y])


def _matrix(x, y):
    return _six(x, y).reshape(2, 3)


def _of_matrix(fun):
    return lambda x, y, i: fun(_matrix(x, y))


def _each_way(fun):
    """A reduction of all entries, of each axis, and of none."""
    return _of_matrix(lambda m: [fun(m, axes) for axes in ((0, 1), (0,), (1,), ())])


def _batched_products(x, y, i):
    left = jnp.tile(_six(x, y), 2).reshape(2, 3, 2)
    right = jnp.tile(_six(y, x), 2).reshape(3, 2, 2)
    # Batch dimension 0 with 1, sums over 2 and 0: free are 1 of the left and 2 of the right.
    return lax.dot_general(left, right.transpose(0, 1, 2), (((1,), (0,)), ((0,), (1,))))


def _both_ways(fun, axis=0):
    return _of_matrix(lambda m: [fun(m, axis, reverse=reverse) for reverse in (False, True)])


def _table(x, y, i):
    table = np.arange(6).reshape(2, 3).astype(x.dtype)
    return x * table, jnp.asarray(table).T, jnp.stack([x, y, x]) + table


def _iota(x, y, i):
    return lax.broadcasted_iota(x.dtype, (2, 3), 1), x * lax.iota(x.dtype, 4)


PADS = [((1, 2, 0),), ((0, 0, 1),), ((-1, 2, 2),), ((2, -3, 1),), ((-2, -2, 0),), ((-3, -3, 2),)]

RULES = {
    "reshape": Case(_of_matrix(lambda m: (m.reshape(3, 2), m.reshape(6), m[None])), EVERY_KIND),
    "squeeze": Case(_of_matrix(lambda m: lax.squeeze(lax.slice(m, (1, 0), (2, 3)), (0,)))),
    "broadcast_in_dim": Case(
        _of_matrix(
            lambda m: [
                lax.broadcast_in_dim(m, (2, 2, 3), (1, 2)),
                lax.broadcast_in_dim(m, (2, 2, 3), (0, 2)),
                lax.broadcast_in_dim(m[:, :1], (2, 3), (0, 1)),
                lax.broadcast_in_dim(m[1, 2], (3,), ()),
            ]
        )
    ),
    "transpose": Case(_of_matrix(lambda m: (m.T, m.reshape(1, 2, 3).transpose(2, 0, 1)))),
    "rev": Case(_of_matrix(lambda m: [lax.rev(m, d) for d in ((0,), (1,), (0, 1), ())])),
    "slice": Case(
        _of_matrix(lambda m: (m[:, 1:], m[1:2, ::2], lax.slice(m.ravel(), (1,), (6,), (3,)), m[2:]))
    ),
    "concatenate": Case(
        _of_matrix(lambda m: [lax.concatenate([m, m[::-1], m], axis) for axis in (0, 1)])
    ),
    "stack": Case(lambda x, y, i: [jnp.stack([_six(x, y), _six(y, x)], k) for k in (0, 1, -1)]),
    "unstack": Case(_of_matrix(lambda m: [jnp.unstack(m, axis=k) for k in (0, 1)])),
    "split": Case(_of_matrix(lambda m: (lax.split(m, (1, 2), 1), lax.split(m, (1, 1), 0)))),
    "tile": Case(_of_matrix(lambda m: (lax.tile(m, (2, 1)), lax.tile(m, (1, 3))))),
    "pad": Case(
        lambda x, y, i: [
            *(lax.pad(_six(x, y)[:4], y, config) for config in PADS),
            lax.pad(_matrix(x, y), x, ((1, -1, 2), (-1, 1, 0))),
            lax.pad(jnp.zeros((0,), x.dtype), x, ((1, 2, 1),)),
        ],
        EVERY_KIND,
    ),
    "iota": Case(_iota, NUMBERS),
    "constant_array": Case(_table, EVERY_KIND, special=False),
    "reduce_sum": Case(_each_way(lax.reduce_sum), NUMBERS),
    "reduce_prod": Case(_each_way(lax.reduce_prod), NUMBERS, special=False, allowed=1),
    "reduce_max": Case(_each_way(lax.reduce_max), REALS),
    "reduce_min": Case(_each_way(lax.reduce_min), REALS),
    "reduce_and": Case(_each_way(lax.reduce_and), ("bool", "int32", "int8")),
    "reduce_or": Case(_each_way(lax.reduce_or), ("bool", "int32", "int8")),
    "reduce_xor": Case(_each_way(lax.reduce_xor), ("bool", "int32", "int8")),
    "cumsum": Case(_both_ways(lax.cumsum, 1), NUMBERS, special=False),
    "cumprod": Case(_both_ways(lax.cumprod, 1), NUMBERS, special=False, zeros=False),
    "cummax": Case(_both_ways(lax.cummax), REALS),
    "cummin": Case(_both_ways(lax.cummin), REALS),
    "argmax": Case(
        _of_matrix(lambda m: [jnp.argmax(m, axis) for axis in (None, 0, 1)]), (*REALS, "bool")
    ),
    "argmin": Case(
        _of_matrix(lambda m: [jnp.argmin(m, axis) for axis in (None, 0, 1)]), (*REALS, "bool")
    ),
    "dot_general": Case(
        lambda x, y, i: [
            _batched_products(x, y, i),
            jnp.dot(_six(x, y), _six(y, x)),
            _matrix(x, y) @ _matrix(y, x).T,
            jnp.outer(_six(x, y)[:3], _six(y, x)[:2]),
            jnp.einsum("ij,ij->i", _matrix(x, y), _matrix(y, x)),
            jnp.dot(jnp.zeros(0, x.dtype), jnp.zeros(0, x.dtype)),
        ],
        NUMBERS,
        special=False,
    ),
}

# Those are in test_indexing.py.
INDEXING = {
    *("dynamic_slice", "dynamic_update_slice", "gather"),
    *("scatter", "scatter-add", "scatter-sub", "scatter-mul", "scatter-min", "scatter-max"),
}


def test_every_rule_of_small_arrays_has_a_test():
    assert set(names_of("array")) == {*RULES, *INDEXING}


# ---- Beyond the rules ----------------------------------------------------------------------------

T = np.array([0.5, -1.0, 2.0, 3.0], np.float32)
inner = je.elementwise(lambda x, y: (x * y, x + 1))
counted = je.elementwise(lambda x: x, name="counted")


def _elementwise_inside(x, y, i):
    values = jnp.stack([x, y, -x])
    products, sums = inner(values, y)
    matrices = inner(values[:, None], jnp.stack([y, x]))
    return products, sums, matrices, inner(x, y), counted(jnp.zeros((0, 2))), inner(T, x)


def _branches(x, y, i):
    values = jnp.stack([x, y])
    return (
        lax.cond(x > y, lambda v: v * 2, lambda v: v[::-1], values),
        lax.switch(i, [lambda v: v, lambda v: v + T[:2], lambda v: v * v[0]], values),
        lax.cond(x > y, lambda: (jnp.asarray(T), x), lambda: (T * x, y)),
    )


def _selections(x, y, i):
    values = _six(x, y)
    return (
        jnp.where(values > 0, values, x),
        jnp.where(x > 0, values, 0),
        lax.clamp(x, values, lax.max(x, y)),
        lax.select_n(x > y, values, values * 2),
        jnp.clip(values, -1, 1),
    )


def _scan(x, y, i, *, reverse):
    """With a constant, a carry, what is stepped over and results."""

    def step(carry, each):
        total, _ = carry
        row, scale = each
        return (total * 0.5 + row * y, total > 0), (total, row * scale)

    rows = jnp.stack([jnp.stack([x, y]), jnp.stack([y, x]), jnp.stack([-x, x])])
    start = (jnp.stack([x, y]), jnp.array([True, False]))
    return lax.scan(step, start, (rows, T[:3]), reverse=reverse)


def _dtypes(x, y, i):
    values = jnp.stack([x, y])
    return (
        values.astype(jnp.bfloat16),
        values.astype(jnp.bfloat16).astype(jnp.float32) * 2,
        lax.bitcast_convert_type(values, jnp.int32),
        jnp.stack([i, 2]) * values.astype(jnp.int32),
        lax.integer_pow(values, 3),
        lax.complex(values, values * T[0]),
        jnp.concatenate([values, values.astype(jnp.float32)]),
    )


def _empty(x, y, i):
    none = jnp.stack([x, y])[2:]
    return (
        [reduce(none) for reduce in (jnp.sum, jnp.prod, jnp.any, jnp.all)],
        jnp.sum(none.reshape(0, 3), 0),
        [lax.cumsum(none), none + x, none @ none, none[:, None] @ jnp.zeros((1, 2))],
        lax.reduce_and(jnp.zeros(0, jnp.int32), (0,)),
        lax.reduce_or(jnp.zeros(0, jnp.int32), (0,)),
        jnp.zeros((3, 0)) @ jnp.zeros((0, 2)),
        jnp.concatenate([none, jnp.stack([y])]),
        jnp.interp(x, np.array([1.0]), np.array([2.0])),
    )


COMBINED = {
    "elementwise_inside": Case(_elementwise_inside),
    "branches": Case(_branches),
    "selections": Case(_selections),
    "scan": Case(functools.partial(_scan, reverse=False)),
    "scan_reverse": Case(functools.partial(_scan, reverse=True)),
    "scan_without_steps": Case(
        lambda x, y, i: lax.scan(lambda c, t: (c + t, (c, t * jnp.ones(2))), x, T[:0])
    ),
    "scan_of_64_steps": Case(
        lambda x, y, i: lax.scan(lambda c, t: (c * 0.5 + t, None), x, np.arange(64.0))[0]
    ),
    "fori_loop": Case(
        lambda x, y, i: lax.fori_loop(0, 3, lambda k, c: c * 0.5 + jnp.asarray(T)[k], x)
    ),
    "map": Case(lambda x, y, i: lax.map(lambda t: (t * x, t + y), jnp.asarray(T))),
    "vmap": Case(lambda x, y, i: jax.vmap(lambda t, v: jnp.sum(t * v))(T[:2], _matrix(x, y))),
    "dtypes": Case(_dtypes, special=False),
    "empty": Case(_empty, special=False),
    "polynomial": Case(lambda x, y, i: jnp.polyval(T, x), FLOATS, special=False),
    "mean_and_variance": Case(
        lambda x, y, i: (_six(x, y).mean(), _six(x, y).var(), jnp.linalg.norm(_six(x, y))),
        allowed=4,
        special=False,
    ),
    "softmax": Case(lambda x, y, i: jax.nn.softmax(_six(x, y)), allowed=8, special=False),
    "prefix_sums": Case(lambda x, y, i: lax.associative_scan(jnp.add, _six(x, y))),
    "rolls": Case(lambda x, y, i: (jnp.roll(_six(x, y), 2), jnp.repeat(T, 2), jnp.diff(T * x))),
    "determinant": Case(lambda x, y, i: jnp.linalg.det(_six(x, y)[:4].reshape(2, 2)), allowed=4),
    "cross": Case(lambda x, y, i: jnp.cross(_six(x, y)[:3], _six(y, x)[1:4]), special=False),
}


ALL = RULES | COMBINED


TABLE = small.Table(ALL)


@pytest.mark.sampled
@pytest.mark.parametrize(("name", "dtype"), TABLE.parameters())
def test_small_arrays_are_what_jax_makes_of_them(name, dtype):
    TABLE.check(name, dtype)


@pytest.mark.parametrize("name", RULES)
def test_cases_are_about_their_rules(name):
    assert name in small.primitives(RULES[name])


def test_a_carry_is_rounded_at_every_step_and_a_sum_once():
    """256 + 1 is 256 in bfloat16."""
    ones = np.ones(64, np.float32).astype(jnp.bfloat16)
    x = np.full(5, 256, jnp.bfloat16)

    def sums(x):
        looped, history = lax.scan(lambda c, one: (c + one, c), x, ones)
        return looped, history[-1], jnp.concatenate([x[None], ones[:63]]).sum(dtype=jnp.bfloat16)

    looped, last, total = simt.evaluate(sums, x)
    expected = small.by_vmap(lambda x: lax.scan(lambda c, one: (c + one, c), x, ones)[0], x)
    np.testing.assert_array_equal(looped, expected[0])
    np.testing.assert_array_equal(looped, x)
    np.testing.assert_array_equal(last, x)
    np.testing.assert_array_equal(total.astype(np.float32), np.full(5, 320))  # 319, rounded


def test_ties_and_nans_of_extreme_indices():
    nan, inf = np.nan, np.inf
    rows = [[1, 3, 3, 0, 0], [nan, 5, nan, 1, 1], [5, nan, 1, nan, 7], [inf, inf, -inf, -inf, 0]]
    columns = np.array(rows, np.float32).T.copy()
    largest, smallest, narrow = simt.evaluate(
        lambda *xs: (
            jnp.argmax(jnp.stack(xs)),
            jnp.argmin(jnp.stack(xs)),
            lax.argmax(jnp.stack(xs), 0, jnp.uint8),
        ),
        *columns,
    )
    np.testing.assert_array_equal(largest, np.argmax(rows, 1))
    np.testing.assert_array_equal(smallest, np.argmin(rows, 1))
    np.testing.assert_array_equal(narrow, np.argmax(rows, 1).astype(np.uint8))


def test_moving_elements_writes_no_code():
    def moved(x, y):
        m = jnp.stack([x, y, x]).reshape(3, 1)
        m = lax.pad(m, np.float32(0), ((1, 0, 0), (0, 2, 0))).T[::-1]
        return jnp.concatenate([m, jnp.tile(m, (2, 1))])[2, 2]

    body = simt.make_kernel(moved, ["float32"] * 2, name="f").source
    plain = simt.make_kernel(lambda x, y: y, ["float32"] * 2, name="f").source
    assert body == plain


# ---- Refusals ------------------------------------------------------------------------------------


def _entries(x):
    return jnp.sum(jnp.full((65,), x))


def _halves(x):
    return jnp.concatenate([x * np.ones(64, np.float32), x[None]]).sum()


def _largest(x):
    return lax.reduce_max(jnp.stack([x, x])[2:], (0,))


def _smallest(x):
    return lax.reduce_min(jnp.zeros((0, 3)), (0,)).sum() + x


def _wider(x):
    return jnp.dot(x.astype("bfloat16")[None], T.astype("bfloat16")[:1], preferred_element_type="f")


def _rows_of_rows(x):
    return jnp.take_along_axis(x * np.eye(2), x.astype(int) + np.arange(2)[:, None], 1).sum()


@pytest.mark.parametrize(
    ("fun", "what"),
    [
        (
            _entries,
            r"broadcast_in_dim, an array of shape \(65,\) per element \(of more than 64 entries\)",
        ),
        (_halves, r"the result of concatenate, an array of shape \(65,\) per element"),
        (_largest, "the max of an empty array"),
        (_smallest, "the min of an empty array"),
        (_wider, "dot_general with a result of another dtype than its operands"),
        (_rows_of_rows, "a gather with batch dimensions"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_is_too_large_or_unknown_is_refused_with_its_place(fun, what):
    place = rf"test_arrays\.py:{fun.__code__.co_firstlineno + 1}:\d+ \({fun.__name__}\)"
    with pytest.raises(NotImplementedError, match=rf"for .*{what}.*, at .*{place}\. Compute it"):
        simt.make_kernel(fun, ["float32"])
