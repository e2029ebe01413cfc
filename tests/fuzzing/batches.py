"""Functions that are computed together, and what they are computed on."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import jax_elementwise as je
from fuzzing.functions import Block, Variable, lines
from fuzzing.making import NUMPY

SHAPE = (4, 3, 5)
SHAPES = (SHAPE, (4, 1, 5), (3, 5), (5,), (3, 1), (), (4, 1, 1))
TABLE = np.array([0.5, -1.25, 2, 0.75], np.float32)
KNOTS = np.array([-2, -0.5, 1, 3], np.float32)
SPECIAL = (0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5, 2.0)


@dataclasses.dataclass(frozen=True)
class Batch:
    """Functions of the same parameters, and operands for them."""

    given: tuple[Variable, ...]
    functions: tuple[Block, ...]
    operands: tuple[np.ndarray, ...]

    @property
    def differentiable(self) -> list[int]:
        """The positions of operands that one can differentiate by."""
        return [k for k, x in enumerate(self.operands) if jnp.issubdtype(x.dtype, jnp.inexact)]

    def results(self) -> list[tuple[int, Variable]]:
        """All results, each with the number of its function."""
        return [(k, r) for k, f in enumerate(self.functions) for r in f.results]

    def has(self, *words: str) -> bool:
        """Whether one of the functions is written with one of the words."""
        return any(word in f.texts() for f in self.functions for word in words)


def operands(rng: random.Random, given: Sequence[Variable]) -> tuple[np.ndarray, ...]:
    """Random ones, of which the first has all dimensions."""
    numbers = np.random.default_rng(rng.randrange(2**32))
    made = []
    for k, (_, dtype) in enumerate(given):
        shape = SHAPE if k == 0 else rng.choice(SHAPES)
        values = numbers.normal(size=shape) * 2
        if dtype in ("f32", "f64", "bf16", "f16"):
            special = numbers.random(shape) < 0.1
            values = np.where(special, numbers.choice(SPECIAL, shape), values)
        elif dtype == "c64":
            values = values + 1j * numbers.normal(size=shape)
        elif dtype == "b":
            values = values > 0
        else:
            values = np.abs(values * 3) if dtype == "u32" else values * 3
        made.append(np.asarray(values).astype(NUMPY[dtype]))
    return tuple(made)


# ---- From text to functions ----------------------------------------------------------------------


def with_jvp(fun: Any, by_first: Any, by_second: Any, *, extra: int = 0) -> Any:
    """A function of two values, after ``extra`` ones, with a rule of what it is multiplied by."""
    result = jax.custom_jvp(fun)

    @result.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        value, first, second = fun(*primals), by_first(*primals), by_second(*primals)
        by = tangents[extra:]
        return value, by[0] * first + by[1].astype(second.dtype) * second

    return result


def with_vjp(fun: Any, by_first: Any, by_second: Any) -> Any:
    result = jax.custom_vjp(fun)

    def backward(kept: Any, cotangent: Any) -> Any:
        first, second, like = kept
        return cotangent * first, (cotangent * second).astype(like.dtype)

    result.defvjp(lambda a, b: (fun(a, b), (by_first(a, b), by_second(a, b), b)), backward)
    return result


def both(first: Any, second: Any) -> Any:
    """The step of a loop over two values."""

    def step(k: Any, carry: Any) -> Any:
        k = lax.convert_element_type(k, np.int32)
        return first(k, *carry), second(k, *carry)

    return step


def namespace(**changes: Any) -> dict[str, Any]:
    """What the text of a function may name."""
    return {
        "jax": jax,
        "jnp": jnp,
        "lax": lax,
        "TABLE": TABLE,
        "KNOTS": KNOTS,
        "elementwise": je.elementwise,
        "both": both,
        "with_jvp": with_jvp,
        "with_vjp": with_vjp,
        **NUMPY,
        **changes,
    }


def joined(functions: Sequence[Block], names: dict[str, Any], *, noise: bool = False) -> Any:
    """One function with the results of all."""
    made = []
    for block in functions:
        exec("\n".join(lines(block, "fun", noise=noise)), names)
        made.append(names["fun"])

    def fun(*args: Any) -> tuple[Any, ...]:
        return tuple(r for f in made for r in jax.tree.leaves(f(*args)))

    return fun
