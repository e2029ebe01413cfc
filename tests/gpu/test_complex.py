"""Complex numbers on the GPU: every row of the table, conversions, and derivatives.

Errors are norm-wise. CUDA's elementary functions may be off by two units in the last place, so
twice the table's bound is allowed.
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
from support import annex_g, complex_numbers, reference, ulp
from support.complex_numbers import BITWISE, ORDERED, PART

import jax_elementwise as je
from jax_elementwise._codegen.rules.operators import OPERATORS
from jax_elementwise._codegen.types import DTYPES

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:Casting complex values to real"),
]

CASES = [case for case in reference.rows_and_dtypes(of_complex=True) if case[1] in PART]
NUMERIC = [case for case in CASES if case[0] not in {*BITWISE, *ORDERED}]
EXACT = [case for case in CASES if case[0] in {*BITWISE, *ORDERED}]
REAL = [name for name, dtype in DTYPES.items() if dtype.kind != "complex"]


def function_of(row):
    fun = reference.lax_function(row)
    if fun is None:
        pytest.skip(f"JAX {jax.__version__} has no public function for {row.name}")
    return fun


def inputs(row, dtype, rng) -> list[np.ndarray]:
    """Numbers of ordinary size and, where errors are bounded there, of every other."""
    random = [complex_numbers.random_values(rng, dtype, 4099) for _ in range(row.arity)]
    if row.name in complex_numbers.CONDITIONED:
        return random
    every = [complex_numbers.values_everywhere(rng, dtype, 2000) for _ in range(row.arity)]
    count = min(map(len, every))
    return [np.concatenate([x, y[:count]]) for x, y in zip(random, every, strict=True)]


def of_lax(row, operands) -> np.ndarray:
    """What needs no rounding, by NumPy; the order, by lax on the CPU."""
    if row.name in BITWISE:
        with np.errstate(all="ignore"):
            return BITWISE[row.name](*operands)
    if row.name == "clamp":  # XLA's own looks at real parts only
        return device.on_cpu(lambda low, x, high: lax.min(lax.max(low, x), high), *operands)
    return device.on_cpu(reference.lax_function(row), *operands)


def run(fun, *operands) -> np.ndarray:
    (result,) = device.run(lambda *xs: [je.elementwise(fun)(*xs)], *operands)
    return result


@pytest.fixture(scope="module", autouse=True)
def kernels():
    """The kernels of the table's rows, compiled many at a time."""
    if device.ON_CPU:
        return
    functions = [(reference.lax_function(OPERATORS[name]), name, dtype) for name, dtype in CASES]
    device.precompile(
        [(fun, [dtype] * OPERATORS[name].arity) for fun, name, dtype in functions if fun]
    )


# ---- The table of operators ----------------------------------------------------------------------


@pytest.mark.parametrize(("name", "dtype"), NUMERIC)
def test_operator(name, dtype, rng, x64, kernels_only):
    row = OPERATORS[name]
    fun, operands = function_of(row), inputs(row, dtype, rng)
    assert device.primitives(fun, *[dtype] * row.arity) == {name}
    actual = run(fun, *operands)
    bad = np.flatnonzero(complex_numbers.wrong(row, actual, operands, 2 * row.complex_eps))
    expected = complex_numbers.exact(row, operands)
    shown = [(*(x[i] for x in operands), actual[i], expected[i]) for i in bad[:8]]
    assert not bad.size, f"{bad.size} of {actual.size}: operands, actual, expected: {shown}"


@pytest.mark.parametrize(("name", "dtype"), EXACT)
def test_operator_that_needs_no_rounding(name, dtype, rng, x64, kernels_only):
    row = OPERATORS[name]
    special = complex_numbers.special_values(dtype)
    grid = [x.ravel() for x in np.meshgrid(*[special] * min(row.arity, 2))]
    grid += [rng.permutation(grid[0])] * (row.arity - len(grid))
    operands = [np.concatenate([x, y]) for x, y in zip(grid, inputs(row, dtype, rng), strict=True)]
    device.check(run(function_of(row), *operands), of_lax(row, operands), 0, *operands)


@pytest.mark.parametrize("name", annex_g.FUNCTIONS)
@pytest.mark.parametrize("dtype", PART)
def test_special_values_are_those_of_annex_g(name, dtype, x64, kernels_only):
    z = complex_numbers.special_values(dtype)
    with np.errstate(all="ignore"):
        expected = complex_numbers.EXACT[name](z)
    results = run(function_of(OPERATORS[name]), z), expected
    device.check(*(annex_g.without_open_signs(name, z, w) for w in results), 8, z)


@pytest.mark.parametrize("dtype", PART)
@pytest.mark.parametrize("size", [0, 1, 2, 3, 7, 127, 4097])
def test_sizes(size, dtype, rng, x64):
    z, w = (complex_numbers.random_values(rng, dtype, size) for _ in range(2))
    made = je.elementwise(lambda z, w: (z + w, jnp.conj(z), lax.complex(w.imag, z.real), z != w))
    expected = z + w, np.conj(z), w.imag + 1j * z.real, z != w
    for actual, e in zip(device.run(made, z, w, calls=min(size, 1)), expected, strict=True):
        device.check(actual, e.astype(actual.dtype), 0, z, w)


# ---- Conversions, powers and choices -------------------------------------------------------------


@pytest.mark.parametrize("real", REAL)
@pytest.mark.parametrize("dtype", PART)
def test_conversions_to_and_from_real_types(dtype, real, rng, x64, kernels_only):
    x = reference.random_values(rng, real, 4099, (-100, 100))
    to_complex = functools.partial(lax.convert_element_type, new_dtype=dtype)
    device.check(run(to_complex, x), x.astype(PART[dtype]).astype(dtype), 0, x)
    z = 20 * complex_numbers.random_values(rng, dtype, 4099)
    to_real = functools.partial(lax.convert_element_type, new_dtype=real)
    device.check(run(to_real, z), device.on_cpu(to_real, z), 0, z)


@pytest.mark.parametrize(("source", "to"), list(itertools.permutations(PART)))
def test_conversions_between_complex_types(source, to, rng, x64):
    z = complex_numbers.random_values(rng, source, 4099)
    device.check(run(lambda z: z.astype(to), z), z.astype(to), 0, z)


@pytest.mark.parametrize("dtype", PART)
@pytest.mark.parametrize("exponent", [-3, -1, 0, 1, 2, 5, 8])
def test_integer_powers(exponent, dtype, rng, x64):
    z = complex_numbers.random_values(rng, dtype, 4099)
    z = z[np.abs(z) > 1e-3]
    actual = run(lambda z: lax.integer_pow(z, exponent), z)
    expected = np.power(z.astype(np.clongdouble), exponent)
    error = np.abs(actual - expected) / np.abs(expected)
    assert error.max() <= 4 * (abs(exponent) + 1) * np.finfo(dtype).eps


@pytest.mark.parametrize("dtype", PART)
def test_selections_branches_and_tables(dtype, rng, x64):
    which = rng.integers(0, 3, 4099).astype(np.int32)
    z, w = (complex_numbers.random_values(rng, dtype, 4099) for _ in range(2))
    table = complex_numbers.random_values(rng, dtype, 5)

    def fun(which, z, w):
        return (
            lax.select_n(which, z, w, -z),
            lax.cond(which > 1, lambda z, w: z + w, lambda z, w: jnp.conj(z), z, w),
            jnp.asarray(table)[which],
        )

    expected = (
        np.choose(which, (z, w, -z)),
        np.where(which > 1, z + w, np.conj(z)),
        table[which],
    )
    for actual, e in zip(device.run(je.elementwise(fun), which, z, w), expected, strict=True):
        device.check(actual, e, 0, which, z, w)


def test_float16_times_complex64_is_complex64():
    a, z = np.full(5, 1.5, np.float16), np.full(5, 2 - 1j, np.complex64)
    product = run(lambda a, z: a * z, a, z)
    assert product.dtype == np.complex64
    np.testing.assert_array_equal(product, [3 - 1.5j] * 5)


# ---- Derivatives and broadcasting ----------------------------------------------------------------


@pytest.mark.parametrize("shapes", [((33, 7), (7,)), ((33, 1), (1, 7)), ((), (33, 7))], ids=str)
def test_gradients_of_broadcast_operands(shapes, rng):
    z, w = (
        complex_numbers.random_values(rng, "complex64", int(np.prod(shape))).reshape(shape)
        for shape in shapes
    )

    def fun(z, w):
        return jnp.abs(z * w + 1j) + z.real * w.imag

    def gradient(f):
        return jax.grad(lambda z, w: f(z, w).sum(), (0, 1))

    actual = jax.tree.map(np.asarray, jax.jit(gradient(je.elementwise(fun)))(z, w))
    wide = [x.astype(np.complex128) for x in (z, w)]
    with device.cpu():
        expected = jax.tree.map(np.asarray, gradient(fun)(*wide))
    for a, e in zip(actual, expected, strict=True):
        assert a.dtype == np.complex64
        np.testing.assert_allclose(a, e, rtol=1e-4, atol=1e-4)


def test_every_access_of_a_misaligned_view_is_right(rng):
    """Slices that XLA passes on without a copy begin at any element."""
    z = complex_numbers.random_values(rng, "complex64", 1025)
    for start in range(4):
        actual = device.run(lambda z, s=start: [je.elementwise(lambda z: -z)(z[s:])], z)[0]
        assert not ulp.wrong(actual, -z[start:], 0).any()
