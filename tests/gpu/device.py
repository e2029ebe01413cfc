"""Runs functions on the GPU, and proves that kernels ran; runs references on the CPU."""

from __future__ import annotations

import contextlib
import os
import pathlib
import subprocess
import sys

import jax
import numpy as np
from support import ulp

import jax_elementwise
from jax_elementwise import _runtime

ON_CPU = os.environ.get("JEW_GPU_TESTS_ON") == "cpu"
HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent.parent

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


# ---- In other processes --------------------------------------------------------------------------


def start(*command, **environment) -> subprocess.Popen:
    """Starts a program that imports the package under test, and no other copy of it.

    Entries of ``environment`` replace those of this process; None removes one.
    """
    merged: dict[str, str | None] = {
        **os.environ,
        "PYTHONPATH": str(pathlib.Path(jax_elementwise.__file__).parent.parent),
        "PYTHONSAFEPATH": "1",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "XLA_FLAGS": None,
        **environment,
    }
    return subprocess.Popen(
        [str(part) for part in command],
        env={key: value for key, value in merged.items() if value is not None},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def start_python(script, *args, **environment) -> subprocess.Popen:
    """Starts a Python program, like ``start``."""
    return start(sys.executable, script, *args, **environment)


def finish(process: subprocess.Popen, timeout: float = 180) -> subprocess.CompletedProcess:
    """Waits for a program, and stops it if that takes too long."""
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        err += f"\nstopped after {timeout} s"
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def output(completed: subprocess.CompletedProcess) -> str:
    """What a program printed; it must have succeeded."""
    code, out, err = completed.returncode, completed.stdout, completed.stderr
    assert code == 0, f"exit status {code}\n{out[-3000:]}{err[-6000:]}"
    return out


def run_python(script, *args, **environment) -> str:
    """What a Python program prints, which must succeed."""
    return output(finish(start_python(script, *args, **environment)))
