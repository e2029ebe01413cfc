"""Loops inside of kernels: their text and their machine code."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from support import loops, sass, simt, together


@pytest.fixture(scope="module", autouse=True)
def x64_types():
    with jax.enable_x64(True):
        yield


# ---- Text ----------------------------------------------------------------------------------------


def _source(fun, *dtypes):
    return simt.make_kernel(fun, dtypes).source


def _count(word, text):
    return len(re.findall(rf"\b{re.escape(word)}", text))


def test_a_loop_is_one_loop():
    text = _source(lambda x, e: loops.kepler(x, e)[0], "float32", "float32")
    assert _count("while (true) {", text) == _count("break;", text) == 1
    assert _count("sincosf(", text) == 1
    assert _count("sinf(", text) == 1  # before the loop
    assert _count("cosf(", text) == 0


@pytest.mark.parametrize(("length", "sines", "counted"), [(8, 8, 0), (9, 1, 1), (10**6, 1, 1)])
def test_few_steps_are_written_out_and_many_are_a_loop(length, sines, counted):
    text = _source(lambda x: lax.fori_loop(0, length, lambda _, c: jnp.sin(c), x), "float32")
    plain = _source(jnp.sin, "float32")
    assert _count("sinf(", text) == sines
    assert _count("for (", text) - _count("for (", plain) == counted
    assert ("< 1000000;" in text) == (length == 10**6)


def test_lanes_share_one_loop():
    def lanes(x, y):
        return jax.vmap(lambda v: loops.below(10, v))(jnp.stack([x, y])).sum()

    text = _source(lanes, "float32", "float32")
    assert _count("while (true) {", text) == 1
    assert re.search(r"if \(!\(goes_on\(v\d+ \|\| v\d+\)\)\) break;", text)


@pytest.mark.parametrize(
    ("fun", "dtype", "pairs"),
    [
        (lambda x: jnp.sin(x) * jnp.cos(x), "float32", ("sincosf(",)),
        (lambda x: jnp.sin(x) * jnp.cos(x) + jnp.sin(x), "bfloat16", ("sincosf(",)),
        (lambda x: jnp.cos(x) - jnp.sin(x), "float64", ("sincos(",)),
        (jax.value_and_grad(jnp.sin), "float32", ("sincosf(",)),
        (lambda x: jnp.sin(x) * jnp.cos(2 * x), "float32", ()),
        (jnp.sin, "float32", ()),
        (lambda x: jnp.cos(x) + jnp.cos(x), "float64", ()),
        (lambda z: jnp.sin(z) * jnp.cos(z), "complex64", ()),
    ],
)
def test_a_sine_and_a_cosine_of_one_value_are_one_call(fun, dtype, pairs):
    text = _source(fun, dtype)
    # The text that goes before kernels has definitions of its own.
    plain = _source(lambda x: x * 2, dtype)
    made = [name for name in ("sincosf(", "sincos(") if _count(name, text) > _count(name, plain)]
    assert tuple(made) == pairs
    if pairs:
        assert _count(pairs[0], text) == 1
        assert not _count("sinf(", text) + _count("cosf(", text) + _count("sin(", text)


# ---- Machine code --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fun", "dtypes", "options"),
    [
        # Without the path for large angles, which needs a table in local memory.
        (lambda x, e: loops.kepler(x, e)[0], ["float32"] * 2, {"fast_math": True}),
        (lambda c: loops.mandelbrot(c * 0, c)[1], ["complex64"], {}),
        (lambda x: lax.fori_loop(0, 1000, lambda _, c: 3.7 * c * (1 - c), x), ["float32"], {}),
        (lambda x, y, i: loops.lanes(x, y, i)[3][0].sum(), ["float32", "float32", "int32"], {}),
    ],
    ids=["kepler", "mandelbrot", "logistic", "lanes"],
)
@sass.every_architecture
@together.compiled
def test_loops_stay_loops_and_in_registers(fun, dtypes, options, architecture):
    kernel = simt.make_kernel(fun, dtypes, **options)
    sass.require_nvrtc()
    found = sass.opcodes_of(kernel, sass.number(architecture))
    assert not [code for code in found if code.split(".")[0] in ("LDL", "STL")], "local memory"
    assert len(found) < 4000  # and not a thousand copies of a step
    assert any(code.split(".")[0] == "BRA" for code in found)
