"""First use of kernels inside programs that XLA may capture into CUDA graphs.

Run by test_command_buffers.py with the flags that decide what is captured. Everything is cold: no
kernel has been compiled or loaded when the first capture begins.
"""

import functools
import json
import pathlib
import tempfile

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.profiler import ProfileData

import jax_elementwise as je

RUNS = 200


def scaled(x, y):
    return x * 0.5 + jnp.tanh(y)


def wave(x, y):
    return jnp.sin(x) - y, jnp.where(x > y, x, y)


def halve(x):
    return x / 2


def chain(scaled, wave, halve, x, y):
    """Several calls one after another, with operations of XLA between them."""
    for _ in range(4):
        x = scaled(x, y[:, None])
        sine, largest = wave(x, jnp.mean(x))
        x = halve(sine + largest.T @ largest / 1000)
    return x


def loop(scaled, wave, halve, x, y):
    """A loop whose number of steps is known."""

    def step(i, x):
        sine, largest = wave(x, y)
        return scaled(sine, halve(largest)) + i

    return lax.fori_loop(0, 10, step, x)


def until_small(halve, matrix, x):
    """A loop that ends when its values say so, with matrix products in its body."""

    def step(x):
        for _ in range(3):
            x = jnp.matmul(matrix, x, precision="highest")
        return halve(x)

    return lax.while_loop(lambda x: jnp.sum(x) > 0.1, step, x)


def jitted(name, program, *functions):
    """A jitted program under a name that XLA's dumps show."""
    fun = functools.partial(program, *functions)
    fun.__name__ = name
    return jax.jit(fun)


def programs():
    """Each program with kernels, then with ``jax.numpy`` alone."""
    kernels = [je.elementwise(fun) for fun in (scaled, wave, halve)]
    for program in (chain, loop):
        name = program.__name__
        ours = jitted(f"{name}_of_kernels", program, *kernels)
        yield name, ours, jitted(name, program, scaled, wave, halve)


def check_new_inputs() -> None:
    rng = np.random.default_rng(0)
    for name, ours, plain in programs():
        for i in range(RUNS):
            x = jnp.asarray(rng.normal(size=(64, 64)), jnp.float32)
            y = jnp.asarray(rng.normal(size=64), jnp.float32)
            np.testing.assert_allclose(
                ours(x, y), plain(x, y), rtol=2e-3, atol=2e-3, err_msg=f"{name}, run {i}"
            )


def check_same_input() -> None:
    x, y = jnp.ones((64, 64)), jnp.linspace(-1, 1, 64)
    for _, ours, _ in programs():
        first = ours(x, y)
        for _ in range(20):
            np.testing.assert_array_equal(ours(x, y), first)


def check_while_loop() -> None:
    size = 1000
    # A permutation: products are exact, whatever computes them.
    matrix = jnp.roll(jnp.eye(size, dtype=jnp.float32), 1, axis=0)
    x = jnp.arange(size, dtype=jnp.float32)
    ours = jitted("while_of_kernels", until_small, je.elementwise(halve))
    plain = jitted("while", until_small, halve)
    for _ in range(5):
        np.testing.assert_array_equal(ours(matrix, x), plain(matrix, x))


# ---- What the profiler sees ----------------------------------------------------------------------


def executed(program, *args):
    """How many kernels of ours one run executes as parts of CUDA graphs, and how many others."""
    jax.block_until_ready(program(*args))
    with tempfile.TemporaryDirectory() as directory:
        with jax.profiler.trace(directory):
            jax.block_until_ready(program(*args))
        (file,) = pathlib.Path(directory).rglob("*.xplane.pb")
        planes = list(ProfileData.from_file(str(file)).planes)
    kernels = [
        dict(event.stats)
        for plane in planes
        if plane.name.startswith("/device:GPU")
        for line in plane.lines
        for event in line.events
        if event.name.startswith("ew_")
    ]
    in_graphs = sum("cuda_graph_id" in stats for stats in kernels)
    return in_graphs, len(kernels) - in_graphs


def profiles():
    """Of each program, after all checks: nothing is cold any more."""
    x, y = jnp.ones((64, 64)), jnp.linspace(-1, 1, 64)
    found = {name: executed(ours, x, y) for name, ours, _ in programs()}
    size = 1000
    matrix, values = jnp.roll(jnp.eye(size), 1, axis=0), jnp.arange(size, dtype=jnp.float32)
    loop = jitted("while_of_kernels", until_small, je.elementwise(halve))
    return found | {"while": executed(loop, matrix, values)}


if __name__ == "__main__":
    check_new_inputs()
    check_same_input()
    check_while_loop()
    print("right in every run")
    print(json.dumps(profiles()))
