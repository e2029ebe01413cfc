"""Two GPUs: each has its own kernels and memory."""

import jax
import pytest
from gpu import device

TWO_GPUS = jax.default_backend() == "gpu" and jax.local_device_count() >= 2

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not TWO_GPUS, reason="needs two GPUs")]


def start(tmp_path_factory):
    """Programs that use kernels for the first time."""
    if not TWO_GPUS:
        return {}
    cache = str(tmp_path_factory.mktemp("two_devices"))
    return {
        name: device.python(
            device.HERE / "two_devices.py", name, JAX_ELEMENTWISE_CACHE_DIR=f"{cache}/{name}"
        )
        for name in ("second_first", "threads")
    }


def test_a_second_gpu_may_be_the_first_in_use(program):
    """And no array is allocated on the other one."""
    assert program("second_first").output() == "right, on the second alone\n"


def test_a_thread_for_each_gpu(program):
    """Both use a kernel for the first time at the same moment: compiled once, loaded twice."""
    assert program("threads").output() == "right on both\n"
