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

from jax_elementwise import _compat, _extension
from jax_elementwise._codegen import conventions, registry
from jax_elementwise._cuda_functor import codegen, result_type
from jax_elementwise._cuda_functor.source import Source
from jax_elementwise._functor import foreign

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


cuda_functor_p = jex.Primitive(codegen.PRIMITIVE)
cuda_functor_p.multiple_results = True


def bind(
    source: Source, rules: Rules, outs: Sequence[str], *scalars: Any, is_tangent: bool = False
) -> Any:
    """Calls a functor on scalars; gives a list of results.

    Raises:
      ValueError: where a rule captures a traced value, by which nothing would be differentiated.
    """
    _check_captured(source, rules, [jax.typeof(x) for x in scalars])
    return cuda_functor_p.bind(
        *scalars, source=source, outs=tuple(outs), rules=rules, is_tangent=is_tangent
    )


def _check_captured(source: Source, rules: Rules, avals: Sequence[Any]) -> None:
    scalars = [jax.ShapeDtypeStruct((), aval.dtype) for aval in avals]
    tangents = [s for s in scalars if jnp.issubdtype(s.dtype, jnp.inexact)]
    for what, rule, given in (
        ("reference", rules.reference, scalars),
        ("jvp", rules.jvp, [*scalars, *tangents]),
    ):
        if rule is None:
            continue
        captured = _compat.consts(jax.make_jaxpr(rule)(*given))
        if any(isinstance(value, jax.core.Tracer) for value in captured):
            raise ValueError(
                f"the {what} of {source.name!r} captures a traced value, which its C++ does not "
                "have. Declare it in scalars= (or inputs=) and pass it as an argument."
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
    kernel = result_type.kernel(source, dtypes)
    try:
        found = result_type.dtype_in(_extension.compile_anywhere(kernel))
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
    results = cuda_functor_p.bind(*spreads, **params)
    return results, [0] * len(results)


# ---- Derivatives ---------------------------------------------------------------------------------


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
    source, rules, outs = params["source"], params["rules"], params["outs"]
    results = cuda_functor_p.bind(*primals, **params)
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


def _described(*, source: Source, rules: Rules, is_tangent: bool, **_: Any) -> foreign.ForeignCall:
    """What a functor with such a call knows of it."""
    return foreign.ForeignCall(
        name=source.name,
        code=source.preamble + source.text,
        has_reference=rules.reference is not None,
        is_linear=is_tangent,
    )


# ---- Registration --------------------------------------------------------------------------------

cuda_functor_p.def_impl(_evaluate)
cuda_functor_p.def_abstract_eval(_abstract_eval)
batching.primitive_batchers[cuda_functor_p] = _batch
ad.primitive_jvps[cuda_functor_p] = _jvp
mlir.register_lowering(cuda_functor_p, mlir.lower_fun(_evaluate, multiple_results=True))
foreign.register(cuda_functor_p, _described)
registry.rule(codegen.PRIMITIVE)(codegen.write_call)
conventions.register(codegen.PRIMITIVE, codegen.CONVENTION)
