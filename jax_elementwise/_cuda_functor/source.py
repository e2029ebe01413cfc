"""CUDA C++ that a user gives for one element: its text, and the names and types it works on."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from jax_elementwise._codegen.types import DTYPES
from jax_elementwise._cuda_functor.cplusplus import Struct, without_comments

__all__ = ["Parameter", "Source", "file_of", "template_argument"]


@dataclasses.dataclass(frozen=True)
class Parameter:
    """A name in the text, and its type: a dtype, a letter for one that calls decide, or None."""

    name: str
    type: str | None = None

    @property
    def is_letter(self) -> bool:
        """Whether the type is a letter."""
        return self.type is not None and self.type not in DTYPES


@dataclasses.dataclass(frozen=True)
class Source:
    """A functor's text, with its headers written out, and what it works on.

    Attributes:
      name: for messages, kernels and profiles.
      text: the user's.
      preamble: what stands before it.
      struct: the functor's class; None where the text is an expression or statements.
      argument: that of the class template, where the user says it; None where calls decide.
      inputs: operands, one element each.
      scalars: operands of rank 0. A struct is constructed from them.
      outputs: results; None for one whose type the text decides. Those with names are assigned.
      index: what the text calls the index of the element; None where it does not ask for it.
    """

    name: str
    text: str
    preamble: str
    struct: Struct | None
    argument: str | None
    inputs: tuple[Parameter, ...]
    scalars: tuple[Parameter, ...]
    outputs: tuple[Parameter, ...] | None
    index: str | None

    @property
    def file(self) -> str:
        """What compilers call the text in their messages."""
        return file_of(self.name)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Inputs and scalars: what a call gives."""
        return self.inputs + self.scalars

    @property
    def assigns(self) -> bool:
        """Whether results are assigned to names or references, rather than returned."""
        if self.struct is not None:
            return self.struct.returns_void
        return self.outputs is not None and self.outputs[0].name != ""

    @property
    def updated(self) -> frozenset[str]:
        """The names of statements that are inputs and results: what they are before, and after."""
        if self.struct is not None or not self.assigns:
            return frozenset()
        return frozenset(p.name for p in self.inputs) & {p.name for p in self.outputs or ()}

    @property
    def has_pairs(self) -> bool:
        """Whether the text has an ``Apply2``, for two elements at once."""
        return re.search(r"\bApply2\b", without_comments(self.preamble + self.text)) is not None

    @property
    def is_expression(self) -> bool:
        """Whether the text is what a function returns, and not the statements of one."""
        returns = re.search(r"\breturn\b", without_comments(self.text))
        return self.struct is None and not self.assigns and returns is None


def template_argument(source: Source, dtypes: Sequence[str]) -> str | None:
    """What a class template is instantiated with for operands of these dtypes.

    As C++ deduces a function's: the type of all operands that have the template's parameter for
    their type.

    Returns:
      A dtype; where the user says it, C++; None for the template's default.

    Raises:
      TypeError: where operands differ.
    """
    struct = source.struct
    assert struct is not None
    if source.argument is not None:
        return source.argument
    found: dict[str, str] = {}
    for i, name in struct.of_template(len(source.inputs), len(source.scalars)):
        found.setdefault(dtypes[i], name)
    if len(found) > 1:
        places = ", ".join(f"{dtype} by {name!r}" for dtype, name in found.items())
        raise TypeError(
            f"{source.name!r} is a template of {struct.template}, which is {places}. Convert an "
            f"argument, or say it, as in name='{struct.name}<float>'"
        )
    return next(iter(found), None)


def file_of(name: str) -> str:
    """What compilers call the text of a functor."""
    return re.sub(r'["\\\n]', "_", name)
