"""Values of the generated code: C++ that stands for a scalar, with its declared dtype."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from jax_elementwise._codegen.types import DType, dtype_of, literal
from jax_elementwise._functor.constants import MAX_ELEMENTS

__all__ = [
    "Array",
    "UnsupportedError",
    "Value",
    "array_of",
    "constant",
    "known_dtype",
    "round_if_needed",
]


class UnsupportedError(Exception):
    """What no C++ can be written for; the message completes "cannot generate a kernel for ..."."""


@dataclasses.dataclass(frozen=True)
class Value:
    """A C++ expression.

    Attributes:
      code: the expression. It stands for a value of type ``dtype.compute``.
      dtype: what JAX declared the value as.
      exact: whether the value is one that ``dtype`` can hold. A narrow float that was computed is
        not: it has float32's precision until it is rounded.
      known: the value itself, where it is known when the code is written.
      cuda: a name that has the same value as CUDA's type, where there is one.
    """

    code: str
    dtype: DType
    exact: bool = False
    known: Any = None
    cuda: str = ""


# The values of one variable of a jaxpr: a NumPy array of Value objects, of the variable's shape.
# NumPy's annotations do not tell an array of objects from the objects.
Array = Any


def array_of(values: Sequence[Value], shape: Sequence[int]) -> Array:
    """An array from its elements, in row-major order."""
    array = np.empty(len(values), object)
    array[:] = values
    return array.reshape(tuple(shape))


def constant(value: Any, dtype: DType) -> Value:
    """A value that is known."""
    return Value(literal(value, dtype), dtype, exact=True, known=value)


def round_if_needed(value: Value) -> Value:
    """The value, rounded to its declared dtype."""
    if value.exact or not value.dtype.is_narrow:
        return dataclasses.replace(value, exact=True)
    return Value(f"round_to<{value.dtype.storage}>({value.code})", value.dtype, exact=True)


def known_dtype(aval: Any, what: str, max_elements: float = MAX_ELEMENTS) -> DType:
    """The row of an aval's dtype; raises UnsupportedError for large arrays and unknown dtypes."""
    if aval.size > max_elements:
        raise UnsupportedError(
            f"{what}, an array of shape {aval.shape} per element (of more than {max_elements} "
            "entries)"
        )
    dtype = dtype_of(aval.dtype)
    if dtype is None:
        raise UnsupportedError(f"{what}, which has dtype {aval.dtype}")
    return dtype
