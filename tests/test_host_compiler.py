"""The C++ compiler of this machine: where it is found, what it fails at, its part of the cache."""

import json
import os
import re
import shutil
import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import run_python
from support import simt
from support.extension import entries

import jax_elementwise as je
from jax_elementwise import _extension, _runtime
from jax_elementwise._codegen.iteration import iteration_space
from jax_elementwise._codegen.kernel import Kernel

pytestmark = pytest.mark.usefixtures("host_compiler")

COMPILER = os.environ.get("CXX") or next(filter(shutil.which, ("c++", "g++", "clang++")), "")


def new_kernel(dtype="float32"):
    """A kernel that no test has compiled before."""
    new_kernel.serial += 1
    factor = float(f"1.{os.getpid()}{new_kernel.serial}")
    return simt.make_kernel(lambda x: x * factor, [dtype])


new_kernel.serial = 0


def compile_(kernel):
    return _extension.compile(kernel, _extension.HOST_CPU)


def counts():
    found = _runtime.counters()
    return found["compilations"], found["disk_hits"], found["memory_hits"]


def script(path, text):
    """A program that is a shell script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def wrapper(path, before=""):
    """A compiler that does something before it is the real one."""
    return script(path, f'{before}\nexec {shutil.which(COMPILER)} "$@"')


# ---- Finding it ----------------------------------------------------------------------------------

FUNCTION = """
import warnings, jax, jax.numpy as jnp
import jax_elementwise as je
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for scale in (2, 3):
        f = je.elementwise(lambda x: jax.lax.fori_loop(0, 9, lambda _, y: y + scale, jnp.sin(x)))
        assert jnp.allclose(f(jnp.ones(3)), jnp.sin(1.0) + 9 * scale)
        assert jnp.allclose(jax.grad(lambda x: f(x).sum())(jnp.ones(3)), jnp.cos(1.0))
        assert jax.vmap(f)(jnp.ones((2, 3))).shape == (2, 3)
print(len(caught), *(w.message for w in caught))
try:
    je.elementwise(jnp.tan, lowering="kernel")(jnp.ones(3))
except RuntimeError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"CXX": "", "PATH": ""}, "there is no c[+][+], .* on PATH. Install one"),
        ({"CXX": "/nowhere/c++"}, "CXX names a compiler that is not there: /nowhere/c[+][+]"),
        ({"CXX": "no such -compiler"}, "CXX names a compiler that is not there: no such -compiler"),
        ({"CXX": "/bin/false"}, r"/bin/false does not work \(exit status 1\)"),
    ],
    ids=["none", "nonexistent", "words", "false"],
)  # fmt: skip
def test_without_a_compiler_auto_warns_once_and_kernel_is_an_error(environment, message):
    printed = run_python(FUNCTION, **environment)
    pattern = f"1 [^$]*XLA's own operations are used: [^$]*{message}[^$]*\nUnavailable .*{message}"
    assert re.match(pattern, printed)


def test_the_environment_names_a_compiler_with_spaces_or_arguments(
    directory, tmp_path, monkeypatch
):
    log = tmp_path / "log"
    named = wrapper(tmp_path / "a path; with 'spaces'" / "c++", f'echo "$1" >> {log}')
    for value in (str(named), f"{wrapper(tmp_path / 'c++', f'echo $1 >> {log}')} -DFIRST=1"):
        monkeypatch.setenv("CXX", value)
        assert compile_(new_kernel())[:4] == b"\x7fELF"
        assert log.read_text()
        log.write_text("")
    assert counts() == (2, 0, 0)


def test_every_compiler_has_entries_of_its_own(directory, tmp_path, monkeypatch):
    kernel = new_kernel()
    compile_(kernel)
    monkeypatch.setenv("CXX", str(wrapper(tmp_path / "c++")))
    compile_(kernel)
    assert counts() == (2, 0, 0)
    compile_(kernel)
    assert counts() == (2, 0, 1)


def test_every_cpu_has_entries_of_its_own(directory, tmp_path, monkeypatch):
    """What a home directory that several machines share may hold is not run on the wrong one."""
    kernel, flags = new_kernel(), tmp_path / "flags"
    keep = 'for w; do [ "$w" = -march=native ] || set -- "$@" "$w"; shift; done'
    text = f'{keep}\nset -- "$@" $(cat {flags})'
    compiler = wrapper(tmp_path / "c++", text)
    monkeypatch.setenv("CXX", str(compiler))
    for number, macros in enumerate(("-DAVX=1", "-DAVX=2")):
        flags.write_text(macros)
        os.utime(compiler, (number + 1, number + 1))  # another machine knows nothing of this one
        compile_(kernel)
    assert counts() == (2, 0, 0)
    assert len(entries(directory)) == 2


# ---- Failures ------------------------------------------------------------------------------------


def test_the_message_of_a_compiler_that_fails_is_in_the_error(directory, tmp_path, monkeypatch):
    text = 'case "$*" in *-shared*) echo "out of cheese" >&2; exit 3;; esac'
    monkeypatch.setenv("CXX", str(wrapper(tmp_path / "c++", text)))
    f = je.elementwise(lambda x: jnp.sin(x) * 7, lowering="kernel")
    for _ in range(2):  # a failure is not remembered
        with pytest.raises(je.CompileError, match=r"does not compile:\nout of cheese\n.*status 3"):
            f(jnp.ones(3))
    assert not entries(directory)
    monkeypatch.setenv("CXX", COMPILER)
    np.testing.assert_allclose(f(jnp.ones(3)), np.sin(1) * 7, 1e-6)


def test_a_compiler_that_is_killed_and_one_that_writes_nothing(directory, tmp_path, monkeypatch):
    for number, (text, message) in enumerate([("kill -9 $$", "signal 9"), ("exit 0", "no output")]):
        text = f'case "$*" in *-shared*) {text};; esac'
        monkeypatch.setenv("CXX", str(wrapper(tmp_path / str(number) / "c++", text)))
        with pytest.raises(je.CompileError, match=message):
            compile_(new_kernel())


def test_an_error_shows_the_line_of_the_kernel_and_no_directory():
    space = iteration_space([()], ())
    kernel = Kernel("broken", "int f() {\n  return nothing;\n}", (), space, 4)
    with pytest.raises(je.CompileError, match=r"(?s)broken does not compile:\n.*nothing") as caught:
        compile_(kernel)
    assert "\nbroken.cc:2:10: error:" in str(caught.value)
    assert "/jax_elementwise." not in str(caught.value)


def test_nothing_is_left_in_the_directory_of_temporary_files(directory, tmp_path, monkeypatch):
    files = tmp_path / "files"
    files.mkdir()
    monkeypatch.setenv("TMPDIR", str(files))
    f = je.elementwise(lambda x: jnp.cos(x) * 11, lowering="kernel")
    np.testing.assert_allclose(f(jnp.ones(3)), np.cos(1) * 11, 1e-6)
    assert not list(files.iterdir())


def test_a_directory_that_cannot_be_written_is_unavailable(directory, monkeypatch):
    monkeypatch.setenv("TMPDIR", "/proc")
    with pytest.raises(_extension.Unavailable, match=r"cannot make a directory .*/proc/"):
        compile_(new_kernel())


# ---- The cache -----------------------------------------------------------------------------------


def test_threads_compile_a_kernel_once(directory):
    kernels = [new_kernel() for _ in range(2)]
    barrier, results = threading.Barrier(16), []

    def work(kernel):
        barrier.wait()
        results.append(compile_(kernel))

    threads = [threading.Thread(target=work, args=(kernels[i % 2],)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts() == (2, 0, 14)
    assert len(set(results)) == 2


def test_threads_call_a_new_function_at_once(directory):
    functions = [je.elementwise(lambda x: x * 3 + 0.125, lowering="kernel") for _ in range(16)]
    x = np.arange(5000, dtype=np.float32)
    barrier, wrong = threading.Barrier(16), []

    def work(f):
        barrier.wait()
        wrong.extend(np.flatnonzero(np.asarray(f(x)) != x * 3 + np.float32(0.125)))

    threads = [threading.Thread(target=work, args=(f,)) for f in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    info = je.cache_info()
    assert (info.compilations, info.loads) == (1, 1)


def test_a_second_process_compiles_nothing():
    code = """
import jax, jax.numpy as jnp, json
import jax_elementwise as je
f = je.elementwise(lambda x: jnp.sin(x) * 1.375, lowering="kernel")
print(json.dumps([float(f(jnp.ones(3))[0]), je.cache_info()]))
"""
    first, second = (json.loads(run_python(code)) for _ in range(2))
    assert first[0] == second[0]
    assert first[1][:2] == [1, 0]
    assert second[1][:2] == [0, 1]
    assert first[1][3] == second[1][3] == 1


def test_the_options_of_a_function_are_in_the_key(directory):
    x = jnp.ones(3)
    for fast in (False, True):
        je.elementwise(lambda x: x / 3 + 17, lowering="kernel", fast_math=fast)(x)
    assert counts()[0] == 2


def test_clear_cache_keeps_what_is_loaded(directory):
    f = jax.jit(je.elementwise(lambda x: x * 19, lowering="kernel"))
    f(jnp.ones(3))
    assert len(entries(directory)) == 1
    je.clear_cache()
    assert not entries(directory)
    assert f(jnp.ones(3)).tolist() == [19.0] * 3


def test_a_damaged_entry_is_compiled_anew(directory):
    kernel = new_kernel()
    code = compile_(kernel)
    (entry,) = entries(directory)
    entry.write_bytes(entry.read_bytes()[:-1])
    again = f"""
import json
from jax_elementwise import _runtime
code = _runtime.compile({kernel.source!r}, {kernel.name!r}, _runtime.HOST_CPU, [])
print(json.dumps([len(code), _runtime.counters()["compilations"]]))
"""
    assert json.loads(run_python(again)) == [len(code), 1]


# ---- Other processes -----------------------------------------------------------------------------

FORKED = """
import os, sys, warnings
import jax, jax.numpy as jnp, jax_elementwise as je
from jax_elementwise import _runtime
f = je.elementwise(lambda x: x * 2.25, lowering="kernel")
f(jnp.ones(1 << 20)).block_until_ready()
warnings.simplefilter("ignore")  # JAX's of forking
source = f.cuda_source(jnp.ones(1 << 20))
name = source.split("struct ")[1].split("_functor")[0]
child = os.fork()
if child == 0:
    code = _runtime.compile(source.replace(name, "other"), "other", _runtime.HOST_CPU, [])
    os._exit(code[:4] != b"\\x7fELF")
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), float(f(jnp.ones(3))[0]))
"""


def test_a_process_may_fork_after_use():
    done = subprocess.run(
        [sys.executable, "-P", "-c", FORKED],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "0 2.25\n", done.stderr[-2000:]


def test_a_process_that_ignores_its_children_can_compile(directory):
    kernel = new_kernel()
    code = f"""
import signal
from jax_elementwise import _runtime
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
print(_runtime.compile({kernel.source!r}, {kernel.name!r}, _runtime.HOST_CPU, [])[:4])
"""
    assert run_python(code) == "b'\\x7fELF'\n"
