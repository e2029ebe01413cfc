"""tools/gpu_check.py: what the record of a run on a GPU is about, and when it still holds."""

import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "tools" / "gpu_check.py"


def load():
    spec = importlib.util.spec_from_file_location("gpu_check", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


gpu_check = load()


@pytest.fixture
def tree(tmp_path):
    """A small project with a tool and no record."""
    files = {
        ".gitignore": "__pycache__/\n*.so\n/jax_elementwise/_runtime.pyi\n",
        "CMakeLists.txt": "project(x)\n",
        "README.md": "x\n",
        "csrc/embed.cmake": "x\n",
        "csrc/include/kernel.h": "x\n",
        "csrc/module.cc": "x\n",
        "jax_elementwise/__init__.py": "x\n",
        "jax_elementwise/_codegen/kernel.py": "x\n",
        "pyproject.toml": '[build-system]\nrequires = ["a"]\n[project]\nname = "x"\n',
        "tests/gpu/test_x.py": "x\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "tools").mkdir()
    shutil.copy(SCRIPT, tmp_path / "tools")
    return tmp_path


def write_record(tree, **changes):
    record = {
        "sources": gpu_check.source_names(tree),
        "date": "2026-01-02T03:04:05Z",
        "device": {"name": "NVIDIA X", "count": 1, "driver": "1.2"},
        "versions": {"python": "3.12.1", "jax": "0.11.2", "nvrtc": "13.0"},
        "tests": {"passed": 5, "failed": 0, "skipped": 1},
        **changes,
    }
    path = tree / "tests" / "gpu" / "verified.json"
    path.write_text(json.dumps(record))
    return path


def run_status(tree):
    """The exit status and the output of a Python that has no packages."""
    run = subprocess.run(
        [sys.executable, "-I", "-S", tree / "tools" / "gpu_check.py", "--status"],
        capture_output=True,
        text=True,
        cwd="/",
    )
    assert not run.stderr
    return run.returncode, run.stdout


# ---- The names of the sources --------------------------------------------------------------------


def test_names_are_those_that_git_has_for_a_commit(tree, monkeypatch):
    for key, value in {"NAME": "x", "EMAIL": "x@example.org"}.items():
        monkeypatch.setenv(f"GIT_AUTHOR_{key}", value)
        monkeypatch.setenv(f"GIT_COMMITTER_{key}", value)

    def git(*arguments):
        run = subprocess.run(["git", *arguments], cwd=tree, check=True, capture_output=True)
        return run.stdout.decode().strip()

    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "--message=x")
    names = gpu_check.source_names(tree)
    assert names == {path: git("rev-parse", f"HEAD:{path}") for path in gpu_check.SOURCES}


def test_names_depend_on_contents_and_not_on_the_place_or_mode(tree, tmp_path_factory):
    names = gpu_check.source_names(tree)
    copy = tmp_path_factory.mktemp("other") / "place"
    shutil.copytree(tree, copy, copy_function=shutil.copyfile)
    (copy / "csrc/module.cc").chmod(0o755)
    assert gpu_check.source_names(copy) == names
    assert names == gpu_check.source_names(tree)


@pytest.mark.parametrize(
    "name",
    [
        "CMakeLists.txt",
        "csrc/embed.cmake",
        "csrc/include/kernel.h",
        "csrc/module.cc",
        "csrc/new.cc",
        "jax_elementwise/_codegen/kernel.py",
        "jax_elementwise/new.py",
        "pyproject.toml",
    ],
)
def test_a_changed_source_has_another_name(tree, name):
    names = gpu_check.source_names(tree)
    (tree / name).write_text("y\n")
    changed = gpu_check.source_names(tree)
    assert {key for key in names if names[key] != changed[key]} == {name.split("/")[0]}


def test_renamed_and_missing_files_change_a_name(tree):
    names = {gpu_check.source_names(tree)["csrc"]}
    (tree / "csrc/module.cc").rename(tree / "csrc/modules.cc")
    names.add(gpu_check.source_names(tree)["csrc"])
    (tree / "csrc/modules.cc").unlink()
    names.add(gpu_check.source_names(tree)["csrc"])
    assert len(names) == 3


@pytest.mark.parametrize(
    "name",
    [
        "README.md",
        "build/x.cc",
        "jax_elementwise/__pycache__/kernel.cpython-311.pyc",
        "jax_elementwise/_runtime.cpython-311-x86_64-linux-gnu.so",
        "jax_elementwise/_runtime.pyi",
        "tests/gpu/test_x.py",
    ],
)
def test_what_is_built_or_only_read_changes_no_name(tree, name):
    names = gpu_check.source_names(tree)
    (tree / name).parent.mkdir(parents=True, exist_ok=True)
    (tree / name).write_text("y\n")
    assert gpu_check.source_names(tree) == names


def test_without_git_there_are_no_names(tree, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(gpu_check.CheckError, match="git is not installed"):
        gpu_check.source_names(tree)


def test_sources_that_are_missing_are_an_error(tree):
    (tree / "CMakeLists.txt").unlink()
    with pytest.raises(gpu_check.CheckError, match=r"cannot name the sources: .*CMakeLists.txt"):
        gpu_check.source_names(tree)


def test_this_project_has_the_sources_it_should():
    assert set(gpu_check.source_names(ROOT)) == set(gpu_check.SOURCES)


# ---- The record ----------------------------------------------------------------------------------


def test_status_of_a_record_that_matches(tree):
    write_record(tree)
    code, text = run_status(tree)
    assert code == 0
    assert text == (
        "Verified: the sources are those of the last run. On 2026-01-02T03:04:05Z: 5 passed, "
        "0 failed, 1 skipped on NVIDIA X (driver 1.2) with JAX 0.11.2, Python 3.12.1 and NVRTC "
        "13.0.\n"
    )


def test_status_after_a_change(tree):
    write_record(tree)
    (tree / "csrc/module.cc").write_text("y\n")
    code, text = run_status(tree)
    assert code == 1
    assert text.startswith("Not verified: the sources have changed since the last run. On 2026")


def test_status_without_a_record(tree):
    assert run_status(tree) == (1, "Not verified: there is no tests/gpu/verified.json.\n")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", "null", '{"sources": "x"}', '{"sources": 1, "tests": 5}', "\0"]
)
def test_status_of_a_malformed_record(tree, text):
    (tree / "tests/gpu/verified.json").write_text(text)
    code, output = run_status(tree)
    assert code == 1
    assert output.startswith("Not verified: tests/gpu/verified.json is malformed (")


def test_status_of_a_record_with_failures(tree):
    write_record(tree, tests={"passed": 5, "failed": 2, "skipped": 0})
    code, text = run_status(tree)
    assert code == 1
    assert text.startswith("Not verified: tests failed.")


# ---- The run -------------------------------------------------------------------------------------

REPORT = """<?xml version="1.0"?>
<testsuites><testsuite name="pytest" errors="1" failures="2" skipped="3" tests="10">
<testcase name="a"><skipped type="pytest.skip" message="no tool"/></testcase>
<testcase name="b"><skipped type="pytest.skip" message="no tool"/></testcase>
<testcase name="c"><skipped type="pytest.skip" message="another"/></testcase>
</testsuite></testsuites>
"""


def test_reports_are_read(tmp_path):
    (tmp_path / "report.xml").write_text(REPORT)
    assert gpu_check.read_report(tmp_path / "report.xml") == {
        "passed": 4,
        "failed": 3,
        "skipped": 3,
        "reasons_to_skip": ["another", "no tool"],
    }


def test_the_environment_is_that_of_the_build(tmp_path, monkeypatch):
    monkeypatch.setenv("EW_GPU_TESTS_ON", "cpu")
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    environment = gpu_check.environment(tmp_path)
    assert environment["PYTHONPATH"] == str(tmp_path)
    assert "EW_GPU_TESTS_ON" not in environment
    assert environment["PATH"] == os.environ["PATH"]


class Run:
    """A check with everything that takes long replaced."""

    def __init__(self, monkeypatch, tree, passed=3, failed=0, count=1):
        self.jobs = []

        def test(root, directory, extra, jobs):
            self.jobs.append(jobs)
            return numbers

        found = {"name": "NVIDIA X", "count": count, "compute_capability": [90]}
        found |= {"jax": "0.11.2", "jaxlib": "0.11.2", "nvrtc": "13.0"}
        numbers = {"passed": passed, "failed": failed, "skipped": 0, "reasons_to_skip": []}
        monkeypatch.setattr(gpu_check, "ROOT", tree)
        monkeypatch.setattr(gpu_check, "build", lambda root, directory: 1.23)
        monkeypatch.setattr(gpu_check, "probe", lambda directory: found)
        monkeypatch.setattr(gpu_check, "test", test)
        monkeypatch.setattr(gpu_check, "driver_version", lambda: "1.2")
        self.record = tree / "tests/gpu/verified.json"

    def __call__(self, *arguments):
        return gpu_check.main(list(arguments))


def test_a_run_without_failures_is_recorded(tree, monkeypatch, capsys):
    run = Run(monkeypatch, tree)
    assert run("--output", str(tree / "elsewhere" / "record.json")) == 0
    assert "3 passed, 0 failed, 0 skipped on NVIDIA X" in capsys.readouterr().out
    assert run.record.read_text() == (tree / "elsewhere" / "record.json").read_text()
    assert json.loads(run.record.read_text())["seconds"]["build"] == 1.2
    assert run("--status") == 0


def test_several_gpus_and_processes(tree, monkeypatch, capsys):
    run = Run(monkeypatch, tree, count=2)
    assert run("--jobs", "4") == 0
    assert run.jobs == [4]
    assert "0 skipped on 2 NVIDIA X (driver" in capsys.readouterr().out


@pytest.mark.parametrize(("passed", "failed"), [(3, 1), (0, 0)])
def test_a_run_with_failures_or_without_tests_is_not(tree, monkeypatch, capsys, passed, failed):
    run = Run(monkeypatch, tree, passed, failed)
    assert run() == 1
    assert f"{passed} tests passed and {failed} failed" in capsys.readouterr().err
    assert not run.record.exists()


def test_a_run_of_some_tests_is_not(tree, monkeypatch, capsys):
    run = Run(monkeypatch, tree)
    assert run("--", "-k", "numerics") == 0
    assert "No record" in capsys.readouterr().out
    assert not run.record.exists()


def test_a_run_during_which_sources_change_is_not(tree, monkeypatch, capsys):
    run = Run(monkeypatch, tree)
    monkeypatch.setattr(
        gpu_check, "build", lambda root, directory: float((tree / "csrc/new.h").write_text("z"))
    )
    assert run() == 1
    assert "the sources changed meanwhile" in capsys.readouterr().err
    assert not run.record.exists()
