"""What ``cuda_functor`` is given, as a ``Source``: which struct, which names, which types."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from jax_elementwise._codegen.types import DTYPES
from jax_elementwise._cuda_functor.cplusplus import (
    Struct,
    find_function,
    find_struct,
    is_name,
    without_comments,
)
from jax_elementwise._cuda_functor.headers import Headers, leading_directives
from jax_elementwise._cuda_functor.source import Parameter, Source, file_of

__all__ = ["parse"]

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
    called, argument = _instance(name)
    struct = find_struct(text, called)
    if argument is not None and (struct is None or struct.name != called or not struct.template):
        raise ValueError(f"name={name!r}, but source has no template {called!r} of one type")
    shown = name or (struct.name if struct else "cuda_functor")
    preamble, text = _with_headers(preamble, text, file_of(shown), Headers(headers), struct is None)
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
        ins, outs = _updated(shown, ins, _assigned(text, shown, outs))
    source = Source(
        shown, text, preamble, struct, argument, ins, _parameters(scalars, "scalars"), outs, index
    )
    _check(source)
    _check_members(source)
    _check_template(source)
    return source


def _instance(name: str | None) -> tuple[str | None, str | None]:
    """The name of a class and the argument of its template: of ``"Pick<float>"``."""
    match = re.fullmatch(r"\s*(\w+)\s*<(.+)>\s*", name or "")
    return (match[1], match[2].strip()) if match else (name, None)


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
    declared = [each.name for each in struct.parameters]
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
    missing = [o for o in outputs or () if is_name(o.name) and not _may_set(code, o.name)]
    if not missing or outputs is None:
        return outputs
    if len(outputs) > 1:
        raise ValueError(f"{name!r} never assigns to the result {missing[0].name!r}")
    return (Parameter("", outputs[0].type),)


def _updated(
    name: str, inputs: tuple[Parameter, ...], outputs: tuple[Parameter, ...] | None
) -> tuple[tuple[Parameter, ...], tuple[Parameter, ...] | None]:
    """Inputs and results, of which those of one name have one type."""
    types = {p.name: p.type for p in inputs}
    results = {p.name: p.type for p in outputs or () if p.name in types}
    for each, wanted in results.items():
        if None not in (types[each], wanted) and types[each] != wanted:
            raise ValueError(
                f"{name!r}: {each!r} is an input of the type {types[each]} and a result of the "
                f"type {wanted}. A name in both is one variable and has one type"
            )
    both = {each: types[each] or wanted for each, wanted in results.items()}
    ins, outs = (
        tuple(Parameter(p.name, both.get(p.name, p.type)) for p in given)
        for given in (inputs, outputs or ())
    )
    return ins, None if outputs is None else outs


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
    count = len(source.inputs)
    named = [*source.parameters, *(p for p in source.outputs or () if p.name)]
    named = [p for i, p in enumerate(named) if p.name not in source.updated or i < count]
    names = [p.name for p in named] + ([source.index] if source.index is not None else [])
    for each in names:
        if not is_name(each):
            raise ValueError(
                f"{source.name!r}: {each!r} cannot be a name in C++: that has letters, digits and "
                "_, and is no keyword, no macro and no word of a compiler's"
            )
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
    members = [member.name for member in source.struct.members]
    scalars = [scalar.name for scalar in source.scalars]
    given = members[: len(scalars)]
    if scalars != given and sorted(scalars) == sorted(given):
        raise ValueError(
            f"{source.name!r} is constructed from its scalars in their order {tuple(scalars)}, and "
            f"its members have the order {tuple(given)}"
        )
    empty = [m.name for m in source.struct.members[len(scalars) :] if not m.has_value]
    if empty:
        raise ValueError(
            f"{source.name!r} is constructed from its scalars {tuple(scalars)}, so nothing gives "
            f"its members {tuple(empty)} a value: name them in scalars=, in the order in which "
            "they are declared, or initialise them"
        )


def _check_template(source: Source) -> None:
    struct = source.struct
    if struct is None or not struct.template or struct.has_default or source.argument is not None:
        return
    if not struct.of_template(len(source.inputs), len(source.scalars)):
        raise ValueError(
            f"{source.name!r} is a template of {struct.template}, which is the type of no input "
            "and of no scalar, so calls do not say what it is. Say it, as in "
            f"name='{struct.name}<float>'"
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
