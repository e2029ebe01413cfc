"""Sessions: both ends of the supported JAX versions, lint, and the check on a GPU."""

import nox

nox.options.sessions = ["tests-oldest", "tests-newest", "lint"]


@nox.session(name="tests-oldest", python="3.11")
def tests_oldest(session: nox.Session) -> None:
    session.install("jax==0.10.2")
    session.install(".[test]")
    session.run("pytest", *session.posargs)


@nox.session(name="tests-newest", python=["3.13"])
def tests_newest(session: nox.Session) -> None:
    session.install(".[test]")
    session.run("pytest", *session.posargs)


@nox.session(python="3.11")
def lint(session: nox.Session) -> None:
    session.install(".[dev]")
    session.run("pre-commit", "run", "--all-files", *session.posargs)


@nox.session(venv_backend="none")
def gpu(session: nox.Session) -> None:
    session.run("python3", "tools/gpu_check.py", *session.posargs)
