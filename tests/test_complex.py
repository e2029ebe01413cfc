"""Complex operands through the public interface: dtypes, transformations and derivatives.

What is right is said by ``jax.numpy`` on arrays.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import assert_same, calls, kernels, lowered, reference
from jax import lax
from jax.test_util import check_grads
from support.sampling import sampled

import jax_elementwise as je

HOLOMORPHIC = {
    "polynomial": lambda z, w: z * z * w - 2j * z,
    "quotient": lambda z, w: z / (w + 3),
    "exponential": lambda z, w: jnp.exp(z) * jnp.sin(w),
    "roots": lambda z, w: jnp.sqrt(z + 4) + jnp.log(w + 4),
    "hyperbolic": lambda z, w: jnp.tanh(z / 4) * jnp.cosh(w),
    "power": lambda z, w: (z + 3) ** -2 + w**3,
}
REAL_VALUED = {
    "abs": lambda z, w: jnp.abs(z * w),
    "parts": lambda z, w: z.real * z.imag - w.imag,
    "square_of_abs": lambda z, w: (z * jnp.conj(z)).real + jnp.conj(w).imag,
    "angle": lambda z, w: jnp.angle(z + 4) * w.real,
    "branch": lambda z, w: lax.cond(
        z.real > 0, lambda z, w: jnp.abs(z), lambda z, w: (z * w).real, z, w
    ),
}
SHAPES = ((2, 3), (3,))


def numbers(rng, shape, dtype="complex64"):
    parts = rng.uniform(-2, 2, (2, *shape))
    if dtype.startswith("complex"):
        return jnp.asarray(parts[0] + 1j * parts[1], dtype)
    return jnp.asarray(parts[0], dtype)


def both(fun):
    return je.elementwise(fun), reference(fun)


# ---- Values and dtypes ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*HOLOMORPHIC, *REAL_VALUED])
@pytest.mark.parametrize(
    "wrap", [lambda f: f, pytest.param(jax.jit, marks=pytest.mark.exhaustive)], ids=["eager", "jit"]
)
def test_values_are_those_of_jax_numpy(name, wrap, rng):
    f, r = both({**HOLOMORPHIC, **REAL_VALUED}[name])
    z, w = (numbers(rng, shape) for shape in SHAPES)
    assert_same(wrap(f)(z, w), r(z, w), eps=16)


@pytest.mark.parametrize("x64", [False, True])
def test_dtypes_are_kept_with_and_without_64_bit_types(x64, rng):
    z = numbers(rng, (3,))
    f = je.elementwise(lambda z: (z * 2, jnp.exp(z) + 1j, jnp.abs(z), z == 0, z.imag))
    with jax.enable_x64(x64):
        expected = ["complex64", "complex64", "float32", "bool", "float32"]
        assert [result.dtype for result in f(z)] == expected
        wide = f(jnp.asarray(np.asarray(z, np.complex128)))
        names = ["complex128", "complex128", "float64", "bool", "float64"]
        assert [result.dtype for result in wide] == (names if x64 else expected)


def test_float16_times_complex64_is_complex64():
    f = je.elementwise(lambda a, z: a * z)
    product = f(jnp.full(3, 1.5, jnp.float16), jnp.full(3, 2 - 1j, jnp.complex64))
    assert product.dtype == jnp.complex64
    np.testing.assert_array_equal(product, [3 - 1.5j] * 3)


@pytest.mark.parametrize("dtype", ["bool", "int8", "int32", "float16", "float32", "float64"])
def test_real_and_complex_operands_mix(dtype, rng, x64):
    x = jnp.asarray(rng.integers(0, 2, (2, 1)), dtype)
    z = numbers(rng, (3,))
    f, r = both(lambda x, z: (x * z, z - x, jnp.where(x > 0, z, 1j), x == z))
    assert_same(f(x, z), r(x, z))


def test_programs_for_cuda_call_kernels(rng):
    f = je.elementwise(lambda z, w: (z * w, jnp.abs(z)), name="of_complex")
    z, w = (numbers(rng, shape) for shape in SHAPES)
    assert len(kernels(lowered(f, z, w))) == 1
    gradient = jax.grad(lambda z: f(z, w)[1].sum())
    assert len(kernels(lowered(gradient, z))) == 1
    assert calls(gradient, z)


def test_constants_and_small_arrays(rng):
    roots = jnp.exp(2j * jnp.pi * jnp.arange(4) / 4)
    f, r = both(lambda i, z: (roots[i] * z, jnp.stack([z, jnp.conj(z)]).sum()))
    i, z = jnp.asarray(rng.integers(0, 4, 7)), numbers(rng, (7,))
    assert_same(f(i, z), r(i, z))


# ---- Transformations -----------------------------------------------------------------------------


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["exponential", "parts"])
@pytest.mark.parametrize(
    "axes", sampled([[0, None], [None, 0], [0, 0], [1, 0]], [[0, None], [1, 0]])
)
def test_vmap(name, axes, rng):
    f, r = both({**HOLOMORPHIC, **REAL_VALUED}[name])
    axes = tuple(axes)
    z, w = numbers(rng, (3, 3)), numbers(rng, (3,) if axes[1] is None else (3, 3))
    assert_same(jax.vmap(f, axes)(z, w), jax.vmap(r, axes)(z, w), eps=16)

    def gradient(f):
        return jax.vmap(jax.grad(lambda z, w: jnp.abs(f(z, w)).sum(), (0, 1)), axes)

    assert_same(gradient(f)(z, w), gradient(r)(z, w), eps=64)


# ---- Derivatives ---------------------------------------------------------------------------------


@pytest.mark.sampled
@pytest.mark.parametrize("name", [*HOLOMORPHIC, *REAL_VALUED])
def test_jvp_and_vjp_equal_those_of_jax(name, rng):
    f, r = both({**HOLOMORPHIC, **REAL_VALUED}[name])
    operands = [numbers(rng, shape) for shape in SHAPES]
    tangents = [numbers(rng, shape) for shape in SHAPES]
    assert_same(jax.jvp(f, operands, tangents), jax.jvp(r, operands, tangents), eps=32)
    value, pullback = jax.vjp(f, *operands)
    cotangent = numbers(rng, value.shape, str(value.dtype))
    expected = jax.vjp(r, *operands)[1](cotangent)
    assert_same(pullback(cotangent), expected, eps=64)
    assert_same(jax.jit(lambda *xs: jax.vjp(f, *xs)[1](cotangent))(*operands), expected, eps=64)


@pytest.mark.sampled
@pytest.mark.parametrize("name", HOLOMORPHIC)
def test_holomorphic_gradients_and_jacobians(name, rng):
    f, r = both(HOLOMORPHIC[name])
    operands = [numbers(rng, shape) for shape in SHAPES]

    def gradient(f, operator=jax.grad):
        return operator(lambda *xs: f(*xs).sum(), (0, 1), holomorphic=True)

    mine = gradient(f)(*operands)
    assert [g.shape for g in mine] == list(SHAPES)  # summed where an operand was broadcast
    assert_same(mine, gradient(r)(*operands), eps=64)
    assert_same(gradient(f, jax.jacfwd)(*operands), mine, eps=64)


@pytest.mark.sampled
@pytest.mark.parametrize("name", REAL_VALUED)
@pytest.mark.parametrize(
    "shapes",
    [
        *(SHAPES, ((1,), (2, 0))),
        *(pytest.param(s, marks=pytest.mark.exhaustive)
          for s in (((2, 1), (1, 3)), ((), (2, 3)))),
    ],
    ids=str,
)  # fmt: skip
def test_gradients_of_real_valued_functions(name, shapes, rng):
    f, r = both(REAL_VALUED[name])
    operands = [numbers(rng, shape) for shape in shapes]

    def gradient(f):
        return jax.grad(lambda *xs: f(*xs).sum(), (0, 1))

    mine = gradient(f)(*operands)
    assert [(g.shape, g.dtype) for g in mine] == [(shape, "complex64") for shape in shapes]
    assert_same(mine, gradient(r)(*operands), eps=64)


def test_gradients_by_hand():
    z = jnp.array([3 + 4j, -1j], jnp.complex64)
    size, parts, conj = (
        je.elementwise(fun)
        for fun in (jnp.abs, lambda z: z.real * z.imag, lambda z: (jnp.conj(z) ** 2).real)
    )
    for f, expected in (
        (size, jnp.conj(z) / jnp.abs(z)),
        (parts, z.imag - 1j * z.real),
        (conj, 2 * z.real + 2j * z.imag),
    ):
        np.testing.assert_allclose(jax.grad(lambda z, f=f: f(z).sum())(z), expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_the_gradient_of_a_real_operand_among_complex_ones_is_real(dtype, rng):
    x, z = numbers(rng, (2, 1), dtype), numbers(rng, (3,))
    f, r = both(lambda x, z: jnp.exp(x * z) + x)

    def gradient(f):
        return jax.grad(lambda x, z: jnp.abs(f(x, z)).sum(), (0, 1))

    mine = gradient(f)(x, z)
    assert [(g.shape, g.dtype) for g in mine] == [((2, 1), dtype), ((3,), "complex64")]
    assert_same(mine, gradient(r)(x, z), eps=64)


@pytest.mark.parametrize("name", sampled([*HOLOMORPHIC, *REAL_VALUED], ["exponential", "parts"]))
def test_finite_differences_agree_to_second_order(name, rng, x64):
    f = je.elementwise({**HOLOMORPHIC, **REAL_VALUED}[name])
    operands = [numbers(rng, shape, "complex128") for shape in ((2,), (3, 1))]
    options = {"atol": 1e-5, "rtol": 1e-5, "eps": 1e-5}
    check_grads(f, operands, order=2, modes=["rev"], **options)
    check_grads(jax.vmap(f, (None, 0)), operands, order=1, modes=["fwd"], **options)


def test_second_derivatives_of_a_holomorphic_function(rng):
    f = je.elementwise(lambda z: jnp.sin(z) * z)
    once = jax.grad(f, holomorphic=True)
    z = numbers(rng, (4,))
    second = jax.vmap(jax.grad(once, holomorphic=True))(z)
    assert_same(second, 2 * jnp.cos(z) - z * jnp.sin(z), eps=32)
