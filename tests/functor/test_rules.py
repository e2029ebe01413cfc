"""Derivative rules that use values of the function around them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.custom_derivatives import SymbolicZero

import jax_elementwise as je

X = jnp.array([0.25, 1.5, 2.0])
N = jnp.array([1.0, 2.0, 3.0])


def scaled_jvp(n):
    """x -> n x, with a rule that says 2 n."""

    @jax.custom_jvp
    def f(x):
        return n * x

    f.defjvp(lambda primals, tangents: (n * primals[0], 2 * n * tangents[0]))
    return f


def scaled_vjp(n):
    @jax.custom_vjp
    def f(x):
        return n * x

    f.defvjp(lambda x: (n * x, (n,)), lambda residuals, ct: (n * residuals[0] * ct,))
    return f


def with_integer(n):
    """A function of a float and an integer, with results of both."""

    @jax.custom_jvp
    def f(x, k):
        return n * x * k, k + 1

    def rule(primals, tangents):
        (x, k), (dot, _) = primals, tangents
        outs = f(x, k)
        return outs, (2 * n * dot * k, SymbolicZero(jax.typeof(outs[1]).to_tangent_aval()))

    f.defjvp(rule, symbolic_zeros=True)
    return f


# Functions of x and n, and their derivatives by x.
CASES = {
    "an argument": (lambda x, n: scaled_jvp(n)(x), lambda x, n: 2 * n),
    "a computed value": (lambda x, n: scaled_jvp(jnp.sin(n))(x), lambda x, n: 2 * jnp.sin(n)),
    "custom_vjp": (lambda x, n: scaled_vjp(n)(x), lambda x, n: n * n),
    "in jit": (lambda x, n: jax.jit(lambda y: scaled_jvp(n)(y))(x), lambda x, n: 2 * n),
    "of a value in jit": (
        lambda x, n: jax.jit(lambda y, m: scaled_jvp(m + 1)(y))(x, n),
        lambda x, n: 2 * (n + 1),
    ),
    "in a branch": (
        lambda x, n: lax.cond(x > 1, lambda y: scaled_jvp(n)(y), lambda y: scaled_vjp(n)(y), x),
        lambda x, n: jnp.where(x > 1, 2 * n, n * n),
    ),
    "in a loop": (
        lambda x, n: lax.while_loop(
            lambda s: s[0] < 2, lambda s: (s[0] + 1, scaled_jvp(n)(s[1])), (0, x)
        )[1],
        lambda x, n: (2 * n) ** 2,
    ),
    "in a scan": (
        lambda x, n: lax.scan(lambda c, k: (scaled_jvp(n + k)(c), None), x, jnp.arange(2.0))[0],
        lambda x, n: 4 * n * (n + 1),
    ),
    "in a long loop": (
        lambda x, n: lax.fori_loop(0, 10, lambda _, c: scaled_jvp(n / 4)(c), x),
        lambda x, n: (n / 2) ** 10,
    ),
    "twice": (lambda x, n: scaled_jvp(n)(scaled_vjp(n + 1)(x)), lambda x, n: 2 * n * (n + 1) ** 2),
    "an integer beside": (
        lambda x, n: with_integer(n)(x, jnp.int32(3))[0],
        lambda x, n: 6 * n,
    ),
    "jax.scipy.special.expn": (
        lambda x, n: jax.scipy.special.expn(n.astype(int), x + 1),
        lambda x, n: -jax.vmap(lambda k, y: jax.scipy.special.expn(k, y + 1))(n.astype(int) - 1, x),
    ),
}


@pytest.mark.parametrize("lowering", ["kernel", "xla"])
def test_rules_that_capture(lowering):
    f = je.elementwise(lambda x, n: [case(x, n) for case, _ in CASES.values()], lowering=lowering)
    results, back = jax.vjp(lambda x: f(x, N), X)
    units = [jnp.zeros((len(CASES), 3)).at[i].set(1) for i in range(len(CASES))]
    (gradients,) = jax.vmap(lambda *cts: back(list(cts)))(*units)
    for i, (name, (case, derivative)) in enumerate(CASES.items()):
        np.testing.assert_allclose(results[i], jax.vmap(case)(X, N), 1e-5, err_msg=name)
        np.testing.assert_allclose(gradients[i], derivative(X, N), 1e-4, err_msg=name)


def test_forward_mode_and_second_order():
    f = je.elementwise(lambda x, n: jnp.sin(scaled_jvp(n)(x)))
    _, dots = jax.jvp(lambda x: f(x, N), (X,), (jnp.ones(3),))
    np.testing.assert_allclose(dots, 2 * N * jnp.cos(N * X), 1e-5)
    second = jax.grad(lambda x: jax.grad(lambda x: f(x, N).sum())(x).sum())(X)
    # The rule says what the value is, too, and that it is n x: its derivative is n.
    np.testing.assert_allclose(second, -2 * N * N * jnp.sin(N * X), 1e-4)


def test_a_rule_that_captures_a_value_from_outside():
    """A tracer of the program around, which is an operand then."""

    def program(x, n):
        return je.elementwise(scaled_jvp(n), lowering="kernel")(x)

    gradient = jax.jit(jax.grad(lambda x, n: program(x, n).sum()))(X, 1.5)
    np.testing.assert_allclose(gradient, np.full(3, 3.0))


@pytest.mark.parametrize("make", [scaled_jvp, scaled_vjp])
def test_a_captured_value_that_is_differentiated(make):
    f = je.elementwise(lambda x, n: make(n)(x))
    with pytest.raises(ValueError, match=r"captures a value that is differentiated.*custom_"):
        jax.grad(lambda n: f(X, n).sum())(N)


@pytest.mark.parametrize("lowering", ["kernel", "xla"])
def test_a_rule_that_gives_a_symbolic_zero_unasked(lowering):
    @jax.custom_jvp
    def floor(x):
        return jnp.floor(x)

    floor.defjvp(lambda p, t: (jnp.floor(p[0]), SymbolicZero(jax.typeof(p[0]).to_tangent_aval())))
    f = je.elementwise(lambda x: floor(x) * x, lowering=lowering)
    np.testing.assert_array_equal(jax.grad(lambda x: f(x).sum())(X), jnp.floor(X))


def test_a_rule_that_fails_is_told_of_when_it_is_needed():
    @jax.custom_jvp
    def f(x):
        return x * 2

    @f.defjvp
    def rule(primals, tangents):
        raise RuntimeError("no derivative")

    function = je.elementwise(lambda x: f(x))
    np.testing.assert_array_equal(function(X), 2 * X)
    with pytest.raises(RuntimeError, match="no derivative"):
        jax.grad(lambda x: function(x).sum())(X)
