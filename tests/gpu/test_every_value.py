"""Every value of the narrow types, at every place of a pack and in the partial packs at both ends.

Kernels of one- and two-byte types with eight or more elements to a pack are where compilers have
been wrong before, so nothing is sampled here.
"""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from gpu import device
from jax import lax
from support import ulp

import jax_elementwise as je

pytestmark = pytest.mark.gpu

NARROW = ["float16", "bfloat16"]


def every_value(dtype: str) -> np.ndarray:
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    return np.arange(2**16, dtype=np.uint16).view(kind)


def same_bits(actual, expected):
    assert actual.dtype == expected.dtype
    np.testing.assert_array_equal(ulp.bits_of(actual), ulp.bits_of(expected))


def wavy(x):
    return jnp.tanh(x) * 3 + x


@pytest.mark.parametrize("dtype", NARROW)
def test_what_moves_values_keeps_every_bit(dtype, kernels_only):
    x = every_value(dtype)
    (copied,) = device.run(lambda x: [je.elementwise(lambda x: jnp.where(x == 0, x, x))(x)], x)
    finite = ~np.isnan(x)
    same_bits(copied[finite], x[finite])
    assert np.isnan(copied[~finite]).all()


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("size", [1, 3, 7])
def test_partial_packs_give_the_bits_of_whole_ones(dtype, size, kernels_only):
    x = every_value(dtype)
    x = x[~np.isnan(x)]
    f = je.elementwise(wavy)
    (whole,) = device.run(lambda x: [f(x)], x)
    # One launch per row: every element is in a pack that is not whole.
    rows = x[: x.size // size * size].reshape(-1, size)
    (partial,) = device.run(lambda rows: [lax.map(f, rows)], rows)
    same_bits(partial.ravel(), whole[: partial.size])


@pytest.mark.parametrize("dtype", NARROW)
def test_every_place_in_a_pack_gives_the_same_bits(dtype, kernels_only):
    x = every_value(dtype)
    x = x[~np.isnan(x)]
    f = je.elementwise(wavy)
    (whole,) = device.run(lambda x: [f(x)], x)
    shifts = range(1, 8)
    shifted = device.run(lambda x: [f(jnp.roll(x, s)) for s in shifts], x, calls=len(shifts))
    for shift, result in zip(shifts, shifted, strict=True):
        same_bits(np.roll(result, -shift), whole)


@pytest.mark.parametrize("dtype", NARROW)
def test_misaligned_slices_give_the_same_bits(dtype, kernels_only):
    x = every_value(dtype)
    x = x[~np.isnan(x)]
    f = je.elementwise(wavy)
    (whole,) = device.run(lambda x: [f(x)], x)
    offsets = range(1, 8)
    sliced = device.run(lambda x: [f(x[o:]) for o in offsets], x, calls=len(offsets))
    for offset, result in zip(offsets, sliced, strict=True):
        same_bits(result, whole[offset:])


@pytest.mark.parametrize("dtype", NARROW)
def test_every_value_with_every_neighbour_in_its_pack(dtype):
    # Pairs of exponents: 64 values meet 64 values in every order.
    x = every_value(dtype)[:: 2**16 // 64]
    left, right = (v.ravel() for v in np.meshgrid(x, x, indexing="ij"))
    x = np.stack([left, right], 1).ravel()
    (actual,) = device.run(lambda x: [je.elementwise(lambda x: -x)(x)], x)
    same_bits(actual[~np.isnan(x)], (-x)[~np.isnan(x)])


def test_bools_at_full_pack_width():
    # Every combination of 16 bools, a pack, and then of the 15 in a partial one.
    bits = (np.arange(2**16)[:, None] >> np.arange(16) & 1).astype(bool)
    f = je.elementwise(lambda x: ~x)
    (body,) = device.run(lambda x: [f(x)], bits)
    np.testing.assert_array_equal(body, ~bits)
    rows = bits[::8, :15]
    (tails,) = device.run(lambda x: [lax.map(f, x)], rows)
    np.testing.assert_array_equal(tails, ~rows)


@pytest.mark.parametrize(
    ("fun", "expected"),
    [
        (lambda x, y: x & y, np.logical_and),
        (lambda x, y: x | y, np.logical_or),
        (lambda x, y: x ^ y, np.logical_xor),
        (lambda x, y: x == y, np.equal),
        (lambda x, y: x < y, np.less),
        (lambda x, y: jnp.where(x, y, ~y), lambda x, y: np.where(x, y, ~y)),
    ],
    ids=["and", "or", "xor", "eq", "lt", "where"],
)
def test_functions_of_two_bools(fun, expected, rng):
    x, y = rng.random((2, 16 * 1000 + 13)) < 0.5
    f = je.elementwise(fun)
    slices = [slice(None), slice(1, None), slice(3, -2), slice(0, 7), slice(9, 24)]
    actual = device.run(lambda x, y: [f(x[s], y[s]) for s in slices], x, y, calls=len(slices))
    for result, s in zip(actual, slices, strict=True):
        np.testing.assert_array_equal(result, expected(x[s], y[s]))


@pytest.mark.parametrize("narrow", ["bool", *NARROW])
@pytest.mark.parametrize("wide", ["float32", "float64", "int32"])
def test_narrow_and_wide_types_in_one_kernel(narrow, wide, rng, x64):
    size = 1031
    if narrow == "bool":
        x = rng.random(size) < 0.5
    else:
        x = rng.integers(-8, 9, size).astype(every_value(narrow).dtype)
    y = rng.integers(-8, 9, size).astype(wide)

    def fun(x, y):
        z = x.astype(wide)
        return jnp.where(z > 0, y, y * y), z == -3

    actual = device.run(lambda x, y: je.elementwise(fun)(x[1 : size - 2], y[3:]), x, y)
    x, y = x[1 : size - 2], y[3:]
    np.testing.assert_array_equal(actual[0], np.where(x > 0, y, y * y))
    np.testing.assert_array_equal(actual[1], x == -3)
    assert jax.tree.map(lambda a: str(a.dtype), actual) == (wide, "bool")
