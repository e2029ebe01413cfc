"""The one registry of code generation: the rule by which each primitive is written as C++.

A rule is called as ``rule(context, *operands)``. Operands are arrays of values (``values.Array``),
and so is what it returns: one array, or a list of them where the primitive has several results.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jax_elementwise._codegen.types import DType
from jax_elementwise._codegen.values import Array, Value, array_of, known_dtype
from jax_elementwise._codegen.writer import Writer

__all__ = ["RULES", "Context", "Rule", "array_rule", "names_of", "rule", "scalar_rule"]


@dataclasses.dataclass(frozen=True)
class Context:
    """An equation that is being written.

    Attributes:
      writer: where to write.
      equation: of the jaxpr.
      max_elements: of an array inside of the functor.
      jaxpr: writes a jaxpr inside of the equation, for operands; returns its results.
    """

    writer: Writer
    equation: Any
    max_elements: float
    jaxpr: Callable[[Any, Sequence[Array]], list[Array]]

    @property
    def name(self) -> str:
        """Of the primitive."""
        return str(self.equation.primitive.name)

    @property
    def params(self) -> dict[str, Any]:
        """Of the equation."""
        params: dict[str, Any] = self.equation.params
        return params

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the first result."""
        shape: tuple[int, ...] = self.equation.outvars[0].aval.shape
        return shape

    @functools.cached_property
    def dtype(self) -> DType:
        """Of the first result; raises UnsupportedError where it is too large, or of no dtype."""
        return self.dtype_of(self.equation.outvars[0].aval, f"the result of {self.name}")

    def dtype_of(self, aval: Any, what: str) -> DType:
        """The row of an aval's dtype; raises UnsupportedError, likewise."""
        return known_dtype(aval, what, self.max_elements)


@dataclasses.dataclass(frozen=True)
class Rule:
    """How a primitive is written.

    Attributes:
      write: the function, called as this module says.
      kind: ``"array"`` or ``"scalar"``, by which decorator it was registered; ``""`` for others.
    """

    write: Callable[..., Any]
    kind: str = ""


RULES: dict[str, Rule] = {}


def names_of(kind: str) -> list[str]:
    """The names of the primitives whose rules are of a kind, in the order of registration."""
    return [name for name, rule in RULES.items() if rule.kind == kind]


Register = Callable[[Callable[..., Any]], Callable[..., Any]]


def _register(names: Sequence[str], kind: str, adapt: Register) -> Register:
    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            assert name not in RULES, name
            RULES[name] = Rule(adapt(function), kind)
        return function

    return register


def rule(*names: str) -> Register:
    """Registers the rule of primitives."""
    return _register(names, "", lambda function: function)


def array_rule(*names: str) -> Register:
    """Registers a rule of primitives whose results must be of a size and a dtype that are known."""

    def adapt(function: Callable[..., Any]) -> Callable[..., Any]:
        def write(context: Context, *operands: Array) -> Any:
            _ = context.dtype  # refuses what is too large
            return function(context, *operands)

        return write

    return _register(names, "array", adapt)


def scalar_rule(*names: str) -> Register:
    """Registers a rule of primitives that work element by element.

    The function gets a value per operand and returns one, which is given a name.
    """

    def adapt(function: Callable[..., Value]) -> Callable[..., Any]:
        def write(context: Context, *operands: Array) -> Array:
            dtype, shape = context.dtype, context.shape
            # Some operands of select_n and clamp may be scalars beside arrays.
            columns = [np.broadcast_to(x, shape).ravel() for x in operands]
            rows = zip(*columns, strict=True) if columns else [()] * int(np.prod(shape))
            results = []
            for row in rows:
                for value in row:
                    context.writer.declare(value.dtype)
                context.writer.declare(dtype)
                results.append(context.writer.bind(function(context, *row)))
            return array_of(results, shape)

        return write

    return _register(names, "scalar", adapt)
