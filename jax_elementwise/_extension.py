"""The compiled extension, with Python's exceptions and this package's configuration."""

from __future__ import annotations

import importlib.util

if importlib.util.find_spec("jax_elementwise._runtime") is None:
    raise ImportError(
        f"{__file__} is in a source tree, without the compiled extension. Install the package with "
        "pip and start Python elsewhere, or with -P; or install it with pip install -e"
    )

from jax_elementwise import _runtime
from jax_elementwise._codegen.kernel import Kernel
from jax_elementwise._errors import CompileError

__all__ = [
    "HOST_CPU",
    "Unavailable",
    "compile",
    "compile_anywhere",
    "compute_capabilities",
    "environment",
    "gpu_state_type",
    "registrations",
    "require_architecture",
]

HOST_CPU = _runtime.HOST_CPU
Unavailable = _runtime.Unavailable
environment = _runtime.environment
_ELF = b"\x7fELF"
_OLD_ENOUGH = 75  # every NVRTC since CUDA 11 compiles for it
registrations = _runtime.registrations
gpu_state_type = _runtime.gpu_state_type
compute_capabilities = _runtime.compute_capabilities
require_architecture = _runtime.require_architecture


def _find_nvrtc() -> str:
    # Imported when first needed: it takes 50 ms, and machines without a GPU never need it.
    from cuda import pathfinder

    try:
        path = pathfinder.load_nvidia_dynamic_lib("nvrtc").abs_path
    except pathfinder.DynamicLibNotFoundError:
        raise RuntimeError(
            "NVRTC, CUDA's run-time compiler, is not installed. It comes with jax[cuda12] and "
            "jax[cuda13], and by itself as the package nvidia-cuda-nvrtc"
        ) from None
    if path is None:
        raise RuntimeError("libnvrtc was found, but not where it is")
    return path


_runtime.set_nvrtc_locator(_find_nvrtc)


def compile(kernel: Kernel, arch: int) -> bytes:  # noqa: A001
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


def compile_anywhere(kernel: Kernel) -> bytes:
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
