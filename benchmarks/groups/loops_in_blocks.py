"""The loops of ``loops.py`` as Pallas kernels: a block goes on until its last element is done."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from groups.loop_functions import MAX_STEPS, newton, rk4


def kepler(mean, eccentricity):
    def unsettled(state):
        _, step, count = state
        return (jnp.max(jnp.abs(step)) > 1e-6) & (count < 50)

    start = mean + eccentricity * jnp.sin(mean)
    first = start, jnp.ones_like(mean), 0
    return lax.while_loop(unsettled, newton(mean, eccentricity), first)[0]


def mandelbrot(c_re, c_im):
    def some_inside(state):
        x, y, _, count = state
        return (count < MAX_STEPS) & (jnp.min(x * x + y * y) <= 4)

    def step(state):
        x, y, steps, count = state
        inside = x * x + y * y <= 4
        x, y = (
            jnp.where(inside, x * x - y * y + c_re, x),
            jnp.where(inside, 2 * x * y + c_im, y),
        )
        return x, y, steps + inside.astype(jnp.int32), count + 1

    zero = jnp.zeros_like(c_re)
    steps = jnp.zeros(c_re.shape, jnp.int32)
    return lax.while_loop(some_inside, step, (zero, zero, steps, 0))[2]


def kernel(function: Callable, dtype: type, block: int) -> Callable:
    """A function of two arrays whose size the block divides."""

    def body(p, q, r):
        r[...] = function(p[...], q[...])

    def run(p, q):
        from jax.experimental import pallas
        from jax.experimental.pallas import triton

        spec = pallas.BlockSpec((block,), lambda i: (i,))
        return pallas.pallas_call(
            body,
            out_shape=jax.ShapeDtypeStruct(p.shape, dtype),
            grid=(p.size // block,),
            in_specs=[spec, spec],
            out_specs=spec,
            compiler_params=triton.CompilerParams(num_warps=1),
        )(p, q)

    return run


# With the best of a few block sizes.
FUNCTIONS = {
    "kepler": kernel(kepler, jnp.float32, 128),
    "mandelbrot": kernel(mandelbrot, jnp.int32, 256),
    "rk4": kernel(rk4, jnp.float32, 256),
}
