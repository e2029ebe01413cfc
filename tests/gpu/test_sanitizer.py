"""compute-sanitizer finds no access outside of the memory that is allocated.

It would find one that is far away: it must first notice a planted read 8 GiB beyond an array. On an
H200, reads 64 bytes and 8 MiB beyond one went unnoticed; the likely cause, not confirmed, is that
XLA's memory is mapped in larger pieces. Accesses just outside of an array are the business of
tests/kernels, under AddressSanitizer.
"""

import re
import sys

import pytest
from gpu import device
from support import toolkit

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("kernels_only")]

_REFUSED = "Device not supported"  # where the GPU is shared with others


LOGS = {}


def start(tmp_path_factory):
    """The kernels as they are, and one that reads too far, under the sanitizer."""
    sanitizer = toolkit.find("compute-sanitizer")
    if sanitizer is None or device.ON_CPU:
        return {}
    return {
        name: start_sanitized(sanitizer, tmp_path_factory.mktemp(name), name, *arguments)
        for name, arguments in (("right", ()), ("wrong", ("--beyond-the-end",)))
    }


def start_sanitized(sanitizer, directory, name, *arguments) -> device.Program:
    LOGS[name] = directory / "log"
    options = ["--tool", "memcheck", "--padding", "64", "--report-api-errors", "no"]
    return device.Program(
        sanitizer,
        *options,
        *("--log-file", LOGS[name]),
        *(sys.executable, device.HERE / "sanitized.py", *arguments),
        JAX_ELEMENTWISE_CACHE_DIR=str(directory / "cache"),
        # Every array is an allocation of its own.
        XLA_PYTHON_CLIENT_ALLOCATOR="platform",
        XLA_FLAGS="--xla_gpu_enable_command_buffer=",
    )


@pytest.fixture
def report(programs, request):
    """A function that gives a finished program, its number of errors and the sanitizer's words.

    Skips the test where there is no sanitizer, or it refuses the device.
    """
    programs = programs[request.module.__name__]
    if not programs:
        pytest.skip("compute-sanitizer is not installed (it comes with the CUDA toolkit)")

    def read(name):
        done = programs[name].finish()
        text = LOGS[name].read_text() if LOGS[name].exists() else ""
        if _REFUSED in text + done.stdout + done.stderr:
            pytest.skip("compute-sanitizer does not support this device")
        summary = re.search(r"ERROR SUMMARY: (\d+) error", text)
        assert summary, f"no summary in:\n{text[-3000:]}\n{done.stderr[-3000:]}"
        return done, int(summary[1]), text

    return read


def test_no_access_outside_of_an_array(report):
    _, planted, _ = report("wrong")
    if not planted:
        pytest.skip("compute-sanitizer did not notice a planted error: its silence proves nothing")
    done, errors, text = report("right")
    assert errors == 0, text[:6000]
    assert done.stdout == "right\n", done.stderr[-6000:]
