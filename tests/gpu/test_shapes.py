"""Sizes, slices that begin anywhere in a buffer, and broadcasting."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gpu import device

import jax_elementwise as je

pytestmark = pytest.mark.gpu

SIZES = [*range(1, 71), 255, 256, 257, 1023, 1024, 1025, 4093, 65537]
DTYPES = ["bool", "bfloat16", "float16", "int32", "float32"]
# XLA hands a kernel a pointer into the middle of a buffer when it folds a slice into the call. It
# does so for slices that begin at a multiple of 128 bytes, and copies the others.
FOLD_SLICES = {"xla_gpu_enable_dynamic_slice_fusion": True}


def numbers(rng, shape, dtype):
    """Small numbers, with which 16-bit floats are exact."""
    if dtype == "bool":
        return jnp.asarray(rng.random(shape) < 0.5)
    return jnp.asarray(rng.integers(-8, 9, shape), dtype)


def as_float64(x):
    return np.asarray(x).astype(np.float64)


def affine(x):
    return jnp.where(x, 3, -1).astype(jnp.int32) if x.dtype == bool else x * 2 + 1


def expected_affine(x):
    return np.where(x, 3, -1) if x.dtype == bool else as_float64(x) * 2 + 1


# ---- Sizes and slices ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "fold"),
    [*((dtype, True) for dtype in DTYPES), ("bfloat16", False)],
    ids=[*DTYPES, "bfloat16-not_folded"],
)
def test_every_size_at_odd_offsets_in_one_program(dtype, fold, rng):
    x = numbers(rng, 66000, dtype)
    slices = [slice(o, o + n) for n in SIZES for o in (0, 2 * (n % 4) + 1, 128)]
    f = je.elementwise(affine)
    compiled = device.compile_with_calls(
        lambda x: [f(x[s]) for s in slices],
        x,
        calls=len(slices),
        compiler_options=FOLD_SLICES if fold and not device.ON_CPU else None,
    )
    want = expected_affine(np.asarray(x))
    for s, result in zip(slices, compiled(x), strict=True):
        assert result.shape == (s.stop - s.start,)
        np.testing.assert_array_equal(as_float64(result), want[s])


@pytest.mark.parametrize(
    "dtypes", [("float32",) * 3, ("bfloat16",) * 3, ("bfloat16", "float32", "bool")]
)
def test_operands_at_different_offsets(dtypes, rng):
    size = 2053
    arrays = [numbers(rng, size + 16, dtype) for dtype in dtypes]
    f = je.elementwise(lambda x, y, z: (x * 2 + y, jnp.where(z != 0, x, 0 * x)))
    offsets = [*itertools.product((0, 1, 5), (0, 3, 8), (0, 2, 7))]

    def fun(*arrays):
        return [
            f(*(x[o : o + size] for x, o in zip(arrays, places, strict=True))) for places in offsets
        ]

    options = None if device.ON_CPU else FOLD_SLICES
    compiled = device.compile_with_calls(fun, *arrays, calls=len(offsets), compiler_options=options)
    for places, results in zip(offsets, compiled(*arrays), strict=True):
        x, y, z = (as_float64(a)[o : o + size] for a, o in zip(arrays, places, strict=True))
        np.testing.assert_array_equal(as_float64(results[0]), x * 2 + y)
        np.testing.assert_array_equal(as_float64(results[1]), np.where(z != 0, x, 0))


# ---- Misaligned memory of others -----------------------------------------------------------------


@pytest.fixture
def view():
    """A function that makes an array begin some elements after an aligned address."""
    cupy = pytest.importorskip("cupy", reason="CuPy makes misaligned arrays")

    def view(x, offset):
        with cupy.cuda.Device(0):  # where there are several, it may be another
            array = jax.dlpack.from_dlpack(cupy.asarray(x)[offset:])
        if array.unsafe_buffer_pointer() % 16 != offset * x.itemsize % 16:
            pytest.skip("JAX has copied the array to an aligned address")
        return array

    return view


def results_if_taken(compiled, *arrays):
    """The results, or None where XLA itself refuses the arrays' addresses, as 0.11 does."""
    try:
        return jax.block_until_ready(compiled(*arrays))
    except jax.errors.JaxRuntimeError as error:
        if "must be a multiple of" not in str(error):
            raise
        return None


@pytest.mark.parametrize("size", [1, 7, 64, 1003])
@pytest.mark.parametrize("dtypes", [("float16",) * 2, ("float32",) * 2, ("float16", "float32")])
def test_misaligned_operands(dtypes, size, view, rng, kernels_only):
    x, y = (rng.integers(-8, 9, size + 8).astype(dtype) for dtype in dtypes)
    f = je.elementwise(lambda x, y: (x * 2 + y, x > y))
    compiled = device.compile_with_calls(lambda x, y: f(x, y), x[:size], y[:size], calls=1)
    for o, p in itertools.product(range(8), (0, 1, 4, 7)):
        a, b = x[o : o + size], y[p : p + size]
        results = results_if_taken(compiled, view(x[: o + size], o), view(y[: p + size], p))
        if results is None:
            assert o or p
            continue
        total, greater = results
        np.testing.assert_array_equal(as_float64(total), as_float64(a) * 2 + as_float64(b))
        np.testing.assert_array_equal(greater, a > b)


def test_misaligned_rows_columns_and_scalars(view, rng, kernels_only):
    x, row, column, scalar = (
        rng.integers(-8, 9, size + 8).astype("float16") for size in (33 * 66, 66, 33, 1)
    )
    f = je.elementwise(lambda x, row, column, scalar: x + row * 2 - column * scalar)

    def fun(x, row, column, scalar):
        return f(x.reshape(33, 66), row, column.reshape(33, 1), scalar)

    operands = [x[8:], row[8:], column[8:], scalar[8:]]
    compiled = device.compile_with_calls(fun, *operands, calls=1)
    for offset in range(8):
        arrays = [a[: offset + len(a) - 8] for a in (x, row, column, scalar)]
        actual = results_if_taken(compiled, *(view(a, offset) for a in arrays))
        if actual is None:
            assert offset
            continue
        x_, row_, column_, scalar_ = (as_float64(a[offset:]) for a in arrays)
        expected = x_.reshape(33, 66) + row_ * 2 - column_.reshape(33, 1) * scalar_
        np.testing.assert_array_equal(as_float64(actual), expected)


def test_one_misaligned_operand_of_three_widths(rng, x64):
    a = numbers(rng, 4097, "float32")
    b = numbers(rng, 4098, "bfloat16")
    c = jnp.float64(0.5)
    f = je.elementwise(lambda a, b, c: a + b + c)
    (actual,) = device.run(lambda a, b, c: [f(a, b[1:], c)], a, b, c)
    np.testing.assert_array_equal(actual, as_float64(a) + as_float64(b)[1:] + 0.5)


def test_slices_in_a_chain_of_calls(rng):
    x = numbers(rng, 1003, "float32")
    f = je.elementwise(lambda x, y: x - 2 * y)

    def fun(x):
        y = f(x[1:], x[:-1])
        z = f(y[3:], y[:-3])
        return [f(z[::-1], z), y]

    actual = device.run(fun, x, calls=3)
    a = as_float64(x)
    y = a[1:] - 2 * a[:-1]
    z = y[3:] - 2 * y[:-3]
    np.testing.assert_array_equal(actual[0], z[::-1] - 2 * z)
    np.testing.assert_array_equal(actual[1], y)


@pytest.mark.parametrize("shapes", [((0,), ()), ((3, 0, 5), (5,)), ((0, 1), (1, 4))], ids=str)
def test_nothing_to_compute(shapes, rng):
    x, y = (numbers(rng, shape, "float32") for shape in shapes)
    f = je.elementwise(lambda x, y: (x + y, x > y))
    for results in (f(x, y), jax.jit(f)(x, y)):
        assert [result.shape for result in results] == [np.broadcast_shapes(*shapes)] * 2
        assert [str(result.dtype) for result in results] == ["float32", "bool"]


# ---- Broadcasting --------------------------------------------------------------------------------

BROADCASTS = [
    ((), ()),
    ((), (7,)),
    ((1,), (1000,)),
    ((1, 1), (3, 1, 1)),
    ((128, 256), (256,)),
    ((128, 256), (128, 1)),
    ((17, 3), (3,)),
    ((17, 3), (17, 1)),
    ((17, 1), (1, 33)),
    ((2, 1, 10), (1, 2, 10)),
    ((5, 1, 7), (4, 7)),
    ((3, 1, 5, 1), (4, 1, 6)),
    ((6, 1, 5, 1, 7), (1, 4, 5, 3, 1)),
    ((2, 3, 4, 5), (3, 1, 5)),
    ((1, 8), (8, 1)),
    ((31, 1, 65), (1, 33, 1)),
    ((2, 2, 2, 2, 2, 2, 1), (2, 1, 2, 1, 2, 1, 9)),
]


@pytest.mark.parametrize("dtype", ["bool", "bfloat16", "float32"])
@pytest.mark.parametrize("shapes", BROADCASTS, ids=str)
def test_broadcasting(shapes, dtype, rng):
    x, y = (numbers(rng, shape, dtype) for shape in shapes)
    if dtype == "bool":
        f, expected = je.elementwise(lambda x, y: x & ~y), np.asarray(x) & ~np.asarray(y)
    else:
        f, expected = je.elementwise(lambda x, y: x * 2 - y), as_float64(x) * 2 - as_float64(y)
    (actual,) = device.run(lambda x, y: [f(x, y)], x, y)
    np.testing.assert_array_equal(actual.astype(expected.dtype), expected)


def test_many_operands_of_every_kind(rng):
    shapes = [(6, 5, 8), (8,), (5, 1), (6, 1, 1), (), (6, 1, 8), (1, 5, 8), (1, 1, 1)]
    arrays = [numbers(rng, shape, "float32") for shape in shapes]
    f = je.elementwise(lambda *xs: sum(i * x for i, x in enumerate(xs, 1)))
    (actual,) = device.run(lambda *xs: [f(*xs)], *arrays)
    np.testing.assert_array_equal(actual, sum(i * as_float64(x) for i, x in enumerate(arrays, 1)))


def test_broadcast_rows_that_begin_anywhere(rng):
    x, b = numbers(rng, (9, 66), "bfloat16"), numbers(rng, 80, "bfloat16")
    f = je.elementwise(lambda x, b: x + b)
    offsets = range(8)
    actual = device.run(
        lambda x, b: [f(x, b[o : o + 66]) for o in offsets], x, b, calls=len(offsets)
    )
    for o, result in zip(offsets, actual, strict=True):
        np.testing.assert_array_equal(as_float64(result), as_float64(x) + as_float64(b)[o : o + 66])


def test_several_results_have_the_joint_shape(rng):
    a, b = jnp.ones((2, 2, 2)), jnp.ones((2, 2))
    twice, thrice = device.run(je.elementwise(lambda a, b: (2 * a, 3 * b)), a, b)
    np.testing.assert_array_equal(twice, np.full((2, 2, 2), 2))
    np.testing.assert_array_equal(thrice, np.full((2, 2, 2), 3))


def test_transposed_and_reversed_operands(rng):
    x = numbers(rng, (33, 65), "float32")
    f = je.elementwise(lambda x, y: x - y)
    actual = device.run(lambda x: [f(x.T, x.T[::-1]), f(x[:, ::2], x[:, 1:2])], x, calls=2)
    a = as_float64(x)
    np.testing.assert_array_equal(actual[0], a.T - a.T[::-1])
    np.testing.assert_array_equal(actual[1], a[:, ::2] - a[:, 1:2])


@pytest.mark.parametrize("shape", [(4, 65536, 8), (3, 65537, 2)])
def test_batch_axes_have_no_limit(shape):
    x = jnp.arange(float(np.prod(shape)), dtype=jnp.float32).reshape(shape)
    f = je.elementwise(lambda x: 3 * x)
    mapped = f
    for _ in shape:
        mapped = jax.vmap(mapped)
    (actual,) = device.run(lambda x: [mapped(x)], x)
    np.testing.assert_array_equal(actual, 3 * np.asarray(x))
