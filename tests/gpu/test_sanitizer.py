"""compute-sanitizer finds no access outside of an array, and would find one."""

import os
import pathlib
import re
import shutil
import sys

import pytest
from gpu import device

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("kernels_only")]

_REFUSED = "Device not supported"  # where the GPU is shared with others


def find_sanitizer() -> str:
    """The program's path; skips the test where it is not installed."""
    toolkits = [os.environ.get("CUDA_HOME", ""), "/usr/local/cuda"]
    places = [os.path.join(toolkit, "bin") for toolkit in toolkits if toolkit]
    found = shutil.which("compute-sanitizer", path=os.pathsep.join([os.environ["PATH"], *places]))
    if found is None:
        pytest.skip("compute-sanitizer is not installed (it comes with the CUDA toolkit)")
    return found


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """What the sanitizer says of the kernels as they are, and of one that reads too far."""
    sanitizer = find_sanitizer()

    def started(*arguments):
        log = tmp_path_factory.mktemp("sanitizer") / "log"
        process = device.start(
            sanitizer,
            *("--tool", "memcheck", "--padding", "64", "--report-api-errors", "no"),
            *("--log-file", log, sys.executable, device.HERE / "sanitized.py", *arguments),
            JAX_ELEMENTWISE_CACHE_DIR=str(log.parent / "cache"),
            # Every array an allocation of its own.
            XLA_PYTHON_CLIENT_ALLOCATOR="platform",
            XLA_FLAGS="--xla_gpu_enable_command_buffer=",
        )
        return process, log

    processes = started(), started("--beyond-the-end")
    return [report(device.finish(process), log) for process, log in processes]


def report(completed, log: pathlib.Path):
    """The finished process and the number of errors; skips where the device is refused."""
    text = log.read_text() if log.exists() else ""
    if _REFUSED in text + completed.stdout + completed.stderr:
        pytest.skip("compute-sanitizer does not support this device")
    summary = re.search(r"ERROR SUMMARY: (\d+) error", text)
    assert summary, f"no summary in:\n{text[-3000:]}\n{completed.stderr[-3000:]}"
    return completed, int(summary[1]), text


def test_no_access_outside_of_an_array(reports):
    completed, errors, text = reports[0]
    assert errors == 0, text[:6000]
    assert device.output(completed) == "right\n"


def test_an_access_outside_of_an_array_would_be_found(reports):
    _, errors, text = reports[1]
    assert errors > 0
    assert "Invalid __global__ read of size" in text
