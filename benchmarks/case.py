"""What is measured: one computation, as each peer does it."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Results = Mapping[str, list[np.ndarray]]


def agree(results: Results) -> list[str]:
    """Which ways differ from the last one in more than a hundredth of their elements."""
    (*others, last) = results
    faults = []
    for way in others:
        for given, reference in zip(results[way], results[last], strict=True):
            if reference.dtype.kind in "iub":
                close = given == reference
            else:
                tolerance = max(8 * float(jnp.finfo(reference.dtype).eps), 1e-4)
                mine, theirs = given.astype(np.float64), reference.astype(np.float64)
                close = np.abs(mine - theirs) <= tolerance * np.maximum(np.abs(theirs), 1)
            if close.size and close.mean() < 0.99:
                faults.append(f"{way} computes something else than {last}")
    return faults


@dataclasses.dataclass(frozen=True)
class Case:
    """A row of a table.

    Attributes:
      name: by which it is found in another run.
      ways: what computes it, by the name of the peer (``peers.PEERS``).
      operands: a set of operands, by its number. Random: what is constant takes less power.
      clock: one of ``clocks.CLOCKS``.
      moved: bytes that it must read and write, each once; 0 where that is not what limits it.
      streams: arrays read and arrays written, of ``moved / sum(streams)`` bytes each, in which a
        copy is to move the same.
      steps: in a program, for the clock "program".
      check: what is wrong with the results, the first 65536 elements of each.
      labels: what a table shows of it, by column.
    """

    name: str
    ways: Mapping[str, Any]
    operands: Callable[[int], Sequence[jax.Array]]
    clock: str = "device"
    moved: int = 0
    streams: tuple[int, int] = (0, 0)
    steps: int = 100
    check: Callable[[Results], list[str]] = agree
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)


def power(size: int) -> str:
    """``2^20`` where it is one."""
    exponent = size.bit_length() - 1
    return f"2^{exponent}" if size == 1 << exponent else str(size)


def uniform(*shapes: tuple[int, ...], dtype: Any = jnp.float32, low=0.9, high=1.1):
    """Sets of random operands: floats between two numbers, or any integers.

    Near 1 by default, so that a chain of products neither vanishes nor grows beyond bounds.
    Integers wrap around; odd ones, so that their products are never all zero.
    """

    def operands(number: int) -> list[jax.Array]:
        keys = jax.random.split(jax.random.key(number), len(shapes))
        if not jnp.issubdtype(dtype, jnp.floating):
            bits = [jax.random.bits(k, s, jnp.uint8) for k, s in zip(keys, shapes, strict=True)]
            return [x.astype(dtype) | 1 for x in bits]
        return [
            jax.random.uniform(k, shape, dtype, low, high)
            for k, shape in zip(keys, shapes, strict=True)
        ]

    return operands


def bytes_of(*shapes: tuple[int, ...], dtype: Any) -> int:
    """Of arrays."""
    return sum(math.prod(shape) for shape in shapes) * jnp.dtype(dtype).itemsize
