"""Compositions: our calls inside other transformations of JAX, and those inside our functions."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import assert_same, calls, kernels, lowered, random_array, safe_log, scaled_gradient
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.experimental import checkify

import jax_elementwise as je


def tanh_product(x, y):
    return jnp.tanh(x) * y


def sine_product(x, y):
    return jnp.sin(x) * y


F = je.elementwise(tanh_product)


@pytest.fixture
def xy(rng):
    return random_array(rng, (5,)), random_array(rng, ())


# ---- Around our calls ----------------------------------------------------------------------------

COMPOSITIONS = {
    "grad_of_vmap": lambda f, x, y: jax.grad(lambda x: jax.vmap(f, (0, None))(x, y).sum())(x),
    "vmap_of_grad": lambda f, x, y: jax.vmap(jax.grad(f, (0, 1)), (0, None))(x, y),
    "vmap_of_jvp": lambda f, x, y: jax.vmap(
        lambda x, dx: jax.jvp(f, (x, y), (dx, y)), (0, 0)
    )(x, x),
    "jvp_of_vmap": lambda f, x, y: jax.jvp(jax.vmap(f, (0, None)), (x, y), (x, y)),
    "linearize": lambda f, x, y: jax.linearize(f, x, y)[1](x, y),
    "vjp": lambda f, x, y: jax.vjp(f, x, y)[1](x),
    "vmap_of_vjp": lambda f, x, y: jax.vmap(lambda x: jax.vjp(f, x, y)[1](x))(x),
    "vmap_of_hessian": lambda f, x, y: jax.vmap(jax.hessian(f, (0, 1)), (0, None))(x, y),
    "vmap_of_linearized": lambda f, x, y: jax.vmap(jax.linearize(f, x, y)[1])(
        jnp.stack([x, 2 * x]), jnp.stack([y, y])
    ),
}  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize("compose", COMPOSITIONS.values(), ids=COMPOSITIONS)
@pytest.mark.parametrize("jit", [False, True])
def test_compositions_agree_with_jax(compose, jit, xy):
    x, y = xy
    wrap = jax.jit if jit else lambda f: f
    mine = wrap(functools.partial(compose, je.elementwise(sine_product)))(x, y)
    assert_same(mine, jax.jit(functools.partial(compose, sine_product))(x, y))


def _scan(f, x, y):
    def step(carry, t):
        carry = f(carry, t)
        return carry, carry.sum()

    return jax.grad(lambda x, y: lax.scan(step, x, jnp.stack([y, 2 * y]))[1].sum(), (0, 1))(x, y)


def _remat(f, x, y):
    inner = jax.checkpoint(lambda x, y: f(f(x, y), y))
    return jax.value_and_grad(lambda x, y: inner(x, y).sum(), (0, 1))(x, y)


def _remat_in_scan(f, x, y):
    step = jax.checkpoint(lambda carry, _: (f(carry, y), None))
    return jax.grad(lambda x: lax.scan(step, x, None, length=3)[0].sum())(x)


def _cond(f, x, y):
    def loss(x, y):
        return lax.cond(y > 0, lambda: f(x, y).sum(), lambda: f(y, x).sum())

    return jax.value_and_grad(loss, (0, 1))(x, y)


def _while(f, x, y):
    def body(state):
        return state[0] + 1, f(state[1], y)

    return jax.jvp(lambda x: lax.while_loop(lambda s: s[0] < 3, body, (0, x))[1], (x,), (x,))


def _custom_vjp(f, x, y):
    g = jax.custom_vjp(f)
    g.defvjp(lambda x, y: (f(x, y), (x, y)), lambda kept, ct: (f(*kept) * ct, jnp.sum(ct)))
    return jax.grad(lambda x, y: g(x, y).sum(), (0, 1))(x, y)


def _custom_jvp(f, x, y):
    g = jax.custom_jvp(f)
    g.defjvp(lambda primals, dots: (f(*primals), f(*primals) * dots[0] + dots[1]))
    return jax.grad(lambda x, y: g(x, y).sum(), (0, 1))(x, y), jax.jvp(g, (x, y), (x, y))


def _checkify(f, x, y):
    checked = checkify.checkify(
        lambda x, y: jax.grad(lambda x: f(x, y).sum())(x), checkify.all_checks
    )
    error, value = jax.jit(checked)(x, y)
    error.throw()
    return value


def _named(f, x, y):
    with jax.named_scope("a name"):
        return jax.named_call(f, name="another")(x, y)


def _map(f, x, y):
    return lax.map(lambda x: jax.grad(f)(x, y), x, batch_size=2)


def _associative_scan(f, x, y):
    return lax.associative_scan(lambda a, b: f(a, b) + a + b, x)


AROUND = {
    function.__name__.removeprefix("_"): function
    for function in (
        _scan, _remat, _remat_in_scan, _cond, _while, _custom_vjp, _custom_jvp, _checkify, _named,
        _map, _associative_scan,
    )
}  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize("around", AROUND.values(), ids=AROUND)
def test_transformations_and_control_flow_around_our_calls(around, xy):
    assert_same(around(F, *xy), around(tanh_product, *xy), eps=16)


def test_a_rematerialised_call_is_computed_again_in_the_backward_pass(xy):
    step = jax.value_and_grad(lambda x, y: jax.checkpoint(F)(F(x, y), y).sum())
    assert len(calls(step, *xy)) == 4  # two forward, two backward: operands are all that is kept
    assert (
        len(calls(jax.value_and_grad(jax.checkpoint(lambda x: F(F(x, 2.0), 3.0).sum())), xy[0]))
        == 5
    )


def test_checkify_sees_what_the_caller_checks(xy):
    def f(x, y):
        result = F(x, y)
        checkify.check((result > 0).all(), "not positive")
        return result

    error, _ = checkify.checkify(f)(-jnp.abs(xy[0]), jnp.abs(xy[1]))
    assert "not positive" in error.get()


def test_symbolic_zeros_reach_no_call(xy):
    x, y = xy

    @functools.partial(jax.custom_jvp)
    def zero_tangent(x):
        return x

    zero_tangent.defjvp(lambda primals, dots: (primals[0], dots[0]), symbolic_zeros=True)
    gradient = jax.grad(lambda x: F(zero_tangent(x), lax.stop_gradient(x)).sum())
    assert_same(gradient(x), (1 - jnp.tanh(x) ** 2) * x)
    (_, backward) = calls(gradient, x)
    assert len(backward.outvars) == 1
    del y


# ---- Inside our functions ------------------------------------------------------------------------


def test_custom_jvp_inside_is_the_rule_in_both_modes():
    @jax.custom_jvp
    def doubled(x):
        return jnp.sin(x)

    doubled.defjvp(lambda primals, dots: (doubled(*primals), 2 * jnp.cos(primals[0]) * dots[0]))
    f = je.elementwise(lambda x, y: doubled(x * y))
    x, y = jnp.linspace(0, 1, 4), jnp.float32(2)
    expected = 2 * jnp.cos(x * y) * y
    assert_same(jax.grad(lambda x: f(x, y).sum())(x), expected)
    assert_same(jax.jvp(lambda x: f(x, y), (x,), (jnp.ones(4),))[1], expected)
    assert_same(jax.vmap(jax.grad(jax.grad(f)))(x, jnp.full(4, y)), -2 * jnp.sin(x * y) * y * y)


def test_custom_vjp_inside_is_the_rule_of_reverse_mode():
    f = je.elementwise(lambda x, y: scaled_gradient(x) * y)
    x, y = jnp.linspace(0, 1, 4), jnp.float32(2)
    assert_same(f(x, y), jnp.sin(x) * y)
    for wrap in (lambda f: f, jax.jit, jax.checkpoint):
        by_x, by_y = wrap(jax.grad(lambda x, y: f(x, y).sum(), (0, 1)))(x, y)
        assert_same(by_x, 3 * jnp.cos(x) * y)
        assert_same(by_y, jnp.sin(x).sum())
    assert_same(jax.vmap(jax.grad(f), (0, None))(x, y), 3 * jnp.cos(x) * y)
    step = jax.value_and_grad(lambda x, y: f(x, y).sum(), (0, 1))
    assert len(kernels(lowered(step, x, y))) == 2


def test_custom_vjp_inside_refuses_forward_mode_as_jax_does():
    f = je.elementwise(scaled_gradient)
    x = jnp.ones(3)
    with pytest.raises(TypeError, match="custom_vjp"):
        jax.jvp(jax.vmap(scaled_gradient), (x,), (x,))
    with pytest.raises((TypeError, NotImplementedError), match="custom_vjp"):
        jax.jvp(f, (x,), (x,))


def test_stateful_rules_follow_the_function_they_belong_to():
    x = jnp.linspace(0.5, 2, 4)
    f = je.elementwise(lambda x: safe_log(x) + jax.nn.relu(x) + jax.nn.silu(x))
    expected = jax.vmap(jax.grad(lambda x: jnp.log(x) + jax.nn.relu(x) + jax.nn.silu(x)))(x)
    assert_same(jax.grad(lambda x: f(x).sum())(x), expected)


@pytest.mark.parametrize(
    "policy", [None, "everything_saveable", "nothing_saveable", "dots_saveable"]
)
def test_remat_inside_changes_no_value(policy, xy):
    chosen = policy and getattr(jax.checkpoint_policies, policy)
    f = je.elementwise(jax.checkpoint(lambda x, y: jnp.sin(jnp.sin(x) * y), policy=chosen))
    mine = jax.grad(lambda x, y: f(x, y).sum(), (0, 1))(*xy)
    assert_same(mine, jax.grad(lambda x, y: jnp.sin(jnp.sin(x) * y).sum(), (0, 1))(*xy))


def test_names_for_remat_are_no_operations(xy):
    def fun(x, y):
        return checkpoint_name(jnp.sin(x), "saved") * y

    policy = jax.checkpoint_policies.save_only_these_names("saved")
    for inner in (fun, jax.checkpoint(fun, policy=policy)):
        f = je.elementwise(inner)
        assert_same(f(*xy), sine_product(*xy))
        mine = jax.grad(lambda x, y, f=f: f(x, y).sum(), (0, 1))(*xy)
        assert_same(mine, jax.grad(lambda x, y: sine_product(x, y).sum(), (0, 1))(*xy))


def test_derivatives_taken_inside_the_function(xy):
    f = je.elementwise(lambda x, y: jax.grad(lambda x: jnp.sin(x) * y)(x))
    assert_same(f(*xy), jnp.cos(xy[0]) * xy[1])
    assert_same(jax.grad(lambda x: f(x, xy[1]).sum())(xy[0]), -jnp.sin(xy[0]) * xy[1])
    g = je.elementwise(lambda x: jax.jvp(jnp.sin, (x,), (2.0 * x,))[1])
    assert_same(g(xy[0]), jnp.cos(xy[0]) * 2 * xy[0])


@pytest.mark.parametrize("index_dtype", ["int32", "bool"])
def test_switches_with_several_branches(index_dtype):
    branches = [lambda x: x, jnp.sin, lambda x: x * x]
    if index_dtype == "bool":
        f = je.elementwise(lambda i, x: lax.cond(i, branches[1], branches[0], x))
        i = jnp.array([False, True, True, False])
        chosen = [0, 1, 1, 0]
    else:
        f = je.elementwise(lambda i, x: lax.switch(i, branches, x))
        i = jnp.array([-5, 0, 1, 2, 7])
        chosen = [0, 0, 1, 2, 2]
    x = jnp.linspace(0.5, 1.5, len(chosen))
    expected = jnp.stack([branches[c](x_) for c, x_ in zip(chosen, x, strict=True)])
    assert_same(f(i, x), expected)
    gradient = jax.grad(lambda x: f(i, x).sum())(x)
    slopes = [lambda x: 1.0, jnp.cos, lambda x: 2 * x]
    np.testing.assert_allclose(
        gradient, [slopes[c](x_) for c, x_ in zip(chosen, x, strict=True)], rtol=1e-6
    )


@pytest.mark.parametrize("transform", [lambda f: f, jax.jit, jax.vmap], ids=["", "jit", "vmap"])
@pytest.mark.parametrize(
    "fun",
    [jnp.sin, lambda x: lax.fori_loop(0, jnp.int32(x), lambda _, y: y * x, x)],
    ids=["line", "loop"],
)
def test_no_tracer_is_leaked(fun, transform):
    f, x = je.elementwise(fun), jnp.linspace(0.5, 4, 8)
    with jax.checking_leaks():
        gradient = jax.grad(lambda x: transform(f)(x).sum())(x)
        jax.jvp(transform(jax.grad(lambda x: f(x).sum())), (x,), (x,))
    assert_same(gradient, jax.grad(lambda x: f(x).sum())(x))
