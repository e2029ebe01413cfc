"""Sessions of nox: ``nox -s tests-oldest``, ``tests-newest``, ``lint`` and ``gpu``."""

import pathlib

import nox

nox.needs_version = ">=2025.5"
nox.options.sessions = ["tests-oldest", "tests-newest", "lint"]
nox.options.error_on_missing_interpreters = True


def run_tests(session: nox.Session) -> None:
    """The default tests and then the exhaustive ones, of which options may select none."""
    session.run("pytest", "-n", "auto", *session.posargs)
    exhaustive = ["-m", "exhaustive", *session.posargs]
    session.run("pytest", "-n", "auto", *exhaustive, success_codes=[0, 5])


@nox.session(name="tests-oldest", python="3.11")
def tests_oldest(session: nox.Session) -> None:
    """The oldest supported Python and JAX."""
    session.install(".[test]", "jax==0.10.2", "jaxlib==0.10.2")
    run_tests(session)


@nox.session(name="tests-newest", python="3.13")
def tests_newest(session: nox.Session) -> None:
    """The newest JAX."""
    session.install("--upgrade", "--upgrade-strategy=eager", ".[test]")
    run_tests(session)


@nox.session(python="3.11")
def lint(session: nox.Session) -> None:
    """Linters and type checks, with the versions of the extra ``dev``."""
    session.install(".[dev]")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    sources = [
        str(path)
        for directory in ("csrc", "examples", "tests/csrc")
        for path in sorted(pathlib.Path(directory).rglob("*"))
        if path.suffix in (".cc", ".cu", ".cuh", ".h")
    ]
    session.run("clang-format", "--dry-run", "-Werror", *sources)
    session.run("codespell")
    # The installed package, since the checkout has no stubs of the extension.
    config = pathlib.Path("pyproject.toml").resolve()
    session.chdir(session.create_tmp())
    session.run("mypy", "--config-file", str(config), "-p", "jax_elementwise")


@nox.session(venv_backend="none")
def gpu(session: nox.Session) -> None:
    """Builds and tests on this machine's GPU, with the packages installed here; no network."""
    session.run("python3", "tools/gpu_check.py", *session.posargs)
