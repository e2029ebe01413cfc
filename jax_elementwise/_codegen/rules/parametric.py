"""C++ for the primitives whose meaning depends on their parameters."""

from __future__ import annotations

import jax

from jax_elementwise._codegen.registry import Context, scalar_rule
from jax_elementwise._codegen.types import DTYPES
from jax_elementwise._codegen.values import UnsupportedError, Value, constant, round_if_needed

__all__: list[str] = []  # its rules are in the registry


@scalar_rule("convert_element_type")
def _convert_element_type(context: Context, operand: Value) -> Value:
    # An explicit conversion is one of the places where a narrow float is rounded: on the way in, to
    # what the operand was declared as, and on the way out.
    operand, to = round_if_needed(operand), context.dtype
    if operand.dtype == to:
        return operand
    code = operand.code
    if operand.dtype.kind == "complex" and to.kind != "complex":
        # To bool as well: JAX lowers it so, and has "not equal to zero" where that is meant.
        real = DTYPES["float32" if operand.dtype.name == "complex64" else "float64"]
        return _convert_element_type(context, Value(f"{code}.re", real, exact=True))
    # XLA makes a bfloat16 of a float64 by way of float32.
    if operand.dtype.compute == "double" and to.is_narrow and to.name != "bfloat16":
        code = f"round_to_odd({code})"
    elif operand.dtype.compute != to.compute:
        code = f"convert<{to.compute}>({code})"
    return round_if_needed(Value(code, to, exact=not to.is_narrow))


@scalar_rule("bitcast_convert_type")
def _bitcast_convert_type(context: Context, operand: Value) -> Value:
    to = context.dtype
    if operand.dtype == to:
        return operand
    if operand.dtype.itemsize != to.itemsize:
        raise UnsupportedError(
            f"bitcast_convert_type from {operand.dtype.name} to {to.name}, which has another size"
        )
    code = operand.code
    if operand.dtype.is_narrow:
        code = f"Element<{operand.dtype.storage}>::narrow({code})"
    code = f"bit_cast<{to.storage}>({code})"
    return Value(f"Element<{to.storage}>::widen({code})" if to.is_narrow else code, to, exact=True)


@scalar_rule("integer_pow")
def _integer_pow(context: Context, x: Value) -> Value:
    exponent, to = context.params["y"], context.dtype
    if exponent == 0:
        return constant(1, to)
    function = {"int": "integer_pow_wrapping", "complex": "complex_integer_pow"}.get(
        to.kind, "integer_pow"
    )
    power = f"{function}<{abs(exponent)}>({x.code})"
    if exponent > 0:
        return Value(power, to)
    match to.kind:
        case "int":
            raise UnsupportedError(f"a negative power ({exponent}) of an integer")
        case "complex":
            return Value(f"complex_divide({constant(1, to).code}, {power})", to)
        case _:
            return Value(
                f"divide_for_narrow(1.0f, {power})" if to.is_narrow else f"1 / {power}", to
            )


@scalar_rule("round")
def _round(context: Context, operand: Value) -> Value:
    to = context.dtype
    to_even = context.params["rounding_method"] == jax.lax.RoundingMethod.TO_NEAREST_EVEN
    suffix = "f" if to.compute == "float" else ""
    return Value(f"{'rint' if to_even else 'round'}{suffix}({operand.code})", to)


@scalar_rule("reduce_precision")
def _reduce_precision(context: Context, operand: Value) -> Value:
    to = context.dtype
    exponent, mantissa = context.params["exponent_bits"], context.params["mantissa_bits"]
    if (exponent, mantissa) == _PRECISION.get(to.name):
        return round_if_needed(operand)
    own_exponent, own_mantissa = _PRECISION["float64" if to.compute == "double" else "float32"]
    bits = f"{min(exponent, own_exponent)}, {min(mantissa, own_mantissa)}"
    return Value(f"reduce_precision<{bits}>({round_if_needed(operand).code})", to)


# Bits of exponent and mantissa of the IEEE formats, which float8_e4m3fn is not: it has no infinity.
_PRECISION = {
    "float8_e5m2": (5, 2),
    "float16": (5, 10),
    "bfloat16": (8, 7),
    "float32": (8, 23),
    "float64": (11, 52),
}


@scalar_rule("select_n")
def _select_n(context: Context, which: Value, *cases: Value) -> Value:
    to = context.dtype
    exact = all(case.exact for case in cases)
    if which.dtype.kind == "bool":
        on_false, on_true = cases
        return Value(f"{which.code} ? {on_true.code} : {on_false.code}", to, exact)
    code = cases[-1].code
    for number in reversed(range(len(cases) - 1)):
        code = f"{which.code} == {number} ? {cases[number].code} : ({code})"
    return Value(code, to, exact)


@scalar_rule("polynomial")
def _polynomial(context: Context, x: Value, *coefficients: Value) -> Value:
    code = coefficients[-1].code
    for coefficient in reversed(coefficients[:-1]):
        code = f"({code}) * {x.code} + {coefficient.code}"
    return Value(code, context.dtype)


@scalar_rule("empty2")
def _empty(context: Context) -> Value:
    """What the transpose of ``cond`` fills the residuals of branches not taken with: never read."""
    return constant(0, context.dtype)


@scalar_rule("name", "stop_gradient")
def _same(context: Context, operand: Value) -> Value:
    del context
    return operand
