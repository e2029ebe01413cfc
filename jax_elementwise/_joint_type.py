"""The type of a call's results: shape, sharding and varying axes, from those of the operands.

They are those of a sum of the operands: ``jnp.add`` decides, and refuses what it would refuse. The
functor is not evaluated on arrays for this: inside it, scalars have no mesh.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec, get_abstract_mesh

from jax_elementwise import _compat
from jax_elementwise._lowering import explicit_axes

__all__ = ["joined", "joint_type"]


def joint_type(avals: Any) -> Any:
    """The type of a sum of operands, as a float32 array."""
    return _sum_type(tuple(avals), get_abstract_mesh())


@functools.lru_cache(maxsize=4096)
def _sum_type(avals: tuple[Any, ...], mesh: Any) -> Any:
    del mesh  # tracing depends on it

    def total(*operands: Any) -> Any:
        terms = [lax.real(x) if jnp.iscomplexobj(x) else x for x in operands]
        return functools.reduce(jnp.add, [lax.convert_element_type(x, jnp.float32) for x in terms])

    with jax.numpy_rank_promotion("allow"):
        return jax.make_jaxpr(total)(*avals).out_avals[0]


def joined(operands: Sequence[Any]) -> list[Any]:
    """The operands, brought to one mesh, set of varying axes and sharding.

    By differentiable operations, whose transposes add the sum over devices or the resharding that
    the gradient of a replicated operand needs.
    """
    for x in operands:
        if unreduced := _compat.unreduced_axes(jax.typeof(x)):
            raise ValueError(
                f"an operand of shape {x.shape} is unreduced over the mesh axes "
                f"{sorted(unreduced)}: each device holds a part of a sum. Sum it up first, with "
                "jax.sharding.reshard."
            )
    axes = [_compat.varying_axes(jax.typeof(x)) for x in operands]
    varying = frozenset[str]().union(*axes)
    operands = [
        lax.pcast(x, tuple(sorted(varying - own)), to="varying") if own != varying else x
        for x, own in zip(operands, axes, strict=True)
    ]
    avals = [jax.typeof(x) for x in operands]
    if all(aval.sharding.mesh.empty for aval in avals):
        return operands
    joint = joint_type(avals)
    if AxisType.Explicit not in joint.sharding.mesh.axis_types:
        return operands
    return [
        _with_spec(x, aval, explicit_axes.operand_spec(aval.shape, joint), joint.sharding.mesh)
        for x, aval in zip(operands, avals, strict=True)
    ]


def _with_spec(x: Any, aval: Any, spec: PartitionSpec, mesh: Any) -> Any:
    if explicit_axes.full_spec(aval) == tuple(spec):
        return x
    return jax.sharding.reshard(x, NamedSharding(mesh, spec))
