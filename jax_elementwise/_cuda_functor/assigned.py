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

# What g++ and clang++ say of a variable of the kernel below, or of a member of it.
_FOUND = re.compile(r"\bresult(\d+)\b.* uninitialized")


def check_assigned(source: Source, dtypes: Sequence[str], outs: Sequence[str]) -> None:
    """Refuses text that may leave a result without a value.

    Raises:
      CompileError: with the name of the result, and what to write.
    """
    if not source.assigns or _is_plain(source):
        return
    number = _unassigned(source, tuple(dtypes), tuple(outs))
    if number is not None:
        name = _names(source)[number]
        hint = "Assign it first, on every path"
        if source.struct is None:
            given = ", ".join([*(p.name for p in source.inputs), name])
            hint = (
                "If it begins with the value of an argument, name it among the inputs, too, as in "
                f"inputs={given!r}. Else assign it first, on every path"
            )
        raise _extension.CompileError(
            f"the result {number}, {name!r}, of {source.name!r} may be read before it is assigned, "
            f"or not be assigned at all. {hint}"
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
def _unassigned(source: Source, dtypes: tuple[str, ...], outs: tuple[str, ...]) -> int | None:
    """Which result may have no value; None where all have one, or no compiler says."""
    try:
        _extension.compile(_kernel(source, dtypes, outs), _extension.HOST_CPU)
    except _extension.Unavailable:
        return None
    except _extension.CompileError as error:
        found = _FOUND.search(str(error))
        return int(found[1]) if found else None
    return None


def _names(source: Source) -> list[str]:
    """What the text calls its results."""
    assert source.outputs is not None
    if source.struct is None:
        return [p.name for p in source.outputs]
    return [p.name for p in source.struct.parameters[-len(source.outputs) :]]


def _kernel(source: Source, dtypes: tuple[str, ...], outs: tuple[str, ...]) -> Kernel:
    """A kernel that calls the functor with results that have no value, and reads these."""
    operands = {f"in{i}": codegen.CUDA_TYPES[name] for i, name in enumerate(dtypes)}
    results = {f"result{i}": codegen.CUDA_TYPES[name] for i, name in enumerate(outs)}
    before = dict(zip((p.name for p in source.parameters), operands, strict=False))
    formals = [f"{c_type} {name}" for name, c_type in operands.items()]
    formals += [f"{c_type}* out{i}" for i, c_type in enumerate(results.values())]
    lines = [
        f"  {c_type} {variable}{' = ' + before[name] if name in source.updated else ''};"
        for (variable, c_type), name in zip(results.items(), _names(source), strict=True)
    ]
    lines += [f"  {codegen.invocation(source, 'source0', dtypes, list(operands), list(results))};"]
    for i, (variable, name) in enumerate(zip(results, outs, strict=True)):
        # A copy of a struct, as CUDA's types are, is no read of it to compilers.
        value = f"float({variable})" if name in codegen.OF_CUDA else variable
        lines.append(f"  *out{i} = {codegen.CUDA_TYPES[name]}({value});")
    users = codegen.declaration(source, dtypes, outs, "source0")
    headers = ["kernel.h", *sorted(codegen.headers(source, [*dtypes, *outs]))]
    includes = [f"#include <jax_elementwise/{header}>" for header in headers]
    digest = hashlib.sha256("\n".join([users, *lines]).encode()).hexdigest()[:8]
    name = f"{identifier(source.name)}_{digest}"
    head = f'extern "C" __global__ void {name}({", ".join(formals)}) {{'
    text = [*includes, users, "namespace jax_elementwise {", head, *lines, "}", "}"]
    options = (_extension.CHECK_ASSIGNED, _extension.DEVICE_BY_DEFAULT)
    return Kernel(name, "\n".join(text) + "\n", options, iteration_space([], (1,)), 1)
