"""Reverse mode through loops and beside them: gradients as JAX's, where JAX has them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jax_elementwise as je
from jax_elementwise._functor import basis


def steps(fun, x):
    """Five steps of a loop that JAX does not transpose."""
    return lax.while_loop(lambda s: s[0] < 5, lambda s: (s[0] + 1, fun(s[1])), (0, x))[1]


def same_steps(fun, x):
    """The same, of a loop that it does."""
    return lax.scan(lambda c, _: (fun(c), None), x, None, 5)[0]


@jax.custom_vjp
def root(a):
    return lax.while_loop(lambda x: jnp.abs(x * x - a) > 1e-6, lambda x: 0.5 * (x + a / x), a)


root.defvjp(lambda a: (root(a),) * 2, lambda r, ct: (ct / (2 * r),))


@jax.custom_vjp
def newton(a):
    return lax.fori_loop(0, 20, lambda _, x: 0.5 * (x + a / x), a)


newton.defvjp(lambda a: (newton(a),) * 2, lambda r, ct: (ct / (2 * r),))


@jax.custom_vjp
def pair(a, b):
    return jnp.sin(a) * b, a * b


def _pair_backward(residuals, cotangents):
    (a, b), (first, second) = residuals, cotangents
    return first * jnp.cos(a) * b + second * b, first * jnp.sin(a) + second * a


pair.defvjp(lambda a, b: (pair(a, b), (a, b)), _pair_backward)
SLOPES = np.array([0.5, 2], np.float32)


@jax.custom_jvp
def by_table(x):
    return jnp.where(x < 0, 0.5 * x, 2 * x)


@by_table.defjvp
def _(primals, tangents):
    return by_table(*primals), tangents[0] * jnp.asarray(SLOPES)[(primals[0] > 0).astype(int)]


inner = je.elementwise(lambda y: pair(y, y)[0])


def logarithm(x):
    """Its gradient above 1 is 0, by a selection that comes after an infinite factor."""
    return jnp.log(1 - lax.clamp(0.0, x, 1.0))


def constant_loop(loop, x):
    return logarithm(x) * lax.stop_gradient(loop(lambda c: c * 0.9, x))


# Functions of a loop and an element. With `same_steps`, JAX differentiates them; what a rule stands
# for is then given by itself.
CASES = {
    "a loop without tangents": constant_loop,
    "one beside a loop with tangents": lambda loop, x: (
        constant_loop(loop, x) + loop(lambda c: 0.9 * c, x)
    ),
    "a masked value enters": lambda loop, x: loop(lambda c: 0.5 * c, logarithm(x)),
    "a loop": lambda loop, x: loop(lambda c: jnp.sin(c) * x, x),
    "one after another": lambda loop, x: loop(jnp.sin, x * loop(lambda c: jnp.cos(c) * x, x)),
    "in another": lambda loop, x: loop(lambda c: loop(lambda d: jnp.sin(d) * c, x) * c, x),
    "in a short loop": lambda loop, x: lax.fori_loop(
        0, 3, lambda _, c: loop(lambda d: jnp.sin(d) * x, c), x
    ),
    "in a branch": lambda loop, x: lax.cond(
        x > 0, lambda y: loop(lambda c: jnp.sin(c) * y, y), lambda y: y, x
    ),
    "in jit": lambda loop, x: jax.jit(lambda y: loop(lambda c: jnp.sin(c) * y, y))(x) * x,
    "in checkpoint": lambda loop, x: jax.checkpoint(lambda y: loop(lambda c: c * y, y) * y)(x),
    "nine values enter as one": lambda loop, x: loop(
        jnp.sin, jnp.sum(jnp.sin(x * jnp.arange(9.0)))
    ),
    "an array": lambda loop, x: jnp.sum(loop(lambda c: jnp.sin(c) * x, x * jnp.arange(3.0))),
    "complex numbers": lambda loop, x: jnp.abs(loop(lambda c: c * c + x, x + 0.3j)) ** 2,
    "a conjugate": lambda loop, x: jnp.real(loop(lambda c: jnp.conj(c) * (x + 1j), x + 0.3j)),
    "two dtypes": lambda loop, x: loop(lambda c: jnp.sin(c), x.astype("bfloat16")).astype(
        "float32"
    ),
}
RULES = {
    "a rule instead of a loop": (lambda x: root(abs(x)), lambda x: jnp.sqrt(abs(x))),
    "a rule instead of a counted loop": (lambda x: newton(abs(x)), lambda x: jnp.sqrt(abs(x))),
    "a rule beside a loop": (
        lambda x: root(abs(x)) * steps(lambda c: jnp.sin(c) * x, x),
        lambda x: jnp.sqrt(abs(x)) * same_steps(lambda c: jnp.sin(c) * x, x),
    ),
    "rules in a loop": (
        lambda x: steps(lambda c: pair(c, x)[0] + pair(x, c)[1], x),
        lambda x: same_steps(lambda c: jnp.sin(c) * x + x * c, x),
    ),
    "rules in a long scan": (
        lambda x: lax.fori_loop(0, 20, lambda _, c: pair(c, x)[0] + root(abs(x)), x),
        lambda x: lax.scan(
            lambda c, _: (jnp.sin(c) * x + jnp.sqrt(abs(x)), None), x, None, length=20
        )[0],
    ),
    "a rule with a table beside a loop": (
        lambda x: jax.jit(lambda y: by_table(y))(x) * steps(lambda c: jnp.sin(c) * x, x),
        lambda x: jnp.where(x < 0, 0.5 * x, 2 * x) * same_steps(lambda c: jnp.sin(c) * x, x),
    ),
    "a rule in a function in a loop": (
        lambda x: steps(lambda c: inner(c) * x, x),
        lambda x: same_steps(lambda c: jnp.sin(c) * c * x, x),
    ),
}
NAMES = [*CASES, *RULES]
X = jnp.array([1.05, 0.3, 0.7, -0.2])


def all_cases(names, loop, which):
    """A function of one element that gives the values of cases."""

    def fun(x):
        return [CASES[n](loop, x) if n in CASES else RULES[n][which](x) for n in names]

    return fun


def rows(fun, x):
    """The gradients of all results, a row each, by one call of the transpose."""
    results, back = jax.vjp(fun, x)
    units = [jnp.zeros((len(results), *r.shape), r.dtype) for r in results]
    ones = [unit.at[i].set(1) for i, unit in enumerate(units)]
    return jax.vmap(lambda *cotangents: back(list(cotangents))[0])(*ones)


def second_rows(fun, x):
    return rows(lambda y: list(rows(fun, y)), x)


def _assert_gradients(names, lowering, orders):
    ours = je.elementwise(all_cases(names, steps, 0), lowering=lowering)
    theirs = jax.vmap(all_cases(names, same_steps, 1))
    for order in orders:
        derivative = (rows, second_rows)[order - 1]
        for name, a, e in zip(names, derivative(ours, X), derivative(theirs, X), strict=True):
            rtol = 0.02 if name == "two dtypes" else 2e-4
            np.testing.assert_allclose(a, e, rtol, 1e-4, err_msg=f"{name}, order {order}")


@pytest.mark.parametrize("order", [1, pytest.param(2, marks=pytest.mark.exhaustive)])
def test_gradients_are_those_of_jax(host_compiler, order):
    _assert_gradients(NAMES, "kernel", [order])


# Not all together: of programs with so many loops XLA for CPUs (jaxlib 0.10.2) gets some wrong.
@pytest.mark.parametrize(
    "part",
    [
        NAMES[::6],
        pytest.param(NAMES[3::6], marks=pytest.mark.exhaustive),
        pytest.param(NAMES[1::3], marks=pytest.mark.exhaustive),
        pytest.param(NAMES[2::3], marks=pytest.mark.exhaustive),
    ],
    ids=["a", "b", "c", "d"],
)
def test_gradients_by_xla(part):
    _assert_gradients(part, "xla", [1, 2])


# ---- How many unit tangents ----------------------------------------------------------------------


@pytest.fixture
def lanes(monkeypatch):
    """How many unit tangents each loop is run for. Derivatives are kept: each test has its own."""
    counts = []
    real = basis._basis
    monkeypatch.setattr(
        basis,
        "_basis",
        lambda avals: counts.append(sum(map(basis._length, avals))) or real(avals),
    )
    return counts


def kepler(mean, e):
    def step(state):
        anomaly, _, count = state
        move = (anomaly - e * jnp.sin(anomaly) - mean) / (1 - e * jnp.cos(anomaly))
        return anomaly - move, move, count + 1

    start = (mean + e * jnp.sin(mean), jnp.ones_like(mean), 0)
    return lax.while_loop(lambda s: (abs(s[1]) > 1e-6) & (s[2] < 30), step, start)[0]


def gradient(fun, *args, argnums=0):
    f = je.elementwise(fun, lowering="xla")
    return jax.grad(lambda *a: f(*a).sum(), argnums)(*args)


@pytest.mark.parametrize(("argnums", "expected"), [(0, [1]), (1, [1]), ((0, 1), [2])])
def test_as_many_as_operands_that_enter(lanes, argnums, expected):
    """Three values enter the loop, which come from two."""
    gradient(lambda m, e: 1.5 * kepler(m, e), X, X / 4, argnums=argnums)
    assert lanes == expected


def test_as_many_as_values_that_enter(lanes):
    gradient(lambda a, b, c: 2 * steps(jnp.sin, a * b + c), X, X, X, argnums=(0, 1, 2))
    assert lanes == [1]


def test_none_for_a_loop_without_tangents(lanes):
    gradient(lambda x: x * steps(lambda c: c * 0.5, lax.stop_gradient(x)), X)
    gradient(lambda x: 3 * root(abs(x)), X)
    gradient(lambda x, n: x * steps(lambda c: c + 1, n), X, jnp.arange(4))
    assert lanes == []


def test_a_state_of_three_after_another_loop(lanes):
    """Unit tangents of the operand go through the columns of the first loop."""

    def fun(x):
        state = steps(lambda c: jnp.sin(c) * 0.5, x * jnp.arange(3.0))
        return steps(lambda c: c * 0.25, state).sum()

    gradient(fun, X)
    assert lanes == [1, 1]


def test_two_for_a_complex_value(lanes):
    gradient(lambda z: jnp.abs(steps(lambda c: c * 0.5, z)), X + 1j)
    gradient(lambda x: jnp.abs(steps(lambda c: c * 0.5, jnp.exp(1j * x))), X)  # of a real one
    assert lanes == [2, 1]


# ---- What is not linear --------------------------------------------------------------------------


def test_a_condition_that_depends_on_operands():
    f = je.elementwise(lambda x: lax.while_loop(lambda c: c < 3, lambda c: c + x, x))
    message = (
        r"only linear functions are transposed, .* loop whose condition depends on the operands"
    )
    with pytest.raises(TypeError, match=message):
        jax.linear_transpose(f, X)(X)


def test_results_that_are_no_floats():
    @jax.custom_vjp
    def f(x):
        return x * 2, jnp.int32(x)

    f.defvjp(lambda x: (f(x), None), lambda _, ct: (7 * ct[0],))

    def fun(x):
        return lax.while_loop(lambda s: s[1] < 3, lambda s: (f(s[0])[0], s[1] + 1), (x, 0))[0]

    np.testing.assert_allclose(gradient(fun, X), np.full(4, 343.0))
