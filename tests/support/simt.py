"""Runs generated kernels on the host: the text is compiled with g++ against the SIMT stand-in of
``tests/csrc`` and launched by the package's own launcher."""

from __future__ import annotations

import atexit
import dataclasses
import functools
import hashlib
import itertools
import math
import os
import pathlib
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence

import jax.numpy as jnp
import numpy as np
import pytest

from jax_elementwise._codegen.kernel import Kernel, kernel_for
from jax_elementwise._functor.trace import trace
from support import reference, together

ROOT = pathlib.Path(__file__).resolve().parents[2]
_LAUNCHER = [ROOT / "csrc" / "runtime" / name for name in ("plan.cc", "launch.cc")]
_CSRC = ROOT / "tests" / "csrc"
_INCLUDES = [ROOT / "csrc" / "include", ROOT / "csrc" / "runtime", _CSRC]
# Contraction off: a fused multiply-add would give other bits than NumPy's two operations. Without
# optimisation, since compiling takes longer than running.
_FLAGS = ["-std=c++17", "-O0", "-ffp-contract=off"]
# What users' CUDA C++ may name without including anything.
USERS_HEADERS = "".join(
    f"#include <jax_elementwise/{name}.h>\n"
    for name in ("cuda/names", "cuda/half", "cuda/bfloat16", "cuda/float8")
)
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g1"]
# What Fault means in csrc/runtime/error.h.
FAULTS = ("InvalidArgument", "Unavailable", "Internal")


class LaunchError(Exception):
    """An Error that the launcher threw; ``fault`` is one of FAULTS."""

    def __init__(self, fault: str, message: str) -> None:
        super().__init__(message)
        self.fault = fault


# ---- Kernels -------------------------------------------------------------------------------------


def make_functor(fun, dtypes, name="f"):
    """The functor of a Python function of scalars with these dtypes."""
    return trace(fun, [_aval(dtype) for dtype in dtypes], name).functor


def _aval(dtype):
    return jnp.zeros((), dtype).aval


def kernel_of(functor, shapes=None, result_shape=None, **options) -> Kernel:
    """The kernel of a functor, for contiguous operands unless shapes are given."""
    shapes = [(64,)] * len(functor.in_avals) if shapes is None else shapes
    result_shape = np.broadcast_shapes(*shapes) if result_shape is None else result_shape
    return kernel_for(functor, shapes, result_shape, **options)


def make_kernel(fun, dtypes, shapes=None, result_shape=None, *, name="f", **options) -> Kernel:
    """The kernel of a function of scalars."""
    return kernel_of(make_functor(fun, dtypes, name), shapes, result_shape, **options)


def kernels_of_rows(cases):
    """The kernels of rows of the operator table, and the dtypes of their results, by case.

    A case is a row's name and a dtype; those that the installed JAX has no function for are left
    out.
    """
    kernels = {}
    for name, dtype in cases:
        row = reference.OPERATORS[name]
        function = reference.lax_function(row)
        if function is not None:
            functor = make_functor(lambda *xs, f=function: f(*xs), [dtype] * row.arity, name)
            assert [equation.primitive.name for equation in functor.jaxpr.eqns] == [name]
            kernels[name, dtype] = kernel_of(functor), functor.out_avals[0].dtype.name
    return kernels


# ---- Compiling -----------------------------------------------------------------------------------


def _require_compiler() -> str:
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    if compiler is None:
        pytest.skip("no host C++ compiler (g++, or $CXX)")
    return compiler


@functools.cache
def _directory() -> pathlib.Path:
    directory = tempfile.mkdtemp(prefix="ew-simt-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return pathlib.Path(directory)


def compile_cpp(sources: Sequence[pathlib.Path], output: str, flags: Sequence[str]) -> pathlib.Path:
    """Compiles, and without ``-c`` links, host C++ against the package's headers.

    With EW_TESTS_CACHE in the environment, what is compiled is kept there for the next run.
    """
    includes = [f"-I{directory}" for directory in _INCLUDES]
    command = [_require_compiler(), *_FLAGS, *flags, *includes]
    path = _directory() / output
    if "EW_TESTS_CACHE" in os.environ:
        path = pathlib.Path(os.environ["EW_TESTS_CACHE"], "programs", _key(command, sources))
        if path.exists():
            return path
        path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    done = subprocess.run([*command, "-o", unfinished, *sources], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:8000]
    return unfinished.replace(path)


def check_cpp(source: pathlib.Path, flags: Sequence[str]) -> None:
    """Fails with a compiler's errors; it makes no code, which takes most of the time."""
    includes = [f"-I{directory}" for directory in _INCLUDES]
    command = [_require_compiler(), *_FLAGS, *flags, *includes, "-fsyntax-only", source]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:8000]


def _key(command: Sequence[str], sources: Sequence[pathlib.Path]) -> str:
    """A hash of all that decides what is compiled."""
    texts = [path.read_bytes() for path in sources]
    return hashlib.sha256(repr((command, texts, _surroundings(command[0]))).encode()).hexdigest()


@functools.cache
def _surroundings(compiler: str) -> tuple[str, bytes]:
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True).stdout
    paths = sorted(path for directory in _INCLUDES for path in directory.rglob("*.[ch]*"))
    return version, hashlib.sha256(b"".join(path.read_bytes() for path in paths)).digest()


@functools.cache
def _object(source: pathlib.Path, sanitize: bool) -> pathlib.Path:
    flags = ["-c", *(SANITIZERS if sanitize else ())]
    return compile_cpp([source], f"{source.stem}-{sanitize:d}.o", flags)


def run_binary(path: pathlib.Path, *arguments: str) -> str:
    """Runs a program; a failure shows what it wrote, which is where sanitizers report."""
    environment = os.environ | {
        "ASAN_OPTIONS": "detect_leaks=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }
    done = subprocess.run([path, *arguments], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stderr[-6000:]}"
    return done.stdout


@dataclasses.dataclass(frozen=True)
class Program:
    """An executable that holds kernels."""

    path: pathlib.Path
    kernels: tuple[Kernel, ...]

    def run(self, calls: Sequence[Call]) -> list[list[np.ndarray] | LaunchError]:
        """The results of every call, in one process."""
        positions = {kernel.source: i for i, kernel in enumerate(self.kernels)}
        with tempfile.TemporaryDirectory(dir=_directory()) as directory:
            sent, received = pathlib.Path(directory, "calls"), pathlib.Path(directory, "results")
            with sent.open("wb") as file:
                file.write(struct.pack("<q", len(calls)))
                for call in calls:
                    file.write(call.encoded(positions[call.kernel.source]))
            run_binary(self.path, str(sent), str(received))
            reader = _Reader(received.read_bytes())
        return [call.decoded(reader) for call in calls]


def build(
    kernels: Sequence[Kernel], *, sanitize: bool = False, flags: tuple[str, ...] = ("-w",)
) -> Program:
    """Compiles kernels into one program; with ``sanitize``, under ASan and UBSan."""
    # Kernels for other shapes may have the same text.
    distinct = {kernel.source: kernel for kernel in kernels}
    return _build(tuple(distinct.values()), sanitize, flags)


@functools.cache
def _build(kernels: tuple[Kernel, ...], sanitize: bool, flags: tuple[str, ...]) -> Program:
    table = [
        f'    {{"{k.name}", simt::Adapter<&jax_elementwise::{k.name}>::call}},\n' for k in kernels
    ]
    text = "".join(
        [
            '#include "simt.h"\n',
            *(kernel.source for kernel in kernels),
            "extern const simt::Kernel kKernels[];\n",
            "const simt::Kernel kKernels[] = {\n",
            *table,
            "};\n",
        ]
    )
    flags = (*flags, *(SANITIZERS if sanitize else ()))
    name = hashlib.sha256("\0".join((*flags, text)).encode()).hexdigest()[:16]
    source = _directory() / f"{name}.cc"
    source.write_text(text)
    parts = [source]
    parts += [_object(path, sanitize) for path in (_CSRC / "simt_main.cc", *_LAUNCHER)]
    return Program(compile_cpp(parts, name, flags), kernels)


# ---- Calls ---------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Call:
    """One launch.

    Attributes:
      kernel: what runs.
      shape: of the results.
      results: their dtypes.
      operands: the inputs, which broadcast to ``shape``.
      offsets: per array, results first, how many bytes after an aligned address it begins.
      aliases: pairs of an operand and a result that lie in one buffer, where the result's offset
        says.
      max_blocks: the cap of the grid.
      elements: replaces the number of elements that arrays are said to have, by position.
      extents: replaces the extents that the iteration space is said to have.
    """

    kernel: Kernel
    shape: tuple[int, ...]
    results: tuple[str, ...]
    operands: tuple[np.ndarray, ...]
    offsets: tuple[int, ...] = ()
    aliases: tuple[tuple[int, int], ...] = ()
    max_blocks: int = 2**31 - 1
    elements: Mapping[int, int] = dataclasses.field(default_factory=dict)
    extents: tuple[int, ...] = ()

    def _merged(self) -> tuple[int, ...]:
        """The extents of the kernel's dimensions, as the FFI handler works them out."""
        dimensions = iter(self.shape)
        groups = self.kernel.space.groups
        return tuple(math.prod(itertools.islice(dimensions, group)) for group in groups)

    def _arrays(self) -> Iterator[tuple[np.dtype, int, int, bytes]]:
        """Dtype, elements, span and contents of every array; results have no contents."""
        rank = len(self.kernel.space.groups)
        for dtype in self.results:
            yield np.dtype(dtype), math.prod(self.shape), (1 << rank) - 1, b""
        for operand, span in zip(self.operands, self.kernel.space.spans, strict=True):
            yield operand.dtype, operand.size, span, operand.tobytes()

    def _partners(self) -> dict[int, int]:
        """By position, arrays that share a buffer with another."""
        pairs = [(len(self.results) + operand, result) for operand, result in self.aliases]
        return dict(pairs) | {result: operand for operand, result in pairs}

    def encoded(self, position: int) -> bytes:
        """As simt_main.cc reads it."""
        extents = self.extents or self._merged()
        count = len(self.results) + len(self.operands)
        words = [position, self.max_blocks, self.kernel.pack, self.kernel.space.index_bits]
        words += [len(extents), *extents, len(self.results), count]
        parts = [struct.pack(f"<{len(words)}q", *words)]
        offsets = self.offsets or (0,) * count
        partners = self._partners()
        for k, (dtype, size, span, contents) in enumerate(self._arrays()):
            stated = self.elements.get(k, size)
            array = (stated, dtype.itemsize, span, offsets[k], size * dtype.itemsize)
            parts += [struct.pack("<6q", *array, partners.get(k, -1)), contents]
        return b"".join(parts)

    def decoded(self, reader: _Reader) -> list[np.ndarray] | LaunchError:
        """What simt_main.cc wrote."""
        status = reader.word()
        if status:
            return LaunchError(FAULTS[status - 1], reader.bytes(reader.word()).decode())
        arrays = []
        for dtype in map(np.dtype, self.results):
            data = reader.bytes(math.prod(self.shape) * dtype.itemsize)
            arrays.append(np.frombuffer(data, dtype).reshape(self.shape))
        return arrays


def evaluate(fun, *inputs: np.ndarray, sanitize: bool = False):
    """A function of scalars on arrays of one shape, by its kernel."""
    functor = make_functor(fun, [x.dtype.name for x in inputs])
    kernel = kernel_of(functor)
    results = tuple(aval.dtype.name for aval in functor.out_avals)
    call = Call(kernel, inputs[0].shape, results, inputs)
    (outs,) = compiled(kernel, sanitize=sanitize).run([call])
    assert not isinstance(outs, LaunchError)
    return outs[0] if len(outs) == 1 else outs


def compiled(kernel: Kernel, *, sanitize: bool = False) -> Program:
    """A program that holds a kernel, and maybe others that are compiled together with it."""
    return together.ask(_sanitized if sanitize else _plain, kernel.source, kernel)


def _plain(kernels: Sequence[Kernel]) -> list[Program]:
    return [build(kernels)] * len(kernels)


def _sanitized(kernels: Sequence[Kernel]) -> list[Program]:
    return [build(kernels, sanitize=True)] * len(kernels)


class _Reader:
    """Padded pieces of a file, one after another."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def bytes(self, count: int) -> bytes:
        piece = self._data[self._position : self._position + count]
        assert len(piece) == count, "the file of results ends too early"
        self._position += count + -count % 8
        return piece

    def word(self) -> int:
        return struct.unpack("<q", self.bytes(8))[0]
