"""Whether a functor and its reference agree on given operands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

__all__ = ["assert_agree"]

_UNITS = {4: 16, 8: 16}  # in the last place, by bytes; of narrower floats, one


def assert_agree(
    name: str,
    functor: Callable[..., Any],
    reference: Callable[..., Any],
    operands: Sequence[Any],
    rtol: float | None,
    atol: float | None,
    tangents: bool,
) -> None:
    """Raises AssertionError where results differ, or, if asked, tangents."""
    _compare(name, "result", functor(*operands), reference(*operands), operands, rtol, atol)
    floats = [i for i, x in enumerate(operands) if jnp.issubdtype(x.dtype, jnp.inexact)]
    if not tangents or not floats:
        return

    def tangent(fun: Callable[..., Any]) -> Any:
        def of_floats(*values: Any) -> Any:
            given = list(operands)
            for i, value in zip(floats, values, strict=True):
                given[i] = value
            return fun(*given)

        primals = [operands[i] for i in floats]
        # One direction shows every partial derivative, but for ones that cancel each other.
        dots = [jnp.full_like(x, 1 / (i + 1)) for i, x in enumerate(primals)]
        return jax.jvp(of_floats, primals, dots)[1]

    _compare(name, "tangent", tangent(functor), tangent(reference), operands, rtol, atol)


def _compare(
    name: str,
    what: str,
    actual: Any,
    expected: Any,
    operands: Sequence[Any],
    rtol: float | None,
    atol: float | None,
) -> None:
    pairs = zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True)
    for number, (ours, theirs) in enumerate(pairs):
        if ours.dtype == jax.dtypes.float0:
            continue
        error, allowed = _errors(ours, theirs, rtol, atol)
        if not (error > allowed).any():
            continue
        worst = np.unravel_index(np.argmax(error - allowed), error.shape)
        at = ", ".join(str(np.broadcast_to(x, error.shape)[worst]) for x in operands)
        raise AssertionError(
            f"{name!r} and its reference differ in {what} {number} of "
            f"{int((error > allowed).sum())} of {error.size} elements, most at "
            f"{tuple(map(int, worst))}: for ({at}) it gives {np.asarray(ours)[worst]}, the "
            f"reference {np.asarray(theirs)[worst]}"
        )


def _errors(ours: Any, theirs: Any, rtol: float | None, atol: float | None) -> tuple[Any, Any]:
    """How far results are apart, and how far they may be."""
    is_float = jnp.issubdtype(ours.dtype, jnp.inexact)
    wide = np.complex128 if jnp.iscomplexobj(ours) else np.float64 if is_float else object
    a, b = (np.asarray(x).astype(wide) for x in (ours, theirs))
    if not is_float:
        return (a != b).astype(np.float64), np.zeros(a.shape)
    info = jnp.finfo(ours.dtype)
    if rtol is None:
        rtol = float(info.eps) * _UNITS.get(info.bits // 8, 1)
    with np.errstate(all="ignore"):
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        error = np.where(same, 0, np.abs(a - b))
        size = np.where(np.isfinite(b), np.abs(b), 0)
        if atol is None:
            atol = rtol * float(size.max(initial=0)) * 2.0**-8
        return np.where(np.isnan(error), np.inf, error), atol + rtol * size
