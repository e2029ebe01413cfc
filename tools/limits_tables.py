#!/usr/bin/env python3
"""Writes the tables of docs/when-not-to-use.md, of what benchmarks/limits.py measured.

    python benchmarks/limits.py --json FILE && python3 tools/limits_tables.py FILE

Tables go between ``<!-- limits: GROUP -->`` and ``<!-- end -->``; groups that were not measured
stay as they are. Needs nothing but Python's standard library.
"""

from __future__ import annotations

import json
import pathlib
import re
import sys
from collections.abc import Iterable, Mapping
from typing import Any

PAGE = pathlib.Path(__file__).resolve().parents[1] / "docs" / "when-not-to-use.md"
WAYS = ("ours", "better", "XLA")


def table(rows: Iterable[Mapping[str, Any]]) -> str:
    """Of a group; microseconds of a step, and how much slower XLA is."""
    lines = [
        "| a step | ours, µs | better, µs | XLA, µs | XLA/ours | XLA/better |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        us = row["us"]
        cells = [f"{us[way]:.2f}" if way in us else "" for way in WAYS]
        cells += [f"{us['XLA'] / us[way]:.2f}" if way in us else "" for way in WAYS[:2]]
        lines.append(f"| {row['case']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def filled(text: str, measurements: Mapping[str, Any]) -> str:
    """A page with the tables in their places."""
    rows = measurements["rows"]
    groups = {row["group"]: [r for r in rows if r["group"] == row["group"]] for row in rows}
    parts = {group: table(of_group) for group, of_group in groups.items()}
    about = measurements["machine"]
    driver = f", driver {about['driver']}" if about["driver"] else ""
    versions = f"JAX {about['jax']}, Python {about['python']}"
    parts["machine"] = f"One {about['device']}{driver}, {versions}."
    pattern = r"(<!-- limits: (\w+) -->\n).*?(<!-- end -->)"

    def replaced(match: re.Match[str]) -> str:
        if match[2] not in parts:
            return match[0]
        return f"{match[1]}{parts[match[2]]}\n{match[3]}"

    return re.sub(pattern, replaced, text, flags=re.DOTALL)


def main() -> None:
    """Rewrites the page."""
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    measurements = json.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), measurements), encoding="utf-8")


if __name__ == "__main__":
    main()
