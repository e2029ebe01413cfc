"""Meanings on which C++, NumPy and XLA differ: what XLA does is right."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax
from support import simt, together, ulp

import jax_elementwise as je


@pytest.fixture(scope="module", autouse=True)
def x64_types():
    with jax.enable_x64(True):
        yield


# ---- Integers ------------------------------------------------------------------------------------


@together.compiled
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_integer_division_by_zero_and_of_the_smallest_integer(dtype):
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    x = np.array([7, -7, 0, low, low, high, -7, 7, -7], dtype)
    y = np.array([0, 0, 0, -1, 0, -1, 2, -2, -2], dtype)
    quotient, rest = simt.evaluate(lambda x, y: (lax.div(x, y), lax.rem(x, y)), x, y, sanitize=True)
    np.testing.assert_array_equal(quotient, [-1, -1, -1, low, -1, -high, -3, -3, 3])
    np.testing.assert_array_equal(rest, [7, -7, 0, 0, low, 0, -1, 1, -1])


@together.compiled
@pytest.mark.parametrize("dtype", ["uint32", "uint64"])
def test_unsigned_division_by_zero(dtype):
    top = np.iinfo(dtype).max
    x, y = np.array([7, 0, top, 7, 7], dtype), np.array([0, 0, 0, 2, top], dtype)
    quotient, rest = simt.evaluate(lambda x, y: (lax.div(x, y), lax.rem(x, y)), x, y, sanitize=True)
    np.testing.assert_array_equal(quotient, np.array([top, top, top, 3, 0], dtype))
    np.testing.assert_array_equal(rest, np.array([7, 0, top, 1, 7], dtype))


@together.compiled
def test_floor_division_and_modulo_have_pythons_signs():
    x, y = np.array([-7, -7, 7, 7], np.int32), np.array([2, -2, 2, -2], np.int32)
    quotient, rest = simt.evaluate(lambda x, y: (x // y, x % y), x, y, sanitize=True)
    np.testing.assert_array_equal(quotient, x // y)
    np.testing.assert_array_equal(rest, x % y)


@together.compiled
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_integers_wrap_around(dtype):
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    root = 2 ** (4 * np.dtype(dtype).itemsize)
    x = np.array([high, low, low, root], dtype)
    results = simt.evaluate(
        lambda x: (x + 1, x - 1, x * x, -x, jnp.abs(x), lax.square(x)), x, sanitize=True
    )
    expected = (
        [low, low + 1, low + 1, root + 1],
        [high - 1, high, high, root - 1],
        [1, 0, 0, 0],
        [-high, low, low, -root],
        [high, low, low, root],
        [1, 0, 0, 0],
    )
    for actual, wanted in zip(results, expected, strict=True):
        np.testing.assert_array_equal(actual, np.array(wanted, dtype))


@together.compiled
@pytest.mark.parametrize("dtype", ["uint32", "uint64"])
def test_unsigned_integers_wrap_around(dtype):
    x = np.array([0, 1, np.iinfo(dtype).max, 2**16], dtype)
    results = simt.evaluate(lambda x: (x + 1, x - 1, x * x, -x), x, sanitize=True)
    for actual, wanted in zip(results, (x + 1, x - 1, x * x, -x), strict=True):
        np.testing.assert_array_equal(actual, wanted)


@together.compiled
@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "uint64"])
@pytest.mark.parametrize("source", ["bfloat16", "float32", "float64"])
def test_conversion_to_integers_saturates_and_truncates(source, dtype):
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    x = [np.nan, np.inf, -np.inf, 2.0**64, -(2.0**64), 1e30, -1e30, 2.5, -2.5, -0.5, -0.0]
    x = np.array(x).astype(ml_dtypes.bfloat16 if source == "bfloat16" else source)
    expected = [0, high, low, high, low, high, low, 2, max(-2, low), 0, 0]
    actual = simt.evaluate(lambda x: x.astype(dtype), x)
    np.testing.assert_array_equal(actual, np.array(expected, dtype))


# ---- Floats --------------------------------------------------------------------------------------


@together.compiled
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_a_nan_is_the_largest_and_the_smallest(dtype):
    dtype = np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)
    nan = np.nan
    x = np.array([nan, 1, nan, nan, np.inf], dtype)
    y = np.array([1, nan, nan, -np.inf, nan], dtype)
    for result in simt.evaluate(
        lambda x, y: (jnp.maximum(x, y), jnp.minimum(x, y), jnp.clip(x, -1.0, y)), x, y
    ):
        assert np.isnan(result.astype(np.float64)).all()


@together.compiled
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_zero_is_larger_than_minus_zero(dtype):
    x, y = np.array([0.0, -0.0, 0.0, -0.0], dtype), np.array([-0.0, 0.0, 0.0, -0.0], dtype)
    largest, smallest = simt.evaluate(lambda x, y: (lax.max(x, y), lax.min(x, y)), x, y)
    assert np.signbit(largest).tolist() == [False, False, False, True]
    assert np.signbit(smallest).tolist() == [True, True, False, True]


@together.compiled
def test_negation_and_sign_keep_the_sign_of_zero():
    x = np.array([0.0, -0.0, np.nan, -np.inf, 3], np.float32)
    negative, sign, magnitude = simt.evaluate(lambda x: (-x, jnp.sign(x), jnp.abs(x)), x)
    ulp.assert_same(negative, np.array([-0.0, 0.0, np.nan, np.inf, -3], np.float32))
    ulp.assert_same(sign, np.array([0.0, -0.0, np.nan, -1, 1], np.float32))
    ulp.assert_same(magnitude, np.array([0, 0, np.nan, np.inf, 3], np.float32))


@together.compiled
def test_comparisons_with_nan():
    x, y = np.array([np.nan, 1, np.nan], np.float32), np.array([1, np.nan, np.nan], np.float32)
    results = simt.evaluate(lambda x, y: (x == y, x != y, x < y, x <= y, x > y, x >= y), x, y)
    assert [result.tolist() for result in results] == [
        [value] * 3 for value in (False, True, False, False, False, False)
    ]


@together.compiled
def test_the_remainder_has_the_sign_of_the_dividend():
    x = np.array([5.5, -5.5, 5.5, -0.0, 1, np.inf], np.float32)
    y = np.array([2, 2, -2, 2, np.inf, 2], np.float32)
    expected = np.array([1.5, -1.5, 1.5, -0.0, 1, np.nan], np.float32)
    ulp.assert_same(simt.evaluate(lax.rem, x, y), expected)


@together.compiled
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_powers_with_an_integer_operand(dtype):
    x, n = np.meshgrid([-2.0, -0.5, 0.0, 1.5, 3.0], [-3, -1, 0, 1, 2, 5])
    x, n = x.ravel().astype(dtype), n.ravel().astype(np.int32)
    with np.errstate(divide="ignore"):
        expected = np.power(x.astype(np.float64), n).astype(dtype)
    ulp.assert_same(simt.evaluate(lambda x, n: x**n, x, n), expected, 1)


@together.compiled
def test_subnormals_are_kept():
    x = np.array([1e-45, -1e-45, 1e-40], np.float32)
    doubled, is_true = simt.evaluate(lambda x: (x * 2, x.astype(bool)), x)
    ulp.assert_same(doubled, x * 2)
    assert is_true.all()


# ---- Branches ------------------------------------------------------------------------------------


@together.compiled
def test_a_cond_takes_one_branch():
    """Which results are those of the branch taken, also at 0 and NaN."""
    x = np.array([-1.5, 0.0, 2.0, np.nan], np.float32)

    def fun(x):
        return lax.cond(x > 0, lambda x: (jnp.log(x), x > 1), lambda x: (-x, x == 0), x)

    first, second = simt.evaluate(fun, x, sanitize=True)
    ulp.assert_same(first, np.array([1.5, -0.0, np.log(np.float32(2)), np.nan], np.float32), 1)
    assert second.tolist() == [False, True, True, False]


def test_a_branch_is_not_computed_unless_taken():
    def fun(x):
        return lax.cond(x > 0, lambda x: jnp.exp(jnp.sin(x)), lambda x: jnp.tanh(x), x)

    source = simt.make_kernel(fun, ["float32"]).source
    lines = [line.strip() for line in source.splitlines()]
    opening, otherwise = lines.index("if (v1 <= 0) {"), lines.index("} else {")
    end = lines.index("}", otherwise)
    assert sum("tanhf" in line for line in lines[opening:otherwise]) == 1
    assert sum("expf" in line or "sinf" in line for line in lines[otherwise:end]) == 2
    assert not any("tanhf" in line or "expf" in line for line in lines[:opening] + lines[end:])


@together.compiled
def test_a_switch_clamps_its_index():
    x = np.arange(-3, 7, dtype=np.int32)
    branches = [lambda x: x * 10, lambda x: x + 100, lambda x: -x]
    actual = simt.evaluate(lambda x: lax.switch(x, branches, x), x)
    expected = [x * 10 if x <= 0 else x + 100 if x == 1 else -x for x in x.tolist()]
    np.testing.assert_array_equal(actual, np.array(expected, np.int32))


@together.compiled
def test_nested_conds():
    def fun(x, y):
        def inner(x, y):
            return lax.cond(y > 0, lambda x, y: x + y, lambda x, y: x - y, x, y)

        return lax.cond(x > 0, inner, lambda x, y: x * y, x, y)

    x, y = (v.ravel() for v in np.meshgrid(np.arange(-2.0, 3), np.arange(-2.0, 3)))
    expected = np.where(x > 0, np.where(y > 0, x + y, x - y), x * y)
    np.testing.assert_array_equal(simt.evaluate(fun, x, y), expected)


@together.compiled
def test_a_cond_that_passes_16_bit_floats_through():
    x = np.linspace(-3, 3, 13).astype(ml_dtypes.bfloat16)
    actual = simt.evaluate(lambda x: lax.cond(x > 0, lambda x: x, lambda x: x * 2, x), x)
    expected = np.where(x > 0, x, x * 2)
    np.testing.assert_array_equal(actual.astype(np.float64), expected.astype(np.float64))


# ---- Where other compilers have been wrong -------------------------------------------------------
# Values that were reported wrong, of programs like this one; by kernels and by XLA's operations.


def _by_kernel(fun, *inputs):
    # What C++ leaves undefined is integer arithmetic.
    return simt.evaluate(fun, *inputs, sanitize=inputs[0].dtype.kind in "iu")


def _by_xla(fun, *inputs):
    return jax.tree.map(np.asarray, je.elementwise(fun, lowering="xla")(*inputs))


BOTH = pytest.mark.parametrize("evaluate", [_by_kernel, _by_xla], ids=["kernel", "xla"])


def _equal(actual, expected, dtype):
    assert actual.dtype == dtype
    np.testing.assert_array_equal(actual, np.array(expected, dtype))


@BOTH
@pytest.mark.parametrize(
    ("shift", "dtype", "x", "count", "expected"),
    [
        (lax.shift_left, "int32", [1] * 5, [31, 32, 33, -1, 0], [-(2**31), 0, 0, 0, 1]),
        (lax.shift_left, "int8", [1, 1], [7, 8], [-128, 0]),
        (lax.shift_right_arithmetic, "int32", [-8, 8, -8], [32, 32, -1], [-1, 0, -1]),
        (lax.shift_right_logical, "int32", [-8, 8, -8], [32, 32, -1], [0, 0, 0]),
        (lambda x, n: x << n, "int32", [1] * 3, [31, 32, -1], [-(2**31), 0, 0]),
        (lambda x, n: x >> n, "int32", [-8, 8, -8], [32, 32, -1], [-1, 0, -1]),
    ],
    ids=["left", "left-int8", "right-arithmetic", "right-logical", "<<", ">>"],
)
def test_wide_and_negative_shifts_shift_everything_out(evaluate, shift, dtype, x, count, expected):
    _equal(evaluate(shift, np.array(x, dtype), np.array(count, dtype)), expected, dtype)


@BOTH
def test_integer_division_without_a_quotient(evaluate):
    def fun(x, y):
        return lax.div(x, y), lax.rem(x, y)

    low = -(2**31)
    x, y = np.array([7, -7, 0, low], np.int32), np.array([0, 0, 0, -1], np.int32)
    quotient, rest = evaluate(fun, x, y)
    _equal(quotient, [-1, -1, -1, low], np.int32)
    _equal(rest, [7, -7, 0, 0], np.int32)
    quotient, rest = evaluate(fun, np.array([7], np.uint8), np.array([0], np.uint8))
    _equal(quotient, [255], np.uint8)
    _equal(rest, [7], np.uint8)
    floor, modulo = evaluate(lambda x: (x // 2, x % 2), np.array([-7], np.int32))
    _equal(floor, [-4], np.int32)
    _equal(modulo, [1], np.int32)


@BOTH
def test_negative_powers_of_integers(evaluate):
    x, n = np.array([2, -2, 1, -1, 0], np.int32), np.array([-1, -3, -9, -3, -1], np.int32)
    _equal(evaluate(lambda x, n: x**n, x, n), [0, 0, 1, -1, 0], np.int32)


@BOTH
def test_floor_division_near_a_multiple(evaluate):
    x = np.array([-4.4, 5.6650004, 105.880005], np.float32)
    by_constant = evaluate(lambda x: x // 0.1, x)
    by_operand = evaluate(lambda x, y: x // y, x, np.full(3, 0.1, np.float32))
    for result in (by_constant, by_operand):
        _equal(result, [-45, 56, 1058], np.float32)


@BOTH
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_roots_and_quotients_are_correctly_rounded(evaluate, dtype):
    roots, quotients = evaluate(lambda x: (jnp.sqrt(x), 1 / x), np.array([2, 3, 10], dtype))
    wide = np.array([2, 3, 10], np.longdouble)
    _equal(roots, np.sqrt(wide).astype(dtype), dtype)
    _equal(quotients, (1 / wide).astype(dtype), dtype)


@BOTH
def test_nan_is_not_optimised_away(evaluate):
    def fun(x):
        return jnp.isnan(x), x != x, jnp.isinf(x), jnp.isfinite(x), jnp.where(x != x, 0, x)

    x = np.array([np.nan, 1, np.inf, -np.inf], np.float32)
    is_nan, differs, is_inf, is_finite, replaced = evaluate(fun, x)
    assert is_nan.tolist() == differs.tolist() == [True, False, False, False]
    assert is_inf.tolist() == [False, False, True, True]
    assert is_finite.tolist() == [False, True, False, False]
    _equal(replaced, [0, 1, np.inf, -np.inf], np.float32)


@BOTH
def test_a_product_and_a_quotient_are_not_made_one_factor(evaluate):
    x, y = np.array([3], np.float32), np.array([7], np.float32)
    _equal(evaluate(lambda x, y: jnp.ceil(x * y / y), x, y), [3], np.float32)
    if evaluate is _by_kernel:  # XLA, as of JAX 0.12, multiplies by the reciprocal of a constant
        _equal(evaluate(lambda x: jnp.ceil(x * 7 / 7), x), [3], np.float32)


def test_only_fast_math_flushes_subnormals_and_approximates():
    """The options of a kernel say so; XLA's operations flush subnormals on the CPU."""

    def fun(x):
        return jnp.sqrt(x) / 3

    assert simt.make_kernel(fun, ["float32"]).options == ()
    assert simt.make_kernel(fun, ["float32"], fast_math=True).options == ("--use_fast_math",)
    x = np.array([2.0**-149, -(2.0**-140), 2.0**-126], np.float32)
    halves, kept = _by_kernel(lambda x: (x * 2 * 0.5, x), x)
    _equal(halves, x, np.float32)
    _equal(kept, x, np.float32)
