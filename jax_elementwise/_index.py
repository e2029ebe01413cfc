"""The index of an element as an operand, which kernels compute rather than read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jax_elementwise import _compat

__all__ = ["element_index", "indices_among", "indices_of"]

# Of these, an index is what it would be in memory; narrower ones wrap around.
_WIDE = ("i32", "i64", "ui32")
_RESHAPES = ("stablehlo.reshape", "stablehlo.broadcast_in_dim")


def element_index(shape: tuple[Any, ...], name: str) -> Any:
    """Every element's own index, in row-major order.

    An ordinary operation of JAX, so that batching and sharding do what they do with every array.

    Raises:
      ValueError: for an array with more elements than an index can count.
    """
    dtype = jax.dtypes.canonicalize_dtype(jnp.int64)
    size = math.prod(shape)
    if isinstance(size, int) and size > jnp.iinfo(dtype).max:
        raise ValueError(
            f"{name!r} asks for the index of one of {size} elements, which takes 64 bits: set "
            "jax_enable_x64"
        )
    return lax.reshape(lax.iota(dtype, size), shape)


def indices_among(operands: Sequence[Any]) -> frozenset[int]:
    """Which operands of a call, as it is lowered, are nothing but indices.

    Inside of another function (a loop's body, ``shard_map``) an operand does not show what it is,
    and is read from memory.
    """
    return frozenset(i for i, operand in enumerate(operands) if _is_index(operand))


def indices_of(jaxpr: Any, equation: Any) -> frozenset[int]:
    """Which operands of a call in a jaxpr are nothing but indices; as ``indices_among``."""
    made = {var: e for e in jaxpr.eqns for var in e.outvars}

    def is_index(atom: Any) -> bool:
        count = math.prod(atom.aval.shape)
        while atom in made and math.prod(atom.aval.shape) == count:
            name = made[atom].primitive.name
            if name == "iota":
                return atom.aval.ndim == 1 and atom.aval.dtype.name in ("int32", "int64", "uint32")
            if name not in ("reshape", "broadcast_in_dim"):
                return False
            atom = made[atom].invars[0]
        return False

    return frozenset(
        i
        for i, atom in enumerate(equation.invars)
        if not _compat.is_literal(atom) and is_index(atom)
    )


def _is_index(value: Any) -> bool:
    count = math.prod(value.type.shape)
    while True:
        operation = value.owner
        name = getattr(operation, "name", "")  # the owner of an argument is a block
        if name == "stablehlo.iota":
            return value.type.rank == 1 and str(value.type.element_type) in _WIDE
        if name not in _RESHAPES or not value.type.has_static_shape:
            return False
        value = operation.operands[0]
        if not value.type.has_static_shape or math.prod(value.type.shape) != count:
            return False  # an array that is repeated
