"""Two runs side by side: what became slower or faster, beyond what runs differ by anyhow."""

from collections.abc import Iterator
from typing import Any, NamedTuple

Measurements = dict[str, Any]


class Change(NamedTuple):
    """Of one way of one case.

    Attributes:
      where: group, case and way.
      ratio: the time after over the time before.
      spread: how far the quartiles of both are apart, relative to the medians.
    """

    where: str
    ratio: float
    spread: float


def changes(before: list[Measurements], after: list[Measurements]) -> Iterator[Change]:
    """Of all that both sides measured. Of several runs of a side the median of medians counts."""
    old, new = _joined(before), _joined(after)
    for key in old.keys() & new.keys():
        (a, spread_a), (b, spread_b) = old[key], new[key]
        yield Change(", ".join(key), b / a, spread_a + spread_b)


def _joined(runs: list[Measurements]) -> dict[tuple[str, str, str], tuple[float, float]]:
    times: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    for run in runs:
        for row in run["rows"]:
            if "us" in row:
                key = row["group"], row["case"], row["way"]
                times.setdefault(key, []).append((row["us"], row["spread"]))
    joined = {}
    for key, values in times.items():
        ordered = sorted(us for us, _ in values)
        median = ordered[len(ordered) // 2]
        between = (ordered[-1] - ordered[0]) / median
        joined[key] = median, max(between, *(spread for _, spread in values))
    return joined


def report(found: list[Change], threshold: float) -> str:
    """Lines of what changed by more than the threshold and the spread, and a summary."""
    ordered = sorted(found, key=lambda change: change.ratio)
    beyond = [c for c in ordered if abs(c.ratio - 1) > max(threshold, c.spread)]
    lines = [f"{c.ratio:6.3f}  (spread {c.spread:.3f})  {c.where}" for c in beyond]
    summary = f"{len(beyond)} of {len(ordered)} changed by more than {threshold:.0%} and the spread"
    if ordered:
        median = ordered[len(ordered) // 2].ratio
        summary += f"; time after over before: median {median:.3f}, "
        summary += f"least {ordered[0].ratio:.3f}, most {ordered[-1].ratio:.3f}"
    return "\n".join([*lines, f"{summary}."])
