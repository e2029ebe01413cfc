"""Tables of README.md and docs/, written from what was measured.

A table goes between ``<!-- benchmark: NAME -->`` and ``<!-- end -->``, where ``NAME`` is one of
``TABLES``. What was not measured stays as it is.
"""

import pathlib
import re
from collections.abc import Callable, Iterable
from typing import Any

from report import Row, by_case, machine_text, table

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGES = ("README.md", *(f"docs/{name}.md" for name in ("when-not-to-use", "scaling")))


def bandwidth(rows: list[Row]) -> str:
    """The largest size of each dtype: GB/s, and how many times as fast as XLA."""
    largest = {"float32": "2^28", "bfloat16": "2^28", "int8": "2^29"}
    found: dict[str, dict[str, str]] = {}
    for case in by_case(rows).values():
        ours, xla = case["ours"], case["XLA"]
        labels = ours["labels"]
        if largest[labels["dtype"]] == labels["size"]:
            cell = f"{ours['GBps']:.0f} | {xla['us'] / ours['us']:.2f}x"
            found.setdefault(labels["function"], {})[labels["dtype"]] = cell
    head = "| GB/s, and speed relative to `jax.jit` |" + "".join(f" {d} | |" for d in largest)
    lines = [head, "|---|" + "---:|" * 2 * len(largest)]
    for function, cells in found.items():
        columns = " | ".join(cells.get(dtype, "|") for dtype in largest)
        lines.append(f"| {function} | {columns} |")
    return "\n".join(lines)


LOOPS = {
    "kepler": "Kepler's equation, 2^24 elements",
    "kepler, by M and e": "its gradient by both arguments",
    "mandelbrot": "Mandelbrot set, 4096 x 4096, 1000 steps",
    "rk4": "Runge-Kutta, 2^24 elements, 200 steps",
}


def loops(rows: list[Row]) -> str:
    """Milliseconds by way."""
    ways = ("ours", "XLA", "Pallas", "CuPy", "CUDA")
    lines = [
        "| | this package | `jit(vmap)` | Pallas | CuPy | CUDA by hand |",
        "|---|" + "---:|" * len(ways),
    ]
    cases = {
        next(iter(case.values()))["labels"]["function"]: case for case in by_case(rows).values()
    }
    for function, name in LOOPS.items():
        case = cases[function]
        cells = [f"{case[way]['us'] / 1000:.3f}" if way in case else "" for way in ways]
        if "XLA" in case:
            cells[1] += f" ({case['XLA']['us'] / case['ours']['us']:.0f}x)"
        else:
            cells[1] = "refused"
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def limits(name: str) -> Callable[[list[Row]], str]:
    """One of the tables of docs/when-not-to-use.md."""

    def write(rows: list[Row]) -> str:
        chosen = [
            {**row, "labels": {"a step": row["labels"]["a step"]}}
            for row in rows
            if row["labels"]["table"] == name
        ]
        return table(chosen, "us", [("XLA", "ours"), ("XLA", "better")])

    return write


def whole(value: str) -> Callable[[list[Row]], str]:
    """All rows of a group."""
    return lambda rows: table(rows, value, [("XLA", "ours")])


# Name: the group whose rows it is written from, and how.
TABLES: dict[str, tuple[str, Callable[[list[Row]], str]]] = {
    "bandwidth": ("bandwidth", bandwidth),
    "loops": ("loops", loops),
    **{name: ("limits", limits(name)) for name in ("chain", "neighbours", "layouts", "tiny")},
    "launch": ("launch", whole("us")),
    "scaling": ("scaling", whole("us")),
}


def filled(text: str, measurements: dict[str, Any]) -> str:
    """A page with the tables in their places."""
    parts = {}
    for name, (group, write) in TABLES.items():
        rows = [row for row in measurements["rows"] if row["group"] == group]
        if rows:
            parts[name] = write(rows)
            parts[f"{name} machine"] = machine_text(measurements["machine"])

    def replaced(match: re.Match[str]) -> str:
        if match[2] not in parts:
            return match[0]
        return f"{match[1]}{parts[match[2]]}\n{match[3]}"

    pattern = r"(<!-- benchmark: ([\w ]+) -->\n).*?(<!-- end -->)"
    return re.sub(pattern, replaced, text, flags=re.DOTALL)


def write(measurements: dict[str, Any], pages: Iterable[str] = PAGES) -> None:
    """Rewrites the pages."""
    for page in pages:
        path = ROOT / page
        path.write_text(filled(path.read_text("utf-8"), measurements), encoding="utf-8")
