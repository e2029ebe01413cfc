"""The whole text of a kernel: the functor, and an entry point for the shapes of one call."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import math
import re
from collections.abc import Sequence
from typing import Any

from jax_elementwise import _extension
from jax_elementwise._codegen.conventions import convention_of
from jax_elementwise._codegen.iteration import IterationSpace, iteration_space
from jax_elementwise._codegen.jaxpr import write_body
from jax_elementwise._codegen.types import DType, dtype_of
from jax_elementwise._functor.constants import MAX_ELEMENTS
from jax_elementwise._functor.functor import Functor
from jax_elementwise._functor.index import Index, with_index
from jax_elementwise._options import Aliases

__all__ = ["Kernel", "check", "identifier", "kernel_for"]

_PARAMETER_BYTES = 4096  # of a kernel, on every GPU and driver
_USERS_TEXT = "\0"  # stands for it


@dataclasses.dataclass(frozen=True)
class Kernel:
    """A kernel's text and what a launcher must know about it.

    Attributes:
      name: the entry point.
      source: the CUDA C++ translation unit.
      options: compiler options besides architecture and language.
      space: how the kernel walks over its arrays.
      pack: elements per 128-bit access.
      index: the operand that is in no memory: the index of the element.
      operand_dtypes: of the operands in memory, by name.
      result_dtypes: of the results.
    """

    name: str
    source: str
    options: tuple[str, ...]
    space: IterationSpace
    pack: int
    index: int | None = None
    operand_dtypes: tuple[str, ...] = ()
    result_dtypes: tuple[str, ...] = ()

    def array_of(self, operand: int) -> int:
        """The number of an operand among those in memory."""
        return operand - (self.index is not None and operand > self.index)


@dataclasses.dataclass(frozen=True)
class _Body:
    """The part of the text that does not depend on shapes.

    Attributes:
      name: of the kernel, but for a hash.
      functor: members of the functor's class.
      pairs: one more, where the functor may be called for two elements at once.
      constants: operands that must be scalars for that.
      namespaces: what users wrote.
      headers: what must be included besides ``kernel.h``.
      options: of the compiler.
      ins: how the operands are stored.
      outs: how the results are stored.
    """

    name: str
    functor: str
    pairs: str
    constants: tuple[int, ...]
    namespaces: tuple[str, ...]
    headers: tuple[str, ...]
    options: tuple[str, ...]
    ins: tuple[DType, ...]
    outs: tuple[DType, ...]


@functools.lru_cache(maxsize=1024)
def _body(functor: Functor) -> _Body:
    ins = tuple(_row(aval, functor) for aval in functor.in_avals)
    outs = tuple(_row(aval, functor) for aval in functor.out_avals)
    convention = convention_of(functor.jaxpr)
    limit = math.inf if functor.is_derivative else MAX_ELEMENTS
    operands = [convention.operand(f"in{i}", dtype) for i, dtype in enumerate(ins)]
    body = write_body(functor.jaxpr, operands, max_elements=limit)
    results = list(map(convention.result, body.results))
    pairs, constants = convention.pairs(functor.jaxpr)
    parameters = [f"const {convention.parameter(dtype)} in{i}" for i, dtype in enumerate(ins)]
    parameters += [f"{convention.parameter(dtype)}& out{i}" for i, dtype in enumerate(outs)]
    call = "JAX_ELEMENTWISE_DEVICE void operator()(" + ", ".join(parameters) + ") const {"
    assignments = [f"  out{i} = {result};" for i, result in enumerate(results)]
    return _Body(
        name=identifier(functor.name),
        functor="\n".join("  " + line for line in (call, *body.lines, *assignments, "}")),
        pairs=pairs,
        constants=constants,
        namespaces=tuple(body.namespaces),
        headers=tuple(sorted({*body.headers, *convention.headers((*ins, *outs))})),
        options=convention.options,
        ins=tuple(map(convention.stored, ins)),
        outs=tuple(map(convention.stored, outs)),
    )


def _row(aval: Any, functor: Functor) -> DType:
    dtype = dtype_of(aval.dtype)
    if dtype is None:
        raise NotImplementedError(
            f"cannot generate a kernel for {functor.origin!r}: dtype {aval.dtype} is not supported"
        )
    return dtype


def identifier(name: str) -> str:
    """A C++ identifier that reminds of a Python name; the kernel's own name adds a hash to it."""
    return "ew_" + re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_")[:48]


def check(functor: Functor) -> None:
    """Raises what ``kernel_for`` would raise for a functor, as far as shapes do not matter."""
    _body(functor)
    _check_parameter_space(functor, 0)


def kernel_for(
    functor: Functor,
    operand_shapes: Sequence[tuple[Any, ...]],
    result_shape: tuple[Any, ...],
    *,
    fast_math: bool = False,
    aliases: Aliases = (),
    index: Index | None = None,
) -> Kernel:
    """The kernel of a functor for operands of these shapes, which broadcast to the result's.

    An aliased operand, which has the result's shape and the dtype of the result that it is paired
    with, may lie where that result does, or elsewhere; no other array may overlap with these two.
    The operand that ``index`` stands for has no shape among them.

    Raises:
      NotImplementedError: where the functor has no C++.
      ValueError: for more operands than a kernel can take.
    """
    shapes = with_index(index, operand_shapes, index and index.shape)
    space = iteration_space(shapes, result_shape)
    return _kernel(functor, space, fast_math, aliases, index and index.position)


@functools.lru_cache(maxsize=4096)
def _kernel(
    functor: Functor,
    space: IterationSpace,
    fast_math: bool,
    aliases: Aliases,
    index: int | None,
) -> Kernel:
    body = _body(functor)
    _check_parameter_space(functor, space.geometry_words)
    packed = [
        dtype
        for i, (dtype, kind) in enumerate(zip(body.ins, space.kinds, strict=True))
        if kind.is_packed and i != index
    ]
    pack = min(_extension.ACCESS_BYTES // dtype.itemsize for dtype in (*body.outs, *packed))
    if functor.has_long_loop:
        pack = 1  # a loop is not bound by memory, and its text is written once per element
    text = _entry_point(body, space, aliases, index, [*body.outs, *packed], pack)
    users = "".join(f"\n{each}" for each in body.namespaces)
    name = f"{body.name}_{hashlib.sha256((text + users).encode()).hexdigest()[:8]}"
    options = (*[_extension.FAST_MATH] * fast_math, *body.options)
    # Users' text last: it may have an "@" of its own.
    whole = text.replace("@", name).replace(_USERS_TEXT, users)
    operands = [aval.dtype.name for i, aval in enumerate(functor.in_avals) if i != index]
    results = [aval.dtype.name for aval in functor.out_avals]
    return Kernel(name, whole, options, space, pack, index, tuple(operands), tuple(results))


def _check_parameter_space(functor: Functor, geometry_words: int) -> None:
    arrays, most = len(functor.in_avals) + len(functor.out_avals), _extension.MAX_ARRAYS
    needed = 8 * (arrays + geometry_words)
    if arrays > most or needed > _PARAMETER_BYTES:
        what = "a derivative of " if functor.is_derivative else ""
        raise ValueError(
            f"{what}{functor.origin!r} has {len(functor.in_avals)} operands (captured values "
            f"count) and {len(functor.out_avals)} results; one kernel takes {most} together, fewer "
            "when many of them are broadcast. Split the function, or stack operands."
        )


def _parameters(
    body: _Body, space: IterationSpace, aliases: Aliases, index: int | None
) -> list[str]:
    """The declarations of the kernel's parameters.

    What is ``const`` and ``__restrict__`` is loaded by way of the cache for read-only data
    (``ld.global.nc``). Neither is true of a pair that may be one array.
    """
    read, written = {i for i, _ in aliases}, {j for _, j in aliases}
    outs = [
        f"{dtype.storage}* {'' if i in written else '__restrict__ '}out{i}"
        for i, dtype in enumerate(body.outs)
    ]
    ins = [
        f"const {dtype.storage}* {'' if i in read else '__restrict__ '}in{i}"
        for i, dtype in enumerate(body.ins)
        if i != index
    ]
    return [f"const __grid_constant__ Geometry<{space.geometry}> geometry", *outs, *ins]


def _inputs(body: _Body, space: IterationSpace, index: int | None) -> list[str]:
    """How the kernel reaches its operands."""
    return [
        kind.construct_index()
        if i == index
        else kind.construct(dtype.storage, f"in{i}", len(body.outs) + i)
        for i, (dtype, kind) in enumerate(zip(body.ins, space.kinds, strict=True))
    ]


def _entry_point(
    body: _Body,
    space: IterationSpace,
    aliases: Aliases,
    index: int | None,
    packed: Sequence[DType],
    pack: int,
) -> str:
    """The text, with "@" in place of the kernel's name, and without what users wrote."""
    parameters = _parameters(body, space, aliases, index)
    written = {j for _, j in aliases}
    outputs = [
        f"{'InPlace' if i in written else 'Output'}<{dtype.storage}>"
        f"{{out{i}, vectorized(geometry, {i})}}"
        for i, dtype in enumerate(body.outs)
    ]
    inputs = _inputs(body, space, index)
    index_type = "int" if space.index_bits == 32 else "int64"
    separator = ",\n    "
    widest = ", ".join(sorted({dtype.storage for dtype in packed}))
    headers = ("kernel.h", *body.headers)
    includes = "\n".join(f"#include <jax_elementwise/{header}>" for header in headers)
    functor = body.functor
    if body.pairs and all(space.kinds[i].is_scalar for i in body.constants):
        functor += "\n" + body.pairs
    return f"""\
{includes}
{_USERS_TEXT}
namespace jax_elementwise {{

struct @_functor {{
{functor}
}};

static_assert(pack_size<{widest}>() >= {pack}, "a pack is one access");

extern "C" __global__ void __launch_bounds__(kBlockSize) @(
    {separator.join(parameters)}) {{
  elementwise<{index_type}, {pack}>(
      @_functor{{}}, geometry,
      make_tuple({(separator + " " * 13).join(outputs)}),
      make_tuple({(separator + " " * 13).join(inputs)}));
}}

}}  // namespace jax_elementwise
"""
