"""Every dtype as an argument, alone and mixed with every other, with and without 64-bit types."""

import functools
import itertools

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import scipy.special
from cases import calls, kernels, lowered
from jax import lax
from support import reference, sampling
from support.sampling import sampled

import jax_elementwise as je
from jax_elementwise._codegen.types import DTYPES
from jax_elementwise._primitive import elementwise_p

WIDE = ("int64", "uint64", "float64", "complex128")


def values(dtype, count=7):
    """Small numbers, which every dtype holds exactly."""
    numbers = np.arange(count) % 4
    return numbers.astype(reference.np_dtype(dtype))


def same(actual, expected):
    assert actual.dtype == expected.dtype
    np.testing.assert_array_equal(np.asarray(actual), np.asarray(expected))


@pytest.fixture
def x64_or_not(request):
    with jax.enable_x64(request.param):
        yield request.param


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("dtype", "x64_or_not"),
    sampled(
        itertools.product(DTYPES, (False, True)),
        [(d, x64) for d in DTYPES for x64 in (False, True) if x64 or d in WIDE],
    ),
    indirect=["x64_or_not"],
)
def test_every_dtype_is_taken_and_given(dtype, x64_or_not):
    x = jnp.asarray(values(dtype))  # canonical: without x64, 32 bits wide
    assert x64_or_not or str(x.dtype) not in WIDE

    def fun(x):
        return jnp.where(x == x, x, jnp.zeros_like(x))

    f = je.elementwise(fun)
    same(f(x), x)
    same(jax.jit(f)(x), x)
    same(jax.vmap(f)(x[:, None]), x[:, None])
    same(f(x[:0]), x[:0])
    same(f(x[2]), x[2])
    assert len(kernels(lowered(f, x))) == 1


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != "bool"])
def test_arithmetic_is_that_of_jax(dtype, x64):
    x = jnp.asarray(values(dtype))

    def fun(x):
        return x * x + x, -x, x > x.real.astype(x.dtype) if jnp.isrealobj(x) else x == x

    for actual, expected in zip(je.elementwise(fun)(x), fun(x), strict=True):
        same(actual, expected)


@pytest.mark.sampled
@pytest.mark.parametrize("first", sampled(DTYPES, sampling.DTYPES))
def test_every_dtype_meets_every_other(first, x64):
    """With the dtype that ``jax.numpy`` promotes to, and its refusal where it refuses."""
    f = je.elementwise(lambda x, y: jnp.add(x, y))
    x = jnp.asarray(values(first))
    for second in DTYPES:
        y = jnp.asarray(values(second))
        try:
            expected = jnp.add(x, y)
        except jax.dtypes.TypePromotionError:
            with pytest.raises(jax.dtypes.TypePromotionError, match="no available implicit dtype"):
                f(x, y)
            continue
        same(f(x, y), expected)  # which also writes the kernel's text


def test_half_times_complex():
    f = je.elementwise(lambda a, z: a * z)
    result = f(jnp.float16(1.5), jnp.complex64(2 - 1j))
    assert result.dtype == jnp.complex64
    assert result == 3 - 1.5j


def test_one_function_of_every_dtype(x64):
    """All dtypes in one kernel, each result from another operand."""
    xs = [jnp.asarray(values(dtype)) for dtype in DTYPES]

    def fun(*xs):
        return tuple(jnp.where(x == xs[0].astype(x.dtype), x, xs[-1 - i].real.astype(x.dtype))
                     for i, x in enumerate(xs))  # fmt: skip

    f = je.elementwise(fun)
    assert len(kernels(lowered(f, *xs))) == 1
    for actual, expected in zip(f(*xs), fun(*xs), strict=True):
        same(actual, expected)


# ---- 64 bits where there are 32 ------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float64", "int64"])
def test_wide_arrays_without_x64_are_those_of_jax(dtype):
    x = np.array([1, 2, 3], dtype)
    f = je.elementwise(lambda x: x + 1)
    same(f(x), jnp.asarray(x) + 1)
    try:
        imported = jax.dlpack.from_dlpack(x)
    except Exception:
        return  # JAX refuses what it cannot hold
    np.testing.assert_array_equal(np.asarray(f(imported)).astype(dtype), x + 1)


# ---- Buffers that begin anywhere -----------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "offset"), [("float64", 8), ("float32", 4), ("int8", 3)])
def test_imported_buffers_may_begin_anywhere(dtype, offset, x64):
    size = np.dtype(dtype).itemsize
    buffer = np.zeros(64 * size + 64, np.uint8)
    start = -buffer.ctypes.data % 64 + offset
    x = buffer[start : start + 64 * size].view(dtype)
    x[:] = np.arange(64)
    imported = jax.dlpack.from_dlpack(x)
    same(je.elementwise(lambda x: x + 1)(imported), jnp.asarray(x + 1))


# ---- Many operands, few operands -----------------------------------------------------------------


@pytest.mark.parametrize(("operands", "results"), [(12, 9), (40, 1), (40, 40)])
def test_many_operands_and_results(operands, results, rng):
    xs = [rng.integers(-8, 8, 1001).astype(np.float32) for _ in range(operands)]

    def sums(*xs):
        return tuple(itertools.accumulate(xs))[-results:]

    f = je.elementwise(sums)
    assert len(kernels(lowered(f, *xs))) == 1
    for actual, expected in zip(f(*xs), sums(*xs), strict=True):
        np.testing.assert_array_equal(actual, expected)


def test_calls_without_constants_dimensions_or_floats():
    """Which have had empty attributes in other packages, that nothing could serialise."""
    for fun, args in (
        (lambda x: x, [jnp.ones(3)]),
        (lambda x: x * 2, [jnp.float32(1)]),
        (lambda n: n & 3, [jnp.int32(7)]),
        (lambda b: ~b, [jnp.array([True])]),
    ):
        f = je.elementwise(fun)
        same(jax.jit(f)(*args), fun(*args))
        text = lowered(f, *args)
        assert "= array<i64>" not in text
        assert "= dense<> :" not in text


# ---- What no kernel takes ------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["int4", "uint4", "float8_e5m2fnuz", "float8_e3m4"])
def test_other_dtypes_are_refused_by_name(dtype):
    if not hasattr(jnp, dtype):
        pytest.skip(f"JAX {jax.__version__} has no {dtype}")
    x = jnp.zeros(3, getattr(ml_dtypes, dtype))
    f = je.elementwise(lambda x: x.astype(jnp.float32), name="f")
    with pytest.raises(TypeError, match=rf"'f' got argument 'x' of dtype {dtype}; kernels take"):
        f(x)
    inside = je.elementwise(lambda x: x.astype(dtype).astype(jnp.float32))
    with pytest.raises(NotImplementedError, match=rf"has dtype {dtype}, at .*test_dtypes"):
        inside(jnp.ones(3))


def test_keys_are_refused_when_traced():
    keys = jax.random.split(jax.random.key(0), 3)
    f = je.elementwise(lambda key: jax.random.uniform(key), name="draw")
    with pytest.raises(TypeError, match=r"'draw' got argument 'key' of dtype key<fry>"):
        jax.jit(f).trace(keys)


def test_bits_of_float8(x64):
    x = reference.of_every_exponent(None, "float8_e4m3fn", 0)
    f = je.elementwise(lambda x: lax.bitcast_convert_type(x, jnp.uint8))
    np.testing.assert_array_equal(f(x), x.view(np.uint8))


# ---- 64 bits without jax_enable_x64 --------------------------------------------------------------


@pytest.fixture
def wide():
    """An array of 64 bits that was made where there were such types."""
    with jax.enable_x64(True):
        return jnp.array([1.0, 2.0, 3.0, 4.0])


def _power(x):
    return lax.fori_loop(0, 10, lambda _, y: y * x, x)


@pytest.mark.parametrize("lowering", ["auto", "kernel", "xla"])
@pytest.mark.usefixtures("host_compiler")
class TestWideArrays:
    def test_values(self, wide, lowering):
        make = functools.partial(je.elementwise, lowering=lowering)
        same(make(lambda x: x + x)(wide), np.array(wide) * 2)
        same(make(lambda x: 2 * x + 0.1)(wide), np.array(wide) * 2 + 0.1)
        same(make(_power)(wide), np.array(wide) ** 11)
        with jax.enable_x64(True):
            integers = jnp.arange(4) << 40
        same(make(lambda n: n + n)(integers), np.array(integers) * 2)

    def test_captured(self, wide, lowering):
        scalar, x = wide[1], jnp.float32([3])
        for fun in (  # an operand of the functor, a table
            lambda x: x * lax.convert_element_type(lax.neg(scalar), jnp.float32),
            lambda x: x * lax.convert_element_type(lax.reduce_max(-wide[1:3], (0,)), jnp.float32),
        ):
            same(je.elementwise(fun, lowering=lowering)(x), np.float32([-6]))

    def test_derivatives(self, wide, lowering):
        f = je.elementwise(_power, lowering=lowering)
        expected = 11 * np.array(wide) ** 10
        with jax.enable_x64(True):
            value, pull = jax.vjp(f, wide)
        same(pull(jnp.ones_like(value))[0], expected)  # it is transposed here
        same(jax.jvp(f, (wide,), (wide,))[1], expected * np.array(wide))

    def test_gradients_of_what_is_broadcast(self, wide, lowering):
        f = je.elementwise(lambda x, s: x * s, lowering=lowering)
        value, pull = jax.vjp(f, wide, wide[0])
        same(pull(value)[1], np.square(np.array(wide)).sum())

    def test_a_program_is_lowered_later(self, wide, lowering):
        f = je.elementwise(lambda x: jax.scipy.special.gammainc(x, 2 * x), lowering=lowering)
        with jax.enable_x64(True):
            traced = jax.jit(f).trace(wide)
        expected = scipy.special.gammainc(np.array(wide), 2 * np.array(wide))
        np.testing.assert_allclose(traced.lower().compile()(wide), expected, rtol=1e-13)


def test_an_operand_of_another_dtype_than_the_functors_is_refused():
    (equation,) = calls(je.elementwise(lambda x: x + x), np.float32(1))
    with pytest.raises(TypeError, match=r"an operand of Functor\(.*float32\[\]\) has dtype int32"):
        elementwise_p.bind(jnp.int32(1), **equation.params)
