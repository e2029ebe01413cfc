"""What every test shares. The flags must be set before JAX is first imported."""

# ruff: noqa: E402

import os
import pathlib
import shutil

_DEVICES = "--xla_force_host_platform_device_count"
if _DEVICES not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_DEVICES}=8".strip()
# What a developer's shell may hold decides nothing here.
for _name in ("JAX_ELEMENTWISE_LOWERING", "JAX_ENABLE_X64", "JAX_NUMPY_RANK_PROMOTION"):
    os.environ.pop(_name, None)

import hypothesis
import jax
import numpy as np
import pytest

hypothesis.settings.register_profile(
    "project",
    deadline=None,  # the first example of a shape compiles
    derandomize=True,  # a failure is the same failure everywhere
    max_examples=25,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("project")


@pytest.fixture(scope="session", autouse=True)
def cache_directory(tmp_path_factory):
    """A kernel cache of the session's own, empty at its start; or the one that is to be kept."""
    kept = os.environ.get("JEW_TESTS_CACHE")
    directory = pathlib.Path(kept, "kernels") if kept else tmp_path_factory.mktemp("kernels")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX_ELEMENTWISE_CACHE_DIR", str(directory))
        yield directory


@pytest.fixture
def directory(tmp_path, monkeypatch):
    """A kernel cache of the test's own: a directory that does not exist yet, and counts of 0."""
    from jax_elementwise import _runtime  # not above: some tests need no package

    path = tmp_path / "a" / "kernels"
    monkeypatch.setenv("JAX_ELEMENTWISE_CACHE_DIR", str(path))
    _runtime.reset_counters()
    return path


@pytest.fixture
def rng():
    """The same random numbers in every run."""
    return np.random.default_rng(20250711)


@pytest.fixture
def x64():
    """64-bit types, for one test."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def nvrtc():
    """For tests that compile kernels: skips them where there is no compiler."""
    pathfinder = pytest.importorskip("cuda.pathfinder")
    try:
        pathfinder.load_nvidia_dynamic_lib("nvrtc")
    except pathfinder.DynamicLibNotFoundError:
        pytest.skip("NVRTC is not installed (package nvidia-cuda-nvrtc)")


@pytest.fixture(scope="session")
def host_compiler():
    """For tests that compile kernels for a CPU: skips them where there is no compiler."""
    names = [os.environ["CXX"]] if os.environ.get("CXX") else ["c++", "g++", "clang++"]
    if not any(map(shutil.which, names)):
        pytest.skip("no C++ compiler")


_compilations = []


@pytest.fixture
def compilations():
    """A list that grows by one entry per compilation by XLA."""
    _compilations.clear()
    return _compilations


def _listen(event, duration, **_):
    del duration
    if event.endswith("/backend_compile_duration"):
        _compilations.append(event)


jax.monitoring.register_event_duration_secs_listener(_listen)
