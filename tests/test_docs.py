"""The pages of docs/: examples run, links lead somewhere, what is generated is current."""

import doctest
import importlib.util
import pathlib
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest

from jax_elementwise._codegen.rules.operators import OPERATORS

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGES = sorted((ROOT / "docs").glob("*.md"))
TOOL = ROOT / "tools" / "operator_table.py"


def name_of(path):
    return path.name


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_examples(path, request):
    blocks = re.findall(r"```python\n(>>> .*?)```", path.read_text(), re.DOTALL)
    if not blocks:
        pytest.skip("no examples")
    if "je.cuda_functor(" in "".join(blocks):
        request.getfixturevalue("host_compiler")
    run_examples(path, blocks)


def run_examples(path, blocks):
    """Runs them and returns their variables."""
    test = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, path.name, str(path), 0)
    report = []
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)
    failed, tried = runner.run(test, out=report.append, clear_globs=False)
    assert tried
    assert not failed, "".join(report)
    return test.globs


@pytest.mark.exhaustive
def test_snippets_in_the_tables_of_functors_run(host_compiler):
    path = ROOT / "docs" / "cuda-functors.md"
    names = run_examples(path, re.findall(r"```python\n(>>> .*?)```", path.read_text(), re.DOTALL))
    snippets = re.findall(r"^\| [^|`]+ \| `([^`]+)` \| [^|]*\|$", path.read_text(), re.MULTILINE)
    assert len(snippets) == 33
    for snippet in snippets:
        results = jax.tree.leaves(eval(snippet, dict(names)))
        assert results, snippet
        assert all(isinstance(r, jax.Array) and r.size for r in results), snippet


@pytest.mark.parametrize(
    "path", [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md"], ids=name_of
)
def test_links_lead_to_files(path):
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", path.read_text()):
        if not target.startswith(("http:", "https:")):
            assert (path.parent / target).exists(), target


def test_readme_names_every_page():
    text = (ROOT / "README.md").read_text()
    assert [p.name for p in PAGES if f"](docs/{p.name})" not in text] == []


def run_tool(*arguments):
    command = [sys.executable, str(TOOL), *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def test_the_page_of_operators_is_what_its_tool_writes():
    done = run_tool("--check")
    assert done.returncode == 0, done.stdout + done.stderr


def load(tool):
    spec = importlib.util.spec_from_file_location(tool.stem, tool)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def written():
    """What the page says users write, by primitive."""
    return load(TOOL).WRITTEN


def _primitives(text, dtype):
    """What a text consists of, for operands x and y of a dtype; nothing where it takes others."""
    modules = {"jax": jax, "jnp": jnp}
    operands = [jax.ShapeDtypeStruct((), dtype)] * 2
    try:
        jaxpr = jax.make_jaxpr(lambda x, y: eval(text, {**modules, "x": x, "y": y}))(*operands)
    except (TypeError, ValueError):
        return set()
    return set(re.findall(r"= ([\w-]+)", str(jaxpr)))


def test_what_users_write_is_the_primitive(written):
    for name, texts in written.items():
        if name == "log2" and "log2" not in _primitives("jnp.log2(x)", "float32"):
            continue  # before there was such a primitive
        assert name in OPERATORS
        for text in texts:
            found = set()
            for dtype in ("float32", "int32", "uint32", "bool", "complex64"):
                found |= _primitives(text, dtype)
            assert name in found, (name, text)


# ---- Files that documents name -------------------------------------------------------------------

DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
FOLDERS = ("jax_elementwise", "csrc", "tests", "tools", "benchmarks", "docs", "examples", "*.md")
OF_CUDA = {"cuda_fp8.h", "cuda_bf16.h", "cuda_fp16.h"}


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: page.name)
def test_files_that_a_page_names_exist(page):
    named = set(re.findall(r"`([\w/.-]+\.(?:py|cc|h|cuh|cu|md|json))`", page.read_text()))
    files = [path.as_posix() for folder in FOLDERS for path in _below(folder)]
    missing = {n for n in named - OF_CUDA if not any(f.endswith(f"/{n}") for f in files)}
    assert not missing


def _below(pattern):
    for path in ROOT.glob(pattern):
        yield path
        yield from path.rglob("*") if path.is_dir() else ()


def test_names_in_the_internals_are_in_the_sources():
    text = (ROOT / "docs" / "internals.md").read_text()
    named = {name.split(".")[-1] for name in re.findall(r"`([A-Za-z_]\w*(?:\.\w+)*)`", text)}
    sources = [path for folder in ("jax_elementwise", "csrc") for path in _below(folder)]
    suffixes = (".py", ".cc", ".h", ".cuh")
    words = set()
    for path in sources:
        if path.suffix in suffixes:
            words |= {path.stem, path.suffix[1:]} | set(re.findall(r"\w+", path.read_text()))
    assert not named - words
