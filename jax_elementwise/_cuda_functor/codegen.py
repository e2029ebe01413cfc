"""Functors that users wrote in C++: their text in a kernel, and calls of them.

Users' code has CUDA's types: ``__half`` where the rest of a kernel has ``float16`` in memory and
``float`` to compute with. In a functor that calls such code, operands and results have those types
too, so that what goes from an operand to the call, and from there to a result, is not converted.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from jax_elementwise import _compat, _extension
from jax_elementwise._codegen.conventions import Convention
from jax_elementwise._codegen.registry import Context
from jax_elementwise._codegen.types import DTYPES, DType
from jax_elementwise._codegen.values import Array, Value, array_of, constant
from jax_elementwise._codegen.writer import Writer
from jax_elementwise._cuda_functor.cplusplus import is_standard_macro, without_comments
from jax_elementwise._cuda_functor.source import Source, template_argument

__all__ = [
    "CONVENTION",
    "CUDA_TYPES",
    "OF_CUDA",
    "PRIMITIVE",
    "declaration",
    "headers",
    "invocation",
    "is_declared",
    "write_call",
]

PRIMITIVE = "cuda_functor"  # its name, in jaxprs

# What declares the types of narrow floats, where an operand or the text has the type: each costs
# NVRTC 31 ms.
_HEADERS = {
    "float16": ("cuda/half.h", "half"),
    "bfloat16": ("cuda/bfloat16.h", "bfloat16"),
    "float8_e4m3fn": ("cuda/float8.h", "fp8"),
    "float8_e5m2": ("cuda/float8.h", "fp8"),
}

OF_CUDA = frozenset(_HEADERS)  # the dtypes that are structs of CUDA's

# CUDA's names of the dtypes, by NumPy's.
CUDA_TYPES = {
    "bool": "bool",
    "int8": "signed char",
    "uint8": "unsigned char",
    "int16": "short",
    "uint16": "unsigned short",
    "int32": "int",
    "uint32": "unsigned int",
    "int64": "long long",
    "uint64": "unsigned long long",
    "float8_e4m3fn": "__nv_fp8_e4m3",
    "float8_e5m2": "__nv_fp8_e5m2",
    "float16": "__half",
    "bfloat16": "__nv_bfloat16",
    "float32": "float",
    "float64": "double",
    "complex64": "jax_elementwise::complex64",
    "complex128": "jax_elementwise::complex128",
}

_MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", re.MULTILINE)


def _widened(name: str, dtype: DType) -> Value:
    """The value of a name of CUDA's type."""
    if not dtype.is_narrow:
        return Value(name, dtype, exact=True)
    code = f"Element<{dtype.name}>::widen(bit_cast<{dtype.name}>({name}))"
    return Value(code, dtype, exact=True, cuda=name)


def _as_cuda(value: Value) -> str:
    """The value as CUDA's type."""
    if value.cuda or not value.dtype.is_narrow:
        return value.cuda or value.code
    name = value.dtype.name
    return f"bit_cast<{CUDA_TYPES[name]}>(Element<{name}>::narrow({value.code}))"


def headers(source: Source, dtypes: Sequence[str]) -> set[str]:
    """What a functor needs for operands and results of these dtypes."""
    text = source.preamble + source.text
    narrow = {header for name, (header, word) in _HEADERS.items() if name in dtypes or word in text}
    return {
        "cuda/names.h",
        *narrow,
        *({"math/complex.h"} if any("complex" in d for d in dtypes) else ()),
    }


def is_declared(name: str, headers: Collection[str]) -> bool:
    """Whether CUDA's type of a dtype is declared by these headers."""
    return name not in _HEADERS or _HEADERS[name][0] in headers


# ---- Text ----------------------------------------------------------------------------------------


def declaration(source: Source, dtypes: Sequence[str], outs: Sequence[str], space: str) -> str:
    """The user's text in a namespace, for operands of these dtypes.

    Macros know no namespaces, so they end where the text does.
    """
    letters = _letters(source, dtypes)
    defined = _MACRO.findall(without_comments(source.preamble + "\n" + source.text))
    macros = dict.fromkeys(m for m in defined if not is_standard_macro(m))  # others need these
    lines = [f"namespace {space} {{"]
    lines += [f"using {letter} = {CUDA_TYPES[dtype]};" for letter, dtype in sorted(letters.items())]
    if source.preamble:
        lines += [f'#line 1 "{source.file}, preamble"', source.preamble]
    written = _without_semicolon(source.text) if source.is_expression else source.text
    text = f'#line 1 "{source.file}"\n{written}'
    if source.struct is not None:
        lines.append(text)
    else:
        result = "void" if source.assigns else "auto"
        head = f"JAX_ELEMENTWISE_DEVICE {result} function({_formals(source, dtypes, outs)}) {{"
        body = f"return (\n{text}\n);" if source.is_expression else f"{text}\n;"
        lines += [head, body, "}"]
    lines += [f'#line 1 "the kernel of {source.file}"', "}"]
    lines += [f"#undef {macro}" for macro in macros]
    return "\n".join(lines) + "\n"


def _without_semicolon(text: str) -> str:
    code = without_comments(text).rstrip()
    return _without_semicolon(text[: len(code) - 1]) if code.endswith(";") else text


def _letters(source: Source, dtypes: Sequence[str]) -> dict[str, str]:
    pairs = zip(source.parameters, dtypes, strict=False)
    return {p.type: dtype for p, dtype in pairs if p.type is not None and p.is_letter}


def _formals(source: Source, dtypes: Sequence[str], outs: Sequence[str]) -> str:
    formals = [
        f"{CUDA_TYPES[dtype]} {p.name}"
        for p, dtype in zip(source.parameters, dtypes, strict=False)
        if p.name not in source.updated  # those are among the results
    ]
    if source.index is not None:
        formals.append(f"long long {source.index}")
    if source.assigns:
        assert source.outputs is not None
        formals += [f"{CUDA_TYPES[o]}& {p.name}" for p, o in zip(source.outputs, outs, strict=True)]
    return ", ".join(formals)


def _struct(source: Source, space: str, dtypes: Sequence[str]) -> str:
    """The functor's class, for operands of these dtypes."""
    assert source.struct is not None
    if source.struct.template is None:
        return f"{space}::{source.struct.name}"
    argument = template_argument(source, dtypes) or ""
    return f"{space}::{source.struct.name}<{CUDA_TYPES.get(argument, argument)}>"


def invocation(
    source: Source,
    space: str,
    dtypes: Sequence[str],
    arguments: Sequence[str],
    results: Sequence[str],
) -> str:
    """The call, of a functor that is constructed from its scalars where it is a struct."""
    given = list(arguments[: len(source.parameters)])
    index = [f"static_cast<long long>({a})" for a in arguments[len(source.parameters) :]]
    assigned = list(results) if source.assigns else []
    if source.struct is None:
        given = [
            argument
            for p, argument in zip(source.parameters, given, strict=True)
            if p.name not in source.updated
        ]
        return f"{space}::function({', '.join([*given, *index, *assigned])})"
    inputs = given[: len(source.inputs)]
    functor = f"{_struct(source, space, dtypes)}{{{', '.join(given[len(source.inputs) :])}}}"
    return f"{functor}({', '.join([*inputs, *index, *assigned])})"


def _pairs(jaxpr: Any, space: str) -> tuple[str, tuple[int, ...]]:
    """The member of a functor that calls ``Apply2`` of the user's, if that is all the functor is.

    Returns:
      The text, empty where a pair cannot be computed at once; and the operands that must be scalars
      for it, since the user's functor is constructed from them.
    """
    body = _compat.open_jaxpr(jaxpr)
    if len(body.eqns) != 1 or body.eqns[0].primitive.name != PRIMITIVE:
        return "", ()
    (equation,) = body.eqns
    source: Source = equation.params["source"]
    is_whole = list(equation.invars) == list(body.invars) and list(equation.outvars) == list(
        body.outvars
    )
    if not is_whole or source.struct is None or source.assigns or not source.has_pairs:
        return "", ()
    dtypes = [str(var.aval.dtype) for var in body.invars]
    types = [CUDA_TYPES[name] for name in (*equation.params["outs"], *dtypes)]
    count, given = len(source.inputs), len(source.parameters)
    formals = [
        f"{types[0]}* out",
        *(f"const {t}* in{i}" for i, t in enumerate(types[1 : given + 1])),
    ]
    arguments = ", ".join(["out", *(f"in{i}" for i in range(count))])
    functor = "F{" + ", ".join(f"*in{i}" for i in range(count, given)) + "}"
    text = f"""\
  template <class F = {_struct(source, space, dtypes)}, class... Index>
  JAX_ELEMENTWISE_DEVICE auto Apply2({", ".join(formals)}, const Index*...) const
      -> decltype(void(detail::declval<const F&>().Apply2({arguments}))) {{
    {functor}.Apply2({arguments});
  }}"""
    return text, tuple(range(count, given))


# ---- Calls in a kernel ---------------------------------------------------------------------------


class _OfCuda(Convention):
    """That of functors that call users' code: in CUDA's types."""

    options = (_extension.DEVICE_BY_DEFAULT,)

    def stored(self, dtype: DType) -> DType:
        storage = CUDA_TYPES[dtype.name] if dtype.is_narrow else dtype.storage
        return dataclasses.replace(dtype, storage=storage)

    def parameter(self, dtype: DType) -> str:
        return CUDA_TYPES[dtype.name] if dtype.is_narrow else dtype.compute

    def operand(self, name: str, dtype: DType) -> Value:
        return _widened(name, dtype)

    def result(self, value: Value) -> str:
        return _as_cuda(value)

    def headers(self, dtypes: Sequence[DType]) -> set[str]:
        narrow = {_HEADERS[dtype.name][0] for dtype in dtypes if dtype.is_narrow}
        return narrow | super().headers(dtypes)

    def pairs(self, jaxpr: Any) -> tuple[str, tuple[int, ...]]:
        return _pairs(jaxpr, "source0")


CONVENTION = _OfCuda()


def write_call(context: Context, *operands: Array) -> list[Array]:
    """Writes a call for every element of the operands, which are scalars or of one shape."""
    writer, equation, params = context.writer, context.equation, context.params
    source: Source = params["source"]
    outs = [DTYPES[name] for name in params["outs"]]
    shape = context.shape
    names = [str(atom.aval.dtype) for atom in equation.invars]
    for header in headers(source, [*names, *params["outs"]]):
        writer.use(header)
    space = writer.namespace(
        (source, *names, *params["outs"]),
        lambda space: declaration(source, names, params["outs"], space),
    )
    columns = [
        x.flat if x.shape == shape else [x[()]] * equation.outvars[0].aval.size for x in operands
    ]
    rows = [
        _write_one(writer, source, space, names, row, outs) for row in zip(*columns, strict=True)
    ]
    return [array_of(column, shape) for column in zip(*rows, strict=True)]


def _nothing(dtype: DType) -> Value:
    """What a result is before it is assigned: NaN, or 0 where there is none."""
    return constant(np.nan if dtype.kind in ("float", "complex") else 0, dtype)


def _write_one(
    writer: Writer,
    source: Source,
    space: str,
    dtypes: Sequence[str],
    operands: Sequence[Value],
    outs: Sequence[DType],
) -> list[Value]:
    names = [writer.name() for _ in outs]
    call = invocation(source, space, dtypes, [_as_cuda(x) for x in operands], names)
    if source.assigns:
        given = dict(zip((p.name for p in source.parameters), operands, strict=False))
        for name, dtype, output in zip(names, outs, source.outputs or (), strict=True):
            # A result that the text may leave alone is never garbage (assigned.py).
            before = given[output.name] if output.name in source.updated else _nothing(dtype)
            writer.line(f"{CUDA_TYPES[dtype.name]} {name} = {_as_cuda(before)};")
        writer.line(f"{call};")
    else:
        result = CUDA_TYPES[outs[0].name]
        cast = "to_integer" if outs[0].kind == "int" else "static_cast"
        writer.line(f"const {result} {names[0]} = {cast}<{result}>({call});")
    return [_widened(name, dtype) for name, dtype in zip(names, outs, strict=True)]
