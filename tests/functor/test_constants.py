"""Small arrays that a function captures, and that it makes of its arguments."""

import functools
import itertools

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from cases import (
    TARGET,
    assert_same,
    calls,
    collectives,
    equations,
    kernels,
    lowered,
    random_array,
    reference,
)
from jax import lax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from support import simt
from support.sampling import sampled

import jax_elementwise as je
from jax_elementwise._functor import derivatives

T = np.array([0.5, -1.0, 2.0, 0.25, 3.0, -0.75, 1.5, 1.0], np.float32)
X = np.linspace(-2, 2, 8).astype(np.float32)

MAKERS = {
    "numpy": lambda values: lambda: values,
    "jax": lambda values: functools.partial(lambda array: array, jnp.asarray(values)),
    "list": lambda values: lambda: jnp.array(values.tolist()),
}
WRAPS = {"eager": lambda f: f, "jit": jax.jit, "vmap": jax.vmap}


def _polynomial(table):
    return lambda x: jnp.polyval(table(), x)


def _interpolation(table):
    return lambda x: jnp.interp(x, X, table())


def _lookup(table):
    return lambda x: jnp.asarray(table())[jnp.floor(x * 2).astype(int) + 4] * x * x


def _mixture(table):
    """A sum over a table, of a function of both."""
    return lambda x: jax.nn.logsumexp(table() * x - 0.5 * x * x)


def _layer(table):
    """A small dense layer."""

    def fun(x):
        hidden = jnp.tanh(jnp.asarray(table()).reshape(4, 2) @ jnp.stack([x, x * x]))
        return hidden @ table()[:4]

    return fun


FUNCTIONS = pytest.mark.parametrize(
    "make", [_polynomial, _interpolation, _lookup, _mixture, _layer], ids=lambda f: f.__name__[1:]
)


def _points(rng):
    """Between the points of X, where every function has a derivative."""
    x = rng.uniform(-1.9, 1.9, (5, 7)).astype(np.float32)
    return jnp.asarray(x)


# ---- Values and derivatives ----------------------------------------------------------------------


POLYNOMIAL = _polynomial(lambda: T)


@pytest.mark.sampled
@FUNCTIONS
@pytest.mark.parametrize(
    ("kind", "wrap"),
    sampled(
        itertools.product(MAKERS, WRAPS),
        [("numpy", "eager"), ("numpy", "vmap"), ("jax", "jit"), ("list", "eager")],
    ),
)
def test_values_are_those_of_jax(make, kind, wrap, rng):
    wrap = WRAPS[wrap]
    fun = make(MAKERS[kind](T))
    x = _points(rng)
    assert_same(wrap(je.elementwise(fun))(x), reference(fun)(x), eps=32)
    assert len(calls(je.elementwise(fun), x)) == 1
    assert len(calls(je.elementwise(fun), x)[0].invars) == 1


def _all_derivatives(f):
    """The first three of them, by both modes."""

    def first(x):
        return jax.grad(lambda x: f(x).sum())(x)

    def second(x):
        return jax.grad(lambda x: first(x).sum())(x)

    def run(x):
        mixed = jax.jvp(first, (x,), (jnp.ones_like(x),))
        return jax.jvp(f, (x,), (2 * x,)), jax.vmap(first)(x), second(x), mixed

    return run


@pytest.mark.sampled
@FUNCTIONS
def test_derivatives_are_those_of_jax(make, rng):
    fun = make(MAKERS["numpy"](T))
    x = _points(rng)
    mine, theirs = (jax.jit(_all_derivatives(f))(x) for f in (je.elementwise(fun), reference(fun)))
    assert_same(mine, theirs, eps=1024)


def test_derivatives_without_jit_are_those_of_jax(rng):
    x = _points(rng)
    mine, theirs = (
        _all_derivatives(f)(x) for f in (je.elementwise(POLYNOMIAL), reference(POLYNOMIAL))
    )
    assert_same(mine, theirs, eps=256)


@pytest.mark.sampled
@FUNCTIONS
def test_kernels_of_derivatives_are_right(make, rng):
    """Compared with float64, since XLA's tanh is less exact than the kernels' where it is 1."""
    x = np.asarray(_points(rng)).ravel()
    tangent, _ = derivatives.jvp(simt.make_functor(make(lambda: T), ["float32"]), (0,))
    gradient = derivatives.transpose(tangent, (1,), (), (0,))
    second, _ = derivatives.jvp(gradient, (0,))
    made = [f for f in (tangent, gradient, second) if f.out_avals]  # an interpolation's is 0
    programs = [simt.kernel_of(f) for f in made]
    operands = [(x, np.ones_like(x), np.ones_like(x))[: len(f.in_avals)] for f in made]
    pairs = zip(programs, operands, strict=True)
    results = simt.build(programs).run(
        [simt.Call(kernel, x.shape, ("float32",), given) for kernel, given in pairs]
    )
    with jax.enable_x64(True):
        fun = make(lambda: T.astype(np.float64))
        first = jax.grad(fun)
        wide = x.astype(np.float64)
        expected = [jax.vmap(f)(wide) for f in (first, first, jax.grad(first))]
    for (result,), derivative in zip(results, expected, strict=False):
        np.testing.assert_allclose(result, derivative, 1e-5, 1e-5)


def test_arrays_made_of_arguments_need_no_table(rng):
    x, y = random_array(rng, (3, 4)), random_array(rng, (4,))

    def fun(x, y):
        values = jnp.stack([x, y, x * y])
        return values.max(), jnp.sum(values**2), values[jnp.argmin(values)]

    f = je.elementwise(fun)
    assert_same(f(x, y), reference(fun)(x, y))
    gradients = [
        jax.grad(lambda x, y, g=g: sum(r.sum() for r in g(x, y)), (0, 1))(x, y)
        for g in (f, reference(fun))
    ]
    assert_same(*gradients, eps=64)
    assert not [
        e for e in equations(jax.make_jaxpr(f)(x, y)) if e.primitive.name == "constant_array"
    ]


# ---- Where a table may be captured ---------------------------------------------------------------


def _in_scan(x):
    return lax.scan(lambda total, k: (total * x + jnp.asarray(T)[k], None), 0.0, jnp.arange(8))[0]


def _in_cond_in_jit(x):
    table = jnp.asarray(T)
    return jax.jit(lambda x: lax.cond(x > 0, lambda: jnp.sum(table * x), lambda: table[2]))(x)


PLACES = {
    "jit": lambda x: jax.jit(lambda x: jnp.polyval(jnp.asarray(T), x))(x),
    "jit_in_jit": lambda x: jax.jit(jax.jit(lambda x: (x * T).sum()))(x),
    "cond": lambda x: lax.cond(x > 0, lambda: jnp.sum(x * T), lambda: T[1] * x),
    "switch": lambda x: lax.switch(1, [lambda: x, lambda: (x * jnp.asarray(T)).sum()]),
    "cond_in_jit": _in_cond_in_jit,
    "remat": lambda x: jax.checkpoint(lambda x: jnp.sin(x * T).sum())(x),
    "scan": _in_scan,
    "fori_loop": lambda x: lax.fori_loop(0, 8, lambda k, c: c * x + jnp.asarray(T)[k], 0.0),
    "vmap": lambda x: jax.vmap(lambda t: t * x)(T).sum(),
    "elementwise": lambda x: je.elementwise(lambda x: jnp.polyval(T, x))(x) * x,
    "grad": lambda x: jax.grad(lambda x: jnp.polyval(T, x))(x),
    "with_a_scalar": lambda x: (x * T).sum() * jnp.float32(2) + jnp.asarray(T)[3],
}  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize("name", PLACES)
def test_tables_are_found_wherever_they_are_captured(name, rng):
    fun, x = PLACES[name], _points(rng)
    f = je.elementwise(fun)
    assert_same((f(x), jax.jit(f)(x)), (reference(fun)(x),) * 2, eps=64)
    mine, theirs = (jax.grad(lambda x, g=g: g(x).sum())(x) for g in (f, reference(fun)))
    assert_same(mine, theirs, eps=256)
    assert f.cuda_source(x)


def _jvp_rule(table):
    f = jax.custom_jvp(lambda x: jnp.polyval(table, x))
    f.defjvp(lambda primals, dots: (f(*primals), jnp.interp(primals[0], X, table) * dots[0]))
    return f


def _vjp_rule(table):
    f = jax.custom_vjp(lambda x: jnp.polyval(table, x))
    f.defvjp(lambda x: (f(x), x), lambda x, dot: (jnp.interp(x, X, table) * dot,))
    return f


@pytest.mark.sampled
@pytest.mark.parametrize("make", [_jvp_rule, _vjp_rule])
@pytest.mark.parametrize("convert", [np.asarray, jnp.asarray], ids=["numpy", "jax"])
def test_a_derivative_rule_may_capture_a_table(make, convert, rng):
    x = _points(rng)
    f = je.elementwise(make(convert(T)))
    assert_same(f(x), jnp.polyval(T, x), eps=64)
    for wrap in (lambda f: f, jax.jit):
        gradient = wrap(jax.grad(lambda x: f(x).sum()))
        assert_same(gradient(x), jnp.interp(x, X, T), eps=32)
        assert len(kernels(lowered(gradient, x))) == 1


# ---- Dtypes --------------------------------------------------------------------------------------


@pytest.mark.sampled
@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("dtype", ["float64", "int64", "uint64", "float32", "bfloat16", "bool"])
@pytest.mark.parametrize("convert", [np.asarray, jnp.asarray], ids=["numpy", "jax"])
def test_tables_have_the_dtypes_that_arrays_would(x64, dtype, convert):
    with jax.enable_x64(x64):
        values = np.array([0, 1, 3, 2]).astype(jnp.dtype(dtype))
        table = convert(values)
        x = jnp.arange(4.0, dtype=jnp.float32)

        def fun(x):
            return jnp.asarray(table)[x.astype(jnp.int32)], jnp.sum(x * table)

        mine = je.elementwise(fun)(x)
        assert_same(mine, reference(fun)(x))
        canonical = jnp.asarray(values).dtype
        assert mine[0].dtype == canonical
        assert je.elementwise(fun).cuda_source(x)


def test_an_integer_table_keeps_all_bits(x64):
    table = np.array([2**62 + 1, -(2**63), 2**63 - 1, 7, -1], np.int64)
    i = jnp.arange(5)
    np.testing.assert_array_equal(je.elementwise(lambda i: jnp.asarray(table)[i])(i), table)
    result = simt.evaluate(lambda i: jnp.asarray(table)[i], np.arange(5, dtype=np.int32))
    np.testing.assert_array_equal(result, table)


def test_special_floats_are_kept():
    table = np.array([np.nan, np.inf, -np.inf, -0.0, 5e-324, 1e-40], np.float32)
    i = np.arange(6, dtype=np.int32)
    result = simt.evaluate(lambda i: jnp.asarray(table)[i], i)
    np.testing.assert_array_equal(result.view(np.uint32), table.view(np.uint32))


# ---- Identity ------------------------------------------------------------------------------------


def _functor(fun, x):
    (call,) = calls(je.elementwise(fun, name="f"), x)
    return call.params["functor"]


def test_equal_tables_are_one_functor_and_one_kernel():
    x = jnp.ones(3)
    made = [_polynomial(MAKERS[kind](values)) for kind in MAKERS for values in (T, T.copy())]
    assert len({_functor(fun, x) for fun in made[:4]}) == 1  # the list has other equations
    assert len({je.elementwise(fun, name="f").cuda_source(x) for fun in made}) == 1


@pytest.mark.parametrize(
    "other",
    [T + 1, T[::-1].copy(), T[:4], T.astype(np.float16), -T, T.view(np.int32)],
    ids=["values", "order", "length", "dtype", "signs", "bits"],
)
def test_different_tables_are_different_functors_and_kernels(other):
    x = jnp.ones(3)
    one, two = (_polynomial(MAKERS["numpy"](values)) for values in (T, other))
    assert _functor(one, x) != _functor(two, x)
    f, g = (je.elementwise(fun, name="f") for fun in (one, two))
    assert f.cuda_source(x) != g.cuda_source(x)
    assert_same(jax.jit(lambda x: (f(x), g(x)))(x), (jnp.polyval(T, x), jnp.polyval(other, x)))


def test_zeros_of_either_sign_are_different_tables():
    x = jnp.ones(3)
    zeros = np.zeros(4, np.float32)
    assert _functor(_polynomial(lambda: zeros), x) != _functor(_polynomial(lambda: -zeros), x)


def test_a_table_is_traced_and_compiled_once(compilations):
    traces = []

    def fun(x):
        traces.append(x)
        return jnp.interp(x, X, T)

    f = je.elementwise(fun)
    gradient = jax.jit(jax.grad(lambda x: f(x).sum()))
    x = jnp.arange(3.0)
    jax.block_until_ready((f(x), gradient(x)))
    before = len(traces), len(compilations)
    x = jax.device_put(X[:3])
    jax.block_until_ready((f(x), gradient(x), f(x)))
    assert (len(traces), len(compilations)) == before
    assert before[0] == 1


def test_a_table_that_changes_later_does_not_change_the_functor():
    table = T.copy()
    f = je.elementwise(lambda x: (x * table).sum())
    before = f(jnp.ones(3))
    table[:] = 0
    np.testing.assert_array_equal(f(jnp.ones(3)), before)


# ---- Programs ------------------------------------------------------------------------------------


def interpolate(x):
    return jnp.interp(x, X, T) + jnp.polyval(T, x)


def test_a_call_with_tables_is_one_custom_call_and_nothing_else(rng):
    text = lowered(je.elementwise(interpolate), random_array(rng, (6, 4)))
    assert len(kernels(text)) == 1
    assert text.count("stablehlo.") == 1


def test_programs_with_tables_can_be_exported(rng):
    x = random_array(rng, (6, 4))
    allowed = [jax.export.DisabledSafetyCheck.custom_call(TARGET)]
    step = jax.jit(jax.value_and_grad(lambda x: je.elementwise(interpolate)(x).sum()))
    exported = jax.export.export(step, platforms=["cpu", "cuda"], disabled_checks=allowed)(x)
    assert exported.mlir_module().count(f"custom_call @{TARGET}") == 2
    expected = jax.value_and_grad(lambda x: reference(interpolate)(x).sum())(x)
    assert_same(exported.call(x), expected, eps=256)
    pytest.importorskip("flatbuffers")
    assert_same(jax.export.deserialize(exported.serialize()).call(x), expected, eps=256)


needs_devices = pytest.mark.skipif(jax.device_count() < 8, reason="needs 8 devices")


@needs_devices
@pytest.mark.parametrize("kind", [AxisType.Explicit, AxisType.Auto], ids=["explicit", "auto"])
def test_tables_are_on_every_device_without_collectives(kind, rng):
    f = je.elementwise(interpolate)
    gradient = jax.grad(lambda x: f(x).sum())
    mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(kind,) * 2)
    x = random_array(rng, (8, 4))
    expected = f(x), gradient(x)
    with jax.set_mesh(mesh):
        placed = jax.device_put(x, NamedSharding(mesh, P("x", "y")))
        results = jax.jit(f)(placed), jax.jit(gradient)(placed)
        assert_same(results, expected)
        assert all(r.sharding.is_equivalent_to(placed.sharding, 2) for r in results)
        assert collectives(f, placed) == collectives(lambda x: jax.vjp(f, x)[1](x), placed) == []


@needs_devices
def test_tables_inside_of_shard_map(rng):
    mesh = jax.make_mesh((8,), ("x",), axis_types=(AxisType.Auto,))
    x = random_array(rng, (8, 4))
    fun = je.elementwise(lambda x: interpolate(x) + jnp.asarray(T)[jnp.int32(x) + 2])
    mapped = jax.shard_map(fun, mesh=mesh, in_specs=P("x"), out_specs=P("x"))
    placed = jax.device_put(x, NamedSharding(mesh, P("x")))
    assert_same(jax.jit(mapped)(placed), fun(x))
    gradients = [jax.jit(jax.grad(lambda x, g=g: g(x).sum()))(placed) for g in (mapped, fun)]
    assert_same(*gradients)
    assert collectives(mapped, placed) == []


def test_a_table_of_64_bits_may_be_lowered_without_x64():
    table = np.array([1, 1 / 3])
    with jax.enable_x64(True):
        f = je.elementwise(lambda x: x * jnp.asarray(table)[1], lowering="xla")
        traced = jax.jit(lambda x: f(x) + f(2 * x)).trace(jnp.float64(1))
    text = traced.lower().as_text()
    assert "tensor<2xf64>" in text
    assert "f32" not in text
