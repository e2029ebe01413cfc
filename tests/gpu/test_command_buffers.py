"""Kernels in programs that XLA captures into CUDA graphs, and in the same programs uncaptured."""

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


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """By mode, a finished process and its dump. All run at once, each with its own kernel cache."""
    processes = {}
    for mode, flags in MODES.items():
        directory = tmp_path_factory.mktemp(mode)
        process = device.start_python(
            device.HERE / "command_buffers.py",
            JAX_ELEMENTWISE_CACHE_DIR=str(directory / "cache"),
            XLA_FLAGS=f"{flags} --xla_dump_to={directory / 'dump'}".strip(),
        )
        processes[mode] = process, directory / "dump"
    return {mode: (device.finish(process), dump) for mode, (process, dump) in processes.items()}


def captured_calls(dump, program: str) -> tuple[int, int]:
    """How many custom calls of a program are inside of command buffers, and outside of them.

    XLA writes one thunk a line, those inside a command buffer indented below it, after the thunks
    were grouped; where there was nothing to group it writes only what was there before.
    """
    files = sorted(dump.glob(f"*{program}.*thunk_sequence_after_thunk_passes.txt"))
    files = files or sorted(dump.glob(f"*{program}.*thunk_sequence.txt"))
    assert files, f"no thunks of {program!r} among {sorted(path.name for path in dump.iterdir())}"
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
def test_values_are_right_from_the_first_run_on(mode, runs):
    completed, _ = runs[mode]
    assert device.output(completed) == "right in every run\n"


@pytest.mark.parametrize("mode", ["off", "straight", "loops"])
@pytest.mark.parametrize(("program", "calls"), [("chain", 12), ("loop", 3)])
def test_calls_are_captured_where_that_is_on(program, calls, mode, runs, kernels_only):
    _, dump = runs[mode]
    inside, outside = captured_calls(dump, f"{program}_of_kernels")
    expected, unexpected = (outside, inside) if mode == "off" else (inside, outside)
    assert unexpected == 0
    assert expected >= calls  # more where XLA unrolls the loop
