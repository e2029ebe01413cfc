"""What the rows of the operator table should give: by ``jax.lax`` and by NumPy.

``jax.lax`` is the authority on meaning. It is asked in float64, since XLA flushes subnormals on the
CPU, and subnormals of the narrower types are ordinary numbers there. For float64 itself the
authority on accuracy, and on subnormals, is NumPy in extended precision.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import itertools

import jax
import ml_dtypes
import mpmath
import numpy as np
import scipy.special
from jax import lax
from jax.extend.core import primitives

from jax_elementwise._codegen.rules.operators import OPERATORS
from jax_elementwise._codegen.types import DTYPES

# What has no function in jax.lax.
_BOUND = {
    "copy": primitives.copy_p.bind,
    "add_any": primitives.add_jaxvals_p.bind,
    "eq_to": primitives.eq_to_p.bind,
    "lt_to": primitives.lt_to_p.bind,
    "le_to": primitives.le_to_p.bind,
}


def np_dtype(name: str) -> np.dtype:
    """NumPy's dtype of a name, ``bfloat16`` and its like included."""
    return np.dtype(getattr(ml_dtypes, name, name))


def lax_function(row):
    """A row's function of JAX arrays, or None where the installed JAX has none."""
    return _BOUND.get(row.name) or getattr(lax, row.function or row.name, None)


def by_lax(row, inputs: np.ndarray, result: np.dtype) -> np.ndarray:
    """A row on a stack of operands, rounded to the result's dtype."""
    return by_lax_each([(row, inputs, result)])[0]


def by_lax_each(cases) -> list[np.ndarray]:
    """Rows on stacks of operands, each rounded to a dtype: all of them in one program per dtype.

    A case is what ``by_lax`` takes.
    """
    values = _evaluated_by_lax([(row, inputs) for row, inputs, _ in cases])
    with np.errstate(all="ignore"):
        return [
            _corrected(row, inputs, value).astype(result)
            for (row, inputs, result), value in zip(cases, values, strict=True)
        ]


def _evaluated_by_lax(cases) -> list[np.ndarray | None]:
    """Rows on stacks of operands; None where ``jax.lax`` is not asked."""
    groups = {}  # positions of cases, by the dtype that is computed in and the row
    for position, (row, inputs) in enumerate(cases):
        if row.name != "nextafter":
            is_float = DTYPES[inputs.dtype.name].kind == "float"
            rows = groups.setdefault("float64" if is_float else inputs.dtype.name, {})
            rows.setdefault(row.name, []).append(position)
    values = [None] * len(cases)
    for dtype, rows in groups.items():
        with np.errstate(all="ignore"):
            stacks = {
                name: np.concatenate([cases[k][1].astype(dtype) for k in positions], axis=1)
                for name, positions in rows.items()
            }
        for name, results in _rows_of_lax(stacks).items():
            sizes = [cases[k][1].shape[1] for k in rows[name]]
            parts = np.split(np.array(results), np.cumsum(sizes)[:-1])
            for position, part in zip(rows[name], parts, strict=True):
                values[position] = part
    return values


# Optimised, whatever the tests around it are: the last bits of some functions depend on it.
@functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 3})
def _rows_of_lax(stacks):
    """Rows by name, each on a stack of operands."""
    return {name: lax_function(OPERATORS[name])(*stack) for name, stack in stacks.items()}


def _corrected(row, inputs: np.ndarray, values: np.ndarray | None) -> np.ndarray:
    """What a row should give, where that is not what ``jax.lax`` gives."""
    if row.name == "nextafter":  # depends on the dtype, and XLA's flushes subnormals
        return np.where(inputs[0] == inputs[1], inputs[1], np.nextafter(*inputs))
    if DTYPES[inputs.dtype.name].kind == "float":
        inputs = inputs.astype(np.float64)
    if row.name == "digamma":  # JAX 0.10 had NaN at zero
        values = np.where(inputs[0] == 0, -np.inf, values)
    if row.name == "polygamma":
        values = np.where((inputs == 0).all(axis=0), -np.inf, values)
    if row.name in ("zeta", "polygamma"):  # XLA multiplies infinity by 0
        overflows = (inputs[0] > 200) & np.isfinite(inputs).all(axis=0)
        if row.name == "polygamma":  # XLA takes n + 1 for even, where it is rounded to n
            overflows |= (inputs[0] > 2.0**53) & np.isfinite(inputs[0])
        values[overflows] = NUMPY[row.name](*inputs[:, overflows])
    return values


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


def _by_mpmath(function):
    """A function of mpmath's numbers, evaluated with 40 digits."""

    def evaluate(*xs):
        with mpmath.workdps(40):
            numbers = [mpmath.mpf(float(x)) for x in xs]
            return float("nan") if np.isnan(xs).any() else float(function(*numbers))

    return np.vectorize(evaluate, otypes=[np.float64])


def _scaled_bessel(order, x):
    size = abs(x)
    if size > 10**6:  # DLMF 10.40.1; mpmath's besseli would overflow
        first, second = [(1, 9), (-3, -15)][order]  # (1 - mu), (1 - mu)(9 - mu), mu = 4 order^2
        series = 1 + first / (8 * size) + second / (128 * size * size)
        result = series / mpmath.sqrt(2 * mpmath.pi * size)
    else:
        result = mpmath.besseli(order, size) * mpmath.exp(-size)
    return -result if order == 1 and mpmath.sign(x) < 0 else result


def _digamma(x):
    if x == 0:
        return -mpmath.inf
    return mpmath.nan if x < 0 and x == mpmath.floor(x) else mpmath.digamma(x)


def _zeta_sum(s, q):
    """For s > 1 and no pole: Euler and Maclaurin's sum. That of mpmath is wrong for q < -10."""
    below = max(0, -int(mpmath.floor(q)))
    if s > 2000:  # the terms about 0, where they are float64 numbers other than 0
        sum_ = mpmath.fsum((q + k) ** -s for k in range(max(0, below - 1), below + 1))
        return sum_ or mpmath.nan  # infinity less infinity at halves
    start = 0 if q > 10**6 else below + 20 + int(s)
    a = q + start
    sum_ = mpmath.fsum((q + k) ** -s for k in range(start)) + a ** (1 - s) / (s - 1) + a**-s / 2
    for k in range(1, 25):
        coefficient = mpmath.bernoulli(2 * k) / mpmath.factorial(2 * k)
        sum_ += coefficient * mpmath.rf(s, 2 * k - 1) * a ** (1 - s - 2 * k)
    return sum_


def _zeta(s, q):
    """As in XLA where it has no value."""
    is_pole = q <= 0 and q == mpmath.floor(q)
    if s == 1 or (is_pole and s % 2 == 0):
        return mpmath.inf
    invalid = s < 1 or is_pole or mpmath.isinf(s) or mpmath.isinf(q)
    if invalid or (q < 0 and s % 1 != 0):
        return mpmath.nan
    return _zeta_sum(s, q)


def _polygamma(n, x):
    """As in XLA where it has no value."""
    if n == 0:
        return _digamma(x)
    if n < 0 or mpmath.isinf(n) or n != mpmath.floor(n):
        return mpmath.nan
    sum_ = _zeta(int(n) + 1, x)  # exact, and so even or odd, where n + 1 would be rounded
    sign = -1 if n % 2 == 0 else 1
    return sign * sum_ * mpmath.gamma(n + 1) if mpmath.isfinite(sum_) else sign * sum_


def _total_order(x):
    """Integers in the order of the bits of floats."""
    bits = x.astype(np.float64).view(np.int64)
    return bits ^ ((bits >> 63) & np.int64(2**63 - 1))


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
    "lgamma": lambda x: _libm("lgammal")(x),
    "digamma": _by_mpmath(_digamma),
    "bessel_i0e": _by_mpmath(functools.partial(_scaled_bessel, 0)),
    # mpmath has no negative zero.
    "bessel_i1e": lambda x: np.copysign(_by_mpmath(functools.partial(_scaled_bessel, 1))(x), x),
    "zeta": lambda s, q: np.where(s == 1, np.inf, _by_mpmath(_zeta)(s, q)),
    "polygamma": _by_mpmath(_polygamma),
    "floor": np.floor,
    "ceil": np.ceil,
    "is_finite": np.isfinite,
    "nextafter": np.nextafter,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq_to": lambda x, y: _total_order(x) == _total_order(y),
    "lt_to": lambda x, y: _total_order(x) < _total_order(y),
    "le_to": lambda x, y: _total_order(x) <= _total_order(y),
    "clamp": lambda low, x, high: _minimum(_maximum(low, x), high),
}

# Those that mpmath computes, in a millisecond each.
SLOW = frozenset({"digamma", "bessel_i0e", "bessel_i1e", "zeta", "polygamma"})

# Near their roots among the negative numbers, relative errors have no bound.
POSITIVE_ONLY = frozenset({"digamma", "lgamma"})

# ---- Inputs --------------------------------------------------------------------------------------


def special_values(dtype: str) -> np.ndarray:
    """The values at which functions change their mind."""
    if dtype == "bool":
        return np.array([False, True])
    if DTYPES[dtype].kind == "int":
        limits = np.iinfo(dtype)
        values = {limits.min, limits.min + 1, limits.max, 0, 1, 2, 3}
        values |= {limits.bits - 1, limits.bits, limits.bits + 1}  # as counts of shifts
        values |= {-1, -2, -limits.bits} if limits.min < 0 else set()
        return np.array(sorted(values), dtype)
    if DTYPES[dtype].kind == "complex":
        parts = special_values("float32" if dtype == "complex64" else "float64")
        pairs = np.array(list(itertools.product(parts, repeat=2)))
        return pairs.view(dtype).ravel()
    limits = ml_dtypes.finfo(np_dtype(dtype))
    tiny, largest = float(limits.smallest_subnormal), float(limits.max)
    magnitudes = [0.0, tiny, 0.5, 1.0, largest, np.inf]
    values = [x for magnitude in magnitudes for x in (magnitude, -magnitude)]
    return np.array([*values, np.nan]).astype(np_dtype(dtype))


def random_values(rng: np.random.Generator, dtype: str, count: int, domain) -> np.ndarray:
    """Numbers of every size that is in a domain; for integers, of every size there is.

    A range as domain is of whole numbers.
    """
    if dtype == "bool":
        return rng.integers(0, 2, count).astype(bool)
    if DTYPES[dtype].kind == "int":
        limits = np.iinfo(dtype)
        wide = rng.integers(limits.min, limits.max, count, dtype=dtype, endpoint=True)
        return wide >> rng.integers(0, limits.bits - 1, count).astype(dtype)
    if DTYPES[dtype].kind == "complex":
        part = "float32" if dtype == "complex64" else "float64"
        pairs = [random_values(rng, part, count, domain) for _ in range(2)]
        return np.stack(pairs, axis=1).view(dtype).ravel()
    if isinstance(domain, range):
        return rng.choice(domain, count).astype(np_dtype(dtype))
    low, high = domain
    values = rng.uniform(low, high, count)
    # A third of them is close to 0, where relative accuracy is hard to keep.
    small = values * 2.0 ** rng.integers(-12, 1, count)
    values[::3] = np.clip(small, low, high)[::3]
    return values.astype(np_dtype(dtype))


def of_every_exponent(rng: np.random.Generator, dtype: str, count: int) -> np.ndarray:
    """All values of a dtype of 8 or 16 bits; for wider ones, random bits."""
    width = 8 * np_dtype(dtype).itemsize
    if width <= 16:
        return np.arange(2**width, dtype=f"uint{width}").view(np_dtype(dtype))
    bits = rng.integers(0, 2**width - 1, count, dtype=np.uint64, endpoint=True)
    return bits.astype(f"uint{width}").view(np_dtype(dtype))


def rows_and_dtypes(*, of_complex: bool = False):
    """Every row with every dtype that it has C++ for; without or with complex numbers only."""
    return [
        (row.name, name)
        for row in OPERATORS.values()
        for name, dtype in DTYPES.items()
        if row.form(dtype) is not None
        and of_complex == (dtype.kind == "complex" or row.name in ("complex", "conj"))
    ]
