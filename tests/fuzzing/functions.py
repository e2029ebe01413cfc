"""What a function of one element is here: a tree of statements that can be written as Python."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import NamedTuple


class Variable(NamedTuple):
    """A name and the name of a dtype."""

    name: str
    dtype: str


@dataclasses.dataclass(frozen=True)
class Statement:
    """``result = text``.

    Attributes:
      result: what it assigns.
      text: an expression, with ``{0}``, ``{1}``, ... for its operands, ``{n0}``, ... for operands
        of operations that round, ``{N}(...)`` for what is rounded, and ``{b0}``, ... for its
        blocks.
      operands: what it reads.
      blocks: functions that it calls.
    """

    result: Variable
    text: str
    operands: tuple[Variable, ...] = ()
    blocks: tuple[Block, ...] = ()

    @property
    def reads(self) -> frozenset[Variable]:
        """Everything from outside that it needs."""
        return frozenset(self.operands).union(*(block.captured for block in self.blocks))


@dataclasses.dataclass(frozen=True)
class Block:
    """A function. Whatever is visible where it stands can be read in it."""

    parameters: tuple[Variable, ...]
    body: tuple[Statement, ...]
    results: tuple[Variable, ...]

    @property
    def captured(self) -> frozenset[Variable]:
        """What it reads of its surroundings."""
        needed = frozenset(self.results).union(*(s.reads for s in self.body))
        return needed - set(self.parameters) - {s.result for s in self.body}

    def without_unused(self) -> Block:
        """The same without statements whose results nothing reads."""
        needed, body = set(self.results), []
        for statement in reversed(self.body):
            if statement.result in needed:
                blocks = tuple(block.without_unused() for block in statement.blocks)
                statement = dataclasses.replace(statement, blocks=blocks)
                needed |= statement.reads
                body.append(statement)
        return dataclasses.replace(self, body=tuple(reversed(body)))

    def without_copies(self, names: Mapping[Variable, Variable] | None = None) -> Block:
        """The same without statements that only give a name to what has one."""
        names, body = dict(names or {}), []
        for statement in self.body:
            operands = tuple(names.get(x, x) for x in statement.operands)
            if statement.text == "{0}":
                names[statement.result] = operands[0]
                continue
            blocks = tuple(block.without_copies(names) for block in statement.blocks)
            body.append(dataclasses.replace(statement, operands=operands, blocks=blocks))
        results = tuple(names.get(x, x) for x in self.results)
        return Block(self.parameters, tuple(body), results)

    def texts(self) -> str:
        """The texts of all statements, to look something up in."""
        return " ".join(s.text + " ".join(b.texts() for b in s.blocks) for s in self.body)

    @property
    def dtypes(self) -> frozenset[str]:
        """Of all its variables."""
        own = {v.dtype for v in (*self.parameters, *self.results)}
        inner = (b.dtypes for s in self.body for b in s.blocks)
        return frozenset(own | {s.result.dtype for s in self.body}).union(*inner)


def lines(block: Block, name: str, *, noise: bool = False, indent: str = "") -> Iterator[str]:
    """The function as Python; with noise, what operations that round read goes through ``N``."""
    yield f"{indent}def {name}({', '.join(p.name for p in block.parameters)}):"
    inner = indent + "    "
    for statement in block.body:
        names = {}
        for number, each in enumerate(statement.blocks):
            names[f"b{number}"] = f"{statement.result.name}_{number}"
            yield from lines(each, names[f"b{number}"], noise=noise, indent=inner)
        operands = [operand.name for operand in statement.operands]
        noisy = {f"n{k}": f"N({name})" if noise else name for k, name in enumerate(operands)}
        text = statement.text.format(*operands, **noisy, **names, N="N" if noise else "")
        yield f"{inner}{statement.result.name} = {text}"
    results = ", ".join(result.name for result in block.results)
    yield f"{inner}return {results}"


# ---- Smaller ones --------------------------------------------------------------------------------


def smaller(block: Block) -> Iterator[Block]:
    """Functions with something taken away, those first that lose most."""
    if len(block.results) > 1:
        for result in block.results:
            yield dataclasses.replace(block, results=(result,)).without_unused()
    yield from (each.without_copies().without_unused() for each in _smaller(block, ()))


def _smaller(block: Block, visible: tuple[Variable, ...]) -> Iterator[Block]:
    """The same results, each statement in turn replaced by something that is there already."""
    for k in reversed(range(len(block.body))):
        statement = block.body[k]
        before = (*visible, *block.parameters, *(s.result for s in block.body[:k]))
        for simple in _simpler(statement, before):
            yield dataclasses.replace(block, body=(*block.body[:k], simple, *block.body[k + 1 :]))


def _simpler(statement: Statement, visible: tuple[Variable, ...]) -> Iterator[Statement]:
    result = statement.result
    if statement.text != "{0}":
        for variable in sorted({*statement.operands, *visible[:8]}):
            if variable.dtype == result.dtype:
                yield Statement(result, "{0}", (variable,))
    for k, block in enumerate(statement.blocks):
        for less in _smaller(block, visible):
            blocks = (*statement.blocks[:k], less, *statement.blocks[k + 1 :])
            yield dataclasses.replace(statement, blocks=blocks)
