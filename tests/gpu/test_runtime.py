"""Compiling, caching and loading: how often each happens, and what a failure looks like."""

import concurrent.futures
import dataclasses
import json
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gpu import device
from support import programs, simt

import jax_elementwise as je
from jax_elementwise import _runtime
from jax_elementwise._lowering import custom_call

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("kernels_only")]

SCRIPT = device.HERE / "three_kernels.py"
GPUS = jax.local_device_count()  # a program may run on any of them


def run_script(cache, *args):
    return json.loads(device.python(SCRIPT, *args, JAX_ELEMENTWISE_CACHE_DIR=str(cache)).output())


# ---- Processes -----------------------------------------------------------------------------------


def test_a_second_process_compiles_nothing(tmp_path):
    first, second = run_script(tmp_path / "cache"), run_script(tmp_path / "cache")
    assert first["counters"]["compilations"] == 3
    assert first["counters"]["disk_hits"] == 0
    assert first["counters"]["loads"] == 3 * GPUS
    assert second["counters"]["compilations"] == 0
    assert second["counters"]["disk_hits"] == 3
    assert second["counters"]["loads"] == 3 * GPUS
    assert first["values"] == second["values"]


@pytest.mark.parametrize(("write", "read"), [("export", "import"), ("save", "load")])
def test_a_program_from_another_process_brings_its_kernels(write, read, tmp_path):
    pytest.importorskip("flatbuffers", reason="JAX serialises exported programs with it")
    file = tmp_path / "program"
    caches = {"JAX_ELEMENTWISE_CACHE_DIR": str(tmp_path / "one")}
    device.python(SCRIPT, write, file, **caches).output()
    other = run_script(tmp_path / "two", read, file)
    assert other["counters"]["compilations"] == 3
    assert other["counters"]["loads"] == 3 * GPUS
    assert other["values"] == run_script(tmp_path / "one")["values"]


def test_xlas_own_cache_of_programs(tmp_path):
    caches = {
        "JAX_ELEMENTWISE_CACHE_DIR": str(tmp_path / "kernels"),
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "programs"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    first = json.loads(device.python(SCRIPT, **caches).output())
    entries = {path.name for path in (tmp_path / "programs").iterdir()}
    second = json.loads(device.python(SCRIPT, **caches).output())
    assert second["values"] == first["values"]
    assert second["counters"]["compilations"] == 0
    # The second process asked for the same programs, and found them.
    assert {path.name for path in (tmp_path / "programs").iterdir()} == entries


# ---- This process --------------------------------------------------------------------------------


def test_a_kernel_is_compiled_and_loaded_once(rng):
    f = je.elementwise(lambda x: x * 0.12345 + jnp.sin(x))
    x = jnp.asarray(rng.normal(size=1003), jnp.float32)
    with device.counted() as counts:
        for n in (1003, 1000, 7):
            jax.block_until_ready([f(x[:n]), jax.jit(lambda x: f(x) * 2)(x[:n])])
    assert counts["compilations"] == 1
    assert counts["loads"] == GPUS
    with device.counted() as counts:
        for value in range(20):
            jax.block_until_ready(f(x * value))
    assert not any(counts[key] for key in ("compilations", "loads", "disk_hits"))


def test_clearing_the_cache_leaves_loaded_kernels_alone(rng):
    f = je.elementwise(lambda x: x * 0.54321 + jnp.cos(x))
    x = jnp.asarray(rng.normal(size=1003), jnp.float32)
    expected = np.asarray(f(x))
    je.clear_cache()
    np.testing.assert_array_equal(f(x), expected)
    np.testing.assert_array_equal(jax.jit(lambda x: f(x))(x), expected)  # compiled anew
    assert je.cache_info().loads == 0


def test_new_scalars_neither_trace_nor_compile(rng):
    traces = []

    @je.elementwise
    def f(x, limit):
        traces.append(limit)
        return jnp.minimum(x, limit * 1.2345)

    x = jnp.asarray(rng.normal(size=100), jnp.float32)
    f(x, 0.5)
    with device.counted() as counts:
        for limit in (0.25, 1.5, -1.0):
            expected = np.minimum(np.asarray(x), np.float32(limit) * np.float32(1.2345))
            np.testing.assert_allclose(f(x, limit), expected, rtol=1e-6)
    assert len(traces) == 1
    assert counts["compilations"] == counts["loads"] == 0


def test_a_damaged_cache_is_made_anew(tmp_path):
    first = run_script(tmp_path)
    for path in tmp_path.iterdir():
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    second = run_script(tmp_path)
    assert second["values"] == first["values"]
    assert second["counters"]["compilations"] == 3


# ---- Errors --------------------------------------------------------------------------------------


@pytest.fixture
def broken_kernels(monkeypatch):
    """Kernels whose text no compiler accepts."""
    kernel_for = custom_call.kernel_for

    def broken(*args, **kwargs):
        kernel = kernel_for(*args, **kwargs)
        return dataclasses.replace(kernel, source=kernel.source.replace("out0 =", "nonsense ="))

    monkeypatch.setattr(custom_call, "kernel_for", broken)


def test_text_that_does_not_compile_is_refused_before_anything_runs(broken_kernels):
    f = je.elementwise(lambda x: x * 0.54321, name="cursed", lowering="kernel")
    x = jnp.ones(8)
    with pytest.raises(je.CompileError, match=r"(?s)ew_cursed_\w+ does not compile.*nonsense"):
        jax.jit(f).lower(x)
    with pytest.raises(je.CompileError, match="nonsense"):
        f(x)


def test_with_auto_it_is_a_warning(broken_kernels):
    f = je.elementwise(lambda x: x * 0.54325, name="cursed")
    with pytest.warns(UserWarning, match=r"(?s)kernel that was generated for 'cursed'.*nonsense"):
        y = f(jnp.ones(8))
    np.testing.assert_allclose(y, 0.54325, rtol=1e-6)


def test_a_failure_is_not_remembered(monkeypatch):
    f = je.elementwise(lambda x: x * 0.654321, lowering="kernel")
    kernel_for = custom_call.kernel_for
    x = jnp.ones(8)
    with monkeypatch.context() as patch:
        patch.setattr(
            custom_call,
            "kernel_for",
            lambda *args, **kwargs: dataclasses.replace(kernel_for(*args, **kwargs), source="?"),
        )
        with pytest.raises(je.CompileError):
            f(x)
    np.testing.assert_allclose(f(x), 0.654321, rtol=1e-6)


def test_another_format_of_the_call_is_refused(monkeypatch):
    monkeypatch.setattr("jax_elementwise._extension.FORMAT", 999)
    with pytest.raises(Exception, match="made for format 999"):
        jax.jit(je.elementwise(lambda x: x * 0.76543))(jnp.ones(8)).block_until_ready()


X = np.arange(24, dtype=np.float32).reshape(4, 6)


@pytest.mark.parametrize(
    ("changes", "is_vouched", "message"),
    [({"pack": 2}, False, "digest is not that"), ({"name": "k"}, False, "digest is not that"),
     ({"pack": 0}, True, "packs of 0 elements"), ({"groups": (2**62,)}, True, "merges 4611686018"),
     ({"options": "-o /tmp/x"}, True, "option '-o'"), ({"index_bits": 7}, True, "of 7 bits"),
     ({"pack": "x"}, False, "no attribute 'pack' of the right type"),
     ({"source": 5}, False, "no attribute 'source' of the right type"),
     ({"groups": np.float32(2)}, False, "no attribute 'groups' of the right type")],
)  # fmt: skip
def test_attributes_that_were_changed_are_refused(changes, is_vouched, message):
    attributes = programs.attributes_of(simt.make_kernel(lambda x: x * 2, ["float32"]), **changes)
    if is_vouched:
        attributes = programs.vouched(attributes)
    with pytest.raises(jax.errors.JaxRuntimeError, match=f"jax_elementwise: .*{message}"):
        programs.run(attributes, (X.ravel(),), programs.like(X.ravel()))


@pytest.mark.parametrize(
    ("operands", "results", "message"),
    [((X, X), (X,), "2 operands where the kernel has 1"),
     ((X,), (X, X), "2 results where the kernel has 1"),
     ((X.astype(np.int32),), (X,), "operand 0 is of dtype int32 where the kernel has float32"),
     ((X,), (X.astype(np.int32),), "result 0 is of dtype int32 where the kernel has float32"),
     ((X.ravel(),), (X.ravel(),), "1 dimensions of the results where the kernel has 2"),
     ((X[:2],), (X,), "array 1 has 12 elements where the kernel reads 24")],
)  # fmt: skip
def test_buffers_that_are_not_the_kernels_are_refused(operands, results, message):
    made = simt.make_kernel(lambda x: x * 2, ["float32"], [X.shape])
    attributes = programs.attributes_of(made)
    np.testing.assert_array_equal(programs.run(attributes, (X,), programs.like(X))[0], 2 * X)
    with pytest.raises(jax.errors.JaxRuntimeError, match=f"jax_elementwise: .*{message}"):
        programs.run(attributes, operands, programs.like(*results))


# ---- Threads -------------------------------------------------------------------------------------


def test_eight_threads_that_start_cold(rng):
    functions = [je.elementwise(lambda x, y, k=k: jnp.sin(x) * y + 0.1 * k) for k in range(1, 7)]
    x, y = jnp.asarray(rng.normal(size=(2, 3, 1003)), jnp.float32)
    barrier = threading.Barrier(8)

    def work(thread):
        barrier.wait()
        results = {}
        for i in range(len(functions)):
            k = (i + thread) % len(functions)
            results[k] = np.asarray(jax.jit(lambda x, y, f=functions[k]: f(x, y) * 2)(x, y))
            results[k] = results[k], np.asarray(functions[k](x, y))
        return results

    with device.counted() as counts, concurrent.futures.ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(work, range(8)))
    for results in outcomes:
        for k, (twice, once) in results.items():
            expected = np.sin(np.asarray(x)) * np.asarray(y) + 0.1 * (k + 1)
            np.testing.assert_allclose(once, expected, rtol=1e-5, atol=1e-5)
            np.testing.assert_array_equal(twice, once * 2)
    assert counts["compilations"] == len(functions)
    assert counts["loads"] == len(functions) * GPUS


def test_threads_that_share_warm_kernels(rng):
    f = jax.jit(je.elementwise(lambda x, s: x * s))
    x = jnp.asarray(rng.integers(-8, 9, 4099), jnp.float32)

    def work(thread):
        for i in range(100):
            np.testing.assert_array_equal(f(x, float(thread + i)), np.asarray(x) * (thread + i))

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))


def test_the_gpu_is_seen():
    assert _runtime.compute_capabilities()
    assert all(number >= 75 for number in _runtime.compute_capabilities())
