"""Complex test inputs, and what functions of them should give: by NumPy in extended precision.

Errors are norm-wise: of the whole number, in machine epsilons of its magnitude. At zeros,
infinities and NaN the authority is C99, Annex G, which is what NumPy's functions follow.
"""

from __future__ import annotations

import itertools

import numpy as np

from . import reference

DTYPES = ("complex64", "complex128")
PART = {"complex64": "float32", "complex128": "float64"}
WIDE, LONG = np.clongdouble, np.longdouble

# ---- References ----------------------------------------------------------------------------------

_LN2_HIGH = LONG(1419 / 2048)  # so few bits that its products with float64 are exact
_LN2_LOW = LONG("2.760868099453094172321214581765680755e-4")


def _exp2(z):
    angle = [np.exp(1j * (z.imag * part)) for part in (_LN2_HIGH, _LN2_LOW)]
    return np.exp2(z.real) * (angle[0] * angle[1])


def _log1p(z):
    near = np.abs(z) < 0.5
    small = np.where(near, z, 0)
    return np.where(near, 2 * np.arctanh(small / (2 + small)), np.log(1 + z))


def _atan2(y, x):
    return -1j * np.log((x + 1j * y) / np.sqrt(x * x + y * y))


# What NumPy has no function for, or none without loss of digits.
EXACT = {
    **reference.NUMPY,
    "atan2": _atan2,
    "exp2": _exp2,
    "expm1": lambda z: 2 * np.exp(z / 2) * np.sinh(z / 2),
    "log1p": _log1p,
    "logistic": lambda z: np.exp(z / 2) / (2 * np.cosh(z / 2)),
    "sign": lambda z: z / np.where(z == 0, 1, np.abs(z)),
}

# What is as exact as its operands: equal to NumPy's result in their own dtype.
BITWISE = {
    "add": np.add,
    "add_any": np.add,
    "sub": np.subtract,
    "neg": np.negative,
    "copy": np.positive,
    "eq": np.equal,
    "ne": np.not_equal,
    "conj": np.conj,
    "real": np.real,
    "imag": np.imag,
}

# Lexicographic: these are compared with jax.lax itself.
ORDERED = frozenset({"max", "min", "clamp"})


# Whose error grows near some arguments: ``condition`` says how.
CONDITIONED = frozenset({"pow", "atan2"})


def exact(row, operands) -> np.ndarray:
    """A row on complex operands, with 11 bits more than complex128 has."""
    with np.errstate(all="ignore"):
        return EXACT[row.name](*(x.astype(WIDE) for x in operands))


def condition(row, operands) -> np.ndarray | int:
    """How many times the row's error may be larger than stated."""
    x, y = [z.astype(WIDE) for z in operands] if row.arity == 2 else (None, None)
    with np.errstate(all="ignore"):
        match row.name:
            case "pow":  # an exponential magnifies the error of its argument
                return 1 + np.abs(y * np.log(x))
            case "atan2":  # x^2 + y^2 cancels
                squares = np.abs(x) ** 2 + np.abs(y) ** 2
                return squares / np.abs(x * x + y * y) * (1 + 1 / np.abs(_atan2(x, y)))
            case "exp2":  # the angle loses the digits that so many turns take
                return 1 + np.abs(operands[0].imag) * 2.0**-24
    return 1


def wrong(row, actual, operands, allowed) -> np.ndarray:
    """Where a result is off by more than ``allowed`` epsilons; NaN is always wrong.

    A result that is out of range, or almost, is nothing to compare with, and below the normal
    numbers errors are absolute.
    """
    limits = np.finfo(actual.dtype)
    expected = exact(row, operands)
    kept = np.isfinite(expected) & (np.abs(expected) < limits.max / 2)
    with np.errstate(all="ignore"):
        error = np.abs(actual.astype(expected.dtype) - expected)
        bound = allowed * condition(row, operands) * np.abs(expected) * limits.eps
        return kept & ~(error <= bound + 2 * limits.smallest_subnormal)


# ---- Inputs --------------------------------------------------------------------------------------

UNITS = np.array([1, -1, 1j, -1j])


def special_values(dtype: str) -> np.ndarray:
    """All numbers with zeros, ones, infinities and NaN as components."""
    parts = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan]
    pairs = np.array(list(itertools.product(parts, repeat=2)), PART[dtype])
    return pairs.view(dtype).ravel()


def _uniform(rng, count, size=4.0):
    return rng.uniform(-size, size, count) + 1j * rng.uniform(-size, size, count)


def random_values(rng, dtype: str, count: int) -> np.ndarray:
    """Numbers of ordinary size; a third of them is close to 0."""
    values = _uniform(rng, count)
    values[::3] *= 2.0 ** -rng.integers(0, 20, len(values[::3]))
    return values.astype(dtype)


def values_everywhere(rng, dtype: str, count: int) -> np.ndarray:
    """Of each kind, ``count`` numbers: where functions have zeros, poles, cuts or little room."""
    small = 2.0 ** -rng.integers(1, 40, (4, count))
    angles = rng.uniform(-np.pi, np.pi, count)
    kinds = [
        _uniform(rng, count, 30.0),
        _uniform(rng, count) * small[0],
        rng.choice(UNITS, count) + _uniform(rng, count, 1.0) * small[1],
        np.exp(1j * angles) * (1 + small[2] * rng.choice([-1, 0, 1], count)),
        _uniform(rng, count).real + 0j,
        1j * _uniform(rng, count).imag - 0.0,
        rng.choice(UNITS, count) * (np.pi / 2 * rng.integers(-6, 7, count))
        + _uniform(rng, count, 1.0) * small[3],
        rng.uniform(-1, 1, count) * small[0] + 1j * rng.uniform(-4, 4, count),
        rng.uniform(-4, 4, count) + 1j * rng.uniform(-1, 1, count) * small[0],
    ]
    ordinary = np.concatenate(kinds).astype(dtype)
    every = reference.of_every_exponent(rng, PART[dtype], 4 * count).view(dtype)
    return np.concatenate([ordinary, every[np.isfinite(every)]])
