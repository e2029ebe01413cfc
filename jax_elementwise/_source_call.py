"""The call of a user's C++ for one element, as an equation of a functor.

It goes through tracing, derivatives and code generation as every other operation on scalars does,
so functors in C++ and in Python compose. Parameters of the primitive, all static:
  source: the text.
  outs: the dtypes of the results.
  rules: how to differentiate it, and what XLA evaluates in its place.
  is_tangent: whether it is a user's own tangent of another functor, linear in what it stands for.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
from jax import lax
from jax.interpreters import ad, batching, mlir

from jax_elementwise import _extension
from jax_elementwise._codegen import probe
from jax_elementwise._source import Source

__all__ = ["Rules", "bind", "result_dtypes"]


@dataclasses.dataclass(frozen=True)
class Rules:
    """What is known of a functor besides its text. Functions are compared by identity.

    Attributes:
      reference: a function of the same scalars in Python; None where there is none.
      jvp: of the scalars, then of the tangents of those that are floats; gives the tangents of the
        results that are floats. None where there is none.
    """

    reference: Callable[..., Any] | None = None
    jvp: Callable[..., Any] | None = None


source_call_p = jex.Primitive("cuda_functor")
source_call_p.multiple_results = True


def bind(
    source: Source, rules: Rules, outs: Sequence[str], *scalars: Any, is_tangent: bool = False
) -> Any:
    """Calls a functor on scalars; gives a list of results."""
    return source_call_p.bind(
        *scalars, source=source, outs=tuple(outs), rules=rules, is_tangent=is_tangent
    )


# ---- Types of results ----------------------------------------------------------------------------


def result_dtypes(source: Source, rules: Rules, avals: Sequence[Any]) -> tuple[str, ...]:
    """The dtypes of the results: those that were given, the reference's, or the compiler's.

    Without 64-bit types, of 32 bits, as everywhere in JAX.

    Raises:
      TypeError: where the compiler's is none, or nothing tells.
      CompileError: where the text does not compile.
    """
    if source.outputs is not None:
        letters = {p.type: str(a.dtype) for p, a in zip(source.parameters, avals, strict=False)}
        return tuple(_canonical(letters.get(o.type) or str(o.type)) for o in source.outputs)
    if rules.reference is not None:
        out = jax.eval_shape(rules.reference, *(jax.ShapeDtypeStruct((), a.dtype) for a in avals))
        leaves = jax.tree.leaves(out)
        if len(leaves) != 1:
            raise TypeError(
                f"the reference of {source.name!r} gives {len(leaves)} results, and without "
                "outputs= the functor gives one"
            )
        return (str(leaves[0].dtype),)
    return (_canonical(_compilers_dtype(source, tuple(str(aval.dtype) for aval in avals))),)


def _canonical(name: str) -> str:
    return str(jax.dtypes.canonicalize_dtype(name))


@functools.lru_cache(maxsize=4096)
def _compilers_dtype(source: Source, dtypes: tuple[str, ...]) -> str:
    kernel = probe.kernel(source, dtypes)
    try:
        found = probe.dtype_in(_extension.compile_anywhere(kernel))
    except _extension.Unavailable as error:
        raise TypeError(
            f"the type of the result of {source.name!r} is not known without a compiler. Give "
            f"outputs= or reference=. {error}"
        ) from None
    if found is None:
        raise TypeError(
            f"{source.name!r} returns, for {', '.join(dtypes)}, what is no element of an array. "
            "Convert the result, or give outputs=."
        )
    return found


def _abstract_eval(*avals: Any, outs: tuple[str, ...], **params: Any) -> list[Any]:
    del params
    shape = jnp.broadcast_shapes(*(aval.shape for aval in avals))
    return [jax.core.ShapedArray(shape, jnp.dtype(name)) for name in outs]


# ---- Evaluation by the reference -----------------------------------------------------------------


def _evaluate(*operands: Any, source: Source, outs: tuple[str, ...], rules: Rules, **_: Any) -> Any:
    """By XLA; operands are scalars or of one shape."""
    if rules.reference is None:
        raise NotImplementedError(
            f"{source.name!r} is CUDA C++, which XLA cannot evaluate. Give it a reference=, a "
            "function of the same scalars in Python, or use a kernel (lowering='auto' or "
            "'kernel'), which needs a CUDA GPU or, on a CPU, a C++ compiler."
        )
    fun: Callable[..., Any] = rules.reference
    for _axis in range(max((jnp.ndim(x) for x in operands), default=0)):
        fun = jax.vmap(fun, in_axes=[0 if jnp.ndim(x) else None for x in operands])
    return _results(source, fun(*operands), outs)


def _results(source: Source, out: Any, outs: tuple[str, ...]) -> list[Any]:
    leaves = jax.tree.leaves(out)
    if len(leaves) != len(outs):
        raise TypeError(
            f"the reference of {source.name!r} gives {len(leaves)} results, and the functor "
            f"{len(outs)}"
        )
    return [jnp.asarray(leaf, name) for leaf, name in zip(leaves, outs, strict=True)]


# ---- Batching ------------------------------------------------------------------------------------


def _batch(operands: Sequence[Any], dims: Sequence[Any], **params: Any) -> tuple[Any, list[int]]:
    # Operands are scalars or of one shape, and so are those that are bound.
    moved = [x if d is None else jnp.moveaxis(x, d, 0) for x, d in zip(operands, dims, strict=True)]
    (size,) = {x.shape[0] for x, d in zip(moved, dims, strict=True) if d is not None}
    inner = [x.shape[d is not None :] for x, d in zip(moved, dims, strict=True)]
    shape = (size, *jnp.broadcast_shapes(*inner))

    def spread(x: Any, d: Any, own: tuple[int, ...]) -> Any:
        if d is None:
            return x if own == () else jnp.broadcast_to(x, shape)
        return jnp.broadcast_to(lax.expand_dims(x, range(1, len(shape) - len(own))), shape)

    spreads = map(spread, moved, dims, inner)
    results = source_call_p.bind(*spreads, **params)
    return results, [0] * len(results)


# ---- Derivatives ---------------------------------------------------------------------------------


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
    source, rules, outs = params["source"], params["rules"], params["outs"]
    results = source_call_p.bind(*primals, **params)
    if rules.jvp is not None:
        dots = _by_rule(source, rules.jvp, primals, tangents, outs)
    elif rules.reference is not None:
        dots = _by_reference(primals, tangents, params)
    else:
        raise NotImplementedError(
            f"{source.name!r} is CUDA C++ and has no derivative. Give it a jvp=, a function of its "
            "operands and their tangents, or a reference=, a function of the same scalars in "
            "Python, which JAX differentiates."
        )
    return results, [
        dot if jnp.issubdtype(name, jnp.inexact) else ad.Zero(jax.typeof(r).to_tangent_aval())
        for r, dot, name in zip(results, dots, outs, strict=True)
    ]


def _by_reference(primals: Sequence[Any], tangents: Sequence[Any], params: Any) -> list[Any]:
    active = [i for i, t in enumerate(tangents) if not _is_zero(t)]

    def of_active(*values: Any) -> list[Any]:
        operands = list(primals)
        for i, value in zip(active, values, strict=True):
            operands[i] = value
        results: list[Any] = _evaluate(*operands, **params)
        return results

    _, dots = jax.jvp(of_active, [primals[i] for i in active], [tangents[i] for i in active])
    return list(dots)


def _by_rule(
    source: Source,
    rule: Callable[..., Any],
    primals: Sequence[Any],
    tangents: Sequence[Any],
    outs: tuple[str, ...],
) -> list[Any]:
    floats = [i for i, x in enumerate(primals) if jnp.issubdtype(jnp.result_type(x), jnp.inexact)]
    dots = [jnp.zeros_like(primals[i]) if _is_zero(tangents[i]) else tangents[i] for i in floats]
    fun: Callable[..., Any] = rule
    operands = [*primals, *dots]
    for _axis in range(max(map(jnp.ndim, operands))):
        fun = jax.vmap(fun, in_axes=[0 if jnp.ndim(x) else None for x in operands])
    given = jax.tree.leaves(fun(*operands))
    wanted = [name for name in outs if jnp.issubdtype(name, jnp.inexact)]
    if len(given) != len(wanted):
        raise TypeError(
            f"the jvp of {source.name!r} gives {len(given)} tangents for {len(wanted)} results "
            "that are floats"
        )
    found = iter(given)
    return [jnp.asarray(next(found), n) if n in wanted else None for n in outs]


def _is_zero(tangent: Any) -> bool:
    return type(tangent) is ad.Zero or jax.typeof(tangent).dtype == jax.dtypes.float0


source_call_p.def_impl(_evaluate)
source_call_p.def_abstract_eval(_abstract_eval)
batching.primitive_batchers[source_call_p] = _batch
ad.primitive_jvps[source_call_p] = _jvp
mlir.register_lowering(source_call_p, mlir.lower_fun(_evaluate, multiple_results=True))
