"""``jax.experimental.jet``: all coefficients of a function by one call of the primitive."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import calls
from jax.experimental.jet import jet

import jax_elementwise as je

X = jnp.array([0.25, 0.5, 2.0])
Y = jnp.array([[1.5], [0.75]])


def fun(x, y, n):
    return jnp.sin(x) * y, jnp.exp(-x * y) + n, n + 1


def coefficients(f, order):
    ones = [jnp.ones_like(X)] + [jnp.zeros_like(X)] * (order - 1)
    twos = [2 * jnp.ones_like(Y)] + [jnp.ones_like(Y)] * (order - 1)
    return jet(lambda x, y: f(x, y, jnp.int32(3)), (X, Y), (ones, twos))


@pytest.mark.sampled
@pytest.mark.parametrize("lowering", ["kernel", "xla"])
@pytest.mark.parametrize("order", [1, 3])
def test_coefficients_are_those_of_jax(lowering, order):
    ours = coefficients(je.elementwise(fun, lowering=lowering), order)
    theirs = coefficients(lambda x, y, n: fun(*jnp.broadcast_arrays(x, y), n), order)
    for a, e in zip(jax.tree.leaves(ours)[:-1], jax.tree.leaves(theirs)[:-1], strict=True):
        np.testing.assert_allclose(a, jnp.broadcast_to(e, a.shape), 1e-5, 1e-6)


def test_one_call_gives_them_all():
    f = je.elementwise(fun)
    assert len(calls(lambda x: jet(lambda x: f(x, Y, 1.0)[:2], (x,), ([x, x, x],)), X)) == 1
