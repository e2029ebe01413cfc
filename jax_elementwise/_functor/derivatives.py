"""Functors derived from a functor: tangent, transpose, and the part that gives some results only.

The Jacobian of an elementwise map is diagonal, so tangent and transpose are elementwise maps again,
and their functors are derived from the scalar jaxpr alone, whatever the shapes of the arrays.

Memoised: higher derivatives of one function in a program share their lower ones.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jax_elementwise import _compat
from jax_elementwise._functor.basis import transposable
from jax_elementwise._functor.constants import check_captured, constant_array
from jax_elementwise._functor.functor import Functor

__all__ = ["guarded", "jvp", "primal", "reduced", "taylor", "transpose"]


def _kept(derive: Callable[..., Any]) -> Callable[..., Any]:
    """Keeps what is derived, per width of types: a rule that a user wrote may depend on it."""

    @functools.lru_cache(maxsize=4096)
    def kept(width: Any, /, *args: Any, **kwargs: Any) -> Any:
        return derive(*args, **kwargs)

    @functools.wraps(derive)
    def call(*args: Any, **kwargs: Any) -> Any:
        return kept(jnp.result_type(float), *args, **kwargs)

    return call


@_kept
def reduced(
    functor: Functor, results: tuple[int, ...], *, keep_operands: bool
) -> tuple[Functor, tuple[int, ...]]:
    """The functor that gives some of the results only.

    Args:
      functor: the functor.
      results: which.
      keep_operands: whether it also takes operands that these results do not depend on.

    Returns:
      That functor, and which of the operands it takes.
    """
    wanted = [i in results for i in range(len(functor.out_avals))]
    pruned, used = _compat.dce(functor.jaxpr, wanted, keep_inputs=keep_operands)
    return functor.variant(pruned), used


@_kept
def guarded(functor: Functor) -> Functor:
    """A functor with one operand more, a bool. Where it is false, results are 0 at once."""

    def guard(*args: Any) -> list[Any]:
        zeros = [jnp.zeros((), aval.dtype) for aval in functor.out_avals]
        return lax.cond(args[-1], functor, lambda *_: zeros, *args[:-1])

    closed = _derive(functor, guard, [*functor.in_avals, jax.ShapeDtypeStruct((), jnp.bool_)])
    return functor.variant(closed, "_guarded")


@_kept
def primal(functor: Functor, active: tuple[int, ...]) -> Functor:
    """The functor beside its tangent, where the operands ``active`` have tangents.

    It is another one where the rules of ``custom_jvp`` and ``custom_vjp`` functions take the place
    of these: they give values, too, and can be differentiated where a ``custom_vjp`` function
    cannot.
    """
    if not active or not functor.has_custom_rules:
        return functor

    def values(*operands: Any) -> list[Any]:
        dots = [jnp.zeros((), functor.in_avals[i].dtype) for i in active]
        return _jvp(functor, operands, active, dots)[0]

    closed = _derive(functor, values, functor.in_avals, strong=False)
    pruned, _ = _compat.dce(closed, [True] * len(functor.out_avals), keep_inputs=True)
    derived = functor.variant(pruned)
    # In a loop the tangent stays beside the value, though nobody asks for it.
    return functor if derived.awaits_transpose else derived


def _jvp(
    functor: Functor, primals: Sequence[Any], active: Sequence[int], dots: Sequence[Any]
) -> tuple[list[Any], list[Any]]:
    """Results, and their tangents. Other operands are constants, with symbolic zeros."""

    def of_active(*values: Any) -> list[Any]:
        operands = list(primals)
        for i, value in zip(active, values, strict=True):
            operands[i] = value
        return functor(*operands)

    outs: tuple[list[Any], list[Any]] = jax.jvp(of_active, [primals[i] for i in active], list(dots))
    return outs


@_kept
def jvp(functor: Functor, active: tuple[int, ...]) -> tuple[Functor, tuple[int, ...]]:
    """The tangent of a functor.

    Args:
      functor: the functor.
      active: the operands whose tangents are not zero.

    Returns:
      A functor of all primal operands, then of the active operands' tangents, in which it is
      linear; and the results whose tangents it gives. The others' are identically zero.
    """
    avals = functor.in_avals

    def tangents(*args: Any) -> list[Any]:
        _, outs = _jvp(functor, args[: len(avals)], active, args[len(avals) :])
        return [jnp.zeros(()) if out.dtype == jax.dtypes.float0 else out for out in outs]

    closed = _derive(functor, tangents, [*avals, *(avals[i] for i in active)])
    nonzero = [not _is_zero(atom) for atom in _compat.open_jaxpr(closed).outvars]
    pruned, _ = _compat.dce(closed, nonzero, keep_inputs=True)
    derived = functor.variant(pruned, "_jvp", is_derivative=True)
    return derived, tuple(np.flatnonzero(nonzero).tolist())


def _is_zero(atom: Any) -> bool:
    return _compat.is_literal(atom) and not np.any(atom.val)


@_kept
def taylor(functor: Functor, order: int) -> Functor:
    """The Taylor coefficients of a functor's results along curves of its operands.

    Args:
      functor: the functor.
      order: of the last coefficients.

    Returns:
      A functor of the operands, then of the coefficients 1 to ``order`` of each operand that is a
      float. It gives the results, then the coefficients 1 to ``order`` of each of them.
    """
    avals = functor.in_avals
    floats = [jnp.issubdtype(aval.dtype, jnp.inexact) for aval in avals]

    def coefficients(*args: Any) -> list[Any]:
        given = iter(args[len(avals) :])
        series = [
            [next(given) if is_float else jnp.zeros((), aval.dtype) for _ in range(order)]
            for aval, is_float in zip(avals, floats, strict=True)
        ]
        outs, terms = _compat.taylor(functor, args[: len(avals)], series)
        return [*outs, *(term for row in terms for term in row)]

    terms = [aval for aval, is_float in zip(avals, floats, strict=True) if is_float]
    closed = _derive(functor, coefficients, [*avals, *(a for a in terms for _ in range(order))])
    return functor.variant(closed, "_taylor", is_derivative=True)


@_kept
def transpose(
    functor: Functor, undefined: tuple[int, ...], zeroed: tuple[int, ...], results: tuple[int, ...]
) -> Functor:
    """The transpose of a functor that is linear in some operands.

    Args:
      functor: the functor.
      undefined: the linear operands to transpose with respect to.
      zeroed: linear operands whose values are known. The linear part of an affine function is what
        is transposed, so they count as zero.
      results: the results whose cotangents are not zero.

    Returns:
      A functor of the remaining operands, in order, then of the cotangents of ``results``, in which
      it is linear. It gives one cotangent per undefined operand.
    """
    avals = functor.in_avals
    known = [i for i in range(len(avals)) if i not in undefined and i not in zeroed]

    linear_operands = [i not in known for i in range(len(avals))]

    def cotangents(*args: Any) -> list[Any]:
        function = transposable(functor.jaxpr, linear_operands, is_affine=not functor.is_derivative)
        operands: list[Any] = [jnp.zeros((), aval.dtype) for aval in avals]
        for i, value in zip(known, args[: len(known)], strict=True):
            operands[i] = value

        def linear(*values: Any) -> list[Any]:
            given = list(operands)
            for i, value in zip(undefined, values, strict=True):
                given[i] = value
            outs = function(*given)
            return [outs[i] for i in results]

        unknowns = [jax.ShapeDtypeStruct((), avals[i].dtype) for i in undefined]
        return list(jax.linear_transpose(linear, *unknowns)(list(args[len(known) :])))

    closed = _derive(
        functor, cotangents, [avals[i] for i in known] + [functor.out_avals[i] for i in results]
    )
    pruned, _ = _compat.dce(closed, [True] * len(undefined), keep_inputs=True)
    return functor.variant(pruned, "_transpose", is_derivative=True)


def _derive(
    functor: Functor, fun: Callable[..., Any], avals: Sequence[Any], *, strong: bool = True
) -> Any:
    """The closed jaxpr of a function that was made from a functor, for scalars of these types.

    A derivative rule that the user wrote may be closed over values, which the functor, traced
    without running the rule, does not know of. Scalars become literals, small arrays
    constant arrays.
    """
    scalars = [
        jax.ShapeDtypeStruct((), aval.dtype, weak_type=not strong and aval.weak_type)
        for aval in avals
    ]
    with functor.for_scalars():
        closed = jax.make_jaxpr(fun)(*scalars)
        constants = _compat.consts(closed)
        if not constants:
            return closed
        for value in constants:
            check_captured(value, "a derivative rule inside an elementwise function captures")
        if any(isinstance(c, jax.core.Tracer) for c in constants):
            raise ValueError(
                "a derivative rule inside an elementwise function captures a traced value. Pass it "
                "as an argument of the custom_jvp or custom_vjp function."
            )
        body = _compat.open_jaxpr(closed)

        def with_constants(*args: Any) -> list[Any]:
            values = [constant_array(c) if np.ndim(c) else np.asarray(c)[()] for c in constants]
            return jax.core.eval_jaxpr(body, values, *args)

        return jax.make_jaxpr(with_constants)(*scalars)
