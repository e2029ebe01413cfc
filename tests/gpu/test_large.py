"""Arrays on both sides of the sizes at which indices need 64 bits."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from gpu import device
from jax import lax

import jax_elementwise as je

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("kernels_only", "x64")]


def ends(x, count=5):
    """The first, the middle and the last elements of a long vector, and their indices."""
    starts = (0, x.size // 2, x.size - count)
    pieces = [np.asarray(lax.slice_in_dim(x, start, start + count)) for start in starts]
    return np.concatenate(pieces), np.concatenate([start + np.arange(count) for start in starts])


def hashed(index):
    """A number below 2^24 that looks random: exact as a float32."""
    return (index * 2654435761 >> 7) & 0xFFFFFF


@jax.jit
def all_equal(x, y):
    return jnp.all(x == y)


@pytest.mark.parametrize("size", [2**31 + 19, 2**31 - 1])
def test_bools_past_the_range_of_int32(size):
    x = jax.jit(lambda: hashed(lax.iota(jnp.int64, size)) & 1 == 1)()
    f = device.compile_with_calls(lambda x: je.elementwise(lambda x: ~x)(x), x, calls=1)
    y = f(x)
    assert all_equal(y, jnp.logical_not(x))
    values, indices = ends(y)
    np.testing.assert_array_equal(values, hashed(indices) & 1 == 0)


@pytest.mark.parametrize(("dtype", "size"), [("uint8", 2**31 + 19), ("int8", 2**32 - 127)])
def test_bytes_past_the_range_of_int32(dtype, size):
    x = jnp.zeros(size, dtype).at[size - 1].set(7)
    f = device.compile_with_calls(lambda x: je.elementwise(lambda x: x + 1)(x), x, calls=1)
    y = f(x)
    assert jnp.sum(y, dtype=jnp.int64) == size + 7
    np.testing.assert_array_equal(np.asarray(y[-21:]), np.r_[np.ones(20), 8].astype(dtype))
    np.testing.assert_array_equal(np.asarray(y[:5]), np.ones(5, dtype))


def test_a_sum_of_a_column_and_a_row_of_bytes_past_the_range_of_int32():
    rows, columns = 65537, 32769
    a = np.arange(rows).astype(np.uint8)[:, None]
    b = (np.arange(columns) * 7).astype(np.uint8)[None]
    f = device.compile_with_calls(lambda a, b: je.elementwise(jnp.add)(a, b), a, b, calls=1)
    y = f(a, b)
    assert y.shape == (rows, columns)
    assert all_equal(y, jnp.asarray(a) + jnp.asarray(b))
    for i in (0, rows // 2, rows - 1):
        np.testing.assert_array_equal(np.asarray(y[i]), (a[i] + b[0]).astype(np.uint8))


@pytest.mark.parametrize("size", [2**29 + 1, 2**30, 2**30 + 3])
def test_float32_around_the_limit_of_32_bit_indices(size):
    x = jax.jit(lambda: hashed(lax.iota(jnp.int64, size)).astype(jnp.float32))()
    f = device.compile_with_calls(lambda x: je.elementwise(lambda x: x / 2 + 1)(x), x, calls=1)
    y = f(x)
    assert all_equal(y, x / 2 + 1)
    values, indices = ends(y)
    np.testing.assert_array_equal(values, (hashed(indices) / 2 + 1).astype(np.float32))


def test_a_sum_of_a_column_and_a_row_past_the_range_of_int32():
    rows, columns = 65537, 32769
    numbers = np.arange(rows) % 61 - 30
    a = jnp.asarray(numbers[:, None], jnp.bfloat16)
    b = jnp.asarray(numbers[None, :columns] * 0.5, jnp.bfloat16)
    f = device.compile_with_calls(lambda a, b: je.elementwise(jnp.add)(a, b), a, b, calls=1)
    y = f(a, b)
    assert y.shape == (rows, columns)
    assert all_equal(y, a + b)
    for i in (0, rows // 2, rows - 1):
        expected = (numbers[i] + numbers[:columns] * 0.5).astype(ml_dtypes.bfloat16)
        np.testing.assert_array_equal(np.asarray(y[i]), expected)


def test_a_repeated_row_past_the_limit_of_32_bit_indices():
    rows, columns = 2**15 + 1, 2**15 + 3
    x = jax.jit(lambda: hashed(lax.iota(jnp.int64, rows * columns)).astype(jnp.bfloat16))()
    x = x.reshape(rows, columns)
    b = jnp.arange(columns) % 128
    b = b.astype(jnp.bfloat16)
    f = device.compile_with_calls(lambda x, b: je.elementwise(jnp.multiply)(x, b), x, b, calls=1)
    assert all_equal(f(x, b), x * b)
