"""CUDA's operations on 16-bit floats as the package defines them, and what is right for each.

``OPERATIONS`` has C++ expressions of operands ``x``, ``y`` and ``z``; in them ``{T}``, ``{T2}`` and
``{w}`` are the type, the pair of it and the word for it in names, as ``FORMATS`` says.
"""

from __future__ import annotations

import dataclasses
import fractions
from collections.abc import Callable

import ml_dtypes
import numpy as np


@dataclasses.dataclass(frozen=True)
class Format:
    """A 16-bit float: its dtype, and what CUDA calls it."""

    dtype: np.dtype
    T: str
    T2: str
    w: str

    def write(self, expression: str) -> str:
        return expression.format(T=self.T, T2=self.T2, w=self.w)


FORMATS = {
    "float16": Format(np.dtype(np.float16), "__half", "__half2", "half"),
    "bfloat16": Format(np.dtype(ml_dtypes.bfloat16), "__nv_bfloat16", "__nv_bfloat162", "bfloat16"),
}


@dataclasses.dataclass(frozen=True)
class Operation:
    """One expression.

    Attributes:
      expression: C++ of ``x``, ``y`` and ``z``.
      arity: how many of those it has.
      reference: the result by float64 arrays of the operands' values, to be rounded once; or as an
        array of ``result``, where that is not the operands' type.
      result: ``same``, or the dtype of what the expression is.
      pairs: whether the operands and the result are pairs.
      ulp: how many values the result may be off, where the function of float32 is not exact.
      bitwise: the reference takes and gives bits, and NaN has some, too.
    """

    expression: str
    arity: int
    reference: Callable[..., np.ndarray]
    result: str = "same"
    pairs: bool = False
    ulp: int = 0
    bitwise: bool = False


# ---- Rounding ------------------------------------------------------------------------------------


def to_odd(x: np.ndarray) -> np.ndarray:
    """float64 as float32, where what is lost makes the last bit odd: to be rounded once more."""
    nearest = x.astype(np.float32)
    bits = nearest.view(np.uint32).copy()
    inexact = (nearest.astype(np.float64) != x) & ~np.isnan(x)
    bits -= (inexact & (np.abs(nearest.astype(np.float64)) > np.abs(x))).astype(np.uint32)
    return np.where(inexact, bits | 1, bits).astype(np.uint32).view(np.float32)


def rounded(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """float64 as a 16-bit float, rounded once: NumPy does that, ml_dtypes goes by float32."""
    with np.errstate(all="ignore"):
        return x.astype(dtype) if dtype == np.float16 else to_odd(x).astype(dtype)


def exact_fma(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    """x * y + z as float64, with an odd last bit where that is not exact, by rational numbers."""
    with np.errstate(all="ignore"):
        result = np.asarray(x * y + z)
    for i in np.flatnonzero(np.isfinite(x) & np.isfinite(y) & np.isfinite(z)):
        exact = fractions.Fraction(x[i]) * fractions.Fraction(y[i]) + fractions.Fraction(z[i])
        if exact == 0:
            continue  # the sign of a zero is IEEE's in NumPy, too
        nearest = float(exact)
        error = exact - fractions.Fraction(nearest)
        if error and not np.float64(nearest).view(np.uint64) & np.uint64(1):
            nearest = np.nextafter(nearest, np.inf if error > 0 else -np.inf)
        result[i] = nearest
    return result


# ---- References ----------------------------------------------------------------------------------


def _maximum_nan(x, y):
    zero = (x == 0) & (y == 0)
    return np.where(zero, np.where(np.signbit(x), y, x), np.maximum(x, y))


def _minimum_nan(x, y):
    return -_maximum_nan(-x, -y)


def _numbers_first(function):
    return lambda x, y: np.where(np.isnan(x), y, np.where(np.isnan(y), x, function(x, y)))


def _saturated(x):
    return np.where(x > 0, np.minimum(x, 1.0), 0.0)


def _relu(x):
    return np.where(np.isnan(x), x, np.where(x > 0, x, 0.0))


def _in_both_lanes(function):
    return lambda x, y: function(x, y).reshape(-1, 2).all(axis=1)


def _mask(function):
    return lambda x, y: (function(x, y) * np.uint16(0xFFFF)).view(np.uint32)


def _integer(round_, dtype):
    limits = np.iinfo(dtype)
    not_a_number = -(2**63) if dtype == np.int64 else 2**63 if dtype == np.uint64 else 0

    def reference(x):
        values = [
            not_a_number if np.isnan(v) else limits.max if v >= limits.max else
            limits.min if v <= limits.min else int(v)
            for v in round_(x)
        ]  # fmt: skip
        return np.array(values, dtype)

    return reference


_ARITHMETIC = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide}
_NAMES = {"+": "__hadd", "-": "__hsub", "*": "__hmul", "/": "__hdiv"}
_COMPARISONS = {
    "eq": ("==", np.equal),
    "neu": ("!=", np.not_equal),
    "lt": ("<", np.less),
    "le": ("<=", np.less_equal),
    "gt": (">", np.greater),
    "ge": (">=", np.greater_equal),
}
_INTEGERS = {
    "short": np.int16,
    "ushort": np.uint16,
    "int": np.int32,
    "uint": np.uint32,
    "ll": np.int64,
    "ull": np.uint64,
}
_ROUNDINGS = {"rn": np.rint, "rz": np.trunc, "rd": np.floor, "ru": np.ceil}
# Name, reference, ULP: those that float32 functions are within one of may be off by one.
_FUNCTIONS = {
    "sqrt": (np.sqrt, 0),
    "rcp": (lambda x: 1 / x, 0),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 1),
    "exp": (np.exp, 1),
    "exp2": (np.exp2, 1),
    "exp10": (lambda x: np.float64(10) ** x, 1),
    "log": (np.log, 1),
    "log2": (np.log2, 1),
    "log10": (np.log10, 1),
    "sin": (np.sin, 1),
    "cos": (np.cos, 1),
    "tanh": (np.tanh, 1),
    "floor": (np.floor, 0),
    "ceil": (np.ceil, 0),
    "rint": (np.rint, 0),
    "trunc": (np.trunc, 0),
}


def _operations() -> list[Operation]:
    rows = [
        Operation("-x", 1, lambda x: x ^ 0x8000, bitwise=True),
        Operation("__hneg(x)", 1, lambda x: x ^ 0x8000, bitwise=True),
        Operation("__hneg2(x)", 1, lambda x: x ^ 0x8000, bitwise=True, pairs=True),
        Operation("__habs(x)", 1, lambda x: x & 0x7FFF, bitwise=True),
        Operation("__habs2(x)", 1, lambda x: x & 0x7FFF, bitwise=True, pairs=True),
        Operation("+x", 1, lambda x: x, bitwise=True),
        Operation("__{w}_as_ushort(x)", 1, lambda x: x, "uint16", bitwise=True),
        Operation("__ushort_as_{w}(__{w}_as_ushort(x))", 1, lambda x: x, bitwise=True),
        Operation("++x", 1, lambda x: x + 1),
        Operation("--x", 1, lambda x: x - 1),
        Operation("__{w}2float(x)", 1, lambda x: x.astype(np.float32), "float32"),
        Operation("static_cast<double>(x)", 1, lambda x: x, "float64"),
        Operation("static_cast<bool>(x)", 1, lambda x: x != 0, "bool"),
        Operation("__hisnan(x)", 1, np.isnan, "bool"),
        Operation(
            "__hisinf(x)",
            1,
            lambda x: np.where(np.isinf(x), np.sign(x), 0).astype(np.int32),
            "int32",
        ),
        Operation("__float2{w}(__{w}2float(x))", 1, lambda x: x),
        Operation("__hmax(x, y)", 2, _numbers_first(_maximum_nan)),
        Operation("__hmin(x, y)", 2, _numbers_first(_minimum_nan)),
        Operation("__hmax2(x, y)", 2, _numbers_first(_maximum_nan), pairs=True),
        Operation("__hmin2(x, y)", 2, _numbers_first(_minimum_nan), pairs=True),
        Operation("__hmax_nan(x, y)", 2, _maximum_nan),
        Operation("__hmin_nan(x, y)", 2, _minimum_nan),
        Operation("__hmax2_nan(x, y)", 2, _maximum_nan, pairs=True),
        Operation("__hmin2_nan(x, y)", 2, _minimum_nan, pairs=True),
        Operation("__hfma(x, y, z)", 3, exact_fma),
        Operation("__hfma2(x, y, z)", 3, exact_fma, pairs=True),
        Operation("__hfma_sat(x, y, z)", 3, lambda *xs: _saturated(exact_fma(*xs))),
        Operation("__hfma_relu(x, y, z)", 3, lambda *xs: _relu(exact_fma(*xs))),
        Operation("__hfma2_relu(x, y, z)", 3, lambda *xs: _relu(exact_fma(*xs)), pairs=True),
        Operation("__hadd_sat(x, y)", 2, lambda x, y: _saturated(x + y)),
        Operation("__hsub_sat(x, y)", 2, lambda x, y: _saturated(x - y)),
        Operation("__hmul2_sat(x, y)", 2, lambda x, y: _saturated(x * y), pairs=True),
        # Pairs are taken apart and put together.
        Operation("__halves2{w}2(__low2{w}(x), __high2{w}(x))", 1, lambda x: x, pairs=True),
        Operation("__lows2{w}2(x, __lowhigh2highlow(x))", 1, lambda x: x, pairs=True),
        Operation("__float22{w}2_rn(__{w}22float2(x))", 1, lambda x: x, pairs=True),
        Operation("__floats2{w}2_rn(__low2float(x), __high2float(x))", 1, lambda x: x, pairs=True),
    ]
    for symbol, function in _ARITHMETIC.items():
        name = _NAMES[symbol]
        pair = "__h2div" if symbol == "/" else f"{name}2"
        rows += [
            Operation(f"x {symbol} y", 2, function),
            Operation(f"x {symbol}= y", 2, function),
            Operation(f"{name}(x, y)", 2, function),
            Operation(f"x {symbol} y", 2, function, pairs=True),
            Operation(f"x {symbol}= y", 2, function, pairs=True),
            Operation(f"{pair}(x, y)", 2, function, pairs=True),
        ]
    for name, (symbol, function) in _COMPARISONS.items():
        rows += [
            Operation(f"x {symbol} y", 2, function, "bool"),
            Operation(f"__h{name}(x, y)", 2, function, "bool"),
            Operation(f"__h{name}2(x, y)", 2, lambda x, y, f=function: f(x, y) * 1.0, pairs=True),
            Operation(f"x {symbol} y", 2, _in_both_lanes(function), "bool", pairs=True),
            Operation(f"__hb{name}2(x, y)", 2, _in_both_lanes(function), "bool", pairs=True),
            Operation(f"__h{name}2_mask(x, y)", 2, _mask(function), "uint32", pairs=True),
        ]

    def unordered(x, y):
        return np.isnan(x) | np.isnan(y)

    rows.append(Operation("__hne(x, y)", 2, lambda x, y: (x != y) & ~unordered(x, y), "bool"))
    for name in ("eq", "lt", "le", "gt", "ge"):
        function = _COMPARISONS[name][1]
        rows.append(
            Operation(
                f"__h{name}u(x, y)", 2, lambda x, y, f=function: f(x, y) | unordered(x, y), "bool"
            )
        )
    for word, dtype in _INTEGERS.items():
        rows += [
            Operation(f"__{{w}}2{word}_{mode}(x)", 1, _integer(f, dtype), np.dtype(dtype).name)
            for mode, f in _ROUNDINGS.items()
        ]
    for name, (function, ulp) in _FUNCTIONS.items():
        rows += [
            Operation(f"h{name}(x)", 1, function, ulp=ulp),
            Operation(f"h2{name}(x)", 1, function, ulp=ulp, pairs=True),
        ]
    return rows


OPERATIONS = _operations()


def expected(operation: Operation, dtype: np.dtype, operands: list[np.ndarray]) -> np.ndarray:
    """What the operation gives for operands of a 16-bit dtype."""
    with np.errstate(all="ignore"):
        if operation.bitwise:
            result = operation.reference(*(x.view(np.uint16) for x in operands))
            result = np.asarray(result, np.uint16)
            return result.view(dtype) if operation.result == "same" else result
        result = operation.reference(*(x.astype(np.float64) for x in operands))
    return rounded(result, dtype) if operation.result == "same" else result


# ---- Operands ------------------------------------------------------------------------------------


def every_value(dtype: np.dtype) -> np.ndarray:
    return np.arange(2**16, dtype=np.uint16).view(dtype)


def _special(dtype: np.dtype) -> np.ndarray:
    """Zeros, the smallest and the largest of their kinds, and what is next to them, by bits."""
    infinity = 0x7C00 if dtype == np.float16 else 0x7F80
    one = 0x3C00 if dtype == np.float16 else 0x3F80
    smallest = 0x0400 if dtype == np.float16 else 0x0080
    bits = [0, 1, 2, 3, smallest - 1, smallest, smallest + 1, one - 1, one, one + 1]
    bits += [infinity - 1, infinity, infinity + 1]
    return np.array([b | sign for b in bits for sign in (0, 0x8000)], np.uint16).view(dtype)


def pairs_of_values(dtype: np.dtype, count: int = 100_000) -> list[np.ndarray]:
    """Special values with each other, and random bits: an even number."""
    special = _special(dtype)
    rng = np.random.default_rng(0)
    random = rng.integers(0, 2**16, (2, count), np.uint16).view(dtype)
    near = (random[1].view(np.uint16) & 0x83FF | random[0].view(np.uint16) & 0x7C00).view(dtype)
    first = np.concatenate([np.repeat(special, special.size), random[0], random[0]])
    second = np.concatenate([np.tile(special, special.size), random[1], near])
    return [first, second]


def triples_of_values(dtype: np.dtype, count: int = 8_000) -> list[np.ndarray]:
    """Random bits, special values, and products halfway between two values with a little added."""
    special = _special(dtype)
    rng = np.random.default_rng(1)
    digits = 11 if dtype == np.float16 else 8
    factors = [
        (a, n // a)
        for n in range(2**digits + 1, 2 ** (digits + 1), 2)
        for a in range(3, 2**digits)
        if n % a == 0 and n // a < 2**digits
    ]
    chosen = np.array(factors)[rng.integers(0, len(factors), count)]
    scale = 2.0 ** rng.integers(-4, 5, count)
    tiny = 2.0 ** rng.integers(-24 if digits == 11 else -40, -14, count) * rng.choice(
        [-1.0, 1.0], count
    )
    halfway = [chosen[:, 0] * scale, chosen[:, 1] * 2.0**-digits, tiny]
    random = rng.integers(0, 2**16, (3, count), np.uint16).view(dtype)
    return [
        np.concatenate([random[k], rng.choice(special, count), halfway[k].astype(dtype)])
        for k in range(3)
    ]
