"""Results in the buffers of operands: the same pointers, right values, no memory for copies.

On a CPU this shows what XLA's own operations do with donated arguments, which is no different.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gpu import device
from jax import lax

import jax_elementwise as je
from jax_elementwise._codegen.types import DTYPES

pytestmark = pytest.mark.gpu

SIZES = [1, 5, 37, 1023, 2**16 + 3]


@pytest.fixture(autouse=True)
def x64_types():
    with jax.enable_x64(True):
        yield


def update(x, y):
    """Of scalars or of NumPy's arrays. Applied twice it gives other values, so that is seen."""
    return x ^ ~y if x.dtype == bool else x + x + y


def numbers(rng, shape, dtype):
    """Small numbers, with which floats of every width are exact."""
    if dtype == "bool":
        return rng.random(shape) < 0.5
    low = 0 if dtype.startswith("u") else -8
    return np.asarray(jnp.asarray(rng.integers(low, 9, shape), dtype))


def on_device(*arrays):
    """Arrays of their own on the device."""
    return [jax.block_until_ready(jnp.array(x)) for x in arrays]


def pointer(x):
    return x.addressable_data(0).unsafe_buffer_pointer()


def adam(p, m, v, g):
    m = 0.5 * m + g
    v = 0.5 * v + g * g
    return p - m / (1 + v * v), m, v


ADAM = je.elementwise(adam, name="adam", input_output_aliases={0: 0, 1: 1, 2: 2})


# ---- One call ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("operand", [0, 1])
def test_a_donated_operand_is_updated_where_it_is(dtype, operand, rng):
    f = je.elementwise(update, input_output_aliases={operand: 0})
    for size in SIZES:
        values = [numbers(rng, size, dtype) for _ in range(2)]
        xs = on_device(*values)
        before = pointer(xs[operand])
        compiled = jax.jit(f, donate_argnums=operand).lower(*xs).compile()
        assert device.custom_calls(compiled) == (0 if device.ON_CPU else 1)
        result = compiled(*xs)
        assert xs[operand].is_deleted()
        assert not xs[1 - operand].is_deleted()
        assert pointer(result) == before
        np.testing.assert_array_equal(np.asarray(result), update(*values))
        np.testing.assert_array_equal(np.asarray(xs[1 - operand]), values[1 - operand])


@pytest.mark.parametrize("dtype", DTYPES)
def test_without_donation_operands_keep_their_values(dtype, rng):
    f = je.elementwise(update, input_output_aliases={0: 0})
    for size in SIZES:
        values = [numbers(rng, size, dtype) for _ in range(2)]
        xs = on_device(*values)
        for call in (f, jax.jit(f)):
            result = call(*xs)
            assert pointer(result) not in map(pointer, xs)
            np.testing.assert_array_equal(np.asarray(result), update(*values))
            for x, value in zip(xs, values, strict=True):
                np.testing.assert_array_equal(np.asarray(x), value)


@pytest.mark.parametrize("shape", [(), (129,), (64, 1), (1, 129)], ids=str)
def test_beside_operands_that_are_broadcast(shape, rng):
    f = je.elementwise(lambda x, y: (x + x + y, x > y), input_output_aliases={0: 0})
    x, y = numbers(rng, (64, 129), "float32"), numbers(rng, shape, "float32")
    a, b = on_device(x, y)
    before = pointer(a)
    twice, greater = jax.jit(f, donate_argnums=0)(a, b)
    assert pointer(twice) == before
    np.testing.assert_array_equal(twice, x + x + y)
    np.testing.assert_array_equal(greater, x > y)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "bool"])
def test_an_operand_that_stands_twice_in_a_call(dtype, rng):
    """The second one must not be overwritten while it is read."""
    f = je.elementwise(lambda x, y: (update(x, y), update(y, y)), input_output_aliases={0: 0, 1: 1})
    for size in SIZES:
        x = numbers(rng, size, dtype)
        (donated,) = on_device(x)
        results = jax.jit(lambda x: f(x, x), donate_argnums=0)(donated)
        for result in results:
            np.testing.assert_array_equal(np.asarray(result), update(x, x))


def test_a_slice_of_the_operand_beside_it(rng):
    """XLA may hand the slice to the kernel as a pointer into the operand."""
    x = numbers(rng, (64, 128), "float32")
    f = je.elementwise(lambda x, row: x + x + row, input_output_aliases={0: 0})
    step = jax.jit(lambda x: f(x, x[32]), donate_argnums=0)
    options = {} if device.ON_CPU else {"xla_gpu_enable_dynamic_slice_fusion": True}
    for extra in ({}, options):
        (donated,) = on_device(x)
        compiled = step.lower(donated).compile(compiler_options=extra)
        np.testing.assert_array_equal(compiled(donated), x + x + x[32])


def test_a_slice_as_the_operand(rng):
    x = numbers(rng, (3, 4096), "float32")
    f = je.elementwise(lambda x: x + x + 1, input_output_aliases={0: 0})
    step = jax.jit(lambda x: (f(x[1]), x))
    options = {} if device.ON_CPU else {"xla_gpu_enable_dynamic_slice_fusion": True}
    for extra in ({}, options):
        result, same = step.lower(x).compile(compiler_options=extra)(x)
        np.testing.assert_array_equal(result, x[1] + x[1] + 1)
        np.testing.assert_array_equal(same, x)


# ---- Programs ------------------------------------------------------------------------------------


def reference_steps(count, *values):
    wide = [np.asarray(x, np.float64) for x in values]
    for _ in range(count):
        wide[:3] = adam(*wide)
    return wide[:3]


def test_several_operands_in_many_calls(rng):
    values = [numbers(rng, 2**16 + 5, "float32") for _ in range(4)]
    *pmv, g = on_device(*values)
    step = jax.jit(ADAM, donate_argnums=(0, 1, 2))
    before = list(map(pointer, pmv))
    for _ in range(10):
        pmv = step(*pmv, g)
    assert list(map(pointer, pmv)) == before
    for actual, expected in zip(pmv, reference_steps(10, *values), strict=True):
        np.testing.assert_allclose(actual, expected, 1e-5, 1e-5)
    np.testing.assert_array_equal(g, values[3])


@pytest.mark.parametrize("donate", [(), (0, 1, 2)], ids=["kept", "donated"])
def test_inside_a_loop(donate, rng):
    values = [numbers(rng, 4099, "float32") for _ in range(4)]

    def run(p, m, v, g):
        return lax.fori_loop(0, 25, lambda _, pmv: tuple(ADAM(*pmv, g)), (p, m, v))

    xs = on_device(*values)
    results = jax.jit(run, donate_argnums=donate)(*xs)
    for actual, expected in zip(results, reference_steps(25, *values), strict=True):
        np.testing.assert_allclose(actual, expected, 1e-5, 1e-5)
    for i, (x, value) in enumerate(zip(xs, values, strict=True)):
        assert x.is_deleted() == (i in donate)
        if i not in donate:
            np.testing.assert_array_equal(x, value)


def test_under_vmap_and_grad(rng):
    x, y = (numbers(rng, (7, 129), "float32") for _ in range(2))
    f = je.elementwise(lambda x, y: x * y + x, input_output_aliases={0: 0})
    (donated, kept) = on_device(x, y)
    np.testing.assert_array_equal(jax.jit(jax.vmap(f), donate_argnums=0)(donated, kept), x * y + x)
    np.testing.assert_array_equal(jax.jit(jax.vmap(f, (None, 0)))(x[0], y), x[0] * y + x[0])
    gradients = jax.jit(jax.grad(lambda x, y: f(x, y).sum(), (0, 1)))(x, y)
    np.testing.assert_array_equal(gradients[0], y + 1)
    np.testing.assert_array_equal(gradients[1], x)


def temporary_bytes(fun):
    """Of a program that updates three of four arrays of 64 MiB, and donates them."""
    large = jax.ShapeDtypeStruct((2**24,), jnp.float32)
    compiled = jax.jit(fun, donate_argnums=(0, 1, 2)).lower(*[large] * 4).compile()
    memory = compiled.memory_analysis()
    assert memory.alias_size_in_bytes >= 3 * 2**26
    return memory.temp_size_in_bytes


def test_large_donated_arrays_are_not_copied():
    assert temporary_bytes(ADAM) < 2**20


def test_large_donated_arrays_are_not_copied_inside_a_loop(kernels_only):
    def loop(f, p, m, v, g):
        return lax.fori_loop(0, 9, lambda _, pmv: tuple(f(*pmv, g)), (p, m, v))

    assert temporary_bytes(functools.partial(loop, ADAM)) < 2**20
    assert temporary_bytes(functools.partial(loop, je.elementwise(adam))) >= 3 * 2**26
