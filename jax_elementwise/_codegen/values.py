"""Values of the generated code: C++ that stands for a scalar, with its declared dtype."""

from __future__ import annotations

import dataclasses

from jax_elementwise._codegen.types import DType

__all__ = ["UnsupportedError", "Value", "round_if_needed"]


class UnsupportedError(Exception):
    """What no C++ can be written for; the message completes "cannot generate a kernel for ..."."""


@dataclasses.dataclass(frozen=True)
class Value:
    """A C++ expression.

    Attributes:
      code: the expression. It stands for a value of type ``dtype.compute``.
      dtype: what JAX declared the value as.
      exact: whether the value is one that ``dtype`` can hold. A 16-bit float that was computed is
        not: it has float32's precision until it is rounded.
    """

    code: str
    dtype: DType
    exact: bool = False


def round_if_needed(value: Value) -> Value:
    """The value, rounded to its declared dtype."""
    if value.exact or not value.dtype.is_half:
        return dataclasses.replace(value, exact=True)
    return Value(f"round_to<{value.dtype.storage}>({value.code})", value.dtype, exact=True)
