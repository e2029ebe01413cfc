"""The compiled extension, with Python's exceptions and this package's configuration."""

from __future__ import annotations

import importlib.util
import pathlib
from typing import NamedTuple, Protocol

if importlib.util.find_spec("jax_elementwise._runtime") is None:
    raise ImportError(
        f"{__file__} is in a source tree, without the compiled extension. Install the package with "
        "pip and start Python elsewhere, or with -P; or install it with pip install -e"
    )

from jax_elementwise import _host_compiler, _runtime

__all__ = [
    "ACCESS_BYTES",
    "CHECK_ASSIGNED",
    "DEVICE_BY_DEFAULT",
    "DTYPE_CODES",
    "FAST_MATH",
    "FORMAT",
    "HOST_CPU",
    "MAX_ARRAYS",
    "MAX_SIZE_32",
    "CacheInfo",
    "CompileError",
    "Unavailable",
    "cache_info",
    "clear_cache",
    "compile",
    "compile_anywhere",
    "compute_capabilities",
    "environment",
    "gpu_state_type",
    "registrations",
    "require_architecture",
    "trust_program",
    "trust_programs",
]

HOST_CPU = _runtime.HOST_CPU
CHECK_ASSIGNED = _host_compiler.CHECK_ASSIGNED
FAST_MATH = _runtime.FAST_MATH
DEVICE_BY_DEFAULT = _runtime.DEVICE_BY_DEFAULT
FORMAT = _runtime.FORMAT
DTYPE_CODES = _runtime.dtype_codes()
MAX_ARRAYS = _runtime.MAX_ARRAYS
MAX_SIZE_32 = _runtime.MAX_SIZE_32
ACCESS_BYTES = _runtime.ACCESS_BYTES
Unavailable = _runtime.Unavailable
environment = _runtime.environment
_ELF = b"\x7fELF"
_OLD_ENOUGH = 75  # every NVRTC since CUDA 11 compiles for it
registrations = _runtime.registrations
gpu_state_type = _runtime.gpu_state_type
compute_capabilities = _runtime.compute_capabilities
require_architecture = _runtime.require_architecture
trust_program = _runtime.trust_program


class CompileError(RuntimeError):
    """A kernel that the compiler refused. The message holds the compiler's own."""


class Compilable(Protocol):
    """What is compiled: a text, the name of the kernel in it and options."""

    @property
    def source(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def options(self) -> tuple[str, ...]: ...


# ---- Compilers -----------------------------------------------------------------------------------


def _find_nvrtc() -> str:
    # Imported when first needed: it takes 50 ms, and machines without a GPU never need it.
    from cuda import pathfinder

    try:
        path = pathfinder.load_nvidia_dynamic_lib("nvrtc").abs_path
    except pathfinder.DynamicLibNotFoundError:
        path = _in_packages()
        if path is None:
            raise RuntimeError(
                "NVRTC, CUDA's run-time compiler, is not installed. It comes with jax[cuda12] and "
                "jax[cuda13], and by itself as the package nvidia-cuda-nvrtc"
            ) from None
    if path is None:
        raise RuntimeError("libnvrtc was found, but not where it is")
    return path


def _in_packages() -> str | None:
    """Where the newest NVRTC is among the packages that can be imported.

    ``pathfinder`` looks into the directories of site-packages, but packages may be on ``sys.path``
    by ``PYTHONPATH`` or a ``.pth`` file only, and JAX finds its own there.
    """
    packages = importlib.util.find_spec("nvidia")
    folders = [] if packages is None else packages.submodule_search_locations or []
    found = [path for folder in folders for path in pathlib.Path(folder).glob(_NVRTC)]
    return max(map(str, found), key=_version, default=None)


_NVRTC = "*/lib/libnvrtc.so.[0-9]*"  # cu13/lib, cuda_nvrtc/lib


def _version(path: str) -> int:
    return int(path.rpartition(".so.")[2].partition(".")[0])


_runtime.set_nvrtc_locator(_find_nvrtc)
_runtime.set_host_compiler(_host_compiler.identity, _host_compiler.compile)


def compile(kernel: Compilable, arch: int) -> bytes:  # noqa: A001
    """Machine code of a kernel, from the cache or from the compiler.

    For an architecture newer than the compiler, PTX of the newest one before it that it knows. For
    this machine's CPU, a shared library.

    Args:
      kernel: the kernel.
      arch: compute capability, as 10 * major + minor, or ``HOST_CPU``.

    Raises:
      CompileError: if the text does not compile.
      Unavailable: if there is no compiler, or the architecture is older than all it knows.
    """
    try:
        return _runtime.compile(kernel.source, kernel.name, arch, list(kernel.options))
    except _runtime.CompilationFailure as error:
        raise CompileError(f"the kernel {kernel.name} does not compile:\n{error}") from None


def compile_anywhere(kernel: Compilable) -> bytes:
    """Machine code of a kernel for whatever there is a compiler for: a GPU, this CPU, any GPU.

    Of PTX, which a GPU newer than its compiler would get, nothing can be read.

    Raises:
      CompileError: if the text does not compile.
      Unavailable: if there is no compiler at all.
    """
    for arch in (*compute_capabilities()[:1], HOST_CPU):
        try:
            image = compile(kernel, arch)
        except Unavailable as error:
            reason = error
        else:
            if image.startswith(_ELF):
                return image
    try:
        return compile(kernel, _OLD_ENOUGH)
    except Unavailable:
        raise reason from None


# ---- The cache of compiled kernels, as users see it ----------------------------------------------


class CacheInfo(NamedTuple):
    """What the cache of compiled kernels did since the process began or ``clear_cache``.

    Attributes:
      compilations: kernels that NVRTC or the machine's C++ compiler compiled.
      disk_hits: kernels that were read from the directory.
      memory_hits: kernels that this process had already, or another of its threads was making.
      loads: kernels that were loaded on a GPU, counted per GPU, or into this process for its CPU.
      directory: where kernels are kept on disk; None for nowhere.
    """

    compilations: int
    disk_hits: int
    memory_hits: int
    loads: int
    directory: str | None


def cache_info() -> CacheInfo:
    """What the cache of compiled kernels did so far.

    The directory is what the environment says now. It need not exist: it is made when the first
    kernel is written, and where that fails, kernels are kept in memory only.

    Returns:
      the counts of this process and the directory.

    Example:
      >>> import jax_elementwise as je
      >>> je.clear_cache()
      >>> info = je.cache_info()
      >>> info.compilations, info.disk_hits, info.memory_hits, info.loads
      (0, 0, 0, 0)
    """
    return CacheInfo(**_runtime.counters(), directory=_runtime.cache_directory() or None)


def clear_cache() -> None:
    """Forgets compiled kernels, in memory and on disk, and sets the counts to 0.

    Of the directory, this removes this package's own files and nothing else. What cannot be
    removed stays, without an error. Kernels that are loaded stay loaded, since compiled
    programs use them. What other threads and processes are compiling goes on, and may be written
    afterwards.

    Example:
      >>> import jax_elementwise as je
      >>> je.clear_cache()
      >>> je.cache_info().compilations
      0
    """
    _runtime.clear_cache()


# ---- Programs of others --------------------------------------------------------------------------


def trust_programs(trust: bool = True) -> None:
    """Says that programs of other processes may run their kernels on this machine's CPU.

    A program that was exported (``jax.export``) or serialised
    (``jax.experimental.serialize_executable``) holds its kernels as C++. The machine's C++
    compiler compiles it for the CPU, and what is compiled may do whatever this process may: read
    files, start programs. So a program that this process did not make is an error when it is
    loaded, unless this function was called before, or the environment has
    ``JAX_ELEMENTWISE_TRUST_PROGRAMS=1``. Say so only where you know who made all programs that you
    load, and that nobody else could change them.

    A process that traces and lowers a function itself needs no trust, also where JAX finds the
    program in its persistent compilation cache: its kernels are compared with what this process
    generated. For GPUs no trust is asked: kernels are compiled for the GPU, where they reach its
    memory, but neither files nor programs.

    Args:
      trust: False takes it back, for programs that are loaded afterwards.

    Raises:
      TypeError: ``trust`` is no bool.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> import jax_elementwise as je
      >>> je.trust_programs()  # before jax.export.deserialize(data).call(x)
      >>> je.trust_programs(False)
    """
    if not isinstance(trust, bool):
        raise TypeError(f"trust must be True or False, not {trust!r}")
    _runtime.trust_programs(trust)
