"""How a functor's class takes its operands and gives its results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax_elementwise._codegen.types import DType
from jax_elementwise._codegen.values import Value
from jax_elementwise._functor import jaxprs

__all__ = ["Convention", "convention_of", "register"]


class Convention:
    """That of functors of which everything is generated: in the types that are computed in.

    Attributes:
      options: compiler options of a kernel.
    """

    options: tuple[str, ...] = ()

    def stored(self, dtype: DType) -> DType:
        """The row of a dtype, with the C++ type of its elements in memory."""
        return dtype

    def parameter(self, dtype: DType) -> str:
        """The C++ type of a parameter of the functor."""
        return dtype.compute

    def operand(self, name: str, dtype: DType) -> Value:
        """The value of a parameter."""
        return Value(name, dtype, exact=True)

    def result(self, value: Value) -> str:
        """What is assigned to a parameter for a result."""
        return value.code

    def headers(self, dtypes: Sequence[DType]) -> set[str]:
        """What declares the types of operands and results."""
        return {"math/complex.h" for dtype in dtypes if dtype.kind == "complex"}

    def pairs(self, jaxpr: Any) -> tuple[str, tuple[int, ...]]:
        """A member of the class that computes two elements at once.

        Returns:
          Its text, empty where there is none; and the operands that must be scalars for it.
        """
        del jaxpr
        return "", ()


_GENERATED = Convention()
_OTHERS: dict[str, Convention] = {}


def register(primitive: str, convention: Convention) -> None:
    """Sets the convention of functors that hold an equation of a primitive."""
    _OTHERS[primitive] = convention


def convention_of(jaxpr: Any) -> Convention:
    """The convention of the functor of a jaxpr."""
    for primitive, convention in _OTHERS.items():
        if any(True for _ in jaxprs.calls(jaxpr, primitive)):
            return convention
    return _GENERATED
