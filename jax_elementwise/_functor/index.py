"""The index of an element, an operand that is in no memory: kernels compute it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jax_elementwise._functor.jaxprs import wide_types

__all__ = ["Index", "index_dtype", "with_index"]


@dataclasses.dataclass(frozen=True)
class Index:
    """The operand of a functor whose elements are their own indices, in row-major order.

    A call of the primitive has it as a parameter, and no operand in its place.

    Attributes:
      position: among the operands of the functor.
      shape: of the array that it would be, which broadcasts with the operands.
    """

    position: int
    shape: tuple[Any, ...]

    def array(self, dtype: Any) -> Any:
        """The array, for where it must be one."""
        with wide_types(dtype):
            return lax.reshape(lax.iota(dtype, math.prod(self.shape)), self.shape)

    def batched(self, after: int) -> Index:
        """Under ``vmap``, whose dimension comes before the last ``after`` ones of the operands."""
        if len(self.shape) <= after:
            return self
        first = len(self.shape) - after
        return Index(self.position, (*self.shape[:first], 1, *self.shape[first:]))

    def among(self, positions: Sequence[int]) -> Index | None:
        """The index of a functor that has those of the operands; None if it is not one of them."""
        if self.position not in positions:
            return None
        return Index(list(positions).index(self.position), self.shape)


def with_index(index: Index | None, operands: Sequence[Any], value: Any) -> list[Any]:
    """What there is per operand of a call, with a value in the place of the index."""
    if index is None:
        return list(operands)
    return [*operands[: index.position], value, *operands[index.position :]]


def index_dtype(shape: tuple[Any, ...], name: str) -> Any:
    """The dtype that an index has in Python.

    Raises:
      ValueError: for an array with more elements than it can count.
    """
    dtype = jax.dtypes.canonicalize_dtype(jnp.int64)
    size = math.prod(shape)
    if isinstance(size, int) and size > jnp.iinfo(dtype).max:
        raise ValueError(
            f"{name!r} asks for the index of one of {size} elements, which takes 64 bits: set "
            "jax_enable_x64"
        )
    return dtype
