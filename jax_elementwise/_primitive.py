"""The JAX primitive ``elementwise_p`` and every rule of it.

Parameters of the primitive, all static:
  functor: what one element computes.
  linear: the operands in which the functor is linear; empty for a user's own function.
  options: choices made by the user.
  index: the operand of the functor that no operand of the call stands for; None in most.
Operands and ``linear`` are numbered as the functor's, the index included.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jax.sharding import AxisType, NamedSharding, PartitionSpec, get_abstract_mesh

from jax_elementwise import _aliases, _compat, _derivatives
from jax_elementwise._codegen import kernel as codegen
from jax_elementwise._functor import Functor
from jax_elementwise._index import Index, with_index
from jax_elementwise._jaxprs import wide_types
from jax_elementwise._lowering import cpu, cuda, partition, xla

__all__ = ["Options", "apply", "elementwise_p"]


@dataclasses.dataclass(frozen=True)
class Options:
    """What a user may choose for one function.

    Attributes:
      fast_math: let the compiler trade accuracy for speed.
      lowering: ``"auto"``, ``"kernel"`` or ``"xla"``.
      aliases: pairs of an operand and a result that may be written into its buffer. They count what
        one call of the primitive has, so each call has its own.
    """

    fast_math: bool = False
    lowering: str = "auto"
    aliases: _aliases.Aliases = ()


elementwise_p = Primitive("elementwise")
elementwise_p.multiple_results = True


def apply(
    functor: Functor,
    operands: Sequence[Any],
    *,
    options: Options,
    linear: Sequence[int] = (),
    index: Index | None = None,
) -> list[Any]:
    """Calls a functor on arrays that broadcast. The only way to bind the primitive.

    What need not be computed is not: a result that is an operand, as in the transpose of a sum, or
    equal to another result, is not written again.

    Raises:
      NotImplementedError: if the functor cannot be made a kernel; on every platform, so that what
        runs on a CPU runs on a GPU.
    """
    if options.lowering != "xla" and functor.has_effects:
        codegen.check(functor)  # says what has no kernel; results may not show it
    operands = _joined(operands)
    joint = _joint_type(map(jax.typeof, operands))
    whole = with_index(index, [_joint_type([jax.typeof(x)]) == joint for x in operands], False)
    operands = with_index(index, operands, None)
    sources = [
        ("result", i) if kind == "operand" and not whole[k] else (kind, k)
        for i, (kind, k) in enumerate(functor.sources)
    ]
    computed = tuple(sorted({k for kind, k in sources if kind == "result"}))
    results: list[Any] = []
    if computed:
        dtypes = [aval.dtype for aval in functor.out_avals]
        functor, kept = _reduced(functor, operands, computed, joint)
        aliases = _aliases.renumber(
            options.aliases,
            sources,
            kept,
            computed,
            lambda i, k: whole[i] and operands[i].dtype == dtypes[k],
        )
        if options.lowering != "xla" and not functor.awaits_transpose:
            codegen.check(functor)
        results = elementwise_p.bind(
            *(operands[i] for i in kept if operands[i] is not None),
            functor=functor,
            linear=tuple(new for new, old in enumerate(kept) if old in linear),
            options=dataclasses.replace(options, aliases=aliases),
            index=index and index.among(kept),
        )
    return [results[computed.index(k)] if kind == "result" else operands[k] for kind, k in sources]


def _reduced(
    functor: Functor, operands: Sequence[Any], results: tuple[int, ...], joint: Any
) -> tuple[Functor, tuple[int, ...]]:
    """The functor of some results, without operands that these do not need.

    An operand that is not read need not be kept alive, unless the type of the results hangs on it.
    """
    reduced, used = _derivatives.reduced(functor, results, keep_operands=False)
    types = [jax.typeof(operands[i]) for i in used if operands[i] is not None]
    if types and _joint_type(types) == joint:
        return reduced, used
    return _derivatives.reduced(functor, results, keep_operands=True)


# ---- The joint type of operands ------------------------------------------------------------------
#
# Shape, sharding and varying axes of the results are those of a sum of the operands: `jnp.add`
# decides, and refuses what it would refuse. The functor is not evaluated on arrays for this: inside
# it, scalars have no mesh.


def _joint_type(avals: Any) -> Any:
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


def _joined(operands: Sequence[Any]) -> list[Any]:
    """The operands, brought to one mesh, set of varying axes and sharding.

    By differentiable operations, whose transposes add the sum over devices or the resharding that
    the gradient of a replicated operand needs.
    """
    axes = [_compat.varying_axes(jax.typeof(x)) for x in operands]
    varying = frozenset[str]().union(*axes)
    operands = [
        lax.pcast(x, tuple(sorted(varying - own)), to="varying") if own != varying else x
        for x, own in zip(operands, axes, strict=True)
    ]
    avals = [jax.typeof(x) for x in operands]
    if all(aval.sharding.mesh.empty for aval in avals):
        return operands
    joint = _joint_type(avals)
    if AxisType.Explicit not in joint.sharding.mesh.axis_types:
        return operands
    return [
        _with_spec(x, aval, partition.operand_spec(aval.shape, joint), joint.sharding.mesh)
        for x, aval in zip(operands, avals, strict=True)
    ]


def _with_spec(x: Any, aval: Any, spec: PartitionSpec, mesh: Any) -> Any:
    if partition.full_spec(aval) == tuple(spec):
        return x
    return jax.sharding.reshard(x, NamedSharding(mesh, spec))


# ---- Evaluation outside of jit -------------------------------------------------------------------


@functools.partial(jax.jit, static_argnames=("functor", "linear", "options", "index"))
def _compiled(*operands: Any, **params: Any) -> Any:
    return elementwise_p.bind(*operands, **params)


def _elementwise_impl(*operands: Any, **params: Any) -> Any:
    functor, index = params["functor"], params["index"]
    config: Any = jax.config
    if config.jax_disable_jit or config.jax_debug_nans or config.jax_debug_infs:
        if functor.without_reference and params["options"].lowering != "xla":
            return _checked(*operands, **params)
        # One JAX operation after the other, so that one can step through them, and so that JAX,
        # which runs a function again without jit when it meets a NaN, finds where it came from.
        return xla.evaluate(functor, operands, index)
    return _compiled(*operands, **params)


def _checked(*operands: Any, functor: Functor, **params: Any) -> Any:
    """By the kernel, which is all there is, and what JAX would say of the results."""
    config: Any = jax.config
    nans, infs = config.jax_debug_nans, config.jax_debug_infs
    with jax.disable_jit(False), jax.debug_nans(False), jax.debug_infs(False):
        results = _compiled(*operands, functor=functor, **params)
        floats = [x for x in results if jnp.issubdtype(x.dtype, jnp.inexact)]
        for what, asked, found in (("nan", nans, jnp.isnan), ("inf", infs, jnp.isinf)):
            if asked and any(found(x).any() for x in floats):
                raise FloatingPointError(f"invalid value ({what}) encountered in {functor.origin}")
    return results


# ---- Abstract evaluation -------------------------------------------------------------------------


def _elementwise_abstract_eval(
    *avals: Any, functor: Functor, index: Index | None, **params: Any
) -> list[Any]:
    del params
    # Kernels would take the bits of one type for those of another.
    for given, aval in zip(with_index(index, avals, None), functor.in_avals, strict=True):
        if given is not None and given.dtype != aval.dtype:
            raise TypeError(f"an operand of {functor} has dtype {given.dtype}")
    joint = _joint_type(avals)
    return [
        joint.update(dtype=result.dtype, weak_type=result.weak_type) for result in functor.out_avals
    ]


# ---- Batching ------------------------------------------------------------------------------------
#
# No broadcast is written out. The batch dimension becomes one more dimension along which operands
# that are not mapped have one element, or none.


def _elementwise_batch(
    operands: Sequence[Any],
    dims: Sequence[Any],
    *,
    functor: Functor,
    linear: Any,
    options: Options,
    index: Index | None,
) -> tuple[list[Any], list[int]]:
    mapped = [(x, d) for x, d in zip(operands, dims, strict=True) if d is not None]
    trailing = {x.ndim - 1 - d for x, d in mapped}
    if len(trailing) == 1:  # the batch dimension is in line already
        (after,) = trailing
        aligned = [
            x if d is not None else _insert_one(x, after)
            for x, d in zip(operands, dims, strict=True)
        ]
    else:  # the batch dimension goes to the front, before as many others as any operand has
        after = max(jnp.ndim(x) - (d is not None) for x, d in zip(operands, dims, strict=True))
        aligned = [
            x if d is None else _pad(jnp.moveaxis(x, d, 0), after)
            for x, d in zip(operands, dims, strict=True)
        ]
        # An index is not mapped, so it lacks the batch dimension, or has one element along it.
    index = index and index.batched(after)
    results = apply(functor, aligned, linear=linear, options=options, index=index)
    return results, [result.ndim - 1 - after for result in results]


def _insert_one(x: Any, after: int) -> Any:
    """``x`` with one more dimension before its last ``after`` ones, if it has more than those."""
    return lax.expand_dims(x, (jnp.ndim(x) - after,)) if jnp.ndim(x) > after else x


def _pad(x: Any, after: int) -> Any:
    """``x`` with ones after its first dimension, so that ``after`` dimensions follow it."""
    return lax.expand_dims(x, range(1, after - x.ndim + 2))


# ---- Forward mode --------------------------------------------------------------------------------


def _elementwise_jvp(
    primals: Sequence[Any],
    tangents: Sequence[Any],
    *,
    functor: Functor,
    linear: Any,
    options: Options,
    index: Index | None,
) -> tuple[list[Any], list[Any]]:
    of_all = with_index(index, [None if _is_zero(t) else t for t in tangents], None)
    active = tuple(i for i, t in enumerate(of_all) if t is not None)
    # Two calls: partial evaluation must be able to split the primal from the tangent.
    values = _derivatives.primal(functor, active)
    results = apply(values, primals, linear=linear, options=options, index=index)
    options = dataclasses.replace(options, aliases=())  # operands and results are others
    dots = [ad.Zero(jax.typeof(result).to_tangent_aval()) for result in results]
    tangent_functor, nonzero = _derivatives.jvp(functor, active)
    if nonzero:
        linear = range(len(of_all), len(of_all) + len(active))
        operands = [*primals, *(of_all[i] for i in active)]
        outs = apply(tangent_functor, operands, linear=linear, options=options, index=index)
        for i, out in zip(nonzero, outs, strict=True):
            dots[i] = out
    return results, dots


def _is_zero(tangent: Any) -> bool:
    return type(tangent) is ad.Zero or jax.typeof(tangent).dtype == jax.dtypes.float0


# ---- Reverse mode --------------------------------------------------------------------------------
#
# One call gives the cotangents of all operands. An operand that was broadcast then gets the sum
# over the elements it was used for; XLA reduces a full-size array for that.


def _elementwise_transpose(
    cotangents: Sequence[Any],
    *operands: Any,
    functor: Functor,
    linear: Any,
    options: Options,
    index: Index | None,
) -> list[Any]:
    of_all = with_index(index, operands, None)
    undefined = tuple(i for i, x in enumerate(of_all) if ad.is_undefined_primal(x))
    results = tuple(i for i, ct in enumerate(cotangents) if type(ct) is not ad.Zero)
    zeroed = tuple(i for i in linear if i not in undefined)
    known = [i for i in range(len(of_all)) if i not in undefined and i not in zeroed]
    transposed = _derivatives.transpose(functor, undefined, zeroed, results)
    given = [
        *(of_all[i] for i in known if of_all[i] is not None),
        *(cotangents[i] for i in results),
    ]
    outs = apply(
        transposed,
        given,
        linear=range(len(known), len(known) + len(results)),
        options=dataclasses.replace(options, aliases=()),  # operands and results are others
        index=index and index.among(known),
    )
    gradients: list[Any] = [None] * len(of_all)
    for i, out in zip(undefined, outs, strict=True):
        gradients[i] = _sum_to_shape(out, of_all[i].aval.shape)
    if index is not None:
        del gradients[index.position]
    return gradients


def _sum_to_shape(x: Any, shape: tuple[Any, ...]) -> Any:
    """Sums over the dimensions that broadcasting added to ``shape`` or repeated."""
    added = x.ndim - len(shape)
    repeated = [added + d for d, n in enumerate(shape) if n != x.shape[added + d]]
    if not added and not repeated:
        return x
    with wide_types(x.dtype):
        total = jnp.sum(x, axis=(*range(added), *repeated), dtype=x.dtype)
    return lax.expand_dims(total, [d - added for d in repeated])


# ---- Registration --------------------------------------------------------------------------------

elementwise_p.def_impl(_elementwise_impl)
elementwise_p.def_abstract_eval(_elementwise_abstract_eval)
batching.primitive_batchers[elementwise_p] = _elementwise_batch
ad.primitive_jvps[elementwise_p] = _elementwise_jvp
ad.primitive_transposes[elementwise_p] = _elementwise_transpose
_compat.check_nans(elementwise_p)
mlir.register_lowering(elementwise_p, partition.per_device(elementwise_p, xla.lower))
for _platform, _rule in (("cuda", cuda.lower), ("cpu", cpu.lower)):
    mlir.register_lowering(
        elementwise_p, partition.per_device(elementwise_p, _rule), platform=_platform
    )
