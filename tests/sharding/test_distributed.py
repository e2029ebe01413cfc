"""Several processes that make one mesh, here of CPUs: values, and a cache that they share."""

import json
import os
import pathlib
import socket
import subprocess
import sys
import time

import pytest

# The processes of one host start slowly; default tests have meshes of one process.
pytestmark = pytest.mark.exhaustive

SCRIPT = pathlib.Path(__file__).parents[1] / "support" / "distributed.py"
PROCESSES = 2
SECONDS = 120  # for both


def free_port():
    with socket.socket() as listening:
        listening.bind(("localhost", 0))
        return listening.getsockname()[1]


def run_processes(cache):
    """What each of the processes prints. None outlives this."""
    environment = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=2 --xla_backend_optimization_level=0",
        "JAX_ELEMENTWISE_CACHE_DIR": str(cache),
    }
    address = f"localhost:{free_port()}"
    processes = [
        subprocess.Popen(
            [sys.executable, "-P", str(SCRIPT), address, str(PROCESSES), str(i)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for i in range(PROCESSES)
    ]
    try:
        end = time.monotonic() + SECONDS
        outputs = [p.communicate(timeout=max(end - time.monotonic(), 1)) for p in processes]
    finally:
        for process in processes:
            process.kill()
    for process, (_, errors) in zip(processes, outputs, strict=True):
        assert process.returncode == 0, errors
    return [json.loads(printed.splitlines()[-1]) for printed, _ in outputs]


@pytest.fixture(scope="module")
def runs(tmp_path_factory, host_compiler):
    """Two runs, one after the other, with one cache for all."""
    cache = tmp_path_factory.mktemp("shared")
    return run_processes(cache), run_processes(cache), list(cache.iterdir())


def test_every_process_has_right_values(runs):
    """Which each compares with NumPy's; here, that it had something to compare."""
    for found in (*runs[0], *runs[1]):
        assert found["shards"] == [2] * 16


def test_processes_share_what_they_compile(runs):
    first, second, entries = runs
    kernels = [found["compilations"] + found["disk_hits"] for found in first]
    assert kernels == [kernels[0]] * PROCESSES
    assert kernels[0] == len(entries) > 3  # no temporary files are left
    assert all(path.suffix == ".kernel" for path in entries)
    assert sum(found["compilations"] for found in first) >= kernels[0]
    assert [found["compilations"] for found in second] == [0] * PROCESSES
    assert [found["disk_hits"] for found in second] == kernels
