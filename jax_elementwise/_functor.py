"""What one element computes, and the functions derived from it: tangent and transpose.

The Jacobian of an elementwise map is diagonal, so both are elementwise maps again, and their
functors are derived from the scalar jaxpr alone, whatever the shapes of the arrays.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
from jax.sharding import AbstractMesh, use_abstract_mesh

from jax_elementwise import _compat
from jax_elementwise._table import check_captured, table

__all__ = ["Functor", "Traced", "trace"]

# A traced scalar function must not remember the mesh it was traced under: its text would not show
# the mesh, and the functor would fail under another one.
_NO_MESH = AbstractMesh((), ())


class Functor:
    """What one element computes: a jaxpr over scalars that is closed over nothing.

    Immutable and hashable. Two functors are equal if their jaxprs say the same thing and hold the
    same derivative rules (``custom_jvp`` functions, by identity). Their kernels' text is a weaker
    identity: functions with the same values and different gradients share a kernel.

    Attributes:
      name: of the user's function; kernels and profiles show it.
      jaxpr: the closed jaxpr.
      is_derived: whether it is a derivative, whose arrays a user did not ask for.
    """

    def __init__(self, name: str, jaxpr: Any, *, is_derived: bool = False) -> None:
        if _compat.consts(jaxpr):
            raise ValueError("a functor is closed over nothing: what it needs are operands")
        self.name = name
        self.jaxpr = jaxpr
        self.is_derived = is_derived
        self._fingerprint = (name, _fingerprint(jaxpr))
        self._hash = hash(self._fingerprint)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Functor):
            return NotImplemented
        return self._hash == other._hash and self._fingerprint == other._fingerprint

    def __repr__(self) -> str:
        return f"Functor({self.name}: {', '.join(map(_short, self.in_avals))})"

    def __call__(self, *scalars: Any) -> list[Any]:
        """The results for scalars; under ``vmap``, for arrays."""
        return list(jex.jaxpr_as_fun(self.jaxpr)(*scalars))

    @property
    def in_avals(self) -> Sequence[Any]:
        """Types of the operands, all of shape ()."""
        return self.jaxpr.in_avals

    @property
    def out_avals(self) -> Sequence[Any]:
        """Types of the results, all of shape ()."""
        return self.jaxpr.out_avals

    @property
    def has_effects(self) -> bool:
        """Whether it does more than compute (``jax.debug.print``)."""
        return bool(_compat.open_jaxpr(self.jaxpr).effects)

    def jvp(self, active: tuple[int, ...]) -> tuple[Functor, tuple[int, ...]]:
        """The tangent function.

        Args:
          active: the operands whose tangents are not zero.

        Returns:
          A function of all primal operands, then of the active operands' tangents, in which it is
          linear; and the results whose tangents it gives. The others' are identically zero.
        """
        return _jvp(self, active)

    def transpose(
        self, undefined: tuple[int, ...], zeroed: tuple[int, ...], results: tuple[int, ...]
    ) -> Functor:
        """The transpose of a function that is linear in some operands.

        Args:
          undefined: the linear operands to transpose with respect to.
          zeroed: linear operands whose values are known. The linear part of an affine function is
            what is transposed, so they count as zero.
          results: the results whose cotangents are not zero.

        Returns:
          A function of the remaining operands, in order, then of the cotangents of ``results``, in
          which it is linear. It gives one cotangent per undefined operand.
        """
        return _transpose(self, undefined, zeroed, results)

    def reduced(
        self, results: tuple[int, ...], *, keep_operands: bool
    ) -> tuple[Functor, tuple[int, ...]]:
        """The function that gives some of the results only.

        Args:
          results: which.
          keep_operands: whether it also takes operands that these results do not depend on.

        Returns:
          The function, and which of the operands it takes.
        """
        return _reduced(self, results, keep_operands)

    @functools.cached_property
    def sources(self) -> tuple[tuple[str, int], ...]:
        """Where each result comes from.

        ``("operand", i)`` where it is an operand as it stands, else ``("result", i)`` for the first
        result that is the same value.
        """
        body = _compat.open_jaxpr(self.jaxpr)
        operands = {var: ("operand", i) for i, var in enumerate(body.invars)}
        firsts: dict[Any, tuple[str, int]] = {}
        sources = []
        for i, atom in enumerate(body.outvars):
            if _compat.is_literal(atom):
                sources.append(("result", i))
            else:
                sources.append(operands.get(atom) or firsts.setdefault(atom, ("result", i)))
        return tuple(sources)

    @functools.cached_property
    def has_long_loop(self) -> bool:
        """Whether it holds a loop whose number of steps is not known, or large."""
        return _compat.has_long_loop(self.jaxpr)

    @functools.cached_property
    def awaits_transpose(self) -> bool:
        """Whether it is the tangent of a ``custom_vjp`` function, which cannot be evaluated."""
        return any(map(_is_custom_lin, _compat.open_jaxpr(self.jaxpr).eqns))


# ---- Tracing -------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Traced:
    """A user's function as a functor.

    Attributes:
      functor: its operands are the function's, then the captured values.
      captured: rank-0 arrays and tracers that the function closes over. Small arrays are part of
        the functor instead.
      out_tree: the structure that the function returns.
    """

    functor: Functor
    captured: tuple[Any, ...]
    out_tree: Any


def trace(fun: Callable[..., Any], avals: Sequence[Any], name: str) -> Traced:
    """Traces a function of scalars.

    Args:
      fun: takes one scalar per entry of ``avals``; returns a pytree of scalars.
      avals: dtypes and weak types of the operands.
      name: of the function, for messages and kernels.

    Raises:
      TypeError: if the function returns anything but scalars.
      ValueError: if it captures a large array, or one whose values are not known.
    """
    scalars = [jax.ShapeDtypeStruct((), a.dtype, weak_type=a.weak_type) for a in avals]
    with use_abstract_mesh(_NO_MESH):
        closed, out = jax.make_jaxpr(fun, return_shape=True)(*scalars)
        if any(_captures(equation) for equation in closed.eqns):
            inline = functools.partial(_compat.inline_jits, closed, _compat.consts(closed))
            closed = jax.make_jaxpr(inline)(*scalars)
        _check_results(out, name)
        values = tuple(_compat.consts(closed))
        for value in values:
            check_captured(value, f"{name!r} captures")
        captured = tuple(value for value in values if np.ndim(value) == 0)
        if values:
            types = [jax.typeof(value) for value in captured]
            scalars += [jax.ShapeDtypeStruct((), t.dtype, weak_type=t.weak_type) for t in types]
            body = _compat.open_jaxpr(closed)

            def uncaptured(*args: Any) -> list[Any]:
                given = iter(args[len(avals) :])
                constants = [table(v) if np.ndim(v) else next(given) for v in values]
                return jax.core.eval_jaxpr(body, constants, *args[: len(avals)])

            closed = jax.make_jaxpr(uncaptured)(*scalars)
    return Traced(Functor(name, closed), captured, jax.tree.structure(out))


def _captures(equation: Any) -> bool:
    """Whether a jaxpr inside an equation is closed over values."""
    return any(
        _compat.consts(inner) or any(map(_captures, inner.eqns))
        for inner in _compat.subjaxprs(equation)
    )


def _check_results(out: Any, name: str) -> None:
    for path, leaf in jax.tree_util.tree_leaves_with_path(out):
        if leaf.shape != ():
            where = f" at {jax.tree_util.keystr(path)}" if path else ""
            raise TypeError(
                f"{name!r} must return scalars, one element's results, but returned an array of "
                f"shape {leaf.shape} and dtype {leaf.dtype}{where}."
            )


# ---- Derivatives ---------------------------------------------------------------------------------
#
# Memoised: higher derivatives of one function in a program share their lower ones.


def _derive(fun: Callable[..., Any], avals: Sequence[Any]) -> Any:
    """The closed jaxpr of a function that was made from a functor, for strongly typed scalars.

    A derivative rule that the user wrote may be closed over values, which the functor, traced
    without running the rule, does not know of. Scalars become literals, small arrays tables.
    """
    scalars = [jax.ShapeDtypeStruct((), aval.dtype) for aval in avals]
    with use_abstract_mesh(_NO_MESH):
        closed = jax.make_jaxpr(fun)(*scalars)
        constants = _compat.consts(closed)
        if not constants:
            return closed
        for value in constants:
            check_captured(value, "a derivative rule inside an elementwise function captures")
        if any(isinstance(c, jax.core.Tracer) for c in constants):
            raise ValueError(
                "a derivative rule inside an elementwise function captures a traced value. Pass it "
                "as an argument of the custom_jvp or custom_vjp function."
            )
        body = _compat.open_jaxpr(closed)

        def with_constants(*args: Any) -> list[Any]:
            values = [table(c) if np.ndim(c) else np.asarray(c)[()] for c in constants]
            return jax.core.eval_jaxpr(body, values, *args)

        return jax.make_jaxpr(with_constants)(*scalars)


@functools.lru_cache(maxsize=4096)
def _reduced(
    functor: Functor, results: tuple[int, ...], keep_operands: bool
) -> tuple[Functor, tuple[int, ...]]:
    wanted = [i in results for i in range(len(functor.out_avals))]
    reduced, used = _compat.dce(functor.jaxpr, wanted, keep_inputs=keep_operands)
    return Functor(functor.name, reduced, is_derived=functor.is_derived), used


def _is_custom_lin(equation: Any) -> bool:
    return equation.primitive.name == "custom_lin" or any(
        map(_is_custom_lin, (e for inner in _compat.subjaxprs(equation) for e in inner.eqns))
    )


@functools.lru_cache(maxsize=4096)
def _jvp(functor: Functor, active: tuple[int, ...]) -> tuple[Functor, tuple[int, ...]]:
    avals = functor.in_avals

    def tangents(*args: Any) -> list[Any]:
        primals, dots = args[: len(avals)], args[len(avals) :]

        # The other operands are constants here, so that their tangents are symbolic zeros.
        def of_active(*values: Any) -> list[Any]:
            operands = list(primals)
            for i, value in zip(active, values, strict=True):
                operands[i] = value
            return functor(*operands)

        _, outs = jax.jvp(of_active, tuple(primals[i] for i in active), tuple(dots))
        return [jnp.zeros(()) if out.dtype == jax.dtypes.float0 else out for out in outs]

    closed = _derive(tangents, [*avals, *(avals[i] for i in active)])
    nonzero = [not _is_zero(atom) for atom in _compat.open_jaxpr(closed).outvars]
    pruned, _ = _compat.dce(closed, nonzero, keep_inputs=True)
    derived = Functor(f"{functor.name}_jvp", pruned, is_derived=True)
    return derived, tuple(np.flatnonzero(nonzero).tolist())


def _is_zero(atom: Any) -> bool:
    return _compat.is_literal(atom) and not np.any(atom.val)


@functools.lru_cache(maxsize=4096)
def _transpose(
    functor: Functor, undefined: tuple[int, ...], zeroed: tuple[int, ...], results: tuple[int, ...]
) -> Functor:
    avals = functor.in_avals
    known = [i for i in range(len(avals)) if i not in undefined and i not in zeroed]

    by_lanes = functor.has_long_loop
    if by_lanes and functor.awaits_transpose:
        raise NotImplementedError(
            f"{functor.name!r} has a custom_vjp function and a loop, which reverse mode takes "
            "forward inside of the kernel. Give the function a custom_jvp rule instead."
        )

    def cotangents(*args: Any) -> list[Any]:
        operands: list[Any] = [jnp.zeros((), aval.dtype) for aval in avals]
        for i, value in zip(known, args[: len(known)], strict=True):
            operands[i] = value

        def linear(*values: Any) -> list[Any]:
            for i, value in zip(undefined, values, strict=True):
                operands[i] = value
            outs = functor(*operands)
            return [outs[i] for i in results]

        unknowns = [jax.ShapeDtypeStruct((), avals[i].dtype) for i in undefined]
        if by_lanes:
            of_lanes = linear if functor.is_derived else functools.partial(_linear_part, linear)
            return _transpose_by_lanes(of_lanes, unknowns, args[len(known) :])
        return list(jax.linear_transpose(linear, *unknowns)(list(args[len(known) :])))

    closed = _derive(
        cotangents, [avals[i] for i in known] + [functor.out_avals[i] for i in results]
    )
    pruned, _ = _compat.dce(closed, [True] * len(undefined), keep_inputs=True)
    return Functor(f"{functor.name}_transpose", pruned, is_derived=True)


def _linear_part(affine: Callable[..., list[Any]], *values: Any) -> list[Any]:
    """What a function that a user says is linear adds to its values at zero."""
    zeros = tuple(jnp.zeros_like(value) for value in values)
    return list(jax.jvp(affine, zeros, values)[1])


def _transpose_by_lanes(
    linear: Callable[..., list[Any]], unknowns: Sequence[Any], cotangents: Sequence[Any]
) -> list[Any]:
    """The transpose of a function with loops, which JAX does not transpose.

    The function is evaluated for the unit tangents, one lane for each, two for a complex operand,
    in which it may be linear over the real numbers only. Conditions of loops do not depend on
    tangents, so the lanes go around one loop together, and nothing is kept from step to step.
    """
    lanes = [
        (i, unit)
        for i, unknown in enumerate(unknowns)
        for unit in ((1, 1j) if jnp.issubdtype(unknown.dtype, jnp.complexfloating) else (1,))
    ]
    bases = [
        jnp.array([unit if k == i else 0 for k, unit in lanes], unknown.dtype)
        for i, unknown in enumerate(unknowns)
    ]
    outs = jax.vmap(linear, axis_size=len(lanes))(*bases)
    # What a unit tangent adds to the pairing of cotangents and results, Re(sum(ct * out)).
    paired = [jnp.real(ct * out) for ct, out in zip(cotangents, outs, strict=True)]
    shares = [functools.reduce(jnp.add, [p[lane] for p in paired]) for lane in range(len(lanes))]
    gradients: list[Any] = [jnp.zeros((), unknown.dtype) for unknown in unknowns]
    for (i, unit), share in zip(lanes, shares, strict=True):
        conjugate = 1 if unit == 1 else -1j
        gradients[i] += (conjugate * share).astype(unknowns[i].dtype)
    return gradients


# ---- Identity ------------------------------------------------------------------------------------


def _fingerprint(jaxpr: Any) -> Hashable:
    """A jaxpr as nested tuples, with variables numbered in the order they appear."""
    body = _compat.open_jaxpr(jaxpr)
    numbers: dict[Any, int] = {}

    def atom(a: Any) -> Hashable:
        if _compat.is_literal(a):
            return ("literal", _short(a.aval), np.asarray(a.val).tobytes())
        return numbers.setdefault(a, len(numbers))

    inputs = tuple((atom(var), _short(var.aval)) for var in (*body.constvars, *body.invars))
    equations = tuple(
        (
            equation.primitive.name,
            tuple(map(atom, equation.invars)),
            tuple((atom(var), _short(var.aval)) for var in equation.outvars),
            tuple((key, _frozen(value)) for key, value in sorted(equation.params.items())),
        )
        for equation in body.eqns
    )
    constants = tuple(map(_frozen, _compat.consts(jaxpr)))
    return (inputs, equations, tuple(map(atom, body.outvars)), constants)


def _short(aval: Any) -> str:
    """The part of a scalar's type that matters: ``float32[]``, with ``~`` for a weak type."""
    weak = "~" if getattr(aval, "weak_type", False) else ""
    return f"{weak}{aval.dtype}{list(aval.shape)}"


def _frozen(value: Any) -> Hashable:
    """An equation's parameter as something hashable; what is not gets compared by identity."""
    if _compat.is_jaxpr(value):
        return _fingerprint(value)
    if isinstance(value, (tuple, list)):
        return tuple(map(_frozen, value))
    if isinstance(value, (np.ndarray, jax.Array)):
        array = np.asarray(value)
        return (str(array.dtype), array.shape, array.tobytes())
    try:
        hash(value)
    except TypeError:
        return _Identity(value)
    return value


@dataclasses.dataclass(frozen=True, eq=False)
class _Identity:
    """Holds on to an object that is compared by identity."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)
