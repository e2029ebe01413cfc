"""What the first call of a function costs: ten functions, in new processes.

    python benchmarks/first_call.py [--rounds N] [--json FILE]

A round is three new processes, each of which calls the ten functions one after another: ours with
an empty kernel cache, ours with the cache that the first one left, and ``jax.jit``. Before anything
is timed, a process brings up JAX and its backend with an unrelated operation, which also takes the
memory on the device that the functions will need. A time is that of everything from the call to its
result: trace, generate, compile, load, launch and wait.

The first function of a process is reported by itself, since its time includes what happens once per
process, such as loading NVRTC. Then each function is called with arrays of another shape, for which
XLA compiles another program, though a kernel of ours is used again. JAX's persistent cache is off,
and the CUDA driver's is as empty as the kernel cache.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from bandwidth import machine, report_machine

import jax_elementwise as je
from jax_elementwise import _runtime

Shape = tuple[int, ...]
SHAPES: tuple[Shape, Shape] = ((512, 1024), (511, 1000))  # of the first call, of the other one
PROCESSES = {"cold": "ours, empty cache", "warm": "ours, cache on disk", "jit": "jax.jit"}


# ---- The functions, each on one element ----------------------------------------------------------


def affine(x, a, b):
    return a * x + b


def gelu(x):
    return 0.5 * x * jax.lax.erfc(-x * 0.5**0.5)


def silu(x):
    return x * jax.nn.sigmoid(x)


def softplus(x):
    return jnp.logaddexp(x, 0)


def cross_entropy(logit, label):
    """Of a sigmoid."""
    softplus = jnp.log1p(jnp.exp(-jnp.abs(logit)))
    return jnp.maximum(logit, 0) - logit * label.astype(logit.dtype) + softplus


def huber(prediction, target, delta):
    error = jnp.abs(prediction - target)
    return jnp.where(error < delta, 0.5 * error * error, delta * (error - 0.5 * delta))


def mish(x):
    return x * jnp.tanh(jnp.log1p(jnp.exp(x)))


def normal_cdf(x):
    return 0.5 * (1 + jax.lax.erf(x * 0.5**0.5))


def polynomial(x):
    result = 0.1 * x + 0.2
    for coefficient in (0.3, -0.4, 0.5, -0.6, 0.7):
        result = result * x + coefficient
    return result


def polar(x, y):
    return jnp.sqrt(x * x + y * y), jnp.arctan2(y, x)


class Case(NamedTuple):
    """A function and its operands.

    Attributes:
      function: of one element.
      operands: dtypes; "float32 row" is one element per column, "float32 scalar" one for all.
    """

    function: Callable
    operands: tuple[str, ...]


CASES = (
    Case(affine, ("float32", "float32 row", "float32 row")),
    Case(gelu, ("float32",)),
    Case(silu, ("bfloat16",)),
    Case(softplus, ("float16",)),
    Case(cross_entropy, ("bfloat16", "int32")),
    Case(huber, ("bfloat16", "float32", "float32 scalar")),
    Case(mish, ("bfloat16",)),
    Case(normal_cdf, ("float32",)),
    Case(polynomial, ("float32",)),
    Case(polar, ("float32", "float32")),
)


def random_operands(case: Case, shape: Shape, generator: np.random.Generator) -> list[jax.Array]:
    """Made by NumPy, so that nothing is compiled for them."""
    operands = []
    for operand in case.operands:
        dtype, _, kind = operand.partition(" ")
        full = {"": shape, "row": shape[1:], "scalar": ()}[kind]
        if dtype == "int32":
            values: Any = generator.integers(0, 2, full)
        else:
            values = generator.standard_normal(full)
        operands.append(jax.device_put(np.asarray(values).astype(jnp.dtype(dtype))))
    return jax.block_until_ready(operands)


# ---- One process ---------------------------------------------------------------------------------


def seconds(function: Callable, operands: list[jax.Array]) -> float:
    """From one call to its result."""
    start = time.perf_counter()
    jax.block_until_ready(function(*operands))
    return time.perf_counter() - start


def call_all(wrapped: Callable) -> dict[str, Any]:
    """In a new process: the times of each function's first call and of one with another shape."""
    jax.block_until_ready(jax.jit(lambda x: x + 1)(jnp.ones(1 << 24)))  # JAX is up, with memory
    generator = np.random.default_rng(0)
    functions = [wrapped(case.function) for case in CASES]
    times = []
    for shape in SHAPES:
        operands = [random_operands(case, shape, generator) for case in CASES]
        times.append([seconds(f, o) for f, o in zip(functions, operands, strict=True)])
    return {
        "machine": machine(),
        "first_s": times[0],
        "other_shape_s": times[1],
        "counters": dict(_runtime.counters()),
    }


def in_new_process(wrapper: str, caches: str) -> dict[str, Any]:
    """What ``call_all`` returns there; ``caches`` is the folder of all that outlives a process."""
    environment = {
        **os.environ,
        "JAX_ELEMENTWISE_CACHE_DIR": os.path.join(caches, "kernels"),
        "CUDA_CACHE_PATH": os.path.join(caches, "cuda"),
        "JAX_ENABLE_COMPILATION_CACHE": "false",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    }
    command = [sys.executable, os.path.abspath(__file__), "--process", wrapper]
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def one_round() -> dict[str, dict[str, Any]]:
    """Three new processes: ours twice with one cache, empty at first, and jax.jit."""
    with tempfile.TemporaryDirectory() as ours, tempfile.TemporaryDirectory() as xla:
        return {
            "cold": in_new_process("ours", ours),
            "warm": in_new_process("ours", ours),
            "jit": in_new_process("jit", xla),
        }


# ---- The report ----------------------------------------------------------------------------------


def medians(rounds: list[dict[str, dict[str, Any]]], process: str, what: str) -> list[float]:
    """Of each function's times over the rounds, in milliseconds."""
    times = zip(*(one[process][what] for one in rounds), strict=True)
    return [1e3 * statistics.median(values) for values in times]


def report(rounds: list[dict[str, dict[str, Any]]]) -> dict[str, Any]:
    """Prints both tables; returns what is in them."""
    first = {process: medians(rounds, process, "first_s") for process in PROCESSES}
    other = {process: medians(rounds, process, "other_shape_s") for process in PROCESSES}
    print("Milliseconds. First functions of their processes and the nine others:\n")
    print("| process | first | others, median | another shape, median | counters |")
    print("|---|---:|---:|---:|---|")
    for process, name in PROCESSES.items():
        counters = rounds[-1][process]["counters"]
        counted = ", ".join(f"{key} {count}" for key, count in counters.items())
        print(
            f"| {name} | {first[process][0]:.1f} | {statistics.median(first[process][1:]):.1f} "
            f"| {statistics.median(other[process]):.1f} | {counted} |"
        )
    print(
        "\n| function | operands | ours, empty | warm | jax.jit | another shape: ours | jax.jit |"
    )
    print("|---|---|---:|---:|---:|---:|---:|")
    for i, case in enumerate(CASES):
        row = *(first[p][i] for p in PROCESSES), other["cold"][i], other["jit"][i]
        cells = " | ".join(f"{value:.1f}" for value in row)
        print(f"| {case.function.__name__} | {', '.join(case.operands)} | {cells} |")
    return {
        "functions": [case.function.__name__ for case in CASES],
        "first_ms": first,
        "other_shape_ms": other,
        "counters": {process: rounds[-1][process]["counters"] for process in PROCESSES},
    }


def main(argv: list[str] | None = None) -> dict[str, Any] | None:
    """Measures, prints and returns everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=1, help="of which medians are taken")
    parser.add_argument("--json", metavar="FILE", help="save all measurements")
    parser.add_argument("--process", choices=("ours", "jit"), help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.rounds < 1:
        parser.error("--rounds is at least 1")
    if options.process:
        wrapped = je.elementwise if options.process == "ours" else jax.jit
        print(json.dumps(call_all(wrapped)))
        return None

    rounds = [one_round() for _ in range(options.rounds)]
    about = rounds[0]["cold"]["machine"]
    report_machine(about)
    if about["platform"] != "gpu":
        print("Not a GPU: XLA compiles the same operations for both, and no kernel is made.\n")
    measurements = {"machine": about, "rounds": options.rounds, **report(rounds)}
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(measurements, indent=2) + "\n")
    return measurements


if __name__ == "__main__":
    main()
