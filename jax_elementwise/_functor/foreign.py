"""Calls in a functor of code in another language, which no jaxpr tells anything of."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator
from typing import Any

import jax.extend.core as jex

from jax_elementwise import _compat
from jax_elementwise._functor import jaxprs

__all__ = ["ForeignCall", "foreign_call", "foreign_calls", "register"]

_LOOP = re.compile(r"\b(for|while|goto)\b")


@dataclasses.dataclass(frozen=True)
class ForeignCall:
    """One call of foreign code.

    Attributes:
      name: of the user's functor.
      code: the C++.
      has_reference: whether XLA can evaluate it, by a Python function that computes the same.
      is_linear: whether it is a tangent, linear in the operands that stand for tangents.
    """

    name: str
    code: str
    has_reference: bool
    is_linear: bool

    @property
    def may_not_end(self) -> bool:
        """Whether it holds a loop, which some values might never leave."""
        return _LOOP.search(self.code) is not None


_DESCRIPTIONS: dict[jex.Primitive, Callable[..., ForeignCall]] = {}


def register(primitive: jex.Primitive, describe: Callable[..., ForeignCall]) -> None:
    """Makes a primitive one of foreign calls; ``describe`` gets the parameters of an equation."""
    _DESCRIPTIONS[primitive] = describe


def foreign_call(equation: Any) -> ForeignCall | None:
    """The foreign call that an equation is; None for one that is something else."""
    describe = _DESCRIPTIONS.get(equation.primitive)
    return describe and describe(**equation.params)


def foreign_calls(jaxpr: Any) -> Iterator[ForeignCall]:
    """The foreign calls in a jaxpr and in those inside of it."""
    for equation in _compat.open_jaxpr(jaxpr).eqns:
        if call := foreign_call(equation):
            yield call
        for inner in jaxprs.subjaxprs(equation):
            yield from foreign_calls(inner)
