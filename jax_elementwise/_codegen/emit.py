"""Walks a scalar jaxpr and writes the body of the functor: one constant per equation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jax_elementwise import _compat
from jax_elementwise._codegen.parametric import PARAMETRIC, known_dtype
from jax_elementwise._codegen.primitives import OPERATORS
from jax_elementwise._codegen.types import DType, literal
from jax_elementwise._codegen.values import UnsupportedError, Value

__all__ = ["emit_body"]

# Primitives that only wrap a jaxpr, which is written out in their place.
_INLINED = frozenset(
    {
        "jit",
        "closed_call",
        "core_call",
        "custom_jvp_call",
        "custom_vjp_call",
        "remat2",
        "checkpoint",
    }
)


class _Emitter:
    """The lines written so far, and a counter that names values in the order they appear."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._indent = 1
        self._count = 0

    def line(self, text: str) -> None:
        self.lines.append("  " * self._indent + text)

    def name(self) -> str:
        self._count += 1
        return f"v{self._count - 1}"

    def bind(self, value: Value) -> Value:
        """Gives a value a name, so that it is computed once."""
        if value.code.isidentifier():
            return value
        name = self.name()
        self.line(f"const {value.dtype.compute} {name} = {value.code};")
        return Value(name, value.dtype, value.exact)

    # ---- Jaxprs ----------------------------------------------------------------------------------

    def jaxpr(self, jaxpr: Any, operands: Sequence[Value]) -> list[Value]:
        """Writes a jaxpr's equations and returns its results."""
        body = _compat.open_jaxpr(jaxpr)
        env = dict(zip(body.invars, operands, strict=True))
        for var, const in zip(body.constvars, _compat.consts(jaxpr), strict=True):
            dtype = known_dtype(var.aval, "a captured value")
            env[var] = Value(literal(const, dtype), dtype, exact=True)

        def read(atom: Any) -> Value:
            if not _compat.is_literal(atom):
                return env[atom]
            dtype = known_dtype(atom.aval, "a constant")
            return Value(literal(atom.val, dtype), dtype, exact=True)

        for equation in body.eqns:
            try:
                results = self._equation(equation, [read(atom) for atom in equation.invars])
            except UnsupportedError as error:
                raise _located(error, equation) from None
            env.update(zip(equation.outvars, results, strict=True))
        return [read(atom) for atom in body.outvars]

    def _equation(self, equation: Any, operands: list[Value]) -> list[Value]:
        name = equation.primitive.name
        if name == "elementwise":  # a function made by this package, called from another one
            return self.jaxpr(equation.params["functor"].jaxpr, operands)
        if name == "optimization_barrier":
            return operands
        if name in _INLINED:
            (inner, *_) = _compat.subjaxprs(equation)
            return self.jaxpr(inner, operands)
        if name in _CONTROL_FLOW:
            return _CONTROL_FLOW[name](self, equation, operands)
        if name not in PARAMETRIC and name not in OPERATORS:
            raise UnsupportedError(f"the primitive {name!r}")
        dtype = known_dtype(equation.outvars[0].aval, f"the result of {name}")
        return [self.bind(_expression(equation, operands, dtype))]

    # ---- Control flow ----------------------------------------------------------------------------

    def cond(self, equation: Any, operands: list[Value]) -> list[Value]:
        """A branch that is really taken or not, so what is not chosen is not computed."""
        index, *arguments = operands
        branches = equation.params["branches"]
        dtypes = [known_dtype(var.aval, "a result of cond") for var in equation.outvars]
        results = [Value(self.name(), dtype) for dtype in dtypes]
        for result in results:
            self.line(f"{result.dtype.compute} {result.code};")
        for number, branch in enumerate(branches):
            # Indices outside the range go to the nearest branch, as in lax.switch.
            test = f"{index.code} <= {number}" if index.dtype.kind == "int" else f"!{index.code}"
            keyword = f"if ({test}) {{" if number == 0 else f"}} else if ({test}) {{"
            self.line("} else {" if number == len(branches) - 1 else keyword)
            self._indent += 1
            for result, value in zip(results, self.jaxpr(branch, arguments), strict=True):
                self.line(f"{result.code} = {value.code};")
            self._indent -= 1
        self.line("}")
        return results


_CONTROL_FLOW: dict[str, Callable[[_Emitter, Any, list[Value]], list[Value]]] = {
    "cond": _Emitter.cond,
}


def _expression(equation: Any, operands: list[Value], dtype: DType) -> Value:
    name = equation.primitive.name
    if name in PARAMETRIC:
        return PARAMETRIC[name](equation.params, operands, dtype)
    form = OPERATORS[name].form(operands[0].dtype)
    if form is None:
        raise UnsupportedError(f"{name!r} of {operands[0].dtype.name}")
    suffix = "f" if operands[0].dtype.compute == "float" else ""
    codes = [operand.code for operand in operands]
    exact = not dtype.is_half or (name == "copy" and operands[0].exact)
    return Value(form.format(*codes, f=suffix), dtype, exact)


def _located(error: UnsupportedError, equation: Any) -> NotImplementedError:
    location = _compat.user_location(equation)
    where = f", at {location}" if location else ""
    return NotImplementedError(
        f"cannot generate a kernel for {error}{where}. Compute it outside the elementwise "
        "function and pass the result as an argument, or use elementwise(..., lowering='xla'), "
        "which takes every JAX operation."
    )


def emit_body(jaxpr: Any, operands: Sequence[Value]) -> tuple[list[str], list[Value]]:
    """The lines of C++ that compute a closed scalar jaxpr, and its results.

    Raises:
      NotImplementedError: for an operation with no C++, naming it and the user's line.
    """
    emitter = _Emitter()
    try:
        return emitter.lines, emitter.jaxpr(jaxpr, operands)
    except UnsupportedError as error:
        raise NotImplementedError(f"cannot generate a kernel: {error}") from None
