"""Loops inside of kernels: what they compute."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from support import loops, simt, small
from support.small import INTEGERS, NUMBERS, REALS, Case


@pytest.fixture(scope="module", autouse=True)
def x64_types():
    with jax.enable_x64(True):
        yield


# ---- Conditions and state ------------------------------------------------------------------------


def _counted(x, y, i):
    """Doubles until it is large, but not too often; NaN ends at once."""
    return lax.while_loop(
        lambda s: (s[0] < 100) & (s[1] < 10), lambda s: (s[0] + s[0], s[1] + 1), (x, 0)
    )


def _mixed(x, y, i):
    """State of every kind, with one operation a step each."""

    def step(state):
        number, flag, byte, word, narrow, wide, pair, count = state
        return (
            -number,
            flag ^ (word % 2 == 0),
            byte * 3,
            word + byte.astype(jnp.int32),
            narrow * jnp.bfloat16(1.3),
            wide / 3,
            pair * lax.complex(y, jnp.float32(1)),
            count + jnp.uint8(1),
        )

    start = (
        *(x, x > y, i.astype(jnp.int8), i, x.astype(jnp.bfloat16), x.astype(jnp.float64)),
        *(lax.complex(x, y), jnp.uint8(0)),
    )
    return lax.while_loop(lambda s: s[-1] < loops.few(i) // 2, step, start)


def _swapped(x, y, i):
    """Each takes the place of the next; one is the negative of another's old value."""

    def step(state):
        a, b, c, _, n = state
        return b, c, a, -a, n + 1

    return lax.while_loop(lambda s: s[-1] < loops.few(i), step, (x, y, x, y, 0))


def _unchanged(x, y, i):
    """State that the step passes on, replaces by a constant or by a captured value."""

    def step(state):
        a, _, _, _, n = state
        return a, jnp.zeros_like(x), y, a, n + 1

    return lax.while_loop(lambda s: s[-1] < loops.few(i) // 2, step, (x, x, x, y, 0))


def _captured(x, y, i):
    """Values from outside, in the condition, in the step and in both."""
    limit, most = jnp.abs(y) * 8, loops.few(i) + 20
    return lax.while_loop(
        lambda s: (s[0] < limit) & (s[1] < most),
        lambda s: (s[0] + y * y, s[1] + 1),
        (x, loops.few(i)),
    )


def _no_steps(x, y, i):
    def step(state):
        return state[0] + 1, state[1] * y

    return (
        lax.while_loop(lambda s: False, step, (x, y)),
        lax.while_loop(lambda s: s[0] != s[0] + 0 * x, step, (x, y)),
        lax.fori_loop(5, 3, lambda k, c: c + y, x),
        lax.fori_loop(5, loops.few(i) - 2, lambda k, c: c + y, x),
        lax.scan(lambda c, _: (c + y, c), x, None, length=0),
    )


def _collatz(x, y, i):
    """As many steps as the element needs: up to 118."""

    def step(state):
        n, count = state
        return jnp.where(n % 2 == 0, n // 2, 3 * n + 1), count + 1

    return lax.while_loop(lambda s: s[0] != 1, step, (abs(i % 97) + 1, jnp.int32(0)))


def _power(x, y, i):
    """By squaring."""

    def step(state):
        result, base, n = state
        return jnp.where(n % 2 == 1, result * base, result), base * base, n >> 1

    return lax.while_loop(lambda s: s[-1] > 0, step, (jnp.ones_like(x), x, i % 11))[0]


def _narrow(x, y, i):
    """A narrow float goes around rounded, through a branch and past one."""

    def step(k, state):
        a, b = state
        return a * jnp.bfloat16(1.3), lax.cond(k % 2 == 0, lambda b: b, lambda b: b / 3, b)

    return lax.fori_loop(0, 30, step, (x.astype(jnp.bfloat16), y.astype(jnp.bfloat16)))


# ---- Nested --------------------------------------------------------------------------------------


def _while_in_while(x, y, i):
    def step(state):
        total, n = state
        inner, steps = lax.while_loop(
            lambda s: s[1] < n, lambda s: (s[0] + total, s[1] + 2), (x, jnp.int32(0))
        )
        return inner - steps.astype(x.dtype), n + 1

    return lax.while_loop(lambda s: s[1] < loops.few(i), step, (y, jnp.int32(0)))


def _fori_in_while(x, y, i):
    def step(state):
        total, n = state
        return lax.fori_loop(0, 10, lambda k, c: y - c + k.astype(x.dtype), total), n + 1

    return lax.while_loop(lambda s: s[1] < loops.few(i), step, (x, 0))


def _while_in_fori(x, y, i):
    def step(k, total):
        return lax.while_loop(lambda s: s < k, lambda s: s + 3, total - 20)

    return lax.fori_loop(0, 12, step, i % 5), lax.fori_loop(i % 3, i % 17, step, 2)


def _cond_in_while(x, y, i):
    def step(state):
        value, n = state
        value = lax.cond(value > 0, lambda v: v - 3 * jnp.abs(y), lambda v: -v + n, value)
        return lax.switch(n % 3, [lambda v: v, lambda v: v + y, lambda v: -v], value), n + 1

    return lax.while_loop(lambda s: s[1] < 9, step, (x, i % 5))


def _while_in_branches(x, y, i):
    start = jnp.abs(x) + 1
    return (
        lax.cond(x > y, lambda s: loops.below(40, s), lambda s: s, start),
        lax.switch(
            i, [lambda s: s, lambda s: loops.below(y, s), lambda s: loops.below(9, s)], start
        ),
    )


# ---- Known counts --------------------------------------------------------------------------------


def _scan_of(length):
    """Nothing is scanned over; forwards, backwards, with what the steps give if they are few."""

    def scans(x, y, i):
        def plain(carry, _):
            value, count = carry
            return (value * 0.5 + y, count + 1), None

        def each(value, _):
            return value * 0.5 + y, (value, value > y)

        start = (x, jnp.int32(0))
        both = [lax.scan(plain, start, None, length, reverse=r)[0] for r in (False, True)]
        if length > 10:  # too many steps to be written out, as those that stack results are
            return both
        return both, [lax.scan(each, x, None, length, reverse=r) for r in (False, True)]

    return Case(scans)


def _scan_over(x, y, i):
    """Steps that get something are written out, however many."""

    def step(carry, row):
        scale, (left, right) = row
        return carry * 0.5 + scale * left, (carry, right - left)

    rows = jnp.arange(20, dtype=x.dtype), (jnp.stack([x, y] * 10), jnp.stack([y] * 20))
    return [lax.scan(step, x, rows, reverse=reverse) for reverse in (False, True)]


def _dynamic_bounds(x, y, i):
    """Lower bounds above upper ones too, and bounds of another integer dtype."""

    def step(k, c):
        return c * 2 + k.astype(jnp.int32)

    low, high = i % 5 - 2, i % 11 - 5
    return (
        lax.fori_loop(low, high, step, i),
        lax.fori_loop(0, high, step, i),
        lax.fori_loop(low, 6, step, i),
        lax.fori_loop(low.astype(jnp.int8), high.astype(jnp.int8), step, i),
        lax.fori_loop(low.astype(jnp.int64), high.astype(jnp.int64), step, i),
    )


# ---- Small arrays --------------------------------------------------------------------------------


def _matrix_power(x, y, i):
    m = jnp.stack([x, y, y, x]).reshape(2, 2)
    return lax.fori_loop(0, i % 4, lambda k, p: p @ m, jnp.eye(2, dtype=x.dtype))


def _reversed(x, y, i):
    """Entries that change places, and one that is written at an index."""

    def step(k, state):
        values, mask = state
        return values[::-1].at[k % 3].set(y), jnp.roll(mask, 1)

    return lax.fori_loop(0, 11, step, (jnp.stack([x, y, -x]), jnp.array([True, False])))


def _lanes_in_a_loop(x, y, i):
    def step(k, values):
        return jax.vmap(lambda v: loops.below(10, v) - 20)(jnp.abs(values) % 4 + 1)

    return lax.fori_loop(0, 10, step, jnp.stack([x, y]))


CASES = {
    "counted": Case(_counted, REALS),
    "mixed": Case(_mixed, special=False),
    "swapped": Case(_swapped, NUMBERS),
    "unchanged": Case(_unchanged, NUMBERS),
    "captured": Case(_captured, ("float32", "int32")),
    "no_steps": Case(_no_steps, ("float32", "bfloat16", "int32"), special=False),
    "collatz": Case(_collatz),
    "power": Case(_power, ("float32", *INTEGERS), special=False),
    "narrow": Case(_narrow, special=False),
    "while_in_while": Case(_while_in_while, ("float32", "int32"), special=False),
    "fori_in_while": Case(_fori_in_while, ("float32", *INTEGERS), special=False),
    "while_in_fori": Case(_while_in_fori),
    "cond_in_while": Case(_cond_in_while, ("float32", "int32"), special=False),
    "while_in_branches": Case(_while_in_branches, special=False),
    **{f"scan_of_{n}": _scan_of(n) for n in (0, 1, 8, 9, 1000)},
    "scan_over": Case(_scan_over, special=False),
    "dynamic_bounds": Case(_dynamic_bounds),
    "matrix_power": Case(_matrix_power, ("float32", "int32", "complex64"), special=False),
    "reversed": Case(_reversed, NUMBERS),
    "lanes": Case(loops.lanes, ("float32", "int32"), special=False),
    "lanes_in_a_loop": Case(_lanes_in_a_loop, special=False),
}

# ---- What is rounded -----------------------------------------------------------------------------


def _kepler(x, y, i):
    return loops.kepler(x, y / 8)[0], loops.kepler(
        x.astype(jnp.float64), y.astype(jnp.float64) / 8
    )[0]


def _mandelbrot(x, y, i):
    return loops.mandelbrot(x * 0, (y + x / 4) / 8 - 0.5)[1]


def _rotation(x, y, i):
    """v' = w x v, by Runge and Kutta's method."""
    w = jnp.stack([y, x, jnp.float32(1)]) / 4

    def slope(v):
        return jnp.cross(w, v)

    def step(k, v):
        a = slope(v)
        b = slope(v + 0.05 * a)
        c = slope(v + 0.05 * b)
        return v + (a + 2 * b + 2 * c + slope(v + 0.1 * c)) / 60

    return lax.fori_loop(0, 12, step, jnp.stack([x, y, x + y]))


def _angles(x, y, i):
    """Sines and cosines of one value, of arrays, narrow and known ones."""
    narrow, pair = x.astype(jnp.bfloat16), jnp.stack([x, y])
    known = lax.optimization_barrier(jnp.float32(2))
    return [(f(x), f(narrow), f(pair), f(known), f(lax.complex(x, y))) for f in (jnp.sin, jnp.cos)]


ROUNDED = {
    "kepler": Case(_kepler, special=False),
    "mandelbrot": Case(_mandelbrot, ("complex64",), special=False),
    "rotation": Case(_rotation, special=False),
    "angles": Case(_angles, special=False),
}


TABLE, ROUNDED_TABLE = small.Table(CASES), small.Table(ROUNDED)


@pytest.mark.sampled
@pytest.mark.parametrize(("name", "dtype"), TABLE.parameters())
def test_loops_are_what_jax_makes_of_them(name, dtype):
    TABLE.check(name, dtype)


@pytest.mark.parametrize("name", ROUNDED)
def test_loops_that_round_are_almost_what_jax_makes_of_them(name):
    case = ROUNDED[name]
    (dtype,) = case.dtypes
    for a, e in zip(*ROUNDED_TABLE.found(name, dtype), strict=True):
        if not jnp.issubdtype(e.dtype, jnp.inexact):
            np.testing.assert_array_equal(a, e)
            continue
        tolerance = 32 * float(jnp.finfo(e.dtype).eps)
        wide = np.complex128 if e.dtype == np.complex64 else np.float64
        np.testing.assert_allclose(a.astype(wide), e.astype(wide), tolerance, tolerance)


def test_the_cases_end_at_different_times():
    """Else they would not show that each element leaves its loop on its own."""
    for table, *key in ((TABLE, "collatz", "float32"), (ROUNDED_TABLE, "mandelbrot", "complex64")):
        actual, _ = table.found(*key)
        assert len(np.unique(actual[-1])) > 4


@pytest.mark.parametrize("x64", [False, True])
def test_a_counter_has_jaxs_dtype_and_a_float32_stays_one(x64):
    def halved(x):
        return lax.while_loop(lambda s: s[0] >= 1, lambda s: (s[0] / 2, s[1] + 1), (x, 0))

    x = np.array([40, 1, 0.5, 3e38, np.nan], np.float32)
    with jax.enable_x64(x64):
        value, count = simt.evaluate(halved, x, sanitize=True)
    assert (value.dtype, count.dtype) == (np.float32, np.int64 if x64 else np.int32)
    np.testing.assert_array_equal(value[:3], np.float32([0.625, 0.5, 0.5]))
    np.testing.assert_array_equal(count, [6, 1, 0, 128, 0])
