"""The text of kernels: golden files, determinism, literals, names and refusals."""

from __future__ import annotations

import functools
import json
import math
import os
import re
import subprocess
import sys

import goldens
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax
from jax.extend.core import Primitive
from support import reference, simt, together, ulp

import jax_elementwise as je
from jax_elementwise._codegen.rules.operators import OPERATORS, Operator
from jax_elementwise._codegen.types import DTYPES, literal
from jax_elementwise._lowering import attributes

# ---- Golden files --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", goldens.NAMES)
def test_the_text_is_the_golden_one(name):
    path = goldens.DIRECTORY / f"{name}.cu"
    made = goldens.text(name)
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(made)
    kept = path.read_text() if path.exists() else ""
    assert made == kept, (
        f"the kernel of {name} is not the one in {path}. If the change is meant, run\n"
        "  UPDATE_GOLDEN=1 python -m pytest tests/codegen/test_golden.py\n"
        "and look at the difference before it is committed."
    )


def test_every_golden_file_belongs_to_a_case():
    files = {path.stem for path in goldens.DIRECTORY.iterdir()}
    assert files == set(goldens.NAMES)


# ---- Determinism ---------------------------------------------------------------------------------


def test_processes_agree_on_every_byte():
    here = goldens.DIRECTORY.parent
    made = {name: goldens.text(name) + goldens.digest(name) for name in goldens.NAMES}
    for seed in ("0", "4242"):
        done = subprocess.run(
            [sys.executable, str(here / "goldens.py")],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == made


def test_call_sites_agree_on_every_byte():
    @je.elementwise
    def softclip(x, limit):
        return limit * jnp.tanh(x / limit)

    here = softclip.cuda_source(jnp.ones(8), jnp.ones(8))
    there = softclip.cuda_source(jax.ShapeDtypeStruct((3, 5), jnp.float32), jnp.ones((3, 5)))

    @je.elementwise
    def same(x, limit):
        # Written elsewhere.
        return limit * jnp.tanh(x / limit)

    same = je.elementwise(same.__wrapped__, name="softclip")
    assert here == there == same.cuda_source(jnp.ones(8), jnp.ones(8))


def test_an_elementwise_function_inside_another_is_written_out():
    inner = je.elementwise(lambda x: jnp.tanh(x) * 2, name="inner")
    outer = je.elementwise(lambda x: inner(x) + 1, name="outer").cuda_source(jnp.ones(3))
    flat = je.elementwise(lambda x: jnp.tanh(x) * 2 + 1, name="outer").cuda_source(jnp.ones(3))
    assert outer == flat


def test_the_digest_depends_on_text_and_options():
    def fun(x):
        return x * 3

    kernel = simt.make_kernel(fun, ["float32"])
    digest = attributes.of(kernel)["digest"]
    same = simt.make_kernel(lambda x: x * 3, ["float32"])
    assert digest == attributes.of(same)["digest"]
    others = [
        simt.make_kernel(fun, ["float32"], fast_math=True),
        simt.make_kernel(fun, ["float32"], name="g"),
        simt.make_kernel(lambda x: x * 2, ["float32"]),
        simt.make_kernel(fun, ["bfloat16"]),
    ]
    digests = {attributes.of(other)["digest"] for other in others}
    assert len(digests | {digest}) == 1 + len(digests)
    shapes = [[(8,), (8,)], [(8,), ()], [(4, 8), (8,)], [(4, 8), (4, 1)]]
    made = [simt.make_kernel(lambda x, y: x * y, ["float32"] * 2, pair) for pair in shapes]
    assert len({attributes.of(kernel)["digest"] for kernel in made}) == len(shapes)
    assert simt.make_kernel(fun, ["float32"], fast_math=True).options == ("--use_fast_math",)


# ---- Literals ------------------------------------------------------------------------------------


def _parsed(text, dtype):
    """The value that a literal stands for, as an array of the type that is computed in."""
    compute = np.float32 if dtype.compute == "float" else np.float64
    bits = re.fullmatch(r"bit_cast<(float|double)>\(0x([0-9a-f]+)(u|ull)\)", text)
    if bits:
        assert (bits[1], bits[3]) == ((("float", "u"), ("double", "ull"))[compute is np.float64])
        integer = np.uint32 if compute is np.float32 else np.uint64
        return np.array(int(bits[2], 16), integer).view(compute)
    assert text.startswith("(-") == text.endswith(")"), text
    number = text.removeprefix("(").removesuffix(")")
    assert number.endswith("f") == (compute is np.float32)
    exact = float.fromhex(number.removesuffix("f"))
    assert float(compute(exact)) == exact
    return np.array(exact, compute)


@pytest.mark.parametrize("name", [name for name in DTYPES if DTYPES[name].kind == "float"])
def test_float_literals_are_exact(name):
    rng = np.random.default_rng(14)
    values = [reference.special_values(name), reference.of_every_exponent(rng, name, 3000)]
    for value in np.concatenate(values):
        with np.errstate(invalid="ignore"):  # signalling NaNs
            parsed = _parsed(literal(value, DTYPES[name]), DTYPES[name])
            assert ulp.bits_of(parsed.astype(value.dtype)[None]) == ulp.bits_of(value[None]) or (
                np.isnan(value) and np.isnan(parsed)
            )


def test_a_nan_keeps_its_payload():
    payload = np.array([0x7FC12345], np.uint32).view(np.float32)[0]
    assert literal(payload, DTYPES["float32"]) == "bit_cast<float>(0x7fc12345u)"


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (-0.0, "float32", "(-0x0.0p+0f)"),
        (0.1, "float64", "0x1.999999999999ap-4"),
        (0.1, "bfloat16", "0x1.9a00000000000p-4f"),
        (math.inf, "float32", "bit_cast<float>(0x7f800000u)"),
        (-math.inf, "float64", "bit_cast<double>(0xfff0000000000000ull)"),
        (5e-324, "float64", "0x0.0000000000001p-1022"),
        (-(2**31), "int32", "(-2147483647 - 1)"),
        (-(2**31) + 1, "int32", "(-2147483647)"),
        (2**32 - 1, "uint32", "4294967295u"),
        (-(2**63), "int64", "(-9223372036854775807ll - 1)"),
        (2**40, "int64", "1099511627776ll"),
        (2**64 - 1, "uint64", "18446744073709551615ull"),
        (np.bool_(True), "bool", "true"),
    ],
)
def test_literals(value, dtype, text):
    assert literal(value, DTYPES[dtype]) == text


@together.compiled
@pytest.mark.parametrize("name", DTYPES)
def test_constants_reach_the_results_bit_by_bit(name):
    """Through the compiler, which must understand the literals."""
    values = reference.special_values(name)[:100]  # one kernel's results
    with jax.enable_x64(True):
        constants = tuple(values)
        results = simt.evaluate(lambda x: constants, np.zeros(3, np.float32))
    for value, result in zip(values, results, strict=True):
        ulp.assert_same(result, np.full(3, value))


@pytest.mark.parametrize("row", OPERATORS.values(), ids=lambda row: row.name)
def test_operands_may_be_literals(row):
    """As in ``x * jnp.cos(jnp.pi / 6)``."""
    function = getattr(lax, row.function or row.name, None)
    if function is None or "float" not in row.forms:
        pytest.skip("no function of jax.lax, or not of floats")
    f = je.elementwise(lambda x: x * function(*[np.float32(0.5)] * row.arity))
    assert "out0 = " in f.cuda_source(jnp.ones(3))


@together.compiled
def test_subtraction_of_a_negative_literal_is_no_decrement():
    x = np.array([1.0, 2.0], np.float32)
    actual = simt.evaluate(lambda x: (x - jnp.float32(-1.5), lax.neg(-x), -jnp.float32(-2) * x), x)
    for result, expected in zip(actual, (x + 1.5, x, 2 * x), strict=True):
        np.testing.assert_array_equal(result, expected)
    n = np.array([5, -(2**31)], np.int32)
    for result, expected in zip(
        simt.evaluate(lambda n: (n - -7, n & -8, n % -3), n), (n + 7, n & -8, n % -3), strict=True
    ):
        np.testing.assert_array_equal(result, expected)


@together.compiled
@pytest.mark.parametrize("x64", [False, True])
def test_python_integers_in_the_function_need_no_64_bit_type(x64):
    """With 64-bit types they are int64, but only until they meet the operand's dtype."""
    x = np.array([-2.5, -0.5, 0.5, 3.5], np.float32)
    with jax.enable_x64(x64):
        clipped, positive, rest = simt.evaluate(
            lambda x: (jnp.clip(x, -1, 1), jnp.where(x > 0, x, 0), x % 2), x
        )
    np.testing.assert_array_equal(clipped, np.clip(x, -1, 1))
    np.testing.assert_array_equal(positive, np.maximum(x, 0))
    np.testing.assert_array_equal(rest, x % 2)


# ---- Names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "prefix"),
    [
        ("softclip", "ew_softclip_"),
        ("<lambda>", "ew_lambda_"),
        ("日本", "ew_"),
        ("été", "ew_t_"),
        ("class", "ew_class_"),
        ("operator()", "ew_operator_"),
        ("9 lives@home", "ew_9_lives_home_"),
        ("", "ew_"),
        ("x" * 500, "ew_" + "x" * 48 + "_"),
    ],
)
def test_kernels_are_named_after_functions(name, prefix):
    kernel = simt.make_kernel(lambda x: x + 1, ["float32"], name=name)
    assert re.fullmatch(re.escape(prefix) + r"_?[0-9a-f]{8}", kernel.name)
    assert kernel.name.isascii()
    assert kernel.name.isidentifier()
    assert kernel.source.count(f" {kernel.name}(\n") == 1
    assert "@" not in kernel.source


def test_names_of_any_kind_compile():
    names = ("<lambda>", "日本", "class", "int", "9lives", "a.b", "", "main", "x" * 500)
    kernels = [simt.make_kernel(lambda x: x + 1, ["float32"], name=name) for name in names]
    assert len({kernel.name for kernel in kernels}) == len(names) - 1  # two have nothing left
    simt.build(kernels)


def test_kernels_of_one_name_and_different_texts_have_different_names():
    made = [simt.make_kernel(lambda x, c=c: x * c, ["float32"]) for c in (2.0, 3.0)]
    made += [simt.make_kernel(lambda x: x * 2.0, ["float16"])]
    assert len({kernel.name for kernel in made}) == 3


# ---- Refusals ------------------------------------------------------------------------------------

mystery_p = Primitive("mystery")
mystery_p.def_abstract_eval(lambda x: x)


def _uses_a_mystery(x):
    return jnp.sin(x) + mystery_p.bind(x)


def _line(fun):
    return fun.__code__.co_firstlineno + 1


def test_an_unknown_primitive_is_refused_with_its_place():
    place = rf"test_golden\.py:{_line(_uses_a_mystery)}:\d+ \(_uses_a_mystery\)"
    message = (
        rf"^cannot generate a kernel for the primitive 'mystery', at .*{place}\. Compute it outside"
    )
    with pytest.raises(NotImplementedError, match=message):
        simt.make_kernel(_uses_a_mystery, ["float32"])


def test_the_place_is_found_inside_nested_functions():
    def fun(x):
        return lax.cond(x > 0, jax.jit(_uses_a_mystery), lambda x: x, x)

    with pytest.raises(NotImplementedError, match=rf"'mystery', at .*:{_line(_uses_a_mystery)}:"):
        simt.make_kernel(fun, ["float32"])


def test_a_primitive_without_the_dtype_is_refused(monkeypatch):
    monkeypatch.setitem(OPERATORS, "sin", Operator("sin", {"float64": "sin({0})"}))

    def fun(x):
        return jnp.sin(x)

    place = rf"test_golden\.py:{_line(fun)}:\d+ \("
    with pytest.raises(NotImplementedError, match=rf"for 'sin' of float32, at .*{place}"):
        simt.make_kernel(fun, ["float32"], name="without")


def test_large_arrays_inside_the_function_are_refused():
    def fun(x):
        return jnp.sum(jnp.broadcast_to(x, (5, 13)))

    message = r"array of shape \(5, 13\) per element \(of more than 64.* at .*test_golden\.py"
    with pytest.raises(NotImplementedError, match=message):
        simt.make_kernel(fun, ["float32"])


def test_an_operand_of_unknown_dtype_is_refused():
    with pytest.raises(NotImplementedError, match=r"'odd': dtype float8_e3m4 is not supported"):
        simt.make_kernel(lambda x: x, [ml_dtypes.float8_e3m4], name="odd")


def test_as_many_operands_as_a_kernel_takes():
    def sums(*xs):
        return tuple(sum(xs[: i + 3]) for i in range(9))

    kernel = simt.make_kernel(sums, ["float32"] * 12)
    assert kernel.source.count("__restrict__ in") == 12
    assert kernel.source.count("__restrict__ out") == 9
    assert simt.make_kernel(lambda *xs: sum(xs), ["float32"] * 127).pack == 4


def test_more_operands_than_a_kernel_takes_are_refused():
    message = (
        r"'many' has 128 operands \(captured values count\) and 1 results; one kernel takes 128"
    )
    with pytest.raises(ValueError, match=message):
        simt.make_kernel(lambda *xs: sum(xs), ["float32"] * 128, name="many")


def test_more_operands_than_a_derivative_can_have_are_refused():
    f = je.elementwise(lambda *xs: functools.reduce(jnp.multiply, xs), name="many")
    xs = [jnp.ones(3)] * 70
    with pytest.raises(ValueError, match="a derivative of 'many' has 140 operands"):
        jax.jit(jax.grad(lambda *xs: f(*xs).sum(), range(70))).trace(*xs).lower(
            lowering_platforms=("cuda",)
        )


def test_more_broadcast_operands_than_a_kernel_takes_are_refused():
    shapes = [(2, 3, 4, 5, 6), *([(3, 1, 5, 1), (2, 1, 4, 1, 6)] * 45)]
    message = r"'many' has 91 operands .* fewer when many of them are broadcast"
    with pytest.raises(ValueError, match=message):
        simt.make_kernel(lambda *xs: sum(xs), ["float32"] * 91, shapes, name="many")
