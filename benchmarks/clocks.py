"""Three ways to time a call, each by one class: ``seconds()`` is one sample, of a call.

"device" is the time of the kernels themselves, "program" what a call adds to a program of many,
"dispatch" what the host does for an eager call.
"""

import collections
import functools
import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import cupti
import jax
from peers import Jax

_CACHE = 1 << 28  # bytes of operands that take turns: twice what the largest caches hold
_MOST_SETS = 16
_SAMPLE_SECONDS = 0.02


@functools.cache
def _recorder() -> cupti.Recorder | None:
    """None without a GPU, where the host's clock has to do."""
    return cupti.Recorder() if jax.default_backend() == "gpu" else None


def _nothing_recorded() -> None:
    """The host's part of a launch takes twice as long where CUPTI records it."""
    if _recorder.cache_info().currsize and _recorder():
        raise RuntimeError("device time is recorded in this process: measure launches in another")


def sets_for(operands: Sequence[jax.Array]) -> int:
    """How many sets of operands take turns, so that a call finds none of its own in a cache."""
    total = sum(x.nbytes for x in operands)
    return min(_MOST_SETS, max(1, math.ceil(_CACHE / max(total, 1))))


class DeviceTime:
    """Of all kernels, copies and memsets of a call, without the gaps between them."""

    def __init__(self, peer: Jax, way: Any, sets: Sequence[Sequence[jax.Array]], steps: int):
        del steps
        self._peer = peer
        self._sets = [peer.given(operands) for operands in sets]
        self._call = peer.compiled(way, self._sets[0])
        self.sample = peer.sample(self._call(*self._sets[0]))
        self._calls = len(self._sets)
        self.facts: dict[str, float] = {}
        self.seconds()  # the first call of a kernel may still load it
        once = self.seconds()
        rounds = min(50, _SAMPLE_SECONDS / (max(once, 1e-7) * self._calls))
        self._calls *= max(1, int(rounds))

    def seconds(self) -> float:
        recorder = _recorder()
        if recorder:
            recorder.take()
        # Results are kept as long as a set's operands: each goes to memory that is in no cache.
        results = collections.deque(maxlen=len(self._sets))
        start = time.perf_counter()
        for k in range(self._calls):
            results.append(self._call(*self._sets[k % len(self._sets)]))
        self._peer.wait(list(results))
        if not recorder:
            return (time.perf_counter() - start) / self._calls
        done = recorder.take()
        moves = sum(map(_is_move, done))
        self.facts = {"kernels": len(done) / self._calls, "moves": moves / self._calls}
        return 1e-9 * sum(activity.end - activity.start for activity in done) / self._calls


def _is_move(activity: cupti.Activity) -> bool:
    """Whether it is a kernel of XLA's that changes a layout, by its name; ours begin with ew_."""
    words = ("copy", "transpose", "memcpy")
    return not activity.name.startswith("ew_") and any(word in activity.name for word in words)


class ProgramTime:
    """Of a program of many steps, each on the last one's results, which take the first operands.

    ``optimization_barrier`` keeps XLA from merging neighbours. Programs run several times in a row:
    in the first ones, they and their data are in no cache of the CPU.
    """

    def __init__(self, peer: Jax, way: Callable, sets: Sequence[Sequence[jax.Array]], steps: int):
        _nothing_recorded()
        self._operands, self._steps = peer.given(sets[0]), steps

        def program(*operands):
            for _ in range(steps):
                results = jax.tree.leaves(way(*operands))
                # The other operands too, or XLA would compute what depends on them only once.
                operands = jax.lax.optimization_barrier((*results, *operands[len(results) :]))
            return operands[: len(results)]

        self._program = jax.jit(program).lower(*self._operands).compile()
        self.sample = peer.sample(self._program(*self._operands))
        text = self._program.as_text()
        self.facts = {
            "custom_calls": text.count('custom_call_target="jax_elementwise_kernel"') / steps,
            "collectives": sum(text.count(f" {name}(") for name in _COLLECTIVES) / steps,
        }
        once = self._once()
        self._runs = max(1, min(40, int(2 * _SAMPLE_SECONDS / max(once, 1e-6))))

    def _once(self) -> float:
        start = time.perf_counter()
        jax.block_until_ready(self._program(*self._operands))
        return time.perf_counter() - start

    def seconds(self) -> float:
        return statistics.median(self._once() for _ in range(self._runs)) / self._steps


_COLLECTIVES = ("all-gather", "all-reduce", "all-to-all", "collective-permute", "reduce-scatter")


class DispatchTime:
    """Of the host, for a call outside of ``jit``; the device may still be busy."""

    def __init__(self, peer: Jax, way: Callable, sets: Sequence[Sequence[jax.Array]], steps: int):
        _nothing_recorded()
        self._operands, self._calls, self._way = peer.given(sets[0]), steps, way
        self.sample = peer.sample(way(*self._operands))
        self.facts: dict[str, float] = {}

    def seconds(self) -> float:
        result = jax.block_until_ready(self._way(*self._operands))
        start = time.perf_counter()
        for _ in range(self._calls):
            result = self._way(*self._operands)
        elapsed = time.perf_counter() - start
        jax.block_until_ready(result)
        return elapsed / self._calls


CLOCKS = {"device": DeviceTime, "program": ProgramTime, "dispatch": DispatchTime}
