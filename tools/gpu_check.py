#!/usr/bin/env python3
"""Tests the package on a GPU, and keeps the record of it.

``python3 tools/gpu_check.py`` builds the package from this directory, runs the tests marked ``gpu``
against that build and, if nothing failed, writes tests/gpu/verified.json. It needs no network: what
the build and the tests require must be installed.

``python3 tools/gpu_check.py --status`` says whether the record is about the sources as they are
now, and exits 0 only if it is. It needs nothing but git and Python's standard library.

What the record is about (``SOURCES``) are all files that git tracks or would track below csrc/ and
jax_elementwise/, and CMakeLists.txt and pyproject.toml. They stand in it by git's own names: those
of a commit are what ``git rev-parse COMMIT:csrc`` and so on print.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree
from collections.abc import Iterator
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
RECORD = pathlib.Path("tests", "gpu", "verified.json")

SOURCES = ("CMakeLists.txt", "csrc", "jax_elementwise", "pyproject.toml")


class CheckError(Exception):
    """The check cannot be made, or found something."""


# ---- The sources ---------------------------------------------------------------------------------


def source_names(root: pathlib.Path) -> dict[str, str]:
    """Git's names of the contents of what decides what is built and what it does.

    They are made in an empty repository: a copy of the sources need not have one, and no setting of
    the user's is to change them.
    """
    with tempfile.TemporaryDirectory() as repository:

        def git(*arguments: str) -> str:
            command = ["git", f"--git-dir={repository}", f"--work-tree={root}", *_SAME, *arguments]
            kept = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
            try:
                run = subprocess.run(
                    command, cwd=root, env=kept, check=True, capture_output=True, text=True
                )
            except FileNotFoundError:
                raise CheckError("git is not installed, which names the sources") from None
            except subprocess.CalledProcessError as error:
                raise CheckError(f"git cannot name the sources: {error.stderr.strip()}") from None
            return run.stdout

        git("init", "--quiet")
        git("add", "--", *SOURCES)
        tree = git("write-tree").strip()
        lines = git("ls-tree", tree).splitlines()
    entries = (line.split("\t") for line in lines)
    return {path: described.split()[2] for described, path in entries}


# Names depend on contents only, not on modes or line ends that a checkout chose.
_SAME = ("-c", "core.fileMode=false", "-c", "core.autocrlf=false", "-c", "core.excludesFile=")


# ---- The record ----------------------------------------------------------------------------------


def status(root: pathlib.Path) -> tuple[bool, str]:
    """Whether the record is about the present sources, and a sentence that says so."""
    path = root / RECORD
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        recorded = record["sources"]
        what = _summary(record)
    except FileNotFoundError:
        return False, f"Not verified: there is no {RECORD.as_posix()}."
    except (ValueError, KeyError, TypeError) as error:
        return False, f"Not verified: {RECORD.as_posix()} is malformed ({error!r})."
    if record["tests"]["failed"]:
        return False, f"Not verified: tests failed. {what}"
    try:
        present = source_names(root)
    except CheckError as failure:
        return False, f"Not verified: {failure}. {what}"
    if recorded != present:
        return False, f"Not verified: the sources have changed since the last run. {what}"
    return True, f"Verified: the sources are those of the last run. {what}"


def _summary(record: dict[str, Any]) -> str:
    tests, versions, device = record["tests"], record["versions"], record["device"]
    count = f"{device['count']} " if device["count"] > 1 else ""
    return (
        f"On {record['date']}: {tests['passed']:d} passed, {tests['failed']:d} failed, "
        f"{tests['skipped']:d} skipped on {count}{device['name']} (driver {device['driver']}) with "
        f"JAX {versions['jax']}, Python {versions['python']} and NVRTC {versions['nvrtc']}."
    )


# ---- Building ------------------------------------------------------------------------------------


def build(root: pathlib.Path, directory: pathlib.Path) -> float:
    """Builds the package into a directory; returns the seconds it took."""
    begin = time.monotonic()
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install"]
    options = ["--no-build-isolation", "--no-deps", "--upgrade", "--target", str(directory)]
    run = subprocess.run([*pip, *options, "."], cwd=root)
    if run.returncode:
        raise CheckError("the package does not build")
    return time.monotonic() - begin


def environment(directory: pathlib.Path) -> dict[str, str]:
    """The environment in which the build is imported, and not the package in this directory."""
    kept = {key: value for key, value in os.environ.items() if key not in _DROPPED}
    return {**kept, "PYTHONPATH": str(directory), "PYTHONSAFEPATH": "1"}


# With these set, kernels would not be tested.
_DROPPED = {"JAX_ELEMENTWISE_LOWERING", "JAX_PLATFORMS", "EW_GPU_TESTS_ON"}


# ---- Testing -------------------------------------------------------------------------------------

_PROBE = """
import ctypes, json
import jax, jaxlib
import jax_elementwise
from cuda import pathfinder
from jax_elementwise import _runtime

major, minor = ctypes.c_int(), ctypes.c_int()
nvrtc = ctypes.CDLL(pathfinder.load_nvidia_dynamic_lib("nvrtc").abs_path)
nvrtc.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
devices = jax.devices()
print(json.dumps({
    "package": jax_elementwise.__file__,
    "platform": devices[0].platform,
    "name": devices[0].device_kind,
    "count": len(devices),
    "compute_capability": _runtime.compute_capabilities(),
    "jax": jax.__version__,
    "jaxlib": jaxlib.__version__,
    "nvrtc": f"{major.value}.{minor.value}",
}))
"""


def probe(directory: pathlib.Path) -> dict[str, Any]:
    """What the build runs on. Fails if that is not a GPU, or another copy is imported."""
    run = subprocess.run(
        [sys.executable, "-c", _PROBE],
        env=environment(directory),
        cwd=directory,
        stdout=subprocess.PIPE,
        text=True,
    )
    if run.returncode:
        raise CheckError("the package that was built cannot be used")
    found: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    if directory.resolve() not in pathlib.Path(found.pop("package")).resolve().parents:
        raise CheckError("another copy of the package than the one that was built is imported")
    if found.pop("platform") != "gpu":
        raise CheckError(f"JAX has no GPU here, but {found['name']!r}")
    return found


def driver_version() -> str:
    """The version of NVIDIA's driver."""
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        run = subprocess.run(query, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return run.stdout.split("\n")[0].strip()


def test(
    root: pathlib.Path, directory: pathlib.Path, extra: list[str], jobs: int
) -> dict[str, Any]:
    """Runs the tests against the build; returns their numbers."""
    with tempfile.TemporaryDirectory() as temporary:
        report = pathlib.Path(temporary, "report.xml")
        command = [sys.executable, "-P", "-m", "pytest", "-m", "gpu", "--import-mode=importlib"]
        command += ["-p", "no:cacheprovider", f"--junitxml={report}", "tests/gpu", *extra]
        if jobs > 1:  # beside others pytest-benchmark, if there, warns, and warnings are errors
            command += ["-n", str(jobs), "-p", "no:benchmark"]
        subprocess.run(command, cwd=root, env=environment(directory))
        if not report.exists():
            raise CheckError("pytest did not come to an end")
        return read_report(report)


def read_report(path: pathlib.Path) -> dict[str, Any]:
    """The numbers of a JUnit report, and why tests were skipped."""
    suites = list(xml.etree.ElementTree.parse(path).iter("testsuite"))

    def total(*keys: str) -> int:
        return sum(int(suite.get(key, "0")) for suite in suites for key in keys)

    skipped = total("skipped")
    failed = total("failures", "errors")
    reasons = {element.get("message", "") for suite in suites for element in suite.iter("skipped")}
    return {
        "passed": total("tests") - failed - skipped,
        "failed": failed,
        "skipped": skipped,
        "reasons_to_skip": sorted(reasons),
    }


# ---- The whole check -----------------------------------------------------------------------------


def make_record(
    root: pathlib.Path, found: dict[str, Any], tests: dict[str, Any], seconds: dict[str, float]
) -> dict[str, Any]:
    """What is worth keeping of a run."""
    versions = {key: found[key] for key in ("jax", "jaxlib", "nvrtc")}
    now = datetime.datetime.now(datetime.UTC)
    return {
        "sources": source_names(root),
        "date": now.isoformat(timespec="seconds").replace("+00:00", "Z"),
        "device": {
            "name": found["name"],
            "count": found["count"],
            "compute_capability": found["compute_capability"],
            "driver": driver_version(),
        },
        "versions": {"python": platform.python_version(), **versions},
        "tests": tests,
        "seconds": {key: round(value, 1) for key, value in seconds.items()},
    }


def check(
    root: pathlib.Path,
    directory: pathlib.Path,
    outputs: list[pathlib.Path],
    extra: list[str],
    jobs: int = 1,
) -> str:
    """Builds, tests and, if all passed and all ran, writes the record; returns what to say."""
    before = source_names(root)
    seconds = {"build": build(root, directory)}
    found = probe(directory)
    begin = time.monotonic()
    tests = test(root, directory, extra, jobs)
    seconds["tests"] = time.monotonic() - begin
    if tests["failed"] or not tests["passed"]:
        raise CheckError(f"{tests['passed']} tests passed and {tests['failed']} failed: no record")
    if extra:
        return "No record: not all of the tests were asked for."
    if source_names(root) != before:
        raise CheckError("the sources changed meanwhile: no record")
    record = make_record(root, found, tests, seconds)
    for output in outputs:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return _summary(record)


@contextlib.contextmanager
def build_directory(given: pathlib.Path | None) -> Iterator[pathlib.Path]:
    """The directory to build into: the given one, which stays, or a temporary one."""
    if given is not None:
        yield given.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="jax-elementwise-") as directory:
        yield pathlib.Path(directory)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--status", action="store_true", help="only compare record and sources")
    parser.add_argument("--build-dir", type=pathlib.Path, help="build here, and keep it")
    parser.add_argument("--output", type=pathlib.Path, help="write the record here as well")
    parser.add_argument(
        "--jobs", type=int, default=1, help="test in as many processes, with pytest-xdist"
    )
    parser.add_argument(
        "pytest", nargs="*", help="after --: more options of pytest; there is no record then"
    )
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status."""
    options = parse(arguments)
    if options.status:
        matches, text = status(ROOT)
        print(text)
        return 0 if matches else 1
    outputs = [ROOT / RECORD, *([options.output] if options.output else [])]
    try:
        with build_directory(options.build_dir) as directory:
            print(check(ROOT, directory, outputs, options.pytest, options.jobs))
    except CheckError as failure:
        print(f"Failed: {failure}.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
