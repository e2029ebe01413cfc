"""jit, vmap, jvp, grad, hessian, remat and scan on the GPU: as ``jax.numpy``, in few kernels."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import SMOOTH, assert_same, eager_reference, random_array
from gpu import device
from jax import lax

import jax_elementwise as je

pytestmark = pytest.mark.gpu

SHAPES = [(7, 1, 33), (5, 1), (33,)]
TOLERANCE = 64  # machine epsilons; XLA's functions on the GPU and ours are not the same


def both(case):
    """The function as kernels, and its reference."""
    return je.elementwise(case.fun), eager_reference(case.fun)


def total(fun):
    """The sum of all that a function returns, weighted so that results differ."""

    def summed(*operands):
        leaves = jax.tree.leaves(fun(*operands))
        return sum((i + 1) * jnp.sum(leaf * leaf) for i, leaf in enumerate(leaves))

    return summed


@pytest.fixture(params=SMOOTH, ids=str)
def case(request):
    return request.param


@pytest.fixture
def operands(case, rng):
    return case.operands(rng, SHAPES[: len(case.dtypes)])


def test_jit(case, operands):
    ours, plain = both(case)
    compiled = device.compile_with_calls(ours, *operands, calls=1)
    assert_same(compiled(*operands), plain(*operands), TOLERANCE)
    assert_same(ours(*operands), plain(*operands), TOLERANCE)


def test_gradient_is_one_kernel_forward_and_one_backward(case, operands):
    ours, plain = both(case)
    argnums = tuple(range(len(operands)))
    value_and_grad = jax.value_and_grad(total(ours), argnums)
    compiled = device.compile_with_calls(value_and_grad, *operands, calls=2)
    expected = jax.jit(jax.value_and_grad(total(plain), argnums))(*operands)
    assert_same(compiled(*operands), expected, 512)


def test_jvp(case, operands):
    ours, plain = both(case)

    def tangent(fun, *operands):
        return jax.jvp(fun, operands, tuple(jnp.cos(x) for x in operands))

    compiled = device.compile_with_calls(functools.partial(tangent, ours), *operands, calls=2)
    expected = jax.jit(functools.partial(tangent, plain))(*operands)
    assert_same(compiled(*operands), expected, TOLERANCE)


def test_vmap(case, operands):
    ours, plain = both(case)
    batched = [jnp.stack([x, x * 0.5 + 0.5]) for x in operands]
    compiled = device.compile_with_calls(jax.vmap(ours), *batched, calls=1)
    assert_same(compiled(*batched), jax.vmap(plain)(*batched), TOLERANCE)


def test_hessian(case):
    ours, plain = both(case)
    point = [jnp.float32(0.7), jnp.float32(1.3), jnp.float32(0.9)][: len(case.dtypes)]
    argnums = tuple(range(len(point)))
    actual = jax.jit(jax.hessian(total(ours), argnums))(*point)
    expected = jax.jit(jax.hessian(total(plain), argnums))(*point)
    assert_same(actual, expected, 512)


def test_vmap_reads_unmapped_operands_as_they_are(rng):
    x, b = random_array(rng, (64, 32, 128)), random_array(rng, (128,))
    f = je.elementwise(lambda x, b: x * b)
    compiled = device.compile_with_calls(jax.vmap(f, (0, None)), x, b, calls=1)
    assert_same(compiled(x, b), x * b)
    assert device.ON_CPU or "broadcast(" not in compiled.as_text()


def test_vmap_in_any_order(rng):
    x, y, z = random_array(rng, (4,)), random_array(rng, (5,)), jnp.float32(1)
    f = je.elementwise(lambda x, y, z: x + y * z)
    inner = jax.vmap(f, (None, 0, None))
    (actual,) = device.run(lambda *a: [jax.vmap(inner, (0, None, None))(*a)], x, y, z)
    np.testing.assert_array_equal(actual, x[:, None] + y)
    inner = jax.vmap(f, (0, None, None))
    (actual,) = device.run(lambda *a: [jax.vmap(inner, (None, 0, None))(*a)], x, y, z)
    np.testing.assert_array_equal(actual, (x[:, None] + y).T)


def test_compositions_agree(rng):
    x, y = random_array(rng, (5,)), jnp.float32(0.7)
    ours, plain = je.elementwise(lambda x, y: jnp.sin(x) * y), lambda x, y: jnp.sin(x) * y

    def results(fun):
        def loss(x):
            return jnp.sum(fun(x, y) ** 2)

        _, linear = jax.linearize(lambda x: fun(x, y), x)
        _, pullback = jax.vjp(lambda x: fun(x, y), x)
        return [
            jax.grad(lambda x: jnp.sum(jax.vmap(fun, (0, None))(x, y)))(x),
            jax.vmap(jax.grad(lambda x: fun(x, y)))(x),
            jax.vmap(lambda x: jax.jvp(lambda x: fun(x, y), (x,), (x,)))(x),
            linear(x),
            pullback(x),
            jax.jacfwd(loss)(x),
            jax.jacrev(jax.grad(loss))(x),
        ]

    assert_same(jax.jit(lambda: results(ours))(), jax.jit(lambda: results(plain))(), TOLERANCE)


def test_scan_and_remat(rng):
    weights, x = random_array(rng, (10, 16, 16)) / 8, random_array(rng, (8, 16))

    def network(activation, weights, x):
        @jax.checkpoint
        def layer(x, w):
            return activation(jnp.matmul(x, w, precision="highest"), 1.5), None

        return jnp.sum(lax.scan(layer, x, weights)[0] ** 2)

    def activation(x, slope):
        return jax.nn.gelu(x) * slope

    value_and_grad = jax.value_and_grad(network, argnums=(1, 2))
    ours = functools.partial(value_and_grad, je.elementwise(activation))
    # One in either loop: what the backward kernel needs is recomputed inside it.
    compiled = device.compile_with_calls(lambda *args: ours(*args), weights, x, calls=2)
    expected = jax.jit(functools.partial(value_and_grad, activation))(weights, x)
    assert_same(compiled(weights, x), expected, 2048)


def test_gradients_have_the_dtypes_of_their_operands(rng):
    a, b = random_array(rng, (3, 1), "bfloat16"), random_array(rng, (4,))
    f = je.elementwise(lambda a, b: a * b)
    gradient = jax.grad(lambda a, b: jnp.sum(f(a, b)), argnums=(0, 1))
    actual = device.run(gradient, a, b)
    assert [str(x.dtype) for x in actual] == ["bfloat16", "float32"]
    np.testing.assert_allclose(actual[0].astype(np.float32), np.full((3, 1), b.sum()), rtol=1e-2)
    np.testing.assert_allclose(actual[1], np.full(4, a.astype(jnp.float32).sum()), rtol=1e-5)


def test_captured_scalars_are_operands(rng):
    x = random_array(rng, (1000,))

    def loss(s, x):
        return jnp.sum(je.elementwise(lambda x: x * s * s)(x))

    value, gradient = device.run(jax.value_and_grad(loss), jnp.float32(1.1), x, calls=2)
    np.testing.assert_allclose(value, 1.21 * np.sum(x), rtol=1e-4)
    np.testing.assert_allclose(gradient, 2.2 * np.sum(x), rtol=1e-4)


def test_lowering_can_be_chosen(rng, monkeypatch):
    x = random_array(rng, (33,))
    f = je.elementwise(jnp.sin, lowering="xla")
    assert device.custom_calls(jax.jit(f).lower(x).compile()) == 0
    f = je.elementwise(jnp.sin, lowering="kernel")
    device.compile_with_calls(f, x, calls=1)
    monkeypatch.setenv("JAX_ELEMENTWISE_LOWERING", "xla")
    assert device.custom_calls(jax.jit(lambda x: f(x)).lower(x).compile()) == 0
    assert_same(f(x), jnp.sin(x))


# ---- 64-bit arrays, and rules that a user wrote --------------------------------------------------


def test_arrays_of_64_bits_without_such_types():
    with jax.enable_x64(True):
        x = jnp.linspace(0.5, 2, 1001)
        f = je.elementwise(lambda x: lax.fori_loop(0, 10, lambda _, y: y * x, x))
        value, pull = jax.vjp(f, x)
    wide = np.array(x)
    for actual, expected in ((f(x), wide**11), (pull(value)[0], 11 * wide**21)):
        assert actual.dtype == np.float64
        np.testing.assert_allclose(actual, expected, rtol=1e-14)


def test_higher_derivatives_of_a_custom_vjp_function(rng):
    @jax.custom_vjp
    def doubled_sine(x):
        return jnp.sin(x)

    doubled_sine.defvjp(lambda x: (2 * jnp.sin(x), x), lambda x, ct: (2 * jnp.cos(x) * ct,))
    x = random_array(rng, (1001,))
    f = je.elementwise(doubled_sine)
    value, tangent = jax.jvp(jax.value_and_grad(lambda x: f(x).sum()), (x,), (x,))
    sine, cosine = 2 * np.sin(x), 2 * np.cos(x)
    assert_same(value, (sine.sum(), cosine), TOLERANCE)
    assert_same(tangent, ((cosine * x).sum(), -sine * x), TOLERANCE)
