"""examples/cpp on a GPU: its own checks, and compute-sanitizer.

The example's arrays are allocations of exactly their size, so the sanitizer sees the first byte
beyond one.
"""

import re

import pytest
from gpu import device
from support import toolkit

import jax_elementwise as je

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("kernels_only")]

_SOURCE = device.ROOT / "examples" / "cpp" / "functors.cu"
_REFUSED = "Device not supported"  # where the GPU is shared with others


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    """The program, built for this GPU."""
    nvcc = toolkit.require_nvcc()
    path = tmp_path_factory.mktemp("cpp") / "functors"
    flags = ["-std=c++17", "-O2", "-arch=native", "-lineinfo"]
    toolkit.run(nvcc, *flags, "-I", je.include_dir(), _SOURCE, "-o", path)
    return path


def _check(printed):
    lines = printed.splitlines()
    counts = [line for line in lines if re.search(r"(\d+) of \1 cases are right$", line)]
    assert len(counts) == 6, printed
    assert lines[-1].endswith("has one mask at all alignments")


def test_every_functor_is_right(example):
    _check(device.Program(example).output())


def test_no_access_outside_of_an_array(example):
    sanitizer = toolkit.find("compute-sanitizer")
    if sanitizer is None:
        pytest.skip("compute-sanitizer is not installed (it comes with the CUDA toolkit)")
    done = device.Program(sanitizer, "--tool", "memcheck", example).finish()
    text = done.stdout + done.stderr
    if _REFUSED in text:
        pytest.skip("compute-sanitizer does not support this device")
    assert "ERROR SUMMARY: 0 errors" in text, text[-6000:]
    assert done.returncode == 0
    _check("\n".join(line for line in done.stdout.splitlines() if not line.startswith("=")))
