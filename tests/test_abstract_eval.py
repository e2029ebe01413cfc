"""Types of results: shapes, dtypes and weak types, known before anything runs."""

import functools
import itertools

import hypothesis
import hypothesis.strategies as st
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from cases import SMOOTH, assert_same, random_array, reference
from jax import lax

import jax_elementwise as je

DTYPES = ("bool", "int32", "uint32", "float16", "bfloat16", "float32")


def types(tree):
    return jax.tree.map(lambda x: (x.shape, x.dtype, getattr(x, "weak_type", False)), tree)


# ---- Shapes --------------------------------------------------------------------------------------


def test_every_result_has_the_joint_shape():
    f = je.elementwise(lambda a, b: (2 * a, 3 * b))
    a, b = jnp.ones((2, 2, 2)), jnp.ones((2, 2))
    for first, second in (f(a, b), jax.jit(f)(a, b)):
        np.testing.assert_array_equal(first, np.full((2, 2, 2), 2))
        np.testing.assert_array_equal(second, np.full((2, 2, 2), 3))
    assert types(jax.eval_shape(f, a, b)) == types(f(a, b))


def test_the_documentation_says_so():
    text = " ".join(je.elementwise.__doc__.split())
    assert "**every** leaf has the joint shape of all arguments" in text


@pytest.mark.parametrize("case", SMOOTH, ids=str)
def test_eval_shape_agrees_with_what_comes_out(case, rng):
    operands = case.operands(rng, [(2, 1, 3), (4, 1), ()][: len(case.dtypes)])
    f = je.elementwise(case.fun)
    structs = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in operands]
    assert types(jax.eval_shape(f, *structs)) == types(f(*operands))
    assert types(jax.eval_shape(f, *structs)) == types(
        jax.eval_shape(reference(case.fun), *structs)
    )


@hypothesis.given(
    joint=st.lists(st.integers(0, 3), max_size=5),
    ranks=st.tuples(st.integers(0, 5), st.integers(0, 5)),
    ones=st.tuples(st.integers(0, 31), st.integers(0, 31)),
)
def test_shapes_broadcast_as_in_numpy(joint, ranks, ones):
    shapes = []
    for rank, mask in zip(ranks, ones, strict=True):
        own = joint[len(joint) - min(rank, len(joint)) :]
        shapes.append(tuple(1 if mask >> d & 1 else n for d, n in enumerate(own)))
    f = je.elementwise(lambda x, y: x + y)
    structs = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    assert jax.eval_shape(f, *structs).shape == np.broadcast_shapes(*shapes)


# ---- Dtypes and weak types -----------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("other", [*DTYPES, True, 2, 2.5], ids=str)
def test_dtypes_and_weak_types_are_those_of_jax(dtype, other):
    def f(x, y):
        return x * y, x > y, jnp.where(y > x, x, y), jnp.sin(y), x, y, 1.0, 3, y + 1

    x = jnp.ones(3, dtype)
    y = jnp.ones((), other) if isinstance(other, str) else other
    mine = jax.eval_shape(je.elementwise(f), x, y)
    theirs = jax.eval_shape(f, x, y)
    dtypes, weak = ([(t.dtype, t.weak_type) for t in result] for result in (mine, theirs))
    assert dtypes == weak
    assert all(t.shape == (3,) for t in mine)


@pytest.mark.parametrize("scalar", [2.4, np.float32(2.4), np.array(2.4, np.float32)], ids=str)
def test_a_scalar_in_any_place_keeps_the_dtype_of_arrays(scalar, rng):
    x = random_array(rng, (24, 8))
    f = je.elementwise(lambda a, x, y: a * x + y)
    for operands in itertools.permutations((scalar, x, x)):
        result = f(*operands)
        assert result.dtype == jnp.float32
        assert_same(result, operands[0] * operands[1] + operands[2])


def _accumulates(x):
    total = 0.0
    for k in range(3):
        total = total + jnp.sin(x * k) * jnp.cos(x + k)
    return total


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_helper_functions_follow_the_dtype_of_the_operand(dtype, rng, x64):
    f = je.elementwise(lambda x: _accumulates(x) ** 2)
    x = random_array(rng, (5,), dtype)
    result = f(x)
    assert result.dtype == dtype
    assert not result.weak_type
    assert_same(result, _accumulates(x) ** 2, eps=16)
    assert jax.grad(lambda x: f(x).astype("float32").sum())(x).dtype == dtype


def _halvings(x):
    def body(state):
        return state[0] / 2, state[1] + 1

    return lax.while_loop(lambda state: state[0] >= 1, body, (x, 0))


def test_loops_keep_float32_with_x64(x64):
    f = je.elementwise(_halvings, lowering="xla")
    x = jnp.array([40.0, 0.5, 1.0], jnp.float32)
    value, count = f(x)
    assert value.dtype == jnp.float32
    np.testing.assert_array_equal(value, [0.625, 0.5, 0.5])
    np.testing.assert_array_equal(count, [6, 0, 1])
    tangent = jax.jvp(lambda x: f(x)[0], (x,), (jnp.ones_like(x),))[1]
    assert tangent.dtype == jnp.float32
    np.testing.assert_array_equal(tangent, [2.0**-6, 1, 0.5])


def test_float32_stays_float32_through_derivatives_with_x64(rng, x64):
    x = random_array(rng, (4,), "float32")
    f = je.elementwise(lambda x: jnp.tanh(x) * 2.5 + x**2)
    hessian = jax.jit(jax.vmap(jax.grad(jax.grad(f))))
    for result in (f(x), jax.grad(lambda x: f(x).sum())(x), hessian(x)):
        assert result.dtype == jnp.float32


# ---- Symbolic shapes -----------------------------------------------------------------------------

SYMBOLIC = {
    "leading": ("b, 3", "3", [(2, 7)]),
    "both": ("a, b", "b", [(2, 5), (1, 4), (3, 1)]),
    "column": ("a, b", "a, 1", [(2, 5), (4, 1)]),
    "scalar": ("a, b", "", [(2, 5), (1, 3)]),
    "equal": ("a, b", "a, b", [(2, 5)]),
}


def _sizes(text, values):
    names = dict(zip("ab", values, strict=True))
    return tuple(names[n] if n in names else int(n) for n in text.replace(" ", "").split(",") if n)


@pytest.mark.sampled
@pytest.mark.parametrize(("first", "second", "sizes"), SYMBOLIC.values(), ids=SYMBOLIC)
@pytest.mark.parametrize("derivative", [False, True])
def test_exports_with_symbolic_shapes(first, second, sizes, derivative, rng):
    f = je.elementwise(lambda x, w: jnp.tanh(x) * w)
    run = f
    if derivative:
        run = jax.grad(lambda x, w: f(x, w).sum(), (0, 1))
    scope = jax.export.SymbolicScope()
    structs = [
        jax.ShapeDtypeStruct(jax.export.symbolic_shape(text, scope=scope), jnp.float32)
        for text in (first, second)
    ]
    exported = jax.export.export(jax.jit(run), platforms=["cpu"])(*structs)
    for values in sizes:
        x, w = (random_array(rng, _sizes(text, values)) for text in (first, second))
        assert_same(jax.jit(exported.call)(x, w), run(x, w), eps=32)


def test_exports_with_a_symbolic_batch_of_vmap(rng):
    f = jax.vmap(je.elementwise(lambda x, w: x * w), (0, None))
    (size,) = jax.export.symbolic_shape("b")
    exported = jax.export.export(jax.jit(f))(
        jax.ShapeDtypeStruct((size, 3), jnp.float32), jax.ShapeDtypeStruct((4, 3), jnp.float32)
    )
    w = random_array(rng, (4, 3))
    for batch in (2, 7):
        x = random_array(rng, (batch, 3))
        assert_same(exported.call(x, w), x[:, None] * w)


def test_symbolic_shapes_that_may_not_broadcast_are_refused():
    f = je.elementwise(lambda x, w: x * w)
    a, b = jax.export.symbolic_shape("a, b")
    structs = [jax.ShapeDtypeStruct((n,), jnp.float32) for n in (a, b)]
    with pytest.raises(ValueError, match=r"do not broadcast: x: \(a,\), w: \(b,\)"):
        jax.export.export(jax.jit(f))(*structs)


@functools.partial(je.elementwise, static_argnames="n")
def _power(x, *, n):
    return x**n


def test_a_polymorphic_program_for_cuda_has_one_call(rng):
    (size,) = jax.export.symbolic_shape("b")
    exported = jax.export.export(
        jax.jit(functools.partial(_power, n=3)),
        platforms=["cuda"],
        disabled_checks=[jax.export.DisabledSafetyCheck.custom_call("jax_elementwise_kernel")],
    )(jax.ShapeDtypeStruct((size, 3), jnp.float32))
    text = exported.mlir_module()
    assert text.count("custom_call @jax_elementwise_kernel") == 1
    assert "index_bits = 64" in text
