"""What is in a jaxpr, and what jaxprs of scalars are traced under: no mesh, types wide enough."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import jax
from jax.sharding import AbstractMesh, use_abstract_mesh

from jax_elementwise import _compat

__all__ = [
    "MOST_STEPS_WRITTEN_OUT",
    "WRAPPERS",
    "calls",
    "definition",
    "dtypes",
    "for_scalars",
    "has_long_loop",
    "is_long_scan",
    "is_straight",
    "subjaxprs",
    "wide_types",
    "wrapped",
]

_NO_MESH = AbstractMesh((), ())
MOST_STEPS_WRITTEN_OUT = 8  # of a scan whose steps are all alike

# Primitives that only wrap a jaxpr of the same operands and results.
WRAPPERS = frozenset(
    {
        "jit",
        "closed_call",
        "eval_jaxpr",
        "core_call",
        "custom_jvp_call",
        "custom_vjp_call",
        "remat2",
        "checkpoint",
    }
)


def subjaxprs(equation: Any) -> Iterator[Any]:
    """The jaxprs among an equation's parameters, those of functors included."""
    for value in equation.params.values():
        for item in value if isinstance(value, (tuple, list)) else (value,):
            if _compat.is_jaxpr(item):
                yield item
            elif _compat.is_jaxpr(getattr(item, "jaxpr", None)):
                yield item.jaxpr


def wrapped(equation: Any) -> Any:
    """The jaxpr in an equation of one of the ``WRAPPERS``."""
    (inner, *_) = subjaxprs(equation)
    return inner


def calls(jaxpr: Any, name: str) -> Iterator[Any]:
    """The equations of a primitive in a jaxpr and in those inside of it."""
    for equation in _compat.open_jaxpr(jaxpr).eqns:
        if equation.primitive.name == name:
            yield equation
        for inner in subjaxprs(equation):
            yield from calls(inner, name)


def is_long_scan(equation: Any) -> bool:
    """Whether a ``scan`` has many steps that are all alike: it scans over, and stacks, nothing."""
    _, carry, columns = _compat.scan_operands(equation, equation.invars)
    differs = bool(columns) or len(equation.outvars) > len(carry)
    return not differs and equation.params["length"] > MOST_STEPS_WRITTEN_OUT


def has_long_loop(jaxpr: Any) -> bool:
    """Whether a jaxpr holds a loop of many steps, or of an unknown number of them."""
    return any(map(_is_or_holds_long_loop, _compat.open_jaxpr(jaxpr).eqns))


def _is_or_holds_long_loop(equation: Any) -> bool:
    name = equation.primitive.name
    if name == "while" or name in _compat.LOOPING or (name == "scan" and is_long_scan(equation)):
        return True
    defined = definition(equation)
    inner = [*subjaxprs(equation), *([] if defined is None else [defined])]
    return any(map(has_long_loop, inner))


def is_straight(jaxpr: Any) -> bool:
    """Whether a jaxpr consists of operations on scalars."""
    return all(
        equation.primitive.name not in ("while", "scan", "cond")
        and not any(var.aval.shape for var in equation.outvars)
        and all(map(is_straight, subjaxprs(equation)))
        for equation in _compat.open_jaxpr(jaxpr).eqns
    )


def definition(equation: Any) -> Any | None:
    """A primitive's definition in terms of others, as a closed jaxpr; None where it has none."""
    function = _compat.definition(equation)
    if function is None:
        return None
    avals = [atom.aval for atom in equation.invars]
    with wide_types(*(aval.dtype for aval in avals)):
        return jax.make_jaxpr(function)(
            *(jax.ShapeDtypeStruct(a.shape, a.dtype, weak_type=a.weak_type) for a in avals)
        )


@contextlib.contextmanager
def for_scalars(*dtypes: Any) -> Iterator[None]:
    """What scalar functions are traced under: no mesh, and 64-bit types if one of these is one.

    A jaxpr must not remember the mesh that it was traced under: its text would not show it, and the
    functor would fail under another one. A scalar that is captured inside ``shard_map`` may vary
    over the axes of a mesh, which says nothing of the function.
    """
    with wide_types(*dtypes), use_abstract_mesh(_NO_MESH), _compat.without_varying_axes():
        yield


# ---- Types of 64 bits ----------------------------------------------------------------------------
#
# Arrays that have them may meet code that runs without ``jax_enable_x64``, and programs that were
# traced with it may be differentiated or lowered without. Tracing would then make scalars of 32
# bits in the place of what arrays hold.

_WIDE = frozenset({"float64", "int64", "uint64", "complex128"})


def wide_types(*dtypes: Any) -> contextlib.AbstractContextManager[Any]:
    """Has 64-bit types enabled, if one of these is one."""
    is_wide = any(str(dtype) in _WIDE for dtype in dtypes)
    return jax.enable_x64(True) if is_wide else contextlib.nullcontext()


def dtypes(jaxpr: Any) -> Iterator[Any]:
    """The dtypes of all values in a jaxpr and in those inside of it."""
    body = _compat.open_jaxpr(jaxpr)
    yield from (var.aval.dtype for var in (*body.constvars, *body.invars))
    for equation in body.eqns:
        yield from (atom.aval.dtype for atom in (*equation.invars, *equation.outvars))
        for inner in subjaxprs(equation):
            yield from dtypes(inner)
