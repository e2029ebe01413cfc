"""What one element computes, as a jaxpr over scalars, and how a function becomes one."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import use_abstract_mesh

from jax_elementwise import _compat, _jaxprs
from jax_elementwise._identity import fingerprint, short
from jax_elementwise._table import check_captured, table

__all__ = ["Functor", "Traced", "trace"]

_LOOP = re.compile(r"\b(for|while|goto)\b")


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
    def sources(self) -> tuple[tuple[str, int], ...]:
        """Where each result comes from.

        ``("operand", i)`` where it is an operand as it stands, else ``("result", i)`` for the first
        result that is the same value.
        """
        body = _compat.open_jaxpr(self.jaxpr)
        operands = {var: ("operand", i) for i, var in enumerate(body.invars)}
        firsts: dict[Any, tuple[str, int]] = {}
        sources = []
        for i, atom in enumerate(body.outvars):
            if _compat.is_literal(atom):
                sources.append(("result", i))
            else:
                sources.append(operands.get(atom) or firsts.setdefault(atom, ("result", i)))
        return tuple(sources)

    def wide_types(self) -> Any:
        """Has 64-bit types enabled, if it holds one: to trace what calls it."""
        return _jaxprs.wide_types(*self._dtypes)

    @functools.cached_property
    def _dtypes(self) -> frozenset[Any]:
        return frozenset(_jaxprs.dtypes(self.jaxpr))

    @functools.cached_property
    def has_long_loop(self) -> bool:
        """Whether it holds a loop whose number of steps is not known, or large."""
        return _jaxprs.has_long_loop(self.jaxpr)

    @functools.cached_property
    def _source_calls(self) -> list[dict[str, Any]]:
        """The parameters of each call of a functor that a user wrote in C++ (``_source_call``)."""
        return [call.params for call in _jaxprs.calls(self.jaxpr, "cuda_functor")]

    @property
    def has_source(self) -> bool:
        """Whether it calls a functor that a user wrote in C++."""
        return bool(self._source_calls)

    @functools.cached_property
    def may_not_end(self) -> bool:
        """Whether it holds a loop, of whatever language, that some values might never leave."""
        sources = [call["source"] for call in self._source_calls]
        return self.has_long_loop or any(_LOOP.search(s.preamble + s.text) for s in sources)

    @property
    def without_reference(self) -> str:
        """The name of a functor in C++ that it calls and XLA cannot; empty where there is none."""
        names = (c["source"].name for c in self._source_calls if c["rules"].reference is None)
        return next(names, "")

    @property
    def has_opaque_tangent(self) -> bool:
        """Whether a functor in C++ computes tangents, which JAX cannot transpose."""
        return any(call["is_tangent"] for call in self._source_calls)

    @functools.cached_property
    def has_custom_rules(self) -> bool:
        """Whether it calls ``custom_jvp`` or ``custom_vjp`` functions."""
        names = ("custom_jvp_call", "custom_vjp_call")
        return any(True for name in names for _ in _jaxprs.calls(self.jaxpr, name))

    @functools.cached_property
    def awaits_transpose(self) -> bool:
        """Whether it is the tangent of a ``custom_vjp`` function, which cannot be evaluated."""
        return any(True for _ in _jaxprs.calls(self.jaxpr, "custom_lin"))


# ---- Tracing -------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Traced:
    """A user's function as a functor.

    Attributes:
      functor: its operands are the function's, then the captured values.
      captured: rank-0 arrays and tracers that the function closes over. Small arrays are part of
        the functor instead.
      out_tree: the structure that the function returns.
    """

    functor: Functor
    captured: tuple[Any, ...]
    out_tree: Any


def trace(fun: Callable[..., Any], avals: Sequence[Any], name: str) -> Traced:
    """Traces a function of scalars.

    Args:
      fun: takes one scalar per entry of ``avals``; returns a pytree of scalars.
      avals: dtypes and weak types of the operands.
      name: of the function, for messages and kernels.

    Raises:
      TypeError: if the function returns anything but scalars.
      ValueError: if it captures a large array, or one whose values are not known.
    """
    scalars = [jax.ShapeDtypeStruct((), a.dtype, weak_type=a.weak_type) for a in avals]
    with _jaxprs.wide_types(*(a.dtype for a in avals)), use_abstract_mesh(_jaxprs.NO_MESH):
        closed, out = jax.make_jaxpr(fun, return_shape=True)(*scalars)
        if any(_captures(equation) for equation in closed.eqns):
            inline = functools.partial(_jaxprs.inline_jits, closed, _compat.consts(closed))
            closed = jax.make_jaxpr(inline)(*scalars)
        _check_results(out, name)
        values = tuple(_compat.consts(closed))
        for value in values:
            check_captured(value, f"{name!r} captures")
        captured = tuple(value for value in values if np.ndim(value) == 0)
        if values:
            types = [jax.typeof(value) for value in captured]
            scalars += [jax.ShapeDtypeStruct((), t.dtype, weak_type=t.weak_type) for t in types]
            body = _compat.open_jaxpr(closed)

            def uncaptured(*args: Any) -> list[Any]:
                given = iter(args[len(avals) :])
                constants = [table(v) if np.ndim(v) else next(given) for v in values]
                return jax.core.eval_jaxpr(body, constants, *args[: len(avals)])

            with _jaxprs.wide_types(*(t.dtype for t in types)):
                closed = jax.make_jaxpr(uncaptured)(*scalars)
    return Traced(Functor(name, closed), captured, jax.tree.structure(out))


def _captures(equation: Any) -> bool:
    """Whether a jaxpr inside an equation is closed over values."""
    return any(
        _compat.consts(inner) or any(map(_captures, inner.eqns))
        for inner in _jaxprs.subjaxprs(equation)
    )


def _check_results(out: Any, name: str) -> None:
    for path, leaf in jax.tree_util.tree_leaves_with_path(out):
        if leaf.shape != ():
            where = f" at {jax.tree_util.keystr(path)}" if path else ""
            raise TypeError(
                f"{name!r} must return scalars, one element's results, but returned an array of "
                f"shape {leaf.shape} and dtype {leaf.dtype}{where}. Several results are a "
                "tuple; an array that the function captures is a whole table, not one entry per "
                "element: pass it as an argument."
            )
