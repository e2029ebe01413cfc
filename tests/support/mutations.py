"""Programs with something changed at random: each must be an error, or right, and none a crash.

Run as a program, ``python mutations.py FIRST COUNT LOG``, it tries as many seeds from FIRST on.
Before each it writes to LOG what it is about to do, and at the end it prints the counts.

What is changed are the attributes of the custom call, the buffers that it is given, bytes of
exported programs and bytes of serialised executables. Of these bytes, only those of the attributes:
others are XLA's and JAX's to check, and XLA may crash at them before this package is asked. Where a
changed attribute gets the digest that it should have, the text stays as it is: whoever writes
another text and vouches for it may write what crashes.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import itertools
import json
import math
import pathlib
import random
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import jax
import jax.export
import numpy as np
from cases import TARGET
from jax.experimental import serialize_executable

import jax_elementwise as je
from jax_elementwise._codegen.kernel import Kernel
from jax_elementwise._extension import DTYPE_CODES
from support import programs

CUSTOM_CALL = jax.export.DisabledSafetyCheck.custom_call(TARGET)
KINDS = ("stale", "vouched", "untrusted", "buffers", "export", "executable")


class MismatchError(AssertionError):
    """A program that ran and should not have, or gave other values than it should."""


# ---- Programs that are right ---------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Base:
    """A program.

    Attributes:
      fun: what it computes, by NumPy, exact for small integers.
      kernel: its kernel.
      operands: what it is called with.
      jitted: a function of JAX with this kernel.
    """

    fun: Callable[..., Sequence[np.ndarray]]
    kernel: Kernel
    operands: tuple[np.ndarray, ...]
    jitted: Any

    @property
    def results(self) -> list[np.ndarray]:
        return list(self.fun(*self.operands))


def _base(fun: Any, *operands: np.ndarray) -> Base:
    f = je.elementwise(lambda *xs: tuple(fun(*xs)), name="mutated", lowering="kernel")
    return Base(fun, f._kernel(operands, {}), operands, jax.jit(f))


def _numbered(x: np.ndarray, first: bool = True) -> list[np.ndarray]:
    count = np.arange(x.size).reshape(x.shape) if first else 0
    return [(x + count).astype(np.float32)]


def bases() -> list[Base]:
    """Programs with all that attributes can say."""
    f32, i32 = np.float32, np.int32
    x = np.arange(60, dtype=f32).reshape(3, 4, 5)
    index = je.cuda_functor("x + i", inputs="float x", index="i", outputs="float")
    return [
        _base(lambda x: [x * 2 + 1], x),
        _base(lambda x, y: [x * 2 + y], x, x[0, 0]),
        _base(lambda x, y, z: [x * y - z], x, x[:, :, :1], x[:, :1]),
        _base(lambda x, y: [x + y, x > y], x.astype(i32), np.int32(7)),
        _base(lambda x, y: [x + y], x[0, 0], x[0, 0, ::-1]),
        _base(lambda x, y: [x * 3 + y], f32(2), f32(5)),
        Base(_numbered, index._kernel((x,), {}), (x,), jax.jit(lambda x: [index(x)])),
    ]


# ---- Mutations -----------------------------------------------------------------------------------

NUMBERS = (0, 1, 2, 3, 4, 5, 7, 8, 11, 12, 15, 16, 17, 31, 32, 33, 63, 64, 127, 128, 255, 2**31 - 1,
           2**31, 2**32, 2**40, 2**62, 2**63 - 1)  # fmt: skip
TEXTS = ("", " ", "--use_fast_math", "--device-as-default-execution-space", "-o /tmp/x", "\0", "{}",
         '"', "\\", "\n", "../x", "k", "\u00e9", "x" * 300, "a b")  # fmt: skip

PLAUSIBLE: dict[str, Sequence[int]] = {
    "pack": (1, 2, 4, 8, 16),
    "index_bits": (32, 64),
    "groups": range(4),
    "spans": range(-8, 8),
    "operand_dtypes": tuple(DTYPE_CODES.values()),
    "result_dtypes": tuple(DTYPE_CODES.values()),
}
PLAIN = b"0123456789 abcdefxyzABCXYZ_(){}<>+-*/;"


def number(rng: random.Random, value: int) -> int:
    choice = rng.randrange(4)
    if choice == 0:
        return rng.choice(NUMBERS) * rng.choice((1, -1))
    if choice == 1:
        return ~value
    if choice == 2:
        return value + rng.choice((-1, 1))
    return (value ^ 1 << rng.randrange(63)) % 2**63


def numbers(rng: random.Random, values: Sequence[int]) -> tuple[int, ...]:
    result = list(values)
    choice = rng.randrange(6)
    if choice == 0 or not result:
        result.insert(rng.randrange(len(result) + 1), rng.choice(NUMBERS[:20]))
    elif choice == 1:
        del result[rng.randrange(len(result))]
    elif choice == 2:
        rng.shuffle(result)
    elif choice == 3:
        result *= rng.choice((0, 2, 40, 130))
    else:
        at = rng.randrange(len(result))
        result[at] = number(rng, result[at])
    return tuple(result)


def text(rng: random.Random, value: str) -> str:
    choice = rng.randrange(4)
    if choice == 0 or not value:
        return rng.choice(TEXTS)
    at = rng.randrange(len(value))
    if choice == 1:
        return value[:at] + value[at + 1 :]
    return value[:at] + chr(rng.choice((0, 9, 32, 48, 65, 122, 233, 0x2028))) + value[at + 1 :]


def plausible(rng: random.Random, name: str, value: Any) -> Any:
    """Another value of an attribute that some kernel might have."""
    if isinstance(value, int):
        return rng.choice(PLAUSIBLE[name])
    result = list(value)
    if result and rng.random() < 0.7:
        result[rng.randrange(len(result))] = rng.choice(PLAUSIBLE[name])
        return tuple(result)
    return tuple(rng.choices(PLAUSIBLE[name], k=rng.randrange(4)))


def mutated(rng: random.Random, name: str, value: Any) -> Any:
    """Another value in the place of an attribute, mostly of its type."""
    if rng.random() < 0.05:
        return rng.choice(["4", 4, np.int32(4), np.float32([1, 2]), True, (1,)])
    if name in PLAUSIBLE and rng.random() < 0.6:
        return plausible(rng, name, value)
    change = text if isinstance(value, str) else number if isinstance(value, int) else numbers
    return change(rng, value)


def mutate_attributes(
    rng: random.Random, attributes: dict[str, Any], names: Sequence[str]
) -> dict[str, Any]:
    result = dict(attributes)
    for name in rng.sample(names, rng.choice((1, 1, 1, 2, 3))):
        if rng.random() < 0.03:
            del result[name]
        else:
            result[name] = mutated(rng, name, result[name])
    if rng.random() < 0.02:
        result["another"] = 3
    return result


def mutate_array(rng: random.Random, x: np.ndarray) -> np.ndarray:
    choice = rng.randrange(6)
    if choice == 0:
        return x.astype(rng.choice(["f4", "i4", "f2", "i1", "?", "c8"]))
    if choice == 1:
        return x.ravel()
    if choice == 2:
        return x[None]
    if choice == 3 and x.ndim:
        return np.repeat(x, rng.choice((0, 2)), rng.randrange(x.ndim))
    if choice == 4 and x.ndim:
        return x.take(range(rng.randrange(3)), rng.randrange(x.ndim), mode="wrap")
    return x.reshape(x.shape[::-1])


def mutate_arrays(rng: random.Random, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    result = [np.asarray(x) for x in arrays]
    choice = rng.randrange(8)
    if choice == 0:
        result.insert(rng.randrange(len(result) + 1), rng.choice(result))
    elif choice == 1 and len(result) > 1:
        del result[rng.randrange(len(result))]
    elif choice == 2:  # all alike, which may be right
        axis = min((x.ndim for x in result), default=0) - 1
        if axis >= 0:
            result = [np.concatenate([x, x], -1) for x in result]
    else:
        at = rng.randrange(len(result))
        result[at] = mutate_array(rng, result[at])
    return result


# ---- Trying them ---------------------------------------------------------------------------------


def expect(base: Base, operands: Sequence[np.ndarray], results: Sequence[np.ndarray]) -> None:
    """Raises unless a program that ran gave what its function gives for these operands.

    A program may hold any shapes with as many elements as the kernel reads.
    """
    dimensions = iter(results[0].shape)
    groups, spans = base.kernel.space.groups, base.kernel.space.spans
    extents = [math.prod(itertools.islice(dimensions, group)) for group in groups]
    merged = [
        np.reshape(x, [n if span >> d & 1 else 1 for d, n in enumerate(extents)])
        for x, span in zip(operands, spans, strict=False)  # the index is the last one
    ]
    with np.errstate(all="ignore"):
        expected = [np.broadcast_to(e, extents).ravel() for e in base.fun(*merged)]
    if [(y.size, y.dtype) for y in results] != [(e.size, e.dtype) for e in expected]:
        raise MismatchError(f"results of the wrong size or dtype: {results}")
    for y, e in zip(results, expected, strict=True):
        if not np.array_equal(y.ravel(), e):
            raise MismatchError(f"it gave {y.ravel().tolist()} instead of {e.tolist()}")


@dataclasses.dataclass
class Fuzzer:
    """Tries mutations by their seeds."""

    log: pathlib.Path
    counts: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)

    def __post_init__(self) -> None:
        self.bases = bases()
        je.trust_programs()
        for base in self.bases:
            attributes = programs.attributes_of(base.kernel)
            run = programs.run(attributes, base.operands, programs.like(*base.results))
            expect(base, base.operands, run)
        self.exports = [_exported(base) for base in self.bases]
        self.executables = [_executable(base) for base in self.bases]

    def try_seed(self, seed: int) -> None:
        rng = random.Random(seed)
        kind = KINDS[seed % len(KINDS)]
        which = rng.randrange(len(self.bases))
        je.trust_programs(kind != "untrusted")
        try:
            getattr(self, f"_{kind}")(rng, seed, which)
        except MismatchError as error:
            raise MismatchError(f"seed {seed}: {error}. {self.log.read_text()}") from None
        except Exception as error:
            ours = "jax_elementwise: " in str(error)
            self.counts[f"{kind}: error {'of ours' if ours else 'of JAX'}"] += 1
        else:
            self.counts[f"{kind}: right"] += 1
        if seed % 100 == 99:
            jax.clear_caches()

    def _about_to(self, seed: int, which: int, **what: Any) -> None:
        self.log.write_text(f"seed {seed}, program {which}: {what!r}")

    def _call(
        self, seed: int, which: int, attributes: dict[str, Any], trusted: bool = True
    ) -> None:
        base = self.bases[which]
        good = programs.attributes_of(base.kernel)
        changed = {k: v for k, v in attributes.items() if repr(good.get(k)) != repr(v)}
        self._about_to(seed, which, changed=changed, missing=set(good) - set(attributes))
        outs = programs.run(attributes, base.operands, programs.like(*base.results))
        if not trusted:
            raise MismatchError("a program ran that was not trusted")
        expect(base, base.operands, outs)

    def _stale(self, rng: random.Random, seed: int, which: int) -> None:
        good = programs.attributes_of(self.bases[which].kernel)
        self._call(seed, which, mutate_attributes(rng, good, sorted(good)))

    def _vouched(self, rng: random.Random, seed: int, which: int) -> None:
        good = programs.attributes_of(self.bases[which].kernel)
        names = sorted(set(good) - {"digest", "source", "format"})
        self._call(seed, which, _vouch(mutate_attributes(rng, good, names)))

    def _untrusted(self, rng: random.Random, seed: int, which: int) -> None:
        good = programs.attributes_of(self.bases[which].kernel)
        names = sorted(set(good) - {"digest"})
        # Not what this process lowers itself.
        good["source"] += "// another\n"
        changed = mutate_attributes(rng, good, names) if rng.random() < 0.9 else good
        self._call(seed, which, _vouch(changed), trusted=False)

    def _buffers(self, rng: random.Random, seed: int, which: int) -> None:
        base = self.bases[which]
        operands, results = list(base.operands), base.results
        if rng.random() < 0.7:
            operands = mutate_arrays(rng, operands)
            with np.errstate(all="ignore"), contextlib.suppress(TypeError, ValueError):
                results = list(base.fun(*operands)) if rng.random() < 0.7 else results
        if rng.random() < 0.4:
            results = mutate_arrays(rng, results)
        shapes = [
            [(np.shape(x), np.asarray(x).dtype.name) for x in xs] for xs in (operands, results)
        ]
        self._about_to(seed, which, operands=shapes[0], results=shapes[1])
        outs = programs.run(programs.attributes_of(base.kernel), operands, programs.like(*results))
        if any(y.size for y in outs):  # JAX and XLA leave out what gives nothing
            expect(base, operands, outs)

    def _bytes(
        self, rng: random.Random, seed: int, which: int, data: bytes, places: Sequence[int]
    ) -> bytes:
        changed = bytearray(data)
        for _ in range(rng.choice((1, 1, 1, 2, 5))):
            at = rng.choice(places)
            flipped = changed[at] ^ 1 << rng.randrange(8)
            # Mostly what other parsers have nothing against.
            changed[at] = rng.choice((rng.randrange(256), flipped, *rng.choices(PLAIN, k=6)))
        found = {i: (data[i], changed[i]) for i in range(len(data)) if data[i] != changed[i]}
        self._about_to(seed, which, bytes=found)
        return bytes(changed)

    def _export(self, rng: random.Random, seed: int, which: int) -> None:
        base = self.bases[which]
        data = self._bytes(rng, seed, which, *self.exports[which])
        outs = jax.export.deserialize(bytearray(data)).call(*base.operands)
        expect(base, base.operands, [np.asarray(y) for y in outs])

    def _executable(self, rng: random.Random, seed: int, which: int) -> None:
        base = self.bases[which]
        (data, *trees), places = self.executables[which]
        data = self._bytes(rng, seed, which, data, places)
        load = serialize_executable.deserialize_and_load
        outs = load(data, *trees, execution_devices=jax.devices()[:1])(*base.operands)
        expect(base, base.operands, [np.asarray(y) for y in outs])


def _vouch(attributes: dict[str, Any]) -> dict[str, Any]:
    try:
        return programs.vouched(attributes)
    except (KeyError, TypeError, AttributeError):  # what has no canonical form
        return attributes


def _exported(base: Base) -> tuple[bytes, list[int]]:
    """An exported program, and where the values of its attributes are that are found in it."""
    exporting = jax.export.export(base.jitted, platforms=["cpu"], disabled_checks=[CUSTOM_CALL])
    data = bytes(exporting(*base.operands).serialize())
    places: list[int] = []
    for value in programs.attributes_of(base.kernel).values():
        if isinstance(value, int):
            continue  # a few bits, anywhere
        pattern = value.encode() if isinstance(value, str) else np.array(value, np.int64).tobytes()
        if len(pattern) > 8 and data.count(pattern) == 1:
            places += range(data.index(pattern), data.index(pattern) + len(pattern))
    assert len(places) > 200
    return data, places


def _executable(base: Base) -> tuple[tuple[Any, ...], list[int]]:
    """A serialised executable, and where the values of the attributes are that it runs with."""
    compiled = base.jitted.lower(*base.operands).compile()
    payload = serialize_executable.serialize(compiled)
    data = payload[0]
    begin = data.rindex(b'{digest = "')
    end = data.index(b"xi64>}", begin)
    values = rb'(?<== ")[^"]*(?=")|\d+(?= : i64)|(?<=dense<)[^>]*(?=>)|(?<=array<i64: )[^>]*(?=>)'
    found = re.finditer(values, data[begin:end])
    places = [begin + at for match in found for at in range(*match.span())]
    assert len(places) > 200
    return payload, places


def main(first: str, count: str, log: str) -> None:
    fuzzer = Fuzzer(pathlib.Path(log))
    for seed in range(int(first), int(first) + int(count)):
        fuzzer.try_seed(seed)
    print(json.dumps(dict(sorted(fuzzer.counts.items()))))


if __name__ == "__main__":
    main(*sys.argv[1:])
