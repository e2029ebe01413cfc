"""The headers that users' C++ includes, written out where a preprocessor would read them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from jax_elementwise._cuda_functor.cplusplus import without_comments

__all__ = ["Headers", "leading_directives"]

_INCLUDE = re.compile(r"\s*#\s*include\s*[<\"]([^>\"]+)[>\"]")
_ONCE = re.compile(r"^\s*#\s*pragma\s+once\b", re.MULTILINE)
_GUARD = re.compile(r"\s*#\s*ifndef\s+(\w+)\s+#\s*define\s+\1\b")

# What these headers declare is there without them.
_PROVIDED = re.compile(r"cuda|cuda_(bf16|fp16|fp8|runtime)|c?math|c?std(def|int)")


class Headers:
    """The headers that the texts of one functor may include, by name.

    Which of ``#if`` holds only the compiler knows, so what stands there is written out too. Only a
    header that has certainly been read, and that a macro keeps from being read again, is left out.
    The numbers of the user's lines stay: markers say where a header begins and ends.
    """

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts
        self._read: set[str] = set()

    def expand(self, text: str, file: str) -> str:
        """The text with its headers inside; ``file`` is its own name.

        Raises:
          ValueError: for a header that is not given, unless an ``#if`` may leave it out.
        """
        return "\n".join(self._lines(text, file, within=(), is_certain=True))

    def _lines(
        self, text: str, file: str, within: tuple[str, ...], is_certain: bool
    ) -> Iterator[str]:
        code = without_comments(text)
        depth = -1 if _GUARD.match(code) else 0  # of conditions; a guard's holds
        for number, (line, bare) in enumerate(
            zip(text.split("\n"), code.split("\n"), strict=True), start=1
        ):
            word = _directive(bare)
            depth += (word in ("if", "ifdef", "ifndef")) - (word == "endif")
            header = _INCLUDE.match(line) if word == "include" else None
            if header is None:
                yield "" if _ONCE.match(bare) else line
                continue
            included = self._included(header[1], within, is_certain and depth <= 0, depth > 0)
            yield from [*included, f'#line {number + 1} "{file}"'] if included else [""]

    def _included(
        self, name: str, within: tuple[str, ...], is_certain: bool, may_be_left_out: bool
    ) -> list[str]:
        if name not in self._texts:
            if _PROVIDED.fullmatch(name.removesuffix(".h")):
                return []
            message = f"the header {name!r} is not there: give its text, as in headers={{{name!r}: "
            if not may_be_left_out:
                raise ValueError(f"{message}...}}")
            return [f"#error {message}...}}"]
        text = self._texts[name]
        code = without_comments(text)
        once = _ONCE.search(code) is not None
        if name in within or name in self._read:
            return []
        if is_certain and (once or _GUARD.match(code)):
            self._read.add(name)
        lines = [f'#line 1 "{name}"', *self._lines(text, name, (*within, name), is_certain)]
        if once:  # which compilers heed in files only
            macro = f"JAX_ELEMENTWISE_HEADER_{list(self._texts).index(name)}"
            lines = [f"#ifndef {macro}", f"#define {macro}", *lines, "#endif"]
        return lines


def leading_directives(text: str) -> tuple[str, str]:
    """The includes that a text begins with, among other directives; and the text without them.

    Both have all lines, some of them empty, so that the rest keeps its numbers.
    """
    lines, code = text.split("\n"), without_comments(text).split("\n")
    depth, end, continues, includes = 0, 0, False, False
    for number, bare in enumerate(code, start=1):
        word = _directive(bare)
        if bare.strip() and not word and not continues:
            break
        continues = bare.rstrip().endswith("\\") and bool(word or continues)
        depth += (word in ("if", "ifdef", "ifndef")) - (word == "endif")
        includes |= word == "include"
        if includes and depth == 0 and not continues:
            end = number
    if end == 0:
        return "", text
    return "\n".join(lines[:end]), "\n".join([""] * end + lines[end:])


def _directive(bare: str) -> str:
    """The word of a directive, in a line without comments; empty where it is none."""
    match = re.match(r"\s*#\s*(\w+)", bare)
    return match[1] if match else ""
