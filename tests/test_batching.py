"""``vmap``: any axes, any nesting, and nothing written out that is not mapped."""

import functools
import itertools

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import SMOOTH, assert_same, calls, enlargements, lowered, random_array, reference

import jax_elementwise as je


def three(x, y, z):
    return x * jnp.cos(y) + z


F = je.elementwise(three)
R = reference(three)

# ---- Values --------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", SMOOTH, ids=str)
def test_every_function_of_the_table(case, rng):
    operands = case.operands(rng, [(5, 3), (3, 5), (3,)][: len(case.dtypes)])
    axes = (0, 1, None)[: len(operands)]
    f, r = (jax.vmap(wrap(case.fun), axes) for wrap in (je.elementwise, reference))
    assert_same(f(*operands), r(*operands))


def _in_order(order, wrap):
    """Three nested vmaps, each over one of three arguments, the last of ``order`` innermost."""
    for argument in reversed(order):
        wrap = jax.vmap(wrap, [0 if i == argument else None for i in range(3)])
    return wrap


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_nested_over_different_arguments_in_any_order(order, rng):
    operands = [random_array(rng, (n,)) for n in (4, 5, 6)]
    assert_same(_in_order(order, F)(*operands), _in_order(order, R)(*operands))
    assert_same(_in_order(order, jax.jit(F))(*operands), _in_order(order, R)(*operands))
    (call,) = calls(_in_order(order, F), *operands)
    assert sorted(v.aval.size for v in call.invars) == [4, 5, 6]


def test_nested_with_a_third_scalar():
    f = je.elementwise(lambda x, y, z: x + y * z)
    x, y, z = jnp.arange(4.0), jnp.arange(5.0), jnp.float32(1)
    inner_y = jax.vmap(jax.vmap(f, (None, 0, None)), (0, None, None))
    inner_x = jax.vmap(jax.vmap(f, (0, None, None)), (None, 0, None))
    np.testing.assert_array_equal(inner_y(x, y, z), x[:, None] + y)
    np.testing.assert_array_equal(inner_x(x, y, z), (x[:, None] + y).T)


@pytest.mark.parametrize("axis", [0, 1, -1, -2])
def test_every_row_is_computed_along_any_axis(axis):
    x, v = jnp.zeros((3, 5)), jnp.float32(10)
    mapped = jax.vmap(je.elementwise(lambda x, v: x + v), (axis, None), axis)
    np.testing.assert_array_equal(mapped(x, v), np.full((3, 5), 10))
    np.testing.assert_array_equal(jax.jit(mapped)(x, v), np.full((3, 5), 10))


@pytest.mark.sampled
@pytest.mark.parametrize("axes", list(itertools.product((0, 1, 2, -1, None), repeat=2)), ids=str)
def test_any_pair_of_positions(axes, rng):
    if axes == (None, None):
        axes = (None, -3)
    shape = (2, 3, 4)
    x, y = (random_array(rng, shape if axis is None else _insert(shape, axis, 5)) for axis in axes)
    f, r = (jax.vmap(wrap(lambda x, y: x - y * y), axes) for wrap in (je.elementwise, reference))
    assert_same(f(x, y), r(x, y))


def _insert(shape, axis, size):
    position = axis if axis >= 0 else len(shape) + 1 + axis
    return (*shape[:position], size, *shape[position:])


@pytest.mark.parametrize("out", [0, 1, 2, -1])
def test_any_position_of_the_result(out, rng):
    x, y = random_array(rng, (5, 2, 3)), random_array(rng, (2, 3))
    f, r = (jax.vmap(wrap(jnp.subtract), (0, None), out) for wrap in (je.elementwise, reference))
    assert_same(f(x, y), r(x, y))


@pytest.mark.parametrize(
    ("shapes", "axes"),
    [
        (((5,), (3, 4)), (0, None)),
        (((3, 4), (5,)), (None, 0)),
        (((5,), (5, 3, 4)), (0, 0)),
        (((5, 4), (4, 5)), (0, 1)),
        (((5, 4), (1, 5)), (0, 1)),
        (((4, 5), (2, 3, 4)), (1, None)),
        (((5, 4), (2, 3, 4, 5)), (0, 3)),
        (((5,), (1, 1, 5)), (0, 2)),
        (((5, 1), (3, 1, 4)), (0, None)),
        (((5, 3, 1), (1, 4)), (0, None)),
        (((1, 5, 4), (3, 1)), (1, None)),
    ],
    ids=str,
)
def test_operands_of_different_ranks(shapes, axes, rng):
    operands = [random_array(rng, shape) for shape in shapes]
    f, r = (jax.vmap(wrap(jnp.hypot), axes) for wrap in (je.elementwise, reference))
    assert_same(f(*operands), r(*operands))


@pytest.mark.parametrize("shape", [(4, 16385, 2), (2, 65537, 3)], ids=str)
def test_no_axis_is_too_long(shape):
    x = jnp.arange(np.prod(shape), dtype=jnp.int32).reshape(shape)
    f = je.elementwise(lambda x: 3 * x)
    for depth in (1, 2, 3):
        mapped = functools.reduce(lambda g, _: jax.vmap(g), range(depth), f)
        np.testing.assert_array_equal(mapped(x), 3 * np.asarray(x))


def test_every_result_of_several_is_mapped(rng):
    def f(x, y):
        return {"sum": x + y, "only": (y, x * 0 + 1)}

    x, y = random_array(rng, (5,)), random_array(rng, (3, 4))
    result = jax.vmap(je.elementwise(f), (0, None))(x, y)
    assert all(leaf.shape == (5, 3, 4) for leaf in jax.tree.leaves(result))
    np.testing.assert_array_equal(result["only"][0], np.broadcast_to(y, (5, 3, 4)))


def test_pytrees_of_axes_and_keyword_arguments(rng):
    f = je.elementwise(lambda params, x: params["w"] * x + params["b"])
    params = {"w": random_array(rng, (5, 3)), "b": random_array(rng, (3,))}
    x = random_array(rng, (5, 3))
    mapped = jax.vmap(f, ({"w": 0, "b": None}, 0))
    assert_same(mapped(params, x), params["w"] * x + params["b"])
    assert_same(jax.vmap(lambda x: f(params={"w": x, "b": 1.0}, x=x))(x), x * x + 1)


def test_a_captured_value_may_be_what_is_mapped(rng):
    s, x = random_array(rng, (5,)), random_array(rng, (3,))
    mapped = jax.vmap(lambda s: je.elementwise(lambda x: x * s)(x))
    assert_same(mapped(s), s[:, None] * x)


def test_zero_and_one_elements(rng):
    for size in (0, 1):
        x, y = random_array(rng, (size, 3)), random_array(rng, (3,))
        mapped = jax.vmap(F, (0, None, None))(x, y, jnp.float32(1))
        assert_same(mapped, x * jnp.cos(y) + 1)


def test_vectorize_and_spmd_axis_names(rng):
    x, y = random_array(rng, (5, 3)), random_array(rng, (3,))
    f = je.elementwise(lambda x, y: x * y)
    assert_same(jnp.vectorize(f)(x, y), x * y)
    assert_same(jax.vmap(f, (0, None), spmd_axis_name="batch")(x, y), x * y)


@hypothesis.given(data=st.data())
def test_random_shapes_and_axes(data):
    joint = data.draw(st.lists(st.integers(1, 3), min_size=0, max_size=3), "joint shape")
    size = data.draw(st.integers(1, 3), "batch size")
    operands, axes = [], []
    rng = np.random.default_rng(0)
    for i in range(3):
        rank = data.draw(st.integers(0, len(joint)), f"rank of operand {i}")
        own = [data.draw(st.sampled_from([1, n])) for n in joint[len(joint) - rank :]]
        axis = data.draw(st.none() | st.integers(-rank - 1, rank), f"axis of operand {i}")
        shape = tuple(own) if axis is None else _insert(tuple(own), axis, size)
        operands.append(random_array(rng, shape))
        axes.append(axis)
    if all(axis is None for axis in axes):
        axes[0] = 0
        operands[0] = random_array(rng, (size, *operands[0].shape))
    out = data.draw(st.integers(-len(joint) - 1, len(joint)), "axis of the result")
    assert_same(jax.vmap(F, axes, out)(*operands), jax.vmap(R, axes, out)(*operands))


# ---- Nothing is written out ----------------------------------------------------------------------

UNMAPPED = {
    "row": (lambda f: jax.vmap(f, (0, None)), (64, 32), (32,)),
    "column": (lambda f: jax.vmap(f, (1, None), 1), (64, 32), (64,)),
    "scalar": (lambda f: jax.vmap(f, (0, None)), (64, 32), ()),
    "matrix": (lambda f: jax.vmap(f, (0, None)), (64,), (8, 32)),
    "higher_rank": (lambda f: jax.vmap(f, (0, None)), (64, 32), (8, 32)),
    "outer": (lambda f: jax.vmap(jax.vmap(f, (None, 0)), (0, None)), (64,), (32,)),
    "outer_turned": (lambda f: jax.vmap(jax.vmap(f, (0, None)), (None, 0)), (64,), (32,)),
    "one_element": (lambda f: jax.vmap(f), (64, 32), (64, 1)),
    "two_axes": (lambda f: jax.vmap(f, (0, 1)), (64, 32), (1, 64)),
    "last_axis": (lambda f: jax.vmap(f, (-1, None), -1), (8, 4, 64), (8, 1)),
}


def test_what_is_written_out_would_be_seen(rng):
    x, y = random_array(rng, (64, 32)), random_array(rng, (32,))
    assert enlargements(jax.vmap(lambda x, y: x + y, (0, None)), x, y)[1]
    assert all(enlargements(lambda x, y: x + jnp.broadcast_to(y, (64, 32)), x, y))


@pytest.mark.sampled
@pytest.mark.parametrize(("wrap", "first", "second"), UNMAPPED.values(), ids=UNMAPPED)
@pytest.mark.parametrize("swapped", [False, True])
def test_operands_that_are_not_mapped_are_not_broadcast(wrap, first, second, swapped, rng):
    x, y = random_array(rng, first), random_array(rng, second)
    plain = je.elementwise(lambda x, y: x + jnp.sin(y))
    f = wrap((lambda x, y: plain(y, x)) if swapped else plain)
    assert enlargements(f, x, y) == ([], [])
    (call,) = calls(f, x, y)
    assert sorted(v.aval.size for v in call.invars) == sorted([x.size, y.size])
    assert lowered(f, x, y).count("custom_call") == 1
    assert_same(f(x, y), wrap(lambda x, y: y + jnp.sin(x) if swapped else x + jnp.sin(y))(x, y))


def test_the_forward_pass_under_vmap_of_grad_is_not_broadcast_either(rng):
    x, y = random_array(rng, (64, 32)), random_array(rng, (32,))
    f = je.elementwise(lambda x, y: jnp.sin(x) * y)
    tangent = jax.vmap(lambda x, dx, y: jax.jvp(lambda x: f(x, y), (x,), (dx,))[1], (0, 0, None))
    assert enlargements(tangent, x, x, y) == ([], [])


def test_no_memory_is_needed_for_broadcasts(rng):
    x, b = random_array(rng, (512, 256)), random_array(rng, (256,))
    f = je.elementwise(lambda x, b: x + b)
    compiled = jax.jit(jax.vmap(f, (0, None))).lower(x, b).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < x.nbytes / 8


@hypothesis.given(
    axis=st.integers(0, 2), other=st.sampled_from([None, 0, 1]), ones=st.integers(0, 3)
)
def test_random_calls_make_nothing_larger(axis, other, ones):
    rng = np.random.default_rng(0)
    x = random_array(rng, _insert((4, 6), axis, 16))
    own = (4 if ones & 1 else 1, 6 if ones & 2 else 1)
    y = random_array(rng, own if other is None else _insert(own, other, 16))
    f = jax.vmap(je.elementwise(lambda x, y: x + y), (axis, other))
    assert enlargements(f, x, y) == ([], [])


def test_python_numbers_beside_mapped_operands():
    """JAX passes them on as they are, which are no arrays."""
    f = je.elementwise(lambda x, y: jnp.sin(x) * y)
    np.testing.assert_allclose(jax.jacrev(f)(0.7, 2.0), 2 * np.cos(0.7), rtol=1e-6)
    np.testing.assert_allclose(jax.hessian(f)(0.7, 2.0), -2 * np.sin(0.7), rtol=1e-6)
