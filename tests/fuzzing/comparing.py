"""What the functions of a batch should give, and which ways give something else.

What is right is what ``jax.vmap`` of the functions gives, with derivatives by forward mode, which
JAX has through every loop. It is computed several times in the functions' own dtypes, each time
with what rounding operations read changed by a few units in the last place, and once with every
float in 64 bits. Their differences say how much the result of a function may differ at an element.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fuzzing.batches import KNOTS, SHAPE, TABLE, Batch, joined, namespace, with_jvp
from fuzzing.making import NUMPY
from fuzzing.ways import WAYS, chosen, cotangents, directions, inexact, pulled_back

COARSE = {name: float(jnp.finfo(NUMPY[name]).eps) for name in ("f32", "f64", "bf16", "f16", "c64")}
LEVELS = ((0, 0), (1, 1), (-1, 1), (0, -1))  # of noise


class _Noise:
    """Changes what it is given by a few units in the last place, differently at each place."""

    def __init__(self, levels: Any):
        self._levels = levels
        self._count = 0

    def __call__(self, x: Any) -> Any:
        x = jnp.asarray(x)
        if not jnp.issubdtype(x.dtype, jnp.inexact):
            return x
        self._count += 1
        info = jnp.finfo(x.dtype)
        sizes = 4 * float(info.eps) * np.cos(self._count * np.array([1.0, 2.5], np.float32))
        by = (self._levels * sizes).astype(info.dtype)
        if jnp.iscomplexobj(x):  # turned, too, away from branch cuts
            return x * lax.complex(1 + by[0], by[1])
        return x * (1 + by[0] + by[1])

    def with_jvp(self, *functions: Any) -> Any:
        """A function with a rule, which is given the levels: rules capture nothing."""

        def given(fun: Any) -> Any:
            def with_levels(levels: Any, *args: Any) -> Any:
                outside, self._levels = self._levels, levels
                try:
                    return fun(*args)
                finally:
                    self._levels = outside

            return with_levels

        result = with_jvp(*map(given, functions), extra=1)
        return lambda *args: result(self._levels, *args)


def _narrow(batch: Batch, operands: Sequence[Any], levels: Any) -> Any:
    """Values and slopes in the functions' own dtypes, with noise."""
    noise = _Noise(levels)
    changes = {"with_jvp": noise.with_jvp, "with_vjp": noise.with_jvp, "N": noise}
    names = namespace(elementwise=lambda f: f, **changes)
    return _plain(batch, operands, joined(batch.functions, names, noise=True))


def _in_64_bits(batch: Batch, operands: Sequence[Any]) -> Any:
    """Values and slopes with every float in 64 bits."""
    changes = dict.fromkeys(("f32", "f64", "bf16", "f16"), np.float64)
    changes |= {"c64": np.complex128, "TABLE": TABLE.astype("f8"), "KNOTS": KNOTS.astype("f8")}
    changes |= {"elementwise": lambda f: f, "with_vjp": with_jvp}
    operands = [x.astype(_wide(x.dtype)) for x in operands]
    return _plain(batch, operands, joined(batch.functions, namespace(**changes)))


def _plain(batch: Batch, operands: Sequence[Any], fun: Any) -> Any:
    """Values by ``jax.vmap``, and slopes in each direction (``_units``)."""
    args = [jnp.broadcast_to(x, SHAPE).ravel() for x in operands]
    which, units = batch.differentiable, _units(batch)

    of = inexact(jax.vmap(fun), args, which)
    tangents = [
        jnp.stack([jnp.full_like(args[k], unit if k == by else 0) for by, unit in units])
        for k in which
    ]
    slopes = jax.vmap(lambda *t: jax.jvp(of, [args[k] for k in which], list(t))[1])(*tangents)
    return jax.vmap(fun)(*args), slopes


def _units(batch: Batch) -> list[tuple[int, complex]]:
    """The directions of the slopes: operands, and for complex ones their imaginary parts."""
    which = batch.differentiable
    complex_ones = [k for k in which if np.iscomplexobj(batch.operands[k])]
    return [(k, 1) for k in which] + [(k, 1j) for k in complex_ones]


def _wide(dtype: Any) -> Any:
    if jnp.issubdtype(dtype, jnp.complexfloating):
        return np.complex128
    return np.float64 if jnp.issubdtype(dtype, jnp.floating) else dtype


@dataclasses.dataclass
class Right:
    """Values and slopes in 64 bits, and as they come out with noise, in float64."""

    values: list[list[np.ndarray]]
    slopes: list[list[np.ndarray]]


def right(batch: Batch) -> Right:
    """What is right; the first entry is that in 64 bits."""

    @jax.jit
    def both(operands: Any, levels: Any) -> Any:
        narrow = lax.map(lambda level: _narrow(batch, operands, level), levels)
        return narrow, _in_64_bits(batch, operands)

    with jax.default_device(jax.local_devices(backend="cpu")[0]):
        computed = both(batch.operands, np.array(LEVELS, np.float32))
    narrow, wide = jax.tree.map(np.asarray, computed)

    def column(part: int) -> list[list[np.ndarray]]:
        def in_64(x: np.ndarray) -> np.ndarray:
            return x if x.dtype.kind in "biu" else x.astype(_wide(x.dtype))

        return [
            [in_64(exact), *(in_64(x) for x in noisy)]
            for exact, noisy in zip(wide[part], narrow[part], strict=True)
        ]

    return Right(column(0), column(1))


# ---- Comparing -----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Difference:
    """A result that is not what it should be.

    Attributes:
      way: how it was computed.
      function: the number of the function; None for a gradient, which is of all of them.
      what: what was expected, and what came.
    """

    way: str
    function: int | None
    what: str


@dataclasses.dataclass
class Outcome:
    """What became of a batch."""

    differences: list[Difference] = dataclasses.field(default_factory=list)
    refused: dict[str, str] = dataclasses.field(default_factory=dict)
    compared: int = 0
    left_out: int = 0  # elements of which not even the sign is certain


class Expected(NamedTuple):
    """What one result of a way should be.

    Attributes:
      function: the number of the function; None for a gradient of several.
      dtype: of the result.
      rows: it in 64 bits, and with noise.
      size: of the terms that are summed up in it; 0 for a value.
    """

    function: int | None
    dtype: Any
    rows: list[np.ndarray]
    size: Any


def _expected(batch: Batch, right: Right, way: str) -> list[Expected]:
    """What the results of a way should be."""
    results = [(k, np.dtype(NUMPY[r.dtype])) for k, r in batch.results()]
    if not _is_derivative(way):
        return [
            Expected(k, dtype, [row.reshape(SHAPE) for row in rows], 0)
            for (k, dtype), rows in zip(results, right.values, strict=True)
        ]
    if way.startswith("tangent"):
        inexact_ones = [(k, dtype) for k, dtype in results if jnp.issubdtype(dtype, jnp.inexact)]
        return [
            _tangent(batch, k, dtype, slopes)
            for (k, dtype), slopes in zip(inexact_ones, right.slopes, strict=True)
        ]
    by = [chosen(batch)] if way == "gradient by one" else batch.differentiable
    return [_gradient(batch, k, right.slopes) for k in by]


def _is_derivative(way: str) -> bool:
    return way.startswith(("tangent", "gradient"))


def _tangent(batch: Batch, k: int, dtype: Any, slopes: list[np.ndarray]) -> Expected:
    """The sum of slopes by directions, of one result."""
    given = dict(zip(batch.differentiable, directions(batch), strict=True))
    by = [given[n].real if unit == 1 else given[n].imag for n, unit in _units(batch)]
    by = [np.broadcast_to(t, SHAPE).ravel().astype(np.float64) for t in by]
    rows = [[s * t for s, t in zip(row, by, strict=True)] for row in slopes]
    size = sum(map(np.abs, rows[0])).reshape(SHAPE)
    return Expected(k, dtype, [sum(row).reshape(SHAPE) for row in rows], size)


def _gradient(batch: Batch, k: int, slopes: list[list[np.ndarray]]) -> Expected:
    """The sum of slopes by cotangents, of one operand.

    JAX's gradient g of a complex operand is that of which Re(g dz) is the change of the results.
    """
    x, units = batch.operands[k], _units(batch)
    parts = [units.index((k, unit)) for unit in (1, 1j) if (k, unit) in units]
    pairs = list(zip(cotangents(batch), slopes, strict=True))
    rows = []
    for row in range(len(LEVELS) + 1):
        terms = [[(ct.ravel() * s[row][part]).real for ct, s in pairs] for part in parts]
        rows.append(
            [t if len(parts) == 1 else t - 1j * terms[1][n] for n, t in enumerate(terms[0])]
        )
    size = _summed_to(sum(map(np.abs, rows[0])), x.shape)
    alone = 0 if len(batch.functions) == 1 else None
    return Expected(alone, x.dtype, [_summed_to(sum(row), x.shape) for row in rows], size)


def _summed_to(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The sum of an array of ``SHAPE`` over the dimensions that an operand does not have."""
    padded = (1,) * (3 - len(shape)) + shape
    axes = tuple(d for d in range(3) if padded[d] == 1 and SHAPE[d] != 1)
    return x.reshape(SHAPE).sum(axis=axes, keepdims=True).reshape(shape)


def compare(actual: np.ndarray, expected: Expected, coarse: float) -> tuple[np.ndarray, np.ndarray]:
    """Which elements are wrong, and which ones could be compared.

    ``coarse`` is the precision that the terms of a sum had; 0 for values, which are no sums.
    """
    exact, *noisy = expected.rows
    same = functools.reduce(np.logical_and, [row == exact for row in noisy])
    if not jnp.issubdtype(expected.dtype, jnp.inexact):
        return same & (actual != exact), same
    info = jnp.finfo(expected.dtype)
    actual = actual.astype(_wide(expected.dtype))
    off = functools.reduce(np.maximum, [np.abs(row - exact) for row in noisy])
    eps, size = max(float(info.eps), coarse), np.maximum(np.abs(exact), expected.size)
    # Nothing shows the errors of what is right in 64 bits.
    floor = 32 if info.bits == 64 or expected.dtype == np.complex128 else 0.25
    allowed = 4 * off + 16 * eps * size + floor * eps
    certain = (np.abs(exact) < 0.5 * float(info.max)) & (allowed < 0.02 * size + 1e-3)
    wrong = certain & ~(np.abs(actual - exact) <= allowed)
    if not coarse:
        nan = functools.reduce(np.logical_and, [np.isnan(row) for row in expected.rows])
        infinite = same & np.isinf(exact)
        wrong |= (nan & ~np.isnan(actual)) | (infinite & (actual != exact))
        certain |= nan | infinite
    return wrong, certain


def _plain_gradient(batch: Batch, by: Sequence[int]) -> list[np.ndarray] | None:
    """By reverse mode, which has NaN in more places than forward mode; None if JAX has none."""
    names = namespace(elementwise=lambda f: f)

    def fun(*args: Any) -> Any:
        flat = [jnp.broadcast_to(x, SHAPE).ravel() for x in args]
        return [r.reshape(SHAPE) for r in jax.vmap(joined(batch.functions, names))(*flat)]

    try:
        return [np.asarray(g) for g in pulled_back(batch, fun, by)]
    except ValueError:
        return None


def _differing(
    batch: Batch, way: str, right: Right, results: list[np.ndarray], outcome: Outcome
) -> Iterator[Difference]:
    """The results of a way that are wrong somewhere."""
    precisions = [COARSE[d] for f in batch.functions for d in f.dtypes if d in COARSE]
    coarse = max(precisions) if _is_derivative(way) else 0.0
    plain: Any = ()
    for k, (actual, each) in enumerate(zip(results, _expected(batch, right, way), strict=True)):
        wrong, certain = compare(actual, each, coarse)
        if way.startswith("gradient") and np.any(wrong & np.isnan(actual)):
            by = [chosen(batch)] if way == "gradient by one" else batch.differentiable
            plain = plain or _plain_gradient(batch, by)
            wrong &= ~np.isnan(actual) | (False if plain is None else ~np.isnan(plain[k]))
        outcome.compared += int(np.sum(certain))
        outcome.left_out += int(np.sum(~certain))
        if np.any(wrong):
            at = tuple(int(n) for n in np.argwhere(wrong)[0])
            values = [row[at].item() for row in each.rows]
            what = f"result {k} at {at}: {actual[at]} where {values} is right"
            yield Difference(way, each.function, what)


def run(batch: Batch, ways: Iterable[str] = WAYS) -> Outcome:
    """Computes a batch and compares.

    Raises:
      Exception: where JAX itself does not take the functions.
    """
    outcome = Outcome()
    with jax.enable_x64(True), np.errstate(all="ignore"):
        expected = right(batch)
        for way in ways:
            if way.startswith("tangent") and batch.has("with_vjp"):
                continue  # JAX has no forward mode through these
            fun, lowering = WAYS[way]
            try:
                results = [np.asarray(r) for r in fun(batch, lowering)]
            except NotImplementedError as error:
                outcome.refused[way] = str(error)
            except Exception as error:
                what = f"{type(error).__name__}: {error}"
                outcome.differences.append(Difference(way, None, what))
            else:
                outcome.differences += _differing(batch, way, expected, results, outcome)
    return outcome
