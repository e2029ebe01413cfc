"""What the tests on a GPU share.

``pytest -m gpu`` selects them. Where JAX has no CUDA device they fail: who asked for them wants to
know. To work on them without a GPU, ``EW_GPU_TESTS_ON=cpu`` runs what means something on XLA's own
operations and skips the rest; it proves nothing about kernels.
"""

import os

# The processes that tests start need memory of the same GPU.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import pytest
from gpu import device

# Tests that several processes (pytest-xdist) do not divide among them; all others they do.
TOGETHER = {
    "test_benchmarks.py": "programs",
    "test_command_buffers.py": "programs",
    "test_example_programs.py": "programs",
    "test_sanitizer.py": "programs",
    "test_two_devices.py": "programs",
    "test_cpp_example.py": "C++",
    "test_large.py": "large",  # there may not be memory for several at once
}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            file = nodeid.partition("::")[0].rpartition("/")[2]
            return TOGETHER.get(file, nodeid)

    return Scheduling(config, log)


@pytest.fixture(scope="session", autouse=True)
def _device():
    if not device.ON_CPU and jax.default_backend() != "gpu":
        pytest.fail(
            f"the tests marked gpu need an NVIDIA GPU; JAX has {jax.devices()}", pytrace=False
        )


@pytest.fixture(scope="session")
def programs(request, tmp_path_factory, _device):
    """The programs that modules have tests about, by module and then by name.

    A module's ``start`` starts them; they take long, so they run beside all other tests.
    """
    items = request.session.items
    modules = {item.module for item in items if isinstance(item, pytest.Function)}
    started = {
        module.__name__: module.start(tmp_path_factory)
        for module in modules
        if hasattr(module, "start")
    }
    yield started
    for programs in started.values():
        for program in programs.values():
            program.stop()


@pytest.fixture(scope="session", autouse=True)
def _started_first(request):
    """Of several processes (pytest-xdist) only the one that has the programs' tests starts them."""
    if device.ONE_PROCESS:
        request.getfixturevalue("programs")


@pytest.fixture
def program(programs, request):
    """A function from the name of one of this module's programs to the program."""
    return programs[request.module.__name__].__getitem__


@pytest.fixture(scope="session")
def kernels_only():
    """For tests that say nothing about XLA's own operations."""
    if device.ON_CPU:
        pytest.skip("needs kernels")


@pytest.fixture(autouse=True)
def _array_semantics():
    """JAX's usual promotion, whatever the other tests ask for."""
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        yield
