"""The benchmarks: every group runs, what is wrong is said, and runs are compared."""

import ctypes
import json
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]


@pytest.fixture(autouse=True)
def _suite(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))


def start(*arguments, **environment):
    command = [sys.executable, ROOT / "benchmarks", *arguments]
    defaults = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "", "PYTHONWARNINGS": "error"}
    environment = {**os.environ, **defaults, **environment}
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def measure(group, path, **environment):
    """What a quick run of a group prints, and its rows."""
    done = start("run", group, "--quick", "--json", path, **environment)
    assert done.returncode == 0, done.stderr
    assert "Not a GPU: the smallest sizes only" in done.stdout
    assert "DOUBTFUL" not in done.stdout
    measured = json.loads(path.read_text())
    assert measured["machine"]["platform"] == "cpu"
    assert all(row["us"] > 0 for row in measured["rows"] if "us" in row)
    return done.stdout, measured["rows"]


def ways(rows):
    """The ways that were measured, and those that were skipped."""
    return {row["way"] for row in rows if "us" in row}, {r["way"] for r in rows if "skipped" in r}


# ---- The groups ----------------------------------------------------------------------------------


@pytest.mark.exhaustive
def test_bandwidth(tmp_path):
    output, rows = measure("bandwidth", tmp_path / "rows.json")
    assert ways(rows) == ({"ours", "XLA"}, {"copy"})
    assert {row["labels"]["dtype"] for row in rows} == {"float32", "bfloat16", "int8"}
    assert output.count("\n| ") == len(rows) // 3 + 2  # and the head
    assert "Without copy (device): it needs a GPU." in output
    add = next(row for row in rows if row["case"] == "x + y, float32, 2^12" and "us" in row)
    assert add["GBps"] == pytest.approx(3 * 4 * 4096 / (1000 * add["us"]))


@pytest.mark.exhaustive
def test_pairs(tmp_path, host_compiler):
    _, rows = measure("pairs", tmp_path / "rows.json")
    assert ways(rows)[0] == {"Apply2", "scalar", "ours", "XLA"}
    assert {row["way"] for row in rows if row["clock"] == "machine code"} == {
        "Apply2",
        "scalar",
        "ours",
    }


@pytest.mark.exhaustive
def test_loops(tmp_path):
    _, rows = measure("loops", tmp_path / "rows.json")
    assert ways(rows) == ({"ours", "XLA"}, {"Pallas", "CuPy", "CUDA"})
    cases = {row["labels"]["function"] for row in rows}
    derivatives = {f"kepler, {what}" for what in ("tangent", "by M", "by M and e")}
    assert cases == {"kepler", "mandelbrot", "rk4"} | derivatives


@pytest.mark.exhaustive
def test_limits(tmp_path):
    _, rows = measure("limits", tmp_path / "rows.json")
    assert ways(rows) == ({"ours", "better", "XLA"}, set())
    tables = {row["labels"]["table"] for row in rows}
    assert tables == {"chain", "neighbours", "layouts", "tiny"}
    assert {row["clock"] for row in rows} == {"device", "program", "dispatch"}


@pytest.mark.exhaustive
def test_launch(tmp_path, host_compiler):
    _, rows = measure("launch", tmp_path / "rows.json", JAX_ELEMENTWISE_LOWERING="kernel")
    assert ways(rows) == ({"ours", "XLA"}, set())
    assert {row["labels"]["command buffers"] for row in rows} == {"on", "off"}
    calls = {row["way"]: row["custom_calls"] for row in rows if row["clock"] == "program"}
    assert calls == {"ours": 1, "XLA": 0}


@pytest.mark.exhaustive
def test_scaling(tmp_path, host_compiler):
    flags = "--xla_force_host_platform_device_count=8"
    _, rows = measure(
        "scaling", tmp_path / "rows.json", JAX_ELEMENTWISE_LOWERING="kernel", XLA_FLAGS=flags
    )
    assert [(row["labels"]["dtype"], row["labels"]["devices"]) for row in rows[::2]] == [
        (dtype, count) for dtype in ("float32", "bfloat16") for count in "1248"
    ]
    assert not any(row["collectives"] for row in rows)


@pytest.mark.exhaustive
def test_first_call(tmp_path):
    _, rows = measure("first_call", tmp_path / "rows.json")
    processes = ("empty cache", "cache on disk", "jax.jit")
    for process in processes:
        calls = [row for row in rows if row["way"] == process and "us" in row]
        assert len(calls) == 2 * (10 + 1)  # functions and their median
    # Nothing compiles again in the second process.
    empty, disk, jit = (
        {row["case"]: row["count"] for row in rows if row["way"] == process and "count" in row}
        for process in processes
    )
    assert empty["compilations"] in (0, 10)
    assert (disk["compilations"], disk["disk_hits"]) == (0, empty["compilations"])
    assert not any(jit.values())


def test_a_group_that_fails_is_said_to():
    done = start("run", "bandwidth", "--quick", JAX_PLATFORMS="no_such_platform")
    assert done.returncode == 1
    assert "FAILED: bandwidth : exit status 1" in done.stderr
    assert "Nothing was measured." in done.stdout


# ---- Results that are wrong ----------------------------------------------------------------------


def results(ours, xla):
    return {"ours": [np.asarray(ours)], "XLA": [np.asarray(xla)]}


def test_ways_that_agree():
    from case import agree

    x = np.linspace(-3, 3, 1000, dtype=np.float32)
    assert agree(results(x * (1 + 5e-5), x)) == []
    assert agree(results(x.astype(np.int8), x.astype(np.int8))) == []
    few = x.copy()
    few[:5] = 7
    assert agree(results(few, x)) == []  # counts of a loop differ where rounding decides


@pytest.mark.parametrize(
    "wrong", [lambda x: x * 1.01, lambda x: x + np.nan, lambda x: np.round(x).astype(np.int8)]
)
def test_ways_that_differ(wrong):
    from case import agree

    x = np.linspace(1, 3, 1000, dtype=np.float32)
    reference = np.zeros(1000, np.int8) if wrong(x).dtype == np.int8 else x
    assert agree(results(wrong(x), reference)) == ["ours computes something else than XLA"]


def test_pairs_have_the_same_bits():
    from groups.pairs import check

    x = np.linspace(1, 3, 1000).astype(np.float16)
    given = {"Apply2": [x], "scalar": [x], "XLA": [x]}
    assert check(given) == []
    given["Apply2"] = [np.nextafter(x, np.float16(9))]
    assert check(given) == ["Apply2 computes something else than scalar"]


def test_a_wrong_way_is_doubtful():
    from case import Case, uniform
    from measuring import measured
    from report import remarks

    ways = {"ours": lambda x: 1.02 * x, "XLA": lambda x: x}
    rows = list(measured([Case("double", ways, uniform((100,)))], quick=True))
    assert [row["way"] for row in rows] == ["ours", "XLA"]
    assert remarks(rows) == ["DOUBTFUL: double: ours computes something else than XLA."]


# ---- Device time ---------------------------------------------------------------------------------


def test_records_are_read_where_their_fields_are():
    import cupti

    offsets = {name: getattr(cupti._Record, name).offset for name in ("start", "end", "name")}
    assert offsets == {"start": 16, "end": 24, "name": 104}
    names = [ctypes.create_string_buffer(b"mine"), None, None]
    kinds = [cupti._KERNEL, cupti._MEMCPY, cupti._MEMSET]
    records = [
        cupti._Record(kind=kind, start=100 - i, end=200 + i, name=name and ctypes.addressof(name))
        for i, (kind, name) in enumerate(zip(kinds, names, strict=True))
    ]
    buffer, left = ctypes.create_string_buffer(8), iter(records)

    class Library:
        """Hands out the records, then none."""

        def cuptiActivityGetNextRecord(self, _buffer, _valid, record):  # noqa: N802
            found = next(left, None)
            record._obj.value = found and ctypes.addressof(found)
            return 0 if found else 12

        def cuptiActivityFlushAll(self, _forced):  # noqa: N802
            return 0

    recorder = cupti.Recorder.__new__(cupti.Recorder)
    recorder._library, recorder._activities = Library(), []
    recorder._buffers = {ctypes.addressof(buffer): buffer}
    recorder._completed(None, 0, ctypes.addressof(buffer), 8, 8)
    assert recorder.take() == [
        cupti.Activity(98, 202, "memset"),
        cupti.Activity(99, 201, "memcpy"),
        cupti.Activity(100, 200, "mine"),
    ]
    assert recorder.take() == []
    assert not recorder._buffers


def test_moves_are_kernels_of_xla():
    from clocks import _is_move
    from cupti import Activity

    names = ["ew_f_transpose_1a", "loop_transpose_fusion", "wrapped_copy", "loop_add", "memcpy"]
    assert [_is_move(Activity(0, 1, name)) for name in names] == [False, True, True, False, True]


def test_without_cupti_there_is_no_device_time(monkeypatch):
    import cupti

    def missing(name):
        raise OSError(name)

    monkeypatch.setattr(cupti.ctypes, "CDLL", missing)
    with pytest.raises(OSError, match="CUPTI is not installed"):
        cupti.Recorder()


def test_launches_are_not_timed_where_device_time_is_recorded(monkeypatch):
    import clocks
    from case import Case, uniform
    from measuring import measured

    clocks._recorder.cache_clear()
    monkeypatch.setattr(clocks.jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(clocks.cupti, "Recorder", object)
    clocks._recorder()
    case = Case("f", {"ours": lambda x: x}, uniform((4,)), clock="program")
    with pytest.raises(RuntimeError, match="measure launches in another"):
        next(measured([case], quick=True))
    clocks._recorder.cache_clear()


def test_operands_take_turns_until_no_cache_holds_them():
    from clocks import sets_for

    assert sets_for([np.zeros(1)]) == 16
    assert sets_for([np.zeros(1 << 23), np.zeros(1 << 21)]) == 4  # of 80 MiB
    assert sets_for([np.broadcast_to(np.zeros(1), 1 << 26)]) == 1


# ---- Comparing two runs --------------------------------------------------------------------------


def run_of(**us):
    rows = [
        {"group": "g", "case": case, "way": "ours", "us": value, "spread": 0.01}
        for case, value in us.items()
    ]
    return {"rows": [*rows, {"group": "g", "case": "a", "way": "copy", "skipped": "no"}]}


def test_what_changed_beyond_the_spread():
    from comparing import changes, report

    before, after = run_of(a=100, b=100, c=100, gone=1), run_of(a=103, b=101, c=50, new=1)
    found = list(changes([before], [after]))
    text = report(found, 0.02)
    assert re.findall(r"^ *([\d.]+) .* g, (\w), ours$", text, re.MULTILINE) == [
        ("0.500", "c"),
        ("1.030", "a"),
    ]
    assert text.endswith(
        "2 of 3 changed by more than 2% and the spread; time after over before: "
        "median 1.010, least 0.500, most 1.030."
    )


def test_of_several_runs_the_median_counts_and_their_differences_are_spread():
    from comparing import changes

    (found,) = changes([run_of(a=100)], [run_of(a=90), run_of(a=104), run_of(a=105)])
    assert found.ratio == pytest.approx(1.04)
    assert found.spread == pytest.approx(0.01 + 15 / 104)


def test_nothing_in_common():
    from comparing import changes, report

    found = list(changes([run_of(a=1)], [run_of(b=1)]))
    assert report(found, 0.02) == "0 of 0 changed by more than 2% and the spread."


def test_compare_as_a_program(tmp_path):
    for name, us in (("one", 100), ("two", 100), ("three", 200)):
        (tmp_path / name).write_text(json.dumps(run_of(a=us)))
    done = start("compare", f"{tmp_path}/one,{tmp_path}/two", tmp_path / "three")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(" 2.000  (spread 0.020)  g, a, ours\n1 of 1 changed")


# ---- Tables of the documents ---------------------------------------------------------------------


def test_every_table_of_the_documents_is_written_from_a_measurement():
    import groups
    import pages

    marks = re.compile(r"<!-- benchmark: ([\w ]+) -->\n.+?<!-- end -->", re.DOTALL)
    found = {name for page in pages.PAGES for name in marks.findall((ROOT / page).read_text())}
    tables = {name.removesuffix(" machine") for name in found}
    assert tables <= set(pages.TABLES)
    assert {group for group, _ in pages.TABLES.values()} <= set(groups.NAMES)


def test_only_what_was_measured_is_written():
    import pages

    about = {"device": "X", "count": 1, "driver": "1", "jax": "2", "python": "3"}
    labels = {"table": "chain", "a step": "s"}
    rows = [
        {"group": "limits", "case": "s", "way": way, "us": us, "labels": labels}
        for way, us in (("ours", 2.0), ("XLA", 3.0))
    ]
    old = "".join(f"<!-- benchmark: {x} -->\nold\n<!-- end -->\n" for x in ("chain", "loops"))
    text = old + "<!-- benchmark: chain machine -->\n<!-- end -->\n"
    assert pages.filled(text, {"machine": about, "rows": rows}) == (
        "<!-- benchmark: chain -->\n"
        "| a step | ours µs | XLA µs | XLA/ours |\n"
        "| --- | ---: | ---: | ---: |\n"
        "| s | 2.00 | 3.00 | 1.50 |\n"
        "<!-- end -->\n"
        "<!-- benchmark: loops -->\nold\n<!-- end -->\n"
        "<!-- benchmark: chain machine -->\nOne X, driver 1, JAX 2, Python 3.\n<!-- end -->\n"
    )
