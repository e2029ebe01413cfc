"""The benchmarks on a GPU: device times are those of one kernel, and every peer agrees."""

import json

import pytest
from gpu import device

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("kernels_only")]

GROUPS = ("bandwidth", "pairs", "loops")
FILES = {}


def start(tmp_path_factory):
    """Quick runs."""
    programs = {}
    for group in GROUPS if not device.ON_CPU else ():
        FILES[group] = file = tmp_path_factory.mktemp(group) / "rows.json"
        command = [device.ROOT / "benchmarks", "run", group, "--quick", "--json", file]
        programs[group] = device.python(*command)
    return programs


@pytest.mark.parametrize("group", GROUPS)
def test_group(group, program):
    printed = program(group).output()
    assert "DOUBTFUL" not in printed
    rows = [row for row in json.loads(FILES[group].read_text())["rows"] if "us" in row]
    assert all(row["us"] > 0 for row in rows)
    peers = {row["way"] for row in rows}
    assert {"ours", "XLA"} <= peers
    for row in rows:
        if row["way"] in ("ours", "copy", "CUDA", "CuPy"):
            fills = row["labels"]["function"].startswith(
                "kepler, "
            )  # JAX writes the ones that derivatives start from
            assert (row["kernels"], row["moves"]) == (1 + fills, 0), row
