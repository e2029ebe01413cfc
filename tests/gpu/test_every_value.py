"""Every value of the narrow types, at every place of a pack and in the partial packs at both ends.

Kernels of one- and two-byte types with eight or more elements to a pack are where compilers have
been wrong before, so nothing is sampled here.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gpu import device
from jax import lax
from support import reference, ulp

import jax_elementwise as je

pytestmark = pytest.mark.gpu

NARROW = ["float16", "bfloat16"]


def every_value(dtype: str) -> np.ndarray:
    return reference.of_every_exponent(None, dtype, 0)


@pytest.fixture(autouse=True)
def _signalling_nans():
    """Which the narrow types have, and NumPy warns of."""
    with np.errstate(invalid="ignore"):
        yield


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


# ---- One byte ------------------------------------------------------------------------------------

BYTES = {"int8": "int64", "uint8": "int64", "float8_e4m3fn": "float32", "float8_e5m2": "float32"}
PLACES = 16  # in a pack


def every_pair(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    x = every_value(dtype)
    return tuple(v.ravel() for v in np.meshgrid(x, x, indexing="ij"))


def by_numpy(fun, dtype, x, y):
    with np.errstate(all="ignore"):
        wide = fun(x.astype(BYTES[dtype]), y.astype(BYTES[dtype]))
        return wide.astype(x.dtype)


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("fun", [lambda x, y: x + y, lambda x, y: x * y], ids=["add", "mul"])
def test_every_pair_of_bytes_at_every_place(fun, dtype, kernels_only):
    x, y = every_pair(dtype)
    f = je.elementwise(fun)
    expected = by_numpy(fun, dtype, x, y)
    # Rolled by each place of a pack; then slices whose packs are misaligned and partial.
    rolled = device.run(
        lambda x, y: [f(jnp.roll(x, s), jnp.roll(y, s)) for s in range(PLACES)], x, y, calls=PLACES
    )
    for shift, result in enumerate(rolled):
        device.check(np.roll(result, -shift), expected, 0, x, y)
    sliced = device.run(
        lambda x, y: [f(x[s:], y[: x.size - s]) for s in range(1, PLACES)], x, y, calls=PLACES - 1
    )
    for shift, result in enumerate(sliced, 1):
        device.check(result, by_numpy(fun, dtype, x[shift:], y[:-shift]), 0)


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("size", [1, 7, 15])
def test_bytes_in_partial_packs(dtype, size, kernels_only):
    x = every_value(dtype)
    rows = np.resize(x, (256, size))
    f = je.elementwise(lambda x: x * 3 + 1)
    (partial,) = device.run(lambda rows: [lax.map(f, rows)], rows)
    expected = by_numpy(lambda x, y: x * 3 + 1, dtype, rows, rows)
    device.check(partial, expected, 0)


@pytest.mark.parametrize("dtype", BYTES)
def test_what_moves_bytes_keeps_every_bit(dtype, kernels_only):
    x = np.tile(every_value(dtype), 17)
    (copied,) = device.run(lambda x: [je.elementwise(lambda x: jnp.where(x == 0, x, x))(x)], x)
    number = ~np.isnan(x)
    same_bits(copied[number], x[number])


@pytest.mark.parametrize("dtype", [d for d in BYTES if d.startswith("float8")])
def test_float8_is_widened_and_rounded_as_in_xla(dtype, rng, kernels_only):
    kind = reference.np_dtype(dtype)
    widen = je.elementwise(lambda x: x.astype(jnp.float32))
    (wide,) = device.run(lambda x: [widen(x)], every_value(dtype))
    device.check(wide, every_value(dtype).astype(np.float32), 0)
    numbers = np.unique(wide[np.isfinite(wide)])
    halfway = (numbers[:-1] + numbers[1:]) / 2
    beside = [np.nextafter(halfway, np.float32(side)) for side in (-np.inf, np.inf)]
    bits = rng.integers(0, 2**32, 100000, dtype=np.uint32).view(np.float32)
    edges = np.float32([464, 465, 61440, 61439, 1e9, np.inf, -np.inf, np.nan, -464.5, -61440])
    x = np.concatenate([halfway, *beside, bits, edges])
    (narrow,) = device.run(lambda x: [je.elementwise(lambda x: x.astype(dtype))(x)], x)
    with np.errstate(all="ignore"):
        device.check(narrow, x.astype(kind), 0, x)


def test_three_results_of_other_widths_than_the_operand():
    x = np.arange(4099, dtype=np.float32) % 100

    def fun(x):
        return x.astype(jnp.int8), x.astype(jnp.bfloat16), x.astype(jnp.float32) * 2

    actual = device.run(je.elementwise(fun), x)
    for result, factor in zip(actual, (1, 1, 2), strict=True):
        np.testing.assert_array_equal(result.astype(np.float32), x * factor)


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
