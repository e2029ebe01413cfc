"""Exceptions of this package that are not Python's own."""

from __future__ import annotations

__all__ = ["CompileError"]


class CompileError(RuntimeError):
    """A kernel that the compiler refused. The message holds the compiler's own."""
