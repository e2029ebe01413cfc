"""Calls inside of the computations of other operations, which XLA compiles for the GPU itself."""

import jax
import numpy as np
import pytest
from gpu import device
from jax import lax

import jax_elementwise as je

pytestmark = pytest.mark.gpu

add = je.elementwise(lambda a, b: a + b, name="add")
triple = je.elementwise(lambda x: 3 * x, name="triple")
ZERO = np.float32(0)


@pytest.mark.parametrize(
    ("fun", "expected"),
    [
        (lambda x: lax.reduce(x, ZERO, add, (0,)), lambda x: x.sum()),
        (
            lambda x: lax.reduce_window(x, ZERO, add, (2,), (1,), "valid"),
            lambda x: x[1:] + x[:-1],
        ),
        (
            lambda x: x.at[np.array([1, 2])].apply(triple),
            lambda x: np.concatenate([x[:1], 3 * x[1:3], x[3:]]),
        ),
        (lambda x: jax.jit(lambda y: triple(y[0]))(x), lambda x: 3 * x[0]),
    ],
    ids=["reduce", "reduce_window", "scatter_apply", "in_a_nested_jit"],
)
def test_computations_on_scalars(fun, expected):
    x = np.arange(1000, dtype=np.float32)
    np.testing.assert_array_equal(device.run(fun, x, calls=0), expected(x))


def test_arrays_beside_them_are_kernels():
    x = np.arange(1000, dtype=np.float32)
    total = device.run(lambda x: lax.reduce(triple(x), ZERO, add, (0,)), x)
    np.testing.assert_array_equal(total, 3 * x.sum())
