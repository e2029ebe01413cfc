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
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching

from jax_elementwise import _compat
from jax_elementwise._codegen import kernel as codegen
from jax_elementwise._codegen.registry import Context, rule
from jax_elementwise._codegen.rules.control import inline
from jax_elementwise._codegen.values import UnsupportedError
from jax_elementwise._functor import derivatives
from jax_elementwise._functor.functor import Functor
from jax_elementwise._functor.index import Index, with_index
from jax_elementwise._functor.jaxprs import wide_types
from jax_elementwise._joint_type import joined, joint_type
from jax_elementwise._lowering import explicit_axes, platforms, xla
from jax_elementwise._options import Options, renumber_aliases

__all__ = ["apply", "elementwise_p"]


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
    operands = joined(operands)
    joint = joint_type(map(jax.typeof, operands))
    hasjoint_type = [joint_type([jax.typeof(x)]) == joint for x in operands]
    whole = with_index(index, hasjoint_type, False)
    operands = with_index(index, operands, None)
    origins = [
        ("result", i) if kind == "operand" and not whole[k] else (kind, k)
        for i, (kind, k) in enumerate(functor.origins_of_results)
    ]
    computed = tuple(sorted({k for kind, k in origins if kind == "result"}))
    results: list[Any] = []
    if computed:
        reduced, kept = _reduced(functor, operands, computed, joint)
        aliases = renumber_aliases(
            options.aliases,
            origins,
            kept,
            computed,
            lambda i, k: whole[i] and operands[i].dtype == functor.out_avals[k].dtype,
        )
        options = dataclasses.replace(options, aliases=aliases)
        results = _bind(reduced, operands, kept, options, linear, index)
    return [results[computed.index(k)] if kind == "result" else operands[k] for kind, k in origins]


def _reduced(
    functor: Functor, operands: Sequence[Any], results: tuple[int, ...], joint: Any
) -> tuple[Functor, tuple[int, ...]]:
    """The functor of some results, without operands that these do not need.

    An operand that is not read need not be kept alive, unless the type of the results hangs on it.
    """
    reduced, used = derivatives.reduced(functor, results, keep_operands=False)
    types = [jax.typeof(operands[i]) for i in used if operands[i] is not None]
    if types and joint_type(types) == joint:
        return reduced, used
    return derivatives.reduced(functor, results, keep_operands=True)


def _bind(
    functor: Functor,
    operands: Sequence[Any],
    kept: Sequence[int],
    options: Options,
    linear: Sequence[int],
    index: Index | None,
) -> list[Any]:
    """Binds the primitive to the operands ``kept``, which are all that the functor has."""
    if options.lowering != "xla" and not functor.awaits_transpose:
        codegen.check(functor)
    return elementwise_p.bind(
        *(operands[i] for i in kept if operands[i] is not None),
        functor=functor,
        linear=tuple(new for new, old in enumerate(kept) if old in linear),
        options=options,
        index=index and index.among(kept),
    )


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


def _operations(
    functor: Functor, options: Options, index: Index | None, **params: Any
) -> Callable[..., list[Any]] | None:
    """JAX's operations in the place of a call, for ``checkify``; None where there are none."""
    del params
    if functor.without_reference and options.lowering != "xla":
        return None
    return lambda *operands: xla.evaluate(functor, operands, index)


# ---- Abstract evaluation -------------------------------------------------------------------------


def _elementwise_abstract_eval(
    *avals: Any, functor: Functor, index: Index | None, **params: Any
) -> list[Any]:
    del params
    # Kernels would take the bits of one type for those of another.
    for given, aval in zip(with_index(index, avals, None), functor.in_avals, strict=True):
        if given is not None and given.dtype != aval.dtype:
            raise TypeError(f"an operand of {functor} has dtype {given.dtype}")
    joint = joint_type(avals)
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
    values = derivatives.primal(functor, active)
    results = apply(values, primals, linear=linear, options=options, index=index)
    options = options.without_aliases()
    dots = [ad.Zero(jax.typeof(result).to_tangent_aval()) for result in results]
    tangent_functor, nonzero = derivatives.jvp(functor, active)
    if nonzero:
        linear = range(len(of_all), len(of_all) + len(active))
        operands = [*primals, *(of_all[i] for i in active)]
        outs = apply(tangent_functor, operands, linear=linear, options=options, index=index)
        for i, out in zip(nonzero, outs, strict=True):
            dots[i] = out
    return results, dots


def _is_zero(tangent: Any) -> bool:
    return type(tangent) is ad.Zero or jax.typeof(tangent).dtype == jax.dtypes.float0


# ---- Taylor mode ---------------------------------------------------------------------------------
#
# Of `jax.experimental.jet`. One call gives all coefficients of all results.


def _elementwise_taylor(
    primals: Sequence[Any],
    series: Sequence[Sequence[Any]],
    *,
    functor: Functor,
    linear: Any,
    options: Options,
    index: Index | None,
) -> tuple[list[Any], list[list[Any]]]:
    del linear
    order = len(series[0])
    terms = [
        term
        for x, own in zip(primals, series, strict=True)
        if jnp.issubdtype(x.dtype, jnp.inexact)
        for term in own
    ]
    outs = apply(
        derivatives.taylor(functor, order),
        [*primals, *terms],
        options=options.without_aliases(),
        index=index,
    )
    count = len(functor.out_avals)
    rows = [outs[count + i * order :][:order] for i in range(count)]
    return outs[:count], rows


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
    transposed = derivatives.transpose(functor, undefined, zeroed, results)
    given = [
        *(of_all[i] for i in known if of_all[i] is not None),
        *(cotangents[i] for i in results),
    ]
    outs = apply(
        transposed,
        given,
        linear=range(len(known), len(known) + len(results)),
        options=options.without_aliases(),
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


# ---- Code generation -----------------------------------------------------------------------------
#
# Of a call inside of another elementwise function, perhaps on small arrays.


def _elementwise_write(context: Context, *operands: Any) -> list[Any]:
    functor = context.params["functor"]
    if context.params["index"] is not None:
        raise UnsupportedError(
            f"{functor.origin!r}, which asks for the index of the element, inside of another "
            "elementwise function"
        )
    return inline(context, functor.jaxpr, operands)


# ---- Registration --------------------------------------------------------------------------------

elementwise_p.def_impl(_elementwise_impl)
elementwise_p.def_abstract_eval(_elementwise_abstract_eval)
batching.primitive_batchers[elementwise_p] = _elementwise_batch
ad.primitive_jvps[elementwise_p] = _elementwise_jvp
ad.primitive_transposes[elementwise_p] = _elementwise_transpose
_compat.checked(elementwise_p, _operations)
_compat.taylor_rule(elementwise_p, _elementwise_taylor)
rule(elementwise_p.name)(_elementwise_write)
# What a call becomes hangs on where it stands (_lowering/platforms.py).
_compat.register_lowering(
    elementwise_p,
    explicit_axes.per_device(elementwise_p, xla.lower),
    cuda=explicit_axes.per_device(elementwise_p, platforms.lower_cuda),
    cpu=explicit_axes.per_device(elementwise_p, platforms.lower_cpu),
)
