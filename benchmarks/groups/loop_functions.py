"""What the loops of ``loops.py`` compute, each of one element, and the parts that blocks share."""

import jax.numpy as jnp
from jax import lax

MAX_STEPS = 1000  # of the Mandelbrot set
RK4_STEPS = 200


def kepler(mean, eccentricity):
    """Newton's method until the step is small."""

    def unsettled(state):
        _, step, count = state
        return (jnp.abs(step) > 1e-6) & (count < 50)

    start = mean + eccentricity * jnp.sin(mean)
    first = start, jnp.ones_like(mean), jnp.int32(0)
    return lax.while_loop(unsettled, newton(mean, eccentricity), first)[0]


def newton(mean, eccentricity):
    """A step of it, of the eccentric anomaly, the last step and their count."""

    def step(state):
        anomaly, _, count = state
        error = anomaly - eccentricity * jnp.sin(anomaly) - mean
        by = error / (1 - eccentricity * jnp.cos(anomaly))
        return anomaly - by, by, count + 1

    return step


def mandelbrot(c_re, c_im):
    """Steps until |z| is above 2."""

    def inside(state):
        x, y, count = state
        return (count < MAX_STEPS) & (x * x + y * y <= 4)

    def step(state):
        x, y, count = state
        return x * x - y * y + c_re, 2 * x * y + c_im, count + 1

    zero = jnp.zeros_like(c_re)
    return lax.while_loop(inside, step, (zero, zero, jnp.int32(0)))[2]


def rk4(x0, rate):
    """The logistic equation x' = rate x (1 - x), by the classical Runge-Kutta method."""
    h = 0.01

    def slope(x):
        return rate * x * (1 - x)

    def step(_, x):
        k1 = slope(x)
        k2 = slope(x + 0.5 * h * k1)
        k3 = slope(x + 0.5 * h * k2)
        k4 = slope(x + h * k3)
        return x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)

    return lax.fori_loop(0, RK4_STEPS, step, x0)
