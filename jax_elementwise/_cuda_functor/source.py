"""CUDA C++ that a user gives for one element: its text, and the names and types it works on."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from jax_elementwise._codegen.types import DTYPES
from jax_elementwise._cuda_functor.cplusplus import (
    Struct,
    find_function,
    find_struct,
    without_comments,
)
from jax_elementwise._cuda_functor.headers import Headers, leading_directives

__all__ = ["Parameter", "Source", "parse"]

# What C++ and CUDA call the dtypes.
_TYPES = {
    "char": "int8",
    "signed char": "int8",
    "unsigned char": "uint8",
    "short": "int16",
    "unsigned short": "uint16",
    "int": "int32",
    "unsigned": "uint32",
    "unsigned int": "uint32",
    "long": "int64",
    "long long": "int64",
    "unsigned long": "uint64",
    "unsigned long long": "uint64",
    "int8_t": "int8",
    "int16_t": "int16",
    "int32_t": "int32",
    "int64_t": "int64",
    "uint8_t": "uint8",
    "uint16_t": "uint16",
    "uint32_t": "uint32",
    "uint64_t": "uint64",
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "__half": "float16",
    "nv_bfloat16": "bfloat16",
    "__nv_bfloat16": "bfloat16",
    "__nv_fp8_e4m3": "float8_e4m3fn",
    "__nv_fp8_e5m2": "float8_e5m2",
}

_KEYWORDS = frozenset(
    re.findall(
        r"\w+",
        """
        alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t
        char32_t class compl const const_cast constexpr continue decltype default delete do double
        dynamic_cast else enum explicit export extern false float for friend goto if inline int long
        mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public
        register reinterpret_cast return short signed sizeof static static_assert static_cast struct
        switch template this thread_local throw true try typedef typeid typename union unsigned
        using virtual void volatile wchar_t while xor xor_eq
        """,
    )
)


@dataclasses.dataclass(frozen=True)
class Parameter:
    """A name in the text, and its type: a dtype, a letter for one that calls decide, or None."""

    name: str
    type: str | None = None

    @property
    def is_letter(self) -> bool:
        """Whether the type is a letter."""
        return self.type is not None and self.type not in DTYPES


@dataclasses.dataclass(frozen=True)
class Source:
    """A functor's text, with its headers written out, and what it works on.

    Attributes:
      name: for messages, kernels and profiles.
      text: the user's.
      preamble: what stands before it.
      struct: the functor's class; None where the text is an expression or statements.
      inputs: operands, one element each.
      scalars: operands of rank 0. A struct is constructed from them.
      outputs: results; None for one whose type the text decides. Those with names are assigned.
      index: what the text calls the index of the element; None where it does not ask for it.
    """

    name: str
    text: str
    preamble: str
    struct: Struct | None
    inputs: tuple[Parameter, ...]
    scalars: tuple[Parameter, ...]
    outputs: tuple[Parameter, ...] | None
    index: str | None

    @property
    def file(self) -> str:
        """What compilers call the text in their messages."""
        return _file(self.name)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Inputs and scalars: what a call gives."""
        return self.inputs + self.scalars

    @property
    def assigns(self) -> bool:
        """Whether results are assigned to names or references, rather than returned."""
        if self.struct is not None:
            return self.struct.returns_void
        return self.outputs is not None and self.outputs[0].name != ""

    @property
    def has_pairs(self) -> bool:
        """Whether the text has an ``Apply2``, for two elements at once."""
        return re.search(r"\bApply2\b", without_comments(self.preamble + self.text)) is not None

    @property
    def is_expression(self) -> bool:
        """Whether the text is what a function returns, and not the statements of one."""
        returns = re.search(r"\breturn\b", without_comments(self.text))
        return self.struct is None and not self.assigns and returns is None


# ---- Parsing -------------------------------------------------------------------------------------


def parse(
    text: str,
    *,
    name: str | None,
    inputs: Any,
    scalars: Any,
    outputs: Any,
    index: str | None,
    preamble: str,
    headers: Mapping[str, str],
) -> Source:
    """Makes a ``Source`` of what ``cuda_functor`` is given; see there.

    Raises:
      TypeError: for an argument of another type than these.
      ValueError: for text without a functor, names and types that are none, and headers that are
        not given.
    """
    for what, value in (("source", text), ("preamble", preamble)):
        if not isinstance(value, str):
            raise TypeError(f"{what} must be CUDA C++ as a string, not {value!r}")
    for what, given in (("name", name), ("index", index)):
        if not isinstance(given, str | None):
            raise TypeError(f"{what} must be a string, not {given!r}")
    if not isinstance(headers, Mapping) or not all(isinstance(t, str) for t in headers.values()):
        raise TypeError(f"headers must be texts by name, as in {{'a.h': ...}}, not {headers!r}")
    if not without_comments(text).strip():
        raise ValueError("source has no code")
    if any("\0" in each for each in (text, preamble, *headers.values())):
        raise ValueError("source, preamble and headers must be text, and hold a zero byte")
    _check_characters({"source": text, "preamble": preamble, "name": name or ""})
    _check_characters({f"the header {name!r}": name + text for name, text in headers.items()})
    struct = find_struct(text, name)
    shown = name or (struct.name if struct else "cuda_functor")
    preamble, text = _with_headers(preamble, text, _file(shown), Headers(headers), struct is None)
    ins, outs = _parameters(inputs, "inputs"), _outputs(outputs)
    if struct is not None:
        ins = _inputs_of(struct, shown, inputs is not None, ins, outs, index)
    elif function := find_function(text):
        raise ValueError(
            f"source is the function {function!r}. Give it as preamble=, and as source an "
            f"expression that calls it, as in source='{function}(x)'. Kernels (__global__) the "
            "package writes itself"
        )
    elif inputs is None:
        raise ValueError(f"{shown!r} needs the names of its inputs, as in inputs='x, y'")
    else:
        outs = _assigned(text, shown, outs)
    source = Source(
        shown, text, preamble, struct, ins, _parameters(scalars, "scalars"), outs, index
    )
    _check(source)
    _check_members(source)
    return source


def _check_characters(texts: Mapping[str, str]) -> None:
    """What a file is decoded to, where its encoding is another one, no compiler can be given."""
    for what, text in texts.items():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueError(
                f"{what} has a lone surrogate ({text[error.start]!r}), which is no character. Read "
                "it in the encoding that it is written in"
            ) from None


def _with_headers(
    preamble: str, text: str, file: str, headers: Headers, is_body: bool
) -> tuple[str, str]:
    """Both with the headers that they include; those at the head of a function's body before it."""
    head, rest = leading_directives(text) if is_body else ("", text)
    before = [headers.expand(preamble, f"{file}, preamble")] if preamble else []
    if head:
        before += [f'#line 1 "{file}"', headers.expand(head, file)]
    return "\n".join(before), headers.expand(rest, file)


def _inputs_of(
    struct: Struct,
    name: str,
    are_given: bool,
    given: tuple[Parameter, ...],
    outputs: tuple[Parameter, ...] | None,
    index: str | None,
) -> tuple[Parameter, ...]:
    """Those of a struct: the parameters of ``operator()`` before the index and the results."""
    declared = list(struct.parameters)
    if struct.returns_void:
        if outputs is None:
            raise ValueError(
                f"{name!r}: operator() returns nothing, so outputs= must give the types of the "
                "results that it assigns to its last parameters"
            )
        del declared[len(declared) - len(outputs) :]
    elif outputs is not None and len(outputs) > 1:
        raise ValueError(
            f"{name!r}: operator() returns one result, and outputs= names {len(outputs)}. For "
            "several it must return void and assign to its last parameters"
        )
    if index is not None and (not declared or declared.pop() != index):
        raise ValueError(f"{name!r}: the last parameter of operator() must be the index, {index!r}")
    if not are_given:
        return tuple(Parameter(each) for each in declared)
    if len(given) != len(declared):
        raise ValueError(
            f"{name!r}: operator() has {len(declared)} inputs {tuple(declared)}, and "
            f"inputs= names {len(given)}"
        )
    return given


def _assigned(
    text: str, name: str, outputs: tuple[Parameter, ...] | None
) -> tuple[Parameter, ...] | None:
    """The results of an expression or of statements; one that is never assigned is returned."""
    code = without_comments(text)
    missing = [
        o
        for o in outputs or ()
        if o.name and o.name not in _KEYWORDS and not _may_set(code, o.name)
    ]
    if not missing or outputs is None:
        return outputs
    if len(outputs) > 1:
        raise ValueError(f"{name!r} never assigns to the result {missing[0].name!r}")
    return (Parameter("", outputs[0].type),)


def _may_set(code: str, name: str) -> bool:
    """Whether code assigns to a variable, or gives it to what may."""
    word = rf"(?<![\w.])(?<!->)(?<!::){re.escape(name)}\b"
    ways = (
        rf"{word}(\.\w+|\[[^]]*\])*\s*([-+*/%&|^]|<<|>>)?=(?!=)",
        rf"{word}\s*(\+\+|--)|(\+\+|--|&)\s*{word}",
        rf"[(,]\s*{word}\s*[,)]",  # an argument
        rf"&\s*\w+\s*[=({{]\s*{word}",  # a reference's
    )
    return any(re.search(way, code) for way in ways)


def _check(source: Source) -> None:
    named = [*source.parameters, *(p for p in source.outputs or () if p.name)]
    names = [p.name for p in named] + ([source.index] if source.index is not None else [])
    for each in names:
        if not re.fullmatch(r"[A-Za-z_]\w*", each, re.ASCII) or each in _KEYWORDS:
            raise ValueError(f"{source.name!r}: {each!r} cannot be a name in C++")
        if names.count(each) > 1:
            raise ValueError(f"{source.name!r} has two parameters {each!r}")
    outputs = source.outputs or ()
    if source.struct is None and len(outputs) > 1 and not all(p.name for p in outputs):
        raise ValueError(
            f"{source.name!r}: several results need names to assign to, as in "
            "outputs='float s, float d'"
        )
    if not source.parameters:
        raise ValueError(f"{source.name!r} has no inputs, so there is no shape to compute")
    bound = {p.type for p in source.parameters}
    for output in source.outputs or ():
        if output.type is None:
            raise ValueError(
                f"{source.name!r}: the result {output.name!r} needs a type, as in "
                f"outputs='float {output.name}'"
            )
        if output.is_letter and output.type not in bound:
            raise ValueError(
                f"{source.name!r}: the type {output.type!r} of a result is that of no input"
            )


def _check_members(source: Source) -> None:
    """Of a struct without a constructor, whose members are its scalars: all have a value."""
    if source.struct is None or source.struct.members is None:
        return
    members = [member for member, _ in source.struct.members]
    scalars = [scalar.name for scalar in source.scalars]
    given = members[: len(scalars)]
    if scalars != given and sorted(scalars) == sorted(given):
        raise ValueError(
            f"{source.name!r} is constructed from its scalars in their order {tuple(scalars)}, and "
            f"its members have the order {tuple(given)}"
        )
    empty = [m for m, has_value in source.struct.members[len(scalars) :] if not has_value]
    if empty:
        raise ValueError(
            f"{source.name!r} is constructed from its scalars {tuple(scalars)}, so nothing gives "
            f"its members {tuple(empty)} a value: name them in scalars=, in the order in which "
            "they are declared, or initialise them"
        )


def _parameters(given: Any, what: str) -> tuple[Parameter, ...]:
    """Of ``"T x, T y"``, or of a sequence of such declarations."""
    if given is None:
        return ()
    if isinstance(given, str):
        given = [part for part in given.split(",") if part.strip()]
    if not isinstance(given, Iterable) or not all(isinstance(part, str) for part in given):
        raise TypeError(f"{what} must be like 'x, y' or 'float x, T y', not {given!r}")
    return tuple(_declaration(part, what) for part in given)


def _declaration(text: str, what: str) -> Parameter:
    *words, name = text.split() or [""]
    return Parameter(name, _type(" ".join(words), what) if words else None)


def _outputs(given: Any) -> tuple[Parameter, ...] | None:
    """Of ``"T z, bool found"``, of a dtype, or of a sequence of dtypes."""
    if given is None:
        return None
    if isinstance(given, str):
        if "," in given or " " in given.strip():
            return _parameters(given, "outputs")
        given = [given]
    elif not isinstance(given, Sequence):
        given = [given]
    outputs = tuple(Parameter("", _type(each, "outputs")) for each in given)
    if not outputs:
        raise ValueError("outputs must name at least one result")
    return outputs


def _type(given: Any, what: str) -> str:
    """A dtype's name, or a letter."""
    if isinstance(given, str):
        if given in DTYPES or re.fullmatch("[A-Z]", given):
            return given
        if given in _TYPES:
            return _TYPES[given]
    else:
        with contextlib.suppress(TypeError):
            if given is not None and (name := np.dtype(given).name) in DTYPES:
                return name
    raise ValueError(
        f"{what} has the type {given!r}, which is neither a dtype ({', '.join(DTYPES)}), nor what "
        "C++ calls one, nor a capital letter"
    )


def _file(name: str) -> str:
    return re.sub(r'["\\\n]', "_", name)
