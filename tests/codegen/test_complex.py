"""Complex numbers: every row of the operator table that takes or gives them, and every rule.

Values are compared with NumPy's in extended precision (support/complex_numbers.py), what happens at
zeros, infinities and NaN with NumPy too: it follows C99, Annex G. Where XLA does not, is listed in
support/annex_g.py.
"""

from __future__ import annotations

import itertools
import pathlib

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from jax import lax
from support import annex_g, complex_numbers, reference, simt, together, ulp
from support.complex_numbers import BITWISE, ORDERED, PART

from jax_elementwise._codegen.rules.operators import OPERATORS
from jax_elementwise._codegen.types import DTYPES

CASES = reference.rows_and_dtypes(of_complex=True)
OF_COMPLEX = [(name, dtype) for name, dtype in CASES if dtype in PART]
NUMERIC = [case for case in OF_COMPLEX if case[0] not in {*BITWISE, *ORDERED}]
REAL = [name for name, dtype in DTYPES.items() if dtype.kind != "complex"]
pytestmark = pytest.mark.filterwarnings("ignore:Casting complex values to real")
DOCS = pathlib.Path(__file__).parents[2] / "docs" / "numerics.md"


@pytest.fixture(scope="module", autouse=True)
def x64_types():
    with jax.enable_x64(True):
        yield


def _inputs(row, dtype):
    """Operands; the last so many are combinations of special values."""
    rng = np.random.default_rng(21)
    if dtype not in PART:
        values = reference.special_values(dtype)
        return [x.ravel() for x in np.meshgrid(*[values] * row.arity)], values.size**row.arity
    special = complex_numbers.special_values(dtype)
    if row.arity == 1:
        grid = [special]
    else:  # all pairs; triples would be too many
        grid = [x.ravel() for x in np.meshgrid(special, special)]
        grid += [rng.permutation(grid[0])] * (row.arity - 2)
    random = [complex_numbers.random_values(rng, dtype, 4000) for _ in range(row.arity)]
    if row.name not in complex_numbers.CONDITIONED:
        every = [complex_numbers.values_everywhere(rng, dtype, 1000) for _ in range(row.arity)]
        count = min(map(len, every))
        random = [np.concatenate([x, y[:count]]) for x, y in zip(random, every, strict=True)]
    return [np.concatenate(parts) for parts in zip(random, grid, strict=True)], grid[0].size


@pytest.fixture(scope="module")
def computed(x64_types):
    """Operands, how many of them are special, and the result, for all rows from one program."""
    kernels = simt.kernels_of_rows(CASES)
    inputs = {case: _inputs(OPERATORS[case[0]], case[1]) for case in kernels}
    calls = [
        simt.Call(kernel, inputs[case][0][0].shape, (result,), tuple(inputs[case][0]))
        for case, (kernel, result) in kernels.items()
    ]
    results = simt.build([kernel for kernel, _ in kernels.values()]).run(calls)
    return {case: (*inputs[case], r) for case, (r,) in zip(kernels, results, strict=True)}


def _known(computed, name, dtype):
    if (name, dtype) not in computed:
        pytest.skip(f"JAX {jax.__version__} has no public function for {name}")
    return (OPERATORS[name], *computed[name, dtype])


def _assert_none(bad, actual, expected, operands):
    bad = np.flatnonzero(bad)
    shown = "\n".join(
        f"  {tuple(x[i].item() for x in operands)}: {actual[i]!r} should be {expected[i]!r}"
        for i in bad[:8]
    )
    assert not len(bad), f"{len(bad)} of {len(actual)} are wrong:\n{shown}"


# ---- The table of operators ----------------------------------------------------------------------


@pytest.mark.sampled
@pytest.mark.parametrize(("name", "dtype"), NUMERIC)
def test_values_are_within_the_stated_error(computed, name, dtype):
    row, operands, special, actual = _known(computed, name, dtype)
    operands, actual = [x[:-special] for x in operands], actual[:-special]
    expected = complex_numbers.exact(row, operands)
    assert (np.abs(expected) < np.finfo(actual.dtype).max).mean() > 0.8
    bad = complex_numbers.wrong(row, actual, operands, row.complex_eps)
    _assert_none(bad, actual, expected, operands)


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("exp2", lambda z: mpmath.power(2, z)),
        ("expm1", lambda z: mpmath.exp(z) - 1),
        ("log1p", lambda z: mpmath.log(1 + z)),
        ("logistic", lambda z: 1 / (1 + mpmath.exp(-z))),
        ("tanh", mpmath.tanh),
        ("cos", mpmath.cos),
        ("pow", lambda z: mpmath.power(z, z)),
    ],
)
def test_references_are_exact_enough(name, function):
    """Within a tenth of complex128's epsilon of what mpmath computes with 60 digits."""
    z = complex_numbers.values_everywhere(np.random.default_rng(26), "complex128", 40)
    z = z[(np.abs(z) < 50) & (np.abs(z) > 1e-12)]
    row = OPERATORS[name]
    with mpmath.workdps(60):
        exact = [function(mpmath.mpmathify(complex(x))) for x in z]
        high = np.array([complex(x) for x in exact])
        low = np.array([complex(x - h) for x, h in zip(exact, high.tolist(), strict=True)])
    error = np.abs(complex_numbers.exact(row, [z] * row.arity) - high - low)
    assert (error <= 0.1 * np.finfo(np.float64).eps * np.abs(high)).all()


@pytest.mark.parametrize(("name", "dtype"), [case for case in OF_COMPLEX if case[0] in BITWISE])
def test_what_needs_no_rounding_equals_numpys(computed, name, dtype):
    row, operands, _, actual = _known(computed, name, dtype)
    assert row.complex_eps == 0
    with np.errstate(all="ignore"):
        expected = BITWISE[name](*operands)
    _assert_none(ulp.wrong(actual, expected, 0), actual, expected, operands)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_numbers_are_made_of_their_parts(computed, dtype):
    (x, y), _, made = computed["complex", dtype]
    ulp.assert_same(made.real, x)
    ulp.assert_same(made.imag, y)
    (x,), _, made = computed["conj", dtype]
    ulp.assert_same(made.real, x)
    ulp.assert_same(made.imag, np.zeros_like(x))


@pytest.mark.parametrize("name", sorted(ORDERED))
@pytest.mark.parametrize("dtype", PART)
def test_the_order_is_that_of_lax(computed, name, dtype):
    row, operands, _, actual = _known(computed, name, dtype)
    assert row.complex_eps == 0
    if name == "clamp":
        expected = np.asarray(lax.min(lax.max(*operands[:2]), operands[2]))
    else:
        expected = np.asarray(reference.lax_function(row)(*operands))
    _assert_none(ulp.wrong(actual, expected, 0), actual, expected, operands)
    if name == "clamp":  # lax.clamp itself looks at real parts only, and mixes the bounds up
        low, x, high = (z.real for z in operands)
        clear = (low < high) & (x != low) & (x != high) & ~np.isnan(x)
        np.testing.assert_array_equal(actual[clear], lax.clamp(*operands)[clear])


@together.compiled
@pytest.mark.parametrize("dtype", PART)
def test_exponentials_keep_their_size_whatever_the_angle(dtype):
    """The angle's last place may be many turns."""
    size = 10.0 ** np.arange(0, 38 if dtype == "complex64" else 300)
    z = (1 - 1j * size).astype(dtype)
    functions = (jnp.exp2, jnp.exp, lambda z: lax.pow(z * 0 + 3.0, z))
    results = simt.evaluate(lambda z: tuple(f(z) for f in functions), z)
    for actual, size in zip(results, (2, np.e, 3), strict=True):
        np.testing.assert_allclose(np.abs(actual), size, rtol=1e-6)


# ---- Zeros, infinities and NaN -------------------------------------------------------------------


@pytest.mark.parametrize("name", annex_g.FUNCTIONS)
@pytest.mark.parametrize("dtype", PART)
def test_special_values_are_those_of_annex_g(computed, name, dtype):
    """NaN, infinities and the signs of zeros; numbers within four units in the last place."""
    _, (z,), special, actual = _known(computed, name, dtype)
    z, actual = z[-special:], actual[-special:]
    with np.errstate(all="ignore"):
        expected = complex_numbers.EXACT[name](z)
    actual, expected = (annex_g.without_open_signs(name, z, w) for w in (actual, expected))
    _assert_none(ulp.wrong(actual, expected, 4), actual, expected, (z,))


@pytest.mark.skipif(jax.__version__ != "0.10.2", reason="the list is that of JAX 0.10.2")
@pytest.mark.parametrize("name", annex_g.FUNCTIONS)
@pytest.mark.parametrize("dtype", PART)
def test_the_list_of_differences_from_xla_is_true(computed, name, dtype):
    row, (z,), special, actual = _known(computed, name, dtype)
    z, actual = z[-special:], actual[-special:]
    theirs = np.asarray(reference.lax_function(row)(z))
    for argument, x, y in zip(z, actual, theirs, strict=True):
        assert annex_g.difference(x, y) == annex_g.listed(name, argument), (argument, x, y)


def test_the_documentation_has_the_same_list():
    assert annex_g.table() in DOCS.read_text(), (
        f"docs/numerics.md should have this table:\n{annex_g.table()}"
    )


# ---- Conversions ---------------------------------------------------------------------------------

PAIRS = [
    *itertools.product(REAL, PART),
    *itertools.product(PART, REAL),
    *itertools.permutations(PART),
]


def _of_any_dtype(dtype):
    rng = np.random.default_rng(22)
    if dtype in PART:
        random = complex_numbers.random_values(rng, dtype, 500) * 10
        return np.concatenate([random, complex_numbers.special_values(dtype)]).astype(dtype)
    random = reference.random_values(rng, dtype, 500, (-300, 300))
    return np.concatenate([random, reference.special_values(dtype)])


@pytest.fixture(scope="module")
def conversions(x64_types):
    kernels = [
        simt.make_kernel(lambda x, to=to: lax.convert_element_type(x, to), [source])
        for source, to in PAIRS
    ]
    inputs = [_of_any_dtype(source) for source, _ in PAIRS]
    calls = [
        simt.Call(kernel, x.shape, (to,), (x,))
        for kernel, x, (_, to) in zip(kernels, inputs, PAIRS, strict=True)
    ]
    results = simt.build(kernels).run(calls)
    return {pair: (x, r) for pair, x, (r,) in zip(PAIRS, inputs, results, strict=True)}


@pytest.mark.sampled
@pytest.mark.parametrize(("source", "to"), PAIRS)
def test_conversions(conversions, source, to):
    x, actual = conversions[source, to]
    with np.errstate(all="ignore"):
        if source in REAL:  # exactly, but for integers that are rounded
            expected = x.astype(PART[to]).astype(to)
        elif to in PART:
            expected = np.empty(x.shape, to)
            expected.real, expected.imag = x.real, x.imag
        else:  # of the real part, to bool too
            expected = np.asarray(lax.convert_element_type(jnp.asarray(x), to))
    ulp.assert_same(actual, expected)


@together.compiled
def test_astype_bool_asks_for_both_parts():
    z = complex_numbers.special_values("complex64")
    np.testing.assert_array_equal(simt.evaluate(lambda z: z.astype(bool), z), z.astype(bool))


@together.compiled
def test_float16_times_complex64_is_complex64():
    a, z = np.float16([1.5]), np.complex64([2 - 1j])
    product = simt.evaluate(lambda a, z: a * z, a, z)
    assert product.dtype == np.complex64
    np.testing.assert_array_equal(product, [3 - 1.5j])


# ---- Powers, choices, constants ------------------------------------------------------------------


@together.compiled
@pytest.mark.parametrize("dtype", PART)
def test_integer_powers(dtype):
    exponents = (-5, -3, -2, -1, 0, 1, 2, 3, 4, 7, 10)
    z = complex_numbers.random_values(np.random.default_rng(23), dtype, 3000)
    # What underflows has no reciprocal; the order of multiplications is XLA's.
    z = z[np.abs(z) > 1e-3]
    results = simt.evaluate(lambda z: tuple(lax.integer_pow(z, n) for n in exponents), z)
    for n, actual in zip(exponents, results, strict=True):
        expected = np.power(z.astype(np.clongdouble), n)
        error = np.abs(actual - expected) / np.abs(expected)
        assert error.max() <= 2 * abs(n) * np.finfo(dtype).eps
    special = complex_numbers.special_values(dtype)
    zeroth, first = simt.evaluate(lambda z: (lax.integer_pow(z, 0), lax.integer_pow(z, 1)), special)
    ulp.assert_same(zeroth, np.ones_like(special))
    ulp.assert_same(first, special)


@together.compiled
@pytest.mark.parametrize("dtype", PART)
def test_selections_and_branches(dtype):
    rng = np.random.default_rng(24)
    which = rng.integers(-1, 4, 200).astype(np.int32)
    x, y, z = (complex_numbers.random_values(rng, dtype, 200) for _ in range(3))

    def fun(which, x, y, z):
        return (
            lax.select_n(which > 1, x, y),
            lax.select_n(lax.clamp(np.int32(0), which, np.int32(2)), x, y, z),
            lax.cond(which > 0, lambda x, y: x - y, lambda x, y: -x, x, y),
            lax.switch(which, [jnp.conj, lambda x: x + 1j, lambda x: -x], x),
            jnp.where(x == y, 2j, z),
        )

    bounded = np.clip(which, 0, 2)
    expected = (
        np.where(which > 1, y, x),
        np.choose(bounded, (x, y, z)),
        np.where(which > 0, x - y, -x),
        np.choose(bounded, (np.conj(x), x + 1j, -x)),
        np.where(x == y, 2j, z),
    )
    for actual, e in zip(simt.evaluate(fun, which, x, y, z), expected, strict=True):
        ulp.assert_same(actual, e.astype(dtype))


@together.compiled
@pytest.mark.parametrize("dtype", PART)
def test_constants_and_their_tables(dtype):
    table = complex_numbers.special_values(dtype)
    index = np.arange(-2, len(table) + 3, dtype=np.int32)
    taken, zero, inf, nan = simt.evaluate(
        lambda i: (jnp.asarray(table)[i], *(jnp.where(i == 99, 0, table[k]) for k in (1, 34, 48))),
        index,
    )
    ulp.assert_same(taken, np.asarray(jnp.asarray(table)[index]))
    for actual, k in ((zero, 1), (inf, 34), (nan, 48)):
        ulp.assert_same(actual, np.full(index.size, table[k]))


@together.compiled
@pytest.mark.parametrize("dtype", PART)
def test_small_arrays(dtype):
    rng = np.random.default_rng(25)
    x, y = (complex_numbers.random_values(rng, dtype, 100) for _ in range(2))

    def fun(x, y):
        both = jnp.stack([x, y, x + y])
        return both.sum(), both[::-1][0], jnp.conj(both)[1], both.real.max()

    actual = simt.evaluate(fun, x, y)
    stacked = np.stack([x, y, x + y])
    np.testing.assert_allclose(actual[0], stacked.sum(0), rtol=1e-5, atol=1e-5)
    for a, e in zip(actual[1:], (stacked[2], np.conj(y), stacked.real.max(0)), strict=True):
        ulp.assert_same(a, e)
