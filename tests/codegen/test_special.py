"""Special functions: those that loop, by their kernels, and all that ``jax.scipy.special`` has."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import jax.scipy.special as jsp
import mpmath
import numpy as np
import pytest
import scipy.special as scipy_special
from jax import lax
from support import reference, simt, together
from support.sampling import sampled

import jax_elementwise as je


@pytest.fixture(scope="module", autouse=True)
def x64_types():
    with jax.enable_x64(True):
        yield


def _errors(actual, expected):
    """Relative, in machine epsilons, where a result is a normal number."""
    info = np.finfo(actual.dtype)
    normal = (np.abs(expected) > info.tiny) & (np.abs(expected) < info.max)
    assert normal.mean() > 0.4
    actual, expected = actual[normal].astype(np.float64), expected[normal]
    return np.abs(actual - expected) / np.abs(expected) / float(info.eps)


# ---- zeta and polygamma --------------------------------------------------------------------------


def _exp_uniform(low, high):
    return lambda rng, count: np.exp(rng.uniform(low, high, count))


def _near_one(rng, count):
    return 1 + 2.0 ** rng.uniform(-22, 0, count)


def _integers(low, high, step=1):
    return lambda rng, count: rng.choice(np.arange(low, high, step, dtype=np.float64), count)


def _negative(rng, count):
    return -rng.uniform(0, 60, count)


def _uniform(low, high):
    return lambda rng, count: rng.uniform(low, high, count)


# In machine epsilons, float32 and float64. Measured with glibc's pow, which is nearly exact: 2, but
# 3 and 7 for polygamma of orders up to 34 and 170; beyond, n! is by Stirling's formula: 200 and 900
# in float32, and 1800 in float64. CUDA's powf may be off by 4, twice as much as is left here.
RANGES = {
    "zeta-near-1": (lax.zeta, _near_one, _exp_uniform(-5, 5), (4, 4)),
    "zeta-wide": (lax.zeta, _uniform(1, 60), _exp_uniform(-1, 5), (4, 4)),
    "zeta-large-argument": (lax.zeta, _uniform(1, 3), _exp_uniform(12, 40), (4, 4)),
    "zeta-negative-argument": (lax.zeta, _integers(2, 12, 2), _negative, (4, 4)),
    "polygamma-negative-argument": (lax.polygamma, _integers(1, 11, 2), _negative, (6, 6)),
    "polygamma-12": (lax.polygamma, _integers(1, 13), _exp_uniform(-3, 5), (6, 6)),
    "polygamma-34": (lax.polygamma, _integers(13, 35), _exp_uniform(-0.5, 5), (6, 6)),
    "polygamma-170": (lax.polygamma, _integers(35, 171), _exp_uniform(2.5, 4.5), (400, 14)),
    "polygamma-1000": (lax.polygamma, _integers(171, 500), _exp_uniform(4.5, 5.5), (2000, 4000)),
}


@pytest.mark.sampled
@together.compiled
# mpmath takes a second for the large orders.
@pytest.mark.parametrize(
    ("name", "dtype"),
    sampled(
        itertools.product(RANGES, ("float32", "float64")),
        [
            *(("zeta-near-1", "float64"), ("zeta-negative-argument", "float32")),
            *(("polygamma-12", "float64"), ("polygamma-34", "float32")),
        ],
    ),
)
def test_zeta_and_polygamma_outside_of_the_tables_domain(name, dtype):
    function, orders, arguments, allowed = RANGES[name]
    rng = np.random.default_rng(5)
    operands = [draw(rng, 400).astype(dtype) for draw in (orders, arguments)]
    actual = simt.evaluate(function, *operands)
    expected = reference.NUMPY[function.__name__](*(x.astype(np.float64) for x in operands))
    assert _errors(actual, expected).max() <= allowed[dtype == "float64"]


@together.compiled
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_zeta_of_odd_orders_is_as_exact_as_its_terms_left_of_0(dtype):
    """Terms of either sign cancel at roots."""
    rng = np.random.default_rng(6)
    s, q = _integers(3, 11, 2)(rng, 400).astype(dtype), _negative(rng, 400).astype(dtype)
    actual = simt.evaluate(lax.zeta, s, q).astype(np.float64)
    wide = s.astype(np.float64), q.astype(np.float64)
    expected = reference.NUMPY["zeta"](*wide)
    terms = np.abs(wide[1] - np.rint(wide[1])) ** -wide[0]  # the largest one
    assert (np.abs(actual - expected) <= 6 * np.finfo(dtype).eps * terms).all()


# ---- Those that JAX defines by loops -------------------------------------------------------------


def _gamma_operands(rng, dtype, count):
    a = np.exp(rng.uniform(-2, 3, count)).astype(dtype)
    return a, (a * np.exp(rng.uniform(-1.5, 1, count))).astype(dtype)


def _beta_operands(rng, dtype, count):
    a, b = np.exp(rng.uniform(-2, 3, (2, count))).astype(dtype)
    return a, b, rng.uniform(0.01, 0.99, count).astype(dtype)


@np.vectorize
def _igamma_grad_a(a, x):
    with mpmath.workdps(30):
        lower = lambda a: mpmath.gammainc(a, 0, x, regularized=True)  # noqa: E731
        return float(mpmath.diff(lower, a, h=mpmath.mpf(10) ** -10))


def _random_gamma_grad(a, x):
    density = np.exp((a - 1) * np.log(x) - x - scipy_special.gammaln(a))
    return -_igamma_grad_a(a, x) / density


# The function, the reference, operands, how many, and bounds in machine epsilons for float32 and
# float64: about three times what was measured with 3 times as many operands (70 and 65, 60 and 170,
# 45 and 55, 8 and 55, 350 and 540).
LOOPING = {
    "igamma": (lax.igamma, scipy_special.gammainc, _gamma_operands, 2000, (200, 300)),
    "igammac": (lax.igammac, scipy_special.gammaincc, _gamma_operands, 2000, (200, 500)),
    "igamma_grad_a": (lax.igamma_grad_a, _igamma_grad_a, _gamma_operands, 100, (200, 300)),
    "random_gamma_grad": (
        lax.random_gamma_grad,
        _random_gamma_grad,
        _gamma_operands,
        100,
        (40, 200),
    ),
    "regularized_incomplete_beta": (
        jsp.betainc,
        scipy_special.betainc,
        _beta_operands,
        2000,
        (1000, 1500),
    ),
}


@together.compiled
@pytest.mark.parametrize("name", LOOPING)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_functions_that_jax_defines_by_loops(name, dtype):
    function, exact, draw, count, allowed = LOOPING[name]
    operands = draw(np.random.default_rng(7), dtype, count)
    actual = simt.evaluate(function, *operands)
    expected = exact(*(x.astype(np.float64) for x in operands))
    assert _errors(actual, expected).max() <= allowed[dtype == "float64"]


# ---- jax.scipy.special ---------------------------------------------------------------------------


def _pair(x, y):
    return jnp.stack([x, y])


# Operands are between 0 and 1 and of the default float, or integers where the name is below.
FUNCTIONS = {
    **dict.fromkeys(
        [
            "dawsn",
            "digamma",
            "entr",
            "erf",
            "erfc",
            "erfcx",
            "erfinv",
            "exp1",
            "expi",
            "expit",
            "factorial",
            "fresnel",
            "gamma",
            "gammaln",
            "gammasgn",
            "i0",
            "i0e",
            "i1",
            "i1e",
            "log_ndtr",
            "loggamma",
            "logit",
            "ndtr",
            "ndtri",
            "sici",
            "spence",
        ],
        1,
    ),
    **dict.fromkeys(
        [
            "beta",
            "betaln",
            "boxcox",
            "boxcox1p",
            "comb",
            "expn",
            "gammainc",
            "gammaincc",
            "kl_div",
            "owens_t",
            "poch",
            "polygamma",
            "rel_entr",
            "xlog1py",
            "xlogy",
        ],
        2,
    ),
    **dict.fromkeys(["betainc", "hyp1f1"], 3),
    "hyp2f1": 4,
}
WRITTEN = {
    "bessel_jn": (1, lambda x: tuple(jsp.bessel_jn(x, v=2))),
    "log_softmax": (2, lambda x, y: jsp.log_softmax(_pair(x, y))[0]),
    "logsumexp": (2, lambda x, y: jsp.logsumexp(_pair(x, y))),
    "multigammaln": (1, lambda x: jsp.multigammaln(x + 2, 3)),
    "softmax": (2, lambda x, y: jsp.softmax(_pair(x, y))[0]),
    "wofz": (1, lambda x: jsp.wofz(x + 0.5j)),
    "zeta": (2, lambda x, y: jsp.zeta(x + 2, y)),
}
NAMES = sorted({*FUNCTIONS, *WRITTEN})
INTEGERS = {"expn", "polygamma"}  # their first operand

# What has no derivatives: JAX has none by two operands of betainc, and the rule of expn captures
# its first operand, which an elementwise function refuses.
NO_GRADIENT = {"betainc", "expn"}


def _function(name):
    """The function, and its operands."""
    if not hasattr(jsp, name):
        pytest.skip(f"JAX {jax.__version__} has no jax.scipy.special.{name}")
    count, function = WRITTEN.get(name) or (FUNCTIONS[name], getattr(jsp, name))
    operands = list(np.random.default_rng(8).uniform(0.1, 0.9, (count, 64)))
    if name in INTEGERS:
        operands[0] = np.arange(64) % 4 + (name == "polygamma")
    return (lambda *xs: function(*xs)), operands


def _lowered(function, *operands):
    return jax.jit(function).trace(*operands).lower(lowering_platforms=("cuda",)).as_text()


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", sampled(["float32", "float64"], ["float32"]))
@pytest.mark.parametrize("name", NAMES)
def test_functions_of_jax_scipy_special_are_kernels(name, dtype):
    function, operands = _function(name)
    operands = [x.astype(dtype) if x.dtype == np.float64 else x for x in operands]
    f = je.elementwise(function)
    assert "jax_elementwise" in _lowered(f, *operands)
    if name in NO_GRADIENT:
        return

    def gradient(*operands):
        first, rest = (operands[:1], operands[1:]) if name in INTEGERS else ((), operands)
        results, pull_back = jax.vjp(lambda *rest: f(*first, *rest), *rest)
        return pull_back(jax.tree.map(jnp.ones_like, results))

    _lowered(gradient, *operands)


@pytest.mark.sampled
@together.compiled
@pytest.mark.parametrize("name", NAMES)
def test_functions_of_jax_scipy_special_are_what_they_are_in_jax(name):
    function, operands = _function(name)
    actual = simt.evaluate(function, *operands)
    expected = jax.jit(jax.vmap(function))(*operands)
    actual = actual if isinstance(actual, list) else [actual]
    for a, e in zip(actual, jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, e, rtol=1e-10, atol=1e-12)


@together.compiled
def test_orders_so_large_that_their_squares_overflow():
    """And that the next integer is not a float: an even order has an odd exponent all the same."""
    n = np.array([1.1904515308219112e20, 2.0**60, 2.0**60, 1015948744065024.0], np.float32)
    x = np.array([1.3252717290715255e21, 1.5, 2.0**80, -2.60770320892334e-07], np.float32)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(simt.evaluate(lax.polygamma, n, x), [0, -np.inf, 0, np.inf])
    assert simt.evaluate(lax.polygamma, np.array([8.97e240]), np.array([8.45e252])) == 0
