"""Walks a scalar jaxpr and writes the body of the functor: one constant per value."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax.sharding import AbstractMesh, use_abstract_mesh

from jax_elementwise import _compat
from jax_elementwise._codegen import indexing as indexing  # registers its rules
from jax_elementwise._codegen.arrays import ARRAYS, Call, apply_operator
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
    round_if_needed,
)
from jax_elementwise._table import MAX_ELEMENTS

__all__ = ["Body", "emit_body"]

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


# A loop of as many steps that are all alike costs more than they do.
_MOST_STEPS_WRITTEN_OUT = 8


class _Emitter:
    """The lines written so far, and a counter that names values in the order they appear."""

    def __init__(self, max_elements: float) -> None:
        self.max_elements = max_elements
        self.lines: list[str] = []
        self.headers: set[str] = set()
        self._indent = 1
        self._count = 0
        self._tables: dict[str, str] = {}

    def line(self, text: str) -> None:
        self.lines.append("  " * self._indent + text)

    def name(self) -> str:
        self._count += 1
        return f"v{self._count - 1}"

    def use(self, header: str) -> None:
        """Includes a header."""
        self.headers.add(header)

    def bind(self, value: Value) -> Value:
        """Gives a value a name, so that it is computed once."""
        if value.known is not None or value.code.isidentifier():
            return value
        self._declare(value.dtype)
        name = self.name()
        self.line(f"const {value.dtype.compute} {name} = {value.code};")
        return Value(name, value.dtype, value.exact)

    def entry(self, values: Sequence[Value], index: Value) -> str:
        """The entry of an array of known values, in memory, at an index."""
        dtype = values[0].dtype
        self._declare(dtype)
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

    def _dtype(self, aval: Any, what: str) -> DType:
        return known_dtype(aval, what, self.max_elements)

    def _declare(self, dtype: DType) -> None:
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
                if equation.primitive.name in ("sin", "cos") and equation.invars[0] in both:
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
            (inner, *_) = _compat.subjaxprs(equation)
            return self.jaxpr(inner, operands)
        if name in _CONTROL_FLOW:
            return _CONTROL_FLOW[name](self, equation, operands)
        if name in ARRAYS:
            aval = equation.outvars[0].aval
            dtype = self._dtype(aval, f"the result of {name}")
            results = ARRAYS[name](Call(self, equation.params, operands, aval.shape, dtype))
            return list(results) if equation.primitive.multiple_results else [results]
        if name in PARAMETRIC or name in OPERATORS:
            return [self._elementwise(equation, operands)]
        definition = _compat.definition(equation)
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
        dtype = self._dtype(aval, f"the result of {name}")
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

    # ---- Control flow ----------------------------------------------------------------------------

    def call(self, equation: Any, operands: list[Array]) -> list[Array]:
        """A function made by this package, called from another one, perhaps on arrays."""
        shape = equation.outvars[0].aval.shape
        columns = [np.broadcast_to(x, shape).ravel() for x in operands]
        results = [
            self.jaxpr(equation.params["functor"].jaxpr, [array_of([x], ()) for x in row])
            for row in zip(*columns, strict=True)
        ]
        by_result = zip(*results, strict=True) if results else [[]] * len(equation.outvars)
        return [array_of([x[()] for x in column], shape) for column in by_result]

    def cond(self, equation: Any, operands: list[Array]) -> list[Array]:
        """A branch that is really taken or not, so what is not chosen is not computed."""
        index, arguments = operands[0][()], operands[1:]
        branches = equation.params["branches"]
        results = [self._variables(var.aval) for var in equation.outvars]
        for number, branch in enumerate(branches):
            # Indices outside the range go to the nearest branch, as in lax.switch.
            test = f"{index.code} <= {number}" if index.dtype.kind == "int" else f"!{index.code}"
            keyword = f"if ({test}) {{" if number == 0 else f"}} else if ({test}) {{"
            self.line("} else {" if number == len(branches) - 1 else keyword)
            self._indent += 1
            for result, values in zip(results, self.jaxpr(branch, arguments), strict=True):
                for variable, value in zip(result.flat, values.flat, strict=True):
                    self.line(f"{variable.code} = {value.code};")
            self._indent -= 1
        self.line("}")
        return results

    def _variables(self, aval: Any) -> Array:
        """Variables to be assigned to."""
        dtype = self._dtype(aval, "a result of cond")
        self._declare(dtype)
        variables = [Value(self.name(), dtype) for _ in range(aval.size)]
        for variable in variables:
            self.line(f"{dtype.compute} {variable.code};")
        return array_of(variables, aval.shape)

    # ---- Loops -----------------------------------------------------------------------------------

    def while_loop(self, equation: Any, operands: list[Array]) -> list[Array]:
        """A loop that each element leaves when its own condition says so."""
        condition, step = equation.params["cond_jaxpr"], equation.params["body_jaxpr"]
        for_condition = equation.params["cond_nconsts"]
        for_step = for_condition + equation.params["body_nconsts"]
        state = self._state(operands[for_step:])
        self.line("while (true) {")
        self._indent += 1
        (goes_on,) = self.jaxpr(condition, [*operands[:for_condition], *state])
        test = " || ".join(self.bind(value).code for value in goes_on.flat) or "false"
        self.line(f"if (!({test})) break;")
        values = self.jaxpr(step, [*operands[for_condition:for_step], *state])
        if goes_on.shape:  # one loop for all that jax.vmap made of one: some have ended already
            values = [
                self._where(goes_on, new, old) for new, old in zip(values, state, strict=True)
            ]
        self._advance(state, values)
        self._indent -= 1
        self.line("}")
        return state

    def scan(self, equation: Any, operands: list[Array]) -> list[Array]:
        """A loop of a known number of steps: written out if they are few, or differ."""
        length = equation.params["length"]
        constants, carry, columns = _compat.scan_operands(equation, operands)
        if columns or len(equation.outvars) > len(carry) or length <= _MOST_STEPS_WRITTEN_OUT:
            return self._written_out(equation, constants, carry, columns)
        state = self._state(carry)
        counter = self.name()
        self.line(f"for (int64 {counter} = 0; {counter} < {length}; ++{counter}) {{")
        self._indent += 1
        self._advance(state, self.jaxpr(equation.params["jaxpr"], [*constants, *state]))
        self._indent -= 1
        self.line("}")
        return state

    def _written_out(
        self, equation: Any, constants: list[Array], carry: list[Array], columns: list[Array]
    ) -> list[Array]:
        """A scan step by step: each gets an entry of what is scanned over, and may give one."""
        length, step = equation.params["length"], equation.params["jaxpr"]
        stacked: list[list[Array]] = []
        for i in range(length)[:: -1 if equation.params["reverse"] else 1]:
            row = [column[i, ...] for column in columns]
            results = self.jaxpr(step, [*constants, *carry, *row])
            # Values that go around a loop are rounded, however many steps of it are written out.
            carry = [self._rounded(value) for value in results[: len(carry)]]
            stacked.append(results[len(carry) :])
        if equation.params["reverse"]:
            stacked.reverse()
        if not stacked:
            shapes = [var.aval.shape for var in equation.outvars[len(carry) :]]
            return [*carry, *(np.empty(shape, object) for shape in shapes)]
        return [*carry, *(np.stack(column) for column in zip(*stacked, strict=True))]

    def _where(self, tests: Array, new: Array, old: Array) -> Array:
        """One array or the other, by tests for its leading dimensions."""
        tests = tests.reshape(tests.shape + (1,) * (new.ndim - tests.ndim))
        triples = zip(np.broadcast_to(tests, new.shape).flat, new.flat, old.flat, strict=True)
        values = [
            self.bind(Value(f"{t.code} ? {x.code} : {y.code}", x.dtype, x.exact and y.exact))
            for t, x, y in triples
        ]
        return array_of(values, new.shape)

    def _state(self, initial: Sequence[Array]) -> list[Array]:
        """Variables that go around a loop, with their first values."""
        state = []
        for values in map(self._rounded, initial):
            variables = [Value(self.name(), value.dtype, exact=True) for value in values.flat]
            for variable, value in zip(variables, values.flat, strict=True):
                self._declare(value.dtype)
                self.line(f"{value.dtype.compute} {variable.code} = {value.code};")
            state.append(array_of(variables, values.shape))
        return state

    def _advance(self, state: Sequence[Array], values: Sequence[Array]) -> None:
        """Assigns the values of the next step, all at once."""
        variables = [x for array in state for x in array.flat]
        names = {x.code for x in variables}
        pairs = []
        for variable, value in zip(
            variables, (x for array in values for x in array.flat), strict=True
        ):
            if value.code == variable.code:
                continue
            new = self.bind(round_if_needed(value))
            if new.code in names:  # another variable, which is about to change
                name = self.name()
                self.line(f"const {new.dtype.compute} {name} = {new.code};")
                new = dataclasses.replace(new, code=name)
            pairs.append((variable, new))
        for variable, new in pairs:
            self.line(f"{variable.code} = {new.code};")

    def _rounded(self, values: Array) -> Array:
        rounded = [self.bind(round_if_needed(value)) for value in values.flat]
        return array_of(rounded, values.shape)


_CONTROL_FLOW: dict[str, Callable[[_Emitter, Any, list[Array]], list[Array]]] = {
    "cond": _Emitter.cond,
    "elementwise": _Emitter.call,
    "scan": _Emitter.scan,
    "while": _Emitter.while_loop,
}


def _angles(body: Any) -> dict[Any, Any]:
    """The variables of which a jaxpr computes both the sine and the cosine."""
    taken: dict[str, set[Any]] = {"sin": set(), "cos": set()}
    for equation in body.eqns:
        if equation.primitive.name in taken and not _compat.is_literal(equation.invars[0]):
            taken[equation.primitive.name].add(equation.invars[0])
    real = [var for var in taken["sin"] & taken["cos"] if np.dtype(var.aval.dtype).kind != "c"]
    return dict.fromkeys(real)


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
    """

    lines: list[str]
    results: list[Value]
    headers: list[str]


def emit_body(jaxpr: Any, operands: Sequence[Value], *, max_elements: float = MAX_ELEMENTS) -> Body:
    """The C++ that computes a closed scalar jaxpr.

    Args:
      jaxpr: the jaxpr.
      operands: what its operands are.
      max_elements: of arrays inside of it.

    Raises:
      NotImplementedError: for an operation with no C++, naming it and the user's line.
    """
    emitter = _Emitter(max_elements)
    try:
        # Definitions of primitives are traced here; they must not show the mesh of the call.
        with use_abstract_mesh(AbstractMesh((), ())):
            results = emitter.jaxpr(jaxpr, [array_of([operand], ()) for operand in operands])
    except UnsupportedError as error:
        raise _refusal(error, "") from None
    return Body(emitter.lines, [x[()] for x in results], sorted(emitter.headers))
