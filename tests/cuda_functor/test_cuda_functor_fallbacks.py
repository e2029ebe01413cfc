"""Functors in CUDA C++ without a compiler, without jit, in threads and in exported programs."""

import os
import subprocess
import sys
import threading

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from cases import TARGET, kernels, lowered, run_python

import jax_elementwise as je
from jax_elementwise import _extension, _runtime

CUSTOM_CALL = jax.export.DisabledSafetyCheck.custom_call(TARGET)
X = np.arange(5, dtype=np.float32)

# ---- Without a compiler --------------------------------------------------------------------------

START = """
import warnings
import jax, jax.numpy as jnp
import jax_elementwise as je
from jax_elementwise import _runtime

def missing():
    raise OSError("no NVRTC either")

_runtime.set_nvrtc_locator(missing)
x = jnp.arange(5.0)
"""

WITH_REFERENCE = (
    START
    + """
def make(scale):
    return je.cuda_functor("s * x + i", inputs="x", scalars="s", index="i", name=f"by{scale}",
                           outputs="float", reference=lambda x, s, i: s * x + i)

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for scale in (2, 3):
        f = make(scale)
        assert f(x, scale).tolist() == [(scale + 1) * k for k in range(5)]
        assert jax.jit(f)(x, 1.0).tolist() == [2 * k for k in range(5)]
        assert jax.grad(lambda s: f(x, s).sum())(2.0) == 10
        assert jax.vmap(f, (None, 0))(x, jnp.ones(3)).shape == (3, 5)
        try:
            f.check(x, 2.0)
        except RuntimeError as error:  # the reference would be compared with itself
            print(error)
untyped = je.cuda_functor("x", inputs="x", reference=lambda x: x > 1)
assert untyped(x).dtype == bool
print(len(caught), *(w.message for w in caught))
"""
)

WITHOUT_REFERENCE = (
    START
    + """
for options in ({}, {"outputs": "float"}, {"outputs": "float", "lowering": "kernel"},
                {"reference": abs, "lowering": "kernel"}):
    f = je.cuda_functor("x + 1", inputs="x", name="f", **options)
    for call in (f, jax.jit(f)):
        try:
            call(x)
        except Exception as error:
            assert isinstance(error, RuntimeError) == bool(options), error
            print(type(error).__name__, error)
"""
)


def test_with_a_reference_xla_evaluates_it_and_one_warning_says_so():
    printed = run_python(WITH_REFERENCE, CXX="", PATH="")
    *refusals, warned = printed.splitlines()
    assert len(refusals) == 2
    assert warned.startswith("1 functions with loops and functors in CUDA C++ would be faster")
    for line in (*refusals, warned):
        assert "there is no c++, g++ or clang++ on PATH. Install one" in line


def test_without_a_reference_the_error_says_what_to_install_or_to_give():
    lines = run_python(WITHOUT_REFERENCE, CXX="", PATH="").strip().split("\n")
    untyped, auto, kernel, required = lines[::2]
    assert lines[1::2] == lines[::2]
    for line in lines:
        assert "there is no c++, g++ or clang++ on PATH. Install one (apt install g++" in line
    assert untyped.startswith("TypeError the type of the result of 'f' is not known without a c")
    assert "Give outputs= or reference=." in untyped
    assert auto.startswith("Unavailable kernels for CPUs need a C++ compiler")
    assert auto.endswith("Or give 'f' a reference=, a function of the same scalars in Python, "
                         "for XLA to evaluate.")  # fmt: skip
    assert kernel.endswith("CXX.")
    assert required == f"{kernel} With lowering='auto', XLA would take over."


def test_nvrtc_alone_finds_the_type_of_a_result(nvrtc):
    code = """
import jax, jax_elementwise as je
f = je.cuda_functor("x > y", inputs="x, y")
spec = jax.ShapeDtypeStruct((3,), "float32")
print(jax.eval_shape(f, spec, spec).dtype, f.cubin(spec, spec)[:4])
text = jax.jit(f).trace(spec, spec).lower(lowering_platforms=("cuda",)).as_text()
print("custom_call @jax_elementwise_kernel" in text)
"""
    assert run_python(code, CXX="", PATH="") == "bool b'\\x7fELF'\nTrue\n"


def test_a_gpu_newer_than_nvrtc_does_not_hide_the_type_of_a_result(monkeypatch, host_compiler):
    """It gets PTX, from which no type is read."""
    monkeypatch.setattr(_extension, "compute_capabilities", lambda: [990])
    assert je.cuda_functor("x > 0.125f", inputs="x")(X).dtype == bool


# ---- By choice -----------------------------------------------------------------------------------

XLA_CANNOT = r"'f' is CUDA C\+\+, which XLA cannot evaluate. Give it a reference=.*or use a kernel"


def plain(**options):
    return je.cuda_functor("x + 1", inputs="x", name="f", outputs="float", **options)


def test_lowering_xla_needs_a_reference():
    for call in (plain(lowering="xla"), jax.jit(plain(lowering="xla"))):
        with pytest.raises(NotImplementedError, match=XLA_CANNOT):
            call(X)
    f = plain(lowering="xla", reference=lambda x: x + 2)
    np.testing.assert_array_equal(f(X), X + 2)
    assert not kernels(lowered(f, X, platform="cuda"))


@pytest.mark.usefixtures("host_compiler")
def test_the_environment_decides_for_functors_too(monkeypatch):
    f, with_reference = plain(), plain(reference=lambda x: x + 2)
    monkeypatch.setenv("JAX_ELEMENTWISE_LOWERING", "xla")
    with pytest.raises(NotImplementedError, match=XLA_CANNOT):
        f(X)
    np.testing.assert_array_equal(with_reference(X), X + 2)
    monkeypatch.setenv("JAX_ELEMENTWISE_LOWERING", "kernel")
    np.testing.assert_array_equal(f(X), X + 1)
    np.testing.assert_array_equal(with_reference(X), X + 1)
    monkeypatch.setenv("JAX_ELEMENTWISE_LOWERING", "fast")
    with pytest.raises(ValueError, match="JAX_ELEMENTWISE_LOWERING must be one of"):
        f(X)


def test_other_platforms_evaluate_the_reference():
    text = lowered(plain(reference=lambda x: x + 2), X, platform="tpu")
    assert not kernels(text)
    assert "stablehlo.add" in text
    with pytest.raises(NotImplementedError, match=XLA_CANNOT):
        lowered(plain(), X, platform="tpu")


@pytest.mark.usefixtures("host_compiler")
def test_without_jit():
    with jax.disable_jit():
        np.testing.assert_array_equal(plain()(X), X + 1)
        np.testing.assert_array_equal(plain(reference=lambda x: x + 2)(X), X + 2)
        np.testing.assert_array_equal(jax.vmap(plain())(X), X + 1)
        with pytest.raises(NotImplementedError, match=XLA_CANNOT):
            plain(lowering="xla")(X)


@pytest.mark.usefixtures("host_compiler")
@pytest.mark.parametrize("reference", [None, lambda x: jnp.log(x)], ids=["opaque", "reference"])
@pytest.mark.parametrize(
    ("flag", "value", "good"), [(jax.debug_nans, -1.0, 0.0), (jax.debug_infs, 0.0, 1.0)]
)
def test_nans_and_infinities_are_found(flag, value, good, reference):
    f = je.cuda_functor("logf(x)", inputs="float x", name="f", reference=reference)
    bad, good = jnp.float32([1, value]), jnp.float32([1, good])
    with flag(True):
        np.testing.assert_array_equal(f(good), [0, -np.inf if good[1] == 0 else 0])
        for call in (f, jax.jit(f)):
            with pytest.raises(FloatingPointError, match="encountered in"):
                call(bad)
    assert not np.isfinite(f(bad)).all()


def test_eval_shape_needs_no_compiler_where_types_are_given(directory):
    spec = jax.ShapeDtypeStruct((3,), "float32")
    assert jax.eval_shape(plain(), spec) == spec
    by_reference = je.cuda_functor("x", inputs="x", reference=lambda x: x > 0)
    assert jax.eval_shape(by_reference, spec).dtype == bool
    assert _runtime.counters()["compilations"] == 0


# ---- Threads -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("host_compiler")
def test_threads_call_new_functors_at_once(directory):
    functors = [
        je.cuda_functor(f"x * {k % 4}.5f + 0.125f", inputs="float x", name=f"f{k % 4}")
        for k in range(16)
    ]
    x = np.arange(5000, dtype=np.float32)
    barrier, wrong, done = threading.Barrier(16), [], []

    def work(k):
        barrier.wait()
        expected = x * np.float32(k % 4 + 0.5) + np.float32(0.125)
        wrong.extend(np.flatnonzero(np.asarray(functors[k](x)) != expected))
        done.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == list(range(16))
    assert not wrong
    info = je.cache_info()
    assert (info.compilations, info.loads) == (8, 4)  # kernels, and what asked for types


# ---- Other processes -----------------------------------------------------------------------------

CALL = """
import sys
import jax, jax.export, numpy as np
import jax_elementwise
exported = jax.export.deserialize(bytearray(open(sys.argv[1], "rb").read()))
print(exported.call(np.arange(5, dtype=np.float32), np.float32(3)).tolist())
"""


@pytest.mark.usefixtures("host_compiler")
@pytest.mark.parametrize("platforms", [("cpu",), ("cuda",), ("cpu", "cuda")], ids=str)
def test_an_exported_program_holds_the_text(platforms, tmp_path):
    f = je.cuda_functor(
        "helper(x) * a + i",
        inputs="float x",
        scalars="float a",
        index="i",
        outputs="float",
        preamble='#include "exported.h"',
        headers={"exported.h": "inline float helper(float x) { return x + 1; /* travels */ }"},
    )
    exported = jax.export.export(jax.jit(f), platforms=platforms, disabled_checks=[CUSTOM_CALL])(
        jax.ShapeDtypeStruct((5,), "float32"), jax.ShapeDtypeStruct((), "float32")
    )
    data = exported.serialize()
    assert bytes(data).count(b"/* travels */") >= 1
    if "cpu" not in platforms:
        return
    path = tmp_path / "program"
    path.write_bytes(data)
    done = subprocess.run(
        [sys.executable, "-P", "-W", "error", "-c", CALL, path],
        env={**os.environ, "JAX_ELEMENTWISE_TRUST_PROGRAMS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == f"{[(k + 1) * 3.0 + k for k in range(5)]}\n", done.stderr[-2000:]


@pytest.mark.usefixtures("host_compiler", "directory")
def test_a_second_process_compiles_nothing():
    code = """
import jax, jax.numpy as jnp, jax_elementwise as je
f = je.cuda_functor("x * 1.375f", inputs="float x")
print(f(jnp.ones(3))[0], *je.cache_info()[:2])
"""
    assert run_python(code) == "1.375 2 0\n"
    assert run_python(code) == "1.375 0 2\n"
