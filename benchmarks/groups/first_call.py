"""What the first call of a function costs: ten functions, in new processes.

Three processes, each of which calls the ten functions one after another: ours with an empty kernel
cache, ours with the cache that the first one left, and ``jax.jit``. Before anything is timed, a
process brings up JAX and its backend with an unrelated operation, which also takes the memory on
the device that the functions will need. A time is that of everything from the call to its result:
trace, generate, compile, load, launch and wait.

The first function of a process is a row by itself, since its time includes what happens once per
process, such as loading NVRTC. Then each function is called with arrays of another shape, for which
XLA compiles another program, though a kernel of ours is used again. JAX's persistent cache is off,
and the CUDA driver's is as empty as the kernel cache.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from report import Row

import jax_elementwise as je
from groups.bandwidth import gelu
from jax_elementwise import _runtime

TITLE = "The first call"
RATIOS = (("jax.jit", "empty cache"), ("jax.jit", "cache on disk"))
_ISOLATED = {
    "JAX_ELEMENTWISE_CACHE_DIR": "{folder}/kernels",
    "CUDA_CACHE_PATH": "{folder}/cuda",
    "JAX_ENABLE_COMPILATION_CACHE": "false",
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
}
# The second finds in the folder what the first left there.
PROCESSES = {
    "empty cache": _ISOLATED,
    "cache on disk": _ISOLATED,
    "jax.jit": {**_ISOLATED, "CUDA_CACHE_PATH": "{folder}/xla"},
}

Shape = tuple[int, ...]
SHAPES: tuple[Shape, Shape] = ((512, 1024), (511, 1000))  # of the first call, of the other one


# ---- The functions, each on one element ----------------------------------------------------------


def affine(x, a, b):
    return a * x + b


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


def rows(process: str, quick: bool) -> Iterator[Row]:
    """Of each function: its first call, and one with another shape."""
    wrapped = jax.jit if process == "jax.jit" else je.elementwise
    jax.block_until_ready(jax.jit(lambda x: x + 1)(jnp.ones(1 << (12 if quick else 24))))
    generator = np.random.default_rng(0)
    functions = [wrapped(case.function) for case in CASES]
    times = []
    for what, shape in zip(("the first", "another shape"), SHAPES, strict=True):
        operands = [random_operands(case, shape, generator) for case in CASES]
        times = [seconds(f, o) for f, o in zip(functions, operands, strict=True)]
        for case, time_of in zip(CASES, times, strict=True):
            yield _row(process, what, case.function.__name__, ", ".join(case.operands), time_of)
        median = statistics.median(times[1:])
        yield _row(process, what, "median of the last nine", "", median)
    for name, count in _runtime.counters().items():
        yield {"case": name, "clock": "counter", "way": process, "count": count, "labels": {}}


def _row(process: str, what: str, function: str, operands: str, time_of: float) -> Row:
    return {
        "case": f"{function}, {what}",
        "clock": "first call",
        "way": process,
        "us": 1e6 * time_of,
        "spread": 0.0,
        "labels": {"function": function, "operands": operands, "call": what},
    }
