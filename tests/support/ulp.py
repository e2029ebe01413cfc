"""Distances between floats of 8 to 64 bits, in units in the last place."""

from __future__ import annotations

import numpy as np

_BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
FAR = np.uint64(2**64 - 1)  # the distance of NaN from everything else


def bits_of(x: np.ndarray) -> np.ndarray:
    """The bit patterns, as unsigned integers."""
    return np.ascontiguousarray(x).view(_BITS[x.dtype.itemsize])


def is_float(dtype) -> bool:
    """Whether a dtype is a real float, those included that are not NumPy's own."""
    return np.dtype(dtype).name.startswith(("float", "bfloat"))


def distance(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """How many representable values lie from one to the other, as uint64.

    The two zeros are one value; infinity follows the largest finite value; a NaN is at distance 0
    from another NaN and ``FAR`` from everything else.
    """
    assert x.dtype == y.dtype
    width = 8 * x.dtype.itemsize
    sign = np.uint64(1 << (width - 1))
    a, b = (bits_of(v).astype(np.uint64) for v in (x, y))
    mag_a, mag_b = a & ~sign, b & ~sign
    same_side = (a & sign) == (b & sign)
    apart = np.where(same_side, np.maximum(mag_a, mag_b) - np.minimum(mag_a, mag_b), mag_a + mag_b)
    nan_a, nan_b = np.isnan(x), np.isnan(y)
    return np.where(nan_a & nan_b, np.uint64(0), np.where(nan_a | nan_b, FAR, apart))


def wrong(actual: np.ndarray, expected: np.ndarray, allowed: int, *, zeros: bool = True):
    """Where ``actual`` is not within ``allowed`` units in the last place of ``expected``.

    Infinities must be where they are expected, and, unless ``zeros`` is false, zeros must have the
    sign that is expected. Anything but floats must be equal.
    """
    assert actual.dtype == expected.dtype, (actual.dtype, expected.dtype)
    assert actual.shape == expected.shape, (actual.shape, expected.shape)
    if actual.dtype.kind == "c":  # both parts
        parts = [
            wrong(getattr(actual, part), getattr(expected, part), allowed, zeros=zeros)
            for part in ("real", "imag")
        ]
        return parts[0] | parts[1]
    if not is_float(actual.dtype):
        return actual != expected
    bad = distance(actual, expected) > np.uint64(allowed)
    bad |= np.isinf(actual) != np.isinf(expected)
    if zeros:
        both = (actual == 0) & (expected == 0)
        bad |= both & (np.signbit(actual) != np.signbit(expected))
    return bad


def assert_same(actual: np.ndarray, expected: np.ndarray, allowed: int = 0) -> None:
    """Fails where ``wrong`` says so, and shows the first few places."""
    bad = np.flatnonzero(wrong(actual, expected, allowed))[:8]
    assert not len(bad), f"at {bad}: {actual.flat[bad]} should be {expected.flat[bad]}"
