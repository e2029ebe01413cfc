"""Tables of rows, and what is doubtful in them."""

from collections.abc import Iterable, Sequence
from typing import Any

Row = dict[str, Any]


def by_case(rows: Iterable[Row]) -> dict[str, dict[str, Row]]:
    """The rows of each case, by their ways."""
    cases: dict[str, dict[str, Row]] = {}
    for row in rows:
        if "us" in row:
            cases.setdefault(row["case"], {})[row["way"]] = row
    return cases


def table(rows: Sequence[Row], value: str, ratios: Sequence[tuple[str, str]]) -> str:
    """A line for each case.

    Args:
      rows: of one group.
      value: what is shown of each way: "us", microseconds, or "GBps".
      ratios: pairs of ways (a, b) of which the time of a over that of b is shown.
    """
    cases = by_case(rows)
    if not cases:
        return "Nothing was measured."
    ways = list(dict.fromkeys(way for case in cases.values() for way in case))
    labels = list(dict.fromkeys(
        label for case in cases.values() for row in case.values() for label in row["labels"]
    ))  # fmt: skip
    shown = [pair for pair in ratios if {*pair} <= {*ways}]
    unit = {"us": "µs", "GBps": "GB/s"}[value]
    head = [*labels, *(f"{way} {unit}" for way in ways), *(f"{a}/{b}" for a, b in shown)]
    lines = [head, ["---"] * len(labels) + ["---:"] * (len(head) - len(labels))]
    for case in cases.values():
        named = next(iter(case.values()))["labels"]
        lines.append(
            [named.get(label, "") for label in labels]
            + [_number(case[way].get(value)) if way in case else "" for way in ways]
            + [_ratio(case, *pair) for pair in shown]
        )
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _number(value: float | None) -> str:
    """Three or four digits."""
    if value is None:
        return ""
    return f"{value:.0f}" if value >= 1000 else f"{value:.1f}" if value >= 100 else f"{value:.2f}"


def _ratio(case: dict[str, Row], above: str, below: str) -> str:
    if not {above, below} <= case.keys():
        return ""
    return f"{case[above]['us'] / case[below]['us']:.2f}"


def remarks(rows: Sequence[Row]) -> list[str]:
    """What was left out and why, what was counted, and which numbers may be wrong."""
    skipped = {
        f"{row['way']} ({row['clock']}): {row['skipped']}" for row in rows if "skipped" in row
    }
    lines = [f"Without {reason}." for reason in sorted(skipped)]
    for row in rows:
        if "instructions" in row:
            counted = ", ".join(f"{count} {kind}" for kind, count in row["instructions"].items())
            lines.append(f"{row['case']}, {row['way']}: {counted}.")
        elif row.get("count"):
            lines.append(f"{row['way']}: {row['count']} {row['case']}.")
    seen = dict.fromkeys(
        f"DOUBTFUL: {row['case']}: {fault}." for row in rows for fault in row.get("faults", ())
    )
    return lines + list(seen)


def machine_text(about: dict[str, Any]) -> str:
    """A sentence about the machine."""
    driver = f", driver {about['driver']}" if about["driver"] else ""
    count = f"{about['count']} " if about["count"] > 1 else "One "
    return f"{count}{about['device']}{driver}, JAX {about['jax']}, Python {about['python']}."
