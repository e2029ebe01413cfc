"""The arguments of a call: what is static, what is an array, and what is refused."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jax_elementwise._codegen.types import DTYPES, dtype_of

__all__ = ["Arguments", "check_dtypes", "check_shapes", "is_extended", "signature_of"]


class Arguments:
    """The arguments of one call: which are static, and the array leaves of the others."""

    def __init__(
        self,
        signature: inspect.Signature,
        static_argnames: Sequence[str],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        others = [key for key in static_argnames if key not in signature.parameters]
        self._static_others = {key: kwargs.pop(key) for key in others if key in kwargs}
        self._bound = signature.bind_partial(*args, **kwargs)
        given = [key for key in static_argnames if key in self._bound.arguments]
        self._static = {key: self._bound.arguments.pop(key) for key in given}
        values = tuple(self._bound.arguments.values())
        leaves, self._tree = jax.tree_util.tree_flatten_with_path(values)
        parameters = tuple(self._bound.arguments)
        self.names = [
            parameters[path[0].idx] + jax.tree_util.keystr(path[1:]) for path, _ in leaves
        ]
        self.leaves = [leaf for _, leaf in leaves]

    def call(self, fun: Callable[..., Any], leaves: Sequence[Any], *more: Any) -> Any:
        """Calls a function with other leaves in the places of these, and more behind them."""
        values = jax.tree.unflatten(self._tree, leaves)
        arguments = dict(zip(self._bound.arguments, values, strict=True)) | self._static
        bound = inspect.BoundArguments(self._bound.signature, arguments)
        return fun(*bound.args, *more, **bound.kwargs, **self._static_others)


def signature_of(fun: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(fun)
    except ValueError:  # some functions written in C have none
        return inspect.signature(lambda *args, **kwargs: None)


def check_dtypes(name: str, names: Sequence[str], operands: Sequence[Any], lowering: str) -> None:
    for operand_name, operand in zip(names, operands, strict=True):
        got = f"{name!r} got argument {operand_name!r} of dtype {operand.dtype}"
        if lowering == "xla":
            continue
        if is_extended(operand):
            raise TypeError(
                f"{got}, which kernels do not take. Pass arrays of numbers, or use "
                "elementwise(..., lowering='xla')."
            )
        if dtype_of(operand.dtype) is None:
            raise TypeError(
                f"{got}; kernels take {', '.join(DTYPES)}. Convert it, or use "
                "elementwise(..., lowering='xla')."
            )


def check_shapes(name: str, names: Sequence[str], operands: Sequence[Any]) -> None:
    """Raises ValueError for arguments that do not broadcast."""
    try:
        jnp.broadcast_shapes(*(x.shape for x in operands))
    except ValueError:
        raise ValueError(
            f"arguments of {name!r} do not broadcast: {_shapes(names, operands)}"
        ) from None
    promotion = jax.config.jax_numpy_rank_promotion  # type: ignore[attr-defined]
    if promotion == "allow" or len({x.ndim for x in operands if x.ndim}) < 2:
        return
    message = (
        f"arguments of {name!r} have different numbers of dimensions, {_shapes(names, operands)}, "
        f"and jax_numpy_rank_promotion is {promotion!r}. Give them the same with "
        "jnp.expand_dims or x[None], or set jax_numpy_rank_promotion to 'allow'."
    )
    if promotion == "raise":
        raise ValueError(message)
    warnings.warn(message, stacklevel=2)


def _shapes(names: Sequence[str], operands: Sequence[Any]) -> str:
    return ", ".join(f"{n}: {x.shape}" for n, x in zip(names, operands, strict=True))


def is_extended(value: Any) -> bool:
    return bool(jnp.issubdtype(value.dtype, jax.dtypes.extended))
