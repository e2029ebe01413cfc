"""Every element of every result is stored, and nothing is read that belongs to someone else."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gpu import device

import jax_elementwise as je

pytestmark = pytest.mark.gpu


def fill_memory_with_nan(size):
    """Leaves freed buffers behind that hold nothing but NaN."""
    blocks = [jnp.full(size + 64 * i, jnp.nan, jnp.float32) for i in range(8)]
    jax.block_until_ready(blocks)
    for block in blocks:
        block.delete()


@pytest.mark.parametrize("size", [1, 37, 1023, 2**20 + 3])
def test_results_do_not_depend_on_what_memory_held(size, rng):
    x = jnp.asarray(rng.integers(-8, 9, size), jnp.float32)
    f = je.elementwise(lambda x: (x + 1, (x * 2).astype(jnp.bfloat16), x > 0))
    compiled = device.compile_with_calls(lambda x: f(x), x, calls=1)
    expected = np.asarray(x)
    for _ in range(5):
        fill_memory_with_nan(size)
        plus, twice, positive = map(np.asarray, compiled(x))
        np.testing.assert_array_equal(plus, expected + 1)
        np.testing.assert_array_equal(twice.astype(np.float32), expected * 2)
        np.testing.assert_array_equal(positive, expected > 0)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32"])
def test_a_donated_operand_100_times(dtype):
    f = je.elementwise(lambda x: x + 1)
    step = jax.jit(f, donate_argnums=0)
    x = jnp.zeros(2**16 + 5, dtype)
    for _ in range(100):
        x = step(x)
    np.testing.assert_array_equal(np.asarray(x).astype(np.float32), 100)


def test_a_donated_operand_beside_others(rng):
    f = je.elementwise(lambda x, y, b: (x + y * b, x - y))
    step = jax.jit(f, donate_argnums=(0, 1))
    b = jnp.asarray(rng.integers(0, 2, (1, 129)), jnp.float32)
    x, y = jnp.ones((64, 129)), jnp.ones((64, 129))
    a = c = np.ones((64, 129), np.float32)
    for _ in range(20):
        x, y = step(x, y, b)
        a, c = a + c * np.asarray(b), a - c
    np.testing.assert_array_equal(x, a)
    np.testing.assert_array_equal(y, c)


def test_operands_stay_what_they_were(rng):
    x = jnp.asarray(rng.normal(size=4097), jnp.float32)
    before = np.asarray(x).copy()
    f = je.elementwise(lambda x, y: (x * y, x + y))
    jax.block_until_ready([f(x, x), f(x, x[::-1]), jax.jit(f)(x, x)])
    np.testing.assert_array_equal(x, before)


def test_the_same_array_in_many_places(rng):
    x = jnp.asarray(rng.integers(-8, 9, 1003), jnp.float32)
    f = je.elementwise(lambda *xs: sum(xs))
    (actual,) = device.run(lambda x: [f(*[x] * 20)], x)
    np.testing.assert_array_equal(actual, 20 * np.asarray(x))
