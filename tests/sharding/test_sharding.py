"""Arrays spread over devices: values, types and placements as with ``jax.numpy``, no collectives.

Needs 8 devices; on a CPU, ``conftest.py`` makes them.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import assert_same, collectives, kernels, lowered, random_array
from jax import lax
from jax.sharding import PartitionSpec as P
from support.meshes import AUTO, EXPLICIT, KINDS, PLACEMENTS, assert_alike, make_mesh, put

import jax_elementwise as je

pytestmark = pytest.mark.skipif(jax.device_count() < 8, reason="needs 8 devices")


def reference(x, w):
    return jnp.tanh(x * w) + w


F = je.elementwise(reference)


def gradient(f):
    return jax.grad(lambda x, w: f(x, w).sum(), (0, 1))


# ---- Explicit and automatic meshes ---------------------------------------------------------------


@pytest.mark.sampled
@KINDS
@pytest.mark.parametrize("placement", PLACEMENTS.values(), ids=PLACEMENTS)
def test_values_types_and_placements_are_those_of_jax(kind, placement, rng):
    shape, spec, other_shape, other_spec = placement
    mesh = make_mesh(kind)
    with jax.set_mesh(mesh):
        x = put(mesh, random_array(rng, shape), *spec)
        w = put(mesh, random_array(rng, other_shape), *other_spec)
        assert_alike(jax.jit(F)(x, w), jax.jit(reference)(x, w))
        assert_alike(jax.jit(gradient(F))(x, w), jax.jit(gradient(reference))(x, w), eps=256)
        assert jax.eval_shape(F, x, w).sharding == jax.eval_shape(reference, x, w).sharding


@pytest.mark.sampled
@pytest.mark.parametrize("placement", PLACEMENTS.values(), ids=PLACEMENTS)
def test_explicit_meshes_need_no_collective(placement, rng):
    shape, spec, other_shape, other_spec = placement
    mesh = make_mesh(EXPLICIT)
    with jax.set_mesh(mesh):
        x = put(mesh, random_array(rng, shape), *spec)
        w = put(mesh, random_array(rng, other_shape), *other_spec)
        assert collectives(F, x, w) == []
        assert collectives(gradient(F), x, w) == collectives(gradient(reference), x, w)


def test_collectives_would_be_seen(rng):
    mesh = make_mesh(AUTO)
    x = put(mesh, random_array(rng, (64, 8)), "x")
    assert collectives(lambda x: x.sum(), x) == ["all-reduce"]


@KINDS
def test_vmap_over_a_sharded_axis(kind, rng):
    mesh = make_mesh(kind)
    with jax.set_mesh(mesh):
        x = put(mesh, random_array(rng, (64, 8)), "x", "y")
        w = put(mesh, random_array(rng, (8,)), "y")
        for axes in ((0, None), (1, 0)):
            mine, theirs = (jax.jit(jax.vmap(f, axes))(x, w) for f in (F, reference))
            assert_alike(mine, theirs)
        mine, theirs = (
            jax.jit(jax.vmap(jax.grad(lambda x, w, f=f: f(x, w).sum()), (0, None)))(x, w)
            for f in (F, reference)
        )
        assert_alike(mine, theirs)


@KINDS
def test_outside_of_jit(kind, rng):
    mesh = make_mesh(kind)
    x = put(mesh, random_array(rng, (64, 8)), "x")
    w = put(mesh, random_array(rng, (8,)), "y")
    assert_alike(F(x, w), jax.jit(reference)(x, w))
    assert_alike(F(x, 2.0), jax.jit(reference)(x, 2.0))
    with jax.set_mesh(mesh):
        assert_alike(F(x, w), jax.jit(reference)(x, w))
        assert_alike(gradient(F)(x, w), jax.jit(gradient(reference))(x, w), eps=256)


@KINDS
def test_a_captured_replicated_parameter_has_a_replicated_gradient(kind, rng):
    mesh = make_mesh(kind)

    def loss(wrap, s, x):
        return wrap(lambda x: jnp.sin(x * s))(x).sum()

    with jax.set_mesh(mesh):
        x = put(mesh, random_array(rng, (64, 8)), "x", "y")
        s = put(mesh, jnp.float32(0.5))
        mine, theirs = (
            jax.jit(jax.value_and_grad(functools.partial(loss, wrap), (0, 1)))(s, x)
            for wrap in (je.elementwise, lambda f: f)
        )
        assert_alike(mine, theirs, eps=512)


@KINDS
def test_scan_and_remat_over_sharded_arrays(kind, rng):
    mesh = make_mesh(kind)

    def run(f, x, w):
        step = jax.checkpoint(lambda carry, _: (f(carry, w), None))
        return lax.scan(step, x, None, length=3)[0].sum()

    with jax.set_mesh(mesh):
        x = put(mesh, random_array(rng, (64, 8)), "x", "y")
        w = put(mesh, random_array(rng, (8,)), "y")
        mine, theirs = (
            jax.jit(jax.grad(functools.partial(run, f), (0, 1)))(x, w) for f in (F, reference)
        )
        assert_alike(mine, theirs, eps=512)


def test_several_results_and_unread_operands_are_placed_alike(rng):
    def fun(x, w):
        return {"sum": x + w, "x": x * 2, "w": w, "one": 1.0}

    def joint(x, w):
        return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (64, 8)) + 0 * (x + w), fun(x, w))

    mesh = make_mesh(EXPLICIT)
    with jax.set_mesh(mesh):
        x = put(mesh, random_array(rng, (64, 8)), "x")
        w = put(mesh, random_array(rng, (8,)), "y")
        mine, theirs = jax.jit(je.elementwise(fun))(x, w), jax.jit(joint)(x, w)
        assert_same(mine, theirs)
        shown = {str(jax.typeof(leaf)).lstrip("~") for leaf in mine.values()}
        assert shown == {"float32[64@x,8@y]"}
        only = jax.jit(je.elementwise(lambda x, w: x))(x, w)
        assert str(jax.typeof(only)) == "float32[64@x,8@y]"


@pytest.mark.parametrize(
    ("spec", "other"),
    [(("x",), (None, "x")), (("x", "y"), ("y", "x")), (("x",), ("y",)), ((("x", "y"),), ("x",))],
    ids=str,
)
def test_shardings_that_conflict_raise_what_jax_raises(spec, other, rng):
    mesh = make_mesh(EXPLICIT)
    a = random_array(rng, (64, 8))
    x, w = put(mesh, a, *spec), put(mesh, a, *other)
    for f in (F, je.elementwise(lambda x, w: x)):
        with pytest.raises(Exception, match="shard") as theirs:
            jax.jit(jnp.add)(x, w)
        with pytest.raises(type(theirs.value)) as mine:
            jax.jit(f)(x, w)
        assert str(mine.value).split("\n")[0] == str(theirs.value).split("\n")[0]


def test_arrays_of_two_meshes_raise_what_jax_raises(rng):
    a = random_array(rng, (64, 8))
    x = put(make_mesh(EXPLICIT), a, "x")
    w = put(jax.make_mesh((8,), ("z",), axis_types=(EXPLICIT,)), a, "z")
    for f in (reference, F):
        with pytest.raises(ValueError, match="Mesh for all inputs should be equal"):
            jax.jit(f)(x, w)


def test_one_function_under_different_meshes_in_one_process(rng):
    f = jax.jit(gradient(je.elementwise(lambda x, w: jax.nn.gelu(x) * w)))
    x, w = random_array(rng, (64, 8)), random_array(rng, (8,))
    expected = f(x, w)
    meshes = [
        make_mesh(EXPLICIT),
        jax.make_mesh((8,), ("x",), axis_types=(EXPLICIT,)),
        make_mesh(AUTO),
        jax.make_mesh((2, 4), ("y", "x"), axis_types=(EXPLICIT, AUTO)),
        make_mesh(EXPLICIT),
    ]
    for mesh in meshes:
        with jax.set_mesh(mesh):
            assert_same(f(put(mesh, x, "x"), put(mesh, w)), expected, eps=256)
    assert_same(f(x, w), expected)


# ---- shard_map -----------------------------------------------------------------------------------


@pytest.mark.sampled
@KINDS
@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("axes", [None, {"x"}], ids=["full", "partial"])
def test_shard_map(kind, check, axes, rng):
    mesh = make_mesh(kind)

    def run(f, x, w):
        def local(x, w):
            return jax.value_and_grad(lambda x, w: lax.psum(f(x, w).sum(), "x"), (0, 1))(x, w)

        options = {} if axes is None else {"axis_names": axes}
        mapped = jax.shard_map(
            local,
            mesh=mesh,
            in_specs=(P("x"), P()),
            out_specs=(P(), (P("x"), P())),
            check_vma=check,
            **options,
        )
        return jax.jit(mapped)(x, w)

    x, w = put(mesh, random_array(rng, (64,)), "x"), put(mesh, jnp.float32(0.7))
    with jax.set_mesh(mesh):
        assert_alike(run(F, x, w), run(reference, x, w), eps=256)


@KINDS
def test_shard_map_that_leaves_an_axis_to_the_mesh(kind, rng):
    mesh = make_mesh(kind)
    x = put(mesh, random_array(rng, (64, 8)), "x", "y" if kind is EXPLICIT else None)
    w = put(mesh, random_array(rng, (8,)), "y" if kind is EXPLICIT else None)

    def run(f):
        def local(x, w):
            loss = jax.value_and_grad(lambda x, w: f(x, w).sum(), (0, 1))(x, w)
            return f(x, w), loss[1][0]

        mapped = jax.shard_map(
            local, mesh=mesh, in_specs=(P("x"), P()), out_specs=P("x"), axis_names={"x"}
        )
        return jax.jit(mapped)(x, w)

    with jax.set_mesh(mesh):
        assert_alike(run(F), run(reference))


def test_varying_axes_of_results_are_the_union_of_the_operands(rng):
    mesh = make_mesh(AUTO)
    seen = []

    def local(x, w):
        for f in (F, reference, je.elementwise(lambda x, w: w), je.elementwise(lambda x, w: 1.0)):
            seen.append(str(jax.typeof(f(x, w))).lstrip("~"))
        seen.append(str(jax.typeof(F(w, w))))
        return F(x, w), F(w, w)

    jax.jit(
        jax.shard_map(
            local, mesh=mesh, in_specs=(P("x"), P("y")), out_specs=(P(("x", "y")), P("y"))
        )
    )(random_array(rng, (64,)), random_array(rng, (32,)))
    assert "{V:(x,y)}" in seen[0]
    assert set(seen[:4]) == {seen[1]}
    assert "{V:y}" in seen[4]


def test_vmap_inside_and_outside_of_shard_map(rng):
    mesh = make_mesh(AUTO)
    x, w = random_array(rng, (8, 3)), random_array(rng, (5, 3))

    def run(f):
        inside = jax.shard_map(
            lambda x, w: jax.vmap(f, (None, 0))(x, w),
            mesh=mesh, in_specs=(P("x"), P()), out_specs=P(None, "x"),
        )  # fmt: skip
        return jax.jit(jax.vmap(inside, (None, 0)))(x, w[:, None, None])

    assert_same(run(F), run(reference))


# ---- For CUDA ------------------------------------------------------------------------------------


@pytest.mark.parametrize("derivative", [False, True])
def test_cross_lowered_inside_an_explicit_mesh_each_device_makes_one_call(derivative, rng):
    mesh = make_mesh(EXPLICIT)
    run = gradient(F) if derivative else F
    with jax.set_mesh(mesh):
        x = put(mesh, random_array(rng, (64, 8)), "x", "y")
        w = put(mesh, random_array(rng, (8,)), "y")
        text = lowered(run, x, w)
    assert len(kernels(text)) == 1
    assert "manual_computation" in text
    assert "tensor<16x4xf32>" in text.split("custom_call")[1]


def test_cross_lowered_inside_shard_map_it_is_a_bare_call(rng):
    mesh = make_mesh(AUTO)
    mapped = jax.shard_map(F, mesh=mesh, in_specs=(P("x"), P()), out_specs=P("x"))
    text = lowered(mapped, random_array(rng, (64, 8)), random_array(rng, (8,)))
    assert len(kernels(text)) == 1
    assert "(tensor<16x8xf32>, tensor<8xf32>) -> tensor<16x8xf32>" in text


def test_the_kernel_is_the_same_on_one_device_and_on_many(rng):
    mesh = make_mesh(EXPLICIT)
    x, w = random_array(rng, (64, 8)), random_array(rng, (8,))
    with jax.set_mesh(mesh):
        sharded = kernels(lowered(F, put(mesh, x, "x", "y"), put(mesh, w, "y")))
    assert sharded == kernels(lowered(F, x, w))
    np.testing.assert_array_equal(F(x, w), jax.jit(F)(x, w))
