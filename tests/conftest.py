"""What every test shares. The flags must be set before JAX is first imported."""

# ruff: noqa: E402

import collections
import os
import pathlib
import re
import shutil


def _set_flag(flag):
    """Sets a flag of XLA, unless it is set already."""
    flags = os.environ.get("XLA_FLAGS", "")
    if flag.partition("=")[0] not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {flag}".strip()


_set_flag("--xla_force_host_platform_device_count=8")
# What a developer's shell may hold decides nothing here.
for _name in (
    "JAX_ELEMENTWISE_COMPILE_SECONDS",
    "JAX_ELEMENTWISE_LOWERING",
    "JAX_ELEMENTWISE_TRUST_PROGRAMS",
    "JAX_ENABLE_X64",
    "JAX_NUMPY_RANK_PROMOTION",
):
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


# ---- The session ---------------------------------------------------------------------------------


def _is_about_gpus(config):
    return re.search(r"(?<!not )\bgpu\b", config.option.markexpr) is not None


def pytest_configure(config):
    """XLA compiles for CPUs without optimisation, which takes three quarters of the time.

    The programs that ``test_examples.py`` starts are optimised as users' programs are.
    """
    if not _is_about_gpus(config):
        _set_flag("--xla_backend_optimization_level=0")


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items):
    """Of a ``sampled`` test every eighth parameter is for the default run; of few, more."""
    sampled = collections.defaultdict(list)
    for item in items:
        if item.get_closest_marker("sampled") and not item.get_closest_marker("exhaustive"):
            sampled[item.nodeid.partition("[")[0]].append(item)
    for cases in sampled.values():
        step = 8 if len(cases) >= 24 else 4 if len(cases) >= 8 else 2
        for number, item in enumerate(cases):
            if number % step:
                item.add_marker("exhaustive")


# Files whose tests share nothing and take long: each is given to whichever process is free.
APART = {"test_examples.py"}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """All tests of a file run in one process, since they share what was compiled."""
    if _is_about_gpus(config):
        return None
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            file = nodeid.partition("::")[0]
            return nodeid if pathlib.PurePath(file).name in APART else file

    return Scheduling(config, log)


@pytest.fixture(scope="session", autouse=True)
def cache_directory(pytestconfig, tmp_path_factory):
    """What the processes of a session compile, empty at its start; or what is to be kept."""
    kept = os.environ.get("EW_TESTS_CACHE")
    directory = pathlib.Path(kept) if kept else _session_directory(pytestconfig, tmp_path_factory)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EW_TESTS_CACHE", str(directory))
        patch.setenv("JAX_ELEMENTWISE_CACHE_DIR", str(directory / "kernels"))
        yield directory / "kernels"


def _session_directory(config, tmp_path_factory):
    """A directory that all processes (pytest-xdist) share; on a GPU, where kernels are counted,
    each process has its own."""
    base = tmp_path_factory.getbasetemp()
    shared = "PYTEST_XDIST_WORKER" in os.environ and not _is_about_gpus(config)
    return (base.parent if shared else base) / "compiled"


# ---- What tests ask for --------------------------------------------------------------------------


@pytest.fixture
def directory(tmp_path, monkeypatch):
    """A kernel cache of the test's own: a directory that does not exist yet, and counts of 0."""
    from jax_elementwise import _runtime  # not above: some tests need no package

    path = tmp_path / "a" / "kernels"
    monkeypatch.setenv("JAX_ELEMENTWISE_CACHE_DIR", str(path))
    _runtime.reset_counters()
    return path


@pytest.fixture(scope="module")
def compiled_together(request):
    """What the tests of a module that are marked ``together.compiled`` ask for: see there."""
    from support import together

    mine = [item for item in request.session.items if item.module is request.module]
    together.rehearse(item for item in mine if "compiled_together" in item.fixturenames)


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
