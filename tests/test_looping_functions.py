"""Special functions that JAX defines by loops: values, gradients, and one kernel for each call."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import assert_same, kernels, lowered
from jax import lax
from support.sampling import sampled

import jax_elementwise as je

_A = np.array([0.3, 1.0, 2.5, 7.0])
_X = np.array([[0.1], [0.9], [0.4]])
SPECIAL = {
    "igamma": (lax.igamma, (_A, 5 * _X)),
    "igammac": (lax.igammac, (_A, 5 * _X)),
    "igamma_grad_a": (lax.igamma_grad_a, (_A, 5 * _X)),
    "random_gamma_grad": (lax.random_gamma_grad, (_A, 5 * _X)),
    "gammainc": (jax.scipy.special.gammainc, (_A, 5 * _X)),
    "betainc": (jax.scipy.special.betainc, (_A, _A[::-1].copy(), _X)),
}
UNDIFFERENTIATED = {"igamma_grad_a": (), "random_gamma_grad": (), "betainc": (2,)}


@pytest.mark.parametrize(
    ("name", "dtype"),
    sampled(
        [*((n, d) for n in SPECIAL for d in ("float32", "float64")), ("igamma", "bfloat16")],
        [("igamma", "float64"), ("betainc", "float32"), ("random_gamma_grad", "float32")],
    ),
)
def test_special_functions_and_their_gradients(name, dtype, x64):
    fun, operands = SPECIAL[name]
    operands = [jnp.asarray(x, dtype) for x in operands]
    f = je.elementwise(fun)
    r = jax.jit(lambda *a: fun(*jnp.broadcast_arrays(*a)))
    assert_same(f(*operands), r(*operands), 64)
    assert len(kernels(lowered(f, *operands))) == 1
    argnums = UNDIFFERENTIATED.get(name, (0, 1))
    if argnums and dtype != "bfloat16":
        actual, expected = (
            jax.grad(lambda *a, g=g: g(*a).sum(), argnums)(*operands) for g in (f, r)
        )
        assert_same(actual, expected, 512)


def test_special_functions_of_small_arrays():
    f = je.elementwise(lambda a, x: lax.igamma(jnp.stack([a, a + 1]), jnp.stack([x, x])).sum())
    a, x = jnp.asarray(_A, jnp.float32), jnp.float32(2)
    assert_same(f(a, x), lax.igamma(a, x * jnp.ones(4)) + lax.igamma(a + 1, x * jnp.ones(4)), 32)
    assert len(kernels(lowered(f, a, x))) == 1


def test_roots_by_iteration_and_their_gradients():
    def root(x):
        return lax.custom_root(
            lambda y: y * y - x,
            x,
            lambda f, y: lax.while_loop(
                lambda y: jnp.abs(f(y)) > 1e-5, lambda y: (y + x / y) / 2, y
            ),
            lambda g, y: y / g(1.0),
        )

    f, x = je.elementwise(root), jnp.linspace(0.5, 4, 8)
    assert len(kernels(lowered(f, x))) == 1
    np.testing.assert_allclose(f(x), np.sqrt(x), 1e-5)
    np.testing.assert_allclose(jax.grad(lambda x: f(x).sum())(x), 0.5 / np.sqrt(x), 1e-5)
