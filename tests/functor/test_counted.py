"""Loops that may never end, and those that do for all values."""

import jax
import jax.numpy as jnp
import pytest
from cases import run_python
from jax import lax

import jax_elementwise as je
from jax_elementwise._functor.counted import is_counted

COUNTED = {
    "up": lambda x, n: lax.fori_loop(0, n, lambda _, c: c * x, x),
    "down": lambda x, n: lax.while_loop(lambda i: i > 0, lambda i: i - 1, n),
    "the bound first": lambda x, n: lax.while_loop(lambda i: i < 9, lambda i: i + 1, n),
    "another condition, too": lambda x, n: lax.while_loop(
        lambda s: (s[0] < 50) & (s[1] > 1e-3), lambda s: (s[0] + 1, s[1] / 2), (0, x)
    ),
    "in jit": lambda x, n: lax.while_loop(
        lambda s: jnp.logical_and(s[0] < 5, s[1] > 0), lambda s: (s[0] + 1, s[1] * x), (n, x)
    ),
    "unsigned": lambda x, n: lax.fori_loop(jnp.uint8(0), n.astype("uint8"), lambda _, c: c * x, x),
}
OPEN = {
    "a value": lambda x, n: lax.while_loop(lambda s: s != 5, lambda s: s * 3 + 2, n),
    "not a number": lambda x, n: lax.while_loop(lambda e: ~(e < 1e-3), lambda e: e * 0.5, x),
    "steps of two": lambda x, n: lax.while_loop(lambda i: i < n, lambda i: i + 2, n - 4),
    "the largest integer": lambda x, n: lax.while_loop(lambda i: i <= n, lambda i: i + 1, n),
    "away from the bound": lambda x, n: lax.while_loop(lambda i: i < n, lambda i: i - 1, n - 4),
    "one of two conditions": lambda x, n: lax.while_loop(
        lambda s: (s[0] < 5) | (s[1] > 0), lambda s: (s[0] + 1, s[1] * 2), (0, x)
    ),
    "a float counts": lambda x, n: lax.while_loop(lambda c: c < x, lambda c: c + 1, x - 4),
    "a bound that moves": lambda x, n: lax.while_loop(
        lambda s: s[0] < s[1], lambda s: (s[0] + 1, s[1] + 1), (0, n)
    ),
}


def _loop(fun):
    jaxpr = jax.make_jaxpr(fun)(1.0, jnp.int32(3))
    (equation,) = (e for e in jaxpr.eqns if e.primitive.name == "while")
    return equation


@pytest.mark.parametrize("name", COUNTED)
def test_a_counted_loop(name):
    assert is_counted(_loop(COUNTED[name]))
    assert "goes_on(" not in je.elementwise(COUNTED[name]).cuda_source(1.0, jnp.int32(3))


@pytest.mark.parametrize("name", OPEN)
def test_a_loop_that_may_never_end(name):
    assert not is_counted(_loop(OPEN[name]))
    assert "goes_on(" in je.elementwise(OPEN[name]).cuda_source(1.0, jnp.int32(3))


_ENDLESS = """
import os, threading
import jax.numpy as jnp, jax_elementwise as je
from jax import lax
results = []
def run(fun, x):
    results.append(je.elementwise(fun)(x).block_until_ready())
for fun, x in (
    (lambda x: lax.while_loop(lambda s: s != 5, lambda s: s * 3 + 2, x), jnp.array([0, 5])),
    (lambda x: jnp.where(lax.while_loop(lambda e: ~(e < 1e-3), lambda e: e * 0.5, x) < 1e-3, 1, 0),
     jnp.array([jnp.nan])),
):
    thread = threading.Thread(target=run, args=(fun, x), daemon=True)
    thread.start()
    thread.join(2)
    print("ended" if results else "goes on", flush=True)
os._exit(0)
"""


def test_an_endless_loop_gives_no_value(host_compiler):
    assert run_python(_ENDLESS) == "goes on\ngoes on\n"
