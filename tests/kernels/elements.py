"""Data, references and comparisons of the kernel tests."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence

import jax
import numpy as np
from support import simt, ulp
from support.reference import np_dtype

DTYPES = (
    *("bool", "int8", "uint8", "int16", "int32"),
    *("float8_e4m3fn", "float8_e5m2", "float16", "bfloat16", "float32", "float64"),
    *("complex64", "complex128"),
)
# One dtype of each width, and bool.
WIDTHS = ("bool", "int8", "bfloat16", "float32", "float64", "complex128")
SIZES = (*range(71), 255, 256, 257, 1023, 1024, 1025)


def random_array(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Values that a misplaced, missing or doubled access would change."""
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    kind = np_dtype(dtype)
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        return rng.integers(limits.min, limits.max, shape, dtype=kind, endpoint=True)
    values = rng.normal(scale=10, size=shape)
    if kind.kind == "c":
        values = values + 1j * rng.normal(scale=10, size=shape)
    return np.asarray(values).astype(kind)


def widened(x: np.ndarray) -> np.ndarray:
    """An array in the type that kernels compute in."""
    is_narrow = ulp.is_float(x.dtype) and x.dtype.itemsize <= 2
    return x.astype(np.float32) if is_narrow else x


@dataclasses.dataclass(frozen=True)
class Function:
    """A function of one element that is also a function of NumPy arrays.

    Attributes:
      fun: only operators, so that it means the same for JAX's scalars and NumPy's arrays.
      dtypes: of the operands.
    """

    fun: Callable
    dtypes: tuple[str, ...]

    @functools.cached_property
    def functor(self):
        """What is traced of it."""
        return simt.make_functor(self.fun, self.dtypes)

    def results(self) -> tuple[str, ...]:
        """The dtypes of the results."""
        return tuple(aval.dtype.name for aval in self.functor.out_avals)

    def kernel(
        self,
        shapes: Sequence[tuple[int, ...]] | None = None,
        index_bits: int = 32,
        aliases: tuple[tuple[int, int], ...] = (),
    ):
        """The kernel for operands of these shapes, or for contiguous ones."""
        if index_bits == 32:
            return simt.kernel_of(self.functor, shapes, aliases=aliases)
        shapes = shapes or [(64,)] * len(self.dtypes)
        return simt.kernel_of(self.functor, *_symbolic(shapes), aliases=aliases)

    def reference(self, operands: Sequence[np.ndarray], shape: tuple[int, ...]) -> list[np.ndarray]:
        """The results by NumPy, on operands that are broadcast first."""
        wide = [np.broadcast_to(widened(x), shape) for x in operands]
        with np.errstate(all="ignore"):
            results = self.fun(*wide)
        results = results if isinstance(results, tuple) else (results,)
        return [
            np.asarray(result).astype(np_dtype(dtype))
            for result, dtype in zip(results, self.results(), strict=True)
        ]


def _symbolic(shapes):
    """The shapes, with symbols for all extents but 1: such a kernel has 64-bit indices."""
    result = np.broadcast_shapes(*shapes)
    names = ", ".join(f"d{i}" for i in range(len(result)))
    symbols = jax.export.symbolic_shape(names) if result else ()

    def named(shape):
        first = len(result) - len(shape)
        return tuple(1 if n == 1 else symbols[first + d] for d, n in enumerate(shape))

    return [named(shape) for shape in shapes], named(result)


@dataclasses.dataclass
class Batch:
    """Calls that run in one process, and what each of them should give."""

    calls: list[simt.Call] = dataclasses.field(default_factory=list)
    expected: list[list[np.ndarray]] = dataclasses.field(default_factory=list)

    def add(
        self, function: Function, operands, *, index_bits=32, like=None, aliases=(), **options
    ) -> None:
        """One call of a function. ``like`` gives the shapes that decide about the kernel."""
        shape = np.broadcast_shapes(*(x.shape for x in operands))
        shapes = like or [x.shape for x in operands]
        kernel = function.kernel(shapes, index_bits, aliases)
        call = simt.Call(
            kernel, shape, function.results(), tuple(operands), aliases=aliases, **options
        )
        self.calls.append(call)
        self.expected.append(function.reference(operands, shape))

    def check(self, *, sanitize: bool = True, flags: tuple[str, ...] = ("-w",)) -> None:
        """Runs all calls, under the sanitizers, and compares every bit."""
        assert self.calls
        program = simt.build([call.kernel for call in self.calls], sanitize=sanitize, flags=flags)
        for call, actual, expected in zip(
            self.calls, program.run(self.calls), self.expected, strict=True
        ):
            assert not isinstance(actual, simt.LaunchError), (actual, describe(call))
            for number, (x, y) in enumerate(zip(actual, expected, strict=True)):
                bad = ulp.wrong(x, y, 0)
                if bad.any():
                    where = tuple(int(i[0]) for i in np.nonzero(bad))
                    raise AssertionError(
                        f"result {number} at {where} is {x[where]!r} and should be {y[where]!r}; "
                        f"{bad.sum()} of {bad.size} are wrong in {describe(call)}"
                    )


def describe(call: simt.Call) -> str:
    """A call in words."""
    operands = ", ".join(f"{x.dtype.name}{list(x.shape)}" for x in call.operands)
    return (
        f"({operands}) -> {list(call.shape)} {call.results}, offsets {call.offsets}, "
        f"{call.kernel.space}, pack {call.kernel.pack}"
    )


def itemsizes(function: Function) -> list[int]:
    """Bytes per element of every array, results first."""
    return [np_dtype(name).itemsize for name in (*function.results(), *function.dtypes)]


def every_offset(function: Function) -> list[tuple[int, ...]]:
    """Every way in which the arrays can lie around the boundaries of 16 bytes."""
    return list(itertools.product(*(range(0, 16, size) for size in itemsizes(function))))


def random_offsets(rng: np.random.Generator, function: Function) -> tuple[int, ...]:
    """One such way, of those that differ by array."""
    return tuple(int(rng.integers(0, 16 // n)) * n for n in itemsizes(function))
