"""Mutated programs, many in a process of their own, so that a crash is a failure with its reason.

``EW_TESTS_MUTATIONS=10000 pytest tests/test_fuzz_programs.py -m exhaustive`` tries that many.
"""

import collections
import json
import os
import pathlib
import subprocess
import sys

import pytest
from support import mutations

pytestmark = pytest.mark.usefixtures("host_compiler")


def fuzz(first, count, log):
    """What became of the seeds, in numbers; fails where the process does."""
    program = pathlib.Path(mutations.__file__)
    done = subprocess.run(
        [sys.executable, "-P", program, str(first), str(count), log],
        env={**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""},
        capture_output=True,
        text=True,
        errors="replace",
        timeout=60 + count,
        check=False,
    )
    what = log.read_text() if log.exists() else "nothing"
    assert done.returncode == 0, f"status {done.returncode} at {what}\n{done.stderr[-4000:]}"
    return collections.Counter(json.loads(done.stdout))


def test_mutated_programs_are_errors_or_right(tmp_path):
    pytest.importorskip("flatbuffers")
    counts = fuzz(0, 200, tmp_path / "log")
    assert counts.total() == 200
    for kind in mutations.KINDS:
        assert counts[f"{kind}: error of ours"] >= 3
    assert not counts["untrusted: right"]
    assert counts["buffers: right"]


@pytest.mark.exhaustive
def test_many_mutated_programs_are_errors_or_right(tmp_path):
    pytest.importorskip("flatbuffers")
    wanted = int(os.environ.get("EW_TESTS_MUTATIONS", "2400"))
    counts = collections.Counter()
    for first in range(1000, 1000 + wanted, 600):
        counts += fuzz(first, min(600, 1000 + wanted - first), tmp_path / "log")
    assert counts.total() == wanted
    print(json.dumps(dict(sorted(counts.items())), indent=1))
