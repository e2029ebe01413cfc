"""The C++ compiler of this machine, which compiles kernels for its CPU.

``csrc/runtime`` calls ``identity`` and ``compile``, from any thread, and keeps what they give.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import math
import os
import pathlib
import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence

from jax_elementwise import _processes, _runtime

__all__ = ["compile", "identity"]

_LIMIT = "JAX_ELEMENTWISE_COMPILE_SECONDS"
_DEFAULT_LIMIT = 600.0

# Not -O3: it unrolls the loop over the elements of a pack, and then takes 12 times as long for 16
# functions of float8. Without contraction: whole and partial packs may become other instructions,
# and the same value must give the same bits in both.
_OPTIONS = (
    "-std=c++17",
    "-O2",
    "-ftree-vectorize",
    "-fPIC",
    "-shared",
    "-nostdinc++",
    "-fno-rtti",
    "-fno-exceptions",
    "-fno-math-errno",
    "-fvisibility=hidden",
    "-Wl,--as-needed",
    "-ffp-contract=off",
)
# What the options of a kernel, which are NVRTC's, are here. With --use_fast_math nothing is
# reassociated; and it is not -ffast-math, with which a library, once loaded, would change the
# arithmetic of the whole thread. A host has no other execution space than its own.
CHECK_ASSIGNED = "--check-assigned"  # fails where a variable may be read before it is assigned
_OPTIONS_OF = {
    CHECK_ASSIGNED: (),
    _runtime.FAST_MATH: ("-ffp-contract=fast", "-freciprocal-math", "-fno-trapping-math"),
    _runtime.DEVICE_BY_DEFAULT: (),
}


@dataclasses.dataclass(frozen=True)
class _Compiler:
    """A compiler of this machine.

    Attributes:
      command: its path, and arguments that it is always called with.
      target: the option for this CPU; none where the compiler has none.
      identity: of the compiler, and of this CPU as it sees it.
    """

    command: tuple[str, ...]
    target: tuple[str, ...]
    identity: str


# ---- Finding it ----------------------------------------------------------------------------------


def _find() -> tuple[str, ...]:
    named = os.environ.get("CXX")
    if named:
        return _named(named)
    for name in ("c++", "g++", "clang++"):
        program = shutil.which(name)
        if program is not None:
            return (program,)
    raise _runtime.Unavailable(
        "kernels for CPUs need a C++ compiler, and there is no c++, g++ or clang++ on PATH. "
        "Install one (apt install g++, dnf install gcc-c++, conda install cxx-compiler), or name "
        "one in the environment variable CXX."
    )


def _named(text: str) -> tuple[str, ...]:
    """A program, whose path may have spaces in it, or one with arguments ("ccache g++")."""
    whole = shutil.which(text)
    if whole is not None:
        return (whole,)
    words = text.split()
    program = shutil.which(words[0]) if words else None
    if program is None:
        raise _runtime.Unavailable(
            f"the environment variable CXX names a compiler that is not there: {text}"
        )
    return (program, *words[1:])


# ---- Knowing it ----------------------------------------------------------------------------------

_known: dict[tuple[object, ...], _Compiler] = {}
_examining = threading.Lock()


def _compiler() -> _Compiler:
    command = _find()
    key = (command, _stamp(command[0]))
    with _examining:
        if key not in _known:
            _known[key] = _examine(command)
        return _known[key]


def _stamp(path: str) -> tuple[int, int] | None:
    """Time and size of a program, in the place of which another one may be put."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def _examine(command: tuple[str, ...]) -> _Compiler:
    """Asks a compiler what it is.

    Which instructions it would use here, and which C library it compiles for, its macros say: the
    name "native" does not tell one CPU from another, and a home directory, and so the cache, may be
    shared by several.
    """
    with _directory() as directory:
        (directory / "probe.cc").write_text("#include <math.h>\n")
        macros = directory / "macros"
        failure, version = _run((*command, "--version"), directory)
        if failure:
            raise _refusal(command, failure, version)
        probe = ("-std=c++17", "-nostdinc++", "-dM", "-E", "-o", str(macros))
        for target in (("-march=native",), ()):
            words = (*command, *target, *probe, str(directory / "probe.cc"))
            failure, output = _run(words, directory)
            if not failure:
                break
        else:
            raise _refusal(command, failure, output)
        # In whatever order: that of g++'s macros depends on the names of files.
        lines = sorted(macros.read_bytes().splitlines()) if macros.exists() else []
    digest = hashlib.sha256(b"\n".join(lines)).hexdigest()
    identity = "\n".join(
        [
            os.path.realpath(command[0]),
            version.partition("\n")[0],
            f"macros {digest[:16]}",
        ]
    )
    return _Compiler(command, target, identity)


def identity(options: Sequence[str]) -> bytes:
    """All that decides the machine code of a kernel beside its text, for the key in the caches.

    Args:
      options: those of the kernel.

    Raises:
      Unavailable: there is no compiler.
    """
    compiler = _compiler()
    words = (*compiler.command, *_all_options(compiler, options))
    return os.fsencode(f"{compiler.identity}\noptions {' '.join(words)}")


# ---- Using it ------------------------------------------------------------------------------------


def compile(source: bytes, name: str, options: Sequence[str]) -> bytes:  # noqa: A001
    """Compiles a kernel for this machine's CPU.

    Args:
      source: the kernel's text, as for NVRTC.
      name: of the kernel.
      options: those of the kernel.

    Returns:
      A shared library.

    Raises:
      CompilationFailure: the text does not compile; with the compiler's messages.
      Unavailable: there is no compiler, or it does not end.
    """
    compiler = _compiler()
    with _directory() as directory:
        _write(directory, _runtime.headers())
        text, library = directory / f"{name}.cc", directory / "kernel.so"
        text.write_bytes(b"%s\nJAX_ELEMENTWISE_HOST_ENTRY(%s)\n" % (source, name.encode()))
        words = ("-include", "jax_elementwise/host/host.h", "-o", str(library), str(text))
        command = (*compiler.command, *_all_options(compiler, options), f"-I{directory}", *words)
        failure, output = _run(command, directory)
        if not failure and library.exists() and library.stat().st_size:
            return library.read_bytes()
        raise _runtime.CompilationFailure(
            f"{output.replace(f'{directory}/', '')}{command[0]}: {failure or 'no output'}"
        )


# ---- Directories, programs and their failures ----------------------------------------------------


@contextlib.contextmanager
def _directory() -> Iterator[pathlib.Path]:
    try:
        with _processes.work_directory() as directory:
            yield directory
    except OSError as error:
        raise _runtime.Unavailable(
            f"cannot make a directory for the compiler's files, or cannot write there: {error}"
        ) from None


def _write(directory: pathlib.Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def _run(command: Sequence[str], directory: pathlib.Path) -> tuple[str, str]:
    limit = _limit()
    try:
        return _processes.run(command, directory, limit)
    except TimeoutError:
        raise _runtime.Unavailable(
            f"the C++ compiler {command[0]} did not end within {limit:g} s and was stopped. The "
            f"environment variable {_LIMIT} sets the limit."
        ) from None
    except OSError as error:
        raise _refusal(command, error.strerror or "cannot be started", "") from None


def _limit() -> float:
    text = os.environ.get(_LIMIT) or str(_DEFAULT_LIMIT)
    try:
        limit = float(text)
    except ValueError:
        limit = math.nan
    if not limit > 0:
        raise ValueError(
            f"the environment variable {_LIMIT} must be a number of seconds above 0, not {text!r}"
        )
    return limit


def _refusal(command: Sequence[str], failure: str, output: str) -> Exception:
    return _runtime.Unavailable(
        f"the C++ compiler {command[0]} does not work ({failure}): {output}"
    )


def _all_options(compiler: _Compiler, options: Sequence[str]) -> tuple[str, ...]:
    warnings: tuple[str, ...] = ("-w",)
    if CHECK_ASSIGNED in options:  # -w would take these, too
        warnings = ("-Werror=uninitialized",)
        warnings += () if "clang" in compiler.identity else ("-Werror=maybe-uninitialized",)
    words = [word for each in options for word in _OPTIONS_OF[each]]
    return (*_OPTIONS, *warnings, *compiler.target, *words)
