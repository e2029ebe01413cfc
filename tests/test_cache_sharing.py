"""Threads and processes that share a cache, and files that come and go while they do."""

import concurrent.futures
import json
import os
import threading

import pytest
from cases import run_python
from support.extension import compile_, counts, entries, fake_nvrtc, new_kernel, run

from jax_elementwise import _runtime

pytestmark = pytest.mark.usefixtures("nvrtc")


# ---- Threads -------------------------------------------------------------------------------------


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


def test_threads_all_see_a_failure(directory):
    name, source = new_kernel()
    barrier = threading.Barrier(4)

    def fail(_):
        barrier.wait()
        with pytest.raises(_runtime.CompilationFailure, match="undefined"):
            compile_(name, source.replace("+= 1", "+= y"))

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(fail, range(4)))


def test_threads_that_start_cold_together_are_all_right(directory):
    """The very first use: none of them has looked for the compiler yet."""
    code = """
import concurrent.futures, faulthandler, json, threading
import jax, jax.numpy as jnp
import jax_elementwise as je
f = je.elementwise(lambda x: x * x + 1)
dtypes = ["float32", "float16", "bfloat16", "int32"] * 8
faulthandler.dump_traceback_later(120, exit=True)  # if they wait for each other for ever
barrier = threading.Barrier(32)
def start(dtype):
    barrier.wait()
    return f.cubin(jax.ShapeDtypeStruct((100,), dtype))
with concurrent.futures.ThreadPoolExecutor(32) as pool:
    codes = list(pool.map(start, dtypes))
right = [code == f.cubin(jnp.ones(3, dtype)) for code, dtype in zip(codes, dtypes)]
print(json.dumps([all(right), len(set(codes)), *je.cache_info()[:3]]))
"""
    assert json.loads(run_python(code)) == [True, 4, 4, 0, 28 + 32]
    assert len(entries(directory)) == 4


# ---- Processes -----------------------------------------------------------------------------------


# Rounds in each of which 16 processes use the compiler for the first time, all at once. They are
# forked before the first use, which is far cheaper than starting Python anew.
TOGETHER = """
import hashlib

def work(go, out):
    os.read(go, 1)  # until the other end is closed, for all children at once
    codes = [hashlib.sha256(compile_(*kernel)).hexdigest() for kernel in kernels]
    os.write(out, (json.dumps([sorted(set(codes)), *counts()]) + "\\n").encode())

for round_ in range(rounds):
    os.environ["JAX_ELEMENTWISE_CACHE_DIR"] = os.path.join(directory, str(round_))
    go, start = os.pipe()
    results, out = os.pipe()
    children = []
    for _ in range(16):
        children.append(os.fork())
        if children[-1] == 0:
            try:
                os.close(start)
                work(go, out)
                os._exit(0)
            finally:
                os._exit(1)
    for end in (start, go, out):
        os.close(end)
    assert not any(os.waitpid(child, 0)[1] for child in children)
    with open(results) as lines:
        print(lines.read(), end="")
"""


def together(directory, kernels, rounds, **options):
    """For each process the hashes of what it got, and its counts."""
    settings = f"directory, kernels, rounds = {str(directory)!r}, {kernels!r}, {rounds}\n"
    lines = run(settings + TOGETHER, **options).splitlines()
    assert len(lines) == 16 * rounds
    for round_ in range(rounds):
        found = [path.suffix for path in entries(directory / str(round_))]
        assert found == [".kernel"] * len(kernels)
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("rounds", [2, pytest.param(10, marks=pytest.mark.exhaustive)])
def test_processes_that_share_a_cold_directory_are_all_right(directory, rounds):
    found = together(directory, [new_kernel() for _ in range(5)], rounds=rounds)
    assert len(found[0][0]) == 5
    assert all(codes == found[0][0] for codes, *_ in found)
    assert all(compiled + read == 5 for _, compiled, read, _ in found)


def test_processes_never_see_half_an_entry(directory):
    """A compiler that takes no time, and entries that take long to write."""
    kernels = [(f"k{i}", f"text {i}") for i in range(3)]
    settings = {"FAKE_NVRTC_SIZE": "5000000"}
    found = together(directory, kernels, rounds=1, nvrtc=fake_nvrtc(), **settings)
    assert all(len(codes) == 1 and codes == found[0][0] for codes, *_ in found)


def test_a_process_that_forks_after_use_does_not_hang(directory):
    code = f"""
import concurrent.futures, signal, time
first, second = {new_kernel()!r}, {new_kernel()!r}
with concurrent.futures.ThreadPoolExecutor(4) as pool:
    expected, *_ = pool.map(lambda _: compile_(*first), range(4))
child = os.fork()
if child == 0:
    right = compile_(*first) == expected and compile_(*second)[:4] == b"\\x7fELF"
    os._exit(0 if right and counts() == [2, 0, 4] else 1)
deadline = time.monotonic() + 60
while (done := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < deadline:
    time.sleep(0.01)
if done == (0, 0):
    os.kill(child, signal.SIGKILL)
print(done[1] if done[0] else "hangs")
print(len(compile_(*second)), counts())
"""
    child, parent = run(code).splitlines()
    assert child == "0"
    assert parent.endswith("[1, 1, 3]")


# ---- Files that come and go ----------------------------------------------------------------------


def test_somebody_keeps_removing_everything(directory):
    """Whatever vanishes when, temporary files and the directory too: the code in memory is kept."""
    code = f"""
import concurrent.futures, shutil, threading
def remove():
    while not done.is_set():
        shutil.rmtree({str(directory)!r}, ignore_errors=True)
done = threading.Event()
remover = threading.Thread(target=remove)
remover.start()
kernels = [(f"k{{i}}", f"text {{i}}") for i in range(500)]
try:
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        codes = set(pool.map(lambda kernel: compile_(*kernel), kernels))
finally:
    done.set()
    remover.join()
compiled = counts()
again = {{compile_(*kernel) for kernel in kernels}}
print(json.dumps([len(codes), codes == again, compiled, counts()]))
"""
    found = json.loads(run(code, nvrtc=fake_nvrtc()))
    assert found == [1, True, [500, 0, 0], [500, 0, 500]]
    assert all(path.suffix == ".kernel" for path in entries(directory))


@pytest.mark.parametrize(
    ("happens", "kept"),
    [
        ("rm -r $D", True),
        ("rm -r $D && touch $D", False),
        ("rm -r $D && ln -s /nowhere/at/all $D", False),
        ("cp $SAVED $D/$E", True),
        ("echo junk > $D/$E", True),
        ("ln -s /nowhere/at/all $D/$E", True),
        ("mkdir -p $D/$E/below", False),
    ],
    ids=["directory_vanishes", "directory_becomes_file", "directory_becomes_link",
         "entry_appears", "junk_appears", "link_appears", "folder_appears"],
)  # fmt: skip
def test_what_happens_in_the_directory_during_a_compilation(happens, kept, directory, tmp_path):
    kernel = new_kernel()
    saved = tmp_path / "saved"
    code = f"code = compile_(*{kernel!r})\nprint([code == compile_(*{kernel!r}), code, *counts()])"
    settings = {"JAX_ELEMENTWISE_CACHE_DIR": str(saved)}
    expected = run(code, nvrtc=fake_nvrtc(), **settings)
    (entry,) = entries(saved)
    directory.mkdir(parents=True)
    environment = {"D": str(directory), "E": entry.name, "SAVED": str(entry)}
    assert expected == run(code, nvrtc=fake_nvrtc(), FAKE_NVRTC_HOOK=happens, **environment)
    assert expected.endswith("1, 0, 1]\n")
    left = [path.read_bytes() for path in entries(directory)]
    assert left == ([entry.read_bytes()] if kept else [])


def test_a_directory_that_vanishes_is_made_again(directory):
    compile_(*new_kernel())
    (entry,) = entries(directory)
    entry.unlink()
    directory.rmdir()
    compile_(*new_kernel())
    assert len(entries(directory)) == 1
    assert os.path.basename(entry) not in os.listdir(directory)
