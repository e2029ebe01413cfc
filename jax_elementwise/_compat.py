"""Everything that depends on the JAX version, or touches a name JAX does not make public.

Each entry says which versions it is for, so that it can go when they do.
"""

from __future__ import annotations

import contextlib
import functools
import math
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
from jax._src import (
    checkify,  # JAX 0.10 to 0.12: no public way to add a check
    config,  # JAX 0.10 to 0.12: no public way to trace without varying axes
    source_info_util,  # JAX 0.10 to 0.12: no public way to an equation's line
)
from jax._src.custom_partitioning_sharding_rule import (  # JAX 0.10 to 0.12: no public way
    sdy_sharding_rule_to_mlir,
    str_to_sdy_sharding_rule,
)
from jax._src.interpreters import mlir  # JAX 0.10 to 0.12: ir_attribute, lower_per_platform
from jax._src.lax import special  # JAX 0.10 to 0.12: definitions of functions that loop
from jax.experimental import jet
from jax.interpreters import partial_eval  # without a promise: dce_jaxpr
from jaxlib.mlir import ir

__all__ = [
    "INLINE",
    "LOOPING",
    "batch_attributes",
    "bind_again",
    "checked",
    "consts",
    "dce",
    "definition",
    "enclosing_operation",
    "is_jaxpr",
    "is_literal",
    "is_partitioned",
    "jvp_rule",
    "open_jaxpr",
    "partitions",
    "register_lowering",
    "scan_operands",
    "taylor",
    "taylor_rule",
    "unreduced_axes",
    "user_location",
    "variable_of",
    "varying_axes",
    "without_varying_axes",
]


def varying_axes(aval: Any) -> frozenset[str]:
    """Mesh axes over which a value varies inside ``shard_map``, if that matters there."""
    if not config._check_vma.value:
        return frozenset()
    return frozenset(aval.manual_axis_type.varying)


# How `jax.jit` is told to leave nothing of a call in the jaxpr around it: JAX 0.12 leaves one for
# `inline=True`.
INLINE: Any = jax.Inline.JAX_EARLY if hasattr(jax, "Inline") else True


def unreduced_axes(aval: Any) -> frozenset[str]:
    """Mesh axes over which an array is still to be summed."""
    return frozenset(getattr(aval.sharding.spec, "unreduced", ()))


def without_varying_axes() -> contextlib.AbstractContextManager[Any]:
    """Has no type of a value show the mesh axes over which it varies."""
    context: contextlib.AbstractContextManager[Any] = config._check_vma(False)
    return context


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


def checked(primitive: Any, operations_of: Callable[..., Callable[..., list[Any]] | None]) -> None:
    """Has ``checkify`` look into a primitive, where it looks for what operations may do wrong.

    ``operations_of`` makes of the primitive's parameters a function that takes its operands and
    consists of JAX's operations; or None, and then only the results are looked at.
    """

    def rule(*args: Any, **params: Any) -> Any:
        # Before the operands stand the error so far and what to look for; in JAX 0.12 a context,
        # too, before these.
        *context, error, wanted = leading = args[: _leading(args)]
        operands = args[len(leading) :]
        operations = operations_of(**params)
        if operations is None or not wanted & _INSIDE:
            return checkify.nan_error_check(primitive, *args, **params)
        jaxpr = jax.make_jaxpr(operations)(*operands)
        return checkify.checkify_jaxpr(*context, jaxpr, wanted, error, *operands)

    checkify.error_checks[primitive] = rule


_INSIDE = frozenset({checkify.NaNError, checkify.DivisionByZeroError, checkify.OOBError})


def _leading(args: Sequence[Any]) -> int:
    (place,) = (i for i, arg in enumerate(args) if isinstance(arg, checkify.Error))
    return place + 2


def taylor_rule(primitive: Any, rule: Callable[..., Any]) -> None:
    """Registers the rule of a primitive for ``jax.experimental.jet``."""
    jet.jet_rules[primitive] = rule


def taylor(fun: Callable[..., Any], primals: Sequence[Any], series: Sequence[Any]) -> Any:
    """Taylor coefficients as rules of ``jet`` have them, without factorials."""
    return jet.jet(fun, tuple(primals), tuple(series), factorial_scaled=False)


def register_lowering(
    primitive: Any, default: Callable[..., Any], **rules: Callable[..., Any]
) -> None:
    """Registers the lowering rules of a primitive, per platform, to be called for every equation.

    As a rule JAX calls them once for equal equations, and then not where these stand.
    """

    def lower(ctx: Any, *operands: Any, **params: Any) -> Any:
        # A list, which JAX 0.10 wants for programs of several platforms.
        ctx = ctx.replace(avals_out=list(ctx.avals_out))
        return mlir.lower_per_platform(
            ctx, str(primitive), rules, default, frozenset(), *operands, **params
        )

    mlir.register_lowering(primitive, lower, cacheable=False)


def enclosing_operation() -> str:
    """Where what is being lowered stands.

    ``"main"``: in the program, or a branch or a loop of it. ``"function"``: in a function that it
    calls. Else, the name of the operation that computes with it.
    """
    operation = ir.InsertionPoint.current.block.owner.operation
    while operation.name != "func.func":
        if operation.name in _COMPUTING:
            return str(operation.name).removeprefix("stablehlo.")
        operation = operation.parent.operation
    visibility = "sym_visibility"
    if visibility not in operation.attributes:
        return "main"
    is_private = ir.StringAttr(operation.attributes[visibility]).value == "private"
    return "function" if is_private else "main"


# Operations that compute with what stands inside of them, scalar by scalar.
_COMPUTING = frozenset(
    f"stablehlo.{name}"
    for name in (
        "all_reduce",
        "map",
        "reduce",
        "reduce_scatter",
        "reduce_window",
        "scatter",
        "select_and_scatter",
        "sort",
    )
)


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


def jvp_rule(equation: Any, zeros: Sequence[bool]) -> tuple[Any, Sequence[Any], Sequence[bool]]:
    """The rule of a ``custom_jvp`` call, where these operands have no tangents.

    Gives an open jaxpr of all operands and those tangents that there are, its constants, and which
    tangents it does not give, since they are zero.
    """
    jaxpr, constants, out_zeros = equation.params["jvp_jaxpr_fun"].call_wrapped(*zeros)
    return jaxpr, constants, out_zeros


def variable_of(value: Any) -> Any:
    """The variable that a traced value is in the jaxpr of its trace; None for others."""
    return value.val if isinstance(value, partial_eval.DynamicJaxprTracer) else None


_VARY = ("pvary", "pcast")  # what gives values another type inside of shard_map, and nothing else


def bind_again(equation: Any, operands: Sequence[Any]) -> list[Any]:
    """An equation on other operands, with its source line, as in ``jax.core.eval_jaxpr``."""
    if equation.primitive.name in _VARY and not config._check_vma.value:
        return list(operands)
    with source_info_util.user_context(equation.source_info.traceback):
        params = equation.primitive.get_bind_params(equation.params)
        results = equation.primitive.bind(*operands, **params)
    return list(results) if equation.primitive.multiple_results else [results]
