"""The array element types that kernels know: how each is stored, and what it is computed in."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax.numpy as jnp
import numpy as np

__all__ = ["DTYPES", "DType", "dtype_of", "literal"]


@dataclasses.dataclass(frozen=True)
class DType:
    """One element type.

    Attributes:
      name: NumPy's name.
      storage: the C++ type of an element in memory (``csrc/include/jax_elementwise/dtypes.h``).
      compute: the C++ type it is computed in.
      kind: ``"bool"``, ``"int"`` or ``"float"``.
      itemsize: bytes in memory.
    """

    name: str
    storage: str
    compute: str
    kind: str
    itemsize: int

    @property
    def is_half(self) -> bool:
        """Whether values are kept in more precision than they are stored with."""
        return self.kind == "float" and self.itemsize < 4


DTYPES: dict[str, DType] = {
    dtype.name: dtype
    for dtype in (
        DType("bool", "bool8", "bool", "bool", 1),
        DType("int32", "int", "int", "int", 4),
        DType("uint32", "uint32", "uint32", "int", 4),
        DType("int64", "int64", "int64", "int", 8),
        DType("uint64", "uint64", "uint64", "int", 8),
        DType("float16", "float16", "float", "float", 2),
        DType("bfloat16", "bfloat16", "float", "float", 2),
        DType("float32", "float", "float", "float", 4),
        DType("float64", "double", "double", "float", 8),
    )
}


def dtype_of(dtype: Any) -> DType | None:
    """The row of an array dtype, or None where kernels do not know it."""
    return DTYPES.get(str(dtype))


def literal(value: Any, dtype: DType) -> str:
    """C++ for a constant, exact to the last bit.

    Floats are hexadecimal; what has no such form (infinities, NaN with its payload) is written as
    its bits. The smallest integers, which C++ has no literal for, are written as differences.

    >>> literal(0.1, DTYPES["float32"])
    '0x1.99999a0000000p-4f'
    >>> literal(-2147483648, DTYPES["int32"])
    '(-2147483647 - 1)'
    """
    if dtype.kind == "bool":
        return "true" if value else "false"
    if dtype.kind == "int":
        suffix = {"int": "", "uint32": "u", "int64": "ll", "uint64": "ull"}[dtype.compute]
        smallest = -(2 ** (8 * dtype.itemsize - 1))
        if int(value) == smallest:
            return f"({smallest + 1}{suffix} - 1)"
        return f"({int(value)}{suffix})" if int(value) < 0 else f"{int(value)}{suffix}"
    # Round to the declared type, then widen, exactly, to the one that is computed in.
    rounded = np.asarray(value, dtype=jnp.dtype(dtype.name))
    if dtype.compute == "float":
        wide = rounded.astype(np.float32)
        bits, suffix = f"bit_cast<float>(0x{wide.view(np.uint32):08x}u)", "f"
    else:
        wide = rounded.astype(np.float64)
        bits, suffix = f"bit_cast<double>(0x{wide.view(np.uint64):016x}ull)", ""
    if not math.isfinite(float(wide)):
        return bits
    text = float(wide).hex() + suffix
    return f"({text})" if text.startswith("-") else text
