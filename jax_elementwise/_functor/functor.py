"""What one element computes, as a jaxpr over scalars."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax

from jax_elementwise import _compat
from jax_elementwise._functor import jaxprs
from jax_elementwise._functor.foreign import ForeignCall, foreign_calls
from jax_elementwise._functor.identity import fingerprint, short

__all__ = ["Functor"]


class Functor:
    """What one element computes: a jaxpr over scalars that is closed over nothing.

    Immutable and hashable. Two functors are equal if their jaxprs say the same thing and hold the
    same derivative rules (of ``custom_jvp`` functions, those of one trace). Their kernels' text is
    a weaker identity: functions with the same values and different gradients share a kernel.

    Attributes:
      name: what kernels and profiles show.
      jaxpr: the closed jaxpr.
      origin: the name of the user's function, which messages show.
      is_derivative: whether it is one, whose arrays a user did not ask for.
    """

    def __init__(
        self, name: str, jaxpr: Any, *, origin: str | None = None, is_derivative: bool = False
    ) -> None:
        if _compat.consts(jaxpr):
            raise ValueError("a functor is closed over nothing: what it needs are operands")
        self.name = name
        self.jaxpr = jaxpr
        self.origin = origin or name
        self.is_derivative = is_derivative
        self._fingerprint = (name, self.origin, is_derivative, fingerprint(jaxpr))
        self._hash = hash(self._fingerprint)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Functor):
            return NotImplemented
        return self._hash == other._hash and self._fingerprint == other._fingerprint

    def __repr__(self) -> str:
        return f"Functor({self.name}: {', '.join(map(short, self.in_avals))})"

    def __call__(self, *scalars: Any) -> list[Any]:
        """The results for scalars; under ``vmap``, for arrays."""
        # Not by `jaxpr_as_fun`, under which `jax_debug_nans` would not find the operation.
        return list(jax.core.eval_jaxpr(_compat.open_jaxpr(self.jaxpr), (), *scalars))

    def variant(self, jaxpr: Any, suffix: str = "", *, is_derivative: bool = False) -> Functor:
        """A functor that was made of this one; it is a derivative if either is."""
        is_derivative = is_derivative or self.is_derivative
        return Functor(self.name + suffix, jaxpr, origin=self.origin, is_derivative=is_derivative)

    @property
    def in_avals(self) -> Sequence[Any]:
        """Types of the operands, all of shape ()."""
        return self.jaxpr.in_avals

    @property
    def out_avals(self) -> Sequence[Any]:
        """Types of the results, all of shape ()."""
        return self.jaxpr.out_avals

    @property
    def has_effects(self) -> bool:
        """Whether it does more than compute (``jax.debug.print``)."""
        return bool(_compat.open_jaxpr(self.jaxpr).effects)

    @functools.cached_property
    def origins_of_results(self) -> tuple[tuple[str, int], ...]:
        """Where each result comes from.

        ``("operand", i)`` where it is an operand as it stands, else ``("result", i)`` for the first
        result that is the same value.
        """
        body = _compat.open_jaxpr(self.jaxpr)
        operands = {var: ("operand", i) for i, var in enumerate(body.invars)}
        firsts: dict[Any, tuple[str, int]] = {}
        origins = []
        for i, atom in enumerate(body.outvars):
            if _compat.is_literal(atom):
                origins.append(("result", i))
            else:
                origins.append(operands.get(atom) or firsts.setdefault(atom, ("result", i)))
        return tuple(origins)

    def wide_types(self) -> Any:
        """Has 64-bit types enabled, if it holds one: to evaluate it on arrays."""
        return jaxprs.wide_types(*self._dtypes)

    def for_scalars(self) -> Any:
        """What scalar functions that call it are traced under."""
        return jaxprs.for_scalars(*self._dtypes)

    @functools.cached_property
    def _dtypes(self) -> frozenset[Any]:
        return frozenset(jaxprs.dtypes(self.jaxpr))

    @functools.cached_property
    def has_long_loop(self) -> bool:
        """Whether it holds a loop whose number of steps is not known, or large."""
        return jaxprs.has_long_loop(self.jaxpr)

    @functools.cached_property
    def is_straight(self) -> bool:
        """Whether it consists of operations on scalars: no loop, no branch and no array."""
        return jaxprs.is_straight(self.jaxpr)

    @functools.cached_property
    def _foreign_calls(self) -> list[ForeignCall]:
        return list(foreign_calls(self.jaxpr))

    @property
    def is_foreign(self) -> bool:
        """Whether it calls code in another language, which a user wrote."""
        return bool(self._foreign_calls)

    @functools.cached_property
    def may_not_end(self) -> bool:
        """Whether it holds a loop, of whatever language, that some values might never leave."""
        return self.has_long_loop or any(call.may_not_end for call in self._foreign_calls)

    @property
    def without_reference(self) -> str:
        """The name of foreign code that it calls and XLA cannot; empty where there is none."""
        return next((call.name for call in self._foreign_calls if not call.has_reference), "")

    @functools.cached_property
    def has_custom_rules(self) -> bool:
        """Whether it calls ``custom_jvp`` or ``custom_vjp`` functions."""
        names = ("custom_jvp_call", "custom_vjp_call")
        return any(True for name in names for _ in jaxprs.calls(self.jaxpr, name))

    @functools.cached_property
    def awaits_transpose(self) -> bool:
        """Whether it is the tangent of a ``custom_vjp`` function, which cannot be evaluated."""
        return any(True for _ in jaxprs.calls(self.jaxpr, "custom_lin"))
