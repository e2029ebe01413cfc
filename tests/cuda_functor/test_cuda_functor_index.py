"""The index of an element as an operand: what it is, and that no memory holds it."""

import functools
import itertools

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from cases import TARGET, kernels, lowered
from jax import lax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import jax_elementwise as je

pytestmark = pytest.mark.usefixtures("host_compiler")

kernel = functools.partial(je.elementwise, lowering="kernel")
INDEX = je.cuda_functor("i", inputs="x", index="i", outputs="int", name="index")
SUM = je.cuda_functor(
    "struct Sum { float a; __device__ float operator()(float x, float y, long long i) const {"
    " return a * (x + y) + i; } };",
    scalars="float a",
    index="i",
    reference=lambda x, y, a, i: a * (x + y) + i.astype("float32"),
    outputs="float",
)


def operands_of(text):
    """How many operands the only call of a kernel has."""
    assert len(kernels(text)) == 1
    (given,) = [
        line.split(f"@{TARGET}(")[1].split(")")[0]
        for line in text.split("\n")
        if f"@{TARGET}(" in line
    ]
    return given.count("%")


def arange(*shape):
    return np.arange(np.prod(shape, dtype=int), dtype=np.int32).reshape(shape)


# ---- Values --------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(), (1,), (0,), (5,), (4097,), (3, 5, 7), (2, 1, 4)], ids=str)
def test_it_is_arange(shape):
    np.testing.assert_array_equal(INDEX(np.zeros(shape, np.float32)), arange(*shape))
    np.testing.assert_array_equal(jax.jit(INDEX)(np.zeros(shape, np.int8)), arange(*shape))


def test_it_has_64_bits(x64):
    f = je.cuda_functor("i", inputs="x", index="i")
    result = f(np.zeros(9, np.float32))
    assert result.dtype == np.int64
    np.testing.assert_array_equal(result, np.arange(9))
    large = je.cuda_functor("i << 40", inputs="x", index="i")
    np.testing.assert_array_equal(large(np.zeros(3, np.float32)), np.arange(3) << 40)


def test_without_64_bit_types_it_counts_to_2_31():
    f = je.cuda_functor("x", inputs="x", index="i", outputs="float", name="f")
    shape = jax.ShapeDtypeStruct((2**16, 2**16), "float32")
    with pytest.raises(ValueError, match="'f' asks for the index of one of 4294967296 elements"):
        jax.eval_shape(f, shape)
    with jax.enable_x64(True):
        assert jax.eval_shape(f, shape).shape == shape.shape


@pytest.mark.parametrize("lowering", ["auto", "xla"])
def test_it_is_that_of_the_joint_shape(lowering):
    f = je.cuda_functor(
        "x + y + i", inputs="x, y", index="i", outputs="float", lowering=lowering,
        reference=lambda x, y, i: x + y + i,
    )  # fmt: skip
    x, y = np.float32([[1], [2]]), np.float32([10, 20, 30])
    np.testing.assert_array_equal(f(x, y), x + y + arange(2, 3))


def test_a_structs_operator_has_it_last():
    x = np.float32([1, 2, 3])
    np.testing.assert_array_equal(SUM(x, 1.0, 2.0), 2 * (x + 1) + np.arange(3))
    np.testing.assert_array_equal(SUM(x, y=x, a=1.0), 2 * x + np.arange(3))
    several = je.cuda_functor(
        "struct S { template <class T> void operator()(T x, long long k, T& s, int& j) const {"
        " s = x + k; j = k; } };",
        inputs="T x",
        index="k",
        outputs=["T", "int"],
    )
    s, j = several(x)
    np.testing.assert_array_equal(s, x + np.arange(3))
    np.testing.assert_array_equal(j, np.arange(3))


def test_it_belongs_to_the_call_inside_of_vmap():
    x = np.zeros((3, 4, 5), np.float32)
    for into, out in itertools.product((0, 1, 2), (0, 2)):
        inner = [n for axis, n in enumerate(x.shape) if axis != into]
        expected = np.stack([arange(*inner)] * x.shape[into], out)
        f = jax.vmap(INDEX, into, out)
        np.testing.assert_array_equal(f(x), expected)
        assert operands_of(lowered(f, x, platform="cpu")) == 1
    twice = jax.vmap(jax.vmap(INDEX, 1), 0)
    np.testing.assert_array_equal(twice(x), np.broadcast_to(np.arange(4), (3, 5, 4)))
    a = np.float32([1, 10])
    mapped = jax.vmap(SUM, (None, None, 0))(np.float32([1, 2]), 0.0, a)
    np.testing.assert_array_equal(mapped, [[1, 3], [10, 21]])


@pytest.mark.parametrize("fun", [lambda x: INDEX(x) + 1, INDEX], ids=["inside", "itself"])
def test_inside_of_elementwise_there_is_none(fun):
    f = je.elementwise(fun)
    with pytest.raises(NotImplementedError, match="'index', which asks for the index of the elem"):
        f(np.zeros(3, np.float32))


def test_derivatives_know_it():
    x = jnp.ones(4)
    for rule in ({"reference": lambda x, i: x * x * i}, {"jvp": lambda x, i, dx: 2 * x * i * dx}):
        f = je.cuda_functor("x * x * i", inputs="float x", index="i", outputs="float", **rule)
        gradient = jax.grad(lambda x, f=f: f(x).sum())
        np.testing.assert_array_equal(gradient(x), 2 * np.arange(4))
        np.testing.assert_array_equal(jax.vmap(gradient)(jnp.ones((2, 4))), [[0, 2, 4, 6]] * 2)
        # Of the derivative, too, it is no operand.
        assert operands_of(lowered(gradient, x, platform="cuda")) <= 2  # and the cotangent
        assert "ElementIndex" in f.cuda_source(x)


def test_a_tangent_in_cuda_takes_it_as_an_operand():
    tangent = je.cuda_functor("i * dx", inputs="x, i, dx", outputs="float")
    f = je.cuda_functor("x * i", inputs="float x", index="i", outputs="float", jvp=tangent)
    gradient = jax.grad(lambda x: f(x).sum())(jnp.ones(4))
    np.testing.assert_array_equal(gradient, np.arange(4))


def test_scan_and_shard_map():
    x = np.zeros((3, 5), np.float32)
    _, rows = lax.scan(lambda c, row: (c, INDEX(row)), 0, x)
    np.testing.assert_array_equal(rows, np.broadcast_to(np.arange(5), (3, 5)))
    _, sums = lax.scan(lambda c, row: (c, kernel(lambda a, b: a + b)(row, jnp.arange(5))), 0, x)
    np.testing.assert_array_equal(sums, np.broadcast_to(np.arange(5), (3, 5)))
    mesh = jax.make_mesh((4,), ("i",), axis_types=(AxisType.Auto,))
    local = jax.shard_map(INDEX, mesh=mesh, in_specs=P("i"), out_specs=P("i"))
    np.testing.assert_array_equal(local(np.zeros(8, np.float32)), [0, 1] * 4)


@pytest.mark.parametrize("axis_type", [AxisType.Explicit, AxisType.Auto], ids=str)
def test_of_a_sharded_array_it_is_that_of_the_whole(axis_type):
    mesh = jax.make_mesh((8,), ("i",), axis_types=(axis_type,))
    with jax.set_mesh(mesh):
        for spec in (P("i"), P(None, "i")):
            x = jax.device_put(jnp.zeros((16, 8)), NamedSharding(mesh, spec))
            np.testing.assert_array_equal(jax.device_get(jax.jit(INDEX)(x)), arange(16, 8))


# ---- In no memory --------------------------------------------------------------------------------


@pytest.mark.parametrize("platform", ["cpu", "cuda"])
def test_the_call_has_no_operand_for_it(platform):
    x = np.zeros((4, 6), np.float32)
    assert operands_of(lowered(INDEX, x, platform=platform)) == 1
    assert operands_of(lowered(SUM, x, x[0], 2.0, platform=platform)) == 3
    text = INDEX.cuda_source(x)
    assert "ElementIndex{}" in text
    assert "const int* " not in text
    text = jax.vmap(INDEX, 1)
    assert "BroadcastIndex<0>{}" in kernel_source(lambda x: text(x), x)


def kernel_source(fun, *args):
    text = jax.jit(fun).trace(*args).lower(lowering_platforms=("cpu",)).as_text()
    return text.split('source = "')[1].split('"}')[0]


@pytest.mark.sampled
@pytest.mark.parametrize(
    "make",
    [
        lambda: jnp.arange(300),
        lambda: lax.iota("int8", 300),
        lambda: lax.iota("int16", 300),
        lambda: lax.iota("float32", 300),
        lambda: lax.iota("float16", 300),
        lambda: jnp.arange(1, 301),
        lambda: jnp.arange(0, 600, 2),
        lambda: lax.broadcasted_iota("int32", (30, 10), 1),
        lambda: lax.broadcasted_iota("int32", (30, 10), 0),
        lambda: lax.reshape(lax.iota("int32", 300), (10, 30)).T,
        lambda: jnp.broadcast_to(jnp.arange(10), (30, 10)),
        lambda: jnp.arange(300)[::-1],
        lambda: jnp.roll(jnp.arange(300), 1),
    ],
)  # fmt: skip
def test_arrays_that_hold_numbers_are_read(make):
    f = kernel(lambda i, j: i + j)
    expected = np.asarray(make())
    text = lowered(lambda j: f(make(), j), expected, platform="cpu")
    assert operands_of(text) == 2
    actual = jax.jit(lambda j: f(make(), j))(expected)
    np.testing.assert_array_equal(actual, expected + expected)
    source = f.cuda_source(expected, expected)
    assert "Index{}" not in source


def test_operands_may_be_overwritten_beside_it():
    f = je.cuda_functor(
        "a * x + y + i", inputs="x, y", scalars="a", index="i", outputs="float",
        input_output_aliases={1: 0},
    )  # fmt: skip
    x, y = np.float32([1, 2, 3]), np.float32([10, 20, 30])
    text = lowered(f, x, y, 2.0, platform="cpu")
    assert "operand_index = 1" in text
    assert operands_of(text) == 3
    np.testing.assert_array_equal(f(x, y, 2.0), 2 * x + y + np.arange(3))


def test_a_functor_of_nothing_but_the_index_keeps_the_shape():
    f = je.cuda_functor("i * i", inputs="x, y", index="i", outputs="int")
    x, y = np.zeros((3, 1), np.float32), np.zeros(4, np.float32)
    np.testing.assert_array_equal(f(x, y), arange(3, 4) ** 2)
    np.testing.assert_array_equal(jax.vmap(f, (0, None))(x, y), [np.arange(4) ** 2] * 3)
