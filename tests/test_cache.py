"""The cache of compiled kernels: in memory and on disk, whatever the state of the disk."""

import concurrent.futures
import json
import os
import pathlib
import stat
import threading

import jax.numpy as jnp
import pytest
from cases import run_python

import jax_elementwise as je
from jax_elementwise import _runtime

pytestmark = pytest.mark.usefixtures("nvrtc")

IS_ROOT = os.geteuid() == 0


@pytest.fixture
def directory(tmp_path, monkeypatch):
    """An empty cache directory that does not exist yet."""
    path = tmp_path / "a" / "kernels"
    monkeypatch.setenv("JAX_ELEMENTWISE_CACHE_DIR", str(path))
    _runtime.reset_counters()
    return path


_serial = iter(range(10**6))


def new_kernel():
    """The name and text of a kernel that no test has compiled before."""
    name = f"kernel_{os.getpid()}_{next(_serial)}"
    return name, f'extern "C" __global__ void {name}(float* x) {{ *x += 1; }}\n'


def compile_(name, source, arch=90, options=()):
    return _runtime.compile(source, name, arch, list(options))


def counts():
    found = _runtime.counters()
    return found["compilations"], found["disk_hits"], found["memory_hits"]


def compile_in_new_process(name, source, **environment):
    """The machine code's length and the counters of a process that compiles one kernel.

    The process loads the extension alone: importing JAX would take ten times as long.
    """
    code = f"""
import importlib.util, json
from cuda import pathfinder
spec = importlib.util.spec_from_file_location("_runtime", {_runtime.__file__!r})
runtime = importlib.util.module_from_spec(spec)
spec.loader.exec_module(runtime)
runtime.set_nvrtc_locator(lambda: pathfinder.load_nvidia_dynamic_lib("nvrtc").abs_path)
code = runtime.compile({source!r}, {name!r}, 90, [])
c = runtime.counters()
print(json.dumps([len(code), c["compilations"], c["disk_hits"], c["memory_hits"]]))
"""
    return json.loads(run_python(code, **environment))


def entries(directory):
    return sorted(path for path in pathlib.Path(directory).rglob("*") if path.is_file())


# ---- Hits ----------------------------------------------------------------------------------------


def test_a_kernel_is_compiled_once_in_a_process(directory):
    kernel = new_kernel()
    first = compile_(*kernel)
    assert counts() == (1, 0, 0)
    assert compile_(*kernel) == first
    assert counts() == (1, 0, 1)
    assert len(entries(directory)) == 1


def test_a_second_process_compiles_nothing(directory):
    kernel = new_kernel()
    code = compile_(*kernel)
    assert compile_in_new_process(*kernel) == [len(code), 0, 1, 0]
    assert len(entries(directory)) == 1


def test_a_second_process_compiles_nothing_for_a_python_function(directory):
    code = """
import jax, jax.numpy as jnp, json
import jax_elementwise as je
from jax_elementwise import _runtime
f = je.elementwise(lambda x, y: jnp.tanh(x) * y)
length = len(f.cubin(jnp.ones(3), jnp.ones(3))) + len(f.cubin(jnp.ones(3), 2.0))
print(json.dumps([length, _runtime.counters()]))
"""
    first, second = (json.loads(run_python(code)) for _ in range(2))
    assert first[1]["compilations"] == 2
    assert second[1]["compilations"] == 0
    assert second[1]["disk_hits"] == 2
    assert first[0] == second[0]


@pytest.mark.parametrize("other", ["arch", "options", "name", "source"])
def test_whatever_decides_machine_code_is_in_the_key(directory, other):
    name, source = new_kernel()
    compile_(name, source)
    if other == "arch":
        compile_(name, source, arch=80)
    elif other == "options":
        compile_(name, source, options=["--use_fast_math"])
    elif other == "name":
        compile_(f"{name}_b", source)
    else:
        compile_(name, source.replace("+= 1", "+= 2"))
    assert counts() == (2, 0, 0)
    assert len(entries(directory)) == 2


def test_threads_compile_a_kernel_once(directory):
    kernel = new_kernel()
    barrier = threading.Barrier(8)

    def compile_together(_):
        barrier.wait()
        return compile_(*kernel)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        codes = set(pool.map(compile_together, range(8)))
    assert len(codes) == 1
    assert counts() == (1, 0, 7)


def test_processes_that_share_a_cold_directory_are_all_right(directory):
    name, source = new_kernel()
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: compile_in_new_process(name, source), range(4)))
    assert len({length for length, *_ in results}) == 1
    assert all(compiled + read == 1 for _, compiled, read, _ in results)
    assert [path.suffix for path in entries(directory)] == [".kernel"]


# ---- Entries that are not as they should be ------------------------------------------------------


def _damage(path, how):
    entry = bytearray(path.read_bytes())
    if how == "empty":
        entry = b""
    elif how == "truncated":
        entry = entry[: len(entry) // 2]
    elif how == "one_byte_short":
        entry = entry[:-1]
    elif how == "longer":
        entry += b"more"
    elif how == "last_byte":
        entry[-1] ^= 1
    elif how == "middle_byte":
        entry[len(entry) // 2] ^= 1
    elif how == "key_byte":
        entry[100] ^= 1
    elif how == "first_byte":
        entry[0] ^= 1
    elif how == "header_only":
        entry = entry[: entry.index(b"\n") + 1]
    elif how == "garbage":
        entry = os.urandom(len(entry))
    path.write_bytes(entry)


@pytest.mark.parametrize(
    "how",
    [
        "empty", "truncated", "one_byte_short", "longer", "last_byte", "middle_byte", "key_byte",
        "first_byte", "header_only", "garbage",
    ],
)  # fmt: skip
def test_a_damaged_entry_is_compiled_again_and_replaced(directory, how):
    kernel = new_kernel()
    code = compile_(*kernel)
    (entry,) = entries(directory)
    good = entry.read_bytes()
    _damage(entry, how)
    assert compile_in_new_process(*kernel) == [len(code), 1, 0, 0]
    assert entries(directory) == [entry]
    assert entry.read_bytes() == good


def test_an_entry_that_cannot_be_read_is_compiled_again(directory):
    kernel = new_kernel()
    code = compile_(*kernel)
    (entry,) = entries(directory)
    entry.unlink()
    entry.mkdir()
    assert compile_in_new_process(*kernel) == [len(code), 1, 0, 0]


def test_an_entry_of_another_kernel_under_the_same_name_is_not_taken(directory):
    one, other = new_kernel(), new_kernel()
    compile_(*one)
    (first,) = entries(directory)
    code = compile_(*other)
    (second,) = (path for path in entries(directory) if path != first)
    second.write_bytes(first.read_bytes())
    assert compile_in_new_process(*other) == [len(code), 1, 0, 0]


# ---- Directories that are not as they should be --------------------------------------------------


def test_the_directory_and_its_entries_are_the_owners_alone(directory):
    compile_(*new_kernel())
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    (entry,) = entries(directory)
    assert stat.S_IMODE(entry.stat().st_mode) == 0o600


def test_an_empty_setting_disables_the_directory(directory, monkeypatch):
    monkeypatch.setenv("JAX_ELEMENTWISE_CACHE_DIR", "")
    assert _runtime.cache_directory() == ""
    kernel = new_kernel()
    code = compile_(*kernel)
    assert counts() == (1, 0, 0)
    assert compile_in_new_process(*kernel) == [len(code), 1, 0, 0]
    assert not entries(directory.parent.parent)


def test_a_file_in_place_of_the_directory_does_no_harm(directory):
    directory.parent.mkdir()
    directory.write_text("a file")
    kernel = new_kernel()
    assert compile_(*kernel)[:4] == b"\x7fELF"
    assert compile_in_new_process(*kernel)[1:] == [1, 0, 0]
    assert directory.read_text() == "a file"


def test_a_file_in_place_of_a_parent_does_no_harm(directory):
    directory.parent.write_text("a file")
    assert compile_(*new_kernel())[:4] == b"\x7fELF"
    assert counts() == (1, 0, 0)


@pytest.mark.skipif(IS_ROOT, reason="root may write everywhere")
def test_a_directory_that_may_not_be_written_does_no_harm(directory):
    directory.mkdir(parents=True)
    directory.chmod(0o500)
    kernel = new_kernel()
    assert compile_(*kernel)[:4] == b"\x7fELF"
    assert compile_in_new_process(*kernel)[1:] == [1, 0, 0]
    assert not entries(directory)


@pytest.mark.parametrize("path", ["/proc/jax_elementwise", "/dev/null/kernels", "\x01/\x02"])
def test_a_directory_that_cannot_be_made_does_no_harm(path, directory, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JAX_ELEMENTWISE_CACHE_DIR", path)
    assert compile_(*new_kernel())[:4] == b"\x7fELF"
    assert counts() == (1, 0, 0)


def test_a_directory_that_vanishes_is_made_again(directory):
    compile_(*new_kernel())
    (entry,) = entries(directory)
    entry.unlink()
    directory.rmdir()
    compile_(*new_kernel())
    assert len(entries(directory)) == 1


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"JAX_ELEMENTWISE_CACHE_DIR": "/d", "XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/d"),
        ({"XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/x/jax_elementwise"),
        ({"XDG_CACHE_HOME": "", "HOME": "/h"}, "/h/.cache/jax_elementwise"),
        ({"HOME": "/h"}, "/h/.cache/jax_elementwise"),
        ({}, ""),
    ],
    ids=["own", "xdg", "empty_xdg", "home", "homeless"],
)
def test_where_kernels_are_kept(environment, expected, monkeypatch):
    for name in ("JAX_ELEMENTWISE_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
        if name in environment:
            monkeypatch.setenv(name, environment[name])
    assert _runtime.cache_directory() == expected


# ---- Failures ------------------------------------------------------------------------------------


def test_a_failure_is_not_remembered(directory):
    name, source = new_kernel()
    for _ in range(2):
        with pytest.raises(_runtime.CompilationFailure, match="undefined"):
            compile_(name, source.replace("+= 1", "+= y"))
    assert counts() == (0, 0, 0)
    assert not directory.exists() or not entries(directory)
    assert compile_(name, source)[:4] == b"\x7fELF"


def test_threads_all_see_a_failure(directory):
    name, source = new_kernel()
    barrier = threading.Barrier(4)

    def fail(_):
        barrier.wait()
        with pytest.raises(_runtime.CompilationFailure, match="undefined"):
            compile_(name, source.replace("+= 1", "+= y"))

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(fail, range(4)))


def test_an_architecture_that_is_too_old_is_no_fault_of_the_kernel(directory):
    name, source = new_kernel()
    with pytest.raises(_runtime.RuntimeFailure, match=r"cannot compile for sm_35; it supports"):
        compile_(name, source, arch=35)
    assert compile_(name, source)[:4] == b"\x7fELF"


def test_an_architecture_that_is_too_new_gets_portable_code(directory):
    name, source = new_kernel()
    code = compile_(name, source, arch=999)
    assert b".target sm_" in code
    assert compile_(name, source, arch=999) == code
    assert counts() == (1, 0, 1)


def test_a_compiler_that_is_not_found_is_looked_for_again(directory):
    name, source = new_kernel()
    code = f"""
from jax_elementwise import _kernels, _runtime
def missing():
    raise OSError("no compiler in sight")
_runtime.set_nvrtc_locator(missing)
try:
    _runtime.compile({source!r}, {name!r}, 90, [])
except _runtime.RuntimeFailure as error:
    print("failed" if "no compiler in sight" in str(error) else error)
_runtime.set_nvrtc_locator(_kernels._find_nvrtc)
print(_runtime.compile({source!r}, {name!r}, 90, [])[:4])
"""
    assert run_python(code).split("\n")[:2] == ["failed", r"b'\x7fELF'"]


def test_a_function_compiles_only_what_is_new(directory):
    f = je.elementwise(lambda x, y: jnp.cosh(x) - y, name=f"f{os.getpid()}")
    x, y = jnp.ones((4, 8)), jnp.ones(8)
    f.cubin(x, y)
    f.cubin(jnp.ones((40, 80)), jnp.ones(80))
    assert counts() == (1, 0, 1)
    f.cubin(x, x)
    assert counts() == (2, 0, 1)
