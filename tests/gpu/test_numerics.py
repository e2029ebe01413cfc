"""Every operator and every rule with every dtype it takes, against float64.

The table of operators says how far off a result may be; what is right is said in
``support/reference.py``. Functions of one operand of 8 or 16 bits see every value there is. Complex
numbers are in ``test_complex.py``.
"""

from __future__ import annotations

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gpu import device
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from support import reference, ulp

import jax_elementwise as je
from jax_elementwise._codegen.registry import names_of
from jax_elementwise._codegen.rules.operators import OPERATORS
from jax_elementwise._codegen.types import DTYPES

pytestmark = pytest.mark.gpu

SIZE = 4099  # whole packs, and a partial one whatever the pack size
REALS = [name for name, dtype in DTYPES.items() if dtype.kind != "complex"]
FLOATS = [name for name in REALS if DTYPES[name].kind == "float"]
INTS = [name for name, dtype in DTYPES.items() if dtype.kind == "int"]


def inputs(
    dtypes, rng, *, domain=(-4.0, 4.0), domains=(), special=True, bits=20000
) -> list[np.ndarray]:
    """Operands: random ones and, if asked for, every combination of special values.

    They come from one domain, unless there is one for each of them.
    For one operand of a narrow dtype these are all of its values, for other floats random ``bits``.
    """
    pairs = zip(dtypes, domains or [domain] * len(dtypes), strict=True)
    columns = [[reference.random_values(rng, dtype, SIZE, of) for dtype, of in pairs]]
    if special:
        values = [reference.special_values(dtype) for dtype in dtypes]
        columns.append([grid.ravel() for grid in np.meshgrid(*values, indexing="ij")])
    if special and len(dtypes) == 1 and dtypes[0] in FLOATS:
        columns.append([reference.of_every_exponent(rng, dtypes[0], bits)])
    return [np.concatenate(parts) for parts in zip(*columns, strict=True)]


def rounded(x: np.ndarray, dtype) -> np.ndarray:
    with np.errstate(all="ignore"):  # NumPy warns of signalling NaNs too
        return (x.astype(np.float64) if x.dtype == np.longdouble else x).astype(dtype)


def is_narrow(dtype: str) -> bool:
    return DTYPES[dtype].is_narrow


@pytest.fixture(scope="module", autouse=True)
def kernels(request):
    """The kernels of all tests below, compiled many at a time: one by one they take a minute."""
    if device.ON_CPU:
        return
    jobs = []
    for item in filter(lambda item: hasattr(item, "callspec"), request.session.items):
        parameters = item.callspec.params
        if item.originalname == "test_operator":
            row = OPERATORS[parameters["name"]]
            jobs.append((reference.lax_function(row), [parameters["dtype"]] * row.arity))
        elif item.originalname == "test_rule":
            jobs.append((parameters["fun"], parameters["dtypes"]))
    device.precompile(jobs)


# ---- The table of operators ----------------------------------------------------------------------


def expected_of(row, operands, result) -> np.ndarray:
    if operands[0].dtype == np.float64:
        return reference.by_numpy(row, np.stack(operands))
    with device.cpu():
        return reference.by_lax(row, np.stack(operands), result)


def allowed_ulp(row, dtype: str) -> int:
    if dtype not in FLOATS:
        return 0
    return 1 if is_narrow(dtype) else row.ulp[dtype == "float64"]


@pytest.mark.parametrize(("name", "dtype"), reference.rows_and_dtypes())
def test_operator(name, dtype, rng, x64, kernels_only):
    row = OPERATORS[name]
    fun = reference.lax_function(row)
    if fun is None:
        pytest.skip(f"JAX {jax.__version__} has no public function for {name}")
    assert device.primitives(fun, *[dtype] * row.arity) == {name}
    bits = 300 if name in reference.SLOW else 20000
    domains = row.operand_domains()
    operands = inputs([dtype] * row.arity, rng, domains=domains, special=row.special, bits=bits)
    if name in reference.POSITIVE_ONLY and dtype in FLOATS:
        keep = ~((operands[0] < 0) & np.isfinite(operands[0]))
        operands = [x[keep] for x in operands]
    (actual,) = device.run(lambda *args: [je.elementwise(fun)(*args)], *operands)
    expected = expected_of(row, operands, actual.dtype)
    device.check(actual, expected, allowed_ulp(row, dtype), *operands)


# ---- Rules that depend on parameters -------------------------------------------------------------

CASES: list = []


def case(rule, label, fun, dtypes, allowed=0, *, expected=None, **options):
    """``expected``: the reference, if it is not ``fun`` on the CPU in float64."""
    expected = expected or functools.partial(in_float64, fun)
    CASES.append(pytest.param(rule, fun, dtypes, allowed, expected, options, id=f"{rule}-{label}"))


def in_float64(fun, *operands):
    wide = [rounded(x, np.float64) if ulp.is_float(x.dtype) else x for x in operands]
    return device.on_cpu(jax.vmap(fun), *wide)


def power(x: np.ndarray, exponent: int) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.power(x.astype(np.longdouble) if ulp.is_float(x.dtype) else x, exponent)


def converted(x: np.ndarray, target: str) -> np.ndarray:
    """By NumPy, but to integers by XLA: what does not fit saturates."""
    if target in INTS and ulp.is_float(x.dtype):
        wide = rounded(x, np.float64)
        return device.on_cpu(functools.partial(lax.convert_element_type, new_dtype=target), wide)
    return rounded(x, reference.np_dtype(target))


for _source, _target in itertools.permutations(REALS, 2):
    case(
        "convert_element_type",
        f"{_source}-{_target}",
        functools.partial(lax.convert_element_type, new_dtype=_target),
        [_source],
        # NumPy rounds some of these twice.
        int(is_narrow(_target) and _source in ("float64", *INTS)),
        expected=functools.partial(converted, target=_target),
    )
for _source, _target in itertools.product([*FLOATS, *INTS], [*FLOATS, *INTS]):
    _pair = DTYPES[_source], DTYPES[_target]
    # Narrow floats may change the bits of a NaN.
    if _pair[0].itemsize == _pair[1].itemsize and not any(dtype.is_narrow for dtype in _pair):
        case(
            "bitcast_convert_type",
            f"{_source}-{_target}",
            functools.partial(lax.bitcast_convert_type, new_dtype=_target),
            [_source],
            expected=functools.partial(np.ndarray.view, dtype=reference.np_dtype(_target)),
        )
for _dtype, _power in itertools.product([*FLOATS, *INTS], (-3, -2, -1, 2, 3, 5, 8)):
    if _power > 0 or _dtype in FLOATS:
        case(
            "integer_pow",
            f"{_power}-{_dtype}",
            functools.partial(lax.integer_pow, y=_power),
            [_dtype],
            0 if _dtype in INTS else 1 if is_narrow(_dtype) else abs(_power),
            expected=functools.partial(power, exponent=_power),
            special=_power > 0,  # a power out of range has no reciprocal
        )
for _dtype, _method in itertools.product(FLOATS, lax.RoundingMethod):
    _round = functools.partial(lax.round, rounding_method=_method)
    case("round", f"{_method.name.lower()}-{_dtype}", _round, [_dtype])
for _dtype in REALS:
    case(
        "select_n",
        f"bool-{_dtype}",
        lax.select_n,
        ["bool", _dtype, _dtype],
        expected=lambda which, x, y: np.where(which, y, x),
    )
    case(
        "select_n",
        f"int32-{_dtype}",
        lambda which, *cases: lax.select_n(lax.clamp(np.int32(0), which, np.int32(2)), *cases),
        ["int32", _dtype, _dtype, _dtype],
        expected=lambda which, *cases: np.choose(np.clip(which, 0, 2), cases),
        special=False,
    )
    for _name, _same in (
        ("reshape", lambda x: lax.reshape(x, ())),
        ("squeeze", lambda x: lax.squeeze_p.bind(x, dimensions=())),
        ("stop_gradient", lax.stop_gradient),
        ("name", functools.partial(checkpoint_name, name="saved")),
    ):
        case(_name, _dtype, _same, [_dtype], expected=lambda x: x)
for _dtype, _bits in (
    ("float32", (5, 10)),
    ("float32", (8, 7)),
    ("float64", (5, 10)),
    ("float64", (8, 23)),
    ("float16", (5, 10)),
    ("bfloat16", (8, 7)),
):
    _reduce = functools.partial(
        lax.reduce_precision, exponent_bits=_bits[0], mantissa_bits=_bits[1]
    )
    case(
        "reduce_precision",
        f"{_dtype}-{_bits[0]}-{_bits[1]}",
        _reduce,
        [_dtype],
        expected=functools.partial(device.on_cpu, _reduce),
    )
for _dtype in FLOATS:
    case(
        "polynomial",
        _dtype,
        lambda x: lax.polynomial(x, (x * 0 + 0.5, x * 0 + 0.25, x * 0 + 2)),
        [_dtype],
        1 if is_narrow(_dtype) else 4,
        domain=(0.0, 4.0),
        special=False,
    )
    case(
        "empty2",
        _dtype,
        jax.grad(lambda x: lax.cond(x > 1, lambda x: x * x * x, lambda x: 2 * x, x)),
        [_dtype],
        2,
        special=False,
    )


@pytest.mark.parametrize(("rule", "fun", "dtypes", "allowed", "expected", "options"), CASES)
def test_rule(rule, fun, dtypes, allowed, expected, options, rng, x64, kernels_only):
    if rule == "polynomial" and not hasattr(lax, rule):
        pytest.skip(f"JAX {jax.__version__} has no lax.polynomial")
    assert rule in device.primitives(fun, *dtypes)
    operands = inputs(dtypes, rng, **options)
    (actual,) = device.run(lambda *args: [je.elementwise(fun)(*args)], *operands)
    expected = rounded(expected(*operands), actual.dtype)
    if rule == "bitcast_convert_type":
        actual, expected = (x.view(f"uint{8 * x.dtype.itemsize}") for x in (actual, expected))
    device.check(actual, expected, allowed, *operands)


def test_every_rule_is_covered():
    tested = {parameters.values[0] for parameters in CASES}
    assert set(names_of("scalar")) - set(OPERATORS) <= tested


# ---- Tables and small arrays ---------------------------------------------------------------------

TABLE = np.float32([0.5, -1.25, 2.0, 0.75, 3.5, -0.5, 1.0])
ARRAYS = {
    "polynomial": lambda x: jnp.polyval(TABLE, x),
    "table": lambda x: jnp.asarray(TABLE)[jnp.abs(x * 5).astype(jnp.int32)],
    "fill": lambda x: jnp.take(TABLE, (x * 5).astype(jnp.int32), mode="fill", fill_value=7),
    "interpolation": lambda x: jnp.interp(x, np.sort(TABLE), TABLE),
    "sum": lambda x: jnp.sum(jnp.abs(TABLE - x)),
    "nearest": lambda x: jnp.argmin(jnp.abs(TABLE - x)),
    "stack": lambda x: jnp.stack([x, x * x, 1 - x])[jnp.clip(x, -1, 1).astype(jnp.int32) + 1],
    "update": lambda x: jnp.sum(jnp.zeros(5).at[jnp.abs(x).astype(jnp.int32)].set(x) * TABLE[:5]),
    "gradient": jax.grad(lambda x: jnp.polyval(TABLE, x) + jnp.interp(x, np.sort(TABLE), TABLE)),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_tables_and_small_arrays(name, rng):
    x = rng.uniform(-3, 3, SIZE).astype(np.float32)
    (actual,) = device.run(lambda x: [je.elementwise(ARRAYS[name])(x)], x)
    expected = device.on_cpu(jax.vmap(ARRAYS[name]), x.astype(np.float64))
    np.testing.assert_allclose(actual, expected, rtol=3e-5, atol=3e-5)


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
    kind = reference.np_dtype(dtype)
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
    x = np.array([nan, 1, nan, inf, -inf, -0.0], reference.np_dtype(dtype))
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
