"""The compiler: where it is found, for which GPUs it compiles, and what may not disturb it."""

import functools
import locale
import os
import re
import shutil
import subprocess
import sys

import jax.numpy as jnp
import pytest
from cases import run_python
from cuda import pathfinder
from support import simt
from support.extension import compile_, counts, entries, fake_nvrtc, new_kernel, run

import jax_elementwise as je
from jax_elementwise import _extension, _runtime

pytestmark = pytest.mark.usefixtures("nvrtc")

# A process that says what it compiled for a function that needs most of the headers.
FUNCTION = """
import hashlib, os
import jax, jax.numpy as jnp
import jax_elementwise as je
f = je.elementwise(lambda x, y: 0.1 * x + jnp.tanh(y) ** 2.5)
for dtype in ("float16", "bfloat16"):
    code = f.cubin(jax.ShapeDtypeStruct((100,), dtype), jax.ShapeDtypeStruct((100,), "float32"))
    print(code[:4], hashlib.sha256(code).hexdigest())
assert je.cache_info().compilations == 2
"""


@functools.cache
def undisturbed():
    printed = run_python(FUNCTION, JAX_ELEMENTWISE_CACHE_DIR="")
    assert printed.count(r"b'\x7fELF'") == 2
    return printed


@pytest.fixture
def expected(nvrtc):
    """What FUNCTION prints where nothing disturbs it."""
    return undisturbed()


# ---- Finding the compiler ------------------------------------------------------------------------


@pytest.mark.parametrize("toolkit", ["missing", "empty", "broken"])
def test_wheels_suffice_whatever_toolkit_the_environment_names(
    toolkit, directory, tmp_path, expected
):
    root = tmp_path / toolkit
    if toolkit != "missing":
        (root / "lib64").mkdir(parents=True)
        (root / "include").mkdir()
    if toolkit == "broken":
        for name in (
            "libnvrtc.so",
            "libnvrtc.so.12",
            "libnvrtc.so.13",
            "libnvrtc-builtins.so.13.0",
        ):
            (root / "lib64" / name).write_bytes(b"\x7fELF, and nothing after that")
        (root / "include" / "cuda_fp16.h").write_text("#error of another toolkit\n")
    library_path = str(root / "lib64") if toolkit == "broken" else ""
    settings = {"CUDA_HOME": root, "CUDA_PATH": root, "CUDA_ROOT": root, "PATH": ""}
    settings = {name: str(value) for name, value in settings.items()}
    assert run_python(FUNCTION, LD_LIBRARY_PATH=library_path, **settings) == expected


def test_a_compiler_that_is_not_found_is_looked_for_again(directory):
    kernel = new_kernel()
    code = f"""
def missing():
    raise OSError("no compiler in sight")
found = runtime.set_nvrtc_locator(missing)
try:
    compile_(*{kernel!r})
except runtime.Unavailable as error:
    print(str(error).endswith(": no compiler in sight") or str(error) == "no compiler in sight")
runtime.set_nvrtc_locator(lambda: pathfinder.load_nvidia_dynamic_lib("nvrtc").abs_path)
print(compile_(*{kernel!r})[:4])
"""
    assert run(code).split("\n")[:2] == ["True", r"b'\x7fELF'"]


@pytest.fixture
def not_in_site_packages(monkeypatch):
    """Where `cuda-pathfinder` finds no NVRTC."""

    def missing(name):
        raise pathfinder.DynamicLibNotFoundError(name)

    monkeypatch.setattr(pathfinder, "load_nvidia_dynamic_lib", missing)


def test_without_nvrtc_the_message_says_where_it_comes_from(not_in_site_packages, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    message = r"is not installed. It comes with jax\[cuda12\].* package nvidia-cuda-nvrtc"
    with pytest.raises(RuntimeError, match=message):
        _extension._find_nvrtc()


def test_nvrtc_in_a_package_on_the_path(not_in_site_packages, monkeypatch, tmp_path):
    """By PYTHONPATH or a .pth file, as JAX finds its own."""
    for folder, version in (("cuda_nvrtc", 12), ("cu13", 13)):
        library = tmp_path / "nvidia" / folder / "lib" / f"libnvrtc.so.{version}"
        library.parent.mkdir(parents=True)
        library.touch()
        (library.parent / f"libnvrtc-builtins.so.{version}.0").touch()
    for name in [name for name in sys.modules if name.partition(".")[0] == "nvidia"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert _extension._find_nvrtc() == str(tmp_path / "nvidia/cu13/lib/libnvrtc.so.13")


REPORT = """
try:
    print(compile_("k", "text", int(os.environ.get("ARCH", "90"))))
except RuntimeError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize(
    ("library", "message"),
    [
        ("/nowhere/libnvrtc.so", r"cannot load /nowhere/libnvrtc\.so: .*No such file"),
        (__file__, r"cannot load .*invalid ELF header"),
        ("libm.so.6", r"libm\.so\.6 has no function nvrtcVersion"),
    ],
    ids=["missing", "no_library", "another_library"],
)
def test_a_library_that_is_no_compiler_is_unavailable(library, message, directory):
    assert re.match(f"Unavailable {message}", run(REPORT, nvrtc=library))


def test_a_compiler_without_its_companion_is_unavailable(directory, tmp_path):
    """NVRTC looks for libnvrtc-builtins beside itself."""
    from cuda import pathfinder

    library = pathfinder.load_nvidia_dynamic_lib("nvrtc").abs_path
    alone = tmp_path / "libnvrtc.so"
    alone.symlink_to(library)
    printed = run(REPORT, nvrtc=alone, LD_LIBRARY_PATH="")
    assert re.match(r"Unavailable NVRTC is incomplete: .*libnvrtc-builtins", printed, re.DOTALL)


FAILED = "nvrtcCompileProgram failed: a failure that a test asked for\nthe log"


@pytest.mark.parametrize(
    ("result", "expected"),
    [(6, "CompilationFailure the log"), (7, "Unavailable NVRTC is incomplete: the log"),
     (11, f"CompilationFailure {FAILED}"), (5, f"CompilationFailure {FAILED}")],
    ids=["source", "builtins", "internal", "option"],
)  # fmt: skip
def test_failures_are_told_apart(result, expected, directory):
    printed = run(REPORT, nvrtc=fake_nvrtc(), FAKE_NVRTC_RESULT=str(result))
    assert printed == f"{expected}\n"
    assert not entries(directory)


def test_a_log_that_is_not_utf8(directory):
    log = os.fsdecode(b"na\xe9 \xff\xc3\xa9")
    code = REPORT.replace("print(type(error)", "print(ascii(error)) or print(type(error)")
    for result in ("6", "7", "11"):
        settings = {"FAKE_NVRTC_RESULT": result, "FAKE_NVRTC_LOG": log, "PYTHONIOENCODING": "utf-8"}
        printed = run(code, nvrtc=fake_nvrtc(), **settings)
        assert r"na\ufffd \ufffd\xe9" in printed


def test_an_interrupt_says_nothing_of_the_compiler(directory):
    code = f"""
def interrupted():
    raise KeyboardInterrupt("now")
runtime.set_nvrtc_locator(interrupted)
for _ in range(2):
    try:
        compile_("k", "text")
    except KeyboardInterrupt as error:
        print(error)
runtime.set_nvrtc_locator(lambda: {fake_nvrtc()!r})
print(compile_("k", "text")[:2])
"""
    assert run(code) == "now\nnow\nb'--'\n"


def test_auto_falls_back_where_the_compiler_is_missing_or_fails(directory):
    code = f"""
import os, re, warnings
import jax, jax.numpy as jnp
import jax_elementwise as je
from jax_elementwise import _runtime
from jax_elementwise._lowering import platforms
platforms._local_architectures = lambda: (90,)
def lower(lowering):
    f = je.elementwise(lambda x: jnp.tanh(x) + 1, lowering=lowering)
    traced = jax.jit(lambda x: f(x)).trace(jnp.ones(3))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            text = traced.lower(lowering_platforms=("cuda",)).as_text()
            print("kernel" if "custom_call" in text else "xla", len(caught))
        except Exception as error:
            print(type(error).__name__, len(caught))
_runtime.set_nvrtc_locator(lambda: "/nowhere/libnvrtc.so")
lower("auto"), lower("kernel")
_runtime.set_nvrtc_locator(lambda: {fake_nvrtc()!r})
for result in ("7", "11", "6", "0"):
    os.environ["FAKE_NVRTC_RESULT"] = result
    lower("auto"), lower("kernel")
"""
    assert run_python(code).splitlines() == [
        "xla 1", "Unavailable 0",
        "xla 1", "Unavailable 0",
        "xla 1", "CompileError 0",
        "xla 1", "CompileError 0",
        "kernel 0", "kernel 0",
    ]  # fmt: skip


# ---- Architectures -------------------------------------------------------------------------------


def test_code_for_a_known_architecture_is_machine_code_on_disk_too(directory):
    code = compile_(*new_kernel())
    assert code[:4] == b"\x7fELF"
    (entry,) = entries(directory)
    assert entry.read_bytes().endswith(b"c" + code)


def supported():
    """The architectures of the installed compiler, from its own message."""
    with pytest.raises(_runtime.Unavailable) as error:
        compile_(*new_kernel(), arch=35)
    return [int(arch) for arch in re.findall(r"sm_(\d+)", str(error.value))[1:]]


def test_a_gpu_newer_than_the_compiler_gets_portable_code(directory):
    kernel = new_kernel()
    newest = max(supported())
    code = compile_(*kernel, arch=990)  # compute capability 99.0
    assert re.search(rb"^\.target sm_(\d+)$", code, re.MULTILINE)[1] == str(newest).encode()
    assert compile_(*kernel, arch=990) == code
    assert counts() == (1, 0, 1)
    (entry,) = entries(directory)
    assert entry.read_bytes().endswith(b"p" + code)


@pytest.mark.parametrize(
    ("arch", "option"),
    [(90, "sm_90"), (103, "compute_100"), (110, "compute_100"), (120, "sm_120"),
     (121, "compute_120"), (990, "compute_120"), (89, "compute_80")],
)  # fmt: skip
def test_a_gpu_between_known_ones_gets_code_of_the_one_before(arch, option, directory):
    """As B300 (10.3) does of NVRTC 12.8, which knows 10.0 and 12.0."""
    settings = {"FAKE_NVRTC_ARCHS": "120 80 90 100", "ARCH": str(arch)}
    printed = run(REPORT, nvrtc=fake_nvrtc(), **settings)
    assert printed.startswith(f"b'--gpu-architecture={option} ")


def test_a_gpu_older_than_the_compiler_is_unavailable(directory):
    settings = {"FAKE_NVRTC_ARCHS": "75 120", "FAKE_NVRTC_VERSION": "13.7", "ARCH": "70"}
    assert run(REPORT, nvrtc=fake_nvrtc(), **settings) == (
        "Unavailable NVRTC 13.7 cannot compile for sm_70; it supports sm_75, sm_120\n"
    )
    assert not entries(directory)


@pytest.mark.parametrize("arch", ["sm_10", "sm_70", "sm_99", "sm_999"])
def test_an_explicit_architecture_must_be_known(arch, directory):
    with pytest.raises(ValueError, match=rf"NVRTC \d+\.\d+ cannot compile for {arch};") as error:
        je.elementwise(jnp.sin).cubin(jnp.ones(3), arch=arch)
    assert "it supports sm_" in str(error.value)
    assert "sm_90, sm_100" in str(error.value)
    assert counts() == (0, 0, 0)


# ---- What may not disturb it ---------------------------------------------------------------------


def test_a_directory_that_was_removed_may_be_the_current_one(directory, tmp_path, expected):
    gone = tmp_path / "gone"
    gone.mkdir()
    code = f"os.chdir({str(gone)!r})\nos.rmdir({str(gone)!r})\n"
    assert run_python(FUNCTION.replace("f = je", code + "f = je")) == expected


def test_headers_in_the_current_directory_are_not_ours(directory, tmp_path, expected):
    include = simt.ROOT / "csrc" / "include"
    names = {str(path.relative_to(include)) for path in include.rglob("*.h")}
    texts = [(include / name).read_text() for name in names]
    names |= {name for text in texts for name in re.findall(r"#include [<\"](.*)[>\"]", text)}
    assert "jax_elementwise/kernel.h" in names
    for name in names:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#error not ours\n")
    moved = FUNCTION.replace("f = je", f"os.chdir({str(tmp_path)!r})\nf = je")
    assert run_python(moved) == expected


def test_the_locale_stays_as_it_is(directory):
    code = f"""
import locale
locale.setlocale(locale.LC_ALL, "C.UTF-8")
before = locale.setlocale(locale.LC_ALL)
compile_(*{new_kernel()!r})
print(before == locale.setlocale(locale.LC_ALL), before)
"""
    assert run(code) == "True C.UTF-8\n"


@pytest.fixture
def decimal_comma(tmp_path):
    """The environment in which de_DE.UTF-8 exists, made if it is not installed."""
    compiled = tmp_path / "locales" / "de_DE.UTF-8"
    compiled.parent.mkdir()
    if shutil.which("localedef") is not None:
        command = ["localedef", "-i", "de_DE", "-f", "UTF-8", compiled]
        if subprocess.run(command, capture_output=True, check=False).returncode == 0:
            return {"LOCPATH": str(compiled.parent)}
    before = locale.setlocale(locale.LC_ALL)
    try:
        locale.setlocale(locale.LC_ALL, "de_DE.UTF-8")
    except locale.Error:
        pytest.skip("no locale with a decimal comma, and none can be made")
    finally:
        locale.setlocale(locale.LC_ALL, before)
    return {}


def test_a_locale_with_a_decimal_comma_changes_nothing(decimal_comma, directory, expected):
    code = """
import locale
locale.setlocale(locale.LC_ALL, "de_DE.UTF-8")
assert locale.localeconv()["decimal_point"] == ","
before = locale.setlocale(locale.LC_ALL)
"""
    printed = run_python(
        code + FUNCTION + "assert before == locale.setlocale(locale.LC_ALL)", **decimal_comma
    )
    assert printed == expected
