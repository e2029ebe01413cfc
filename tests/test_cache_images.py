"""Entries of the cache that are large, and machine code that cannot be loaded."""

import functools
import json
import os
import shutil

import jax.numpy as jnp
import numpy as np
import pytest
from cases import run_python
from support import simt
from support.extension import entries, fake_nvrtc, run

import jax_elementwise as je
from jax_elementwise import _extension

COMPILER = os.environ.get("CXX") or next(filter(shutil.which, ("c++", "g++", "clang++")), "")
MIB = 2**20

# ---- Large entries -------------------------------------------------------------------------------

# Compiles one kernel; how much memory that took beside the rest of the process.
COMPILE = """
import resource
compile_("other", "text")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
compile_("k", "text")
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps([*counts(), (after - before) // 1024]))
"""


def measured(directory, change):
    """Compilations and MiB, in a process that finds an entry that was changed."""
    run('compile_("k", "text")', nvrtc=fake_nvrtc())
    (entry,) = entries(directory)
    good = entry.read_bytes()
    change(entry, good)
    compilations, _, _, memory = json.loads(run(COMPILE, nvrtc=fake_nvrtc()))
    assert entry.read_bytes() == good
    return compilations, memory


def header_and_key(entry):
    """Of an entry: its three numbers, and all that is before its payload."""
    magic, numbers, rest = entry.split(b"\n", 2)
    key = rest[: int(numbers.split()[0], 16)]
    return magic, numbers.split(), key


@pytest.mark.parametrize("size", [500, 8 * 1024])
def test_a_huge_file_in_the_place_of_an_entry_is_not_read(size, directory):
    def change(path, good):
        os.truncate(path, size * MIB)  # of which nothing is on the disk

    compilations, memory = measured(directory, change)
    assert compilations == 2
    assert memory < 50


@pytest.mark.parametrize("size", [2**30, 8 * 2**30, 2**62])
def test_an_entry_of_any_size_that_it_may_claim_is_not_read(size, directory):
    def change(path, good):
        magic, (key_size, _, checksum), key = header_and_key(good)
        header = b"\n".join([magic, b"%s %016x %s" % (key_size, size, checksum), key])
        path.write_bytes(header)
        os.truncate(path, min(len(header) + size, 2**42))

    compilations, memory = measured(directory, change)
    assert compilations == 2
    assert memory < 50


def test_an_entry_of_another_key_is_not_read_to_its_end(directory):
    def change(path, good):
        magic, (key_size, _, checksum), key = header_and_key(good)
        other = key[:-1] + b"T"
        path.write_bytes(
            b"\n".join([magic, b"%s %016x %s" % (key_size, 500 * MIB, checksum), other])
        )
        os.truncate(path, path.stat().st_size + 500 * MIB)

    compilations, memory = measured(directory, change)
    assert compilations == 2
    assert memory < 50


def test_a_large_entry_is_read_once(directory):
    size = 100 * MIB
    code = COMPILE.replace('compile_("other", "text")', "counts()")
    first, second = (
        json.loads(run(code, nvrtc=fake_nvrtc(), FAKE_NVRTC_SIZE=str(size))) for _ in range(2)
    )
    assert first[:2] == [1, 0]
    assert second[:2] == [0, 1]
    assert second[3] < 250  # the entry, and what Python gets


# ---- Libraries that cannot be loaded -------------------------------------------------------------


@pytest.fixture(params=["junk", "empty_library"])
def broken(request, tmp_path, monkeypatch, host_compiler):
    """A compiler that gives what cannot be loaded, as often as lines are in the file it returns."""
    path, times = tmp_path / "c++", tmp_path / "times"
    real = shutil.which(COMPILER)
    made = {"junk": "echo junk > $out", "empty_library": f"{real} -shared -x c++ /dev/null -o $out"}
    path.write_text(f"""#!/bin/sh
case "$*" in
  *-shared*) if [ -s {times} ]; then
    sed -i 1d {times}
    for word; do [ "$last" != -o ] || out=$word; last=$word; done
    {made[request.param]}
    exit
  fi;;
esac
exec {real} "$@"
""")
    path.chmod(0o755)
    monkeypatch.setenv("CXX", str(path))
    return times


def new_function():
    """A function that this process has not loaded, and what it makes of ones."""
    new_function.serial += 1
    factor = np.float32(3 + new_function.serial / 64)
    return je.elementwise(lambda x: x * factor, lowering="kernel"), [factor] * 2


new_function.serial = 0
CALL = """
import json, jax.numpy as jnp, jax_elementwise as je
f = je.elementwise(lambda x: x * 1.8125, name="broken", lowering="kernel")
print(json.dumps([f(jnp.ones(2)).tolist(), *je.cache_info()[:2], je.cache_info().loads]))
"""


def test_a_library_on_disk_that_cannot_be_loaded_is_compiled_anew(broken, directory):
    f = je.elementwise(lambda x: x * 1.8125, name="broken", lowering="kernel")
    broken.write_text("once\n")
    _extension.compile(f._kernel((jnp.ones(2),), {}), _extension.HOST_CPU)
    (entry,) = entries(directory)
    bad = entry.read_bytes()
    assert json.loads(run_python(CALL)) == [[1.8125] * 2, 1, 1, 1]
    assert entries(directory) == [entry]
    assert entry.read_bytes() != bad
    assert json.loads(run_python(CALL)) == [[1.8125] * 2, 0, 1, 1]


def test_a_compiler_that_gives_one_once_is_asked_again(broken, directory):
    broken.write_text("once\n")
    f, expected = new_function()
    np.testing.assert_array_equal(f(jnp.ones(2)), expected)
    assert je.cache_info()[:2] == (2, 0)


def test_a_compiler_that_always_gives_one_is_an_error_that_is_not_kept(broken, directory):
    broken.write_text("once\ntwice\n")
    f, expected = new_function()
    message = "jax_elementwise: (cannot load a compiled kernel: |a compiled kernel has no ew_host)"
    with pytest.raises(Exception, match=message):
        f(jnp.ones(2)).block_until_ready()
    assert je.cache_info()[:2] == (2, 0)
    assert not entries(directory)
    np.testing.assert_array_equal(f(jnp.ones(2)), expected)


# ---- Machine code that a GPU's driver does not load ----------------------------------------------


@functools.cache
def loader():
    """A program that loads a kernel, and the directory of its driver."""
    csrc, runtime = simt.ROOT / "tests" / "csrc", simt.ROOT / "csrc" / "runtime"
    driver = simt.compile_cpp([csrc / "fake_cuda.cc"], "libcuda.so.1", ["-shared", "-fPIC"])
    names = ("disk_cache", "driver", "host_compiler", "kernel_cache", "nvrtc")
    sources = [csrc / "load_kernel.cc", *(runtime / f"{name}.cc" for name in names)]
    flags = ['-DEW_PACKAGE_VERSION="test"', "-O0", "-ldl", "-pthread"]
    program = simt.compile_cpp(sources, "load_kernel", flags)
    library = program.parent / "libcuda.so.1"
    if not library.exists():  # what is kept between runs has other names
        library.symlink_to(driver)
    return program, library.parent


def load(failures, failing="cuLibraryLoadData", result=200):
    """What comes of a kernel on a GPU whose driver fails so often."""
    program, drivers = loader()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LD_LIBRARY_PATH", str(drivers))
        patch.setenv("FAKE_CUDA_FAILURES", str(failures))
        patch.setenv("FAKE_CUDA_FAILING", failing)
        patch.setenv("FAKE_CUDA_RESULT", str(result))
        return simt.run_binary(program, fake_nvrtc())


FUNCTIONS = ["cuLibraryLoadData", "cuLibraryGetKernel", "cuKernelGetFunction", "cuFuncLoad"]


def test_a_gpu_that_loads_everything(directory):
    assert load(0) == "loaded; 1 compilations, 0 read, 1 loads\n"
    assert load(0) == "loaded; 0 compilations, 1 read, 1 loads\n"


@pytest.mark.parametrize("failing", FUNCTIONS)
@pytest.mark.parametrize("result", [200, 209, 218, 222, 300, 500])
def test_code_that_the_driver_finds_bad_is_compiled_once_more(failing, result, directory):
    assert load(1, failing, result) == "loaded; 2 compilations, 0 read, 1 loads\n"
    assert load(1, failing, result) == "loaded; 1 compilations, 1 read, 1 loads\n"
    assert len(entries(directory)) == 1


@pytest.mark.parametrize("failing", FUNCTIONS)
def test_code_that_stays_bad_is_an_error_and_not_kept(failing, directory):
    message = f"{failing} failed with code 200: a failure that a test asked for"
    assert load(2, failing) == f"{message}; 2 compilations, 0 read, 0 loads\n"
    assert not entries(directory)


@pytest.mark.parametrize("result", [2, 100, 719])
def test_a_device_that_fails_says_nothing_of_the_code(result, directory):
    message = f"cuLibraryLoadData failed with code {result}: a failure that a test asked for"
    assert load(1, result=result) == f"{message}; 1 compilations, 0 read, 0 loads\n"
    assert len(entries(directory)) == 1
