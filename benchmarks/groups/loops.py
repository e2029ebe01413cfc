"""Loops per element: Kepler's equation, the Mandelbrot set and a Runge-Kutta method, side by side.

The same arithmetic, on the same inputs: as a function of this package, under ``jit(vmap(...))``, as
a Pallas kernel, as a CuPy ``ElementwiseKernel`` as a user would write it, and as a CUDA kernel by
hand. Derivatives of Kepler's equation are ours alone: XLA refuses them, and the others have none.
"""

from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
from case import Case, Results, agree, uniform
from measuring import measured
from peers import CudaKernel, CupyElementwise
from report import Row

import jax_elementwise as je
from groups import loops_in_blocks
from groups.loop_functions import MAX_STEPS, RK4_STEPS, kepler, mandelbrot, rk4

TITLE = "Loops per element"
RATIOS = (("XLA", "ours"), ("Pallas", "ours"), ("CuPy", "ours"), ("CUDA", "ours"))

# ---- The same in CUDA C++: of a and b, to out ----------------------------------------------------

KEPLER = """
float E = a + b * sinf(a), d = 1;
int steps = 0;
while (fabsf(d) > 1e-6f && steps < 50) {
  SINES
  d = (E - b * s - a) / (1 - b * c);
  E -= d;
  ++steps;
}
RESULT = E;
"""
SINES = "float s = sinf(E), c = cosf(E);"
SINCOS = "float s, c; sincosf(E, &s, &c);"
MANDELBROT = f"""
float x = 0, y = 0;
int steps = 0;
while (steps < {MAX_STEPS} && x * x + y * y <= 4) {{
  float t = x * x - y * y + a;
  y = 2 * x * y + b;
  x = t;
  ++steps;
}}
RESULT = steps;
"""
RK4 = f"""
float x = a;
const float h = 0.01f;
for (int i = 0; i < {RK4_STEPS}; ++i) {{
  float k1 = b * x * (1 - x), x1 = x + 0.5f * h * k1;
  float k2 = b * x1 * (1 - x1), x2 = x + 0.5f * h * k2;
  float k3 = b * x2 * (1 - x2), x3 = x + h * k3;
  float k4 = b * x3 * (1 - x3);
  x += h / 6 * (k1 + 2 * k2 + 2 * k3 + k4);
}}
RESULT = x;
"""


def in_cuda(name: str, body: str, out: str) -> dict[str, object]:
    """As a user of CuPy would write it, and as a kernel by hand, with what that knows better."""
    by_hand = body.replace("SINES", SINCOS).replace("RESULT", "out[k]")
    user = body.replace("SINES", SINES).replace("RESULT", "out")
    return {
        "CUDA": CudaKernel(
            name, f"const float a = in0[k], b = in1[k]; {by_hand}", ["float"] * 2, out
        ),
        "CuPy": CupyElementwise("float32 a, float32 b", f"{out} out", user, name),
    }


# ---- The cases -----------------------------------------------------------------------------------


def image(width: int) -> Callable:
    """The points of an image, each a row: the same for all sets."""

    def operands(number: int) -> list[jax.Array]:
        del number
        re, im = np.meshgrid(np.linspace(-2, 0.6, width), np.linspace(-1.3, 1.3, width))
        return [jnp.asarray(x.astype(np.float32).ravel()) for x in (re, im)]

    return operands


def orbits(size: int) -> Callable:
    """Random mean anomalies and eccentricities."""

    def operands(number: int) -> list[jax.Array]:
        first, second = jax.random.split(jax.random.key(number))
        mean = jax.random.uniform(first, (size,), maxval=6.28)
        return [mean, jax.random.uniform(second, (size,), maxval=0.95)]

    return operands


def derivatives() -> dict[str, Callable]:
    """Of Kepler's equation."""
    ours = je.elementwise(kepler)

    def gradient(argnums):
        return jax.grad(lambda m, e: ours(m, e).sum(), argnums=argnums)

    def tangent(m, e):
        return jax.jvp(ours, (m, e), (jnp.ones_like(m), jnp.ones_like(e)))[1]

    return {"tangent": tangent, "by M": gradient(0), "by M and e": gradient((0, 1))}


def finite(results: Results) -> list[str]:
    """Derivatives are numbers."""
    good = all(np.isfinite(x).all() for x in results["ours"])
    return [] if good else ["ours is not finite"]


def cases(quick: bool) -> Iterator[Case]:
    width = 32 if quick else 4096
    size = width * width
    problems = {
        "kepler": (kepler, orbits(size), KEPLER, "float32"),
        "mandelbrot": (mandelbrot, image(width), MANDELBROT, "int32"),
        "rk4": (rk4, uniform((size,), (size,), low=0.1, high=0.9), RK4, "float32"),
    }
    for name, (function, operands, body, out) in problems.items():
        ours = {"ours": je.elementwise(function), "Pallas": loops_in_blocks.FUNCTIONS[name]}
        ways = {**ours, **in_cuda(name, body, out), "XLA": jax.vmap(function)}
        yield Case(f"{name}, {size}", ways, operands, check=agree, labels={"function": name})
    for name, function in derivatives().items():
        label = f"kepler, {name}"
        yield Case(
            f"{label}, {size}",
            {"ours": function},
            orbits(size),
            check=finite,
            labels={"function": label},
        )


def rows(process: str, quick: bool) -> Iterator[Row]:
    del process
    return measured(cases(quick), quick)
