"""Looks for functions that a way computes wrongly: ``python -P tests/fuzzing/search.py --help``.

A seed is a batch of functions that are results of one kernel. What differs is made smaller, one
function by itself, and printed as a program.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import itertools
import os
import pathlib
import random
import sys
import time
from collections.abc import Iterable, Iterator, Sequence

if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
    os.environ["XLA_FLAGS"] = (
        "--xla_force_host_platform_device_count=4 --xla_backend_optimization_level=0"
    )

import jax
import jax.numpy as jnp
import numpy as np

from fuzzing import making
from fuzzing.batches import SHAPE, Batch, operands
from fuzzing.comparing import Difference, run
from fuzzing.functions import Block, lines, smaller
from fuzzing.ways import WAYS

TRIES = 150  # to make a function smaller


def batch(seed: int, together: int) -> Batch:
    """The functions of a seed."""
    rng = random.Random(seed)
    given = making.parameters(rng)
    functions = tuple(making.function(rng, given) for _ in range(together))
    return Batch(given, functions, operands(rng, given))


def chosen(seed: int) -> list[str]:
    """The ways that are tried of a seed: values and gradients, and three others."""
    always, others = ["value", "gradient"], sorted(set(WAYS) - {"value", "gradient"})
    return [*always, *random.Random(seed).sample(others, 3)]


@dataclasses.dataclass
class Tally:
    """What became of many seeds."""

    functions: int = 0
    compared: int = 0
    left_out: int = 0
    not_of_jax: int = 0
    refused: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    faults: dict[int, str] = dataclasses.field(default_factory=dict)  # by the seed

    def __str__(self) -> str:
        parts = [
            f"{self.functions} functions, {self.compared} elements compared, {self.left_out} left "
            f"out, {self.not_of_jax} batches that JAX itself refuses",
            *(f"refused {count} times: {text}" for text, count in self.refused.most_common()),
            *(f"seed {seed}:\n{text}" for seed, text in self.faults.items()),
        ]
        return "\n".join(parts)


def search(seeds: Iterable[int], together: int, until: float, *, report=lambda _: None) -> Tally:
    """Tries seeds until a time of ``time.monotonic``; of each, the first difference is reported."""
    tally = Tally()
    for seed in seeds:
        if time.monotonic() > until:
            break
        report(seed)
        made = batch(seed, together)
        try:
            outcome = run(made, chosen(seed))
        except Exception as error:
            tally.not_of_jax += 1
            print(f"seed {seed}: JAX: {type(error).__name__}: {str(error)[:200]}", file=sys.stderr)
            continue
        tally.functions += together
        tally.compared += outcome.compared
        tally.left_out += outcome.left_out
        tally.refused.update(text[:100] for text in outcome.refused.values())
        if outcome.differences:
            tally.faults[seed] = explained(made, outcome.differences[0])
            print(f"seed {seed}:\n{tally.faults[seed]}", flush=True)
        jax.clear_caches()
    return tally


# ---- Smaller, and as a program -------------------------------------------------------------------


def _differs(made: Batch, way: str) -> Difference | None:
    try:
        return next(iter(run(made, [way]).differences), None)
    except Exception:
        return None


def explained(made: Batch, difference: Difference) -> str:
    """A difference with the smallest functions found that show it, most often one."""
    way = difference.way
    if difference.function is not None:
        alone = _with(made, [made.functions[difference.function]])
        made = alone if _differs(alone, way) else made
    return reproduction(_constant(_smallest(_fewest(made, way), way), way), way)


def _with(made: Batch, functions: Sequence[Block]) -> Batch:
    return dataclasses.replace(made, functions=tuple(functions))


def _fewest(made: Batch, way: str) -> Batch:
    """As few functions as differ together."""
    for block in made.functions:
        alone = _with(made, [block])
        if _differs(alone, way):
            return alone
    for block in made.functions:
        fewer = _with(made, [f for f in made.functions if f is not block])
        if _differs(fewer, way):
            made = fewer
    return made


def _smallest(made: Batch, way: str) -> Batch:
    for _ in range(TRIES):
        less = next(_smaller_that_differ(made, way), None)
        if less is None:
            break
        made = less
    return made


def _smaller_that_differ(made: Batch, way: str) -> Iterator[Batch]:
    for k, function in enumerate(made.functions):
        for block in itertools.islice(smaller(function), TRIES):
            less = _with(made, [*made.functions[:k], block, *made.functions[k + 1 :]])
            if block != function and _differs(less, way):
                yield less


def _constant(made: Batch, way: str) -> Batch:
    """The same of arrays whose elements are all alike, where they will do."""
    for index in np.ndindex(*SHAPE):
        full = [np.broadcast_to(x, SHAPE)[index] for x in made.operands]
        arrays = [np.full_like(x, value) for x, value in zip(made.operands, full, strict=True)]
        less = dataclasses.replace(made, operands=tuple(arrays))
        if _differs(less, way):
            return less
    return made


def reproduction(made: Batch, way: str) -> str:
    """A program that computes the difference."""
    difference = _differs(made, way)
    numbers = [k for k, _ in enumerate(made.functions)]
    texts = ["\n".join(lines(f, f"f{k}")) for k, f in zip(numbers, made.functions, strict=True)]
    arrays = [
        f"    {_array(x)}.astype({variable.dtype}),  # {variable.name}"
        for variable, x in zip(made.given, made.operands, strict=True)
    ]
    return "\n".join(
        [
            f"# {way}: {difference.what if difference else 'differs no more'}",
            "import sys; sys.path.insert(0, 'tests')",
            "from fuzzing.batches import *",
            "globals().update(namespace())",
            "nan, inf = np.nan, np.inf",
            *texts,
            f"fun = lambda *xs: [{', '.join(f'f{k}(*xs)' for k in numbers)}]",
            "operands = [",
            *arrays,
            "]",
            "with jax.enable_x64(True):",
            "    print(je.elementwise(fun, lowering='kernel')(*operands))",
            "    flat = [jnp.broadcast_to(x, SHAPE).ravel() for x in operands]",
            "    print([y.reshape(SHAPE) for y in jax.tree.leaves(jax.jit(jax.vmap(fun))(*flat))])",
        ]
    )


def _array(x: np.ndarray) -> str:
    """An array as Python."""
    if jnp.issubdtype(x.dtype, jnp.floating):
        x = x.astype(float)
    if x.size and (x == x.ravel()[0]).all():
        return f"np.full({x.shape}, {x.ravel()[0].item()})"
    return f"np.array({x.tolist()})"


def main() -> None:
    """Runs as a program."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("first", type=int, help="the first seed")
    parser.add_argument("count", type=int, help="how many seeds")
    parser.add_argument("--together", type=int, default=8, help="functions of a seed")
    parser.add_argument("--minutes", type=float, default=1e6, help="the longest time")
    args = parser.parse_args()
    seeds = range(args.first, args.first + args.count)
    until = time.monotonic() + 60 * args.minutes
    tally = search(seeds, args.together, until, report=lambda s: print("#", s, file=sys.stderr))
    print(tally)
    sys.exit(bool(tally.faults))


if __name__ == "__main__":
    main()
