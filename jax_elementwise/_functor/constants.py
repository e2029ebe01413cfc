"""Constant arrays inside of functors.

A functor is closed over nothing, so an array that a function captured becomes an equation without
operands. It then goes through derivatives, batching and dead-code elimination like any other.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
from jax.interpreters import mlir

__all__ = [
    "MAX_ELEMENTS",
    "CapturedArrayError",
    "ConstantArray",
    "check_captured",
    "constant_array",
    "constant_array_p",
]

# What an element computes with is written out value by value, so arrays inside of a functor are
# few values that stay in registers, or constants in memory.
MAX_ELEMENTS = 64


@dataclasses.dataclass(frozen=True)
class ConstantArray:
    """A constant array, equal to others of the same bytes."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    data: bytes

    @property
    def values(self) -> np.ndarray[Any, Any]:
        """The array."""
        return np.frombuffer(self.data, self.dtype).reshape(self.shape)


def _array(*, array: ConstantArray) -> Any:
    return jnp.asarray(array.values)


constant_array_p = jex.Primitive("constant_array")
constant_array_p.def_impl(_array)
constant_array_p.def_abstract_eval(lambda *, array: jax.core.ShapedArray(array.shape, array.dtype))
# Not by jnp: what 64-bit types are called when the program is lowered does not matter.
mlir.register_lowering(constant_array_p, lambda ctx, *, array: [mlir.ir_constant(array.values)])


def constant_array(value: Any) -> Any:
    """The constant array, as an equation of what is being traced."""
    values = np.asarray(value)
    values = values.astype(jax.dtypes.canonicalize_dtype(values.dtype))
    return constant_array_p.bind(array=ConstantArray(values.dtype, values.shape, values.tobytes()))


class CapturedArrayError(ValueError):
    """An array that a function captures and that cannot be a constant of a kernel."""


def check_captured(value: Any, who: str) -> None:
    """Refuses captured arrays that cannot be constants; ``who`` begins the message.

    Raises:
      CapturedArrayError: for an array that is being traced, or a large one.
    """
    if np.ndim(value) == 0:
        return
    array = f"{who} an array of shape {np.shape(value)} and dtype {jnp.result_type(value)}"
    if isinstance(value, jax.core.Tracer):
        raise CapturedArrayError(
            f"{array} whose values are not known, since it is computed in a function that is being "
            "transformed (jit, vmap, grad). Pass its entries as arguments; a table must be made "
            "with NumPy, or outside of that function."
        )
    if np.size(value) > MAX_ELEMENTS:
        raise CapturedArrayError(
            f"{array}, which is more than the {MAX_ELEMENTS} entries that a table may have. Pass "
            "it as an argument if each element is to get its own entry, or look it up outside."
        )
