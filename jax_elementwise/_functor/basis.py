"""Loops that a linear function goes through, in a form that JAX transposes.

JAX transposes no ``while``, and a ``scan`` by keeping what each step computed, for which a kernel
has no memory. So a loop whose carry is linear in the operands is run once for a basis: for unit
tangents of the values that enter it, all of them beside what else it carries. What leaves the loop
is linear in what entered, a sum of products with the columns that it gave,

    y = sum_i t_i * loop(e_i)

which JAX transposes as any product. Nothing is kept from step to step, and JAX transposes the rest
of the function as it always does. A loop that no tangent passes through is a known value.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jax_elementwise import _compat
from jax_elementwise._functor import jaxprs, rewrite
from jax_elementwise._functor.constants import constant_array
from jax_elementwise._functor.linearity import Dependence, through

__all__ = ["transposable"]

# Operations with the same factors in forward and in reverse mode, however they are combined: unit
# tangents may begin before them, where there are fewer of them. Not so where a selection hides a
# factor that is infinite: it comes after the factor in one mode and before it in the other.
_PLAIN = frozenset(
    {
        "add",
        "add_any",
        "broadcast_in_dim",
        "complex",
        "concatenate",
        "conj",
        "convert_element_type",
        "copy",
        "div",
        "imag",
        "mul",
        "neg",
        "real",
        "reduce_sum",
        "reshape",
        "slice",
        "squeeze",
        "stack",
        "sub",
        "transpose",
        "unstack",
    }
)


def transposable(
    jaxpr: Any, linear: Sequence[bool], *, is_affine: bool
) -> Callable[..., list[Any]]:
    """A jaxpr as a function that ``jax.linear_transpose`` takes.

    Args:
      jaxpr: of scalars and small arrays, closed over constants at most.
      linear: the operands in which it is linear.
      is_affine: whether it may add constants to what is linear. The function may leave these out:
        its transpose does not show them.

    Returns:
      A function of the operands.

    Raises:
      TypeError: where the condition of a loop depends on the operands ``linear``.
    """
    if not through(jaxpr, linear).is_blocked:
        return functools.partial(rewrite.evaluate, jaxpr)
    flat = rewrite.traced(lambda *args: rewrite.inline_jits(jaxpr, args), jaxpr)
    return lambda *operands: _Evaluation(flat, linear, operands, is_affine).results()


# ---- Evaluation ----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Step:
    """Linear values as a function of others."""

    inputs: tuple[Any, ...]  # variables of the jaxpr
    outputs: tuple[Any, ...]
    run: Callable[..., Sequence[Any]]


class _Evaluation:
    """The evaluation of a jaxpr, which knows how its linear values came about."""

    def __init__(
        self, jaxpr: Any, linear: Sequence[bool], operands: Sequence[Any], is_affine: bool
    ) -> None:
        self._jaxpr = _compat.open_jaxpr(jaxpr)
        self._dependence = Dependence(jaxpr, linear)
        variables = [*self._jaxpr.constvars, *self._jaxpr.invars]
        self._env = dict(zip(variables, [*_compat.consts(jaxpr), *operands], strict=True))
        self._is_affine = is_affine
        self._steps: list[_Step] = []
        self._origins: dict[Any, int] = {}  # the step that a variable comes from

    def results(self) -> list[Any]:
        for equation in self._jaxpr.eqns:
            values = self._equation(equation, [self._read(atom) for atom in equation.invars])
            self._env.update(zip(equation.outvars, values, strict=True))
        return [self._read(atom) for atom in self._jaxpr.outvars]

    def _read(self, atom: Any) -> Any:
        return atom.val if _compat.is_literal(atom) else self._env[atom]

    def _equation(self, equation: Any, operands: list[Any]) -> Sequence[Any]:
        name, linear = equation.primitive.name, self._dependence.of(equation.invars)
        path = self._dependence.follow(equation)
        if not path.is_blocked:
            if any(linear) and name in _PLAIN:
                run = functools.partial(_on, equation, operands, linear, _compat.bind_again)
                self._remember(_chosen(equation.invars, linear), equation.outvars, run)
            return _compat.bind_again(equation, operands)
        inner = functools.partial(transposable, is_affine=self._is_affine)
        if name in jaxprs.WRAPPERS:
            return inner(jaxprs.wrapped(equation), linear)(*operands)
        if name == "cond":
            return rewrite.bind_with(equation, operands, lambda branch: inner(branch, linear[1:]))
        if name == "scan" and not jaxprs.is_long_scan(equation):  # JAX takes it step by step
            constants, carry, columns = _compat.scan_operands(equation, linear)
            flags = [*constants, *path.results[: len(carry)], *columns]
            return rewrite.bind_with(equation, operands, lambda step: inner(step, flags))
        return self._by_basis(equation, operands, linear, path.results)

    def _by_basis(
        self,
        equation: Any,
        operands: list[Any],
        linear: tuple[bool, ...],
        depends: tuple[bool, ...],
    ) -> list[Any]:
        """A loop's results; those that depend on tangents as sums of products."""
        loop = functools.partial(_on, equation, operands, linear, _without_custom_vjp)
        entering = _chosen(equation.invars, linear)
        sources, steps = self._sources(entering)

        def run(*units: Any) -> Sequence[Any]:
            tangents = dict(zip(sources, units, strict=True))
            for step in steps:
                outs = step.run(*(tangents[var] for var in step.inputs))
                tangents.update(zip(step.outputs, outs, strict=True))
            return loop(*(tangents[var] for var in entering))

        def run_linear_part(*units: Any) -> Sequence[Any]:
            outs, dots = jax.jvp(run, tuple(map(jnp.zeros_like, units)), units)
            return [dot if d else out for out, dot, d in zip(outs, dots, depends, strict=True)]

        basis = _basis([var.aval for var in sources])
        outs = jax.vmap(
            run_linear_part if self._is_affine else run,
            out_axes=[0 if d else None for d in depends],
        )(*basis)
        combine = functools.partial(_combined, _chosen(outs, depends))
        self._remember(sources, _chosen(equation.outvars, depends), combine)
        sums = iter(combine(*(self._env[var] for var in sources)))
        return [next(sums) if d else out for out, d in zip(outs, depends, strict=True)]

    def _remember(
        self, inputs: Sequence[Any], outputs: Sequence[Any], run: Callable[..., Sequence[Any]]
    ) -> None:
        self._origins.update(dict.fromkeys(outputs, len(self._steps)))
        self._steps.append(_Step(tuple(inputs), tuple(outputs), run))

    def _sources(self, entering: Sequence[Any]) -> tuple[list[Any], list[_Step]]:
        """What to take unit tangents of: what enters a loop, or fewer values that this comes from.

        Gives them, and the steps from there to the loop.
        """
        sources: dict[Any, None] = {}
        numbers: set[int] = set()
        ahead = list(entering)
        while ahead:
            var = ahead.pop()
            number = self._origins.get(var)
            if number is None:
                sources[var] = None
            elif number not in numbers:
                numbers.add(number)
                ahead.extend(self._steps[number].inputs)
        distinct = list(dict.fromkeys(entering))
        if _size(sources) < _size(distinct):
            return list(sources), [self._steps[number] for number in sorted(numbers)]
        return distinct, []


def _chosen(items: Sequence[Any], flags: Sequence[bool]) -> list[Any]:
    return [item for item, flag in zip(items, flags, strict=True) if flag]


def _on(
    equation: Any,
    operands: Sequence[Any],
    linear: Sequence[bool],
    bind: Callable[[Any, Sequence[Any]], Sequence[Any]],
    *tangents: Any,
) -> Sequence[Any]:
    """An equation on other linear operands."""
    others = iter(tangents)
    pairs = zip(operands, linear, strict=True)
    return bind(equation, [next(others) if is_linear else x for x, is_linear in pairs])


# ---- Unit tangents -------------------------------------------------------------------------------


def _units(aval: Any) -> tuple[complex, ...]:
    """Of one number, over the real numbers: a function may be linear over these only."""
    return (1, 1j) if jnp.issubdtype(aval.dtype, jnp.complexfloating) else (1,)


def _length(aval: Any) -> int:
    """How many unit tangents a value has."""
    return math.prod(aval.shape) * len(_units(aval))


def _size(variables: Any) -> int:
    return sum(_length(var.aval) for var in variables)


def _basis(avals: Sequence[Any]) -> list[Any]:
    """An array per value, whose rows together are all unit tangents of the values."""
    lengths = [_length(aval) for aval in avals]
    arrays, first = [], 0
    for aval, length in zip(avals, lengths, strict=True):
        rows = np.zeros((sum(lengths), *aval.shape), aval.dtype)
        own = np.kron(np.reshape(_units(aval), (-1, 1)), np.eye(math.prod(aval.shape)))
        rows[first : first + length] = own.reshape(length, *aval.shape)
        arrays.append(
            constant_array(rows)
        )  # no array that is captured, of which few entries are allowed
        first += length
    return arrays


def _numbers(value: Any) -> list[Any]:
    """The real numbers of a value, in the order of its unit tangents."""
    parts = (lax.real(value), lax.imag(value)) if jnp.iscomplexobj(value) else (value,)
    return [number for part in parts for number in (part.reshape(-1) if part.ndim else (part,))]


def _combined(columns: Sequence[Any], *values: Any) -> list[Any]:
    """The sums of values, number by number, times the rows of each of the columns."""
    numbers = [number for value in values for number in _numbers(value)]
    sums = []
    for column in columns:
        rows = [lax.index_in_dim(column, i, keepdims=False) for i in range(len(numbers))]
        total = functools.reduce(_sum, map(_product, numbers, rows))
        sums.append(lax.convert_element_type(total, column.dtype))
    return sums


def _product(x: Any, y: Any) -> Any:
    return lax.mul(*_promoted(x, y))


def _sum(x: Any, y: Any) -> Any:
    return lax.add(*_promoted(x, y))


def _promoted(*values: Any) -> list[Any]:
    """Values of one dtype, each as precise as it is, whatever the user's settings are."""
    with jax.numpy_dtype_promotion("standard"):
        wide = functools.reduce(jnp.promote_types, [value.dtype for value in values])
    return [lax.convert_element_type(value, wide) for value in values]


# ---- custom_vjp functions inside of loops --------------------------------------------------------


def _without_custom_vjp(equation: Any, operands: Sequence[Any]) -> Sequence[Any]:
    """An equation, with tangents of ``custom_vjp`` functions in it that can be evaluated.

    All that JAX knows of such a tangent is its transpose.
    """
    if equation.primitive.name == "custom_lin":
        return _tangents_of_custom_vjp(equation, operands)
    if not any(_holds_custom_vjp(inner) for inner in jaxprs.subjaxprs(equation)):
        return _compat.bind_again(equation, operands)

    def transform(jaxpr: Any) -> Callable[..., list[Any]]:
        return functools.partial(rewrite.evaluate, jaxpr, rule=_without_custom_vjp)

    return rewrite.bind_with(equation, operands, transform)


def _holds_custom_vjp(jaxpr: Any) -> bool:
    return any(True for _ in jaxprs.calls(jaxpr, "custom_lin"))


def _tangents_of_custom_vjp(equation: Any, operands: Sequence[Any]) -> list[Any]:
    """By ``Re(ct * dot_out) == Re(transpose(ct) * dot_in)`` for unit cotangents ``ct``."""
    count = equation.params["num_res"]
    residuals, dots = operands[:count], operands[count:]
    outs = [var.aval for var in equation.outvars]
    floats = [jnp.issubdtype(aval.dtype, jnp.inexact) for aval in outs]

    def tangents(*values: Any) -> list[Any]:
        return _chosen(_compat.bind_again(equation, [*residuals, *values]), floats)

    avals = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in map(jax.typeof, dots)]
    transposed = jax.linear_transpose(tangents, *avals)
    basis = _basis(_chosen(outs, floats))
    rows = jax.vmap(lambda *cotangents: transposed(list(cotangents)))(*basis)
    pairs = zip(rows, dots, strict=True)
    pairings = [jnp.real(_product(row, dot)).reshape(row.shape[0], -1).sum(1) for row, dot in pairs]
    total = functools.reduce(_sum, pairings)
    results: list[Any] = []
    first = 0
    for out, is_float in zip(outs, floats, strict=True):
        if not is_float:
            results.append(np.zeros(out.shape, jax.dtypes.float0))
            continue
        parts = total[first : first + _length(out)].reshape(len(_units(out)), *out.shape)
        first += _length(out)
        # Re(1j * y) is -Im(y).
        value = parts[0] if len(parts) == 1 else lax.complex(parts[0], -parts[1])
        results.append(value.astype(out.dtype))
    return results
