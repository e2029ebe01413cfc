"""Values that functions capture in ``shard_map``, where types show what varies over a mesh."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import jax_elementwise as je

P = PartitionSpec

# A function of what makes a function of arrays of a function of one element, and of a part.
CASES = {
    "a maximum": lambda on, x: (lambda m: on(lambda v: v - m)(x))(x.max()),
    "an element": lambda on, x: (lambda m: on(lambda v: v * m)(x))(x[0]),
    "an index": lambda on, x: (lambda i: on(lambda v: v + i)(x))(lax.axis_index("i")),
    "a sum over devices": lambda on, x: (lambda m: on(lambda v: v * m)(x))(lax.psum(x[0], "i")),
    "in a loop": lambda on, x: (
        lambda m: on(lambda v: lax.fori_loop(0, 20, lambda _, c: c * m / 3, v))(x)
    )(x[0]),
    "in a condition": lambda on, x: (
        lambda m: on(lambda v: lax.while_loop(lambda c: c < m + 3, lambda c: c + 1, v))(x)
    )(x[0]),
    "as a first state": lambda on, x: (
        lambda m: on(lambda v: lax.while_loop(lambda c: c < v, lambda c: c + 1, m))(x)
    )(x[0]),
    "as a branch": lambda on, x: (lambda m: on(lambda v: lax.cond(m > 3, lambda: v, lambda: m))(x))(
        x[0]
    ),
    "as a bound": lambda on, x: (
        lambda m: on(lambda v: lax.fori_loop(0, m.astype(int), lambda _, c: c + 1, v))(x)
    )(x[0]),
    "in jit": lambda on, x: (lambda m: on(lambda v: jax.jit(lambda w: w * m)(v))(x))(x[0]),
    "in checkpoint": lambda on, x: (
        lambda m: on(lambda v: jax.checkpoint(lambda w: (w * m, w + 1))(v)[0])(x)
    )(x[0]),
    "under vmap": lambda on, x: jax.vmap(lambda s: on(lambda v: v * s)(x))(x).sum(0),
    "in a scan": lambda on, x: lax.scan(lambda c, s: (c, on(lambda v: v * s)(x)), 0.0, x)[1].sum(0),
    "a gradient": lambda on, x: jax.grad(
        lambda y: lax.psum((lambda m: on(lambda v: v * m)(y))(y.max()).sum(), "i")
    )(x),
    "a second one": lambda on, x: jax.grad(
        lambda z: jax.grad(
            lambda y: lax.psum((lambda m: on(lambda v: v * v * m)(y))(y.max()).sum(), "i")
        )(z).sum()
    )(x),
}


@pytest.fixture(params=[AxisType.Auto, AxisType.Explicit], ids=["auto", "explicit"])
def part(request):
    """A mesh, and an array that lies on it in parts."""
    mesh = jax.make_mesh((4, 2), ("i", "j"), axis_types=(request.param,) * 2)
    return mesh, jax.device_put(jnp.arange(16.0) + 1, NamedSharding(mesh, P("i")))


def _run(mesh, x, on):
    def parts(x):
        return [case(on, x) for case in CASES.values()]

    mapped = jax.shard_map(parts, mesh=mesh, in_specs=P("i"), out_specs=P("i"))
    return jax.jit(mapped)(x)


@pytest.mark.sampled
@pytest.mark.parametrize("lowering", ["kernel", "xla"])
def test_what_varies_over_a_mesh(part, lowering):
    actual = _run(*part, lambda fun: je.elementwise(fun, lowering=lowering))
    expected = _run(*part, jax.vmap)
    for name, a, e in zip(CASES, actual, expected, strict=True):
        np.testing.assert_allclose(a, e, 1e-5, err_msg=name)


def _first_ones(x):
    """Per element, the first one of its part."""
    return np.repeat(np.asarray(x)[::4], 4)


def test_a_function_inside_of_another(part):
    def on(fun):
        return je.elementwise(lambda v: je.elementwise(fun)(v))

    mesh, x = part
    mapped = jax.shard_map(
        lambda x: CASES["an element"](on, x), mesh=mesh, in_specs=P("i"), out_specs=P("i")
    )
    np.testing.assert_array_equal(jax.jit(mapped)(x), np.asarray(x) * _first_ones(x))


def test_a_state_that_begins_with_a_constant(part):
    """JAX would want it to vary; inside of a function nothing does."""

    def fun(x):
        m = x[0]
        step = lambda c: (c[0] + 1, c[1] * m)  # noqa: E731
        return je.elementwise(lambda v: v + lax.while_loop(lambda c: c[0] < 3, step, (0, 1.0))[1])(
            x
        )

    mesh, x = part
    mapped = jax.shard_map(fun, mesh=mesh, in_specs=P("i"), out_specs=P("i"))
    np.testing.assert_allclose(jax.jit(mapped)(x), np.asarray(x) + _first_ones(x) ** 3)


def test_collectives_are_not_of_one_element(part):
    mesh, x = part

    def program(lowering):
        f = je.elementwise(lambda v: v + lax.psum(v, "i"), lowering=lowering)
        return jax.jit(jax.shard_map(f, mesh=mesh, in_specs=P("i"), out_specs=P("i")))

    with pytest.raises(NotImplementedError, match=r"the primitive 'psum.*'.*Compute it outside"):
        program("kernel")(x)
    total = np.asarray(x).reshape(4, 4).sum(0)
    np.testing.assert_array_equal(program("xla")(x), np.asarray(x) + np.tile(total, 4))


@pytest.mark.parametrize("lowering", ["kernel", "xla"])
def test_operands_that_are_still_to_be_summed(lowering):
    mesh = jax.make_mesh((8,), ("i",), axis_types=(AxisType.Explicit,))
    f = je.elementwise(lambda v: 2 * v, lowering=lowering)
    with (
        jax.set_mesh(mesh),
        pytest.raises(ValueError, match=r"is unreduced over the mesh axes \['i'\].*reshard"),
    ):
        jax.jit(lambda a: f(jax.sharding.reshard(a, P(unreduced={"i"}))))(jnp.arange(8.0))
