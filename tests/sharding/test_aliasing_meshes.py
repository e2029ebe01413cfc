"""``input_output_aliases`` over several devices: which buffers are overwritten."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import TARGET, assert_same, collectives_in, random_array
from jax.sharding import PartitionSpec as P
from support import meshes
from support.meshes import AUTO, EXPLICIT, KINDS, make_mesh

import jax_elementwise as je

pytestmark = [
    pytest.mark.skipif(jax.device_count() < 8, reason="needs 8 devices"),
    pytest.mark.usefixtures("host_compiler"),
]

SPECS = pytest.mark.parametrize("spec", [("x", "y"), ("x",), (("y", "x"),), ()], ids=str)
SHAPE = (512, 512)
BYTES = 4 * 512 * 512


def momentum(p, m, g):
    m = 0.9 * m + 0.1 * g
    return p - m, m


def aliased(fun, aliases):
    return je.elementwise(fun, lowering="kernel", input_output_aliases=aliases)


def put(mesh, array, *spec):
    """In memory of JAX, which can be donated."""
    return jax.jit(jnp.copy)(meshes.put(mesh, array, *spec))


def addresses(array):
    return {s.device: s.data.unsafe_buffer_pointer() for s in array.addressable_shards}


def copies(compiled):
    text = compiled.as_text()
    assert TARGET in text
    assert collectives_in(text) == []
    return len(re.findall(r"f32\[\d+,\d+\]\S* copy\(", text))


@pytest.mark.sampled
@KINDS
@SPECS
def test_donated_arrays_are_updated_where_they_are(kind, spec, rng):
    mesh = make_mesh(kind)
    arrays = [random_array(rng, SHAPE) for _ in range(3)]
    with jax.set_mesh(mesh):
        p, m, g = (put(mesh, a, *spec) for a in arrays)
        before = addresses(p), addresses(m)
        found = {}
        for aliases in ({0: 0, 1: 1}, None):
            step = jax.jit(aliased(momentum, aliases), donate_argnums=(0, 1))
            compiled = step.lower(p, m, g).compile()
            found[bool(aliases)] = copies(compiled), compiled.memory_analysis().temp_size_in_bytes
        results = jax.jit(aliased(momentum, {0: 0, 1: 1}), donate_argnums=(0, 1))(p, m, g)
    assert p.is_deleted()
    assert m.is_deleted()
    assert not g.is_deleted()
    assert tuple(map(addresses, results)) == before
    assert_same(results, momentum(*arrays))
    if kind is EXPLICIT:
        assert found[True] == (0, 0)
        assert found[False] > (0, 0)
    else:  # The partitioner of XLA drops the pairs: each result is written elsewhere and copied.
        assert found[True] <= found[False]


def test_inside_shard_map_they_are_updated_where_they_are(rng):
    mesh = make_mesh(AUTO)
    p, m, g = (put(mesh, random_array(rng, SHAPE), "x", "y") for _ in range(3))
    before, expected = addresses(p), momentum(*map(np.asarray, (p, m, g)))
    mapped = jax.shard_map(
        aliased(momentum, {0: 0, 1: 1}), mesh=mesh, in_specs=P("x", "y"), out_specs=P("x", "y")
    )
    compiled = jax.jit(mapped, donate_argnums=(0, 1)).lower(p, m, g).compile()
    assert copies(compiled) == compiled.memory_analysis().temp_size_in_bytes == 0
    results = compiled(p, m, g)
    assert addresses(results[0]) == before
    assert_same(results, expected)


@KINDS
@pytest.mark.filterwarnings("ignore:Some donated buffers were not usable")
def test_operands_that_are_placed_otherwise_than_the_results(kind, rng):
    mesh = make_mesh(kind)
    arrays = [random_array(rng, SHAPE) for _ in range(3)]
    with jax.set_mesh(mesh):
        args = [put(mesh, a, *s) for a, s in zip(arrays, (("x",), (None, "y"), ()), strict=True)]
        f = aliased(momentum, {0: 1, 1: 0})
        assert_same(jax.jit(f)(*args), momentum(*arrays))
        assert_same(jax.jit(f, donate_argnums=(2,))(*args), momentum(*arrays))


@KINDS
def test_what_is_read_afterwards_keeps_its_values(kind, rng):
    mesh = make_mesh(kind)
    a, b = random_array(rng, SHAPE), random_array(rng, SHAPE)

    def run(p, g):
        p = p + 1
        return aliased(momentum, {0: 0, 1: 1})(p, p, g), p

    with jax.set_mesh(mesh):
        args = put(mesh, a, "x"), put(mesh, b, "x")
        mine = jax.jit(run, donate_argnums=(0,))(*args)
    assert_same(mine, (momentum(a + 1, a + 1, b), a + 1))


@KINDS
def test_an_index_is_no_operand_that_is_counted(kind, rng):
    f = je.cuda_functor(
        "x + i", inputs="float x", outputs="float y", index="i", input_output_aliases={0: 0}
    )
    mesh = make_mesh(kind)
    a = random_array(rng, SHAPE)
    with jax.set_mesh(mesh):
        x = put(mesh, a, "x", "y")
        before = addresses(x)
        result = jax.jit(f, donate_argnums=0)(x)
    assert addresses(result) == before
    assert_same(result, a + jnp.arange(512 * 512.0).reshape(SHAPE))


@KINDS
@pytest.mark.parametrize("jit", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_aliases_that_cannot_be_are_refused(kind, jit, rng):
    mesh = make_mesh(kind)
    with jax.set_mesh(mesh):
        x = put(mesh, random_array(rng, (64, 8)), "x")
        row, n = put(mesh, random_array(rng, (8,))), put(mesh, jnp.ones((64, 8), jnp.int32), "x")
        f = aliased(lambda x, y: x + y, {1: 0})
        with pytest.raises(ValueError, match=r"an argument that is broadcast has no room"):
            jit(f)(x, row)
        with pytest.raises(TypeError, match=r"'y' of dtype int32 to result 0 of dtype float32"):
            jit(f)(x, n)
        with pytest.raises(ValueError, match=r"aliases argument 1, but this call has 1 array"):
            jit(aliased(lambda x: x + 1, {1: 0}))(x)
