"""What one element computes: identity, captured values, tangent and transpose."""

import gc
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import SMOOTH, assert_same, calls, random_array, safe_log
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import jax_elementwise as je
from jax_elementwise._codegen.kernel import kernel_for
from jax_elementwise._functor import derivatives
from jax_elementwise._functor.functor import Functor
from jax_elementwise._functor.trace import trace

F32 = jax.ShapeDtypeStruct((), jnp.float32)


def functor(fun, *avals, name="f"):
    avals = avals or (F32,)
    typed = [jax.typeof(jnp.zeros((), aval.dtype)) for aval in avals]
    return trace(fun, typed, name).functor


def source(f):
    shapes = [(8,)] * len(f.in_avals)
    return kernel_for(f, shapes, (8,)).source


# ---- Identity ------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", SMOOTH, ids=str)
def test_the_same_function_traced_twice_is_equal(case):
    first, second = (functor(case.fun, *[F32] * len(case.dtypes)) for _ in range(2))
    assert first is not second
    assert first == second
    assert hash(first) == hash(second)
    assert derivatives.jvp(first, (0,))[0] is derivatives.jvp(second, (0,))[0]


def test_a_function_is_equal_when_every_cache_of_jax_is_gone():
    fun = jax.jit(lambda x: jnp.tanh(x) ** 2)
    first = functor(fun)
    jax.clear_caches()
    assert first == functor(fun)


def test_functions_written_twice_with_the_same_operations_are_equal():
    assert functor(lambda x: jnp.sin(x) * 2) == functor(lambda y: jnp.sin(y) * 2)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda x: x + 1.0, lambda x: x + 2.0),
        (lambda x: x + 0.0, lambda x: x + -0.0),
        (lambda x: x * float("nan"), lambda x: x * 1.0),
        (lambda x: jnp.sin(x), lambda x: jnp.cos(x)),
        (lambda x: x**2, lambda x: x**3),
        (lambda x: jnp.round(x), lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO)),
        (lambda x: x - 2 * x, lambda x: 2 * x - x),
        (lambda x: x.astype(jnp.float16), lambda x: x.astype(jnp.bfloat16)),
        (lambda x: (x, x + 1), lambda x: (x + 1, x)),
        (
            lambda x: lax.cond(x > 0, jnp.sin, jnp.cos, x),
            lambda x: lax.cond(x > 0, jnp.cos, jnp.sin, x),
        ),
        (lambda x: jax.jit(jnp.sin)(x), lambda x: jax.jit(jnp.cos)(x)),
        (lambda x: _entry(x, 0.0), lambda x: _entry(x, -0.0)),
    ],
    ids=["literal", "zero_sign", "nan", "operation", "parameter", "rounding", "order", "dtype",
         "results", "branches", "inner", "zero_sign_of_a_parameter"],
)  # fmt: skip
def test_functions_that_differ_are_unequal(one, other):
    assert functor(one) != functor(other)


def _entry(x, fill):
    """An entry of a table, or ``fill``, which is a parameter of ``gather``."""
    return jnp.float32([1, 2]).at[x.astype(int)].get(mode="fill", fill_value=fill)


def test_a_parameter_that_is_nan_is_equal_to_itself():
    one, other = (functor(lambda x, nan=float("nan"): _entry(x, nan)) for _ in range(2))
    assert one == other


def test_dtypes_weak_types_and_names_tell_functors_apart():
    double = lambda x: x * 2  # noqa: E731
    one = functor(double)
    assert one != functor(double, jax.ShapeDtypeStruct((), jnp.bfloat16))
    assert one != trace(double, [jax.typeof(1.0)], "f").functor
    assert one != functor(double, name="g")
    assert one != "f"


def _sine_with_gradient(value):
    @jax.custom_jvp
    def f(x):
        return jnp.sin(x)

    f.defjvp(lambda primals, tangents: (f(*primals), value * tangents[0]))
    return f


def _sine_with_vjp(value):
    @jax.custom_vjp
    def f(x):
        return jnp.sin(x)

    f.defvjp(lambda x: (f(x), None), lambda _, cotangent: (value * cotangent,))
    return f


@pytest.mark.parametrize("make", [_sine_with_gradient, _sine_with_vjp], ids=["jvp", "vjp"])
def test_equal_text_with_other_derivative_rules_is_one_kernel_and_two_functors(make):
    two, three = make(2.0), make(3.0)
    assert functor(two) == functor(two)
    assert functor(two) != functor(three)
    assert source(functor(two)) == source(functor(three))
    x = jnp.ones(3)
    for rule, value in ((two, 2.0), (three, 3.0), (two, 2.0)):
        f = je.elementwise(rule, name="f")
        np.testing.assert_array_equal(jax.grad(lambda x, f=f: f(x).sum())(x), [value] * 3)
        jitted = jax.jit(jax.grad(lambda x, f=f: f(x).sum()))
        np.testing.assert_array_equal(jitted(x), [value] * 3)


def test_a_functor_is_immutable_in_use_and_shows_its_types():
    f = functor(lambda x, y: x * y, F32, jax.ShapeDtypeStruct((), jnp.int32))
    assert repr(f) == "Functor(f: float32[], int32[])"
    assert [str(aval.dtype) for aval in f.in_avals] == ["float32", "int32"]
    assert [str(aval.dtype) for aval in f.out_avals] == ["float32"]
    assert len({f, functor(lambda x, y: x * y, *f.in_avals)}) == 1


def test_a_wrapped_function_can_be_collected():
    x = jnp.ones(2)
    f = je.elementwise(lambda x: x + 1)
    f(x)
    gone = weakref.ref(f)
    del f
    jax.clear_caches()
    gc.collect()
    assert gone() is None


# ---- Tangent functions ---------------------------------------------------------------------------


def test_the_tangent_function_is_linear_and_right():
    f = functor(lambda x, y: (jnp.sin(x) * y, x * x), F32, F32)
    tangent, results = derivatives.jvp(f, (0, 1))
    assert results == (0, 1)
    assert len(tangent.in_avals) == 4
    x, y, dx, dy = map(jnp.float32, (0.5, 2.0, 3.0, -1.0))
    expected = jax.jvp(lambda x, y: (jnp.sin(x) * y, x * x), (x, y), (dx, dy))[1]
    assert_same(tuple(tangent(x, y, dx, dy)), expected)
    assert_same(tuple(tangent(x, y, 2 * dx, 2 * dy)), tuple(2 * e for e in expected))


def test_tangents_that_are_zero_are_dropped():
    f = functor(lambda x, y: (jnp.sin(x), y * y, jnp.floor(x), x > y), F32, F32)
    tangent, results = derivatives.jvp(f, (0,))
    assert results == (0,)
    assert len(tangent.in_avals) == 3
    assert len(tangent.out_avals) == 1
    assert derivatives.jvp(f, (1,))[1] == (1,)
    assert derivatives.jvp(functor(lambda x: (jnp.floor(x), lax.stop_gradient(x))), (0,))[1] == ()


def test_operands_that_a_tangent_does_not_read_are_dropped():
    f = functor(lambda x, y, z: x * 2 + jnp.sin(z) * y, F32, F32, F32)
    tangent, _ = derivatives.jvp(f, (0,))
    reduced, used = derivatives.reduced(tangent, (0,), keep_operands=False)
    assert used == (3,)
    assert len(reduced.in_avals) == 1
    assert derivatives.reduced(f, (0,), keep_operands=False)[1] == (0, 1, 2)


def test_results_can_be_left_out():
    f = functor(lambda x, y: (jnp.sin(x), x * y), F32, F32)
    for keep, used in ((True, (0, 1)), (False, (0,))):
        reduced, operands = derivatives.reduced(f, (0,), keep_operands=keep)
        assert operands == used
        assert len(reduced.out_avals) == 1
        assert len(reduced.in_avals) == len(used)


def test_integer_operands_have_no_tangent():
    int32 = jax.ShapeDtypeStruct((), jnp.int32)
    f = functor(lambda x, n: (x * n, n + 1), F32, int32)
    tangent, results = derivatives.jvp(f, (0,))
    assert results == (0,)
    assert tangent(jnp.float32(1), jnp.int32(3), jnp.float32(2))[0] == 6


# ---- Transposes ----------------------------------------------------------------------------------


def test_the_transpose_has_one_result_per_linear_operand():
    f = functor(lambda a, x, y: (a * x + y, 3 * y), F32, F32, F32)
    transposed = derivatives.transpose(f, undefined=(1, 2), zeroed=(), results=(0, 1))
    a, first, second = map(jnp.float32, (5.0, 1.0, 10.0))
    assert [float(r) for r in transposed(a, first, second)] == [5, 31]
    only = derivatives.transpose(f, undefined=(2,), zeroed=(1,), results=(1,))
    assert [float(r) for r in only(a, second)] == [30]


def test_known_linear_operands_count_as_zero():
    # The map of x is affine if y is known; its linear part is what is transposed.
    f = functor(lambda x, y: 2 * x + 100 * y, F32, F32)
    transposed = derivatives.transpose(f, undefined=(0,), zeroed=(1,), results=(0,))
    assert len(transposed.in_avals) == 1
    assert transposed(jnp.float32(1)) == [2]


def test_a_linear_function_with_one_known_tangent_is_transposed_without_offset(rng):
    x, y, dy = (random_array(rng, (4,)) for _ in range(3))
    f = je.elementwise(lambda x, y: jnp.sin(x) * y + x)

    def of_tangent(dx):
        return jax.jvp(f, (x, y), (dx, dy))[1]

    value, pullback = jax.vjp(of_tangent, jnp.zeros(4))
    assert_same(value, jnp.sin(x) * dy)
    assert_same(pullback(jnp.ones(4))[0], jnp.cos(x) * y + 1)


# ---- Memoisation and meshes ----------------------------------------------------------------------


def test_derived_functors_are_made_once():
    f, same = functor(safe_log), functor(safe_log)
    tangent, _ = derivatives.jvp(f, (0,))
    again, _ = derivatives.jvp(same, (0,))
    assert again is tangent
    transposed = [derivatives.transpose(t, (1,), (), (0,)) for t in (tangent, again)]
    assert transposed[0] is transposed[1]


def test_one_derivative_serves_all_shapes():
    f = je.elementwise(lambda x: jnp.tanh(x) * 2)
    derived = []
    for shape in ((3,), (4, 5), ()):
        gradient = jax.grad(lambda x: f(x).sum())
        derived.append(calls(gradient, jnp.ones(shape))[-1].params["functor"])
    assert derived[0] is derived[1] is derived[2]


@pytest.mark.parametrize("kind", [AxisType.Explicit, AxisType.Auto], ids=str)
def test_a_functor_remembers_no_mesh(kind, rng):
    f = je.elementwise(lambda x, y: jax.nn.gelu(x) * y)
    x = random_array(rng, (8, 4))
    expected = jax.grad(lambda x: (jax.nn.gelu(x) * x).sum())(x)
    gradient = jax.jit(jax.grad(lambda x: f(x, x).sum()))
    first = jax.make_mesh((4, 2), ("a", "b"), axis_types=(kind,) * 2)
    second = jax.make_mesh((2,), ("c",), axis_types=(kind,))
    for mesh, spec in ((first, ("a", "b")), (second, ("c",)), (None, ()), (first, (None, "a"))):
        if mesh is None:
            assert_same(gradient(x), expected, eps=16)
            continue
        with jax.set_mesh(mesh):
            sharded = jax.device_put(x, NamedSharding(mesh, PartitionSpec(*spec)))
            assert_same(gradient(sharded), expected, eps=16)


def test_functors_traced_inside_and_outside_a_mesh_are_equal():
    mesh = jax.make_mesh((8,), ("a",), axis_types=(AxisType.Explicit,))
    outside = functor(lambda x: jax.nn.gelu(x) ** 2)
    with jax.set_mesh(mesh):
        inside = functor(lambda x: jax.nn.gelu(x) ** 2)
        tangent_inside = derivatives.jvp(inside, (0,))
    assert inside == outside
    assert tangent_inside == derivatives.jvp(outside, (0,))
    assert isinstance(inside, Functor)
