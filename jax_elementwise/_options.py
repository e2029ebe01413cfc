"""What a user may choose for one function: how it is lowered, compiled and where results go."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

__all__ = ["LOWERINGS", "Aliases", "Options", "check_aliases", "make_options", "renumber_aliases"]

LOWERINGS = ("auto", "kernel", "xla")
Aliases = tuple[tuple[int, int], ...]  # operand, result; no number twice in either place


@dataclasses.dataclass(frozen=True)
class Options:
    """What a user may choose for one function.

    Attributes:
      fast_math: let the compiler trade accuracy for speed.
      lowering: one of ``LOWERINGS``.
      aliases: pairs of an operand and a result that may be written into its buffer. They count what
        one call of the primitive has, so each call has its own.
    """

    fast_math: bool = False
    lowering: str = "auto"
    aliases: Aliases = ()

    def without_aliases(self) -> Options:
        """For a call whose operands and results are others than the user's."""
        return dataclasses.replace(self, aliases=())


def make_options(name: str, fast_math: bool, lowering: Any, aliases: Any) -> Options:
    """The options of the function ``name``, as far as they can be checked before it is called.

    Raises:
      TypeError: for aliases that are not a dict of ints.
      ValueError: for a lowering that does not exist, and aliases with negative numbers or one
        result twice.
    """
    if lowering not in LOWERINGS:
        raise ValueError(f"lowering must be one of {LOWERINGS}, not {lowering!r}")
    parsed = _parse_aliases({} if aliases is None else aliases, name)
    return Options(bool(fast_math), lowering, parsed)


# ---- Results that may be written into operands ---------------------------------------------------


def _parse_aliases(aliases: Any, name: str) -> Aliases:
    option = f"input_output_aliases of {name!r}"
    if not isinstance(aliases, dict) or not all(map(_is_int, (*aliases, *aliases.values()))):
        raise TypeError(f"{option} must be a dict of ints, {{argument: result}}, not {aliases!r}")
    holders: dict[int, int] = {}
    for operand, result in sorted(aliases.items()):
        if operand < 0 or result < 0:
            raise ValueError(f"{option} counts arguments and results from 0, but got {aliases!r}")
        if result in holders:
            raise ValueError(
                f"{option} gives result {result} to arguments {holders[result]} and {operand}; it "
                "can be written into one of them."
            )
        holders[result] = operand
    return tuple((operand, result) for result, operand in holders.items())


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def check_aliases(
    aliases: Aliases,
    name: str,
    names: Sequence[str],
    operands: Sequence[Any],
    dtypes: Sequence[Any],
    out_tree: Any,
) -> None:
    """Raises where a call's operands cannot hold the results they are meant for.

    Args:
      aliases: the pairs.
      name: of the function.
      names: of the operands.
      operands: arrays.
      dtypes: of the results.
      out_tree: the structure of the results.

    Raises:
      TypeError: if an operand's dtype is not its result's.
      ValueError: for numbers that no operand or result has, and for operands that are broadcast.
    """
    if not aliases:
        return
    shape = jnp.broadcast_shapes(*(x.shape for x in operands))
    for operand, result in aliases:
        if operand >= len(operands):
            raise ValueError(
                f"{name!r} aliases argument {operand}, but this call has {len(operands)} array "
                f"arguments, counted from 0: {', '.join(names)}. Captured values have no number."
            )
        if result >= len(dtypes):
            raise ValueError(
                f"{name!r} aliases result {result}, but returns {len(dtypes)}, counted from 0."
            )
        x = operands[operand]
        pair = f"{name!r} aliases argument {names[operand]!r}"
        shown = _shown(result, out_tree)
        if x.dtype != dtypes[result]:
            raise TypeError(
                f"{pair} of dtype {x.dtype} to {shown} of dtype {dtypes[result]}; convert one of "
                "them."
            )
        if x.shape != shape:
            raise ValueError(
                f"{pair} of shape {x.shape} to {shown} of shape {shape}; an argument that is "
                "broadcast has no room for a result."
            )


def _shown(result: int, out_tree: Any) -> str:
    """A result by its number and, in a pytree, its place."""
    numbered = jax.tree.unflatten(out_tree, range(out_tree.num_leaves))
    path, _ = jax.tree_util.tree_leaves_with_path(numbered)[result]
    return f"result {result} at {jax.tree_util.keystr(path)}" if path else f"result {result}"


def renumber_aliases(
    aliases: Aliases,
    sources: Sequence[tuple[str, int]],
    kept: Sequence[int],
    computed: Sequence[int],
    fits: Callable[[int, int], bool],
) -> Aliases:
    """The pairs of a call that takes and computes less than it was asked for.

    Args:
      aliases: the pairs, in the numbers of what was asked for.
      sources: per result, ``("operand", i)`` where it is an operand as it stands, else
        ``("result", i)`` for the result that is computed in its place.
      kept: the operands that are left.
      computed: the results that are left.
      fits: whether an operand has the shape and the dtype of a result. Under ``vmap`` one that is
        not mapped is smaller than the result it could hold before.

    Returns:
      The pairs that are left, in the numbers of what is left.
    """
    holders: dict[int, int] = {}
    for operand, result in aliases:
        kind, source = sources[result]
        if kind == "result" and operand in kept and fits(operand, source):
            holders.setdefault(computed.index(source), kept.index(operand))
    return tuple((operand, result) for result, operand in holders.items())
