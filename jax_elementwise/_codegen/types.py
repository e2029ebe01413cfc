"""The array element types that kernels know: how each is stored, and what it is computed in."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax.numpy as jnp
import numpy as np

__all__ = ["DTYPES", "DType", "bits_literal", "dtype_of", "literal"]


@dataclasses.dataclass(frozen=True)
class DType:
    """One element type.

    Attributes:
      name: NumPy's name.
      storage: the C++ type of an element in memory (``csrc/include/jax_elementwise/dtypes.h``).
      compute: the C++ type it is computed in.
      kind: ``"bool"``, ``"int"``, ``"float"`` or ``"complex"``.
      itemsize: bytes in memory.
    """

    name: str
    storage: str
    compute: str
    kind: str
    itemsize: int

    @property
    def is_narrow(self) -> bool:
        """Whether it is a float that is computed in more precision than it is stored with."""
        return self.kind == "float" and self.itemsize < 4


DTYPES: dict[str, DType] = {
    dtype.name: dtype
    for dtype in (
        DType("bool", "bool8", "bool", "bool", 1),
        DType("int8", "int8", "int8", "int", 1),
        DType("uint8", "uint8", "uint8", "int", 1),
        DType("int16", "int16", "int16", "int", 2),
        DType("uint16", "uint16", "uint16", "int", 2),
        DType("int32", "int", "int", "int", 4),
        DType("uint32", "uint32", "uint32", "int", 4),
        DType("int64", "int64", "int64", "int", 8),
        DType("uint64", "uint64", "uint64", "int", 8),
        DType("float8_e4m3fn", "float8_e4m3fn", "float", "float", 1),
        DType("float8_e5m2", "float8_e5m2", "float", "float", 1),
        DType("float16", "float16", "float", "float", 2),
        DType("bfloat16", "bfloat16", "float", "float", 2),
        DType("float32", "float", "float", "float", 4),
        DType("float64", "double", "double", "float", 8),
        DType("complex64", "complex64", "complex64", "complex", 8),
        DType("complex128", "complex128", "complex128", "complex", 16),
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
    match dtype.kind:
        case "bool":
            return "true" if value else "false"
        case "int":
            return _integer(int(value), dtype)
        case "complex":
            part = DTYPES["float32" if dtype.name == "complex64" else "float64"]
            value = np.asarray(value, dtype.name)
            return f"{dtype.compute}{{{literal(value.real, part)}, {literal(value.imag, part)}}}"
        case _:
            return _float(value, dtype)


def _integer(value: int, dtype: DType) -> str:
    if dtype.itemsize < 4:  # has no suffix; the operations that take it are templates
        return f"{dtype.compute}({value})"
    suffix = {"int": "", "uint32": "u", "int64": "ll", "uint64": "ull"}[dtype.compute]
    smallest = -(2 ** (8 * dtype.itemsize - 1))
    if value == smallest:
        return f"({smallest + 1}{suffix} - 1)"
    return f"({value}{suffix})" if value < 0 else f"{value}{suffix}"


def bits_literal(value: Any, dtype: DType) -> str:
    """C++ for the bits of a float, as an unsigned integer."""
    wide = _widened(value, dtype)
    if dtype.compute == "float":
        return f"0x{wide.view(np.uint32):08x}u"
    return f"0x{wide.view(np.uint64):016x}ull"


def _widened(value: Any, dtype: DType) -> Any:
    """Rounded to the declared type, then widened, exactly, to the one that is computed in."""
    rounded = np.asarray(value, dtype=jnp.dtype(dtype.name))
    return rounded.astype(np.float32 if dtype.compute == "float" else np.float64)


def _float(value: Any, dtype: DType) -> str:
    wide = _widened(value, dtype)
    bits = f"bit_cast<{dtype.compute}>({bits_literal(value, dtype)})"
    suffix = "f" if dtype.compute == "float" else ""
    if not math.isfinite(float(wide)):
        return bits
    text = float(wide).hex() + suffix
    return f"({text})" if text.startswith("-") else text
