"""Whether users' C++ assigns each of its results, on every path, before it reads it.

The machine's C++ compiler says so: it follows the paths, which no look at the text does. Where
there is none, or it cannot compile the text, results are NaN or 0 before they are assigned.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Sequence

from jax_elementwise import _extension
from jax_elementwise._codegen.iteration import iteration_space
from jax_elementwise._codegen.kernel import Kernel, identifier
from jax_elementwise._cuda_functor import codegen
from jax_elementwise._cuda_functor.cplusplus import without_comments
from jax_elementwise._cuda_functor.source import Source

__all__ = ["check_assigned"]

_FOUND = re.compile(r"\W(\w+)\W+(?:is|may be) used uninitialized|variable '(\w+)' is uninitialized")


def check_assigned(source: Source, dtypes: Sequence[str], outs: Sequence[str]) -> None:
    """Refuses text that may leave a result without a value.

    Raises:
      CompileError: with the name of the result, and what to write.
    """
    if not source.assigns or _is_plain(source):
        return
    name = _unassigned(source, tuple(dtypes), tuple(outs))
    if name is not None:
        given = ", ".join([*(p.name for p in source.inputs), name])
        raise _extension.CompileError(
            f"the result {name!r} of {source.name!r} may be read before it is assigned, or not be "
            f"assigned at all. If it begins with the value of an argument, name it among the "
            f"inputs, too, as in inputs={given!r}; else assign it first, on every path"
        )


def _is_plain(source: Source) -> bool:
    """Whether the text is nothing but assignments, of each result before it is read."""
    code = without_comments(source.text)
    if (
        source.struct is not None
        or source.preamble
        or re.search(r"[{}?#]|\b(if|for|do|while)\b", code)
    ):
        return False
    missing = {p.name for p in source.outputs or ()} - source.updated
    for statement in code.split(";"):
        target = re.match(r"\s*(\w+)\s*=(?!=)(.*)", statement, re.DOTALL)
        if missing & set(re.findall(r"\w+", target[2] if target else statement)):
            return False
        missing -= {target[1]} if target else set()
    return not missing


@functools.lru_cache(maxsize=4096)
def _unassigned(source: Source, dtypes: tuple[str, ...], outs: tuple[str, ...]) -> str | None:
    """The result that may have no value; None where all have one, or no compiler says."""
    try:
        _extension.compile(_kernel(source, dtypes, outs), _extension.HOST_CPU)
    except _extension.Unavailable:
        return None
    except _extension.CompileError as error:
        found = [first or second for first, second in _FOUND.findall(str(error))]
        results = _variables(source, outs)
        return next((results[name] for name in found if name in results), None)
    return None


def _variables(source: Source, outs: tuple[str, ...]) -> dict[str, str]:
    """The variables of the kernel below, and what the user calls the results in them."""
    names = [p.name for p in source.outputs or ()]
    if source.struct is not None:
        names = [p.name for p in source.struct.parameters[-len(outs) :]]
    return {f"result_{name}": name for name in names}


def _kernel(source: Source, dtypes: tuple[str, ...], outs: tuple[str, ...]) -> Kernel:
    """A kernel that calls the functor with results that have no value."""
    types = [codegen.CUDA_TYPES[name] for name in (*dtypes, *outs)]
    operands = [f"in{i}" for i in range(len(dtypes))]
    formals = [f"{t} {name}" for t, name in zip(types, operands, strict=False)]
    formals += [f"{t}* out{i}" for i, t in enumerate(types[len(dtypes) :])]
    variables = list(_variables(source, outs))
    before = {p.name: operand for p, operand in zip(source.parameters, operands, strict=False)}
    declared = [
        f"  {t} {v}{' = ' + before[name] if name in source.updated else ''};"
        for t, (v, name) in zip(types[len(dtypes) :], _variables(source, outs).items(), strict=True)
    ]
    stored = [f"  *out{i} = {v};" for i, v in enumerate(variables)]
    call = codegen.invocation(source, "source0", dtypes, operands, variables)
    users = codegen.declaration(source, dtypes, outs, "source0")
    headers = ["kernel.h", *sorted(codegen.headers(source, [*dtypes, *outs]))]
    includes = [f"#include <jax_elementwise/{header}>" for header in headers]
    name = f"{identifier(source.name)}_{hashlib.sha256((users + call).encode()).hexdigest()[:8]}"
    head = f'extern "C" __global__ void {name}({", ".join(formals)}) {{'
    body = [*declared, f"  {call};", *stored, "}"]
    text = [*includes, users, "namespace jax_elementwise {", head, *body, "}"]
    options = (_extension.CHECK_ASSIGNED, _extension.DEVICE_BY_DEFAULT)
    return Kernel(name, "\n".join(text) + "\n", options, iteration_space([], (1,)), 1)
