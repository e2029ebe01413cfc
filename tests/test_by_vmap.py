"""With ``lowering="xla"`` a function may do all that ``jax.vmap`` of it may."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_elementwise as je

X = jnp.arange(6.0).reshape(2, 3)
LARGE = jnp.asarray(np.linspace(0, 1, 100, dtype="float32"))


def by_xla(fun):
    return je.elementwise(fun, lowering="xla", name="f")


def same(fun, *args, of=lambda f: f):
    """The same as nested ``vmap``s of the function."""
    expected = of(jax.vmap(jax.vmap(fun)))(*args)
    actual = of(by_xla(fun))(*args)
    jax.tree.map(np.testing.assert_array_equal, actual, expected)
    assert jax.tree.map(jnp.shape, actual) == jax.tree.map(jnp.shape, expected)


def test_a_large_array():
    same(lambda x: LARGE[x.astype(int)] * x, X)
    same(lambda x: {"a": LARGE.sum() + x, "b": (LARGE @ LARGE,)}, X)


def test_an_array_that_is_traced():
    def of(f):
        return jax.jit(lambda table: by_xla(lambda x: jnp.interp(x, table, table**2))(X))

    np.testing.assert_allclose(of(None)(jnp.arange(10.0)), X**2)
    gradient = jax.grad(lambda t: by_xla(lambda x: t[x.astype(int)])(X).sum())(jnp.zeros(10))
    np.testing.assert_array_equal(gradient, [1, 1, 1, 1, 1, 1, 0, 0, 0, 0])


def test_keys():
    keys = jax.random.split(jax.random.key(0), (2, 3))
    same(lambda k: jax.random.uniform(k), keys)
    same(lambda k: jax.random.split(k)[0], keys, of=lambda f: lambda k: jax.random.key_data(f(k)))
    same(lambda k, x: x * jax.random.normal(k), keys, X, of=lambda f: jax.jit(f))


def test_operands_that_broadcast():
    key = jax.random.key(1)
    noise = by_xla(lambda k, x: x + jax.random.uniform(jax.random.fold_in(k, x.astype(int))))
    expected = jax.vmap(lambda x: x + jax.random.uniform(jax.random.fold_in(key, x.astype(int))))(
        X.ravel()
    )
    np.testing.assert_array_equal(noise(key, X).ravel(), expected)
    assert by_xla(lambda x, y: LARGE[0] + y)(X, jnp.ones((4, 1, 1))).shape == (4, 2, 3)


def test_gradients_and_vmap():
    same(lambda x: LARGE[0] + jnp.sin(x), X, of=lambda f: jax.grad(lambda x: f(x).sum()))
    batched = jax.vmap(by_xla(lambda x, y: LARGE[1] * x * y), (0, None))(X, X[0])
    np.testing.assert_allclose(batched, LARGE[1] * X * X[0])


def test_results_are_scalars_there_too():
    with pytest.raises(TypeError, match=r"'f' must return scalars"):
        by_xla(lambda x: LARGE * x)(X)


def test_kernels_refuse_them():
    f = je.elementwise(lambda x: LARGE[x.astype(int)], name="f")
    with pytest.raises(ValueError, match=r"'f' captures an array of shape \(100,\)"):
        f(X)
    message = r"'f' got argument 'k' of dtype key<fry>, which kernels do not take.*lowering='xla'"
    with pytest.raises(TypeError, match=message):
        je.elementwise(lambda k: 1.0, name="f")(jax.random.key(0))
