"""Loops on the GPU: each element leaves its own when its condition says so, all in one kernel."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
from gpu import device
from jax import lax
from support import loops

import jax_elementwise as je

pytestmark = pytest.mark.gpu

COUNT = 10_007  # no multiple of a pack


@pytest.fixture(params=[("float32", 2e-6), ("float64", 1e-13)], ids=lambda p: p[0])
def precision(request):
    """A dtype and the error that is allowed, with 64-bit types."""
    with jax.enable_x64(True):
        yield request.param


@je.elementwise
def kepler(mean, e):
    """The solution E of Kepler's equation E - e sin E = M."""
    return loops.kepler(mean, e)[0]


def _orbits(rng, dtype):
    """Operands, and in float64 the solution and its slopes, by bisection."""
    mean, e = rng.uniform(0, 2 * np.pi, COUNT).astype(dtype), rng.uniform(0, 0.6, COUNT)
    e = e.astype(dtype)
    low, high = np.zeros(COUNT), np.full(COUNT, 2 * np.pi)
    for _ in range(60):
        middle = (low + high) / 2
        above = middle - e.astype(np.float64) * np.sin(middle) > mean
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    size = 1 - e.astype(np.float64) * np.cos(low)
    return mean, e, low, (1 / size, np.sin(low) / size)


def test_keplers_equation(precision, rng):
    dtype, tolerance = precision
    mean, e, expected, slopes = _orbits(rng, dtype)
    actual = device.run(kepler, mean, e)
    assert actual.dtype == dtype
    np.testing.assert_allclose(actual, expected, 4 * tolerance, 4 * tolerance)
    gradient = jax.grad(lambda *a: kepler(*a).sum(), (0, 1))
    for by, slope in zip(device.run(gradient, mean, e), slopes, strict=True):
        np.testing.assert_allclose(by, slope, 20 * tolerance, 20 * tolerance)
    value_and_slope = jax.value_and_grad(lambda *a: kepler(*a).sum(), (0, 1))
    device.compile_with_calls(value_and_slope, mean, e, calls=2)


@je.elementwise
def mandelbrot(c):
    """How often z -> z^2 + c stays near, of 60 times."""
    return lax.while_loop(
        lambda s: (s[0].real * s[0].real + s[0].imag * s[0].imag <= 4) & (s[1] < 60),
        lambda s: (s[0] * s[0] + c, s[1] + 1),
        (0 * c, jnp.int32(0)),
    )[1]


def test_mandelbrots_set():
    """A fused multiply-add rounds once where NumPy rounds twice, which near the set's edge, where
    errors grow with every step, decides about a count; a few in a thousand points lie so near."""
    x, y = np.meshgrid(np.linspace(-2, 0.6, 260), np.linspace(-1.2, 1.2, 240))
    c = (x + 1j * y).astype(np.complex64)
    z, counts = np.zeros_like(c), np.zeros(c.shape, np.int32)
    near = np.ones(c.shape, bool)
    for _ in range(60):
        near &= z.real**2 + z.imag**2 <= 4
        counts += near
        z = np.where(near, z * z + c, z)
    actual = device.run(mandelbrot, c)
    assert actual.dtype == np.int32
    assert len(np.unique(counts)) > 40
    assert np.mean(actual == counts) > 0.999
    assert np.mean(np.abs(actual - counts)) < 0.1


def test_nested_loops_of_integers():
    """The steps of Collatz's sequences of n, n + 1, ... up to a number that n decides."""

    @je.elementwise
    def steps(n):
        def outer(k, total):
            def step(state):
                m, count = state
                return lax.cond(m % 2 == 0, lambda m: m // 2, lambda m: 3 * m + 1, m), count + 1

            start = (n + k, jnp.int32(0))
            return total + lax.while_loop(lambda s: s[0] != 1, step, start)[1]

        return lax.fori_loop(0, n % 7, outer, jnp.int32(0))

    lengths = {1: 0}

    def length(m):
        path = []
        while m not in lengths:
            path.append(m)
            m = m // 2 if m % 2 == 0 else 3 * m + 1
        for k, each in enumerate(reversed(path)):
            lengths[each] = lengths[m] + k + 1
        return lengths[path[0] if path else m]

    n = np.arange(1, 3002, dtype=np.int32)
    expected = [sum(length(m + k) for k in range(m % 7)) for m in n.tolist()]
    np.testing.assert_array_equal(device.run(steps, n), np.array(expected, np.int32))


def test_a_scan_of_many_steps_is_one_kernel(rng):
    """The logistic map where it settles at 1 - 1/r, and the slope of that; a chaotic one would
    magnify every rounding."""

    def settle(x, r):
        return lax.scan(lambda x, _: (r * x * (1 - x), None), x, None, length=1000)[0]

    f = je.elementwise(settle)
    x, r = (rng.uniform(*ends, COUNT).astype(np.float32) for ends in ((0.1, 0.9), (1.5, 2.9)))
    exact = r.astype(np.float64)
    np.testing.assert_allclose(device.run(f, x, r), 1 - 1 / exact, rtol=1e-5)
    by_r = device.run(jax.grad(lambda r: f(x, r).sum()), r)
    np.testing.assert_allclose(by_r, 1 / exact**2, rtol=1e-4)


def test_lanes_that_end_at_different_times(rng):
    @je.elementwise
    def doublings(x, limit):
        def one(x):
            return lax.while_loop(lambda s: s[0] < limit, lambda s: (s[0] * 2, s[1] + 1), (x, 0))[1]

        return jax.vmap(one)(jnp.stack([x, 3 * x, 5 * x])) @ jnp.array([1, 100, 10000])

    x, limit = (rng.integers(*ends, COUNT).astype(np.float32) for ends in ((1, 9), (1, 1000)))
    counts = [
        np.maximum(np.ceil(np.log2(limit / (k * x.astype(np.float64)))), 0) for k in (1, 3, 5)
    ]
    expected = counts[0] + 100 * counts[1] + 10000 * counts[2]
    np.testing.assert_array_equal(device.run(doublings, x, limit), expected)


def test_incomplete_gamma_functions(precision, rng):
    dtype, tolerance = precision
    a, x = (rng.uniform(0.1, 12, COUNT).astype(dtype) for _ in range(2))
    f = je.elementwise(lambda a, x: (lax.igamma(a, x), lax.igammac(a, x)))
    lower, upper = device.run(f, a, x)
    wide = a.astype(np.float64), x.astype(np.float64)
    np.testing.assert_allclose(lower, scipy.special.gammainc(*wide), 50 * tolerance, tolerance)
    np.testing.assert_allclose(upper, scipy.special.gammaincc(*wide), 50 * tolerance, tolerance)
    slope = device.run(jax.grad(lambda x: f(a, x)[0].sum()), x)
    exact = np.exp((wide[0] - 1) * np.log(wide[1]) - wide[1] - scipy.special.gammaln(wide[0]))
    np.testing.assert_allclose(slope, exact, 100 * tolerance, 10 * tolerance)
