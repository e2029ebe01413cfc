"""Measures cases: all ways of one in turns, and a copy of as many bytes beside them."""

import statistics
from collections.abc import Iterable, Iterator

from case import Case
from clocks import CLOCKS, sets_for
from peers import PEERS, Copy
from report import Row

REPEATS = 9


def measured(cases: Iterable[Case], quick: bool) -> Iterator[Row]:
    """A row for each way of each case; ``quick`` only shows that everything runs."""
    for case in cases:
        yield from _rows(case, 1 if quick else REPEATS, 2 if quick else case.steps)


def _rows(case: Case, repeats: int, steps: int) -> Iterator[Row]:
    about = {"case": case.name, "clock": case.clock, "labels": dict(case.labels)}
    ways = dict(case.ways)
    if case.moved:
        ways["copy"] = Copy(case.moved, case.streams)
    first = case.operands(0)
    sets = [first, *map(case.operands, range(1, sets_for(first)))]
    timers = {}
    for name, way in ways.items():
        peer = PEERS[name]
        reason = peer.missing()
        if reason:
            yield {**about, "way": name, "skipped": reason}
            continue
        own = [way.operands(i) for i in range(len(sets))] if isinstance(way, Copy) else sets
        timers[name] = CLOCKS[case.clock](peer, way, own, steps)
    samples = {name: [] for name in timers}
    for _ in range(repeats):
        for name, timer in timers.items():
            samples[name].append(timer.seconds())
    results = {name: timer.sample for name, timer in timers.items() if name != "copy"}
    faults = case.check(results)
    for name, timer in timers.items():
        yield {**about, "way": name, **summary(samples[name], case.moved), **timer.facts} | (
            {"faults": faults} if faults else {}
        )


def summary(seconds: list[float], moved: int = 0) -> Row:
    """The median, in microseconds, how far the quartiles are apart, relative to it, and GB/s."""
    median = statistics.median(seconds)
    quartiles = statistics.quantiles(seconds, n=4) if len(seconds) > 1 else [median] * 3
    row = {"us": 1e6 * median, "spread": (quartiles[2] - quartiles[0]) / median}
    return {**row, "GBps": moved / median / 1e9} if moved else row
