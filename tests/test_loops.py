"""Functions that loop, each element on its own: their values and derivatives of any order."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import assert_same, calls, collectives, kernels, lowered, reference
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec
from jax.test_util import check_grads
from support import loops
from support.sampling import sampled

import jax_elementwise as je
from jax_elementwise._functor import derivatives

counting = je.elementwise(loops.kepler, name="counting")
kepler = je.elementwise(lambda mean, e: loops.kepler(mean, e)[0], name="kepler")


def _orbits(dtype="float64"):
    return jnp.linspace(0.1, 6.1, 24, dtype=dtype), jnp.linspace(0.0, 0.6, 24, dtype=dtype)


def _slopes(mean, e):
    """Derivatives of the anomaly with respect to the mean anomaly and to the eccentricity."""
    anomaly = kepler(mean, e)
    return 1 / (1 - e * jnp.cos(anomaly)), jnp.sin(anomaly) / (1 - e * jnp.cos(anomaly))


def _close(actual, expected, tolerance):
    for a, e in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        assert (a.shape, a.dtype) == (e.shape, e.dtype)
        np.testing.assert_allclose(a, e, tolerance, tolerance)


PRECISIONS = pytest.mark.parametrize(
    ("dtype", "tolerance"), [("float32", 1e-5), ("float64", 1e-12)]
)

# ---- Kepler's equation ---------------------------------------------------------------------------


@PRECISIONS
def test_values_and_gradients_solve_keplers_equation(dtype, tolerance, x64):
    mean, e = _orbits(dtype)
    anomaly, steps = counting(mean, e)
    assert (anomaly.dtype, steps.dtype) == (dtype, jnp.int32)
    assert len(np.unique(steps)) > 1
    np.testing.assert_allclose(anomaly - e * jnp.sin(anomaly), mean, 0, tolerance)
    for gradient in (
        jax.grad(lambda *a: kepler(*a).sum(), (0, 1)),
        jax.vmap(jax.grad(kepler, (0, 1))),
    ):
        _close(gradient(mean, e), _slopes(mean, e), tolerance)
        _close(jax.jit(gradient)(mean, e), _slopes(mean, e), tolerance)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), sampled([("float32", 1e-5), ("float64", 1e-12)], [("float64", 1e-12)])
)
def test_tangents_and_cotangents(dtype, tolerance, x64):
    mean, e = _orbits(dtype)
    by_mean, by_e = _slopes(mean, e)
    value, tangent = jax.jvp(kepler, (mean, e), (e, mean))
    _close((value, tangent), (kepler(mean, e), by_mean * e + by_e * mean), 10 * tolerance)
    zero = (jnp.zeros_like(mean), mean)
    _close(jax.jvp(kepler, (mean, e), zero)[1], by_e * mean, 10 * tolerance)
    _, linear = jax.linearize(lambda e: kepler(mean, e), e)
    _close(linear(mean), by_e * mean, 10 * tolerance)
    _, pullback = jax.vjp(kepler, mean, e)
    _close(pullback(mean), (by_mean * mean, by_e * mean), 10 * tolerance)


def test_higher_derivatives_solve_it_too(x64):
    mean, e = _orbits()
    second = {}
    for k in (0, 1):
        for order in (jax.grad(jax.grad(kepler, k), k), jax.jacfwd(jax.jacrev(kepler, k), k)):
            second[k] = jax.vmap(order)(mean, e)
            expected = jax.vmap(jax.grad(lambda m, e, k=k: _exact_slopes(m, e)[k], k))(mean, e)
            _close(second[k], expected, 1e-9)
    third = jax.vmap(jax.grad(jax.grad(jax.grad(kepler))))(mean, e)
    size = 1 - e * jnp.cos(kepler(mean, e))
    sine, cosine = (f(kepler(mean, e)) for f in (jnp.sin, jnp.cos))
    _close(second[0], -e * sine / size**3, 1e-10)
    _close(third, (3 * e**2 * sine**2 - e * cosine * size) / size**5, 1e-9)


@jax.custom_jvp
def _exact(mean, e):
    return loops.kepler(mean, e)[0]


@_exact.defjvp
def _exact_jvp(primals, tangents):
    slopes = _exact_slopes(*primals)
    return _exact(*primals), slopes[0] * tangents[0] + slopes[1] * tangents[1]


def _exact_slopes(mean, e):
    """In plain JAX, of any order."""
    anomaly = _exact(mean, e)
    return 1 / (1 - e * jnp.cos(anomaly)), jnp.sin(anomaly) / (1 - e * jnp.cos(anomaly))


@pytest.mark.exhaustive
def test_finite_differences_agree_to_third_order(x64):
    operands = tuple(x[::9] for x in _orbits())
    check_grads(kepler, operands, order=3, modes=["fwd", "rev"], atol=1e-4, rtol=1e-4, eps=1e-5)


def test_shapes_and_transformations(x64):
    mean, e = _orbits()
    e = e[::4, None]
    broadcast = kepler(mean, e)
    _close(broadcast, reference(lambda *a: loops.kepler(*a)[0])(mean, e), 1e-13)
    expected = _slopes(*jnp.broadcast_arrays(mean, e))
    gradients = jax.grad(lambda *a: kepler(*a).sum(), (0, 1))(mean, e)
    _close(gradients, (expected[0].sum(0), expected[1].sum(1, keepdims=True)), 1e-11)
    _close(jax.vmap(kepler, (0, None))(mean, e[:, 0]), broadcast.T, 1e-13)
    _close(jax.vmap(kepler, (None, 0))(mean, e[:, 0]), broadcast, 1e-13)

    def steps(mean, eccentricities, checkpoint):
        def step(mean, e):
            return kepler(mean, e), None

        step = jax.checkpoint(step) if checkpoint else step
        return lax.scan(step, mean, eccentricities)[0].sum()

    wanted = jax.grad(lambda m: _exact(_exact(m, 0.3), 0.2))
    for checkpoint in (False, True):
        gradient = jax.jit(jax.grad(functools.partial(steps, checkpoint=checkpoint)))
        _close(gradient(mean, jnp.array([0.3, 0.2])), jax.vmap(wanted)(mean), 1e-11)


def test_each_element_stops_on_its_own():
    @je.elementwise
    def collatz(n):
        def step(state):
            n, steps = state
            return jnp.where(n % 2 == 0, n // 2, 3 * n + 1), steps + 1

        return lax.while_loop(lambda state: state[0] > 1, step, (n, 0))[1]

    n = jnp.array([1, 2, 3, 6, 7, 9, 27, 97])
    np.testing.assert_array_equal(collatz(n), [0, 1, 7, 8, 16, 19, 111, 118])


# ---- Against plain JAX ---------------------------------------------------------------------------
# JAX takes reverse mode through no while loop, but through one written out with a known end.


def _until(condition, step, start, *, most):
    """lax.while_loop of at most so many steps, as reverse mode takes it."""

    def guarded(state, _):
        on = condition(state)
        new = jax.tree.map(lambda n, o: jnp.where(on, n, o), step(state), state)
        return new, None

    return lax.scan(guarded, start, None, length=most)[0]


def _three(condition, step, start):
    """A loop of three steps. JAX's scan would forget a custom_jvp rule in second derivatives."""
    del condition
    return step(step(step(start)))


def _growth(loop):
    def fun(x, y):
        state = loop(
            lambda s: s[0] < 20, lambda s: (s[0] * (1.5 + y * y), s[1] * jnp.sin(s[0])), (x, y)
        )
        return {"size": state[0], "product": state[1] * x}

    return fun


def _nested(loop):
    def fun(x, y):
        def step(state):
            value, n = state
            inner, _ = loop(
                lambda s: s[1] < n, lambda s: (jnp.sin(s[0]) + y, s[1] + 1), (value, jnp.int32(0))
            )
            value = lax.cond(inner > y, lambda v: v * x, lambda v: v / (1 + y * y), inner)
            return value, n + 1

        most = (jnp.abs(x) * 3).astype(jnp.int32) + 1
        return loop(lambda s: s[1] < most, step, (x, jnp.int32(0)))[0]

    return fun


def _kinds(loop):
    """Integers and a bool go around too; one of them decides."""

    def fun(x, y):
        def step(state):
            value, n, odd, history = state
            value = jnp.where(odd, value * y, value + x)
            return value, n + 1, ~odd, jnp.roll(history, 1).at[0].set(value)

        start = (x, jnp.int32(0), x > 0, jnp.stack([x, y]))
        value, n, odd, history = loop(lambda s: s[1] < 5, step, start)
        return value, n, odd, history @ history

    return fun


@jax.custom_jvp
def _tripled(x):
    return jnp.sin(x)


_tripled.defjvp(lambda primals, dots: (_tripled(*primals), 3 * jnp.cos(primals[0]) * dots[0]))


def _with_rule(loop):
    return lambda x, y: loop(lambda s: s[1] < 3, lambda s: (_tripled(s[0]) * y, s[1] + 1), (x, 0))[
        0
    ]


def _fixed(loop):
    """Counts that are known, with what is scanned over and what steps give."""
    del loop

    def fun(x, y):
        def step(c, t):
            return jnp.sin(c) * t + y, c * t

        value, each = lax.scan(step, x, jnp.linspace(0.1, 1, 12), reverse=True)
        return lax.fori_loop(0, 30, lambda k, c: jnp.cos(c) * x + k * 0.1, value), each.sum()

    return fun


def _calls(loop):
    """Calls of this package's functions, in a loop, with one and around one."""
    sine = je.elementwise(lambda c, y: jnp.sin(c) * y)
    power = je.elementwise(
        lambda c: loop(lambda s: s[1] < 3, lambda s: (s[0] * c, s[1] + 1), (c, 0))[0]
    )
    return lambda x, y: power(y) + lax.fori_loop(0, 12, lambda k, c: sine(c, y) + power(x), x)


LOOPS = [
    (_growth, functools.partial(_until, most=12)),
    (_nested, functools.partial(_until, most=6)),
    (_kinds, functools.partial(_until, most=5)),
    (_with_rule, _three),
    (_fixed, None),
    (_calls, _three),
]


def _total(f):
    def loss(*operands):
        leaves = [z for z in jax.tree.leaves(f(*operands)) if jnp.issubdtype(z.dtype, jnp.inexact)]
        return sum(((k + 1) * jnp.abs(z) ** 2).sum() for k, z in enumerate(leaves))

    return loss


@pytest.mark.sampled
@pytest.mark.parametrize(("make", "loop"), LOOPS)
def test_values_and_derivatives_are_those_of_the_loop_written_out(make, loop, x64, rng):
    f, r = je.elementwise(make(lax.while_loop)), reference(make(loop))
    x, y = jnp.asarray(rng.uniform(0.3, 1.4, 9)), jnp.asarray(rng.uniform(0.2, 1.1, (2, 1)))
    assert_same(f(x, y), r(x, y), 256)
    every = jax.value_and_grad(_total(f), (0, 1))
    assert_same(every(x, y), jax.value_and_grad(_total(r), (0, 1))(x, y), 1e5)
    if make in (_growth, _with_rule):
        point = (x[3], y[1, 0])
        actual, expected = (jax.hessian(_total(g), (0, 1))(*point) for g in (f, r))
        assert_same(actual, expected, 1e6)
    _, backward = calls(every, x, y)
    assert len(backward.outvars) == 2
    assert len(set(kernels(lowered(every, x, y)))) == len(kernels(lowered(every, x, y))) == 2


# ---- Complex numbers -----------------------------------------------------------------------------


def _holomorphic(z, c):
    return lax.fori_loop(0, 10, lambda k, z: z * z + c, z)


def _mixed(z, c):
    def step(k, z):
        return jnp.conj(z) * c + 0.1 * jnp.abs(z) + jnp.real(c * z) / (k + 1)

    return lax.fori_loop(0, 10, step, z)


@pytest.mark.parametrize("fun", [_holomorphic, _mixed])
def test_complex_functions_of_a_loop(fun, x64, rng):
    z, c = (jnp.asarray(0.3 * (rng.normal(size=(5, 2)) @ [1, 1j])) for _ in range(2))
    f, r = je.elementwise(fun), reference(fun)
    assert_same(f(z, c), r(z, c))
    assert_same(jax.jvp(f, (z, c), (c, z)), jax.jvp(r, (z, c), (c, z)), 64)
    expected = jax.grad(_total(r), (0, 1))(z, c)
    assert_same(jax.grad(_total(f), (0, 1))(z, c), expected, 256)
    assert_same(jax.vjp(f, z, c)[1](z), jax.vjp(r, z, c)[1](z), 64)
    real = je.elementwise(lambda x, c: jnp.imag(fun(x + 0j, c)) + x)
    plain = reference(lambda x, c: jnp.imag(fun(x + 0j, c)) + x)
    actual, expected = (
        jax.grad(lambda x, c, g=g: g(x, c).sum(), (0, 1))(z.real, c) for g in (real, plain)
    )
    assert_same(actual, expected, 64)
    if fun is _holomorphic:
        actual, expected = (
            jax.grad(lambda z, g=g: g(z, c).sum(), holomorphic=True)(z) for g in (f, r)
        )
        assert_same(actual, expected, 64)


@pytest.mark.exhaustive
def test_a_gradient_with_more_lanes_than_tables_have_entries(x64, rng):
    def fun(*xs):
        total = sum((j + 1) * x for j, x in enumerate(xs))
        return lax.fori_loop(0, 20, lambda _, c: c * c + total, xs[0])

    xs = tuple(jnp.asarray(1e-4 * (rng.normal(size=(2, 2)) @ [1, 1j])) for _ in range(33))
    f, r = je.elementwise(fun), reference(fun)
    every = tuple(range(len(xs)))
    actual, expected = (jax.grad(lambda *a, g=g: jnp.abs(g(*a)).sum(), every)(*xs) for g in (f, r))
    assert_same(actual, expected, 1e4)


# ---- Linear functions ----------------------------------------------------------------------------


def test_a_linear_function_is_transposed_without_what_is_added_to_it(rng):
    """Whether that is a constant or linear in an operand whose value is known."""

    def fun(x, y):
        return lax.fori_loop(0, 20, lambda k, c: c + 2 * x - y, x) + 1

    f = je.elementwise(fun)
    x, y = jnp.arange(3.0), jnp.array([5.0, 6, 7])
    (by_x,) = jax.linear_transpose(lambda x: f(x, y), x)(y)
    np.testing.assert_array_equal(by_x, 41 * y)
    by_x, by_y = jax.linear_transpose(f, x, y)(y)
    np.testing.assert_array_equal(by_x, 41 * y)
    np.testing.assert_array_equal(by_y, -20 * y)
    _, linear = jax.linearize(f, x, y)
    (by_y,) = jax.linear_transpose(lambda y: linear(x, y), y)(x)
    np.testing.assert_array_equal(by_y, -20 * x)


def test_operands_and_results_without_a_derivative(rng):
    def fun(x, n, mask):
        value, _ = lax.while_loop(lambda s: s[1] < n, lambda s: (s[0] * x, s[1] + 1), (x, 0))
        return jnp.where(mask, value, 0), n + 1, value > 4

    x, n = jnp.array([1.5, 2.0, 3.0]), jnp.arange(3)
    mask = jnp.array([True, False, True])
    f, r = je.elementwise(fun), reference(fun)
    assert_same(f(x, n, mask), r(x, n, mask))
    gradient = jax.grad(lambda x: f(x, n, mask)[0].sum())
    np.testing.assert_array_equal(gradient(x), [1, 0, 27])
    assert len(calls(gradient, x)) == 2


# ---- What is derived, and how often --------------------------------------------------------------


def test_a_custom_vjp_function_in_a_loop():
    @jax.custom_vjp
    def sine(x):
        return jnp.sin(x)

    sine.defvjp(lambda x: (jnp.sin(x), x), lambda x, dot: (jnp.cos(x) * dot,))

    def fun(x):
        return lax.while_loop(lambda s: s[1] < 3, lambda s: (sine(s[0]), s[1] + 1), (x, 0))[0]

    x = jnp.arange(3.0)
    f = je.elementwise(fun, name="f")
    np.testing.assert_allclose(f(x), jnp.sin(jnp.sin(jnp.sin(x))), rtol=1e-6)
    gradient = jax.grad(lambda x: f(x).sum())(x)
    expected = jax.grad(lambda x: jnp.sin(jnp.sin(jnp.sin(x))).sum())(x)
    np.testing.assert_allclose(gradient, expected, rtol=1e-6)


def test_derivatives_are_derived_once(monkeypatch):
    def gradient():
        f = je.elementwise(lambda *a: loops.kepler(*a)[0] * 1.25, name="new")
        return lowered(jax.grad(lambda *a: f(*a).sum(), (0, 1)), *_orbits("float32"))

    derived = []
    real = derivatives._derive
    monkeypatch.setattr(derivatives, "_derive", lambda *args: derived.append(args) or real(*args))
    first = gradient()
    assert len(derived) == 2
    jax.clear_caches()
    assert gradient() == first
    assert len(derived) == 2


def test_a_gradient_keeps_nothing_from_step_to_step():
    """Arguments, results and whatever else there is: less than four times the arguments."""

    def fun(x, r):
        count = 1 + (x * 999).astype(jnp.int32)
        return lax.fori_loop(0, count, lambda _, y: r * y * (1 - y), x)

    f = je.elementwise(fun)
    x, r = jnp.linspace(0, 1, 2**20), jnp.linspace(2.0, 3.9, 2**20)
    gradient = jax.jit(jax.grad(lambda *a: f(*a).sum(), (0, 1)))
    memory = gradient.lower(x, r).compile().memory_analysis()
    argument = memory.argument_size_in_bytes
    assert argument == x.nbytes + r.nbytes
    assert argument + memory.output_size_in_bytes + memory.temp_size_in_bytes < 4 * argument


def test_sharded_operands_stay_where_they_are(x64):
    mesh = jax.make_mesh((8,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
    mean, e = (jax.device_put(x, NamedSharding(mesh, PartitionSpec("i"))) for x in _orbits())
    gradient = jax.vmap(jax.grad(kepler, (0, 1)))
    for fun in (kepler, counting, gradient):
        # By XLA the devices ask each other whether an element goes on; kernels do not.
        assert set(collectives(fun, mean, e)) <= {"all-reduce"}
        assert "all_reduce" not in lowered(fun, mean, e)
    _close(jax.jit(gradient)(mean, e), _slopes(mean, e), 1e-12)
    assert jax.jit(kepler)(mean, e).sharding.is_equivalent_to(mean.sharding, 1)


def test_a_custom_vjp_function_inside_of_an_inner_one_in_a_long_loop():
    @jax.custom_vjp
    def sine(x):
        return jnp.sin(x)

    sine.defvjp(lambda x: (jnp.sin(x), x), lambda x, ct: (ct * jnp.cos(x),))
    inner = je.elementwise(sine)
    f = je.elementwise(lambda x: lax.fori_loop(0, 20, lambda _, y: inner(y), x), name="outer")
    expected = jax.grad(lambda x: lax.scan(lambda y, _: (jnp.sin(y), None), x, None, 20)[0])(1.0)
    np.testing.assert_allclose(jax.grad(f)(1.0), expected, rtol=1e-6)
