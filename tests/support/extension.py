"""Compiles kernels with the extension alone: here, and in processes that load nothing else, since
importing JAX would take them ten times as long."""

from __future__ import annotations

import functools
import itertools
import json
import os
import pathlib

from cases import run_python

from jax_elementwise import _runtime
from support import simt

# What such a process begins with: the module `runtime`, and `compile_` for one kernel.
_PRELUDE = f"""
import importlib.util, json, os
from cuda import pathfinder
spec = importlib.util.spec_from_file_location("_runtime", {_runtime.__file__!r})
runtime = importlib.util.module_from_spec(spec)
spec.loader.exec_module(runtime)
runtime.set_nvrtc_locator(lambda: LOCATED)
def compile_(name, source, arch=90, options=()):
    return runtime.compile(source, name, arch, list(options))
def counts():
    c = runtime.counters()
    return [c["compilations"], c["disk_hits"], c["memory_hits"]]
"""
_REAL = 'pathfinder.load_nvidia_dynamic_lib("nvrtc").abs_path'

_serial = itertools.count()


def new_kernel() -> tuple[str, str]:
    """The name and text of a kernel that no test has compiled before."""
    name = f"kernel_{os.getpid()}_{next(_serial)}"
    return name, f'extern "C" __global__ void {name}(float* x) {{ *x += 1; }}\n'


def compile_(name: str, source: str, arch: int = 90, options: tuple[str, ...] = ()) -> bytes:
    """Machine code of a kernel."""
    return _runtime.compile(source, name, arch, list(options))


def counts() -> tuple[int, int, int]:
    """Compilations, hits on disk and hits in memory, of this process."""
    found = _runtime.counters()
    return found["compilations"], found["disk_hits"], found["memory_hits"]


def run(code: str, *, nvrtc: str | None = None, **environment: str) -> str:
    """What a new process prints; ``nvrtc`` is the path of another compiler."""
    located = _REAL if nvrtc is None else repr(str(nvrtc))
    return run_python(_PRELUDE.replace("LOCATED", located) + code, **environment)


def compile_in_new_process(name: str, source: str, **environment: str) -> list[int]:
    """The machine code's length and the counts of a process that compiles one kernel."""
    code = f"code = compile_({name!r}, {source!r})\nprint(json.dumps([len(code), *counts()]))"
    return json.loads(run(code, **environment))


def entries(directory: pathlib.Path) -> list[pathlib.Path]:
    """Every file in a cache directory."""
    return sorted(path for path in pathlib.Path(directory).rglob("*") if path.is_file())


@functools.cache
def fake_nvrtc() -> str:
    """The path of the compiler in ``tests/csrc/fake_nvrtc.cc``."""
    source = simt.ROOT / "tests" / "csrc" / "fake_nvrtc.cc"
    return str(simt.compile_cpp([source], "libnvrtc_fake.so", ["-shared", "-fPIC"]))
