"""Runs functions on the GPU, and proves that kernels ran; runs references on the CPU."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile

import jax
import numpy as np
from support import ulp

import jax_elementwise
from jax_elementwise import _runtime

ON_CPU = os.environ.get("EW_GPU_TESTS_ON") == "cpu"
if ON_CPU:  # by XLA's operations, loops too
    os.environ["JAX_ELEMENTWISE_LOWERING"] = "xla"
ONE_PROCESS = "PYTEST_XDIST_WORKER" not in os.environ  # all tests run in this one
HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent.parent
PACKAGES = pathlib.Path(jax_elementwise.__file__).parent.parent  # where the package is installed

# ---- Here ----------------------------------------------------------------------------------------


def custom_calls(compiled) -> int:
    """How many calls of kernels a compiled program has."""
    return compiled.as_text().count('custom_call_target="jax_elementwise_kernel"')


def compile_with_calls(fun, *args, calls: int, **options):
    """The compiled program of a function, which must call kernels that often."""
    compiled = jax.jit(fun).lower(*args).compile(**options)
    assert custom_calls(compiled) == (0 if ON_CPU else calls)
    return compiled


def run(fun, *args, calls: int = 1):
    """The results of a function as NumPy arrays, from a program with that many calls of kernels."""
    return jax.tree.map(np.asarray, compile_with_calls(fun, *args, calls=calls)(*args))


@contextlib.contextmanager
def cpu():
    """Computes on the CPU, with 64-bit types."""
    with jax.enable_x64(True), jax.default_device(jax.local_devices(backend="cpu")[0]):
        yield


def on_cpu(fun, *args) -> np.ndarray:
    """The result of a function of arrays, computed by XLA on the CPU."""
    with cpu():
        return np.asarray(jax.jit(fun)(*map(np.asarray, args)))


def primitives(fun, *dtypes) -> set[str]:
    """The names of the primitives that a scalar function consists of, nested ones included."""
    scalars = [jax.ShapeDtypeStruct((), dtype) for dtype in dtypes]
    return set(_names(jax.make_jaxpr(fun)(*scalars)))


def _names(jaxpr):
    for equation in jaxpr.eqns:
        yield equation.primitive.name
        for value in equation.params.values():
            for inner in value if isinstance(value, (tuple, list)) else (value,):
                if hasattr(inner, "eqns"):
                    yield from _names(inner)


def check(actual, expected, allowed: int = 0, *operands, zeros: bool = True) -> None:
    """Asserts that floats are within ``allowed`` units in the last place and the rest is equal.

    A failure shows the operands of the first results that are wrong.
    """
    with np.errstate(invalid="ignore"):  # signalling NaNs
        bad = np.flatnonzero(ulp.wrong(actual, expected, allowed, zeros=zeros))
    if not bad.size:
        return
    lines = [f"{bad.size} of {actual.size} results are wrong (allowed: {allowed} ulp):"]
    for i in bad[:8]:
        values = ", ".join(str(np.broadcast_to(x, actual.shape).flat[i]) for x in operands)
        lines.append(f"  [{i}] ({values}): {actual.flat[i]!s}, expected {expected.flat[i]!s}")
    raise AssertionError("\n".join(lines))


@contextlib.contextmanager
def counted():
    """Yields a dict that holds, afterwards, what the runtime counted in between."""
    before, counts = _runtime.counters(), {}
    yield counts
    counts.update({key: value - before[key] for key, value in _runtime.counters().items()})


def precompile(jobs) -> None:
    """Compiles, many at a time, the kernels of scalar functions with operands of some dtypes.

    What fails here fails again where the kernel is used. Several processes compile each their own.
    """
    if not ONE_PROCESS:
        return
    arch = f"sm_{_runtime.compute_capabilities()[0]}"

    def compile_one(job):
        fun, dtypes = job
        arrays = [jax.ShapeDtypeStruct((64,), dtype) for dtype in dtypes]
        with jax.enable_x64(True), contextlib.suppress(Exception):
            jax_elementwise.elementwise(fun).cubin(*arrays, arch=arch)

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(compile_one, jobs))


# ---- In other processes --------------------------------------------------------------------------


class Program:
    """A program that runs beside the tests, with the package under test and no other copy of it.

    Entries of ``environment`` replace those of this process; None removes one.
    """

    def __init__(self, *command, **environment) -> None:
        merged: dict[str, str | None] = {
            **os.environ,
            "PYTHONPATH": str(PACKAGES),
            "PYTHONSAFEPATH": "1",
            "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
            "XLA_FLAGS": None,
            **environment,
        }
        # Files, since nobody reads a pipe until the program has ended.
        (out, self._out), (err, self._err) = tempfile.mkstemp(), tempfile.mkstemp()
        environment = {key: value for key, value in merged.items() if value is not None}
        arguments = [str(part) for part in command]
        self._process = subprocess.Popen(arguments, env=environment, stdout=out, stderr=err)
        os.close(out)
        os.close(err)
        self._done: subprocess.CompletedProcess | None = None

    def finish(self, timeout: float = 240) -> subprocess.CompletedProcess:
        """Waits for the program, and stops it if that takes too long."""
        if self._done is None:
            note = ""
            try:
                self._process.wait(timeout)
            except subprocess.TimeoutExpired:
                self._process.kill()
                note = f"\nstopped after {timeout} s"
            code = self._process.wait()
            out, err = _read_and_remove(self._out), _read_and_remove(self._err)
            self._done = subprocess.CompletedProcess(self._process.args, code, out, err + note)
        return self._done

    def output(self) -> str:
        """What the program printed; it must have succeeded."""
        done = self.finish()
        shown = f"{done.stdout[-3000:]}{done.stderr[-6000:]}"
        assert done.returncode == 0, f"exit status {done.returncode}\n{shown}"
        return done.stdout

    def stop(self) -> None:
        """Ends the program if it still runs."""
        self._process.kill()
        self.finish()


def _read_and_remove(path: str) -> str:
    text = pathlib.Path(path).read_text()
    os.remove(path)
    return text


def python(script, *args, **environment) -> Program:
    """A program in Python."""
    return Program(sys.executable, script, *args, **environment)
