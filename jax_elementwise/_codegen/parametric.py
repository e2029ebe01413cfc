"""C++ for the primitives whose meaning depends on their parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from jax_elementwise._codegen.types import DType, dtype_of, literal
from jax_elementwise._codegen.values import UnsupportedError, Value, round_if_needed

__all__ = ["PARAMETRIC"]

# A rule gets the equation's parameters, its operands and the dtype of its result.
Rule = Callable[[dict[str, Any], Sequence[Value], DType], Value]

PARAMETRIC: dict[str, Rule] = {}


def _rule(name: str) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        PARAMETRIC[name] = rule
        return rule

    return register


@_rule("convert_element_type")
def _convert_element_type(params: dict[str, Any], operands: Sequence[Value], to: DType) -> Value:
    del params
    # An explicit conversion is one of the places where a 16-bit float is rounded: on the way in, to
    # what the operand was declared as, and on the way out.
    operand = round_if_needed(operands[0])
    if operand.dtype == to:
        return operand
    code = operand.code
    if operand.dtype.compute == "double" and to.name == "float16":
        code = f"round_to_odd({code})"
    elif operand.dtype.compute != to.compute:
        code = f"convert<{to.compute}>({code})"
    return round_if_needed(Value(code, to, exact=not to.is_half))


@_rule("bitcast_convert_type")
def _bitcast_convert_type(params: dict[str, Any], operands: Sequence[Value], to: DType) -> Value:
    del params
    operand = operands[0]
    if operand.dtype.is_half or to.is_half or operand.dtype.itemsize != to.itemsize:
        raise UnsupportedError(f"bitcast_convert_type from {operand.dtype.name} to {to.name}")
    return Value(f"bit_cast<{to.compute}>({operand.code})", to)


@_rule("integer_pow")
def _integer_pow(params: dict[str, Any], operands: Sequence[Value], to: DType) -> Value:
    exponent, (x,) = params["y"], operands
    power = f"integer_pow<{abs(exponent)}>({x.code})"
    if exponent >= 0:
        return Value(power, to)
    if to.kind == "int":
        raise UnsupportedError(f"a negative power ({exponent}) of an integer")
    return Value(f"divide_for_half(1.0f, {power})" if to.is_half else f"1 / {power}", to)


@_rule("round")
def _round(params: dict[str, Any], operands: Sequence[Value], to: DType) -> Value:
    to_even = params["rounding_method"] == jax.lax.RoundingMethod.TO_NEAREST_EVEN
    suffix = "f" if to.compute == "float" else ""
    return Value(f"{'rint' if to_even else 'round'}{suffix}({operands[0].code})", to)


@_rule("reduce_precision")
def _reduce_precision(params: dict[str, Any], operands: Sequence[Value], to: DType) -> Value:
    (operand,) = operands
    exponent, mantissa = params["exponent_bits"], params["mantissa_bits"]
    if (exponent, mantissa) == _PRECISION[to.name]:
        return round_if_needed(operand)
    if to.compute == "float" and 2 <= exponent <= 8 and 1 <= mantissa <= 23:
        rounded = round_if_needed(operand)
        return Value(f"reduce_precision<{exponent}, {mantissa}>({rounded.code})", to)
    raise UnsupportedError(f"reduce_precision of {to.name} to {exponent} and {mantissa} bits")


# Bits of exponent and mantissa.
_PRECISION = {"float16": (5, 10), "bfloat16": (8, 7), "float32": (8, 23), "float64": (11, 52)}


@_rule("select_n")
def _select_n(params: dict[str, Any], operands: Sequence[Value], to: DType) -> Value:
    del params
    which, *cases = operands
    exact = all(case.exact for case in cases)
    if which.dtype.kind == "bool":
        on_false, on_true = cases
        return Value(f"{which.code} ? {on_true.code} : {on_false.code}", to, exact)
    code = cases[-1].code
    for number in reversed(range(len(cases) - 1)):
        code = f"{which.code} == {number} ? {cases[number].code} : ({code})"
    return Value(code, to, exact)


@_rule("polynomial")
def _polynomial(params: dict[str, Any], operands: Sequence[Value], to: DType) -> Value:
    del params
    x, *coefficients = operands
    code = coefficients[-1].code
    for coefficient in reversed(coefficients[:-1]):
        code = f"({code}) * {x.code} + {coefficient.code}"
    return Value(code, to)


@_rule("empty2")
def _empty(params: dict[str, Any], operands: Sequence[Value], to: DType) -> Value:
    """What the transpose of ``cond`` fills the residuals of branches not taken with: never read."""
    del params, operands
    return Value(literal(0, to), to, exact=True)


def _same_scalar(params: dict[str, Any], operands: Sequence[Value], to: DType) -> Value:
    """Changes of shape that leave a scalar a scalar."""
    del params, to
    return operands[0]


for _name in ("broadcast_in_dim", "name", "reshape", "squeeze", "stop_gradient"):
    _rule(_name)(_same_scalar)


def known_dtype(aval: Any, what: str) -> DType:
    """The row of a scalar's dtype; raises UnsupportedError for arrays and unknown dtypes."""
    if aval.shape != ():
        raise UnsupportedError(f"{what}, an array of shape {aval.shape} per element")
    dtype = dtype_of(aval.dtype)
    if dtype is None:
        raise UnsupportedError(f"{what}, which has dtype {aval.dtype}")
    return dtype
