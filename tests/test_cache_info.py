"""``cache_info`` and ``clear_cache``."""

import os
import pathlib
import threading

import jax.numpy as jnp
import pytest
from support.extension import compile_, compile_in_new_process, counts, entries, new_kernel, run

import jax_elementwise as je
from jax_elementwise import _runtime

ENTRY = "0123456789abcdef" * 2 + ".kernel"


# ---- Information ---------------------------------------------------------------------------------


def test_information_counts_what_happened(nvrtc, directory):
    f = je.elementwise(lambda x: x * 1.5 + 1, name=f"f{os.getpid()}")
    assert je.cache_info() == (0, 0, 0, 0, str(directory))
    f.cubin(jnp.ones(3))
    f.cubin(jnp.ones(4))
    info = je.cache_info()
    assert info == je.CacheInfo(1, 0, 1, 0, str(directory))
    assert (info.compilations, info.disk_hits, info.memory_hits, info.loads) == (1, 0, 1, 0)
    assert info._fields == ("compilations", "disk_hits", "memory_hits", "loads", "directory")


def test_information_names_the_directory_of_now(directory, monkeypatch):
    assert je.cache_info().directory == str(directory)
    assert not directory.exists()
    monkeypatch.setenv("JAX_ELEMENTWISE_CACHE_DIR", "")
    assert je.cache_info().directory is None


def test_a_directory_whose_name_is_no_text(nvrtc, directory, tmp_path, monkeypatch):
    path = tmp_path / os.fsdecode(b"\xe9t\xe9")
    monkeypatch.setenv("JAX_ELEMENTWISE_CACHE_DIR", str(path))
    compile_(*new_kernel())
    assert je.cache_info().directory == str(path)
    assert len(entries(path)) == 1
    je.clear_cache()
    assert not entries(path)


# ---- Clearing ------------------------------------------------------------------------------------


def test_clearing_forgets_kernels_everywhere(nvrtc, directory):
    kernel = new_kernel()
    code = compile_(*kernel)
    compile_(*kernel)
    assert len(entries(directory)) == 1
    je.clear_cache()
    assert counts() == (0, 0, 0)
    assert not entries(directory)
    assert compile_(*kernel) == code
    assert counts() == (1, 0, 0)
    assert len(entries(directory)) == 1


def test_clearing_forgets_kernels_in_memory(nvrtc, directory):
    kernel = new_kernel()
    compile_(*kernel)
    (entry,) = entries(directory)
    saved = entry.read_bytes()
    je.clear_cache()
    entry.write_bytes(saved)
    compile_(*kernel)
    assert counts() == (0, 1, 0)


def test_clearing_does_what_it_says_for_other_processes(nvrtc, directory):
    kernel = new_kernel()
    compile_in_new_process(*kernel)
    je.clear_cache()
    assert compile_in_new_process(*kernel)[1:] == [1, 0, 0]


def test_clearing_removes_its_own_files_and_nothing_else(directory, tmp_path):
    own = [ENTRY, f"{ENTRY}.tmp.aB3xYz", "f" * 32 + ".kernel"]
    foreign = [
        "notes.txt", ".hidden", "kernel", ".kernel", "my.kernel", f"{ENTRY}.backup", f"{ENTRY}~",
        ENTRY.upper(), ENTRY[1:], f"0{ENTRY}", f"g{ENTRY[1:]}", f"{ENTRY}.tmp.aB3xY",
        f"{ENTRY}.tmp.aB3xYz0", f"{ENTRY}s",
    ]  # fmt: skip
    below = [f"below/{ENTRY}", f"{'a' * 32}.kernel/{ENTRY}"]
    for name in (*own, *foreign, *below):
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    target = tmp_path / ENTRY
    target.write_text("elsewhere")
    (directory / ("b" * 32 + ".kernel")).symlink_to(target)
    je.clear_cache()
    assert target.read_text() == "elsewhere"
    left = {str(path.relative_to(directory)) for path in entries(directory)}
    assert left == {*foreign, *below, "b" * 32 + ".kernel"}


def test_clearing_removes_what_a_killed_process_left(nvrtc, directory):
    code = f"""
import resource, signal
child = os.fork()
if child == 0:
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # which kills whoever writes too much
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
    compile_(*{new_kernel()!r})
    os._exit(0)
assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGXFSZ
"""
    run(code)
    (left,) = entries(directory)
    assert ".kernel.tmp." in left.name
    assert left.stat().st_size == 100
    je.clear_cache()
    assert not entries(directory)


@pytest.mark.parametrize(
    "path", ["{tmp}/missing", "{tmp}/file", "{tmp}/file/below", "", "/proc/1/fd", "\x01/\x02"]
)
def test_clearing_a_directory_that_is_none(path, directory, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("a file")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JAX_ELEMENTWISE_CACHE_DIR", path.format(tmp=tmp_path))
    je.clear_cache()
    assert (tmp_path / "file").read_text() == "a file"
    assert os.listdir(tmp_path) == ["file"]


def test_clearing_while_others_remove_files(directory):
    """Files vanish between their listing and their removal."""

    def clear():
        barrier.wait()
        for _ in range(20):
            _runtime.clear_cache()

    directory.mkdir(parents=True)
    for i in range(500):
        (directory / f"{i:032x}.kernel").touch()
    barrier = threading.Barrier(4)
    threads = [threading.Thread(target=clear) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not entries(directory)


def test_clearing_while_others_compile(nvrtc, directory):
    kernel = new_kernel()
    code = compile_(*kernel)
    done = threading.Event()

    def clear():
        while not done.is_set():
            je.clear_cache()

    clearing = threading.Thread(target=clear)
    clearing.start()
    try:
        assert {compile_(*kernel) for _ in range(50)} == {code}
    finally:
        done.set()
        clearing.join()
    assert all(pathlib.Path(path).suffix == ".kernel" for path in entries(directory))
