"""Compiles at once what the tests of a module ask for one by one: starting a compiler takes longer
than a kernel does.

Tests take part by ``@together.compiled``. Before the first of a module, all of them that need
nothing but their parameters are rehearsed: called until they ask for something compiled
(``simt.evaluate``, ``sass.opcodes_of``). That is compiled together, and then the tests find it.
What was not asked for in a rehearsal, or does not compile together, is compiled by itself, so that
a failure is always that of one test.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import pytest

compiled = pytest.mark.usefixtures("compiled_together")

_rehearsal: dict[Callable, dict[Hashable, Any]] | None = None
_answers: dict[Hashable, Any] = {}


class Rehearsed(Exception):  # noqa: N818
    """Ends the rehearsal of a test."""


def ask(answer: Callable[[list], list], key: Hashable, request: Any) -> Any:
    """The answer to a request, found by a compilation of many or else of this alone.

    Args:
      answer: gives the answers to a list of requests, in one compilation.
      key: tells requests apart.
      request: what ``answer`` takes.
    """
    if _rehearsal is not None:
        _rehearsal.setdefault(answer, {})[key] = request
        raise Rehearsed
    if (answer, key) not in _answers:
        (_answers[answer, key],) = answer([request])
    return _answers[answer, key]


def rehearse(items: Iterable[Any]) -> None:
    """Finds out what tests will ask for, and compiles it."""
    global _rehearsal
    _answers.clear()
    _rehearsal = requests = {}
    try:
        for item in items:
            _call(item)
    finally:
        _rehearsal = None
    for answer, by_key in requests.items():
        with contextlib.suppress(Exception):  # each test has its own compiled then
            answers = answer(list(by_key.values()))
            _answers.update({(answer, key): a for key, a in zip(by_key, answers, strict=True)})


def _call(item: Any) -> None:
    """Calls a test that needs nothing but its parameters."""
    params = item.callspec.params if hasattr(item, "callspec") else {}
    names = inspect.signature(item.function).parameters
    if set(names) <= set(params):
        with contextlib.suppress(Exception, pytest.skip.Exception):
            item.function(**{name: params[name] for name in names})
