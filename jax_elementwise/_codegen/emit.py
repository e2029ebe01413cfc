"""Walks a scalar jaxpr and writes the body of the functor: one constant per value."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
from jax.sharding import use_abstract_mesh

from jax_elementwise import _compat, _jaxprs
from jax_elementwise._codegen import indexing as indexing  # registers its rules
from jax_elementwise._codegen.arrays import ARRAYS, Call, apply_operator
from jax_elementwise._codegen.control import CONTROL
from jax_elementwise._codegen.cuda_functor import emit_call
from jax_elementwise._codegen.parametric import PARAMETRIC
from jax_elementwise._codegen.primitives import OPERATORS
from jax_elementwise._codegen.types import DType, bits_literal
from jax_elementwise._codegen.values import (
    Array,
    UnsupportedError,
    Value,
    array_of,
    constant,
    known_dtype,
)
from jax_elementwise._table import MAX_ELEMENTS

__all__ = ["Body", "emit_body"]

# Primitives that only wrap a jaxpr, which is written out in their place.
_INLINED = frozenset(
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


class Emitter:
    """The lines written so far, and a counter that names values in the order they appear."""

    def __init__(self, max_elements: float) -> None:
        self.max_elements = max_elements
        self.lines: list[str] = []
        self.headers: set[str] = set()
        self.indent = 1
        self.namespaces: list[str] = []
        self._count = 0
        self._spaces: dict[Hashable, str] = {}
        self._tables: dict[str, str] = {}

    def line(self, text: str) -> None:
        self.lines.append("  " * self.indent + text)

    def name(self) -> str:
        self._count += 1
        return f"v{self._count - 1}"

    def use(self, header: str) -> None:
        """Includes a header."""
        self.headers.add(header)

    def namespace(self, key: Hashable, text: Callable[[str], str]) -> str:
        """The name of a namespace before the kernel's own, whose text is made from that name."""
        if key not in self._spaces:
            self._spaces[key] = f"source{len(self._spaces)}"
            self.namespaces.append(text(self._spaces[key]))
        return self._spaces[key]

    def bind(self, value: Value) -> Value:
        """Gives a value a name, so that it is computed once."""
        if value.known is not None or value.code.isidentifier():
            return value
        self.declare(value.dtype)
        name = self.name()
        self.line(f"const {value.dtype.compute} {name} = {value.code};")
        return Value(name, value.dtype, value.exact)

    def entry(self, values: Sequence[Value], index: Value) -> str:
        """The entry of an array of known values, in memory, at an index."""
        dtype = values[0].dtype
        self.declare(dtype)
        element, codes, read = dtype.compute, [value.code for value in values], "{}"
        if any("bit_cast" in code for code in codes):  # no constant expression: bits are stored
            element = "uint32" if element == "float" else "uint64"
            codes = [bits_literal(value.known, dtype) for value in values]
            read = f"bit_cast<{dtype.compute}>({{}})"
        declared = f"{element} @[] = {{{', '.join(codes)}}};"
        if declared not in self._tables:
            name = f"table{len(self._tables)}"
            self._tables[declared] = name
            # At the beginning, since it may be needed again outside of the branch that is written.
            # Not constexpr, which NVRTC 13 turns into a chain of selections.
            self.lines.insert(0, "  static const " + declared.replace("@", name))
        return read.format(f"{self._tables[declared]}[{index.code}]")

    def dtype(self, aval: Any, what: str) -> DType:
        return known_dtype(aval, what, self.max_elements)

    def declare(self, dtype: DType) -> None:
        """Includes what declares a type that no operand may have."""
        if dtype.kind == "complex":
            self.use("complex.h")

    # ---- Jaxprs ----------------------------------------------------------------------------------

    def jaxpr(self, jaxpr: Any, operands: Sequence[Array]) -> list[Array]:
        """Writes a jaxpr's equations and returns its results."""
        body = _compat.open_jaxpr(jaxpr)
        env = dict(zip(body.invars, operands, strict=True))
        for var, const in zip(body.constvars, _compat.consts(jaxpr), strict=True):
            env[var] = _constants(const, var.aval, "a captured value")

        both = _angles(body)

        def read(atom: Any) -> Array:
            if _compat.is_literal(atom):
                return _constants(atom.val, atom.aval, "a constant")
            return env[atom]

        for equation in body.eqns:
            try:
                given = [read(atom) for atom in equation.invars]
                if _is_among(both, equation):
                    sines, cosines = self._sine_and_cosine(given[0], both, equation.invars[0])
                    results = [sines if equation.primitive.name == "sin" else cosines]
                else:
                    results = self._equation(equation, given)
            except UnsupportedError as error:
                location = _compat.user_location(equation)
                if not location:  # inside of a function that JAX jits, like jnp.sort: its caller's
                    raise
                raise _refusal(error, location) from None
            env.update(zip(equation.outvars, results, strict=True))
        return [read(atom) for atom in body.outvars]

    def _equation(self, equation: Any, operands: list[Array]) -> list[Array]:
        name = equation.primitive.name
        if name == "optimization_barrier":
            return operands
        if name in _INLINED:
            (inner, *_) = _jaxprs.subjaxprs(equation)
            return self.jaxpr(inner, operands)
        if name == "cuda_functor":
            return emit_call(self, equation, operands)
        if name in CONTROL:
            return CONTROL[name](self, equation, operands)
        if name in ARRAYS:
            aval = equation.outvars[0].aval
            dtype = self.dtype(aval, f"the result of {name}")
            results = ARRAYS[name](Call(self, equation.params, operands, aval.shape, dtype))
            return list(results) if equation.primitive.multiple_results else [results]
        if name in PARAMETRIC or name in OPERATORS:
            return [self._elementwise(equation, operands)]
        definition = _jaxprs.definition(equation)
        if definition is not None:
            return self.jaxpr(definition, operands)
        raise UnsupportedError(f"the primitive {name!r}")

    def _sine_and_cosine(self, angles: Array, both: dict[Any, Any], var: Any) -> Any:
        """Both of the same angle, which cost little more than one."""
        if both[var] is None:
            pairs = []
            for angle in angles.flat:
                names = [Value(self.name(), angle.dtype) for _ in range(2)]
                compute = angle.dtype.compute
                self.line(f"{compute} {names[0].code}, {names[1].code};")
                function = "sincosf" if compute == "float" else "sincos"
                self.line(f"{function}({angle.code}, &{names[0].code}, &{names[1].code});")
                pairs.append(names)
            both[var] = [array_of(column, angles.shape) for column in zip(*pairs, strict=True)]
        return both[var]

    def _elementwise(self, equation: Any, operands: list[Array]) -> Array:
        """Writes a primitive that works element by element."""
        name, aval = equation.primitive.name, equation.outvars[0].aval
        dtype = self.dtype(aval, f"the result of {name}")
        # Some operands of select_n and clamp may be scalars beside arrays.
        columns = [np.broadcast_to(x, aval.shape).ravel() for x in operands]
        rows = zip(*columns, strict=True) if columns else [()] * aval.size
        return array_of([self._scalar(equation, list(row), dtype) for row in rows], aval.shape)

    def _scalar(self, equation: Any, operands: list[Value], dtype: DType) -> Value:
        name = equation.primitive.name
        if dtype.kind == "complex" or any(x.dtype.kind == "complex" for x in operands):
            self.use("complex.h")
        if name in PARAMETRIC:
            return self.bind(PARAMETRIC[name](equation.params, operands, dtype))
        if name == "pow" and operands[1].dtype != dtype:  # an integer
            code = f"convert<{dtype.compute}>({operands[1].code})"
            operands[1] = self.bind(Value(code, dtype))
        return apply_operator(self, name, operands, dtype)


def _angles(body: Any) -> dict[Any, Any]:
    """The variables of which a jaxpr computes both the sine and the cosine."""
    taken: dict[str, set[Any]] = {"sin": set(), "cos": set()}
    for equation in body.eqns:
        if equation.primitive.name in taken and not _compat.is_literal(equation.invars[0]):
            taken[equation.primitive.name].add(equation.invars[0])
    real = [var for var in taken["sin"] & taken["cos"] if np.dtype(var.aval.dtype).kind != "c"]
    return dict.fromkeys(real)


def _is_among(angles: dict[Any, Any], equation: Any) -> bool:
    """Whether an equation is the sine or the cosine of one of them."""
    if equation.primitive.name not in ("sin", "cos"):
        return False
    (angle,) = equation.invars
    return not _compat.is_literal(angle) and angle in angles


def _constants(value: Any, aval: Any, what: str) -> Array:
    dtype = known_dtype(aval, what)
    return array_of([constant(x, dtype) for x in np.asarray(value).flat], aval.shape)


def _refusal(error: UnsupportedError, location: str) -> NotImplementedError:
    where = f", at {location}" if location else ""
    return NotImplementedError(
        f"cannot generate a kernel for {error}{where}. Compute it outside the elementwise "
        "function and pass the result as an argument, or use elementwise(..., lowering='xla'), "
        "which takes every JAX operation."
    )


@dataclasses.dataclass(frozen=True)
class Body:
    """The C++ of a scalar function.

    Attributes:
      lines: statements.
      results: what to assign to the results afterwards.
      headers: what must be included besides ``kernel.h``.
      namespaces: what must stand before it.
    """

    lines: list[str]
    results: list[Value]
    headers: list[str]
    namespaces: list[str]


def emit_body(jaxpr: Any, operands: Sequence[Value], *, max_elements: float = MAX_ELEMENTS) -> Body:
    """The C++ that computes a closed scalar jaxpr.

    Args:
      jaxpr: the jaxpr.
      operands: what its operands are.
      max_elements: of arrays inside of it.

    Raises:
      NotImplementedError: for an operation with no C++, naming it and the user's line.
    """
    emitter = Emitter(max_elements)
    try:
        # Definitions of primitives are traced here; they must not show the mesh of the call.
        with use_abstract_mesh(_jaxprs.NO_MESH):
            results = emitter.jaxpr(jaxpr, [array_of([operand], ()) for operand in operands])
    except UnsupportedError as error:
        raise _refusal(error, "") from None
    return Body(
        emitter.lines,
        [x[()] for x in results],
        sorted(emitter.headers),
        emitter.namespaces,
    )
