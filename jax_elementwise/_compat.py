"""Everything that depends on the JAX version, or touches a name JAX does not make public.

Each entry says which versions it is for, so that it can go when they do.
"""

from __future__ import annotations

import functools
import math
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import jax.extend.core as jex
import jax.numpy as jnp
from jax._src import (
    checkify,  # JAX 0.10 to 0.12: no public way to add a check
    source_info_util,  # JAX 0.10 to 0.12: no public way to an equation's line
)
from jax._src.custom_partitioning_sharding_rule import (  # JAX 0.10 to 0.12: no public way
    sdy_sharding_rule_to_mlir,
    str_to_sdy_sharding_rule,
)
from jax._src.interpreters import mlir  # JAX 0.10 to 0.12: ir_attribute
from jax._src.lax import special  # JAX 0.10 to 0.12: definitions of functions that loop
from jax.interpreters import partial_eval  # without a promise: dce_jaxpr
from jaxlib.mlir import ir

__all__ = [
    "LOOPING",
    "batch_attributes",
    "bind_again",
    "check_nans",
    "consts",
    "dce",
    "definition",
    "is_jaxpr",
    "is_literal",
    "is_partitioned",
    "open_jaxpr",
    "partitions",
    "scan_operands",
    "user_location",
    "varying_axes",
]


def varying_axes(aval: Any) -> frozenset[str]:
    """Mesh axes over which a value varies inside ``shard_map``."""
    return frozenset(aval.manual_axis_type.varying)


def open_jaxpr(jaxpr: Any) -> Any:
    """The equations and variables of a jaxpr, closed or not (JAX 0.12 has one class for both)."""
    return jaxpr.jaxpr if hasattr(jaxpr, "jaxpr") else jaxpr


def consts(jaxpr: Any) -> Sequence[Any]:
    """The values a jaxpr is closed over; none for an open one."""
    return tuple(getattr(jaxpr, "consts", ()))


def is_jaxpr(value: Any) -> bool:
    """Whether an equation's parameter is a jaxpr, closed or not."""
    return hasattr(value, "eqns") and hasattr(value, "in_avals")


def is_literal(atom: Any) -> bool:
    """Whether an argument of an equation is a literal value rather than a variable."""
    return isinstance(atom, jex.Literal)


def dce(jaxpr: Any, results: Sequence[bool], *, keep_inputs: bool) -> tuple[Any, tuple[int, ...]]:
    """A closed jaxpr without constants, reduced to what some of its results need.

    Args:
      jaxpr: the jaxpr.
      results: which of its results to keep.
      keep_inputs: whether inputs stay that are not needed.

    Returns:
      The reduced jaxpr and the inputs that stay.
    """
    pruned, used = partial_eval.dce_jaxpr(open_jaxpr(jaxpr), list(results), keep_inputs)
    return jex.ClosedJaxpr(pruned, ()), tuple(i for i, is_used in enumerate(used) if is_used)


def scan_operands(equation: Any, operands: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any]]:
    """The operands of a ``scan``: what every step gets, what goes around, what is stepped over."""
    params = equation.params
    if "num_consts" in params:  # JAX 0.10
        consts, carry = params["num_consts"], params["num_carry"]
    else:  # JAX 0.11 on: trees of the three kinds
        consts, carry = (len(tree) for tree in params["ft_in"].unpack()[:2])
    end = consts + carry
    return list(operands[:consts]), list(operands[consts:end]), list(operands[end:])


# Special functions that JAX defines by loops, where a kernel is generated for the definition.
LOOPING: dict[str, Any] = {
    "igamma": special.igamma_impl,
    "igammac": special.igammac_impl,
    "igamma_grad_a": special.igamma_grad_a_impl,
    "random_gamma_grad": special.random_gamma_grad_impl,
    "regularized_incomplete_beta": special.regularized_incomplete_beta_impl,
}


def _looping(name: str, *operands: Any) -> Any:
    """One of these functions; as in JAX, of narrow floats in float32."""
    dtype = operands[0].dtype
    wide = jnp.promote_types(dtype, jnp.float32)
    return LOOPING[name](*(x.astype(wide) for x in operands), dtype=wide).astype(dtype)


def definition(equation: Any) -> Callable[..., Any] | None:
    """A primitive's definition in terms of others, as a function; None where it has none."""
    if equation.primitive.name in LOOPING:
        return functools.partial(_looping, equation.primitive.name)
    if "_prim" in equation.params:  # JAX 0.12: hijax, for example jnp.searchsorted
        return functools.partial(equation.primitive.to_lojax, **equation.params)
    return None


def check_nans(primitive: Any) -> None:
    """Has ``checkify`` look for NaN among the results of a primitive."""
    check = functools.partial(checkify.nan_error_check, primitive)
    checkify.error_checks[primitive] = check


def is_partitioned(ctx: Any) -> bool:
    """Whether XLA divides what is being lowered among devices as it sees fit.

    So it does with a program for several devices, but for what is inside of ``shard_map`` over all
    axes of the mesh; and only with arrays that have dimensions.
    """
    return bool(ctx.avals_out[0].shape) and partitions(ctx) > 1


def partitions(ctx: Any) -> int:
    """Among how many devices XLA may divide what is being lowered."""
    axes = ctx.module_context.axis_context
    mesh = getattr(axes, "mesh", None)
    if mesh is None:
        return int(getattr(axes, "num_devices", None) or 1)
    manual = axes.manual_axes
    return math.prod(n for name, n in mesh.shape.items() if name not in manual)


def batch_attributes(ctx: Any, operands: Sequence[Any]) -> dict[str, Any]:
    """Attributes of a custom call of whose dimensions, all but the last, XLA may divide any.

    Operands have the dimensions of the results, or none. What JAX sends with its own calls of that
    kind (``jax.lax.linalg``): a count for the partitioner, and a rule for Shardy. As there, none if
    dimensions are symbolic, whose sizes would be in the rule: then XLA gathers.
    """
    if not all(isinstance(n, int) for n in ctx.avals_out[0].shape):
        return {}
    rank = len(ctx.avals_out[0].shape)
    names = " ".join(f"d{d}" for d in range(rank))
    of = [names if aval.shape else "" for aval in ctx.avals_in]
    rule = str_to_sdy_sharding_rule(f"{', '.join(of)} -> {', '.join([names] * len(ctx.avals_out))}")
    results = [
        ir.RankedTensorType.get(aval.shape, mlir.dtype_to_ir_type(aval.dtype))
        for aval in ctx.avals_out
    ]
    types: Any = ([x.type for x in operands], results)
    return {
        "mhlo.frontend_attributes": mlir.ir_attribute({"num_batch_dims": str(rank - 1)}),
        "sdy.sharding_rule": sdy_sharding_rule_to_mlir(rule, *types),
    }


def user_location(equation: Any) -> str:
    """Where the user wrote an equation, ``file.py:12:8 (function)``; empty where unknown."""
    return str(source_info_util.summarize(equation.source_info))


# A user's line is the innermost one outside of JAX and of this package.
source_info_util.register_exclusion(str(pathlib.Path(__file__).parent))


def bind_again(equation: Any, operands: Sequence[Any]) -> list[Any]:
    """An equation on other operands, with its source line, as in ``jax.core.eval_jaxpr``."""
    with source_info_util.user_context(equation.source_info.traceback):
        params = equation.primitive.get_bind_params(equation.params)
        results = equation.primitive.bind(*operands, **params)
    return list(results) if equation.primitive.multiple_results else [results]
