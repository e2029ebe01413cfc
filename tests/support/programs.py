"""Programs with attributes made by hand, as a stranger could write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from cases import TARGET

from jax_elementwise._codegen.kernel import Kernel
from jax_elementwise._lowering import attributes as described


def attributes_of(kernel: Kernel, **changes: Any) -> dict[str, Any]:
    """What a program holds of a kernel, with some of it changed; the digest is the kernel's."""
    return {**described.of(kernel), **changes}


def vouched(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes with the digest that they should have."""
    return {**attributes, "digest": described.digest(attributes)}


def compiled(attributes: Mapping[str, Any], operands: Sequence[Any], results: Sequence[Any]) -> Any:
    """A program with one custom call of these attributes, ready to be called.

    Attributes are Python's numbers, texts and sequences, or whatever NumPy has. ``results`` are
    types of the results.
    """
    call = jax.ffi.ffi_call(TARGET, list(results))
    config = {name: _encoded(value) for name, value in attributes.items()}
    return jax.jit(lambda *xs: call(*xs, **config)).lower(*operands).compile()


def _encoded(value: Any) -> Any:
    return np.array(value, np.int64)[()] if isinstance(value, int | tuple | list) else value


def run(attributes: Mapping[str, Any], operands: Sequence[Any], results: Sequence[Any]) -> Any:
    """What such a program gives: a list of arrays."""
    outs = compiled(attributes, operands, results)(*operands)
    return [np.asarray(out) for out in jax.block_until_ready(outs)]


def like(*arrays: Any) -> list[jax.ShapeDtypeStruct]:
    """Types of arrays."""
    return [jax.ShapeDtypeStruct(np.shape(x), np.asarray(x).dtype) for x in arrays]
