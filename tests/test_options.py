"""Options of a function, settings of JAX, and the text and machine code of a kernel."""

import contextlib
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import assert_same, random_array, reference, run_python
from jax import lax

import jax_elementwise as je

# ---- Settings of JAX -----------------------------------------------------------------------------


def test_rank_promotion_is_what_the_user_says(rng):
    x, w = random_array(rng, (3, 4)), random_array(rng, (4,))
    f = je.elementwise(lambda x, w: jnp.tanh(x) * w, name="f")
    message = (
        r"'f' have different numbers of dimensions, x: \(3, 4\), w: \(4,\), .* is '{}'.*x\[None\]"
    )
    with (
        jax.numpy_rank_promotion("raise"),
        pytest.raises(ValueError, match=message.format("raise")),
    ):
        f(x, w)
    with jax.numpy_rank_promotion("warn"), pytest.warns(UserWarning, match=message.format("warn")):
        f(x, w)


def test_works_where_rank_promotion_is_an_error(rng):
    x, w = random_array(rng, (3, 4)), random_array(rng, (1, 4))
    f = je.elementwise(lambda x, w, s: jnp.tanh(x) * w * s)
    with jax.numpy_rank_promotion("raise"):
        value, gradients = jax.value_and_grad(lambda x, w: f(x, w, 2.0).sum(), (0, 1))(x, w)
        batched = jax.vmap(lambda x, w: f(x, w, 2.0), (0, None))(x, w[0])
        tangent = jax.jvp(lambda x, w: f(x, w, 2.0), (x, w), (x, w))[1]
    assert gradients[1].shape == (1, 4)
    assert_same(value, 2 * (jnp.tanh(x) * w).sum(), eps=32)
    assert_same(batched, 2 * jnp.tanh(x) * w)
    assert tangent.shape == (3, 4)


def test_works_where_dtype_promotion_is_strict(rng):
    x = random_array(rng, (3, 4), "bfloat16")
    y = random_array(rng, (4,), "float32")
    f = je.elementwise(lambda x, y, s: (x.astype(jnp.float32) * y * s, x * 2))
    with jax.numpy_dtype_promotion("strict"):
        gradients = jax.grad(lambda x, y: f(x, y, 2.0)[0].sum(), (0, 1))(x, y)
        jax.vmap(f, (0, None, None))(x, y, 2.0)
        with pytest.raises(ValueError, match="strict"):
            je.elementwise(lambda x, y: x * y)(x, y)
    assert [g.dtype for g in gradients] == [jnp.bfloat16, jnp.float32]


def test_disable_jit_gives_the_same_numbers(rng):
    x, y = random_array(rng, (3, 4)), random_array(rng, (4,))
    f = je.elementwise(lambda x, y: jnp.tanh(x) * y)
    expected = f(x, y), jax.grad(lambda x: f(x, y).sum())(x)
    with jax.disable_jit():
        assert_same((f(x, y), jax.grad(lambda x: f(x, y).sum())(x)), expected)


def test_nan_checks_of_jax_find_the_operation():
    f = je.elementwise(lambda x: jnp.exp(x) + jnp.log(x))
    message = r"invalid value \(nan\) encountered in log"
    with jax.debug_nans(True), pytest.raises(FloatingPointError, match=message):
        f(jnp.array([-1.0, 2.0])).block_until_ready()


# ---- JAX's promotion of dtypes -------------------------------------------------------------------


def test_a_complex_gradient_under_strict_promotion():
    f = je.elementwise(lambda z: lax.fori_loop(0, 9, lambda _, y: y * z, z))
    z = jnp.complex64([0.5 + 0.25j])
    with jax.numpy_dtype_promotion("strict"):
        gradient = jax.grad(lambda z: f(z).sum(), holomorphic=True)(z)
    assert_same(gradient, 10 * z**9, 64)


def test_a_gradient_of_results_of_several_dtypes_under_strict_promotion():
    def fun(x, y):
        return lax.fori_loop(0, 12, lambda _, c: c * x, x), y * y

    x, y = jnp.float32([0.5, 1]), jnp.float16([0.5, 1])
    with jax.numpy_dtype_promotion("strict"):
        values, pull = jax.vjp(je.elementwise(fun), x, y)
        gradients = pull(values)
    expected = jax.vjp(reference(fun), x, y)[1](values)
    assert_same(gradients, expected, 64)


# ---- Lowerings -----------------------------------------------------------------------------------


def test_xla_lowering_takes_what_kernels_do_not(rng):
    @functools.partial(je.elementwise, lowering="xla")
    def f(x):
        return jnp.sort(jnp.stack([x, -x]))[0]

    x = random_array(rng, (3, 4))
    np.testing.assert_array_equal(f(x), -abs(x))
    np.testing.assert_array_equal(f((4 * x).astype(jnp.int8)), -abs((4 * x).astype(jnp.int8)))
    gradient = jax.grad(lambda x: f(x).sum())(x)
    np.testing.assert_array_equal(gradient, -jnp.sign(x))


def test_xla_lowering_takes_complex_numbers():
    z = jnp.array([1 + 2j, -3j], jnp.complex64)
    f = je.elementwise(lambda a, x, y: a * x + y, lowering="xla")
    assert_same(f(2.4, z, z), 2.4 * z + z)


def test_debug_print_shows_elements_with_the_xla_lowering(capfd):
    @functools.partial(je.elementwise, lowering="xla")
    def f(x):
        jax.debug.print("element {x}", x=x)
        return 2 * x

    for wrapped in (f, jax.jit(f)):
        np.testing.assert_array_equal(wrapped(jnp.array([1.0, 2.0])), [2, 4])
        jax.effects_barrier()
        printed = capfd.readouterr().out.split("\n")
        assert sorted(filter(None, printed)) == ["element 1.0", "element 2.0"]


def test_the_environment_overrides_lowerings_at_each_call(monkeypatch):
    x = jnp.ones(3, jnp.int4)
    f = je.elementwise(lambda x: x + 1, lowering="kernel")
    with pytest.raises(TypeError, match="int4"):
        f(x)
    monkeypatch.setenv("JAX_ELEMENTWISE_LOWERING", "xla")
    np.testing.assert_array_equal(f(x).astype(jnp.int32), [2, 2, 2])
    monkeypatch.setenv("JAX_ELEMENTWISE_LOWERING", "fastest")
    with pytest.raises(ValueError, match=r"JAX_ELEMENTWISE_LOWERING .*'fastest'"):
        f(x)
    monkeypatch.setenv("JAX_ELEMENTWISE_LOWERING", "")
    with pytest.raises(TypeError, match="int4"):
        f(x)


def test_the_environment_of_a_new_process_counts():
    code = """
import jax.numpy as jnp, jax_elementwise as je
print(je.elementwise(lambda x: x + 1)(jnp.ones(2, jnp.int4)))
"""
    assert run_python(code, JAX_ELEMENTWISE_LOWERING="xla").strip() == "[2 2]"


@pytest.mark.parametrize("lowering", ["cuda", "", None, "XLA"])
def test_lowerings_that_do_not_exist_are_refused_at_once(lowering):
    with pytest.raises(ValueError, match="lowering must be one of"):
        je.elementwise(lambda x: x, lowering=lowering)


# ---- The kernel's text and machine code ----------------------------------------------------------


def test_cuda_source_shows_the_kernel_for_the_given_types():
    f = je.elementwise(lambda x, y: jnp.tanh(x) * y)
    text = f.cuda_source(jax.ShapeDtypeStruct((4, 8), jnp.bfloat16), 2.0)
    assert "tanhf(" in text
    assert "bfloat16" in text
    assert "Scalar<" in text
    other = f.cuda_source(jnp.ones(8), jnp.ones((4, 8)))
    assert "bfloat16" not in other
    assert "Rows<" in other


def test_cuda_source_takes_static_and_keyword_arguments():
    @functools.partial(je.elementwise, static_argnames="times")
    def f(x, *, times):
        for _ in range(times):
            x = jnp.tanh(x)
        return x

    assert f.cuda_source(x=jnp.ones(3), times=3).count("tanhf(") == 3


def test_cuda_source_needs_an_array():
    with pytest.raises(ValueError, match=r"'nothing' computes nothing.*no array arguments"):
        je.elementwise(lambda: 3.0, name="nothing").cuda_source()


def test_cubin_is_machine_code_for_the_architecture(nvrtc):
    f = je.elementwise(lambda x: jnp.sin(x))
    x = jnp.ones(3)
    code = {arch: f.cubin(x, arch=arch) for arch in ("sm_80", "sm_90")}
    assert all(bytes_[:4] == b"\x7fELF" for bytes_ in code.values())
    assert code["sm_80"] != code["sm_90"]
    assert f.cubin(x) == code["sm_90"]


def test_fast_math_changes_machine_code_and_not_the_text(nvrtc):
    exact, fast = (je.elementwise(jnp.sin, fast_math=fast) for fast in (False, True))
    x = jnp.ones(3)
    assert exact.cuda_source(x) == fast.cuda_source(x)
    assert exact.cubin(x) != fast.cubin(x)


@pytest.mark.parametrize("context", [contextlib.nullcontext, jax.disable_jit])
def test_cuda_source_works_whatever_the_settings(context):
    with context():
        assert "sinf(" in je.elementwise(jnp.sin).cuda_source(jnp.ones(3))
