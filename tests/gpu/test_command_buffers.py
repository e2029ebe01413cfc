"""Kernels in programs that XLA captures into CUDA graphs, and in the same programs uncaptured."""

import json
import re

import pytest
from gpu import device

pytestmark = pytest.mark.gpu

_SMALLEST = "--xla_gpu_graph_min_graph_size=1"
_STRAIGHT = "FUSION,CUSTOM_CALL,CUBLAS,CUBLASLT,DYNAMIC_SLICE_FUSION"
MODES = {
    "off": "--xla_gpu_enable_command_buffer=",
    "default": "",
    "straight": f"--xla_gpu_enable_command_buffer={_STRAIGHT} {_SMALLEST}",
    "loops": f"--xla_gpu_enable_command_buffer={_STRAIGHT},CONDITIONAL,WHILE {_SMALLEST}",
}


DUMPS = {}


def start(tmp_path_factory):
    """One program per mode, each with a cold kernel cache and a dump of its own."""
    programs = {}
    for mode, flags in MODES.items():
        directory = tmp_path_factory.mktemp(mode)
        DUMPS[mode] = directory / "dump"
        programs[mode] = device.python(
            device.HERE / "command_buffers.py",
            JAX_ELEMENTWISE_CACHE_DIR=str(directory / "cache"),
            XLA_FLAGS=f"{flags} --xla_dump_to={DUMPS[mode]}".strip(),
        )
    return programs


def captured_calls(dump, name: str) -> tuple[int, int]:
    """How many custom calls of a program are inside of command buffers, and outside of them.

    XLA writes one thunk a line, those inside a command buffer indented below it, after the thunks
    were grouped; where there was nothing to group it writes only what was there before.
    """
    files = sorted(dump.glob(f"*{name}.*thunk_sequence_after_thunk_passes.txt"))
    files = files or sorted(dump.glob(f"*{name}.*thunk_sequence.txt"))
    assert files, f"no thunks of {name!r} among {sorted(path.name for path in dump.iterdir())}"
    inside = outside = 0
    buffer_indent = None
    for line in files[0].read_text().splitlines():
        thunk = re.match(r"( *)\d+: (k\w+)", line)
        if thunk is None:
            continue
        indent = len(thunk[1])
        if buffer_indent is not None and indent <= buffer_indent:
            buffer_indent = None
        if thunk[2] == "kCommandBuffer":
            buffer_indent = indent
        elif thunk[2] == "kCustomCall":
            inside += buffer_indent is not None
            outside += buffer_indent is None
    return inside, outside


@pytest.mark.parametrize("mode", MODES)
def test_values_are_right_from_the_first_run_on(mode, program):
    assert program(mode).output().splitlines()[0] == "right in every run"


@pytest.mark.parametrize("mode", ["off", "straight", "loops"])
@pytest.mark.parametrize(("name", "calls"), [("chain", 12), ("loop", 3)])
def test_calls_are_captured_where_that_is_on(name, calls, mode, program, kernels_only):
    program(mode).finish()
    inside, outside = captured_calls(DUMPS[mode], f"{name}_of_kernels")
    expected, unexpected = (outside, inside) if mode == "off" else (inside, outside)
    assert unexpected == 0
    assert expected >= calls  # more where XLA unrolls the loop


@pytest.mark.parametrize("mode", ["off", "straight", "loops"])
@pytest.mark.parametrize(
    ("name", "calls"),
    [("chain", 12), ("loop", 30), ("while", 23)],  # the sum 499500 is halved until it is below 0.1
)
def test_the_profiler_sees_them_in_graphs(name, calls, mode, program, kernels_only):
    in_graphs, others = json.loads(program(mode).output().splitlines()[1])[name]
    print(name, mode, in_graphs, others)
    expected, unexpected = (others, in_graphs) if mode == "off" else (in_graphs, others)
    assert unexpected == 0
    assert expected == calls
