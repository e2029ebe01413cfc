"""Functors in CUDA C++ on the GPU: bits, pairs, indices and derivatives."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gpu import device
from support import reference, ulp
from support.half_operations import (
    FORMATS,
    OPERATIONS,
    every_value,
    expected,
    pairs_of_values,
    triples_of_values,
)

import jax_elementwise as je
from jax_elementwise._cuda_functor import assigned

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("kernels_only")]

SIZES = (1, 7, 8, 1021, 2**20 + 3)
NARROW = ("float16", "bfloat16")


def _random(rng, dtype, size):
    kind = reference.np_dtype(dtype)
    if dtype == "int8":
        return rng.integers(-128, 128, size).astype(kind)
    return rng.normal(scale=3, size=size).astype(kind)


def same_bits(actual, wanted):
    assert actual.dtype == wanted.dtype
    with np.errstate(invalid="ignore"):
        nan = np.isnan(wanted) if ulp.is_float(wanted.dtype) else np.zeros(wanted.shape, bool)
        if nan.any():
            np.testing.assert_array_equal(np.isnan(actual), nan)
    np.testing.assert_array_equal(ulp.bits_of(actual)[~nan], ulp.bits_of(wanted)[~nan])


# ---- Against the same function in Python ---------------------------------------------------------

TWINS = {
    "add": ("T(x + y)", lambda x, y: x + y),
    "mul": ("T(x * y)", lambda x, y: x * y),
    "relu": ("x > T(0) ? x : T(0)", lambda x, y: jnp.where(x > 0, x, 0).astype(x.dtype)),
}


@pytest.mark.parametrize("dtype", ["float32", *NARROW, "int8"])
@pytest.mark.parametrize("name", TWINS)
def test_it_gives_the_bits_of_its_twin(name, dtype, rng):
    text, fun = TWINS[name]
    f = je.cuda_functor(text, inputs="T x, T y", outputs="T", name=name)
    twin = je.elementwise(fun)
    for size in SIZES:
        x, y = (_random(rng, dtype, size) for _ in range(2))
        same_bits(device.run(f, x, y), device.run(twin, x, y))
        if size > 8:  # both misaligned, each in its own way
            cut = [device.run(lambda x, y, g=g: g(x[3:], y[1:-2]), x, y) for g in (f, twin)]
            same_bits(*cut)


def test_a_fused_multiply_add_is_one(rng):
    f = je.cuda_functor("fmaf(x, y, z)", inputs="float x, float y, float z")
    plain = je.cuda_functor("x * y + z", inputs="float x, float y, float z")
    twin = je.elementwise(lambda x, y, z: x * y + z)
    for size in SIZES:
        x, y, z = (_random(rng, "float32", size) for _ in range(3))
        wide = x.astype(np.float64) * y + z  # exact but for the sum, whose error is far below
        np.testing.assert_allclose(device.run(f, x, y, z), wide, 2**-24 * (1 + 2**-20), 1e-30)
        same_bits(device.run(plain, x, y, z), device.run(twin, x, y, z))


# ---- Pairs ---------------------------------------------------------------------------------------

PAIRS = {
    "add": ("__hadd_rn(x, y)", "__hadd2_rn({x}, {y})", lambda x, y: x + y),
    "mul": ("__hmul_rn(x, y)", "__hmul2_rn({x}, {y})", lambda x, y: x * y),
    "fma": ("__hfma(x, y, T(1.5f))", "__hfma2({x}, {y}, {one_and_a_half})", None),
    "relu": ("__hmax(x, T(0.0f))", "__hmax2({x}, {zero})", None),
}


def pairwise(name, dtype):
    single, double = FORMATS[dtype].T, FORMATS[dtype].T2
    broadcast = {"float16": "__half2half2", "bfloat16": "__bfloat162bfloat162"}[dtype]
    one, two, _ = PAIRS[name]
    values = {n: f"*reinterpret_cast<const {double}*>({n})" for n in "xy"}
    values |= {"one_and_a_half": f"{broadcast}(T(1.5f))", "zero": f"{broadcast}(T(0.0f))"}
    return je.cuda_functor(
        f"""struct Pairs {{
          using T = {single};
          __device__ T operator()(T x, T y) const {{ return {one}; }}
          __device__ void Apply2(T* out, const T* x, const T* y) const {{
            *reinterpret_cast<{double}*>(out) = {two.format(**values)};
          }}
        }};""",
        outputs=dtype,
        name=f"{name}2",
    )


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("name", PAIRS)
def test_pairs_are_rounded_as_single_operations_are(name, dtype, rng):
    """Every value there is, against a permutation of them all."""
    x = every_value(FORMATS[dtype].dtype)
    y = rng.permutation(x)
    f = pairwise(name, dtype)
    assert "Apply2" in f.cuda_source(x, y)
    if name == "relu":
        with np.errstate(invalid="ignore"):
            number, wanted = ~np.isnan(x), np.where(x > 0, x, np.zeros_like(x))
        actual = device.run(f, x, y)
        np.testing.assert_array_equal(actual[number], wanted[number])
        return
    operation = next(o for o in OPERATIONS if o.expression == "__hfma(x, y, z)")
    with np.errstate(all="ignore"):
        if name == "fma":
            wanted = expected(operation, x.dtype, [x, y, np.full_like(x, 1.5)])
        else:
            wanted = PAIRS[name][2](x, y)
    same_bits(device.run(f, x, y), wanted)
    # Partial packs, and pairs at every place of a pack.
    for offset in range(1, 8):
        cut = device.run(lambda x, y, o=offset: f(x[o:], y[o:]), x, y)
        same_bits(cut, wanted[offset:])


# ---- Operators of 16-bit floats ------------------------------------------------------------------


@functools.cache
def _operands(dtype, arity):
    kind = FORMATS[dtype].dtype
    values = {1: lambda d: [every_value(d)], 2: pairs_of_values, 3: triples_of_values}
    return values[arity](kind)


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize(
    "operation",
    [o for o in OPERATIONS if not o.pairs],
    ids=lambda o: o.expression,
)
def test_operations_are_those_of_the_host(operation, dtype):
    form, operands = FORMATS[dtype], _operands(dtype, operation.arity)
    wanted = expected(operation, form.dtype, operands)
    f = je.cuda_functor(
        f"return {form.write(operation.expression)};",
        inputs=list("xyz"[: operation.arity]),
        outputs=wanted.dtype,
        name="operation",
    )
    with jax.enable_x64(True):
        actual = device.run(f, *operands)
    if operation.bitwise or not ulp.is_float(wanted.dtype):
        np.testing.assert_array_equal(actual.view(np.uint8), wanted.view(np.uint8))
    else:
        device.check(actual, wanted, operation.ulp, *operands, zeros=operation.ulp == 0)


# ---- Indices -------------------------------------------------------------------------------------


def test_the_index_of_many_elements():
    f = je.cuda_functor("i", inputs="x", index="i", outputs="int")
    x = np.zeros(2**20 + 3, np.int8)
    np.testing.assert_array_equal(device.run(f, x), np.arange(x.size))
    np.testing.assert_array_equal(device.run(lambda x: f(x[5:]), x), np.arange(x.size - 5))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_the_index_under_vmap(axis):
    f = je.cuda_functor("x + i", inputs="float x", index="i", outputs="float")
    x = np.ones((5, 37, 11), np.float32)
    shape = tuple(n for d, n in enumerate(x.shape) if d != axis)
    wanted = np.stack(
        [1 + np.arange(np.prod(shape), dtype=np.float32).reshape(shape)] * x.shape[axis]
    )
    np.testing.assert_array_equal(device.run(jax.vmap(f, axis), x), wanted)


def test_the_index_beside_broadcast_operands(rng):
    f = je.cuda_functor("x + y * i", inputs="float x, float y", index="i", outputs="float")
    x, y = rng.integers(0, 9, (300, 1)).astype("float32"), np.float32(2) ** np.arange(3)
    wanted = x + y * np.arange(900, dtype=np.float32).reshape(300, 3)
    np.testing.assert_array_equal(device.run(f, x, y), wanted)


# ---- Derivatives and scalars ---------------------------------------------------------------------

TEXT = "sinf(x) * y + a * x"


@pytest.mark.parametrize("rule", ["reference", "jvp", "cuda"])
def test_gradients(rule, rng):
    def jvp(x, y, a, dx, dy, da):
        return jnp.cos(x) * y * dx + jnp.sin(x) * dy + a * dx + da * x

    rules = {
        "reference": {"reference": lambda x, y, a: jnp.sin(x) * y + a * x},
        "jvp": {"jvp": jvp},
        "cuda": {
            "jvp": je.cuda_functor(
                "cosf(x) * y * dx + sinf(x) * dy + a * dx + da * x", inputs="x, y, a, dx, dy, da"
            )
        },
    }
    f = je.cuda_functor(TEXT, inputs="float x, float y", scalars="float a", **rules[rule])
    x, y = (rng.normal(size=10_007).astype(np.float32) for _ in range(2))
    gradient = jax.grad(lambda *xs: f(*xs).sum(), (0, 1, 2))
    by_x, by_y, by_a = jax.jit(gradient)(x, y, np.float32(0.5))
    np.testing.assert_allclose(by_x, np.cos(x) * y + 0.5, 1e-5, 1e-5)
    np.testing.assert_allclose(by_y, np.sin(x), 1e-5, 1e-5)
    np.testing.assert_allclose(by_a, x.sum(), 1e-4, 1e-2)


def test_new_scalars_do_not_compile(rng):
    f = je.cuda_functor("a * x", inputs="float x", scalars="float a", name="scaled_on_gpu")
    x = rng.normal(size=1000).astype(np.float32)
    f(x, 2.0)
    with device.counted() as counts:
        for a in (3.0, 4.0, 5.0):
            np.testing.assert_array_equal(f(x, a), np.float32(a) * x)
    assert counts["compilations"] == 0


def test_scalars_mapped_by_vmap(rng):
    f = je.cuda_functor("a * x", inputs="float x", scalars="float a")
    x, a = rng.normal(size=1000).astype(np.float32), np.float32([1, 2, 3])
    np.testing.assert_array_equal(device.run(jax.vmap(f, (None, 0)), x, a), a[:, None] * x)


def test_a_functor_in_a_loop_of_an_elementwise_function(rng):
    half_of = je.cuda_functor("x * 0.5f", inputs="float x", name="half_of")
    f = je.elementwise(
        lambda x: jax.lax.while_loop(lambda z: jnp.abs(z) > 1, lambda z: half_of(z), x)
    )
    x = rng.normal(scale=100, size=10_007).astype(np.float32)
    wanted = x.copy()
    while (large := np.abs(wanted) > 1).any():
        wanted[large] /= 2
    np.testing.assert_array_equal(device.run(f, x), wanted)


def test_operands_of_three_widths_at_an_odd_offset(rng, x64):
    n = 4097
    a = rng.standard_normal(n).astype(np.float32)
    b = rng.standard_normal(n + 3).astype(FORMATS["bfloat16"].dtype)
    f = je.cuda_functor("a + float(b) + c", inputs="float a, bfloat16 b", scalars="double c")
    wanted = (a + b[3:].astype(np.float32)).astype(np.float64) + 0.1
    actual = device.run(lambda a, b, c: f(a, b[3:], c), a, b, np.float64(0.1))
    np.testing.assert_array_equal(actual, wanted)


# ---- Results of statements, types of templates ---------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8", "float64"])
def test_an_input_that_is_a_result(dtype, rng, x64):
    descend = je.cuda_functor("w -= g;", inputs="T g, T w", outputs="T w", name="descend")
    g, w = _random(rng, dtype, 1021), _random(rng, dtype, 1021)
    same_bits(device.run(descend, g, w), w - g)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_a_class_template_has_the_type_of_its_operands(dtype, rng):
    pick = je.cuda_functor(
        "template <class T> struct Pick {"
        "  __device__ T operator()(bool c, T a, T b) const { return c ? a : b; } };"
    )
    c, a, b = rng.random(1021) < 0.5, _random(rng, dtype, 1021), _random(rng, dtype, 1021)
    same_bits(device.run(pick, c, a, b), np.where(c, a, b))


@pytest.mark.parametrize("dtype", ["float", "double", "half", "__nv_bfloat16", "int", "bool"])
def test_a_result_without_a_value_is_never_garbage(dtype, monkeypatch, x64):
    """As where there is no C++ compiler that would say so."""
    monkeypatch.setattr(assigned, "_unassigned", lambda *_: None)
    some = je.cuda_functor("if (x > 4) y = 1;", inputs="float x", outputs=f"{dtype} y", name="some")
    x = np.arange(10, dtype=np.float32)
    result = device.run(some, x).astype(np.float64)
    nothing = 0.0 if dtype in ("int", "bool") else np.nan
    np.testing.assert_array_equal(result, np.where(x > 4, 1.0, nothing))
