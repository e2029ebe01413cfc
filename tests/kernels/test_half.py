"""CUDA's 16- and 8-bit floats (cuda/half.h, cuda/bfloat16.h, cuda/float8.h) on a CPU, bit by bit.

Every value there is for functions of one operand; for others special values and a random sample.
"""

from __future__ import annotations

import ctypes
import functools

import ml_dtypes
import numpy as np
import pytest
from support import simt
from support.half_operations import (
    FORMATS,
    OPERATIONS,
    every_value,
    expected,
    pairs_of_values,
    rounded,
    to_odd,
    triples_of_values,
)
from support.ulp import distance

from jax_elementwise._cuda_functor.codegen import CUDA_TYPES

# As the package compiles kernels for a CPU, but for any CPU.
FLAGS = ["-O2", "-w", "-shared", "-fPIC", "-nostdinc++", "-fno-math-errno"]
FLAGS += ["-include", "jax_elementwise/host/host.h"]


def library(text: str, name: str) -> ctypes.CDLL:
    """Host C++ after the headers for users' text, as a library."""
    source = simt._directory() / f"{name}.cc"
    source.write_text(simt.USERS_HEADERS + text)
    return ctypes.CDLL(str(simt.compile_cpp([source], f"{name}.so", FLAGS)))


def call(function, result: np.ndarray, operands: list[np.ndarray], count: int) -> np.ndarray:
    function(*(ctypes.c_void_p(a.ctypes.data) for a in (result, *operands)), ctypes.c_long(count))
    return result


# A loop over arrays of T; `x` is a copy, so that the expression may change it.
def loop(name: str, result: str, operand: str, arity: int, expression: str) -> str:
    names = "xyz"[:arity]
    parameters = "".join(f"const {operand}* {n}s, " for n in names)
    values = "".join(f"{operand} {n} = {n}s[i]; " for n in names)
    return (
        f'extern "C" __attribute__((visibility("default"))) void {name}({result}* out, {parameters}'
        f"long n) {{ for (long i = 0; i < n; ++i) {{ {values}out[i] = {expression}; }} }}\n"
    )


_C_TYPES = {"float32": "float", "float64": "double", "int64": "long long"}
_C_TYPES["uint64"] = "unsigned long long"


@functools.cache
def operations(dtype: str) -> ctypes.CDLL:
    form = FORMATS[dtype]
    text = ""
    for k, row in enumerate(OPERATIONS):
        operand = form.T2 if row.pairs else form.T
        result = operand
        if row.result != "same":
            result = _C_TYPES.get(row.result, row.result + "_t" * (row.result != "bool"))
        text += loop(f"f{k}", result, operand, row.arity, form.write(row.expression))
    return library(text, f"operations_{dtype}")


def operands_of(dtype: np.dtype, arity: int) -> list[np.ndarray]:
    if arity == 1:
        return [every_value(dtype)]
    return pairs_of_values(dtype) if arity == 2 else triples_of_values(dtype)


def check(found: np.ndarray, wanted: np.ndarray, *, bitwise: bool, ulp: int = 0) -> None:
    assert found.dtype == wanted.dtype
    if bitwise or found.dtype.kind in "iub":
        np.testing.assert_array_equal(found.view(np.uint8), wanted.view(np.uint8))
        return
    with np.errstate(all="ignore"):
        nan = np.isnan(found)
        np.testing.assert_array_equal(nan, np.isnan(wanted))
    if not ulp:
        unsigned = np.dtype(f"u{found.dtype.itemsize}")
        bits = np.where(nan, 0, found.view(unsigned)), np.where(nan, 0, wanted.view(unsigned))
        np.testing.assert_array_equal(*bits)
        return
    with np.errstate(all="ignore"):
        off = distance(found, wanted)
    assert off.max() <= ulp
    assert np.count_nonzero(off) < 1e-3 * off.size  # float32 functions are nearly exact here


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize(
    "row",
    range(len(OPERATIONS)),
    ids=[f"{r.expression}{' of pairs' * r.pairs}" for r in OPERATIONS],
)
def test_operations(row, dtype):
    operation, form = OPERATIONS[row], FORMATS[dtype]
    operands = operands_of(form.dtype, operation.arity)
    wanted = expected(operation, form.dtype, operands)
    count = operands[0].size // (2 if operation.pairs else 1)
    found = call(operations(dtype)[f"f{row}"], np.empty_like(wanted), operands, count)
    check(found, wanted, bitwise=operation.bitwise, ulp=operation.ulp)


@pytest.mark.parametrize("dtype", FORMATS)
def test_the_sample_has_sums_that_may_not_be_rounded_twice(dtype):
    """By float32 or by float64, to nearest, some of them would be wrong."""
    form = FORMATS[dtype]
    triples = triples_of_values(form.dtype)
    (fma,) = (row for row in OPERATIONS if row.expression == "__hfma(x, y, z)")
    wanted = expected(fma, form.dtype, triples)
    with np.errstate(all="ignore"):
        x, y, z = (v.astype(np.float64) for v in triples)
        twice = (x * y + z).astype(np.float32).astype(form.dtype)
        assert np.count_nonzero((twice != wanted) & ~np.isnan(wanted)) > 100


@pytest.mark.parametrize("dtype", FORMATS)
def test_compound_assignment(dtype):
    """6 and 3 give 9, 3, 18 and 2."""
    form = FORMATS[dtype]
    operands = [np.array([v], form.dtype) for v in (6, 3)]
    for symbol, result in (("+=", 9), ("-=", 3), ("*=", 18), ("/=", 2)):
        rows = [row for row in OPERATIONS if row.expression == f"x {symbol} y" and not row.pairs]
        (row,) = rows
        function = operations(dtype)[f"f{OPERATIONS.index(row)}"]
        assert float(call(function, np.empty(1, form.dtype), operands, 1)[0]) == result


# ---- Numbers of other types ----------------------------------------------------------------------


def _wide_values(dtype: str) -> np.ndarray:
    rng = np.random.default_rng(2)
    if np.dtype(dtype).kind == "f":
        bits = rng.integers(0, 2 ** (8 * np.dtype(dtype).itemsize), 200_000, np.uint64)
        values = bits.astype(f"u{np.dtype(dtype).itemsize}").view(dtype)
        small = rng.standard_normal(200_000) * 2.0 ** rng.integers(-140, 20, 200_000)
        halfway = (1 + rng.integers(0, 2**12, 100_000) / 2.0**12) * (1 + 2.0**-40)
        return np.concatenate([values, small.astype(dtype), halfway.astype(dtype)])
    limits = np.iinfo(dtype)
    values = rng.integers(limits.min, limits.max, 200_000, dtype, endpoint=True)
    shifted = values >> rng.integers(0, limits.bits - 1, values.size).astype(dtype)
    # One more or less than halfway between two bfloat16, further down than float32 reaches.
    halfway = [
        sign * ((257 + 2 * k) << n) + d
        for n in range(0, max(1, limits.bits - 10))
        for k in range(8)
        for d in (-1, 0, 1)
        for sign in (1, -1)
    ]
    inside = [v for v in halfway if limits.min <= v <= limits.max]
    return np.concatenate([values, shifted, np.array(inside, dtype)])


def _round_integers(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Rounded once: float64 with an odd last bit where it is not exact."""
    result = np.empty(values.size)
    for i, v in enumerate(values.tolist()):
        nearest = float(v)
        if int(nearest) != v and not np.float64(nearest).view(np.uint64) & np.uint64(1):
            nearest = float(np.nextafter(nearest, np.inf if int(nearest) < v else -np.inf))
        result[i] = nearest
    return rounded(result, dtype)


_WIDER = ("float32", "float64", "int16", "uint16", "int32", "uint32", "int64", "uint64")
_SOURCES = {name: CUDA_TYPES[name] for name in _WIDER}


@functools.cache
def conversions() -> ctypes.CDLL:
    text = ""
    for dtype, form in FORMATS.items():
        for source, name in _SOURCES.items():
            text += loop(f"{dtype}_of_{source}", form.T, name, 1, "x")
    for kind in ("e4m3", "e5m2"):
        narrow = f"__nv_fp8_{kind}"
        for source in ("float32", "float64"):
            text += loop(f"{kind}_of_{source}", narrow, _SOURCES[source], 1, f"{narrow}(x)")
        for to, name in (("float32", "float"), ("float16", "__half")):
            text += loop(f"{to}_of_{kind}", name, narrow, 1, f"static_cast<{name}>(x)")
    return library(text, "conversions")


@pytest.mark.sampled
@pytest.mark.parametrize("source", _SOURCES)
@pytest.mark.parametrize("dtype", FORMATS)
def test_numbers_are_rounded_once(dtype, source):
    values, to = _wide_values(source), FORMATS[dtype].dtype
    if values.dtype.kind == "f":
        with np.errstate(all="ignore"):
            wanted = rounded(values.astype(np.float64), to)
    else:
        wanted = _round_integers(values, to)
    function = conversions()[f"{dtype}_of_{source}"]
    found = call(function, np.empty(values.size, to), [values], values.size)
    check(found, wanted, bitwise=False)


_FLOAT8 = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}


@pytest.mark.parametrize("source", ["float32", "float64"])
@pytest.mark.parametrize("kind", _FLOAT8)
def test_floats_of_8_bits_saturate(kind, source):
    values, dtype = _wide_values(source), np.dtype(_FLOAT8[kind])
    largest = float(ml_dtypes.finfo(dtype).max)
    with np.errstate(all="ignore"):
        wanted = to_odd(np.clip(values.astype(np.float64), -largest, largest)).astype(dtype)
    function = conversions()[f"{kind}_of_{source}"]
    found = call(function, np.empty(values.size, dtype), [values], values.size)
    nan = np.isnan(wanted)
    np.testing.assert_array_equal(np.isnan(found), nan)
    np.testing.assert_array_equal(found[~nan].view(np.uint8), wanted[~nan].view(np.uint8))


@pytest.mark.parametrize("kind", _FLOAT8)
def test_every_float_of_8_bits_is_read(kind):
    values = np.arange(256, dtype=np.uint8).view(_FLOAT8[kind])
    for to in (np.float32, np.float16):
        function = conversions()[f"{np.dtype(to).name}_of_{kind}"]
        found = call(function, np.empty(256, to), [values], 256)
        np.testing.assert_array_equal(found, values.astype(to))


# ---- Layout --------------------------------------------------------------------------------------


def test_the_types_are_laid_out_as_in_cuda():
    sizes = {"__half": 2, "__half2": 4, "__nv_bfloat16": 2, "__nv_bfloat162": 4}
    sizes |= {"__nv_fp8_e4m3": 1, "__nv_fp8_e5m2": 1, "__half_raw": 2, "__half2_raw": 4}
    sizes |= {"float2": 8, "float4": 16, "double2": 16, "int2": 8, "uint4": 16}
    text = "".join(
        f'static_assert(sizeof({name}) == {size} && alignof({name}) == {size}, "{name}");\n'
        f'static_assert(__is_trivially_copyable({name}), "{name}");\n'
        for name, size in sizes.items()
    )
    library(text + 'static_assert(alignof(float3) == 4 && sizeof(float3) == 12, "");', "layout")


def test_stored_values_may_be_read_as_pairs():
    """What the optimizer may assume: kernels store jax_elementwise::float16, users read half2."""
    text = """
    extern "C" __attribute__((visibility("default"), noinline))
    void f(half* z, jax_elementwise::float16* x, long n) {
      const jax_elementwise::float16 two{0x4000};
      for (long i = 0; i < n; i += 2) {
        const half2 before = *reinterpret_cast<const half2*>(x + i);
        x[i] = two;
        const half2 after = *reinterpret_cast<const half2*>(x + i);
        *reinterpret_cast<half2*>(z + i) = __hadd2(before, after);
      }
    }"""
    x = np.arange(8, dtype=np.float16)
    result = call(library(text, "aliases").f, np.empty_like(x), [x.copy()], x.size)
    np.testing.assert_array_equal(result, np.where(np.arange(8) % 2, 2 * x, x + 2))
