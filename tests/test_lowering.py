"""What becomes of a call: one custom call for CUDA, XLA's operations elsewhere and on request."""

import itertools
import json
import re
import warnings

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from cases import SMOOTH, TARGET, assert_same, kernels, lowered, random_array, run_python
from jax import lax

import jax_elementwise as je
from jax_elementwise import _extension, _runtime
from jax_elementwise._lowering import platforms


def tanh_product(x, y):
    return jnp.tanh(x) * y


F = je.elementwise(tanh_product)
CUSTOM_CALL = jax.export.DisabledSafetyCheck.custom_call(TARGET)


def raw(fun, *args, platform="cuda"):
    return jax.jit(fun).trace(*args).lower(lowering_platforms=(platform,)).as_text()


def attributes(text):
    (config,) = re.findall(r"mhlo\.backend_config = \{(.*?)\}, operand_layouts", text)
    pattern = r'(\w+) = ("[^"]*"|dense<[^>]*> : tensor<\w+>|\S+ : i64|source = \.\.\.|\.\.\.)'
    return dict(re.findall(pattern, config))


@pytest.fixture
def xy(rng):
    return random_array(rng, (6, 4)), random_array(rng, (4,))


# ---- The custom call -----------------------------------------------------------------------------


@pytest.mark.parametrize("case", SMOOTH, ids=str)
def test_a_call_is_exactly_one_custom_call_and_nothing_else(case, rng):
    operands = case.operands(rng, [(6, 4), (4,), ()][: len(case.dtypes)])
    text = lowered(je.elementwise(case.fun), *operands)
    assert len(kernels(text)) == 1
    assert re.findall(r"stablehlo\.(\w+)", text) == ["custom_call"]


def test_the_attributes_are_all_that_the_runtime_reads(xy):
    found = attributes(lowered(F, *xy))
    assert set(found) == {
        "format", "digest", "source", "name", "options", "groups", "spans", "pack", "index_bits",
        "operand_dtypes", "result_dtypes",
    }  # fmt: skip
    assert found["format"] == "2 : i64"
    assert re.fullmatch(r'"[0-9a-f]{64}"', found["digest"])
    assert re.fullmatch(r'"ew_tanh_product_[0-9a-f]{8}"', found["name"])
    assert found["pack"] == "4 : i64"
    assert found["index_bits"] == "32 : i64"
    assert found["groups"] == "dense<1> : tensor<2xi64>"
    assert found["spans"] == "dense<[3, 2]> : tensor<2xi64>"
    assert found["options"] == '""'
    fast = je.elementwise(tanh_product, fast_math=True)
    assert attributes(lowered(fast, *xy))["options"] == '"--use_fast_math"'


def test_the_source_travels_with_the_call(xy):
    text = raw(F, *xy)
    (escaped,) = re.findall(r'source = "((?:[^"\\]|\\.)*)"', text)
    source = re.sub(r"\\([0-9A-F]{2})", lambda m: chr(int(m[1], 16)), escaped)
    assert source == F.cuda_source(*xy)


def test_operands_have_row_major_layouts(xy):
    text = lowered(lambda x, y: F(x.T, y), random_array(np.random.default_rng(0), (4, 6)), xy[1])
    assert "operand_layouts = [dense<[1, 0]> : tensor<2xindex>, dense<0> : tensor<1xindex>]" in text
    assert "result_layouts = [dense<[1, 0]> : tensor<2xindex>]" in text


@pytest.mark.parametrize(
    ("x", "y", "pack", "spans"),
    [
        (((8, 4), "float32"), ((8, 4), "float32"), 4, [1, 1]),
        (((8, 4), "bfloat16"), ((8, 4), "bfloat16"), 8, [1, 1]),
        (((8, 4), "float32"), ((8, 4), "bfloat16"), 4, [1, 1]),
        (((8, 4), "bfloat16"), ((), "float32"), 4, [1, 0]),
        (((8, 1), "float32"), ((1, 4), "float32"), 4, [1, 2]),
        (((), "float32"), ((), "float32"), 4, [1, 1]),
    ],
    ids=["full", "narrow", "mixed", "scalar", "outer", "rank_0"],
)
def test_the_walk_over_arrays_depends_on_shapes_and_dtypes(x, y, pack, spans):
    operands = [jax.ShapeDtypeStruct(*xy) for xy in (x, y)]
    found = attributes(lowered(F, *operands))
    assert found["pack"] == f"{pack} : i64"
    values = re.findall(r"\d+", found["spans"].split(":")[0])
    assert (len(values) == 1 and {int(values[0])} == set(spans)) or [*map(int, values)] == spans


def test_every_call_of_a_program_is_lowered(xy):
    x, y = xy

    def chain(x, y):
        return je.elementwise(jnp.sin)(F(x, y)) + F(x.astype(jnp.bfloat16), y)

    assert len(kernels(lowered(chain, x, y))) == 3


def test_results_that_are_operands_or_equal_are_written_once(xy):
    def f(x, y):
        product = x * y
        return product, x, y, product, -x

    text = lowered(je.elementwise(f), *xy)
    assert len(kernels(text)) == 1
    (outputs,) = re.findall(r"\}\s*:\s*\(tensor[^)]*\) -> \(?(tensor[^)\n]*)", text)
    assert outputs.count("tensor<") == 3  # the product, y broadcast, -x
    for mine, theirs in zip(je.elementwise(f)(*xy), f(*xy), strict=True):
        np.testing.assert_array_equal(mine, np.broadcast_to(theirs, (6, 4)))
    assert "custom_call" not in lowered(je.elementwise(lambda x, y: (x, x)), xy[0], xy[0])


# ---- Determinism ---------------------------------------------------------------------------------

_PROGRAM = """
import jax, jax.numpy as jnp, json
import jax_elementwise as je
f = je.elementwise(lambda x, y: jax.nn.gelu(x) * y + jax.nn.softplus(x))
x, y = jnp.ones((6, 4)), jnp.ones(4)
step = jax.grad(lambda x, y: f(x, y).sum(), (0, 1))
print(json.dumps([
    jax.jit(g).trace(x, y).lower(lowering_platforms=("cuda",)).as_text() for g in (f, step)
]))
"""


def test_two_processes_write_the_same_program():
    first = json.loads(run_python(_PROGRAM, PYTHONHASHSEED="1"))
    second = json.loads(run_python("pass\n" * 5 + _PROGRAM, PYTHONHASHSEED="2"))
    assert all(TARGET in text for text in first)
    assert first == second


def test_where_a_function_is_written_does_not_change_its_kernel(xy):
    one = je.elementwise(lambda x, y: jnp.tanh(x) * y, name="f")
    other = je.elementwise(lambda a, b: jnp.tanh(a) * b, name="f")
    assert attributes(lowered(one, *xy)) == attributes(lowered(other, *xy))


def test_no_address_or_identity_is_in_a_program(xy):
    @jax.custom_jvp
    def f(x):
        return jnp.sin(x)

    f.defjvp(lambda primals, dots: (f(*primals), dots[0]))
    text = raw(jax.grad(lambda x: je.elementwise(f)(x).sum()), xy[0])
    assert not re.search(r"0x7[0-9a-f]{11}", text)
    assert not re.search(r"\bat 0x", text)


# ---- Export --------------------------------------------------------------------------------------


def test_a_program_for_cuda_is_exported_from_a_machine_without_one(xy):
    step = jax.jit(jax.value_and_grad(lambda x, y: F(x, y).sum(), (0, 1)))
    exported = jax.export.export(step, platforms=["cuda"], disabled_checks=[CUSTOM_CALL])(*xy)
    assert exported.platforms == ("cuda",)
    assert exported.mlir_module().count(f"custom_call @{TARGET}") == 2


def test_the_unstable_custom_call_must_be_allowed_by_name(xy):
    with pytest.raises(ValueError, match=TARGET):
        jax.export.export(jax.jit(F), platforms=["cuda"])(*xy)


def test_one_export_for_both_platforms_runs_here(xy):
    exported = jax.export.export(
        jax.jit(F), platforms=["cpu", "cuda"], disabled_checks=[CUSTOM_CALL]
    )(*xy)
    assert exported.mlir_module().count(f"custom_call @{TARGET}") == 1
    assert_same(exported.call(*xy), tanh_product(*xy))


def test_an_export_can_be_differentiated(xy):
    exported = jax.export.export(jax.jit(F), platforms=["cpu"])(*xy)
    mine = jax.grad(lambda x, y: exported.call(x, y).sum(), (0, 1))(*xy)
    assert_same(mine, jax.grad(lambda x, y: tanh_product(x, y).sum(), (0, 1))(*xy), eps=16)


def test_an_export_survives_serialisation(xy):
    pytest.importorskip("flatbuffers")
    exported = jax.export.export(jax.jit(F), platforms=["cpu"], disabled_checks=[CUSTOM_CALL])(*xy)
    again = jax.export.deserialize(exported.serialize())
    assert_same(again.call(*xy), tanh_product(*xy))


# ---- XLA's operations ----------------------------------------------------------------------------


@pytest.mark.parametrize("platform", ["cpu", "rocm", "tpu"])
def test_other_platforms_get_xla_operations(platform, xy):
    text = lowered(F, *xy, platform=platform)
    assert "custom_call" not in text
    assert "stablehlo.tanh" in text


def test_the_xla_lowering_makes_no_custom_call(xy, monkeypatch):
    f = je.elementwise(tanh_product, lowering="xla")
    assert "custom_call" not in lowered(f, *xy)
    assert "custom_call" not in lowered(jax.grad(lambda x, y: f(x, y).sum(), (0, 1)), *xy)
    monkeypatch.setenv("JAX_ELEMENTWISE_LOWERING", "xla")
    assert "custom_call" not in lowered(lambda x, y: F(x, y), *xy)
    monkeypatch.setenv("JAX_ELEMENTWISE_LOWERING", "kernel")
    assert "custom_call" in lowered(lambda x, y: f(x, y), *xy)


@pytest.mark.parametrize("given", list(itertools.product([True, False], repeat=3)))
def test_clamp_of_arrays_beside_scalars(given, xy):
    """``jax.vmap`` of it does not take every mixture of the two, also not where it is in a loop."""
    arrays = (xy[0] - 0.5, xy[0][::-1], xy[0] * 0 + 0.5)
    operands = [a if is_array else a[0, 0] for a, is_array in zip(arrays, given, strict=True)]

    def clamped(low, x, high):
        return lax.fori_loop(0, 2, lambda _, c: lax.clamp(low, c, high), x)

    for fun in (lax.clamp, clamped):
        actual = je.elementwise(fun, lowering="xla")(*operands)
        np.testing.assert_array_equal(actual, np.minimum(np.maximum(*operands[:2]), operands[2]))


def test_names_are_in_the_metadata_of_a_program(xy):
    def f(x, y):
        with jax.named_scope("my_scope"):
            return je.elementwise(tanh_product, name="my_function")(x, y)

    text = jax.jit(f).trace(*xy).lower(lowering_platforms=("cuda",)).as_text(debug_info=True)
    assert re.search(r'loc\("[^"]*my_scope[^"]*"', text)
    assert 'name = "ew_my_function_' in text


# ---- Compilers that fail -------------------------------------------------------------------------


@pytest.fixture
def pretend(monkeypatch):
    """Pretends that this machine has a GPU, and that compiling for it does ``outcome``."""

    def pretend(outcome):
        def compile_kernel(kernel, arch):
            compiled.append((kernel.name, arch))
            if outcome is not None:
                raise outcome

        compiled = []
        platforms._warn_once.cache_clear()
        monkeypatch.setattr(platforms, "_local_architectures", lambda: (90, 80, 90))
        monkeypatch.setattr(_extension, "compile", compile_kernel)
        return compiled

    return pretend


def test_kernels_are_compiled_when_lowered_once_per_local_architecture(xy, pretend):
    compiled = pretend(None)
    (name,) = kernels(lowered(lambda x, y: F(x, y), *xy))
    assert compiled == [(name, 80), (name, 90)]


def test_nothing_is_compiled_for_other_platforms(xy, pretend):
    compiled = pretend(_extension.Unavailable("never asked"))
    assert_same(jax.jit(lambda x, y: F(x, y))(*xy), tanh_product(*xy))
    assert not compiled


def test_without_a_compiler_auto_warns_and_uses_xla(xy, pretend):
    pretend(_extension.Unavailable("no NVRTC here"))
    with pytest.warns(UserWarning, match="XLA's own operations are used: no NVRTC here"):
        text = lowered(lambda x, y: F(x, y), *xy)
    assert "custom_call" not in text
    assert "stablehlo.tanh" in text


def test_without_a_compiler_kernel_raises(xy, pretend):
    pretend(_extension.Unavailable("no NVRTC here"))
    f = je.elementwise(tanh_product, lowering="kernel")
    with pytest.raises(RuntimeError, match="no NVRTC here"):
        lowered(f, *xy)


@pytest.mark.parametrize("lowering", ["auto", "kernel"])
@pytest.mark.parametrize("kind", [_runtime.RuntimeFailure, ValueError, OSError])
def test_failures_that_are_no_lack_of_a_compiler_are_errors(xy, pretend, kind, lowering):
    pretend(kind("our own fault"))
    f = je.elementwise(tanh_product, lowering=lowering)
    with warnings.catch_warnings(), pytest.raises(kind, match="our own fault"):
        lowered(f, *xy)


def test_a_kernel_that_does_not_compile_is_our_exception(xy, pretend):
    pretend(je.CompileError("the kernel does not compile:\nline 3"))
    f = je.elementwise(tanh_product, lowering="kernel")
    with pytest.raises(je.CompileError, match="line 3"):
        lowered(f, *xy)


def test_a_kernel_of_ours_that_does_not_compile_is_a_warning_with_auto(xy, pretend):
    pretend(je.CompileError("the kernel does not compile:\nline 3"))
    message = r"(?s)kernel that was generated for 'tanh_product', .* report .*cuda_source.*line 3"
    with pytest.warns(UserWarning, match=message) as caught:
        texts = [lowered(lambda x, y: F(x, y), *xy) for _ in range(2)]
    assert len(caught) == 1
    assert all("stablehlo.tanh" in text and "custom_call" not in text for text in texts)


def test_so_is_that_of_a_derivative(xy, pretend):
    pretend(je.CompileError("line 3"))
    x, y = xy
    gradient = jax.grad(lambda x: F(x, y).sum())
    with pytest.warns(
        UserWarning, match="generated for (a derivative of )?'tanh_product'"
    ) as caught:
        assert "custom_call" not in lowered(gradient, x)
    assert any("a derivative of" in str(w.message) for w in caught)


@pytest.mark.parametrize("mixed", [False, True])
def test_users_cuda_that_does_not_compile_is_an_error_with_auto(xy, pretend, mixed):
    pretend(je.CompileError("line 3"))
    source = je.cuda_functor("x * y", inputs="float x, float y", outputs="float",
                             reference=lambda x, y: x * y)  # fmt: skip
    f = je.elementwise(lambda x, y: source(x, y) + 1) if mixed else source
    with pytest.raises(je.CompileError, match="line 3"):
        lowered(lambda x, y: f(x, y), *xy)


def test_the_compilers_message_is_in_the_exception(nvrtc):
    from jax_elementwise._codegen.iteration import iteration_space
    from jax_elementwise._codegen.kernel import Kernel

    kernel = Kernel("broken", "int f() { return x; }", (), iteration_space([()], ()), 4)
    with pytest.raises(je.CompileError, match=r'(?s)broken does not compile.*"x" is undefined'):
        _extension.compile(kernel, 90)
