"""The cache of compiled kernels: in memory and on disk, whatever the state of the disk."""

import ctypes
import json
import os
import shutil
import stat
import subprocess
import tempfile
import tomllib

import jax.numpy as jnp
import pytest
from cases import run_python
from support import simt
from support.extension import (
    compile_,
    compile_in_new_process,
    counts,
    entries,
    fake_nvrtc,
    new_kernel,
    run,
)

import jax_elementwise as je
from jax_elementwise import _runtime

pytestmark = pytest.mark.usefixtures("nvrtc")


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


# ---- What decides machine code -------------------------------------------------------------------


@pytest.mark.parametrize("other", ["arch", "options", "name", "source"])
def test_whatever_decides_machine_code_has_an_entry_of_its_own(directory, other):
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


def test_another_compiler_has_entries_of_its_own(directory):
    code = 'compile_("k", "text")\nprint(counts())'
    printed = [
        run(code, nvrtc=fake_nvrtc(), FAKE_NVRTC_VERSION=version)
        for version in ("12.9", "13.0", "13.1", "13.1", "12.9")
    ]
    assert printed == ["[1, 0, 0]\n"] * 3 + ["[0, 1, 0]\n"] * 2
    assert len(entries(directory)) == 3


def nvrtc_version():
    from cuda import pathfinder

    library = ctypes.CDLL(pathfinder.load_nvidia_dynamic_lib("nvrtc").abs_path)
    major, minor = ctypes.c_int(), ctypes.c_int()
    assert library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)) == 0
    return 1000 * major.value + minor.value


def headers_hash(headers, tmp_path):
    """What a build with these headers holds as their hash."""
    if shutil.which("cmake") is None:
        pytest.skip("no cmake")
    number = len(list(tmp_path.glob("*.cc")))
    embedded, main = tmp_path / f"headers_{number}.cc", tmp_path / f"main_{number}.cc"
    script = simt.ROOT / "csrc" / "embed_headers.cmake"
    paths = ";".join(sorted(map(str, headers.rglob("*.h"))))
    given = [f"-DOUTPUT={embedded}", f"-DROOT={headers.parent}", f"-DHEADERS={paths}"]
    command = ["cmake", *given, "-P", script]
    subprocess.run(command, check=True)
    main.write_text(
        '#include <iostream>\n#include "headers.h"\n'
        "int main() { std::cout << jax_elementwise::runtime::headers_hash(); }\n"
    )
    return simt.run_binary(simt.compile_cpp([embedded, main], f"headers_{number}", []))


def test_the_key_of_an_entry_holds_all_that_decides_machine_code(directory, tmp_path):
    name, source = new_kernel()
    compile_(name, source, options=["--use_fast_math"])
    (entry,) = entries(directory)
    _, numbers, rest = entry.read_bytes().split(b"\n", 2)
    key = rest[: int(numbers.split()[0], 16)].decode()
    project = tomllib.loads((simt.ROOT / "pyproject.toml").read_text())["project"]
    headers = simt.ROOT / "csrc" / "include" / "jax_elementwise"
    assert key == (
        f"package {project['version']}\n"
        f"headers {headers_hash(headers, tmp_path)}\n"
        f"nvrtc {nvrtc_version()}\n"
        "arch 90\n"
        "options --gpu-architecture=sm_90 --std=c++17 --device-int128 --use_fast_math\n"
        f"name {name}\n{source}"
    )


def test_a_changed_header_has_another_hash(tmp_path):
    headers = tmp_path / "include" / "jax_elementwise"
    shutil.copytree(simt.ROOT / "csrc" / "include" / "jax_elementwise", headers)
    hashes = [headers_hash(headers, tmp_path)]
    text = (headers / "pack.h").read_text()
    (headers / "pack.h").write_text(text.replace("\n", " \n", 1))
    hashes.append(headers_hash(headers, tmp_path))
    (headers / "pack.h").write_text(text)
    (headers / "math" / "zeta.h").rename(headers / "math" / "zetas.h")
    hashes.append(headers_hash(headers, tmp_path))
    assert len(set(hashes)) == 3


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


@pytest.mark.parametrize("change", ["mode", "owner"])
def test_an_entry_that_others_could_have_written_is_not_taken(directory, change):
    if change == "owner" and os.geteuid() != 0:
        pytest.skip("only root may give files away")
    kernel = new_kernel()
    code = compile_(*kernel)
    (entry,) = entries(directory)
    if change == "mode":
        entry.chmod(0o666)
    else:
        os.chown(entry, 12345, 12345)
    assert compile_in_new_process(*kernel) == [len(code), 1, 0, 0]
    assert stat.S_IMODE(entries(directory)[0].stat().st_mode) == 0o600


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


def test_a_directory_that_may_only_be_read_gives_kernels_and_takes_none(directory):
    known, new = new_kernel(), new_kernel()
    compile_(*known)
    (entry,) = entries(directory)
    # Root may write everywhere, so root becomes someone else, once the compiler is loaded.
    code = f"""
compile_(*{new_kernel()!r})
if os.geteuid() == 0:
    os.seteuid(65534)
os.environ["JAX_ELEMENTWISE_CACHE_DIR"] = directory = os.environ["SHARED"]
assert not os.access(directory, os.W_OK, effective_ids=True)
lengths = [len(compile_(*kernel)) for kernel in ({known!r}, {new!r})]
print(json.dumps([*lengths, *counts()]))
"""
    with tempfile.TemporaryDirectory() as shared:
        copy = shutil.copy(entry, shared)
        os.chmod(copy, 0o444)
        os.chmod(shared, 0o555)
        printed = run(code, JAX_ELEMENTWISE_CACHE_DIR="", SHARED=shared)
        assert json.loads(printed)[2:] == [2, 1, 0]
        assert os.listdir(shared) == [entry.name]


@pytest.mark.parametrize(
    "home",
    [None, "", "{tmp}/missing/home", "{tmp}/file", "/proc/nowhere", "/dev/null", "not/absolute"],
)
def test_whatever_home_is_kernels_compile_without_a_word(home, tmp_path, monkeypatch, capfd):
    (tmp_path / "file").write_text("a file")
    monkeypatch.chdir(tmp_path)
    for name in ("JAX_ELEMENTWISE_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    if home is not None:
        monkeypatch.setenv("HOME", home.format(tmp=tmp_path))
    _runtime.reset_counters()
    kernel = new_kernel()
    code = compile_(*kernel)
    assert code[:4] == b"\x7fELF"
    assert compile_(*kernel) == code
    assert counts() == (1, 0, 1)
    assert capfd.readouterr() == ("", "")
    found = len(entries(tmp_path)) - 1
    assert found == (home in ("{tmp}/missing/home", "not/absolute"))


def test_a_full_disk_leaves_nothing_half_written(directory):
    kernel = new_kernel()
    code = f"""
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))  # Python ignores the signal, writing fails
print(json.dumps([len(compile_(*{kernel!r})), len(compile_(*{kernel!r})), *counts()]))
"""
    length = len(compile_(*kernel))
    (entry,) = entries(directory)
    entry.unlink()
    assert json.loads(run(code)) == [length, length, 1, 0, 1]
    assert not entries(directory)


@pytest.mark.parametrize("path", ["/proc/jax_elementwise", "/dev/null/kernels", "\x01/\x02"])
def test_a_directory_that_cannot_be_made_does_no_harm(path, directory, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JAX_ELEMENTWISE_CACHE_DIR", path)
    assert compile_(*new_kernel())[:4] == b"\x7fELF"
    assert counts() == (1, 0, 0)


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


def test_a_function_compiles_only_what_is_new(directory):
    f = je.elementwise(lambda x, y: jnp.cosh(x) - y, name=f"f{os.getpid()}")
    x, y = jnp.ones((4, 8)), jnp.ones(8)
    f.cubin(x, y)
    f.cubin(jnp.ones((40, 80)), jnp.ones(80))
    assert counts() == (1, 0, 1)
    f.cubin(x, x)
    assert counts() == (2, 0, 1)
