"""The one table of operators: what each lax primitive is in C++, and how it is tested.

A row of plain text is enough for most primitives. The text is a C++ expression over the values
``{0}``, ``{1}``, ...; ``{f}`` is the suffix of ``<math.h>`` names (``f`` for float, nothing for
double), ``{storage}`` and ``{compute}`` are the types that the first operand is stored as and
computed in. Which text applies is looked up by the dtype of the first operand, most exact key
first: a dtype's name, ``"narrow"`` (floats of 8 and 16 bits, computed in float32), ``"signed"``
(integers), then ``"float"``, ``"complex"``, ``"int"`` or ``"bool"``.

``tools/operator_table.py`` makes ``docs/operators.md`` of this table; the comments that head its
groups are the headings there.

Primitives whose C++ depends on their parameters have a function instead
(``parametric.py``), those that move elements of small arrays about are in ``arrays.py`` and
``indexing.py``, branches, loops and calls in ``control.py``.

The functions named here that C++ does not have are in ``csrc/include/jax_elementwise``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from jax_elementwise._codegen.fusion import sine_and_cosine_p
from jax_elementwise._codegen.registry import Context, rule, scalar_rule
from jax_elementwise._codegen.types import DType
from jax_elementwise._codegen.values import (
    Array,
    UnsupportedError,
    Value,
    array_of,
    round_if_needed,
)
from jax_elementwise._codegen.writer import Writer

__all__ = ["MEANINGS", "OPERATORS", "Operator", "apply_operator"]

REAL = (-4.0, 4.0)
POSITIVE = (1e-3, 8.0)
UNIT = (-0.999, 0.999)
WIDE = (-30.0, 30.0)
ABOVE_ONE = (1.0, 8.0)

Forms = Mapping[str, str]
Domain = tuple[float, float] | range


@dataclasses.dataclass(frozen=True)
class Operator:
    """One row.

    Attributes:
      name: of the lax primitive, and of the function in ``jax.lax`` unless ``function`` differs.
      forms: C++ by dtype, as the module's docstring says.
      arity: number of operands.
      ulp: largest error, in units in the last place of the result, that the tests allow for
        (float32, float64); narrow floats are computed in float32 and get 1. The figures are those
        of the CUDA C++ programming guide, "Mathematical functions", for a function's whole range.
      complex_eps: largest error of complex results that the tests allow for, in machine epsilons of
        the result's magnitude; on a GPU, whose elementary functions are less exact, twice that.
      domain: where test inputs come from.
      domains: the same for each operand, where they differ; a range is of integers.
      function: the name in ``jax.lax``.
      special: whether the special values (zeros of both signs, infinities, NaN, subnormals) are
        tested too, against ``jax.lax`` in float64.
      header: what of ``math/`` must be included for it.
      rounds: whether narrow floats are rounded to their dtype before they go in.
      converts: whether operands of another dtype are converted to that of the result.
    """

    name: str
    forms: Forms
    arity: int = 1
    ulp: tuple[int, int] = (0, 0)
    complex_eps: int = 4
    domain: tuple[float, float] = REAL
    domains: tuple[Domain, ...] = ()
    function: str = ""
    special: bool = True
    header: str = ""
    rounds: bool = False
    converts: bool = False

    def operand_domains(self) -> tuple[Domain, ...]:
        """Where test inputs come from, operand by operand."""
        return self.domains or (self.domain,) * self.arity

    def form(self, dtype: DType) -> str | None:
        """The C++ for operands of a dtype, or None where there is none."""
        signed = dtype.kind == "int" and dtype.name.startswith("int")
        narrow = "narrow" if dtype.is_narrow else ""
        classes = (dtype.name, narrow, "signed" if signed else "", dtype.kind)
        return next((self.forms[key] for key in classes if key in self.forms), None)


def _every(text: str) -> Forms:
    return {"float": text, "int": text, "bool": text}


def _number(text: str) -> Forms:
    return {"float": text, "int": text}


def _int(text: str) -> Forms:
    return {"int": text}


def _float(text: str) -> Forms:
    return {"float": text}


def _wide(text: str) -> Forms:
    return {"float32": text, "float64": text}


def _complex(text: str, function: str) -> Forms:
    return {"float": text, "complex": f"complex_{function}({{0}})"}


def _arithmetic(operator: str, function: str) -> Forms:
    plain = f"{{0}} {operator} {{1}}"
    return {"float": plain, "complex": plain, "int": f"{function}({{0}}, {{1}})"}


def _equality(text: str) -> Forms:
    return {**_every(text), "complex": text}


def _logic(bitwise: str, logical: str) -> Forms:
    return {"int": bitwise, "bool": logical}


def _total(operator: str) -> Forms:
    return {
        "float": f"total_order({{0}}) {operator} total_order({{1}})",
        "int": f"{{0}} {operator} {{1}}",
    }


_ROWS = (
    # Arithmetic.
    Operator("add", _arithmetic("+", "wrap_add"), arity=2, complex_eps=0),
    Operator("add_any", _arithmetic("+", "wrap_add"), arity=2, complex_eps=0, function="add"),
    Operator("sub", _arithmetic("-", "wrap_sub"), arity=2, complex_eps=0),
    Operator("mul", _arithmetic("*", "wrap_mul"), arity=2, complex_eps=2),
    Operator(
        "div",
        {
            "narrow": "divide_for_narrow({0}, {1})",
            "float": "{0} / {1}",
            "complex": "complex_divide({0}, {1})",
            "int": "divide({0}, {1})",
        },
        arity=2,
        complex_eps=3,
    ),
    Operator("rem", {"float": "fmod{f}({0}, {1})", "int": "remainder({0}, {1})"}, arity=2),
    Operator("mulhi", _int("multiply_high({0}, {1})"), arity=2),
    Operator("neg", {"float": "-{0}", "complex": "-{0}", "int": "negate({0})"}, complex_eps=0),
    Operator("abs", {**_complex("fabs{f}({0})", "abs"), "signed": "absolute({0})"}, complex_eps=2),
    Operator("sign", {**_number("sign({0})"), "complex": "complex_sign({0})"}, complex_eps=3),
    Operator(
        "max",
        {**_every("maximum({0}, {1})"), "complex": "complex_maximum({0}, {1})"},
        arity=2,
        complex_eps=0,
    ),
    Operator(
        "min",
        {**_every("minimum({0}, {1})"), "complex": "complex_minimum({0}, {1})"},
        arity=2,
        complex_eps=0,
    ),
    Operator(
        "square", {**_complex("{0} * {0}", "square"), "int": "wrap_mul({0}, {0})"}, complex_eps=2
    ),
    Operator(
        "one_minus_square",
        {**_complex("(1 + {0}) * (1 - {0})", "one_minus_square"), "int": "one_minus_square({0})"},
        ulp=(2, 2),
    ),
    Operator("copy", _equality("{0}"), complex_eps=0),
    # Powers and roots.
    Operator(
        "pow",
        {"float": "pow{f}({0}, {1})", "complex": "complex_pow({0}, {1})"},
        arity=2,
        ulp=(4, 2),
        domain=POSITIVE,
        converts=True,  # an integer exponent
    ),
    Operator("sqrt", _complex("sqrt{f}({0})", "sqrt"), complex_eps=3, domain=POSITIVE),
    Operator(
        "rsqrt", _complex("1 / sqrt{f}({0})", "rsqrt"), ulp=(2, 2), complex_eps=3, domain=POSITIVE
    ),
    Operator("cbrt", _float("cbrt{f}({0})"), ulp=(1, 1)),
    # Exponentials and logarithms.
    Operator("exp", _complex("exp{f}({0})", "exp"), ulp=(2, 1), domain=WIDE),
    Operator("exp2", _complex("exp2{f}({0})", "exp2"), ulp=(2, 1), domain=WIDE),
    Operator("expm1", _complex("expm1{f}({0})", "expm1"), ulp=(1, 1)),
    Operator("log", _complex("log{f}({0})", "log"), ulp=(1, 1), domain=POSITIVE),
    Operator("log2", _complex("log2{f}({0})", "log2"), ulp=(1, 1), domain=POSITIVE),
    Operator("log1p", _complex("log1p{f}({0})", "log1p"), ulp=(1, 1), domain=UNIT),
    Operator(
        "logistic",
        {**_complex("logistic({0})", "logistic"), "narrow": "logistic_for_narrow({0})"},
        ulp=(3, 3),
        domain=WIDE,
    ),
    # Trigonometric and hyperbolic functions, and their inverses.
    Operator("sin", _complex("sin{f}({0})", "sin"), ulp=(2, 2), domain=WIDE),
    Operator("cos", _complex("cos{f}({0})", "cos"), ulp=(2, 2), domain=WIDE),
    Operator("tan", _complex("tan{f}({0})", "tan"), ulp=(4, 2)),
    Operator("asin", _complex("asin{f}({0})", "asin"), ulp=(2, 2), domain=UNIT),
    Operator("acos", _complex("acos{f}({0})", "acos"), ulp=(2, 2), domain=UNIT),
    Operator("atan", _complex("atan{f}({0})", "atan"), ulp=(2, 2)),
    Operator(
        "atan2",
        {"float": "atan2{f}({0}, {1})", "complex": "complex_atan2({0}, {1})"},
        arity=2,
        ulp=(3, 2),
    ),
    Operator("sinh", _complex("sinh{f}({0})", "sinh"), ulp=(3, 2)),
    Operator("cosh", _complex("cosh{f}({0})", "cosh"), ulp=(2, 1)),
    Operator("tanh", _complex("tanh{f}({0})", "tanh"), ulp=(2, 2)),
    Operator("asinh", _complex("asinh{f}({0})", "asinh"), ulp=(3, 3)),
    Operator("acosh", _complex("acosh{f}({0})", "acosh"), ulp=(4, 3), domain=ABOVE_ONE),
    Operator("atanh", _complex("atanh{f}({0})", "atanh"), ulp=(3, 2), domain=UNIT),
    # The error function's family.
    Operator("erf", _float("erf{f}({0})"), ulp=(2, 2)),
    Operator("erfc", {"narrow": "erfc_for_narrow({0})", "float": "erfc{f}({0})"}, ulp=(4, 5)),
    Operator("erf_inv", _float("erfinv{f}({0})"), ulp=(2, 5), domain=UNIT),
    # Other special functions.
    Operator("lgamma", _float("lgamma({0})"), ulp=(6, 4), domain=POSITIVE, header="special.h"),
    Operator("digamma", _float("digamma({0})"), ulp=(4, 4), domain=POSITIVE, header="special.h"),
    Operator("bessel_i0e", _float("bessel_i0e({0})"), ulp=(3, 3), domain=WIDE, header="special.h"),
    Operator("bessel_i1e", _float("bessel_i1e({0})"), ulp=(3, 3), domain=WIDE, header="special.h"),
    Operator(
        "zeta",
        _float("zeta({0}, {1})"),
        arity=2,
        ulp=(8, 6),
        domains=((1.25, 12.0), (0.25, 16.0)),
        header="zeta.h",
    ),
    Operator(
        "polygamma",
        _float("polygamma({0}, {1})"),
        arity=2,
        ulp=(8, 6),
        domains=(range(6), (0.25, 16.0)),
        header="zeta.h",
    ),
    # Parts of complex numbers.
    Operator(
        "complex",
        _wide("Complex<{compute}>{{{0}, {1}}}"),
        arity=2,
        complex_eps=0,
        header="complex.h",
    ),
    Operator(
        "conj",
        {**_wide("Complex<{compute}>{{{0}, 0}}"), "complex": "complex_conj({0})"},
        complex_eps=0,
        header="complex.h",
    ),
    Operator("real", {"complex": "{0}.re"}, complex_eps=0),
    Operator("imag", {"complex": "{0}.im"}, complex_eps=0),
    # Rounding and classification.
    Operator("floor", _float("floor{f}({0})")),
    Operator("ceil", _float("ceil{f}({0})")),
    Operator("is_finite", _float("is_finite({0})")),
    Operator("nextafter", _float("next_after<{storage}>({0}, {1})"), arity=2, rounds=True),
    # Comparison.
    Operator("eq", _equality("{0} == {1}"), arity=2, complex_eps=0),
    Operator("ne", _equality("{0} != {1}"), arity=2, complex_eps=0),
    Operator("lt", _every("{0} < {1}"), arity=2),
    Operator("le", _every("{0} <= {1}"), arity=2),
    Operator("gt", _every("{0} > {1}"), arity=2),
    Operator("ge", _every("{0} >= {1}"), arity=2),
    Operator("eq_to", _total("=="), arity=2),
    Operator("lt_to", _total("<"), arity=2),
    Operator("le_to", _total("<="), arity=2),
    # Logic and bits.
    Operator("and", _logic("{0} & {1}", "{0} && {1}"), arity=2, function="bitwise_and"),
    Operator("or", _logic("{0} | {1}", "{0} || {1}"), arity=2, function="bitwise_or"),
    Operator("xor", _logic("{0} ^ {1}", "{0} != {1}"), arity=2, function="bitwise_xor"),
    Operator("not", _logic("~{0}", "!{0}"), function="bitwise_not"),
    Operator("shift_left", _int("shift_left({0}, {1})"), arity=2),
    Operator("shift_right_logical", _int("shift_right_logical({0}, {1})"), arity=2),
    Operator("shift_right_arithmetic", _int("shift_right_arithmetic({0}, {1})"), arity=2),
    Operator("population_count", _int("population_count({0})")),
    Operator("clz", _int("count_leading_zeros({0})")),
    # Bounds.
    Operator(
        "clamp",
        {
            **_every("clamp({0}, {1}, {2})"),
            "complex": "complex_minimum(complex_maximum({0}, {1}), {2})",
        },
        arity=3,
        complex_eps=0,
    ),
)

OPERATORS: dict[str, Operator] = {row.name: row for row in _ROWS}

# What a name does not say, in a few words, for docs/operators.md; of integers, that they wrap, is
# said there once.
_SHIFTED_OUT = "a count below 0, or not below the width, shifts everything out"
_TOTAL_ORDER = "the order of the bits: -NaN, -inf, ..., -0, 0, ..., inf, NaN"
MEANINGS = {
    "div": "integers: towards zero; x / 0 has all bits set, the smallest by -1 is itself",
    "rem": "has the sign of the dividend; by 0: NaN, of an integer itself",
    "mulhi": "the upper half of the product",
    "neg": "changes the sign of zero, too",
    "abs": "that of the smallest integer is itself",
    "sign": "zeros and NaN are their own",
    "max": "NaN if either is; 0 is larger than -0; complex: by real, then imaginary part",
    "min": "NaN if either is; -0 is smaller than 0; complex: by real, then imaginary part",
    "one_minus_square": "(1 + x) (1 - x)",
    "pow": "complex: the bound is for abs(y log(x)) below 1, and grows with it",
    "logistic": "1 / (1 + exp(-x))",
    "atan2": "complex: the bound does not hold where x x + y y cancels",
    "lgamma": "log(abs(gamma(x))); infinity at the poles",
    "digamma": "-inf at 0, NaN at the other poles",
    "bessel_i0e": "exp(-abs(x)) I0(x)",
    "bessel_i1e": "exp(-abs(x)) I1(x)",
    "zeta": "sum of (q + k)^-s; infinity for s = 1, NaN below",
    "polygamma": "derivative of order n of digamma; NaN unless n is 0, 1, 2, ...",
    "nextafter": "among the values of the dtype, subnormals included",
    "eq": "false if either is NaN; -0 is 0",
    "ne": "true if either is NaN",
    **dict.fromkeys(("lt", "le", "gt", "ge"), "false if either is NaN"),
    "eq_to": "the same bits",
    "lt_to": _TOTAL_ORDER,
    "le_to": _TOTAL_ORDER,
    "shift_left": _SHIFTED_OUT,
    "shift_right_logical": _SHIFTED_OUT,
    "shift_right_arithmetic": f"{_SHIFTED_OUT} but the sign: 0 or -1 is left",
    "clz": "the width for 0",
    "clamp": "min(max(low, x), high); NaN if any is",
}


# ---- Rules ---------------------------------------------------------------------------------------


def apply_operator(writer: Writer, name: str, operands: Sequence[Value], dtype: DType) -> Value:
    """Writes an operator of the table on scalars."""
    row, first = OPERATORS[name], operands[0].dtype
    form = row.form(first)
    if form is None:
        raise UnsupportedError(f"{name!r} of {first.name}")
    if row.header:
        writer.use(f"math/{row.header}")
    if form.startswith("complex_"):
        writer.use("math/complex_functions.h")
    if row.converts:
        operands = [_converted(writer, x, dtype) for x in operands]
    if row.rounds:
        operands = [writer.bind(round_if_needed(x)) for x in operands]
    suffix = "f" if first.compute == "float" else ""
    codes = [x.code for x in operands]
    code = form.format(*codes, f=suffix, storage=first.storage, compute=first.compute)
    exact = not dtype.is_narrow or (name == "copy" and operands[0].exact)
    return writer.bind(Value(code, dtype, exact))


def _converted(writer: Writer, x: Value, dtype: DType) -> Value:
    if x.dtype == dtype:
        return x
    return writer.bind(Value(f"convert<{dtype.compute}>({x.code})", dtype))


@scalar_rule(*OPERATORS)
def _operator(context: Context, *operands: Value) -> Value:
    return apply_operator(context.writer, context.name, operands, context.dtype)


@rule(sine_and_cosine_p.name)
def _sine_and_cosine(context: Context, angles: Array) -> list[Array]:
    """Both of the same angle, which cost little more than one."""
    pairs = [_both(context.writer, angle) for angle in angles.flat]
    column = dict(zip(("sin", "cos"), zip(*pairs, strict=True), strict=True))
    return [array_of(column[name], angles.shape) for name in context.params["names"]]


def _both(writer: Writer, angle: Value) -> tuple[Value, Value]:
    sine, cosine = (Value(writer.name(), angle.dtype) for _ in range(2))
    suffix = "f" if angle.dtype.compute == "float" else ""
    writer.line(f"{angle.dtype.compute} {sine.code}, {cosine.code};")
    writer.line(f"sincos{suffix}({angle.code}, &{sine.code}, &{cosine.code});")
    return sine, cosine
