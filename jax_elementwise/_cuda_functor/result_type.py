"""Asks the compiler for the type that a user's C++ returns: the machine code says it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from jax_elementwise import _extension
from jax_elementwise._codegen.iteration import iteration_space
from jax_elementwise._codegen.kernel import Kernel, identifier
from jax_elementwise._codegen.types import DTYPES
from jax_elementwise._cuda_functor import codegen as text
from jax_elementwise._cuda_functor.source import Source

__all__ = ["dtype_in", "kernel"]

# What stands before the answer, and which answers there are.
_MARK = b"ew result:"
_CODES = dict(enumerate(DTYPES, start=1))


def kernel(source: Source, dtypes: Sequence[str]) -> Kernel:
    """A kernel whose machine code holds the type of the functor's result for these operands.

    It calls the functor, so that what does not compile is found here.
    """
    types = [text.CUDA_TYPES[dtype] for dtype in dtypes]
    arguments = [f"in{i}" for i in range(len(types))]
    formals = ", ".join(f"{t} {a}" for t, a in zip(types, arguments, strict=True))
    values = ", ".join(f"detail::declval<{t}>()" for t in types)
    headers = sorted({"kernel.h", "math/complex.h", *text.headers(source, dtypes)})
    includes = "\n".join(f"#include <jax_elementwise/{header}>" for header in headers)
    codes = "\n".join(
        f"template <> struct Code<{text.CUDA_TYPES[name]}> : Is<{code}> {{}};"
        for code, name in _CODES.items()
        if text.is_declared(name, headers)
    )
    users = text.declaration(source, dtypes, (), "source0")
    whole = f"""\
{includes}
\0
namespace jax_elementwise {{

template <char N> struct Is {{ static constexpr char value = N; }};
template <class T> struct Code : Is<0> {{}};
template <class T> struct Code<const T> : Code<T> {{}};
template <class T> struct Code<T&> : Code<T> {{}};
{codes}
template <> struct Code<long> : Code<long long> {{}};
template <> struct Code<unsigned long> : Code<unsigned long long> {{}};
template <> struct Code<char> : Code<signed char> {{}};

JAX_ELEMENTWISE_DEVICE decltype(auto) call({formals}) {{
  return {text.invocation(source, "source0", dtypes, arguments, ())};
}}

extern "C" __device__ char @_result[] = {{
    {", ".join(map(str, _MARK))}, Code<decltype(call({values}))>::value}};

extern "C" __global__ void @(char* out) {{ out[0] = @_result[{len(_MARK)}]; }}

}}  // namespace jax_elementwise
"""
    name = f"{identifier(source.name)}_{hashlib.sha256((whole + users).encode()).hexdigest()[:8]}"
    whole = whole.replace("@", name).replace("\0", users)
    return Kernel(name, whole, (_extension.DEVICE_BY_DEFAULT,), iteration_space([], (1,)), 1)


def dtype_in(image: bytes) -> str | None:
    """The dtype that a compiled probe names; None for a type that is no dtype."""
    return _CODES.get(image[image.index(_MARK) + len(_MARK)])
