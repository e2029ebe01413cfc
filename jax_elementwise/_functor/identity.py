"""Jaxprs as hashable values: what two of them are compared by."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable
from typing import Any

import jax
import numpy as np

from jax_elementwise import _compat

__all__ = ["fingerprint", "short"]


def fingerprint(jaxpr: Any) -> Hashable:
    """A jaxpr as nested tuples, with variables numbered in the order they appear."""
    body = _compat.open_jaxpr(jaxpr)
    numbers: dict[Any, int] = {}

    def atom(a: Any) -> Hashable:
        if _compat.is_literal(a):
            return ("literal", short(a.aval), np.asarray(a.val).tobytes())
        return numbers.setdefault(a, len(numbers))

    inputs = tuple((atom(var), short(var.aval)) for var in (*body.constvars, *body.invars))
    equations = tuple(
        (
            equation.primitive.name,
            tuple(map(atom, equation.invars)),
            tuple((atom(var), short(var.aval)) for var in equation.outvars),
            tuple((key, _frozen(value)) for key, value in sorted(equation.params.items())),
        )
        for equation in body.eqns
    )
    constants = tuple(map(_frozen, _compat.consts(jaxpr)))
    return (inputs, equations, tuple(map(atom, body.outvars)), constants)


def short(aval: Any) -> str:
    """The part of a scalar's type that matters: ``float32[]``, with ``~`` for a weak type."""
    weak = "~" if getattr(aval, "weak_type", False) else ""
    return f"{weak}{aval.dtype}{list(aval.shape)}"


def _frozen(value: Any) -> Hashable:
    """An equation's parameter as something hashable; what is not gets compared by identity."""
    if _compat.is_jaxpr(value):
        return fingerprint(value)
    if isinstance(value, (tuple, list)):
        return tuple(map(_frozen, value))
    if isinstance(value, (np.ndarray, np.generic, jax.Array)):
        array = np.asarray(value)
        return (str(array.dtype), array.shape, array.tobytes())
    if isinstance(value, (bool, int, float, complex)):
        # Python finds 0.0 equal to -0.0, True equal to 1 and NaN unequal to itself.
        return (type(value), repr(value))
    try:
        hash(value)
    except TypeError:
        return _Identity(value)
    return value


@dataclasses.dataclass(frozen=True, eq=False)
class _Identity:
    """Holds on to an object that is compared by identity."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)
