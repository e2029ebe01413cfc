"""Calls on arrays that are sharded over the explicit axes of a mesh: each device does its part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax.extend.core import Primitive
from jax.interpreters import mlir
from jax.sharding import AxisType, PartitionSpec

__all__ = ["operand_spec", "per_device"]


def operand_spec(shape: tuple[Any, ...], result: Any) -> PartitionSpec:
    """How an operand is sharded that broadcasts to a result: along the dimensions it has."""
    spec = tuple(result.sharding.spec) + (None,) * (result.ndim - len(result.sharding.spec))
    first = result.ndim - len(shape)
    return PartitionSpec(
        *(spec[first + d] if n == result.shape[first + d] else None for d, n in enumerate(shape))
    )


def per_device(primitive: Primitive, rule: Callable[..., Any]) -> Callable[..., Any]:
    """A lowering rule that calls ``rule`` on what is local to a device.

    Along explicit axes the types say how arrays are sharded, so the call is wrapped in
    ``shard_map``: no collectives, and nothing stays in the program that could not be serialised.
    """

    def lower(ctx: Any, *operands: Any, **params: Any) -> Any:
        result = ctx.avals_out[0]
        mesh = result.sharding.mesh
        if not any(result.sharding.spec) or AxisType.Explicit not in mesh.axis_types:
            return rule(ctx, *operands, **params)

        def local(*arrays: Any) -> list[Any]:
            return primitive.bind(*arrays, **params)

        mapped = jax.shard_map(
            local,
            mesh=mesh,
            in_specs=tuple(operand_spec(aval.shape, result) for aval in ctx.avals_in),
            out_specs=[operand_spec(aval.shape, result) for aval in ctx.avals_out],
            axis_names={
                name
                for name, kind in zip(mesh.axis_names, mesh.axis_types, strict=True)
                if kind is AxisType.Explicit
            },
            check_vma=False,
        )
        return mlir.lower_fun(mapped, multiple_results=True)(ctx, *operands)

    return lower
