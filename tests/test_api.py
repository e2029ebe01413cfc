"""What a user calls: arguments, results, scalars, static arguments, names, shapes."""

import collections
import concurrent.futures
import functools
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import SMOOTH, assert_same, calls, lowered, random_array, reference

import jax_elementwise as je

Point = collections.namedtuple("Point", ["x", "y"])

# ---- Results and arguments as pytrees ------------------------------------------------------------


@pytest.mark.sampled
@pytest.mark.parametrize("case", SMOOTH, ids=str)
def test_results_equal_those_of_the_scalar_function_eagerly_and_in_jit(case, rng):
    operands = case.operands(rng, [(3, 1, 5), (4, 1), (5,)][: len(case.dtypes)])
    expected = reference(case.fun)(*operands)
    assert_same(je.elementwise(case.fun)(*operands), expected)
    assert_same(jax.jit(je.elementwise(case.fun))(*operands), expected)


def test_results_have_the_structure_that_the_function_returns():
    @je.elementwise
    def f(x):
        return {"a": (x, None), "b": [Point(x + 1, x > 0)]}

    result = f(jnp.arange(3.0))
    assert set(result) == {"a", "b"}
    assert result["a"][1] is None
    np.testing.assert_array_equal(result["b"][0].x, [1, 2, 3])
    np.testing.assert_array_equal(result["b"][0].y, [False, True, True])


def test_results_that_are_constants_or_operands_have_the_joint_shape():
    x = jnp.arange(3.0)
    results = je.elementwise(lambda x, y: [x, y, 2.5, True, np.float32(3), jnp.int32(7)])(
        x, jnp.ones((2, 1), jnp.int32)
    )
    wanted = [x, 1, 2.5, True, 3, 7]
    for result, value in zip(results, wanted, strict=True):
        np.testing.assert_array_equal(result, np.broadcast_to(value, (2, 3)))
    assert [str(result.dtype) for result in results] == [
        "float32",
        "int32",
        "float32",
        "bool",
        "float32",
        "int32",
    ]


def test_arguments_are_pytrees_of_arrays():
    @je.elementwise
    def f(params, point, *rest, scale, **more):
        return params["w"] * point.x + params["b"][0] - point.y * rest[0] * scale + more["shift"]

    x = jnp.arange(6.0).reshape(2, 3)
    result = f(
        {"w": x, "b": [jnp.ones(3)]},
        Point(2.0, jnp.ones((2, 1))),
        np.float32(0.5),
        scale=4,
        shift=x,
    )
    np.testing.assert_array_equal(result, x * 2 + 1 - 1 * 0.5 * 4 + x)


def test_arguments_bind_as_in_any_python_function():
    def f(a, /, b, c=3.0, *, d=4.0):
        return a + 10 * b + 100 * c + 1000 * d

    x = jnp.ones(2)
    g = je.elementwise(f)
    np.testing.assert_array_equal(g(x, x), f(1, 1) * x)
    np.testing.assert_array_equal(g(x, b=x, c=0), f(1, 1, 0) * x)
    np.testing.assert_array_equal(g(x, d=2 * x, b=x), f(1, 1, d=2) * x)
    with pytest.raises(TypeError, match="'b'"):
        g(x)
    with pytest.raises(TypeError, match=r"^'f': too many positional arguments"):
        g(x, x, x, x)


def test_a_function_without_arguments_gives_scalars():
    captured = jnp.float32(3)
    assert je.elementwise(lambda: 2.5)() == 2.5
    assert je.elementwise(lambda: captured * 2)() == 6


# ---- Decorators, names and callables -------------------------------------------------------------


def test_decorates_with_and_without_options():
    @je.elementwise
    def plain(x):
        """Adds one."""
        return x + 1

    @je.elementwise(name="renamed", fast_math=True)
    def with_options(x):
        return x + 2

    assert plain(jnp.float32(1)) == 2
    assert with_options(jnp.float32(1)) == 3
    assert plain.__name__ == "plain"
    assert plain.__doc__ == "Adds one."
    assert repr(plain) == "<elementwise function plain>"
    assert repr(with_options) == "<elementwise function renamed>"


def test_the_name_is_in_the_jaxpr_and_in_the_kernel():
    x = jnp.ones(3)
    f = je.elementwise(lambda x: x + 1, name="my op!")
    assert "my op!" in str(jax.make_jaxpr(f)(x))
    assert "my_op" in f.cuda_source(x)
    assert 'name = "ew_my_op' in lowered(f, x)


class _Adder:
    def __init__(self, shift):
        self.shift = shift

    def __call__(self, x):
        return x + self.shift

    def method(self, x):
        return x - self.shift


@pytest.mark.parametrize(
    ("fun", "expected"),
    [
        (functools.partial(jnp.subtract, 5.0), [4, 3]),
        (functools.partial(lambda x, y: x - y, y=5.0), [-4, -3]),
        (_Adder(2.0), [3, 4]),
        (_Adder(2.0).method, [-1, 0]),
        (jnp.square, [1, 4]),
        (jax.jit(lambda x: 3 * x), [3, 6]),
        (abs, [1, 2]),
    ],
    ids=["partial", "partial_keyword", "callable", "method", "jnp", "jit", "builtin"],
)
def test_wraps_anything_that_can_be_called(fun, expected):
    np.testing.assert_array_equal(je.elementwise(fun)(jnp.array([1.0, 2.0])), expected)


def test_an_elementwise_function_can_be_called_inside_another():
    inner = je.elementwise(lambda x: jnp.sin(x))
    outer = je.elementwise(lambda x, y: inner(x) * y)
    x, y = jnp.linspace(0, 1, 4), jnp.float32(2)
    assert_same(outer(x, y), jnp.sin(x) * y)
    assert_same(jax.grad(lambda x: outer(x, y).sum())(x), jnp.cos(x) * y)


# ---- Static arguments ----------------------------------------------------------------------------


def _activation(x, mode="relu", *, times=1):
    for _ in range(times):
        x = jnp.maximum(x, 0) if mode == "relu" else jnp.tanh(x)
    return x


@pytest.mark.parametrize("names", [("mode", "times"), ["mode", "times"]], ids=["tuple", "list"])
def test_static_arguments_choose_what_is_traced(names):
    f = je.elementwise(_activation, static_argnames=names)
    x = jnp.array([-1.0, 0.5])
    np.testing.assert_array_equal(f(x), [0, 0.5])
    assert_same(f(x, mode="tanh"), jnp.tanh(x))
    assert_same(f(x, mode="tanh", times=2), jnp.tanh(jnp.tanh(x)))
    assert_same(jax.jit(lambda x: f(x, mode="tanh"))(x), jnp.tanh(x))


def test_a_static_argument_may_be_given_by_position_as_in_jit():
    f = je.elementwise(_activation, static_argnames="mode")
    x = jnp.array([-1.0, 0.5])
    assert_same(f(x, "tanh"), jax.jit(_activation, static_argnames="mode")(x, "tanh"))


def test_a_static_argument_may_stand_before_variadic_ones():
    f = je.elementwise(lambda x, mode, *ys, **more: x + sum(ys), static_argnames=("mode", "other"))
    x = jnp.array([-1.0, 0.5])
    np.testing.assert_array_equal(f(x, "d", x, x, other="e"), 3 * x)


def test_static_arguments_trace_once_per_value():
    traces = []

    @functools.partial(je.elementwise, static_argnames="n")
    def f(x, *, n):
        traces.append(n)
        return x * n

    x = jnp.ones(2)
    for n in (2, 3, 2, 3):
        np.testing.assert_array_equal(f(x, n=n), [n, n])
    assert traces == [2, 3]


def test_wrong_static_arguments_are_refused_as_by_jit():
    with pytest.raises(ValueError, match="mode"):
        je.elementwise(lambda x: x, static_argnames="mode")
    with pytest.raises(ValueError, match=r"Non-hashable"):
        je.elementwise(_activation, static_argnames="mode")(jnp.ones(2), mode=["relu"])


# ---- Scalars -------------------------------------------------------------------------------------


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", ["bool", "int32", "uint32", "float16", "bfloat16", "float32"])
@pytest.mark.parametrize("scalar", [True, 3, 2.4], ids=str)
def test_python_scalars_are_weakly_typed_as_in_jit(dtype, scalar, rng):
    def f(x, y):
        return x * y, y, x + 1, jnp.where(x > 0, x, y)

    x = random_array(rng, (7,), dtype)
    ours, theirs = je.elementwise(f)(x, scalar), jax.jit(f)(x, scalar)
    assert_same(ours, jax.tree.map(lambda r: jnp.broadcast_to(r, (7,)), theirs), eps=1)
    for a, b in zip(ours, theirs, strict=True):
        assert a.weak_type == b.weak_type


@pytest.mark.parametrize(
    "scalar", [np.float32(2.4), np.float64(2.4), np.int32(2), np.array(2.4), jnp.float32(2.4)]
)
@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "int32"])
def test_numpy_scalars_and_rank_0_arrays_are_typed_as_in_jit(dtype, scalar, rng):
    x = random_array(rng, (7,), dtype)
    ours, theirs = (wrap(lambda x, y: x * y)(x, scalar) for wrap in (je.elementwise, jax.jit))
    assert_same(ours, theirs)
    assert ours.weak_type == theirs.weak_type


def test_a_new_scalar_neither_traces_nor_compiles(compilations):
    traces = []

    @je.elementwise
    def f(x, s):
        traces.append(s)
        return x * s

    x = jnp.arange(3.0)
    outer = jax.jit(lambda x, s: f(x, s) + 1)
    f(x, 1.5), outer(x, 1.5)
    assert len(traces) == 1
    compilations.clear()
    for s in (2.5, -3.0, 1e30, 0.0):
        np.testing.assert_array_equal(f(x, s), np.arange(3, dtype=np.float32) * np.float32(s))
        outer(x, s)
    assert len(traces) == 1
    assert not compilations


@pytest.mark.parametrize(
    "call",
    [
        lambda wrap, x: wrap(lambda x, y: x * y)(x, 2**40),
        lambda wrap, x: wrap(lambda x, y: x * y)(x, y=-(2**31) - 1),
        lambda wrap, x: wrap(lambda d: d["a"] * d["b"])({"a": x, "b": 2**31}),
        lambda wrap, x: jax.jit(lambda x: wrap(lambda x, y: x * y)(x, 2**40))(x),
    ],
    ids=["positional", "keyword", "pytree", "in_jit"],
)
def test_integers_that_do_not_fit_raise_exactly_what_jit_raises(call):
    x = jnp.arange(3)
    with pytest.raises(OverflowError) as theirs:
        call(jax.jit, x)
    with pytest.raises(OverflowError) as ours:
        call(je.elementwise, x)
    assert str(ours.value) == str(theirs.value)


def test_integers_at_the_edge_fit():
    x = jnp.zeros(2, jnp.int32)
    f = je.elementwise(lambda x, y: x + y)
    np.testing.assert_array_equal(f(x, 2**31 - 1), [2**31 - 1] * 2)
    np.testing.assert_array_equal(f(x, -(2**31)), [-(2**31)] * 2)


@pytest.mark.parametrize("dtype", ["float64", "int64", "uint64", "complex128"])
def test_64_bit_numpy_arrays_become_32_bit_ones_without_x64(dtype):
    lowering = "auto" if dtype in ("float64", "int64", "uint64") else "xla"
    x = np.arange(5).astype(dtype)
    f = je.elementwise(lambda x: x + 1, lowering=lowering)
    result = f(x)
    assert result.dtype == jnp.asarray(x).dtype
    assert result.dtype.itemsize == x.dtype.itemsize // 2
    np.testing.assert_array_equal(result, np.arange(5) + 1)
    np.testing.assert_array_equal(jax.jit(f)(x), np.arange(5) + 1)


def test_float64_stays_float64_with_x64(x64):
    x = np.linspace(0, 1, 5)
    result = je.elementwise(lambda x, s: jnp.sin(x) * s)(x, 2.0)
    assert result.dtype == jnp.float64
    np.testing.assert_allclose(result, np.sin(x) * 2, rtol=1e-15)


def test_64_bit_integers_are_exact_with_x64(x64):
    n = np.array([2**40, -(2**62), 3])
    result = je.elementwise(lambda n: (n + 1, n * 2))(n)
    np.testing.assert_array_equal(result, [n + 1, n * 2])
    assert {r.dtype for r in result} == {np.dtype("int64")}


# ---- Shapes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", range(9))
def test_any_rank_up_to_eight(rank, rng):
    full = tuple([2, 3, 1, 2, 1, 2, 3, 2][:rank])
    x, y = random_array(rng, full), random_array(rng, full[rank // 2 :])
    assert_same(je.elementwise(lambda x, y: x * y + x)(x, y), x * y + x)


@pytest.mark.sampled
@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 3), (0, 0)], ids=str)
def test_zero_size_in_every_position(shape):
    f = je.elementwise(lambda x, y: (x * y, x > y))
    x = jnp.ones(shape)
    for y in (x, jnp.float32(2), jnp.ones(shape[-1:]), jnp.ones((1,) * len(shape))):
        product, above = f(x, y)
        assert product.shape == above.shape == shape
        assert (product.dtype, above.dtype) == (jnp.float32, jnp.bool_)
        gradient = jax.grad(lambda y, x=x: f(x, y)[0].sum())(y)
        np.testing.assert_array_equal(gradient, jnp.zeros_like(y))
    assert jax.vmap(f, (0, None))(jnp.ones((0, 4)), jnp.ones(4))[0].shape == (0, 4)
    assert len(calls(f, x, x)) == 1
    lowered(f, x, x)


def test_first_calls_from_many_threads(rng):
    functions = [je.elementwise(lambda x, k=k: jnp.sin(x) * k, name=f"f{k}") for k in range(3)]
    x = random_array(rng, (16,))
    barrier = threading.Barrier(8)

    def work(_):
        barrier.wait()
        return [jax.value_and_grad(lambda x, f=f: f(x).sum())(x) for f in functions]

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for results in pool.map(work, range(8)):
            for k, (value, gradient) in enumerate(results):
                np.testing.assert_allclose(value, (np.sin(x) * k).sum(), rtol=1e-4, atol=1e-5)
                assert_same(gradient, jnp.cos(x) * k)


# ---- As a method ---------------------------------------------------------------------------------


@jax.tree_util.register_pytree_node_class
class Scale:
    def __init__(self, factor):
        self.factor = factor

    def tree_flatten(self):
        return (self.factor,), None

    @classmethod
    def tree_unflatten(cls, _, children):
        return cls(*children)

    @je.elementwise
    def apply(self, x):
        return self.factor * x

    @functools.partial(je.elementwise, static_argnames="self")
    def named(self, x):
        return x + len(type(self).__name__)


def test_a_method_gets_its_instance():
    scale, x = Scale(jnp.float32(3)), jnp.arange(3.0)
    assert_same(scale.apply(x), 3 * x)
    assert_same(jax.grad(lambda s: s.apply(x).sum())(scale).factor, x.sum())
    assert_same(Scale.apply(scale, x), 3 * x)
    assert_same(scale.named(x), x + 5)


def test_an_argument_may_be_called_self():
    f = je.elementwise(lambda self, x: self - x)
    assert f(self=3.0, x=1.0) == 2
    assert "__global__" in f.cuda_source(self=jnp.ones(2), x=1.0)
