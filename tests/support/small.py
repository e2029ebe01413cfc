"""Functions of small arrays, many in one program: by their kernels, and by ``jax.vmap``."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from cases import equations

from support import simt, ulp
from support.sampling import sampled

COUNT = 48
EVERY_KIND = ("float32", "bfloat16", "int32", "int8", "bool", "complex64")
NUMBERS = tuple(name for name in EVERY_KIND if name != "bool")
REALS = tuple(name for name in NUMBERS if name != "complex64")
FLOATS = ("float32", "bfloat16")
INTEGERS = ("int32", "int8")
# Compiling takes longer than running.
_QUICK = {"xla_backend_optimization_level": 0}
INDICES = (*range(-9, 10), 2**31 - 1, -(2**31), 63, 64, -64)


@dataclasses.dataclass(frozen=True)
class Case:
    """A function of one element.

    Attributes:
      fun: takes two values of one dtype and an int32, often an index; returns a tree of arrays.
      dtypes: of the two.
      allowed: the largest error in units in the last place.
      zeros: whether zeros must have the right sign.
      special: whether there are infinities and NaN among the values.
    """

    fun: Callable[..., Any]
    dtypes: tuple[str, ...] = ("float32",)
    allowed: int = 0
    zeros: bool = True
    special: bool = True


def operands(dtype: str, *, special: bool = True) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Numbers of which few sums and products are exact, none of them 0, many of them equal."""
    rng = np.random.default_rng(18)
    i = np.resize(np.array(INDICES, np.int32), COUNT)
    x, y = rng.integers(1, 5, (2, COUNT)) * rng.choice([-1, 1], (2, COUNT))
    if dtype == "bool":
        return x > 0, y > 0, i
    if dtype == "complex64":
        x, y = x + 1j * np.roll(x, 1), y + 1j * np.roll(y, 5)
    x, y = (v.astype(jnp.dtype(dtype)) for v in (x, y))
    if dtype in INTEGERS:
        limits = np.iinfo(dtype)
        x[:3], y[1:5] = [limits.min, limits.max, limits.max], limits.min
    elif special and dtype != "complex64":
        x[:5] = [np.nan, np.inf, -np.inf, np.nan, 1]
        y[:5] = [1, np.inf, np.inf, np.nan, np.nan]
    return x, y, i


def scalars(fun: Callable[..., Any]) -> Callable[..., Any]:
    """The function whose results are the entries of this one's."""

    def entries(*args: Any) -> tuple[Any, ...]:
        leaves = jax.tree.leaves(fun(*args))
        return tuple(leaf[index] for leaf in leaves for index in np.ndindex(leaf.shape))

    return entries


def by_vmap(fun: Callable[..., Any], *inputs: np.ndarray) -> list[np.ndarray]:
    """What the entries should be."""
    return by_vmap_each([fun], inputs)[0]


def by_vmap_each(
    functions: Sequence[Callable[..., Any]], inputs: Sequence[np.ndarray]
) -> list[list[np.ndarray]]:
    """What the entries of each function should be."""
    batched = jax.jit(lambda *xs: [jax.vmap(f)(*xs) for f in functions], compiler_options=_QUICK)
    return [_columns(jax.tree.leaves(results)) for results in batched(*inputs)]


def _columns(leaves: Sequence[jax.Array]) -> list[np.ndarray]:
    columns = [np.asarray(leaf).reshape(len(leaf), -1) for leaf in leaves]
    return [column[:, k] for column in columns for k in range(column.shape[1])]


def kernel_call(case: Case, dtype: str) -> simt.Call:
    """A case's kernel and what it is called with."""
    inputs = operands(dtype, special=case.special)
    functor = simt.make_functor(scalars(case.fun), [x.dtype.name for x in inputs])
    results = tuple(aval.dtype.name for aval in functor.out_avals)
    return simt.Call(simt.kernel_of(functor), (COUNT,), results, inputs)


Key = tuple[str, str]  # a case's name and a dtype


def run(
    cases: Mapping[str, Case], keys: Iterable[Key] | None = None, *, sanitize: bool = False
) -> dict[Key, list[np.ndarray]]:
    """What the kernels of cases give, of every dtype or of these; all are in one program."""
    keys = list(keys or keys_of(cases))
    calls = [kernel_call(cases[name], dtype) for name, dtype in keys]
    program = simt.build([c.kernel for c in calls], sanitize=sanitize)
    return dict(zip(keys, program.run(calls), strict=True))


def keys_of(cases: Mapping[str, Case]) -> list[Key]:
    """Every case with every dtype."""
    return [(name, dtype) for name, case in cases.items() for dtype in case.dtypes]


def expected(cases: Mapping[str, Case], keys: Iterable[Key]) -> dict[Key, list[np.ndarray]]:
    """What they should give: those of one dtype are one program of XLA."""
    by_operands: dict[tuple[str, bool], list[str]] = {}
    for name, dtype in keys:
        by_operands.setdefault((dtype, cases[name].special), []).append(name)
    found = {}
    for (dtype, special), names in by_operands.items():
        every = by_vmap_each([cases[name].fun for name in names], operands(dtype, special=special))
        found |= {(name, dtype): entries for name, entries in zip(names, every, strict=True)}
    return found


class Table:
    """Cases that run together.

    By default each is tested with two of its dtypes: the first and, from case to case, another.
    """

    def __init__(self, cases: Mapping[str, Case]) -> None:
        self.cases = cases
        self._default = set()
        for k, (name, case) in enumerate(cases.items()):
            first, *others = case.dtypes
            self._default |= {
                (name, first),
                *((name, d) for d in others[k % len(others or "-") :][:1]),
            }
        self._found: dict[Key, tuple[list[np.ndarray], list[np.ndarray]]] = {}

    def parameters(self) -> list[Any]:
        """A test's parameters: the names and dtypes."""
        return sampled(keys_of(self.cases), self._default)

    def found(self, name: str, dtype: str) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """What a kernel gives, and what JAX does."""
        if (name, dtype) not in self._found:
            is_default = (name, dtype) in self._default
            keys = [key for key in keys_of(self.cases) if (key in self._default) == is_default]
            kernels, jaxs = run(self.cases, keys), expected(self.cases, keys)
            self._found |= {key: (kernels[key], jaxs[key]) for key in keys}
        return self._found[name, dtype]

    def check(self, name: str, dtype: str) -> None:
        """Compares what a kernel gives with what JAX gives."""
        compare(self.cases[name], *self.found(name, dtype))


def check(case: Case, dtype: str, actual: list[np.ndarray]) -> None:
    """Compares what a kernel gave with what JAX gives."""
    compare(case, actual, by_vmap(case.fun, *operands(dtype, special=case.special)))


def compare(case: Case, actual: list[np.ndarray], wanted: list[np.ndarray]) -> None:
    """Compares all entries to the bounds of a case."""
    assert not isinstance(actual, simt.LaunchError)
    for entry, (a, e) in enumerate(zip(actual, wanted, strict=True)):
        bad = np.flatnonzero(ulp.wrong(a, e, case.allowed, zeros=case.zeros))[:8]
        assert not len(bad), f"entry {entry} at {bad}: {a[bad]} should be {e[bad]}"


def primitives(case: Case) -> set[str]:
    """The primitives in a case's jaxpr."""
    inputs = operands(case.dtypes[0])
    functor = simt.make_functor(scalars(case.fun), [x.dtype.name for x in inputs])
    return {equation.primitive.name for equation in equations(functor.jaxpr)}
