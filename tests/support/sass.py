"""What is in the machine code of a kernel."""

from __future__ import annotations

import ctypes
import functools
import importlib.metadata
import pathlib
import re
import shutil
import subprocess
import tempfile

import pytest

from jax_elementwise import _runtime
from support import together

# Most tests are about Hopper; exhaustive ones are about the oldest and the newest GPUs, too.
_OTHERS = [pytest.param(name, marks=pytest.mark.exhaustive) for name in ("oldest", "newest")]
every_architecture = pytest.mark.parametrize("architecture", ["Hopper", *_OTHERS])
OLDEST = 75


def number(architecture: str) -> int:
    """The compute capability of a GPU of ``every_architecture``; skips where there is no NVRTC."""
    return {"oldest": OLDEST, "Hopper": 90, "newest": max(require_nvrtc())}[architecture]


@functools.cache
def require_nvrtc() -> tuple[int, ...]:
    """The architectures that NVRTC compiles for; skips the test where it is not installed."""
    pathfinder = pytest.importorskip("cuda.pathfinder")
    try:
        path = pathfinder.load_nvidia_dynamic_lib("nvrtc").abs_path
    except pathfinder.DynamicLibNotFoundError:
        pytest.skip("NVRTC is not installed (package nvidia-cuda-nvrtc)")
    library = ctypes.CDLL(path)
    count = ctypes.c_int()
    assert library.nvrtcGetNumSupportedArchs(ctypes.byref(count)) == 0
    archs = (ctypes.c_int * count.value)()
    assert library.nvrtcGetSupportedArchs(archs) == 0
    return tuple(sorted(archs))


@functools.cache
def require_nvdisasm() -> str:
    """The path of nvdisasm; skips the test where it is not installed."""
    on_path = shutil.which("nvdisasm")
    if on_path is not None:
        return on_path
    try:
        files = importlib.metadata.files("nvidia-cuda-nvdisasm") or ()
    except importlib.metadata.PackageNotFoundError:
        files = ()
    for file in files:
        if file.name == "nvdisasm":
            return str(file.locate())
    pytest.skip("nvdisasm is not installed (package nvidia-cuda-nvdisasm)")


_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P[T0-9]+\s+)?([A-Z][A-Z0-9_.]*)")


def opcodes(cubin: bytes) -> list[str]:
    """The opcodes of every instruction, with their modifiers: ``LDG.E.128.CONSTANT``."""
    return _INSTRUCTION.findall(_disassembly(cubin))


def instructions(cubin: bytes) -> list[str]:
    """Every instruction with its operands."""
    return re.findall(r"/\*[0-9a-f]{4,}\*/\s+(.*?) ;", _disassembly(cubin))


def opcodes_by_kernel(cubin: bytes) -> dict[str, list[str]]:
    """The same by the mangled names of kernels."""
    _, *parts = re.split(r"^\.text\.(\w+):$", _disassembly(cubin), flags=re.MULTILINE)
    texts = zip(parts[::2], parts[1::2], strict=True)
    return {name: _INSTRUCTION.findall(text) for name, text in texts}


@functools.lru_cache(maxsize=64)  # a disassembly takes seven times as long as a compilation
def _disassembly(cubin: bytes) -> str:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        pathlib.Path(file.name).write_bytes(cubin)
        done = subprocess.run(
            [require_nvdisasm(), "-c", file.name], capture_output=True, text=True, check=True
        )
    return done.stdout


def opcodes_of(kernel, arch: int) -> list[str]:
    """The opcodes of a kernel, compiled by NVRTC, maybe with others: see together.py."""
    return together.ask(_compiler_for(arch, kernel.options), kernel.source, kernel)


@functools.cache
def _compiler_for(arch: int, options: tuple[str, ...]):
    """A function of kernels that gives the opcodes of each."""

    def opcodes_of_all(kernels):
        text = "".join(kernel.source for kernel in kernels)
        cubin = _runtime.compile(text, kernels[0].name, arch, list(options))
        found = opcodes_by_kernel(cubin)
        return [found[kernel.name] for kernel in kernels]

    return opcodes_of_all


def access_bits(opcode: str) -> int:
    """How many bits a load or store moves: 32 unless its modifiers say otherwise."""
    modifiers = opcode.split(".")
    for name, bits in (("128", 128), ("64", 64), ("U16", 16), ("S16", 16), ("U8", 8), ("S8", 8)):
        if name in modifiers:
            return bits
    return 32
