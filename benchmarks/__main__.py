"""The benchmarks: ``python benchmarks run``, ``compare`` and ``tables``; ``--help`` says more.

A run measures groups of cases, each in processes of its own, and prints a table of each. What a
group measures, and how, is said in its file in ``benchmarks/groups/``. All ways of a case take
turns; medians count; nothing is subtracted.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import comparing
import groups
import pages
import report


def machine() -> dict[str, object]:
    """What this process runs on."""
    import jax

    device = jax.devices()[0]
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        found = subprocess.run(query, check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        found = ""
    return {
        "device": device.device_kind,
        "count": jax.local_device_count(),
        "platform": device.platform,
        "jax": jax.__version__,
        "driver": found.partition("\n")[0].strip() or None,
        "python": sys.version.split()[0],
    }


def measure(options: argparse.Namespace) -> None:
    """In a process of its own: one group's rows, each written as soon as it is there."""
    import jax

    group = groups.load(options.group)
    quick = options.quick or jax.default_backend() != "gpu"
    with open(options.output, "a", encoding="utf-8") as file:
        print(json.dumps({"machine": machine()}), file=file, flush=True)
        for row in group.rows(options.process, quick):
            print(json.dumps({"group": options.group, **row}), file=file, flush=True)


def in_new_process(group: str, process: str, folder: str, quick: bool) -> tuple[bool, list[dict]]:
    """Whether ``measure`` came to its end there, and what it wrote."""
    changed = groups.load(group).processes[process]
    environment = {key: value.replace("{folder}", folder) for key, value in changed.items()}
    output = pathlib.Path(folder, "rows.jsonl")
    output.unlink(missing_ok=True)
    command = [sys.executable, os.path.dirname(__file__), "measure", group, process, str(output)]
    done = subprocess.run(
        command + ["--quick"] * quick, env={**os.environ, **environment}, check=False
    )
    if done.returncode:
        print(f"FAILED: {group} {process}: exit status {done.returncode}", file=sys.stderr)
    lines = output.read_text("utf-8").splitlines() if output.exists() else []
    return done.returncode == 0, [json.loads(line) for line in lines]


def run(options: argparse.Namespace) -> int:
    """Measures groups and prints their tables; fails if one could not be measured to its end."""
    measurements: dict = {"machine": None, "rows": []}
    failed = False
    for name in options.groups:
        group = groups.load(name)
        rows = []
        with tempfile.TemporaryDirectory() as folder:
            for process in group.processes:
                ended, lines = in_new_process(name, process, folder, options.quick)
                failed = failed or not ended
                if lines:
                    measurements["machine"] = lines[0]["machine"]
                rows += lines[1:]
        measurements["rows"] += rows
        if name == options.groups[0]:
            print(_about(measurements["machine"]))
        print(f"\n{group.title}\n")
        print(report.table(rows, group.value, group.ratios))
        print("", *report.remarks(rows), sep="\n", flush=True)
        if options.json:
            text = json.dumps(measurements, indent=1)
            pathlib.Path(options.json).write_text(f"{text}\n", encoding="utf-8")
    return int(failed)


def _about(machine: dict | None) -> str:
    if machine is None:
        return "Nothing is known of the machine."
    text = report.machine_text(machine)
    if machine["platform"] == "gpu":
        return text
    return f"{text}\nNot a GPU: the smallest sizes only, by the host's clock."


def compare(options: argparse.Namespace) -> int:
    """Prints what changed between two runs, or between the medians of several."""
    before, after = (
        [_load(f) for f in side.split(",")] for side in (options.before, options.after)
    )
    found = list(comparing.changes(before, after))
    print(comparing.report(found, options.threshold))
    return 0


def tables(options: argparse.Namespace) -> int:
    """Writes the tables of README.md and docs/."""
    for file in options.files:
        pages.write(_load(file))
    return 0


def _load(file: str) -> dict:
    return json.loads(pathlib.Path(file).read_text("utf-8"))


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python benchmarks", description=__doc__)
    commands = parser.add_subparsers(required=True)

    command = commands.add_parser("run", help="measure, and print tables")
    command.add_argument("groups", nargs="*", choices=(*groups.NAMES, []), default=[])
    command.add_argument("--quick", action="store_true", help="only see that everything runs")
    command.add_argument("--json", metavar="FILE", help="save all rows")
    command.set_defaults(do=run)

    command = commands.add_parser("compare", help="show what differs between runs")
    command.add_argument("before", help="files of --json, with commas between them")
    command.add_argument("after", help="likewise")
    command.add_argument("--threshold", type=float, default=0.02, help="(%(default)s)")
    command.set_defaults(do=compare)

    command = commands.add_parser("tables", help="write those of README.md and docs/")
    command.add_argument("files", nargs="+", help="files of --json")
    command.set_defaults(do=tables)

    command = commands.add_parser("measure", help="one group, in this process")
    command.add_argument("group", choices=groups.NAMES)
    command.add_argument("process")
    command.add_argument("output")
    command.add_argument("--quick", action="store_true")
    command.set_defaults(do=measure)

    options = parser.parse_args(arguments)
    if options.do is run:
        options.groups = options.groups or list(groups.NAMES)
    return options


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status."""
    options = parse(arguments)
    return options.do(options) or 0


if __name__ == "__main__":
    sys.exit(main())
