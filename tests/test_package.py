"""The package as a whole: its names, what importing it does, the examples in docstrings."""

import doctest
import importlib
import importlib.resources
import os
import pathlib
import pkgutil
import re
import shutil
import subprocess
import sys

import pytest
from cases import run_python

import jax_elementwise as je

ROOT = pathlib.Path(je.__file__).parent
PUBLIC = {
    "CacheInfo", "CompileError", "CudaFunctor", "ElementwiseFunction", "cache_info", "clear_cache",
    "cmake_dir", "cuda_functor", "elementwise", "include_dir", "trust_programs",
}  # fmt: skip

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(je.__path__, "jax_elementwise.")
    if not module.name.endswith("._runtime")
)


def test_the_public_names():
    public = {name for name in vars(je) if not name.startswith("_")}
    assert public == PUBLIC
    assert all(getattr(je, name).__doc__ for name in public)
    assert issubclass(je.CompileError, RuntimeError)
    assert isinstance(je.elementwise(abs), je.ElementwiseFunction)


def test_a_source_tree_says_that_it_is_one(tmp_path):
    ignored = shutil.ignore_patterns("*.so", "__pycache__", "include")
    shutil.copytree(ROOT, tmp_path / "jax_elementwise", ignore=ignored)
    process = subprocess.run(
        [sys.executable, "-c", "import jax_elementwise"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    message = process.stderr.splitlines()[-1]
    assert message.startswith(
        f"ImportError: {tmp_path}/jax_elementwise/_extension.py is in a source"
    )
    assert "start Python elsewhere, or with -P; or install it with pip install -e" in message


def test_public_names_are_reexported_for_type_checkers():
    text = (ROOT / "__init__.py").read_text()
    for name in PUBLIC:
        assert f"{name} as {name}" in text


def test_the_package_is_typed():
    assert (importlib.resources.files(je) / "py.typed").is_file()


def test_every_module_says_what_it_exports():
    assert MODULES
    for name in MODULES:
        module = importlib.import_module(name)
        assert module.__doc__, name
        exported = getattr(module, "__all__", None)
        if exported is not None:
            assert all(hasattr(module, entry) for entry in exported), name


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_docstrings_run(name):
    module = importlib.import_module(name)
    assert doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE).failed == 0


@pytest.mark.parametrize(
    "function", [je.elementwise, je.cache_info, je.clear_cache, je.include_dir, je.cmake_dir]
)
def test_functions_have_examples(function):
    finder = doctest.DocTestFinder(recurse=False)
    assert any(test.examples for test in finder.find(function))


def test_only_one_module_touches_private_names_of_jax():
    private = re.compile(r"^\s*(?:from|import) jax\._src|\bjax\._src\.", re.MULTILINE)
    users = [path.name for path in ROOT.rglob("*.py") if private.search(path.read_text())]
    assert users == ["_compat.py"]


def test_importing_neither_looks_for_a_compiler_nor_starts_a_backend():
    code = """
import sys
import jax_elementwise
assert not any(name.startswith("cuda.pathfinder") for name in sys.modules), "cuda.pathfinder"
from jax._src import xla_bridge
assert not xla_bridge.backends_are_initialized(), "a backend was started"
"""
    run_python(code)


def test_wrapping_a_function_starts_no_backend():
    code = """
import jax_elementwise as je
f = je.elementwise(lambda x: x + 1)
repr(f)
from jax._src import xla_bridge
assert not xla_bridge.backends_are_initialized()
"""
    run_python(code)


def test_a_call_on_the_cpu_looks_for_no_compiler():
    code = """
import sys
import jax, jax.numpy as jnp
import jax_elementwise as je
f = je.elementwise(lambda x: jnp.sin(x) + 1)
jax.grad(lambda x: f(x).sum())(jnp.ones(3))
assert not any(name.startswith("cuda.pathfinder") for name in sys.modules)
assert je._extension._runtime.counters()["compilations"] == 0
"""
    run_python(code, JAX_PLATFORMS="cpu")


def test_the_package_needs_no_flag_of_jax():
    code = """
import jax
before = dict(jax.config.values)
import jax_elementwise
assert jax.config.values == before
"""
    run_python(code)
