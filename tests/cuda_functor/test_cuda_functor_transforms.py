"""JAX's transformations of functors in CUDA C++, and such functors inside of others."""

import functools

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from cases import TARGET, assert_same, calls, collectives, kernels, lowered, random_array
from jax import lax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import jax_elementwise as je

pytestmark = pytest.mark.usefixtures("host_compiler")

# The same function with rules of every kind, in Python and in CUDA C++.
TEXT, FUN = "sinf(x) * y + a * x", lambda x, y, a: jnp.sin(x) * y + a * x
make = functools.partial(je.cuda_functor, TEXT, inputs="float x, float y", scalars="float a")


def by_hand(x, y, a, dx, dy, da):
    return jnp.cos(x) * y * dx + jnp.sin(x) * dy + a * dx + da * x


TANGENT = je.cuda_functor(
    "cosf(x) * y * dx + sinf(x) * dy + a * dx + da * x",
    inputs="x, y, a, dx, dy, da",
    reference=by_hand,
    name="tangent",
)
OPAQUE = je.cuda_functor(
    "cosf(x) * y * dx + sinf(x) * dy + a * dx + da * x",
    inputs="x, y, a, dx, dy, da",
    name="opaque",
)
RULES = {
    "reference": make(reference=FUN, name="reference"),
    "jvp": make(jvp=by_hand, name="jvp"),
    "both": make(reference=FUN, jvp=by_hand, name="both"),
    "cuda": make(jvp=TANGENT, name="cuda"),
    "opaque": make(jvp=OPAQUE, name="opaque_jvp"),
}
EVERY_RULE = pytest.mark.parametrize("rule", RULES)


@pytest.fixture
def operands(rng):
    return random_array(rng, (4, 1, 5)), random_array(rng, (3, 1)), jnp.float32(0.75)


def batched(fun):
    """What an elementwise function is, by XLA."""
    return lambda *xs: fun(*jnp.broadcast_arrays(*xs))


# ---- Derivatives ---------------------------------------------------------------------------------


@pytest.mark.sampled
@EVERY_RULE
def test_reverse_mode(rule, operands):
    def loss(f, *xs):
        return (f(*xs) ** 2).sum()

    actual = jax.grad(functools.partial(loss, RULES[rule]), (0, 1, 2))(*operands)
    assert_same(actual, jax.grad(functools.partial(loss, FUN), (0, 1, 2))(*operands), eps=32)
    by_x = jax.jit(jax.grad(functools.partial(loss, RULES[rule])))(*operands)
    assert_same(by_x, actual[0])


@pytest.mark.sampled
@EVERY_RULE
def test_forward_mode(rule, operands):
    dots = tuple(jnp.cos(x) for x in operands)
    actual = jax.jvp(RULES[rule], operands, dots)
    assert_same(actual, jax.jvp(batched(FUN), operands, dots), eps=32)
    one = jax.jvp(lambda y: RULES[rule](operands[0], y, 0.5), operands[1:2], dots[1:2])
    assert_same(one, jax.jvp(lambda y: FUN(operands[0], y, 0.5), operands[1:2], dots[1:2]), eps=32)


@pytest.mark.sampled
@EVERY_RULE
def test_second_derivatives(rule):
    xs = jnp.float32(0.3), jnp.float32(1.5), jnp.float32(0.75)
    if rule == "opaque":
        with pytest.raises(
            NotImplementedError, match=r"'opaque' is CUDA C.. and has no derivative"
        ):
            jax.hessian(RULES[rule], (0, 1, 2))(*xs)
        return
    assert_same(jax.hessian(RULES[rule], (0, 1, 2))(*xs), jax.hessian(FUN, (0, 1, 2))(*xs), eps=32)
    second = jax.grad(jax.grad(RULES[rule]))(*xs)
    assert_same(second, jax.grad(jax.grad(FUN))(*xs), eps=32)


def test_derivatives_are_one_kernel_each(operands):
    x, y, a = operands
    for rule, count in (("reference", 1), ("jvp", 1), ("cuda", 1), ("opaque", 1)):
        gradient = jax.grad(lambda y, f=RULES[rule]: f(x, y, a).sum())
        text = lowered(gradient, y, platform="cuda")
        assert len(kernels(text)) == count
        assert "stablehlo.sine" not in text
        assert "stablehlo.cosine" not in text


def test_without_a_rule():
    f = je.cuda_functor("x * x", inputs="x", name="f")
    x = jnp.ones(3)
    for derivative in (jax.grad(lambda x: f(x).sum()), lambda x: jax.jvp(f, (x,), (x,))):
        with pytest.raises(NotImplementedError, match=r"'f' is CUDA C.. .* jvp=.* reference="):
            derivative(x)
    assert_same(jax.grad(lambda x, y: (f(lax.stop_gradient(x)) * y).sum(), 1)(x, x), x)


def test_integers_have_no_tangents():
    f = je.cuda_functor(
        "z = x * n; big = n > 1;",
        inputs="float x, int n",
        outputs="float z, bool big",
        jvp=lambda x, n, dx: dx * n,
    )
    x, n = jnp.ones(3), jnp.int32([1, 2, 3])
    assert_same(jax.grad(lambda x: f(x, n)[0].sum())(x), jnp.float32([1, 2, 3]))
    (_, dots) = jax.jvp(lambda x: f(x, n), (x,), (x,))
    assert dots[1].dtype == jax.dtypes.float0
    by_reference = je.cuda_functor("x * n", inputs="float x, int n", reference=lambda x, n: x * n)
    assert_same(jax.grad(lambda x: by_reference(x, n).sum())(x), jnp.float32([1, 2, 3]))


def test_zero_tangents_are_not_written(operands):
    """A rule sees zeros for what is not differentiated, and they are constants of the kernel."""
    seen = []

    def rule(x, y, dx, dy):
        seen.append(dy)
        return y * dx + x * dy

    f = je.cuda_functor("x * y", inputs="x, y", jvp=rule)
    x, y = operands[:2]
    call = calls(jax.grad(lambda x: f(x, y).sum()), x)[-1]
    assert len(call.invars) == 2
    assert seen
    constant = je.cuda_functor("3.0f", inputs="x", reference=lambda x: jnp.float32(3))
    assert not jax.grad(lambda x: constant(x).sum())(x).any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"jvp": lambda x, dx: (dx, dx)}, "the jvp of 'f' gives 2 tangents for 1 results"),
        ({"jvp": je.cuda_functor("x", inputs="x", name="g")}, "the jvp 'g' has 1 operands, and is"),
        (
            {"outputs": "float", "reference": lambda x: (x, x)},
            "the reference of 'f' gives 2 results",
        ),
    ],
    ids=["results", "operands", "reference"],
)
def test_rules_that_do_not_fit(options, message):
    f = je.cuda_functor("x", inputs="x", name="f", **options)
    with pytest.raises(TypeError, match=message):
        jax.grad(lambda x: f(x).sum())(jnp.ones(3))


def test_a_reference_with_several_results_needs_outputs():
    f = je.cuda_functor("x", inputs="x", name="f", reference=lambda x: (x, x))
    with pytest.raises(TypeError, match="'f' gives 2 results, and without outputs="):
        f(jnp.ones(3))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_derivatives_of_narrow_floats(dtype, rng):
    f = je.cuda_functor("T(x * x * y)", inputs="T x, T y", reference=lambda x, y: x * x * y)
    x, y = (random_array(rng, (9,), dtype) for _ in range(2))
    gradient = jax.grad(lambda x: f(x, y).sum())(x)
    assert_same(gradient, 2 * x * y, eps=4)


def test_derivatives_of_complex_numbers():
    f = je.cuda_functor("x * y", inputs="x, y", reference=lambda x, y: x * y)
    x = jnp.array([1 + 2j, 3 - 1j], "complex64")
    actual = jax.grad(lambda x: f(x, x).real.sum(), holomorphic=False)(x)
    assert_same(actual, jax.grad(lambda x: (x * x).real.sum())(x))


# ---- vmap ----------------------------------------------------------------------------------------


@pytest.mark.sampled
@pytest.mark.parametrize("axes", [(0, None, None), (None, 1, 0), (1, 0, 0), (2, None, 0)], ids=str)
@pytest.mark.parametrize("rule", ["reference", "opaque"])
def test_vmap_over_any_axis_and_over_scalars(axes, rule, rng):
    sizes = [(6, 4, 5), (4, 6, 5), (4, 5, 6)]
    x = random_array(rng, sizes[axes[0]] if axes[0] is not None else (4, 5))
    y = random_array(rng, (6, 5) if axes[1] == 0 else (5, 6) if axes[1] == 1 else (5,))
    a = random_array(rng, (6,) if axes[2] == 0 else ())
    f = RULES[rule]
    assert_same(jax.vmap(f, axes)(x, y, a), jax.vmap(FUN, axes)(x, y, a), eps=16)
    gradient = jax.vmap(jax.grad(lambda *xs: f(*xs).sum(), (0, 2)), axes)
    expected = jax.vmap(jax.grad(lambda *xs: FUN(*xs).sum(), (0, 2)), axes)
    assert_same(gradient(x, y, a), expected(x, y, a), eps=64)
    assert len(kernels(lowered(jax.vmap(f, axes), x, y, a))) == 1


def test_per_example_gradients_by_a_scalar(rng):
    x, a = random_array(rng, (7,)), random_array(rng, (4,))
    f = RULES["cuda"]
    actual = jax.vmap(jax.grad(lambda a: f(x, x, a).sum()))(a)
    np.testing.assert_allclose(actual, np.full(4, x.sum()), 1e-5)


# ---- Inside of other functions -------------------------------------------------------------------

ADD = je.cuda_functor("x + y", inputs="x, y", reference=lambda x, y: x + y, name="add")
HALF_OF = je.cuda_functor("x / 2", inputs="float x", jvp=lambda x, dx: dx / 2, name="half_of")


def test_inside_of_elementwise_it_is_part_of_the_kernel(rng):
    x, y = random_array(rng, (9,)), random_array(rng, (3, 1))
    f = je.elementwise(lambda x, y: jnp.tanh(ADD(x, y)) * HALF_OF(y) + ADD(y, 1.0))

    def expected(x, y):
        return jnp.tanh(x + y) * y / 2 + (y + 1)

    assert_same(f(x, y), expected(x, y))
    (name,) = kernels(lowered(f, x, y, platform="cpu"))
    assert "lambda" in name
    gradients = jax.grad(lambda *a: f(*a).sum(), (0, 1))(x, y)
    assert_same(gradients, jax.grad(lambda *a: expected(*a).sum(), (0, 1))(x, y), eps=64)
    text = f.cuda_source(x, y)
    assert text.count("namespace source0 {") == text.count("namespace source1 {") == 1
    assert "namespace source2" not in text  # ADD for the same types is there once


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_inside_of_loops_and_branches(dtype, rng):
    x, y = (jnp.abs(random_array(rng, (37,), dtype)) for _ in range(2))

    @je.elementwise
    def f(x, y):
        x = lax.cond(x > y, lambda: ADD(x, y), lambda: x)
        x = lax.fori_loop(0, 3, lambda _, z: ADD(z, y).astype(x.dtype), x)
        x = lax.while_loop(lambda z: z > 1, lambda z: ADD(z, -1).astype(x.dtype), x)
        return lax.scan(lambda z, _: (ADD(z, z), None), x, None, length=4)[0]

    def by_numpy(x, y):
        x = x + y if x > y else x
        for _ in range(3):
            x = x + y
        while x > 1:
            x = x + type(x)(-1)
        return x * type(x)(16)

    with np.errstate(all="ignore"):
        pairs = zip(np.asarray(x), np.asarray(y), strict=True)
        expected = np.array([by_numpy(a, b) for a, b in pairs])
    np.testing.assert_array_equal(f(x, y), expected)


def test_derivatives_of_loops_around_functors(rng):
    x = random_array(rng, (5,))
    f = je.elementwise(lambda x: lax.fori_loop(0, 200, lambda _, z: ADD(HALF_OF(z), x), x))
    np.testing.assert_allclose(f(x), 2 * x, 1e-5)
    np.testing.assert_allclose(jax.grad(lambda x: f(x).sum())(x), np.full(5, 2.0), 1e-5)


def test_arrays_of_one_element(rng):
    """A functor under vmap inside of an elementwise function."""

    @je.elementwise
    def f(x, y):
        return jax.vmap(lambda z: ADD(z, y))(jnp.stack([x, 2 * x, 3 * x])).sum()

    x, y = random_array(rng, (7,)), random_array(rng, (7,))
    assert_same(f(x, y), 6 * x + 3 * y, eps=16)


def test_a_functor_with_an_opaque_tangent_beside_custom_vjp():
    g = jax.custom_vjp(lambda x: x * 2)
    g.defvjp(lambda x: (x * 2, None), lambda _, ct: (ct * 2,))
    f = je.elementwise(lambda x: g(RULES["opaque"](x, x, x)))
    x = jnp.ones(3)
    expected = jax.grad(lambda x: jax.vmap(lambda y: 2 * RULES["reference"](y, y, y))(x).sum())(x)
    np.testing.assert_allclose(jax.grad(lambda x: f(x).sum())(x), expected, rtol=1e-6)


# ---- Programs ------------------------------------------------------------------------------------


def test_jit_scan_and_remat(operands):
    x, y, a = operands
    f = RULES["reference"]
    step = jax.checkpoint(lambda x: f(x, y, a).mean(1, keepdims=True))

    def many(fun):
        return lambda x: lax.scan(lambda x, _: (fun(x), None), x, None, length=3)[0].sum()

    expected = many(lambda x: FUN(x, y, a).mean(1, keepdims=True))
    assert_same(jax.jit(many(step))(x), expected(x), eps=64)
    assert_same(jax.grad(many(step))(x), jax.grad(expected)(x), eps=256)


def test_symbolic_shapes(rng):
    shape = jax.export.symbolic_shape("n, 4")
    check = [jax.export.DisabledSafetyCheck.custom_call(TARGET)]
    f = je.cuda_functor(
        "x * a + i", inputs="float x", scalars="float a", index="i", outputs="float"
    )
    spec = jax.ShapeDtypeStruct(shape, "float32")
    exported = jax.export.export(jax.jit(f), platforms=["cpu"], disabled_checks=check)(
        spec, jax.ShapeDtypeStruct((), "float32")
    )
    again = jax.export.deserialize(exported.serialize())
    for n in (1, 5):
        x = random_array(rng, (n, 4))
        expected = np.asarray(x) * 2 + np.arange(4 * n, dtype=np.float32).reshape(n, 4)
        np.testing.assert_array_equal(again.call(x, jnp.float32(2)), expected)


@pytest.mark.parametrize("axis_type", [AxisType.Explicit, AxisType.Auto], ids=str)
@pytest.mark.parametrize("with_reference", [True, False])
def test_sharded_arrays(axis_type, with_reference, rng):
    mesh = jax.make_mesh((8,), ("i",), axis_types=(axis_type,))
    f = RULES["both"] if with_reference else RULES["jvp"]
    x = jax.device_put(random_array(rng, (16, 3)), NamedSharding(mesh, P("i")))
    y = random_array(rng, (3,))
    with jax.set_mesh(mesh):
        assert_same(jax.device_get(jax.jit(f)(x, y, 2.0)), jax.device_get(FUN(x, y, 2.0)))
        if axis_type is AxisType.Explicit or with_reference:
            assert collectives(f, x, y, 2.0) == []
