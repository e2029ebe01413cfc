"""Values that a function, or a derivative rule inside it, closes over."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import assert_same, calls
from jax import lax

import jax_elementwise as je

CAPTURES = {
    "directly": lambda s: lambda x: x * s,
    "in_jit": lambda s: lambda x: jax.jit(lambda x: x * s)(x),
    "in_jit_in_jit": lambda s: lambda x: jax.jit(lambda x: jax.jit(lambda x: x * s)(x))(x),
    "in_branch": lambda s: lambda x: lax.cond(x > -9.0, lambda x: x * s, lambda x: x, x),
    "in_branch_in_jit": lambda s: jax.jit(
        lambda x: lax.cond(x > -9.0, lambda: x * s, lambda: x)
    ),
    "in_remat": lambda s: jax.checkpoint(lambda x: x * s),
    "twice": lambda s: lambda x: (x * s + jax.jit(lambda x: x * s)(x)) / 2,
}  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize("make", CAPTURES.values(), ids=CAPTURES)
@pytest.mark.parametrize("traced", [True, False], ids=["traced", "concrete"])
def test_a_captured_scalar_is_an_operand_and_has_a_gradient(make, traced):
    x = jnp.array([1.0, 2.0, 4.0])

    def loss(s, x):
        return je.elementwise(make(s))(x).sum()

    s = jnp.float32(3)
    wrap = jax.jit if traced else lambda f: f
    assert wrap(loss)(s, x) == 21
    by_s, by_x = wrap(jax.grad(loss, (0, 1)))(s, x)
    assert by_s == 7
    np.testing.assert_array_equal(by_x, [3, 3, 3])
    assert_same(jax.vmap(loss, (0, None))(jnp.array([1.0, 2.0]), x), jnp.array([7.0, 14.0]))


def test_a_captured_array_scalar_is_no_constant_of_the_kernel():
    x = jnp.arange(3.0)
    texts = set()
    for value in (2.0, 3.0):
        s = jnp.float32(value)
        g = je.elementwise(_closing_over(s), name="g")
        np.testing.assert_array_equal(g(x), value * x)
        (call,) = calls(g, x)
        assert len(call.invars) == 2
        texts.add(g.cuda_source(x))
    assert len(texts) == 1


def _closing_over(value):
    return lambda x: x * value


@pytest.mark.parametrize("kind", [float, np.float32, int, np.float64, bool, np.array], ids=str)
def test_captured_python_and_numpy_scalars_are_constants_of_the_trace(kind):
    x = jnp.arange(3.0)
    f = je.elementwise(_closing_over(kind(3)))
    np.testing.assert_array_equal(f(x), kind(3) * x)
    (call,) = calls(f, x)
    assert len(call.invars) == 1


def test_captured_scalars_keep_their_dtypes():
    for s in (jnp.bfloat16(2), jnp.int32(2), jnp.float32(2), jnp.asarray(2.0), jnp.bool_(True)):
        x = jnp.ones(3, jnp.bfloat16)
        assert_same(je.elementwise(_closing_over(s))(x), x * s)


def _rule_that_captures(s):
    @jax.custom_jvp
    def f(x):
        return x * s

    f.defjvp(lambda primals, dots: (f(*primals), s * dots[0]))
    return f


def _vjp_rule_that_captures(s):
    @jax.custom_vjp
    def f(x):
        return x * s

    f.defvjp(lambda x: (f(x), None), lambda _, cotangent: (s * cotangent,))
    return f


RULES = pytest.mark.parametrize("make", [_rule_that_captures, _vjp_rule_that_captures])


@RULES
def test_a_derivative_rule_may_capture_a_concrete_scalar(make):
    x = jnp.array([1.0, 2.0])
    for value in (3.0, 5.0):
        f = je.elementwise(make(jnp.float32(value)))
        np.testing.assert_array_equal(f(x), value * x)
        np.testing.assert_array_equal(jax.grad(lambda x, f=f: f(x).sum())(x), [value] * 2)
        jitted = jax.jit(jax.grad(lambda x, f=f: f(x).sum()))
        np.testing.assert_array_equal(jitted(x), [value] * 2)


@RULES
def test_a_derivative_rule_that_captures_a_traced_value_is_right_or_refused(make):
    x = jnp.array([1.0, 2.0])

    @jax.jit
    def gradient(s):
        return jax.grad(lambda x: je.elementwise(make(s))(x).sum())(x)

    try:
        result = gradient(jnp.float32(3))
    except ValueError as error:
        assert "captures" in str(error)  # noqa: PT017
    else:
        np.testing.assert_array_equal(result, [3, 3])


@RULES
def test_a_value_captured_under_a_custom_rule_has_no_silent_zero_gradient(make):
    x = jnp.array([1.0, 2.0])
    with pytest.raises(Exception, match=r"captures|closed-over|escape"):
        jax.grad(lambda s: je.elementwise(make(s))(x).sum())(jnp.float32(3))


def test_a_scalar_captured_in_a_loop_is_differentiated():
    def loop(s):
        def fun(x):
            return lax.fori_loop(0, 5, lambda _, total: total + x * s, 0.0)

        return je.elementwise(fun, lowering="xla")

    x = jnp.array([1.0, 2.0])
    assert_same(loop(1.1)(x), jnp.array([5.5, 11.0]))
    assert_same(jax.jit(lambda s: loop(s)(x))(1.1), jnp.array([5.5, 11.0]))
    assert jax.jit(jax.grad(lambda s: loop(s)(x).sum()))(1.1) == 15
    assert jax.grad(lambda s: loop(s)(x).sum())(jnp.float32(1.1)) == 15


def test_captured_values_of_different_calls_do_not_mix():
    outer = jax.jit(
        lambda a, b, x: (je.elementwise(_closing_over(a))(x), je.elementwise(_closing_over(b))(x))
    )
    for a, b in ((1.0, 2.0), (5.0, 7.0)):
        first, second = outer(a, b, jnp.ones(2))
        np.testing.assert_array_equal(first, [a, a])
        np.testing.assert_array_equal(second, [b, b])


def test_a_value_captured_in_a_scan_is_that_of_the_step():
    def step(carry, s):
        return je.elementwise(lambda x: x * s)(carry), None

    def run(ss):
        return lax.scan(step, jnp.ones(2), ss)[0].sum()

    ss = jnp.array([2.0, 3.0, 4.0])
    assert run(ss) == 48
    np.testing.assert_array_equal(jax.grad(run)(ss), [24, 16, 12])
