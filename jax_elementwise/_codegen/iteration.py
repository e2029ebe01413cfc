"""How a kernel walks over arrays that broadcast.

Which dimensions can be treated as one, and what each operand is along them.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
from collections.abc import Sequence
from typing import Any

from jax_elementwise import _extension

__all__ = ["IterationSpace", "OperandKind", "iteration_space"]


class _Access(enum.Enum):
    CONTIGUOUS = "Contiguous"  # the result's shape
    SCALAR = "Scalar"  # one element
    ROWS = "Rows"  # broadcast, but not along the innermost dimension
    COLUMNS = "Columns"  # broadcast along the innermost dimension and perhaps others


@dataclasses.dataclass(frozen=True)
class OperandKind:
    """How a kernel reaches one operand: a class of ``operand.h`` and its arguments."""

    access: _Access
    slot: int = 0  # which of the geometry's lists of strides is its own

    @property
    def is_packed(self) -> bool:
        """Whether its elements are loaded several at a time."""
        return self.access in (_Access.CONTIGUOUS, _Access.ROWS)

    @property
    def is_broadcast(self) -> bool:
        """Whether it needs strides of its own."""
        return self.access in (_Access.ROWS, _Access.COLUMNS)

    @property
    def is_scalar(self) -> bool:
        """Whether it has one element."""
        return self.access is _Access.SCALAR

    def construct(self, storage: str, pointer: str, position: int) -> str:
        """C++ that makes the operand from its pointer; ``position`` counts results first."""
        match self.access:
            case _Access.CONTIGUOUS:
                return f"Contiguous<{storage}>{{{pointer}, vectorized(geometry, {position})}}"
            case _Access.SCALAR:
                return f"Scalar<{storage}>{{{pointer}[0]}}"
            case _:
                return f"{self.access.value}<{storage}, {self.slot}>{{{pointer}}}"

    def construct_index(self) -> str:
        """C++ that makes the operand whose elements are their own indices."""
        match self.access:
            case _Access.CONTIGUOUS:
                return "ElementIndex{}"
            case _Access.SCALAR:
                return "Scalar<int64>{0}"
            case _:
                return f"BroadcastIndex<{self.slot}>{{}}"


@dataclasses.dataclass(frozen=True)
class IterationSpace:
    """The dimensions of a call after merging neighbours that no operand tells apart.

    Attributes:
      groups: how many of the result's dimensions became each merged one, outermost first.
      spans: per operand, the merged dimensions it has: bit d for dimension d.
      index_bits: 32 or 64.
    """

    groups: tuple[int, ...]
    spans: tuple[int, ...]
    index_bits: int

    @functools.cached_property
    def kinds(self) -> tuple[OperandKind, ...]:
        """How each operand is reached."""
        everything = (1 << len(self.groups)) - 1
        innermost = 1 << (len(self.groups) - 1)
        kinds: list[OperandKind] = []
        slot = 0
        for span in self.spans:
            if span == everything:
                kinds.append(OperandKind(_Access.CONTIGUOUS))
            elif span == 0:
                kinds.append(OperandKind(_Access.SCALAR))
            else:
                access = _Access.ROWS if span & innermost else _Access.COLUMNS
                kinds.append(OperandKind(access, slot))
                slot += 1
        return tuple(kinds)

    @property
    def _broadcasts(self) -> int:
        return sum(kind.is_broadcast for kind in self.kinds)

    @property
    def geometry(self) -> str:
        """The template arguments of ``Geometry``."""
        return f"{len(self.groups)}, {self._broadcasts}" if self._broadcasts else "0, 0"

    @property
    def geometry_words(self) -> int:
        """The size of ``Geometry``, in words of 8 bytes."""
        rank = len(self.groups)
        return 3 + (3 * (rank - 1) + rank * self._broadcasts if self._broadcasts else 0)


def iteration_space(
    operand_shapes: Sequence[tuple[Any, ...]], result_shape: tuple[Any, ...]
) -> IterationSpace:
    """Merges the dimensions of a call. Shapes broadcast to the result's as in NumPy.

    Extents may be symbolic: only whether an operand's extent is the result's matters.

    >>> iteration_space([(8, 3, 5), (3, 5), ()], (8, 3, 5))
    IterationSpace(groups=(1, 2), spans=(3, 2, 0), index_bits=32)
    """
    rank = len(result_shape)
    has = [_dimensions(shape, result_shape) for shape in operand_shapes]
    groups: list[int] = []
    columns: list[tuple[bool, ...]] = []  # per merged dimension: which operands have it
    pending = 0  # dimensions of one element, which belong to any neighbour
    for axis in range(rank):
        column = tuple(operand[axis] for operand in has)
        if _is_one(result_shape[axis]):
            pending += 1
        elif columns and columns[-1] == column:
            groups[-1] += 1 + pending
            pending = 0
        else:
            groups.append(1 + pending)
            columns.append(column)
            pending = 0
    if not groups:  # one element in all: every operand is contiguous with it
        groups, columns, pending = [rank], [(True,) * len(has)], 0
    groups[-1] += pending
    spans = tuple(
        sum(1 << d for d, column in enumerate(columns) if column[k]) for k in range(len(has))
    )
    return IterationSpace(tuple(groups), spans, _index_bits(result_shape))


def _is_one(extent: Any) -> bool:
    return isinstance(extent, int) and extent == 1


def _dimensions(shape: tuple[Any, ...], result_shape: tuple[Any, ...]) -> tuple[bool, ...]:
    """For each dimension of the result, whether an operand has it (rather than being repeated)."""
    padded = (1,) * (len(result_shape) - len(shape)) + tuple(shape)
    return tuple(not _is_one(extent) for extent in padded)


def _index_bits(shape: tuple[Any, ...]) -> int:
    static = all(isinstance(extent, int) for extent in shape)
    return 32 if static and math.prod(shape) <= _extension.MAX_SIZE_32 else 64
