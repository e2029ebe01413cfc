"""What devices tell each other: for kernels as much as for the same function in ``jax.numpy``.

Kernels are those for CPUs. Needs 8 devices, which ``conftest.py`` makes, and a C++ compiler.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import TARGET, assert_same, lowered, random_array
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from support.collectives import (
    PLACEMENTS,
    TABLE,
    TRANSFORMATIONS,
    assert_alike,
    check_row,
    found,
    kernel,
    total,
    two,
)
from support.meshes import AUTO, EXPLICIT, KINDS, make_mesh, put
from support.sampling import sampled

import jax_elementwise as je
from jax_elementwise import _compat

pytestmark = [
    pytest.mark.skipif(jax.device_count() < 8, reason="needs 8 devices"),
    pytest.mark.usefixtures("host_compiler"),
]


# ---- The table -----------------------------------------------------------------------------------


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("kind", "placement", "transformation"),
    sampled(
        [(kind, *row) for kind in (EXPLICIT, AUTO) for row in TABLE],
        [
            (kind, *row)
            for kind in (EXPLICIT, AUTO)
            for row in TABLE
            if row[1] == "grad" or (row[1] == "forward" and kind is AUTO) or row[0] == "outer"
        ],
    ),
    ids=lambda value: getattr(value, "name", value),
)
def test_collectives_and_placements_are_those_of_jax(kind, placement, transformation, rng):
    shape, _, other_shape, _ = PLACEMENTS[placement]
    x, w = random_array(rng, shape), random_array(rng, other_shape)
    check_row(make_mesh(kind), placement, transformation, x, w)


@KINDS
def test_each_device_has_its_part(kind, rng):
    mesh = make_mesh(kind)
    with jax.set_mesh(mesh):
        x = put(mesh, random_array(rng, (64, 8)), "x", "y")
        w = put(mesh, random_array(rng, (8,)), "y")
        (shapes,) = found(kernel(two), x, w).shapes
    parts = {"explicit": {"16,4", "4"}, "auto": {"16,4,1"}}
    assert set(shapes) == parts[kind.name.lower()]


def test_without_what_xla_is_told_it_gathers(rng, monkeypatch):
    """So that this file would see collectives."""
    monkeypatch.setattr(_compat, "batch_attributes", lambda ctx, operands: {})
    mesh = make_mesh(AUTO)
    x, w = put(mesh, random_array(rng, (64, 8)), "x", "y"), put(mesh, random_array(rng, (8,)), "y")
    mine = found(kernel(two), x, w)
    assert "all-gather" in mine.collectives
    assert set(mine.shapes[0]) == {"64,8,1"}
    assert_same(mine.results, two(x, w), eps=64)
    with pytest.raises(AssertionError):
        assert_alike(lambda f: f, kernel(two), two, x, w)


# ---- Programs around a call ----------------------------------------------------------------------


def scanned(f):
    def run(x, w):
        return lax.scan(lambda carry, _: (f(carry, w)[0], f(carry, w)[1].sum()), x, None, length=3)

    return run


def branching(f):
    def run(x, w):
        return lax.cond(w.sum() > 0, lambda: f(x, w), lambda: (f(w, x)[1], x))

    return run


def rematerialised(f):
    def run(x, w):
        step = jax.checkpoint(lambda carry, _: (f(carry, w)[0], None))
        return lax.scan(step, x, None, length=3)[0]

    return jax.grad(lambda x, w: run(x, w).sum(), (0, 1))


def hessian_vector(f):
    gradient = jax.grad(total(f))
    return lambda x, w: jax.jvp(lambda x: gradient(x, w), (x,), (x,))[1]


def between_matrices(f):
    return lambda x, w: f(f(x, w)[0] @ jnp.ones((8, 8)), w)[1].sum(0)


PROGRAMS = (scanned, branching, rematerialised, hessian_vector, between_matrices)


@pytest.mark.sampled
@KINDS
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_programs_around_a_call(kind, program, rng):
    mesh = make_mesh(kind)
    with jax.set_mesh(mesh):
        x = put(mesh, random_array(rng, (64, 8)), "x")
        w = put(mesh, random_array(rng, (8,)))
        assert_alike(program, kernel(two), two, x, w, eps=1024)


@KINDS
def test_a_shard_map_over_one_axis_leaves_the_other(kind, rng):
    mesh = make_mesh(kind)

    def mapped(f):
        return jax.shard_map(
            lambda x, w: (f(x, w), lax.psum(f(x, w)[0], "x")),
            mesh=mesh, in_specs=(P("x"), P()), out_specs=(P("x"), P()), axis_names={"x"},
        )  # fmt: skip

    with jax.set_mesh(mesh):
        x = put(mesh, random_array(rng, (64, 8)), "x", "y")
        w = put(mesh, random_array(rng, (8,)), "y")
        mine = assert_alike(mapped, kernel(two), two, x, w)
    if kind is AUTO or jax.__version_info__ > (0, 10, 2):  # which gathers after explicit ones
        assert mine.collectives == ["all-reduce"]


def test_one_axis_is_explicit_and_one_automatic(rng):
    mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(EXPLICIT, AUTO))
    with jax.set_mesh(mesh):
        x = put(mesh, random_array(rng, (64, 8)), "x", "y")
        w = put(mesh, random_array(rng, (8,)), "y")
        mine = assert_alike(lambda f: f, kernel(two), two, x, w)
        assert mine.collectives == []
        assert set(mine.shapes[0]) == {"16,4,1"}
        assert_alike(TRANSFORMATIONS["grad"], kernel(two), two, x, w)


def test_pmap(rng):
    x, w = random_array(rng, (8, 3)), random_array(rng, (3,))
    assert_same(jax.pmap(kernel(two), in_axes=(0, None))(x, w), two(x, w), eps=64)


def test_xla_divides_what_no_operand_has_divided(rng):
    """Nothing but a result says how: each device makes the part of it that it is to have."""
    mesh = make_mesh(AUTO)
    x, w = put(mesh, random_array(rng, (64, 1))), put(mesh, random_array(rng, (8,)))
    placement = NamedSharding(mesh, P("x", "y"))

    def placed(f):
        return lambda x, w: [lax.with_sharding_constraint(y, placement) for y in f(x, w)]

    mine = assert_alike(placed, kernel(two), two, x, w)
    assert mine.collectives == []
    assert set(mine.shapes[0]) == {"16,4,1"}
    assert_alike(lambda f: jax.grad(total(placed(f)), (0, 1)), kernel(two), two, x, w)


# ---- Shapes and dtypes ---------------------------------------------------------------------------


@KINDS
def test_mixed_dtypes(kind, rng):
    def fun(x, n, b, h, z):
        return jnp.where(b, x, n), n + 1, b & (x > 0), h * 2, z * x

    dtypes = ("float32", "int32", "bool", "bfloat16")
    mesh = make_mesh(kind)
    with jax.set_mesh(mesh):
        args = [put(mesh, random_array(rng, (64, 8), dtype), "x", "y") for dtype in dtypes]
        z = put(mesh, random_array(rng, (8,)) * 1j, "y")
        mine = assert_alike(lambda f: f, kernel(fun), fun, *args, z)
        assert mine.collectives == []


@KINDS
def test_results_without_dimensions(kind, rng):
    mesh = make_mesh(kind)
    with jax.set_mesh(mesh):
        x, w = put(mesh, random_array(rng, (64, 8)), "x", "y"), put(mesh, jnp.float32(0.5))
        assert_alike(lambda f: f, kernel(two), two, w, w)
        assert_alike(lambda f: lambda x, w: f(x.sum(), w), kernel(two), two, x, w)
        assert_alike(TRANSFORMATIONS["grad"], kernel(two), two, w, w)


@pytest.mark.sampled
@KINDS
@pytest.mark.parametrize("shape", [(0, 8), (64, 0)], ids=str)
def test_no_elements(kind, shape):
    mesh, f = make_mesh(kind), kernel(two)
    with jax.set_mesh(mesh):
        x, w = put(mesh, jnp.ones(shape), "x", "y"), put(mesh, jnp.ones(shape[1:]))
        for mine, theirs in ((f, two), (jax.grad(total(f)), jax.grad(total(two)))):
            a, b = jax.jit(mine)(x, w), jax.jit(theirs)(x, w)
            # JAX 0.10 cannot turn the explicit ones into NumPy's.
            assert str(jax.tree.map(jax.typeof, a)) == str(jax.tree.map(jax.typeof, b))
            assert jax.tree.map(jnp.size, jax.block_until_ready(a)) == jax.tree.map(jnp.size, b)


def test_dimensions_that_are_not_divided_evenly(rng):
    """Arguments must be; what is inside of a program, XLA pads."""
    mesh = make_mesh(AUTO)
    x, w = random_array(rng, (10, 7)), random_array(rng, (7,))
    placement = NamedSharding(mesh, P("x", "y"))

    def placed(f):
        return lambda x, w: f(lax.with_sharding_constraint(x, placement), w)

    mine = assert_alike(placed, kernel(two), two, x, w)
    assert set(mine.shapes[0]) == {"3,4,1"}
    assert_alike(lambda f: jax.grad(total(placed(f)), (0, 1)), kernel(two), two, x, w)
    for f in (kernel(two), two):
        with pytest.raises(ValueError, match="should evenly divide"):
            jax.jit(f, in_shardings=(placement, None))(x, w)


# ---- Loops, indices and users' C++ ---------------------------------------------------------------


@KINDS
def test_loops_need_no_common_end(kind, rng):
    """In ``jax.numpy`` devices ask each other in every step whether all are done."""

    def halvings(x):
        return lax.while_loop(lambda s: s[0] > 1, lambda s: (s[0] / 2, s[1] + 1), (x, 0))[1]

    mesh = make_mesh(kind)
    with jax.set_mesh(mesh):
        x = put(mesh, 2 ** random_array(rng, (64, 8), low=0.5) * 10, "x", "y")
        mine = found(je.elementwise(halvings), x)
        assert mine.kernels == 1  # a kernel, without being asked for
        assert mine.collectives == []
    np.testing.assert_array_equal(mine.results, np.ceil(np.log2(np.asarray(x))))


@pytest.mark.sampled
@KINDS
@pytest.mark.parametrize("spec", [("x", "y"), (("y", "x"),), (None, "x"), ()], ids=str)
def test_an_index_counts_the_whole_array(kind, spec):
    f = je.cuda_functor("x + i", inputs="float x", outputs="float y", index="i", name="f")
    mesh = make_mesh(kind)
    with jax.set_mesh(mesh):
        x = put(mesh, jnp.full((64, 8), 0.5), *spec)
        mine = found(f, x)
        assert mine.kernels == 1
        assert mine.collectives == []
        assert mine.results.sharding.is_equivalent_to(x.sharding, 2)
        expected = np.arange(512.0).reshape(64, 8) + 0.5
        np.testing.assert_array_equal(mine.results, expected)
        np.testing.assert_array_equal(f(x), expected)
        twice = jax.jit(jax.vmap(f, 1, 1))(x)
        np.testing.assert_array_equal(twice, np.arange(64.0)[:, None] + np.full((64, 8), 0.5))


@KINDS
def test_a_functor_without_reference(kind, rng):
    f = je.cuda_functor(
        "y = x * w; z = x > w;", inputs="float x, float w", outputs="float y, bool z", name="f"
    )
    mesh = make_mesh(kind)
    with jax.set_mesh(mesh):
        x = put(mesh, random_array(rng, (64, 8)), "x", "y")
        w = put(mesh, random_array(rng, (8,)), "y")
        mine = assert_alike(lambda f: f, f, lambda x, w: (x * w, x > w), x, w)
        assert mine.collectives == []


# ---- For CUDA ------------------------------------------------------------------------------------


def test_cross_lowered_a_call_says_how_it_may_be_divided(rng):
    mesh = make_mesh(AUTO)
    x, w = put(mesh, random_array(rng, (64, 8)), "x"), put(mesh, jnp.float32(0.5))
    text = lowered(two, x, w)
    assert TARGET not in text
    text = lowered(je.elementwise(two), x, w)
    assert text.count(f"custom_call @{TARGET}(") == 1
    assert 'mhlo.frontend_attributes = {num_batch_dims = "2"}' in text
    rule = "#sdy.op_sharding_rule<([i, j, k], [])->([i, j, k], [i, j, k]) {i=64, j=8, k=1}, custom>"
    assert f"sdy.sharding_rule = {rule}" in text
    assert "(tensor<64x8x1xf32>, tensor<f32>) -> (tensor<64x8x1xf32>, tensor<64x8x1xf32>)" in text


def test_on_one_device_it_says_nothing(rng):
    text = lowered(je.elementwise(two), random_array(rng, (64, 8)), random_array(rng, (8,)))
    assert "num_batch_dims" not in text
    assert "sdy.sharding_rule" not in text
