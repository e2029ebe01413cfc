"""Which values of a linear function depend on its operands, and where JAX cannot transpose it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from jax_elementwise import _compat
from jax_elementwise._functor import jaxprs
from jax_elementwise._functor.foreign import foreign_call

__all__ = ["Dependence", "Path", "follow", "through"]


@dataclasses.dataclass(frozen=True)
class Path:
    """How operands go through an equation or a jaxpr.

    Attributes:
      results: which results depend on them.
      is_blocked: whether they meet what JAX does not transpose: a loop's carry, or a tangent that a
        user wrote in C++.
    """

    results: tuple[bool, ...]
    is_blocked: bool = False


class Dependence:
    """The variables of a jaxpr that depend on some of its operands."""

    def __init__(self, jaxpr: Any, linear: Sequence[bool]) -> None:
        operands = zip(_compat.open_jaxpr(jaxpr).invars, linear, strict=True)
        self._variables = {var for var, is_linear in operands if is_linear}

    def of(self, atoms: Sequence[Any]) -> tuple[bool, ...]:
        """Which of these depend on them."""
        return tuple(not _compat.is_literal(a) and a in self._variables for a in atoms)

    def follow(self, equation: Any) -> Path:
        """Goes on to the results of an equation."""
        path = follow(equation, self.of(equation.invars))
        results = zip(equation.outvars, path.results, strict=True)
        self._variables.update(var for var, depends in results if depends)
        return path


def through(jaxpr: Any, linear: Sequence[bool]) -> Path:
    """How the operands ``linear`` go through a jaxpr."""
    body, dependence = _compat.open_jaxpr(jaxpr), Dependence(jaxpr, linear)
    paths = [dependence.follow(equation) for equation in body.eqns]
    return Path(dependence.of(body.outvars), any(path.is_blocked for path in paths))


def follow(equation: Any, linear: tuple[bool, ...]) -> Path:
    """How the operands ``linear`` go through an equation."""
    every = (any(linear),) * len(equation.outvars)
    if not any(linear):
        return Path(every)
    name, params = equation.primitive.name, equation.params
    if name == "while":
        return _follow_while(equation, linear)
    if name == "scan":
        return _follow_scan(equation, linear)
    if name == "cond":
        paths = [through(branch, linear[1:]) for branch in params["branches"]]
        results = zip(*(path.results for path in paths), strict=True)
        return Path(tuple(map(any, results)), any(path.is_blocked for path in paths))
    if name in jaxprs.WRAPPERS:
        return through(jaxprs.wrapped(equation), linear)
    call = foreign_call(equation)
    return Path(every, call is not None and call.is_linear)


def _follow_while(equation: Any, linear: tuple[bool, ...]) -> Path:
    params = equation.params
    first = params["cond_nconsts"]
    start = first + params["body_nconsts"]
    carry = _fixed_point(
        lambda carry: through(params["body_jaxpr"], [*linear[first:start], *carry]).results,
        linear[start:],
    )
    if any(through(params["cond_jaxpr"], [*linear[:first], *carry]).results):
        raise TypeError(
            "only linear functions are transposed, and this one has a loop whose condition depends "
            "on the operands that it is transposed by"
        )
    return Path(carry, any(carry))


def _follow_scan(equation: Any, linear: tuple[bool, ...]) -> Path:
    constants, carry, columns = _compat.scan_operands(equation, linear)

    def step(carry: Sequence[bool]) -> Path:
        return through(equation.params["jaxpr"], [*constants, *carry, *columns])

    last = _fixed_point(lambda flags: step(flags).results[: len(carry)], carry)
    path = step(last)
    is_loop = jaxprs.is_long_scan(equation) and any(last)
    return Path((*last, *path.results[len(carry) :]), is_loop or path.is_blocked)


def _fixed_point(
    step: Callable[[tuple[bool, ...]], Sequence[bool]], carry: Sequence[bool]
) -> tuple[bool, ...]:
    """What of a loop's carry depends on the operands after any number of steps."""
    before = tuple(carry)
    after = tuple(a or b for a, b in zip(before, step(before), strict=True))
    return after if after == before else _fixed_point(step, after)
