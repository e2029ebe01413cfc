"""Every operator with every dtype it takes, against float64.

The table of operators says how far off a result may be. The reference is ``jax.lax`` in float64,
on the CPU, of the same inputs, rounded once. For float64 itself it is NumPy, in a longer type where
there is one: XLA's float64 functions on the CPU are less exact than the kernels', and take
subnormal numbers for zeros. 16-bit functions of one operand see every value there is.
"""

from __future__ import annotations

import functools
import itertools
import math

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import scipy.special
from gpu import device
from jax import lax
from support import ulp

import jax_elementwise as je
from jax_elementwise._codegen.parametric import PARAMETRIC
from jax_elementwise._codegen.primitives import OPERATORS, Operator
from jax_elementwise._codegen.types import DTYPES, DType

pytestmark = pytest.mark.gpu

SIZE = 4099  # whole packs, and a tail for every pack size
FLOATS = [dtype for dtype in DTYPES.values() if dtype.kind == "float"]
INTS = [dtype for dtype in DTYPES.values() if dtype.kind == "int"]

# ---- Inputs --------------------------------------------------------------------------------------


def numpy_dtype(dtype: DType) -> np.dtype:
    return np.dtype(ml_dtypes.bfloat16 if dtype.name == "bfloat16" else dtype.name)


def special_values(dtype: DType) -> np.ndarray:
    kind = numpy_dtype(dtype)
    if dtype.kind == "bool":
        return np.array([False, True])
    if dtype.kind == "int":
        info = np.iinfo(kind)
        values = {0, 1, 2, 3, 31, info.max, info.max - 1, info.min, info.min + 1}
        return np.array(sorted(values | ({-1, -2} if info.min < 0 else set())), kind)
    info = ml_dtypes.finfo(kind)
    subnormal, normal = info.smallest_subnormal, info.smallest_normal
    positive = np.array([0, subnormal, 3 * subnormal, normal, 0.5, 1, 2, np.inf, np.nan], kind)
    return np.concatenate([positive, -positive])


def random_values(dtype: DType, domain: tuple[float, float], rng) -> np.ndarray:
    kind = numpy_dtype(dtype)
    if dtype.kind == "bool":
        return rng.random(SIZE) < 0.5
    if dtype.kind == "int":
        info = np.iinfo(kind)
        wide = rng.integers(info.min, info.max, SIZE, kind, endpoint=True)
        return np.where(rng.random(SIZE) < 0.5, wide, wide % 19).astype(kind)
    return rng.uniform(*domain, SIZE).astype(kind)


def inputs(dtypes, rng, *, domain=(-4.0, 4.0), special=True) -> list[np.ndarray]:
    """Operands: random ones, then every combination of special values."""
    if len(dtypes) == 1 and dtypes[0].is_half and special:
        return [np.arange(2**16, dtype=np.uint16).view(numpy_dtype(dtypes[0]))]
    operands = [random_values(dtype, domain, rng) for dtype in dtypes]
    if not special:
        return operands
    combinations = np.meshgrid(*map(special_values, dtypes), indexing="ij")
    return [
        np.concatenate([x, s.ravel().astype(x.dtype)])
        for x, s in zip(operands, combinations, strict=True)
    ]


# ---- References ----------------------------------------------------------------------------------

# For float64, by the names of the primitives. These NumPy rounds correctly,
_NUMPY = {
    "add": np.add,
    "add_any": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "rem": np.fmod,
    "neg": np.negative,
    "abs": np.abs,
    "sign": lambda x: np.where(x == 0, x, np.sign(x)),
    "max": np.maximum,
    "min": np.minimum,
    "square": np.square,
    "sqrt": np.sqrt,
    "floor": np.floor,
    "ceil": np.ceil,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "clamp": lambda low, x, high: np.minimum(np.maximum(low, x), high),
    "erf": np.vectorize(math.erf),
    "erfc": np.vectorize(math.erfc),
    "erf_inv": lambda x: np.copysign(scipy.special.erfinv(x), x),
}
# and these need a longer type.
_NUMPY_LONG = {
    "one_minus_square": lambda x: (1 + x) * (1 - x),
    "pow": np.power,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "cbrt": np.cbrt,
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log1p": np.log1p,
    "logistic": lambda x: 1 / (1 + np.exp(-x)),
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
}
# Functions of C and SciPy have an error of their own.
_REFERENCE_ULP = {"erf": 1, "erfc": 1, "erf_inv": 3}


def reference(name, fun, operands) -> np.ndarray:
    """The exact result, or nearly; floats in float64 or more."""
    if operands[0].dtype == np.float64:
        with np.errstate(all="ignore"):
            if name in _NUMPY:
                return _NUMPY[name](*operands)
            if name in _NUMPY_LONG:
                return _NUMPY_LONG[name](*(x.astype(np.longdouble) for x in operands))
    return device.on_cpu(fun, *map(widened, operands))


def widened(x: np.ndarray) -> np.ndarray:
    return rounded(x, np.float64) if ulp.is_float(x.dtype) else x


def rounded(x: np.ndarray, dtype) -> np.ndarray:
    with np.errstate(all="ignore"):  # NumPy warns of signalling NaNs
        return x.astype(dtype)


def flushed(x: np.ndarray) -> np.ndarray:
    """Numbers below float32's normal ones as zeros.

    bfloat16 has them too, but what is computed in float32 may have left its range on the way there.
    """
    if x.dtype != ml_dtypes.bfloat16:
        return x
    tiny = np.abs(x) < np.finfo(np.float32).smallest_normal
    return np.where(tiny, np.copysign(np.zeros_like(x), x), x)


# ---- The table of operators ----------------------------------------------------------------------


def lax_function(row: Operator):
    if row.name == "copy":
        return functools.partial(jnp.array, copy=True)
    return getattr(lax, row.function or row.name, None)


def allowed_ulp(row: Operator, dtype: DType) -> int:
    if dtype.kind != "float":
        return 0
    if dtype.is_half:
        return 0 if row.ulp == (0, 0) and "half" not in row.forms else 1
    if dtype.name == "float64":
        return row.ulp[1] + _REFERENCE_ULP.get(row.name, 0)
    return row.ulp[0]


ROWS = [
    pytest.param(row, dtype, id=f"{row.name}-{dtype.name}")
    for row in OPERATORS.values()
    for dtype in DTYPES.values()
    if row.form(dtype) is not None and lax_function(row) is not None
]


@pytest.mark.parametrize(("row", "dtype"), ROWS)
def test_operator(row, dtype, rng, x64, kernels_only):
    fun = lax_function(row)
    if row.name != "add_any":  # only differentiation makes that one
        assert device.primitives(fun, *[dtype.name] * row.arity) == {row.name}
    operands = inputs([dtype] * row.arity, rng, domain=row.domain, special=row.special)
    (actual,) = device.run(lambda *args: [je.elementwise(fun)(*args)], *operands)
    expected = rounded(reference(row.name, fun, operands), actual.dtype)
    allowed = allowed_ulp(row, dtype)
    if allowed:
        actual, expected = flushed(actual), flushed(expected)
    # Which of two zeros is larger is nobody's promise.
    zeros = row.name not in ("max", "min", "clamp")
    device.check(actual, expected, allowed, *operands, zeros=zeros)


def test_the_table_is_covered():
    absent = {name for name, row in OPERATORS.items() if lax_function(row) is None}
    # Functions that the oldest supported JAX does not have yet.
    assert absent <= {"one_minus_square", "log2"}


# ---- Rules that depend on parameters -------------------------------------------------------------

CASES: list = []


def case(rule, label, fun, dtypes, allowed=0, *, expected=None, **options):
    """``expected``: the reference, if it is not ``fun`` on the CPU in float64."""
    expected = expected or (lambda *x: device.on_cpu(jax.vmap(fun), *map(widened, x)))
    CASES.append(pytest.param(rule, fun, dtypes, allowed, expected, options, id=f"{rule}-{label}"))


def _conversion(x: np.ndarray, target: DType):
    """By NumPy, but for conversions to integers, where NumPy does not say what does not fit."""
    if target.kind == "int" and ulp.is_float(x.dtype):
        return device.on_cpu(functools.partial(lax.convert_element_type, new_dtype=target.name), x)
    return rounded(x, numpy_dtype(target))


def _conversion_ulp(source: DType, target: DType) -> int:
    # Through float32: 53 or 32 bits are rounded twice.
    return int(target.is_half and (source.name == "float64" or source.kind == "int"))


for _source, _target in itertools.permutations(DTYPES.values(), 2):
    case(
        "convert_element_type",
        f"{_source.name}-{_target.name}",
        functools.partial(lax.convert_element_type, new_dtype=_target.name),
        [_source],
        _conversion_ulp(_source, _target),
        expected=functools.partial(_conversion, target=_target),
    )
for _source, _target in itertools.product(DTYPES.values(), DTYPES.values()):
    _is_half = _source.is_half or _target.is_half
    _is_bool = "bool" in (_source.kind, _target.kind)
    if _source.itemsize == _target.itemsize and not _is_half and not _is_bool:
        case(
            "bitcast_convert_type",
            f"{_source.name}-{_target.name}",
            functools.partial(lax.bitcast_convert_type, new_dtype=_target.name),
            [_source],
            expected=functools.partial(np.ndarray.view, dtype=numpy_dtype(_target)),
        )
for _dtype, _power in itertools.product([*FLOATS, *INTS], (-3, -2, -1, 2, 3, 5, 8)):
    if _power > 0 or _dtype.kind == "float":
        case(
            "integer_pow",
            f"{_power}-{_dtype.name}",
            functools.partial(lax.integer_pow, y=_power),
            [_dtype],
            0 if _dtype.kind == "int" else 1 if _dtype.is_half else abs(_power),
        )
for _dtype in FLOATS:
    for _method in lax.RoundingMethod:
        _round = functools.partial(lax.round, rounding_method=_method)
        case("round", f"{_method.name.lower()}-{_dtype.name}", _round, [_dtype])
for _dtype in DTYPES.values():
    case("select_n", f"bool-{_dtype.name}", lax.select_n, [DTYPES["bool"], _dtype, _dtype])
    case(
        "select_n",
        f"int32-{_dtype.name}",
        lambda which, *cases: lax.select_n(lax.clamp(np.int32(0), which, np.int32(2)), *cases),
        [DTYPES["int32"], _dtype, _dtype, _dtype],
        special=False,
    )
    case("reshape", _dtype.name, lambda x: lax.reshape(x, ()), [_dtype])
    case("squeeze", _dtype.name, lambda x: lax.squeeze_p.bind(x, dimensions=()), [_dtype])
    case("stop_gradient", _dtype.name, lax.stop_gradient, [_dtype])
if hasattr(lax, "polynomial"):  # JAX 0.12
    for _dtype in FLOATS:
        case(
            "polynomial",
            _dtype.name,
            lambda x: lax.polynomial(x, (x * 0 + 0.5, x * 0 + 0.25, x * 0 + 2)),
            [_dtype],
            2,
            domain=(0.0, 4.0),
            special=False,
        )


def _branch(x):
    return lax.cond(x > 1, lambda x: x * x * x, lambda x: 2 * x, x)


for _dtype in FLOATS:
    case("empty2", _dtype.name, jax.grad(_branch), [_dtype], 2, special=False)


@pytest.mark.parametrize(("rule", "fun", "dtypes", "allowed", "expected", "options"), CASES)
def test_rule(rule, fun, dtypes, allowed, expected, options, rng, x64, kernels_only):
    assert rule in device.primitives(fun, *(dtype.name for dtype in dtypes))
    operands = inputs(dtypes, rng, **options)
    (actual,) = device.run(lambda *args: [je.elementwise(fun)(*args)], *operands)
    expected = rounded(expected(*operands), actual.dtype)
    if rule == "bitcast_convert_type":
        actual, expected = ulp.bits_of(actual), ulp.bits_of(expected)
    elif allowed:
        actual, expected = flushed(actual), flushed(expected)
    device.check(actual, expected, allowed, *operands)


def test_every_rule_is_covered():
    tested = {parameters.values[0] for parameters in CASES}
    traced_away = {"broadcast_in_dim", "expand_dims"}  # scalars never show them
    newer = set() if hasattr(lax, "polynomial") else {"polynomial"}
    assert set(PARAMETRIC) == tested | traced_away | newer


# ---- What a table of single operators does not show ----------------------------------------------


def test_16_bit_floats_are_rounded_at_the_result_and_at_conversions_only(kernels_only):
    x = np.float16([2048.0])  # 2048 + 1 is no float16
    (kept,) = device.run(lambda x: [je.elementwise(lambda x: (x + 1) - x)(x)], x)
    assert kept == 1
    rounds = je.elementwise(
        lambda x: (x + 1).astype(jnp.float16).astype(jnp.float32).astype(jnp.float16) - x
    )
    (lost,) = device.run(lambda x: [rounds(x)], x)
    assert lost == 0


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_results_of_16_bits_are_rounded_to_nearest_even(dtype, rng):
    kind = numpy_dtype(DTYPES[dtype])
    bits = rng.integers(0, 2**32, SIZE, dtype=np.uint32)
    halfway = (bits & 0xFFFF0000) | np.uint32(0x8000 if dtype == "bfloat16" else 0x1000)
    wide = np.concatenate([bits, halfway]).view(np.float32)
    narrow = je.elementwise(lambda x: x.astype(dtype))
    (actual,) = device.run(lambda x: [narrow(x)], wide)
    device.check(actual, rounded(wide, kind), 0, wide)


@pytest.mark.parametrize("dtype", ["int32", "uint32"])
def test_integer_division_by_zero_and_overflow_are_those_of_xla(dtype):
    info = np.iinfo(dtype)
    x = np.array([7, 0, info.max, info.min, info.min, -9 % 2**31], dtype)
    y = np.array([0, 0, 0, 0, 2**32 - 1 if info.min == 0 else -1, 4], dtype)
    operators = [lax.div, lax.rem, lambda x, y: x // 3 + y, lambda x, y: x % 3 - y]
    for fun in operators:
        (actual,) = device.run(lambda x, y, fun=fun: [je.elementwise(fun)(x, y)], x, y)
        np.testing.assert_array_equal(actual, device.on_cpu(fun, x, y))


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_nan_goes_through_comparisons_selections_and_bounds_as_in_jax(dtype, x64):
    nan, inf = np.nan, np.inf
    x = np.array([nan, 1, nan, inf, -inf, -0.0], numpy_dtype(DTYPES[dtype]))
    y = np.array([1, nan, nan, nan, inf, 0.0], x.dtype)

    def fun(x, y):
        bounds = jnp.maximum(x, y), jnp.minimum(x, y), jnp.clip(x, -1.0, 1.0)
        tests = x < y, x != x, x == y, jnp.isnan(x + y), jnp.isfinite(x)
        return bounds, tests, jnp.where(x > y, x, y), jnp.sign(x)

    actual = device.run(je.elementwise(fun), x, y)
    expected = jax.tree.map(np.asarray, jax.jit(fun)(x, y))
    for a, e in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        device.check(a, e, 0, x, y, zeros=False)


def test_branches_and_switches_compute_what_is_chosen_and_nothing_else(rng):
    x = rng.uniform(-3, 3, SIZE).astype(np.float32)
    which = rng.integers(-2, 6, SIZE, dtype=np.int32)
    branches = [lambda x: x * x, lambda x: jnp.sqrt(jnp.abs(x)), lambda x: 1 - x]
    fun = je.elementwise(lambda which, x: lax.switch(which, branches, x))
    (actual,) = device.run(lambda *args: [fun(*args)], which, x)
    wide = x.astype(np.float64)
    expected = np.choose(np.clip(which, 0, 2), [wide * wide, np.sqrt(np.abs(wide)), 1 - wide])
    device.check(actual, expected.astype(np.float32), 1, which, x)

    safe = je.elementwise(lambda x: lax.cond(x < 1, lambda x: x, jnp.sqrt, x))
    gradient = device.run(lambda x: jax.vmap(jax.grad(safe))(x), np.float32([0, 4]))
    np.testing.assert_array_equal(gradient, [1, 0.25])


def test_fast_math_is_less_exact_and_stays_with_its_function(rng):
    x = rng.uniform(-3, 3, SIZE).astype(np.float32)

    def fun(x):
        return jnp.exp(jnp.sin(x)) / (1 + x * x)

    wide = x.astype(np.float64)
    expected = np.exp(np.sin(wide)) / (1 + wide * wide)
    (exact,) = device.run(lambda x: [je.elementwise(fun)(x)], x)
    (fast,) = device.run(lambda x: [je.elementwise(fun, fast_math=True)(x)], x)
    np.testing.assert_allclose(exact, expected, rtol=1e-6)
    np.testing.assert_allclose(fast, expected, rtol=1e-5)
    assert device.ON_CPU or (fast != exact).any()


def test_integers_wrap_around(rng):
    x, y = rng.integers(-(2**31), 2**31, (2, SIZE)).astype(np.int32)
    fun = je.elementwise(lambda x, y: (x * y + x - y, x.astype(jnp.uint32) * np.uint32(2654435761)))
    actual = device.run(fun, x, y)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(actual[0], x * y + x - y)
        np.testing.assert_array_equal(actual[1], x.astype(np.uint32) * np.uint32(2654435761))
