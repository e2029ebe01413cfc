"""Elementwise functions of large arrays: bytes per second, beside XLA and beside a copy.

Bytes are what the function must move, each input read once and each result written once. Operands
take turns, so they come from memory, not from a cache, unless 16 sets of them fit into one.
"""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
from case import Case, bytes_of, power, uniform
from measuring import measured
from report import Row

import jax_elementwise as je

TITLE = "Bandwidth of large arrays"
VALUE = "GBps"
RATIOS = (("XLA", "ours"), ("copy", "ours"))

COLUMNS = 4096  # of the matrix that a bias is added to
SIZES = {"float32": (20, 24, 28), "bfloat16": (20, 24, 28), "int8": (20, 24, 29)}


def scale(x, s):
    return x * s


def mul(x, y):
    return x * y


def add(x, y):
    return x + y


def fma(x, y, z):
    return x * y + z


def gelu(x):
    return 0.5 * x * jax.lax.erfc(-x * 0.5**0.5)


def gelu_tanh(x):
    return 0.5 * x * (1 + jnp.tanh((2 / math.pi) ** 0.5 * (x + 0.044715 * x * x * x)))


def backward_of(function: Callable) -> Callable:
    """Its gradient by the first argument, for a given cotangent, which comes first."""

    def backward(cotangent, *operands):
        return jax.vjp(function, *operands)[1](cotangent)[0]

    return backward


class Function(NamedTuple):
    """Of one element.

    Attributes:
      name: in tables.
      of: the function.
      shapes: of its operands, from the number of elements.
      backward: whether to measure its gradient instead.
    """

    name: str
    of: Callable
    shapes: Callable
    backward: bool = False


def full(count: int) -> Callable:
    return lambda size: [(size,)] * count


def matrix_and_row(size: int) -> list[tuple[int, ...]]:
    columns = min(COLUMNS, size // 16)
    return [(size // columns, columns), (columns,)]


ARITHMETIC = (  # which integers have, too
    Function("x * s (scalar s)", scale, lambda size: [(size,), ()]),
    Function("x * y", mul, full(2)),
    Function("x + y", add, full(2)),
    Function("x * y + z", fma, full(3)),
    Function("matrix + bias", add, matrix_and_row),
)
FUNCTIONS = (
    *ARITHMETIC,
    Function("gelu", gelu, full(1)),
    Function("gelu, backward", gelu, full(1), backward=True),
    Function("gelu (tanh)", gelu_tanh, full(1)),
    Function("gelu (tanh), backward", gelu_tanh, full(1), backward=True),
)


def case(function: Function, dtype: str, size: int) -> Case:
    shapes = function.shapes(size)
    ways = {"ours": je.elementwise(function.of), "XLA": function.of}
    if function.backward:
        shapes = [shapes[0], *shapes]
        ways = {name: backward_of(way) for name, way in ways.items()}
    moved = bytes_of(*shapes, shapes[0], dtype=dtype)
    reads = sum(math.prod(shape) == size for shape in shapes)  # a row or a scalar is no stream
    return Case(
        name=f"{function.name}, {dtype}, {power(size)}",
        ways=ways,
        operands=uniform(*shapes, dtype=jnp.dtype(dtype)),
        moved=moved,
        streams=(reads, 1),
        labels={"function": function.name, "dtype": dtype, "size": power(size)},
    )


def cases(quick: bool) -> Iterator[Case]:
    for dtype, exponents in SIZES.items():
        for exponent in (12,) if quick else exponents:
            for function in ARITHMETIC if dtype == "int8" else FUNCTIONS:
                yield case(function, dtype, 1 << exponent)


def rows(process: str, quick: bool) -> Iterator[Row]:
    del process
    return measured(cases(quick), quick)
