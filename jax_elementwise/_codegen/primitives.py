"""The one table of operators: what each lax primitive is in C++, and how it is tested.

A row of plain text is enough for most primitives. The text is a C++ expression over the values
``{0}``, ``{1}``, ...; ``{f}`` is the suffix of ``<math.h>`` names (``f`` for float, nothing for
double). Which text applies is looked up by the dtype of the first operand, most exact key first: a
dtype's name, ``"half"`` (16-bit floats, computed in float32), then ``"float"``, ``"int"`` or
``"bool"``. Primitives whose C++ depends on their parameters have a function instead
(``_codegen/parametric.py``), and those that hold other jaxprs are walked into by
``_codegen/emit.py``.

The functions named here that C++ does not have are in ``csrc/include/jax_elementwise/math.h``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from jax_elementwise._codegen.types import DType

__all__ = ["OPERATORS", "Operator"]

REAL = (-4.0, 4.0)
POSITIVE = (1e-3, 8.0)
UNIT = (-0.999, 0.999)
WIDE = (-30.0, 30.0)
ABOVE_ONE = (1.0, 8.0)

Forms = Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class Operator:
    """One row.

    Attributes:
      name: of the lax primitive, and of the function in ``jax.lax`` unless ``function`` differs.
      forms: C++ by dtype, as the module's docstring says.
      arity: number of operands.
      ulp: largest error, in units in the last place of the result, that the tests allow for
        (float32, float64); 16-bit floats are computed in float32 and get 1. The figures are those
        of the CUDA C++ programming guide, "Mathematical functions", for a function's whole range.
      domain: where test inputs come from.
      function: the name in ``jax.lax``.
      special: whether the special values (zeros of both signs, infinities, NaN, subnormals) are
        tested too, against ``jax.lax`` in float64.
    """

    name: str
    forms: Forms
    arity: int = 1
    ulp: tuple[int, int] = (0, 0)
    domain: tuple[float, float] = REAL
    function: str = ""
    special: bool = True

    def form(self, dtype: DType) -> str | None:
        """The C++ for operands of a dtype, or None where there is none."""
        classes = (dtype.name, "half" if dtype.is_half else "", dtype.kind)
        return next((self.forms[key] for key in classes if key in self.forms), None)


def _every(text: str) -> Forms:
    return {"float": text, "int": text, "bool": text}


def _number(text: str) -> Forms:
    return {"float": text, "int": text}


def _float(text: str) -> Forms:
    return {"float": text}


def _logic(bitwise: str, logical: str) -> Forms:
    return {"int": bitwise, "bool": logical}


_ROWS = (
    # Arithmetic.
    Operator("add", {"float": "{0} + {1}", "int": "wrap_add({0}, {1})"}, arity=2),
    Operator(
        "add_any", {"float": "{0} + {1}", "int": "wrap_add({0}, {1})"}, arity=2, function="add"
    ),
    Operator("sub", {"float": "{0} - {1}", "int": "wrap_sub({0}, {1})"}, arity=2),
    Operator("mul", {"float": "{0} * {1}", "int": "wrap_mul({0}, {1})"}, arity=2),
    Operator(
        "div",
        {"half": "divide_for_half({0}, {1})", "float": "{0} / {1}", "int": "divide({0}, {1})"},
        arity=2,
    ),
    Operator("rem", {"float": "fmod{f}({0}, {1})", "int": "remainder({0}, {1})"}, arity=2),
    Operator("neg", {"float": "-{0}", "int": "negate({0})"}),
    Operator("abs", {"float": "fabs{f}({0})", "int32": "absolute({0})", "int64": "absolute({0})"}),
    Operator("sign", _number("sign({0})")),
    Operator("max", _every("maximum({0}, {1})"), arity=2),
    Operator("min", _every("minimum({0}, {1})"), arity=2),
    Operator("square", {"float": "{0} * {0}", "int": "wrap_mul({0}, {0})"}),
    Operator(
        "one_minus_square",
        {"float": "(1 + {0}) * (1 - {0})", "int": "one_minus_square({0})"},
        ulp=(2, 2),
    ),
    Operator("copy", _every("{0}")),
    # Powers and roots.
    Operator("pow", _float("pow{f}({0}, {1})"), arity=2, ulp=(4, 2), domain=POSITIVE),
    Operator("sqrt", _float("sqrt{f}({0})"), domain=POSITIVE),
    Operator("rsqrt", _float("1 / sqrt{f}({0})"), ulp=(2, 2), domain=POSITIVE),
    Operator("cbrt", _float("cbrt{f}({0})"), ulp=(1, 1)),
    # Exponentials and logarithms.
    Operator("exp", _float("exp{f}({0})"), ulp=(2, 1), domain=WIDE),
    Operator("exp2", _float("exp2{f}({0})"), ulp=(2, 1), domain=WIDE),
    Operator("expm1", _float("expm1{f}({0})"), ulp=(1, 1)),
    Operator("log", _float("log{f}({0})"), ulp=(1, 1), domain=POSITIVE),
    Operator("log2", _float("log2{f}({0})"), ulp=(1, 1), domain=POSITIVE),
    Operator("log1p", _float("log1p{f}({0})"), ulp=(1, 1), domain=UNIT),
    Operator(
        "logistic",
        {"half": "logistic_for_half({0})", "float": "logistic({0})"},
        ulp=(3, 3),
        domain=WIDE,
    ),
    # Trigonometric and hyperbolic functions, and their inverses.
    Operator("sin", _float("sin{f}({0})"), ulp=(2, 2), domain=WIDE),
    Operator("cos", _float("cos{f}({0})"), ulp=(2, 2), domain=WIDE),
    Operator("tan", _float("tan{f}({0})"), ulp=(4, 2)),
    Operator("asin", _float("asin{f}({0})"), ulp=(2, 2), domain=UNIT),
    Operator("acos", _float("acos{f}({0})"), ulp=(2, 2), domain=UNIT),
    Operator("atan", _float("atan{f}({0})"), ulp=(2, 2)),
    Operator("atan2", _float("atan2{f}({0}, {1})"), arity=2, ulp=(3, 2)),
    Operator("sinh", _float("sinh{f}({0})"), ulp=(3, 2)),
    Operator("cosh", _float("cosh{f}({0})"), ulp=(2, 1)),
    Operator("tanh", _float("tanh{f}({0})"), ulp=(2, 2)),
    Operator("asinh", _float("asinh{f}({0})"), ulp=(3, 3)),
    Operator("acosh", _float("acosh{f}({0})"), ulp=(4, 3), domain=ABOVE_ONE),
    Operator("atanh", _float("atanh{f}({0})"), ulp=(3, 2), domain=UNIT),
    # The error function's family.
    Operator("erf", _float("erf{f}({0})"), ulp=(2, 2)),
    Operator("erfc", {"half": "erfc_for_half({0})", "float": "erfc{f}({0})"}, ulp=(4, 5)),
    Operator("erf_inv", _float("erfinv{f}({0})"), ulp=(2, 5), domain=UNIT),
    # Rounding and classification.
    Operator("floor", _float("floor{f}({0})")),
    Operator("ceil", _float("ceil{f}({0})")),
    Operator("is_finite", _float("is_finite({0})")),
    # Comparison.
    Operator("eq", _every("{0} == {1}"), arity=2),
    Operator("ne", _every("{0} != {1}"), arity=2),
    Operator("lt", _every("{0} < {1}"), arity=2),
    Operator("le", _every("{0} <= {1}"), arity=2),
    Operator("gt", _every("{0} > {1}"), arity=2),
    Operator("ge", _every("{0} >= {1}"), arity=2),
    # Logic.
    Operator("and", _logic("{0} & {1}", "{0} && {1}"), arity=2, function="bitwise_and"),
    Operator("or", _logic("{0} | {1}", "{0} || {1}"), arity=2, function="bitwise_or"),
    Operator("xor", _logic("{0} ^ {1}", "{0} != {1}"), arity=2, function="bitwise_xor"),
    Operator("not", _logic("~{0}", "!{0}"), function="bitwise_not"),
    # Bounds.
    Operator("clamp", _every("clamp({0}, {1}, {2})"), arity=3),
)

OPERATORS: dict[str, Operator] = {row.name: row for row in _ROWS}
