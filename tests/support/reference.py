"""What the rows of the operator table should give: by ``jax.lax`` and by NumPy.

``jax.lax`` is the authority on meaning. It is asked in float64, since XLA flushes subnormals on the
CPU, and subnormals of the narrower types are ordinary numbers there. For float64 itself the
authority on accuracy, and on subnormals, is NumPy in extended precision.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import scipy.special
from jax import lax
from jax.extend.core import primitives

from jax_elementwise._codegen.primitives import OPERATORS
from jax_elementwise._codegen.types import DTYPES

# What has no function in jax.lax.
_BOUND = {"copy": primitives.copy_p.bind, "add_any": primitives.add_jaxvals_p.bind}


def np_dtype(name: str) -> np.dtype:
    """NumPy's dtype of a name, ``bfloat16`` included."""
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


def lax_function(row):
    """A row's function of JAX arrays, or None where the installed JAX has none."""
    return _BOUND.get(row.name) or getattr(lax, row.function or row.name, None)


def by_lax(row, inputs: np.ndarray, result: np.dtype) -> np.ndarray:
    """A row on a stack of operands, rounded to the result's dtype."""
    with np.errstate(all="ignore"):
        if DTYPES[inputs.dtype.name].kind == "float":
            inputs = inputs.astype(np.float64)
        return np.asarray(lax_function(row)(*map(jnp.asarray, inputs))).astype(result)


def by_numpy(row, inputs: np.ndarray) -> np.ndarray:
    """A row on a stack of float64 operands, within half a unit in the last place."""
    # Where one operation is all there is, it is rounded once if it is done in float64.
    wide = np.float64 if row.ulp[1] == 0 else np.longdouble
    with np.errstate(all="ignore"):
        result = NUMPY[row.name](*inputs.astype(wide))
        return result if result.dtype == bool else result.astype(np.float64)


@functools.cache
def _libm(name):
    """A function of long doubles of the C library; its result is rounded to float64."""
    function = getattr(ctypes.CDLL(ctypes.util.find_library("m")), name)
    function.argtypes, function.restype = [ctypes.c_longdouble], ctypes.c_longdouble
    return np.vectorize(lambda x: function(float(x)), otypes=[np.float64])


def _maximum(x, y):
    """Of two zeros, the positive one."""
    return np.where(x == y, np.where(np.signbit(x), y, x), np.maximum(x, y))


def _minimum(x, y):
    return -_maximum(-x, -y)


NUMPY = {
    "add": np.add,
    "add_any": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "rem": np.fmod,
    "neg": np.negative,
    "abs": np.abs,
    "sign": lambda x: np.where(x == 0, x, np.sign(x)),
    "max": _maximum,
    "min": _minimum,
    "square": np.square,
    "one_minus_square": lambda x: (1 - x) * (1 + x),
    "copy": np.positive,
    "pow": np.power,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "cbrt": np.cbrt,
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log1p": np.log1p,
    "logistic": lambda x: 1 / (1 + np.exp(-x)),
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "erf": lambda x: _libm("erfl")(x),
    "erfc": lambda x: _libm("erfcl")(x),
    # SciPy loses the sign of zero.
    "erf_inv": lambda x: np.copysign(scipy.special.erfinv(x.astype(np.float64)), x),
    "floor": np.floor,
    "ceil": np.ceil,
    "is_finite": np.isfinite,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "clamp": lambda low, x, high: _minimum(_maximum(low, x), high),
}

# ---- Inputs --------------------------------------------------------------------------------------


def special_values(dtype: str) -> np.ndarray:
    """The values at which functions change their mind."""
    if dtype == "bool":
        return np.array([False, True])
    if DTYPES[dtype].kind == "int":
        limits = np.iinfo(dtype)
        return np.array([limits.min, limits.max, 0, 1, 2, 31], dtype)
    limits = ml_dtypes.finfo(np_dtype(dtype))
    tiny, largest = float(limits.smallest_subnormal), float(limits.max)
    magnitudes = [0.0, tiny, 0.5, 1.0, largest, np.inf]
    values = [x for magnitude in magnitudes for x in (magnitude, -magnitude)]
    return np.array([*values, np.nan]).astype(np_dtype(dtype))


def random_values(rng: np.random.Generator, dtype: str, count: int, domain) -> np.ndarray:
    """Numbers of every size that is in a domain; for integers, of every size there is."""
    if dtype == "bool":
        return rng.integers(0, 2, count).astype(bool)
    if DTYPES[dtype].kind == "int":
        limits = np.iinfo(dtype)
        wide = rng.integers(limits.min, limits.max, count, dtype=dtype, endpoint=True)
        return wide >> rng.integers(0, 31, count).astype(dtype)
    low, high = domain
    values = rng.uniform(low, high, count)
    # A third of them is close to 0, where relative accuracy is hard to keep.
    small = values * 2.0 ** rng.integers(-12, 1, count)
    values[::3] = np.clip(small, low, high)[::3]
    return values.astype(np_dtype(dtype))


def of_every_exponent(rng: np.random.Generator, dtype: str, count: int) -> np.ndarray:
    """All values of a 16-bit dtype; for wider ones, random bits."""
    width = 8 * np_dtype(dtype).itemsize
    if width == 16:
        return np.arange(2**16, dtype=np.uint16).view(np_dtype(dtype))
    bits = rng.integers(0, 2**width - 1, count, dtype=np.uint64, endpoint=True)
    return bits.astype(f"uint{width}").view(np_dtype(dtype))


def rows_and_dtypes():
    """Every row with every dtype that it has C++ for."""
    return [
        (row.name, dtype)
        for row in OPERATORS.values()
        for dtype in DTYPES
        if row.form(DTYPES[dtype]) is not None
    ]
