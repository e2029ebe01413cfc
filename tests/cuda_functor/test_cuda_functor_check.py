"""``check``: a functor against its reference. And what users of such tools have reported."""

import re

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from cases import random_array
from support import reference, ulp

import jax_elementwise as je

pytestmark = pytest.mark.usefixtures("host_compiler")


def functor(text, **options):
    return je.cuda_functor(text, **{"inputs": "x, y", "name": "f", **options})


# ---- Agreement -----------------------------------------------------------------------------------


@pytest.mark.sampled
@pytest.mark.parametrize(
    "dtype", ["float32", "float16", "bfloat16", "int8", "bool", "complex64", "float64"]
)
def test_what_agrees(dtype, rng, x64):
    x, y = (random_array(rng, (3, 7), "float32").astype(dtype) for _ in range(2))
    f = functor("T(x * y)", inputs="T x, T y", reference=lambda x, y: (x * y).astype(x.dtype))
    assert f.check(x, y) is None
    f.check(x, y[0, 0])
    f.check(x[0, 0], y[0, 0])
    f.check(x[:0], y[:0])


def test_special_values_agree():
    x = np.float32([np.nan, np.inf, -np.inf, 0, 1])
    functor("x * y", reference=lambda x, y: x * y).check(x, x)


def test_several_results_scalars_and_the_index(rng):
    f = je.cuda_functor(
        "s = a * x + i; b = x > a;",
        inputs="float x",
        scalars="float a",
        outputs="float s, bool b",
        index="i",
        reference=lambda x, a, i: (a * x + i, x > a),
        jvp=lambda x, a, i, dx, da: a * dx + da * x,
    )
    x = random_array(rng, (4, 5))
    f.check(x, 0.5)
    f.check(x, jnp.float32(0.5))


@pytest.mark.parametrize("override", ["", "auto", "kernel", "xla"])
@pytest.mark.parametrize("lowering", ["auto", "kernel", "xla"])
def test_the_functor_is_a_kernel_and_the_reference_is_evaluated_by_xla(
    lowering, override, monkeypatch
):
    """Where both were the same, nothing could differ."""
    monkeypatch.setenv("JAX_ELEMENTWISE_LOWERING", override)
    f = functor("x + y + 1", reference=lambda x, y: x + y, lowering=lowering)
    with pytest.raises(AssertionError, match="result 0 of 2 of 2 elements"):
        f.check(np.float32([1, 2]), np.float32([1, 2]))


def test_without_a_reference():
    with pytest.raises(ValueError, match="'f' has no reference= to compare it with"):
        functor("x + y").check(jnp.ones(3), 1.0)


# ---- Disagreement --------------------------------------------------------------------------------


def test_the_message_shows_the_worst_element():
    f = functor("x > 2 ? x + y : x", reference=lambda x, y: x)
    x, y = np.float32([[1, 2], [3, 4]]), np.float32([0.5, 8])
    message = (
        "'f' and its reference differ in result 0 of 2 of 4 elements, most at (1, 1): "
        "for (4.0, 8.0) it gives 12.0, the reference 4.0"
    )
    with pytest.raises(AssertionError, match=f"^{re.escape(message)}$"):
        f.check(x, y)


def test_integers_bools_and_nans_must_be_equal():
    for text, expected, x in (
        ("x + 1", lambda x: x, np.int32([7])),
        ("x != x", lambda x: x == x, np.float32([1])),
        ("x", lambda x: x * jnp.nan, np.float32([1])),
        ("x / 0", lambda x: x, np.float32([1])),
    ):
        f = functor(text, inputs="x", reference=expected)
        with pytest.raises(AssertionError, match=r"differ in result 0 of 1 of 1 elements, most at"):
            f.check(x)
        with pytest.raises(AssertionError, match=r"most at \(\)"):
            f.check(x[0])


def test_the_second_result_is_compared_too():
    f = functor("s = x; d = y;", outputs="float s, float d", reference=lambda x, y: (x, -y))
    with pytest.raises(AssertionError, match="differ in result 1 of 3 of 3"):
        f.check(jnp.ones(3), 1.0)


@pytest.mark.parametrize(
    ("dtype", "units"), [("float32", 16), ("float64", 16), ("float16", 1), ("bfloat16", 1)]
)
def test_how_far_floats_may_be_off(dtype, units, x64):
    eps = float(jnp.finfo(dtype).eps)
    x = np.full(5, 1, reference.np_dtype(dtype))
    for count, agrees in ((units, True), (2 * units, False)):
        scale = 1 + count * eps
        f = functor("x", inputs="T x", reference=lambda x, s=scale: x * jnp.asarray(s, x.dtype))
        if agrees:
            f.check(x)
        else:
            with pytest.raises(AssertionError, match="5 of 5"):
                f.check(x)
            f.check(x, rtol=3 * units * eps)


def test_rtol_and_atol():
    f = functor("x", inputs="x", reference=lambda x: x + 0.5)
    x = np.float32([1, 100])
    for good in ({"atol": 0.51}, {"rtol": 0.4, "atol": 0}, {"rtol": 0.34}):
        f.check(x, **good)
    for bad in ({}, {"atol": 0.49}, {"rtol": 0.3, "atol": 0}, {"rtol": 0.01}):
        with pytest.raises(AssertionError, match="of 2 elements"):
            f.check(x, **bad)


def test_small_results_beside_large_ones_may_be_off_by_a_part_of_those():
    f = functor("x", inputs="x", reference=lambda x: x + 1e-6)
    with pytest.raises(AssertionError):
        f.check(np.float32([1e-3, 1]))
    f.check(np.float32([1e-3, 1000]))


# ---- Tangents ------------------------------------------------------------------------------------


def test_a_jvp_is_compared_with_the_references(rng):
    x, y = random_array(rng, (7,)), random_array(rng, (7,))
    right = functor("x * y", reference=lambda x, y: x * y, jvp=lambda x, y, dx, dy: y * dx + x * dy)
    right.check(x, y)
    for wrong in (lambda x, y, dx, dy: y * dx, lambda x, y, dx, dy: x * dx + y * dy):
        f = functor("x * y", reference=lambda x, y: x * y, jvp=wrong)
        with pytest.raises(AssertionError, match="'f' and its reference differ in tangent 0 of"):
            f.check(x, y)


def test_a_tangent_in_cuda_is_compared_too(rng):
    x = random_array(rng, (7,))
    for text, agrees in (("2 * x * dx", True), ("3 * x * dx", False)):
        tangent = je.cuda_functor(text, inputs="x, dx")
        f = functor("x * x", inputs="x", reference=lambda x: x * x, jvp=tangent)
        if agrees:
            f.check(x)
        else:
            with pytest.raises(AssertionError, match="tangent"):
                f.check(x)


def test_integers_have_no_tangents_to_compare():
    f = functor("x * y", reference=lambda x, y: x * y, jvp=lambda x, y: ())
    f.check(np.int32([1, 2]), np.int32([3, 4]))


# ---- What users reported -------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_compound_assignments_of_narrow_floats(dtype):
    x, y = jnp.full(9, 6, dtype), jnp.full(9, 3, dtype)
    for operator, expected in {"+=": 9, "-=": 3, "*=": 18, "/=": 2}.items():
        result = je.cuda_functor(f"x {operator} y; return x;", inputs="x, y")(x, y)
        assert result.dtype == dtype
        np.testing.assert_array_equal(result, np.full(9, expected))


def test_from_three_lines_to_every_transformation():
    f = je.cuda_functor(
        """struct F {
             template <class T> __device__ T operator()(T x, T y) const { return x * x + y; }
           };""",
        reference=lambda x, y: x * x + y,
    )
    x, y = jnp.arange(4.0), jnp.ones(4)
    gradient = jax.jit(jax.vmap(jax.grad(f)))(x, y)
    np.testing.assert_array_equal(f(x, y), np.arange(4.0) ** 2 + 1)
    np.testing.assert_array_equal(gradient, 2 * np.arange(4.0))


def test_a_functor_of_the_index_is_arange():
    f = je.cuda_functor("(float)i", inputs="float x", index="i")
    np.testing.assert_array_equal(f(np.zeros(4097, np.float32)), np.arange(4097.0))


@pytest.mark.parametrize("offset", [1, 2, 3, 7])
def test_operands_of_three_widths_at_odd_offsets(offset, rng, x64):
    n = 4097
    a = rng.standard_normal(n).astype(np.float32)
    b = rng.standard_normal(n + offset).astype(ml_dtypes.bfloat16)
    c = np.float64(rng.standard_normal())
    f = je.cuda_functor("a + float(b) + c", inputs="float a, bfloat16 b", scalars="double c")
    expected = (a + b[offset:].astype(np.float32)).astype(np.float64) + c
    ulp.assert_same(np.asarray(jax.jit(lambda a, b, c: f(a, b[offset:], c))(a, b, c)), expected)
    mixed = je.cuda_functor(
        "T(a + T(b) + c)", inputs="float a, bfloat16 b", scalars="T c", outputs="T"
    )
    wide = a.astype(np.float64) + b[offset:].astype(np.float64) + c
    ulp.assert_same(np.asarray(mixed(a, b[offset:], c)), wide)
