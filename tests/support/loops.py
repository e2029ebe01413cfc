"""Functions of one element that loop, which several tests use."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax


def kepler(mean, e):
    """Kepler's equation E - e sin E = M, by Newton's method, and how many steps that took."""

    def step(state):
        anomaly, _, n = state
        delta = (anomaly - e * jnp.sin(anomaly) - mean) / (1 - e * jnp.cos(anomaly))
        return anomaly - delta, jnp.abs(delta), n + 1

    tolerance = 4 * jnp.finfo(mean.dtype).eps
    start = (mean + e * jnp.sin(mean), jnp.ones_like(mean), jnp.int32(0))
    anomaly, _, n = lax.while_loop(lambda s: (s[1] > tolerance) & (s[2] < 20), step, start)
    return anomaly, n


def mandelbrot(z0, c):
    """How often z -> z^2 + c stays near."""
    return lax.while_loop(
        lambda s: (jnp.real(s[0] * jnp.conj(s[0])) <= 4) & (s[1] < 50),
        lambda s: (s[0] * s[0] + c, s[1] + 1),
        (z0, jnp.int32(0)),
    )


def below(limit, start):
    return lax.while_loop(lambda s: s < limit, lambda s: s + s * s, start)


def few(i):
    """An index as a count of steps, also where it is a limit of its dtype."""
    return i % 7


def lanes(x, y, i):
    """jax.vmap makes one loop of many, whose lanes end at different times."""

    def doubled(start, limit):
        return lax.while_loop(
            lambda s: s[0] < limit, lambda s: (s[0] + s[0], s[1] + 1), (abs(start) % 8 + 1, 0)
        )

    def vectors(row, n):
        def step(state):
            v, k, flag, _ = state
            return v[::-1] + row, k + 1, ~flag, jnp.zeros_like(x)

        return lax.while_loop(lambda s: s[1] < n, step, (row, 0, True, x))

    values, counts = jnp.stack([x, y, y + x]), jnp.stack([few(i), jnp.int32(3)])
    rows = jnp.stack([values[:2], values[1:]])
    return (
        jax.vmap(doubled, (0, None))(values, 40),
        jax.vmap(doubled, (None, 0))(x, values % 50 * 5),
        jax.vmap(jax.vmap(doubled, (0, None)), (None, 0))(values, rows[0] % 50),
        jax.vmap(vectors)(rows, counts),
        jax.vmap(lambda n: lax.fori_loop(0, n, lambda k, c: c - y, x))(counts),
        jax.vmap(doubled, (0, None))(values[:0], 40),
    )
