"""Numerics of the primitives whose C++ depends on their parameters."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.extend.core import primitives
from support import reference, simt, together, ulp

from jax_elementwise._codegen.registry import names_of
from jax_elementwise._codegen.rules.operators import OPERATORS
from jax_elementwise._codegen.types import DTYPES

FLOATS = [name for name, dtype in DTYPES.items() if dtype.kind == "float"]
INTEGERS = [name for name, dtype in DTYPES.items() if dtype.kind == "int"]
NARROW = [name for name, dtype in DTYPES.items() if dtype.is_narrow]


@pytest.fixture(scope="module", autouse=True)
def x64_types():
    with jax.enable_x64(True):
        yield


# ---- Conversions ---------------------------------------------------------------------------------


def _rounded(x, dtype):
    """float64 to a narrower dtype, rounded once, to nearest even; in integer arithmetic."""
    bits, bias = {
        "float8_e4m3fn": (3, 7),
        "float8_e5m2": (2, 15),
        "float16": (10, 15),
        "bfloat16": (7, 127),
    }[dtype]
    x = np.asarray(x, np.float64)
    exponent = np.maximum(np.frexp(np.where(np.isfinite(x), x, 0))[1] - 1, 1 - bias)
    unit = np.ldexp(1.0, exponent - bits)
    with np.errstate(all="ignore"):
        nearest = np.where(np.isfinite(x), np.rint(x / unit) * unit, x)
        largest = float(ml_dtypes.finfo(reference.np_dtype(dtype)).max)
        too_large = np.nan if dtype == "float8_e4m3fn" else np.inf
        nearest = np.where(np.abs(nearest) > largest, np.copysign(too_large, nearest), nearest)
        return np.copysign(nearest, x).astype(reference.np_dtype(dtype))


def _boundaries(dtype):
    """float64 values at, between and right beside the values of a narrow float."""
    every = reference.of_every_exponent(None, dtype, 0)
    with np.errstate(invalid="ignore"):  # signalling NaNs
        every = every.astype(np.float64)
    every = np.unique(every[np.isfinite(every)])
    middles = (every[:-1] + every[1:]) / 2
    nearest = [np.nextafter(middles, sign * np.inf) for sign in (1, -1)]
    return np.concatenate([every, middles, *nearest])


def _conversion_inputs(dtype):
    rng = np.random.default_rng(5)
    parts = [reference.special_values(dtype)]
    parts.append(reference.random_values(rng, dtype, 2000, (-300, 300)))
    if DTYPES[dtype].kind == "float":
        parts.append(reference.of_every_exponent(rng, dtype, 20000))
        edges = [2.0**31, -(2.0**31), 2.0**32, 2.0**31 - 128, 65504, 65520, 65519.99, -0.99, 1.5]
        edges += [2.0**63, -(2.0**63), 2.0**64, 2.0**63 - 2**40, 2.0**64 - 2**40, 2.0**53 - 1]
        with np.errstate(all="ignore"):
            parts.append(np.array(edges).astype(reference.np_dtype(dtype)))
    elif DTYPES[dtype].kind == "int":
        edges = [2049, 16777217, 16842753, 65519, 65520, 2**31 - 64]
        edges += [2**32, 2**32 - 1, 2**31, 2**53 + 1, 2**62 + 2**38 + 1, 2**63 - 2**9]
        edges += [127, 128, 255, 256, 448, 464, 465, 57344, 61440]
        parts.append(np.array([x for x in edges if x <= np.iinfo(dtype).max], dtype))
    return np.concatenate(parts)


PAIRS = list(itertools.permutations((*FLOATS, *INTEGERS, "bool"), 2))


@pytest.fixture(scope="module")
def conversions(x64_types):
    """Inputs, results and what jax.lax gives of all conversions, from one program each."""
    inputs = {name: _conversion_inputs(name) for name in DTYPES}
    kernels = [
        simt.make_kernel(lambda x, to=to: lax.convert_element_type(x, to), [source])
        for source, to in PAIRS
    ]
    calls = [
        simt.Call(kernel, inputs[source].shape, (to,), (inputs[source],))
        for kernel, (source, to) in zip(kernels, PAIRS, strict=True)
    ]
    results = simt.build(kernels).run(calls)
    expected = _converted({name: _widened(x) for name, x in inputs.items()})
    return {
        (source, to): (inputs[source], result, np.asarray(expected[source, to]))
        for (source, to), (result,) in zip(PAIRS, results, strict=True)
    }


def _widened(x):
    """Floats as float64, which has room for the subnormals of the others."""
    with np.errstate(all="ignore"):
        return x.astype(np.float64) if x.dtype.name in FLOATS else x


@jax.jit
def _converted(inputs):
    return {(source, to): lax.convert_element_type(inputs[source], to) for source, to in PAIRS}


@pytest.mark.sampled
@pytest.mark.parametrize(("source", "to"), PAIRS)
def test_conversions_are_those_of_lax(conversions, source, to):
    x, actual, expected = conversions[source, to]
    if source == "float64":  # XLA flushes its subnormals
        kept = (x == 0) | ~(np.abs(x) < np.finfo(np.float64).tiny)
        x, actual, expected = x[kept], actual[kept], expected[kept]
    if to in FLOATS:  # XLA flushes subnormal results as well
        tiny = float(ml_dtypes.finfo(expected.dtype).tiny)
        kept = ~(np.abs(_widened(x).astype(np.float64)) < tiny)
        actual, expected = actual[kept], expected[kept]
    ulp.assert_same(actual, expected)


@pytest.mark.sampled
@together.compiled
@pytest.mark.parametrize("dtype", NARROW)
def test_every_narrow_float_is_widened_exactly(dtype):
    x = reference.of_every_exponent(None, dtype, 0)
    with np.errstate(invalid="ignore"):  # signalling NaNs
        expected = x.astype(np.float32)
    ulp.assert_same(simt.evaluate(lambda x: x.astype("float32"), x), expected)


@together.compiled
@pytest.mark.parametrize("dtype", NARROW)
def test_every_narrow_float_comes_back(dtype):
    """All bits of it, but for a NaN's."""
    x = reference.of_every_exponent(None, dtype, 0)
    actual = simt.evaluate(lambda x: x.astype("float32").astype(dtype), x)
    with np.errstate(invalid="ignore"):  # signalling NaNs
        number = ~np.isnan(x)
    np.testing.assert_array_equal(ulp.bits_of(actual)[number], ulp.bits_of(x)[number])
    assert np.isnan(actual[~number]).all()


@together.compiled
@pytest.mark.parametrize("source", ["float32", "float64"])
@pytest.mark.parametrize("dtype", NARROW)
def test_narrowing_rounds_once_to_nearest_even(dtype, source):
    with np.errstate(over="ignore"):
        x = _boundaries(dtype).astype(source)
    random = reference.of_every_exponent(np.random.default_rng(6), source, 50000)
    x = np.concatenate([x, random[np.isfinite(random)], reference.special_values(source)])
    with np.errstate(invalid="ignore"):  # signalling NaNs
        expected = _rounded(x, dtype)
    if source == "float64" and dtype == "bfloat16":  # XLA goes through float32
        with np.errstate(over="ignore"):
            expected = _rounded(x.astype(np.float32), dtype)
    ulp.assert_same(simt.evaluate(lambda x: x.astype(dtype), x), expected)


@together.compiled
def test_16_bit_floats_are_rounded_at_conversions_and_results_only():
    """bfloat16 cannot hold 1 + 2^-9; float32, which is computed in, can."""
    x = np.full(8, 2**-9).astype(ml_dtypes.bfloat16)
    kept, lost, late = simt.evaluate(
        lambda x: (
            (x + 1) - 1,
            (x + 1).astype("bfloat16").astype("float32").astype("bfloat16") - 1,
            lax.convert_element_type(x + 1, jnp.float32) - 1,
        ),
        x,
    )
    np.testing.assert_array_equal(kept.astype(np.float64), np.full(8, 2**-9))
    np.testing.assert_array_equal(late, np.zeros(8, np.float32))
    # bfloat16 to bfloat16 is no conversion, but the one to float32 rounds.
    np.testing.assert_array_equal(lost.astype(np.float64), np.zeros(8))


@together.compiled
@pytest.mark.parametrize(
    ("source", "to"),
    [
        pair
        for pair in itertools.permutations((*FLOATS, *INTEGERS), 2)
        if len({DTYPES[name].itemsize for name in pair}) == 1
    ],
)
def test_bits_are_reinterpreted(source, to):
    x = reference.of_every_exponent(np.random.default_rng(8), source, 5000)
    with np.errstate(invalid="ignore"):  # signalling NaNs
        if DTYPES[source].is_narrow:  # NaN is one value to a float that is computed in float32
            x = x[~np.isnan(x)]
        actual = simt.evaluate(lambda x: lax.bitcast_convert_type(x, to), x)
        expected = x.view(actual.dtype)
        if DTYPES[to].is_narrow:
            assert (np.isnan(actual) == np.isnan(expected)).all()
            actual, expected = actual[~np.isnan(actual)], expected[~np.isnan(expected)]
    np.testing.assert_array_equal(ulp.bits_of(actual), ulp.bits_of(expected))


@together.compiled
def test_bits_of_a_computed_narrow_float_are_those_it_rounds_to():
    x = np.linspace(-3, 3, 1000).astype(ml_dtypes.bfloat16)
    actual = simt.evaluate(lambda x: lax.bitcast_convert_type(x * x, "int16"), x)
    expected = np.square(x.astype(np.float32)).astype(ml_dtypes.bfloat16).view(np.int16)
    np.testing.assert_array_equal(actual, expected)


# ---- Powers --------------------------------------------------------------------------------------


@together.compiled
@pytest.mark.parametrize("dtype", FLOATS)
def test_integer_powers(dtype):
    exponents = (-5, -3, -2, -1, 0, 1, 2, 3, 4, 7, 10)
    rng = np.random.default_rng(9)
    x = reference.random_values(rng, dtype, 2000, (-4, 4))
    x = np.concatenate([x, reference.special_values(dtype)])
    results = simt.evaluate(lambda x: tuple(lax.integer_pow(x, n) for n in exponents), x)
    for exponent, actual in zip(exponents, results, strict=True):
        with np.errstate(all="ignore"):
            expected = np.power(x.astype(np.longdouble), exponent).astype(x.dtype)
        # A power that underflows has lost digits which its reciprocal cannot have.
        lost = np.isinf(expected) & (x != 0) & np.isfinite(x) & (exponent < 0)
        allowed = 1 if DTYPES[dtype].is_narrow else abs(exponent)
        ulp.assert_same(actual[~lost], expected[~lost], allowed)


@pytest.mark.sampled
@together.compiled
@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_powers_of_integers_wrap(dtype):
    exponents = (0, 1, 2, 3, 5, 8)
    rng = np.random.default_rng(10)
    x = np.concatenate([reference.random_values(rng, dtype, 500, None), np.arange(9).astype(dtype)])
    results = simt.evaluate(lambda x: tuple(lax.integer_pow(x, n) for n in exponents), x)
    for exponent, actual in zip(exponents, results, strict=True):
        expected = np.asarray(lax.integer_pow(jnp.asarray(x), exponent))
        np.testing.assert_array_equal(actual, expected)


# ---- Rounding ------------------------------------------------------------------------------------


@together.compiled
@pytest.mark.parametrize("dtype", FLOATS)
def test_rounding_of_halfway_values(dtype):
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 0.49, -0.49, 3.51, -0.0, np.inf, np.nan])
    x = np.concatenate(
        [x, [np.nextafter(np.float32(0.5), np.float32(0)), 8388609, 4503599627370497]]
    )
    with np.errstate(over="ignore"):
        x = np.concatenate([x.astype(reference.np_dtype(dtype)), reference.special_values(dtype)])
    away, even = simt.evaluate(
        lambda x: (
            lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO),
            lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN),
        ),
        x,
    )
    wide = x.astype(np.float64)
    truncated = np.trunc(wide)
    with np.errstate(invalid="ignore"):
        up = np.abs(wide - truncated) >= 0.5
    expected = np.copysign(truncated + np.where(up, np.copysign(1, wide), 0), wide)
    ulp.assert_same(away, expected.astype(x.dtype))
    ulp.assert_same(even, np.rint(wide).astype(x.dtype))


@together.compiled
@pytest.mark.parametrize(("dtype", "bits"), [("float32", (5, 10)), ("float32", (8, 7))])
def test_reduced_precision_is_that_of_lax(dtype, bits):
    """Which makes 0 of what would be subnormal in the narrower format."""
    rng = np.random.default_rng(15)
    edges = 2.0 ** np.array([-14, -15, -24, -25, 15, 16]) * np.array([[1], [-1], [1 - 2**-11]])
    values = [reference.special_values(dtype), reference.of_every_exponent(rng, dtype, 20000)]
    values += [edges.ravel().astype(dtype), np.array([65519, 65520], dtype)]
    values.append((rng.uniform(-2, 2, 5000) * 2.0 ** rng.integers(-26, 18, 5000)).astype(dtype))
    x = np.concatenate(values)
    x = x[(x == 0) | ~(np.abs(x) < np.finfo(dtype).tiny)]
    with np.errstate(invalid="ignore"):  # signalling NaNs
        wide = jnp.asarray(x.astype(np.float64))
    expected = np.asarray(lax.reduce_precision(wide, *bits)).astype(dtype)
    ulp.assert_same(simt.evaluate(lambda x: lax.reduce_precision(x, *bits), x), expected)


@together.compiled
@pytest.mark.parametrize(
    ("dtype", "bits"),
    [
        ("float8_e5m2", (5, 2)),
        ("float16", (5, 10)),
        ("bfloat16", (8, 7)),
        ("float32", (8, 23)),
        ("float64", (11, 52)),
    ],
)
def test_reduction_to_a_dtypes_own_precision_rounds_to_it(dtype, bits):
    x = reference.random_values(np.random.default_rng(16), dtype, 1000, (0.1, 4))
    wide = x.astype(np.float64)
    actual = simt.evaluate(lambda x: lax.reduce_precision(x * x, *bits) - 1, x)
    ulp.assert_same(
        actual, (np.square(wide).astype(x.dtype).astype(np.float64) - 1).astype(x.dtype)
    )


@together.compiled
@pytest.mark.parametrize("bits", [(4, 3), (5, 2), (8, 3), (3, 23), (6, 0), (1, 4), (9, 5), (8, 30)])
def test_reduced_precision_of_other_formats_is_that_of_lax(bits):
    rng = np.random.default_rng(13)
    x = np.exp2(rng.uniform(-12, 12, 5000)) * rng.choice([-1, 1], 5000)
    x = np.concatenate([x, [0.0, -0.0, np.inf, -np.inf, np.nan]]).astype(np.float32)
    expected = np.asarray(lax.reduce_precision(x, *bits))
    ulp.assert_same(simt.evaluate(lambda x: lax.reduce_precision(x, *bits), x), expected)


@together.compiled
@pytest.mark.parametrize("bits", [(5, 10), (8, 23), (11, 20), (8, 60)])
def test_reduced_precision_of_float64(bits):
    rng = np.random.default_rng(14)
    x = np.exp2(rng.uniform(-160, 160, 5000)) * rng.choice([-1, 1], 5000)
    x = np.concatenate([x, [0.0, -0.0, np.inf, -np.inf, np.nan]])
    expected = np.asarray(lax.reduce_precision(jnp.asarray(x), *bits))
    ulp.assert_same(simt.evaluate(lambda x: lax.reduce_precision(x, *bits), x), expected)


# ---- Selection -----------------------------------------------------------------------------------


@together.compiled
@pytest.mark.parametrize("dtype", DTYPES)
def test_selection_by_a_bool(dtype):
    rng = np.random.default_rng(11)
    which = rng.integers(0, 2, 100).astype(bool)
    cases = [reference.random_values(rng, dtype, 100, (-4, 4)) for _ in range(2)]
    actual = simt.evaluate(lambda which, *cases: lax.select_n(which, *cases), which, *cases)
    ulp.assert_same(actual, np.where(which, cases[1], cases[0]))


@together.compiled
@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_selection_by_an_integer(count):
    rng = np.random.default_rng(12)
    which = rng.integers(0, count, 100).astype(np.int32)
    cases = [rng.normal(size=100).astype(np.float32) for _ in range(count)]
    actual = simt.evaluate(lambda which, *cases: lax.select_n(which, *cases), which, *cases)
    ulp.assert_same(actual, np.choose(which, cases))


# ---- The rest ------------------------------------------------------------------------------------


@together.compiled
@pytest.mark.parametrize("dtype", FLOATS)
def test_polynomials(dtype):
    if not hasattr(lax, "polynomial"):
        pytest.skip(f"JAX {jax.__version__} has no lax.polynomial")
    rng = np.random.default_rng(13)
    x, *cs = (reference.random_values(rng, dtype, 500, (0.1, 2)) for _ in range(4))
    actual = simt.evaluate(lambda x, *cs: lax.polynomial(x, cs), x, *cs)
    wide = [np.asarray(v, np.float64) for v in (x, *cs)]
    expected = np.asarray(lax.polynomial(jnp.asarray(wide[0]), tuple(map(jnp.asarray, wide[1:]))))
    ulp.assert_same(actual, expected.astype(x.dtype), 1 if DTYPES[dtype].is_narrow else 4)


IDENTITIES = {
    "name": lambda x: checkpoint_name(x, "kept"),
    "stop_gradient": lax.stop_gradient,
}


@together.compiled
@pytest.mark.parametrize("name", IDENTITIES)
def test_what_changes_no_scalar_keeps_its_value(name):
    x = np.array([1.5, -0.0, np.inf], np.float32)
    functor = simt.make_functor(IDENTITIES[name], ["float32"])
    # JAX itself forwards the operand of some.
    assert [equation.primitive.name for equation in functor.jaxpr.eqns] in ([name], [])
    ulp.assert_same(simt.evaluate(IDENTITIES[name], x), x)


@together.compiled
def test_barriers_keep_values():
    x, n = np.array([1.5, -0.0], np.float32), np.array([3, -4], np.int32)
    for actual, kept in zip(
        simt.evaluate(lambda x, n: lax.optimization_barrier((x, n)), x, n), (x, n), strict=True
    ):
        ulp.assert_same(actual, kept)


@together.compiled
@pytest.mark.parametrize("dtype", DTYPES)
def test_empty_values_can_be_compiled(dtype):
    empty = primitives.empty2_p
    kernel = simt.make_kernel(
        lambda x: empty.bind(dtype=jnp.dtype(dtype), memory_space=jax.memory.Space.Device), [dtype]
    )
    simt.compiled(kernel)


def test_every_parametric_primitive_has_a_test():
    tested = {
        *IDENTITIES,
        *("convert_element_type", "bitcast_convert_type", "integer_pow", "round", "select_n"),
        *("reduce_precision", "polynomial", "empty2"),
    }
    assert set(names_of("scalar")) - set(OPERATORS) == tested
