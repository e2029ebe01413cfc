"""What the tests on a GPU share.

``pytest -m gpu`` selects them. Where JAX has no CUDA device they fail: who asked for them wants to
know. To work on them without a GPU, ``JEW_GPU_TESTS_ON=cpu`` runs what means something on XLA's own
operations and skips the rest; it proves nothing about kernels.
"""

import os

# The processes that tests start need memory of the same GPU.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import pytest
from gpu import device


@pytest.fixture(scope="session", autouse=True)
def _device():
    if not device.ON_CPU and jax.default_backend() != "gpu":
        pytest.fail(
            f"the tests marked gpu need an NVIDIA GPU; JAX has {jax.devices()}", pytrace=False
        )


@pytest.fixture(scope="session", autouse=True)
def programs(request, tmp_path_factory, _device):
    """The programs that modules have tests about, by module and then by name.

    A module's ``start`` starts them. They take long, so they run beside all other tests: one
    process starts all of them first, several (pytest-xdist) each those of its own modules.
    """
    started = {}
    if not hasattr(request.config, "workerinput"):
        items = request.session.items
        for module in {item.module for item in items if isinstance(item, pytest.Function)}:
            if hasattr(module, "start"):
                started[module.__name__] = module.start(tmp_path_factory)
    yield started
    for programs in started.values():
        for program in programs.values():
            program.stop()


@pytest.fixture
def program(programs, request, tmp_path_factory):
    """A function from the name of one of this module's programs to the program."""
    module = request.module
    if module.__name__ not in programs:
        programs[module.__name__] = module.start(tmp_path_factory)
    return programs[module.__name__].__getitem__


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
