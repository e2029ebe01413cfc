"""Calls on arrays that are sharded over the explicit axes of a mesh: each device does its part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import mlir
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from jax_elementwise._functor.index import with_index

__all__ = ["full_spec", "local", "operand_spec", "per_device"]


def full_spec(aval: Any) -> tuple[Any, ...]:
    """How an array is sharded, an entry per dimension."""
    spec = tuple(aval.sharding.spec)
    return spec + (None,) * (aval.ndim - len(spec))


def operand_spec(shape: tuple[Any, ...], result: Any) -> PartitionSpec:
    """How an operand is sharded that broadcasts to a result: along the dimensions it has."""
    spec = full_spec(result)
    first = result.ndim - len(shape)
    return PartitionSpec(
        *(spec[first + d] if n == result.shape[first + d] else None for d, n in enumerate(shape))
    )


def local(ctx: Any) -> Any:
    """The context of a lowering where arrays are what one device has, and remember no mesh."""
    return ctx.replace(
        avals_in=[ShapedArray(a.shape, a.dtype, a.weak_type) for a in ctx.avals_in],
        avals_out=[ShapedArray(a.shape, a.dtype, a.weak_type) for a in ctx.avals_out],
    )


def per_device(primitive: Primitive, rule: Callable[..., Any]) -> Callable[..., Any]:
    """A lowering rule that calls ``rule`` on what is local to a device.

    Along explicit axes the types say how arrays are sharded, so the call is wrapped in
    ``shard_map``: no collectives, and nothing stays in the program that could not be serialised.
    """

    def lower(ctx: Any, *operands: Any, **params: Any) -> Any:
        result = ctx.avals_out[0]
        mesh = result.sharding.mesh
        if AxisType.Explicit not in mesh.axis_types:
            return rule(ctx, *operands, **params)

        index, functor = params["index"], params["functor"]
        shapes = with_index(index, [aval.shape for aval in ctx.avals_in], index and index.shape)

        def local(*arrays: Any) -> list[Any]:
            return primitive.bind(*arrays, **(params | {"index": None}))

        mapped = jax.shard_map(
            local,
            mesh=mesh,
            in_specs=tuple(operand_spec(shape, result) for shape in shapes),
            out_specs=[operand_spec(aval.shape, result) for aval in ctx.avals_out],
            axis_names={
                name
                for name, kind in zip(mesh.axis_names, mesh.axis_types, strict=True)
                if kind is AxisType.Explicit
            },
            check_vma=False,
        )

        def call(*arrays: Any) -> list[Any]:
            if index is not None:  # of the whole array, which no device can tell from its part
                whole = index.array(functor.in_avals[index.position].dtype)
                spec = operand_spec(index.shape, result)
                part = jax.sharding.reshard(whole, NamedSharding(mesh, spec))
                arrays = (*with_index(index, arrays, part),)
            return mapped(*arrays)

        return mlir.lower_fun(call, multiple_results=True)(ctx, *operands)

    return lower
