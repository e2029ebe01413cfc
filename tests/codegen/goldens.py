"""The functions whose kernels are kept in ``golden/``, and the texts kept there.

Run as a script, prints the texts as JSON.
"""

from __future__ import annotations

import json
import pathlib
import sys

import jax
import jax.numpy as jnp
from jax import lax

from jax_elementwise._codegen.kernel import Kernel, kernel_for
from jax_elementwise._functor.trace import trace
from jax_elementwise._lowering import attributes

DIRECTORY = pathlib.Path(__file__).parent / "golden"


def gelu(x):
    return jax.nn.gelu(x, approximate=True)


def bias_add(x, bias):
    return x + bias


def several_results(x, n):
    return x * 2 + 1, n > 3, n // 2, jnp.where(x > 0, x, -0.0)


def smooth_abs(x):
    return lax.cond(jnp.abs(x) < 1, lambda x: x * x / 2, lambda x: jnp.abs(x) - 0.5, x)


def silu(x):
    return x / (1 + jnp.exp(-x))


# Function, dtypes of the operands, their shapes, options.
_CASES = {
    "gelu_float32": (gelu, ["float32"], [(64,)], {}),
    "bias_add_bfloat16": (bias_add, ["bfloat16"] * 2, [(64, 128), (128,)], {}),
    "several_results": (several_results, ["float32", "int32"], [(5, 1, 7), (4, 7)], {}),
    "cond_float16": (smooth_abs, ["float16"], [(64,)], {}),
    "fast_math_float32": (silu, ["float32"], [(64,)], {"fast_math": True}),
}
NAMES = tuple(_CASES)


def kernel(name: str) -> Kernel:
    """The kernel of a case."""
    fun, dtypes, shapes, options = _CASES[name]
    avals = [jnp.zeros((), dtype).aval for dtype in dtypes]
    functor = trace(fun, avals, fun.__name__).functor
    return kernel_for(functor, shapes, jnp.broadcast_shapes(*shapes), **options)


def text(name: str) -> str:
    """What the file of a case holds: what the launcher is told, then the kernel."""
    made = kernel(name)
    about = [f"name: {made.name}", f"options: {' '.join(made.options)}", f"pack: {made.pack}"]
    about.append(f"space: {made.space}")
    return "".join(f"// {line}".rstrip() + "\n" for line in about) + "\n" + made.source


def digest(name: str) -> str:
    """The digest of a program that calls the kernel of a case."""
    return str(attributes.of(kernel(name))["digest"])


if __name__ == "__main__":
    json.dump({name: text(name) + digest(name) for name in NAMES}, sys.stdout)
