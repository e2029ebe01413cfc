"""A call in a program that XLA divides among devices: each device does its part, nothing moves.

Of a custom call XLA knows nothing, so it gathers all operands on every device. This one says
that it treats all elements alike: every dimension but the last is a batch dimension. The last one,
added for that, has one element.

A dimension that is not divided evenly XLA pads, with any values, and the kernel gets them. Where
these might keep a loop going for ever, one more operand says which elements are real.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import mlir

from jax_elementwise import _compat
from jax_elementwise._codegen.kernel import Kernel, kernel_for
from jax_elementwise._functor import derivatives
from jax_elementwise._functor.functor import Functor
from jax_elementwise._functor.index import Index, with_index
from jax_elementwise._lowering import custom_call, explicit_axes
from jax_elementwise._options import Options

__all__ = ["prepare"]


def prepare(
    ctx: Any, functor: Functor, options: Options, index: Index | None
) -> tuple[Kernel, Callable[..., Any]]:
    """The kernel of a call that is being lowered, and what makes the custom call of operands.

    The kernel reads the index, since a part has others than the whole. Its operands have all
    dimensions of the results, or none: one that is broadcast along some of them is written out,
    which each device does for its part, since a dimension of one element could not be divided with
    the others.
    """
    shape = ctx.avals_out[0].shape
    whole = (*shape, 1)
    shapes = with_index(index, [whole if aval.shape else () for aval in ctx.avals_in], whole)
    padded = _padded_dimensions(ctx, functor)
    computed = functor
    if padded:
        computed, shapes = derivatives.guarded(functor), [*shapes, whole]
    kernel = kernel_for(
        computed, shapes, whole, fast_math=options.fast_math, aliases=options.aliases
    )
    types = tuple(aval.dtype for aval in ctx.avals_out)

    def call(*arrays: Any) -> list[Any]:
        if index is not None:
            dtype = functor.in_avals[index.position].dtype
            arrays = (*with_index(index, arrays, index.array(dtype)),)
        if padded:
            arrays = (*arrays, _is_real(shape, padded))
        spread = [
            lax.expand_dims(jnp.broadcast_to(x, shape), (len(shape),)) if x.ndim else x
            for x in arrays
        ]
        results = _divided_p.bind(*spread, kernel=kernel, options=options, types=types)
        return [lax.squeeze(result, (len(shape),)) for result in results]

    return kernel, functools.partial(
        mlir.lower_fun(call, multiple_results=True), explicit_axes.local(ctx)
    )


def _padded_dimensions(ctx: Any, functor: Functor) -> list[int]:
    """Those that might not be divided evenly, where what is added must not be computed."""
    shape = ctx.avals_out[0].shape
    if not functor.may_not_end or not all(isinstance(n, int) for n in shape):
        return []  # with symbolic dimensions nothing is divided
    return [d for d, n in enumerate(shape) if n % _compat.partitions(ctx)]


def _is_real(shape: tuple[int, ...], padded: list[int]) -> Any:
    """Per element, whether it is one: true for all that can be seen, not for what XLA adds."""
    sizes = lax.optimization_barrier([jnp.uint32(shape[d]) for d in padded])  # or it is a constant
    inside = [
        lax.broadcasted_iota(jnp.uint32, shape, d) < n for d, n in zip(padded, sizes, strict=True)
    ]
    return functools.reduce(jnp.logical_and, inside)


def _abstract_eval(
    *avals: Any, kernel: Kernel, options: Options, types: tuple[Any, ...]
) -> list[Any]:
    del kernel, options
    shape = next(aval.shape for aval in avals if aval.shape)
    return [ShapedArray(shape, dtype) for dtype in types]


def _lower(ctx: Any, *operands: Any, kernel: Kernel, options: Options, types: Any) -> Any:
    del types
    attributes = _compat.batch_attributes(ctx, operands)
    return custom_call.custom_call(ctx, *operands, kernel=kernel, options=options, more=attributes)


_divided_p = Primitive("elementwise_divided")
_divided_p.multiple_results = True
_divided_p.def_abstract_eval(_abstract_eval)
mlir.register_lowering(_divided_p, _lower)
jax.ffi.register_ffi_target_as_batch_partitionable(custom_call.TARGET)
