"""Equations that are cheaper together than one by one: the sine and the cosine of an angle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.extend.core as jex
import numpy as np

from jax_elementwise import _compat

__all__ = ["fused", "sine_and_cosine_p"]

# Several sines and cosines of one angle; the parameter ``names`` says which each result is.
sine_and_cosine_p = jex.Primitive("sine_and_cosine")
sine_and_cosine_p.multiple_results = True


def fused(equations: Sequence[Any]) -> list[Any]:
    """The equations, with those of an angle's sine and cosine as one.

    It stands where the first of them stood.
    """
    of_angle: dict[Any, list[Any]] = {}
    for equation in equations:
        if _is_of_real_variable(equation):
            of_angle.setdefault(equation.invars[0], []).append(equation)
    both = {
        angle: own
        for angle, own in of_angle.items()
        if {equation.primitive.name for equation in own} == {"sin", "cos"}
    }
    result = []
    for equation in equations:
        own = both.get(equation.invars[0], []) if _is_of_real_variable(equation) else []
        if not own:
            result.append(equation)
        elif equation is own[0]:
            result.append(
                equation.replace(
                    primitive=sine_and_cosine_p,
                    params={"names": tuple(each.primitive.name for each in own)},
                    outvars=[each.outvars[0] for each in own],
                )
            )
    return result


def _is_of_real_variable(equation: Any) -> bool:
    if equation.primitive.name not in ("sin", "cos"):
        return False
    (angle,) = equation.invars
    return not _compat.is_literal(angle) and np.dtype(angle.aval.dtype).kind != "c"
