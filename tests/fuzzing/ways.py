"""The ways in which a batch is computed: values and derivatives, by kernels and by XLA."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

import jax_elementwise as je
from fuzzing.batches import SHAPE, Batch, joined, namespace
from fuzzing.making import NUMPY


def _our(batch: Batch, lowering: str) -> Any:
    return je.elementwise(joined(batch.functions, namespace()), lowering=lowering, name="fuzzed")


def inexact(fun: Any, operands: Sequence[Any], by: Sequence[int]) -> Any:
    """The results that one can differentiate, as a function of the operands ``by``."""

    def of(*some: Any) -> list[Any]:
        every = list(operands)
        for k, x in zip(by, some, strict=True):
            every[k] = x
        return [r for r in fun(*every) if jnp.issubdtype(r.dtype, jnp.inexact)]

    return of


def _value(batch: Batch, lowering: str) -> Any:
    return jax.jit(_our(batch, lowering))(*batch.operands)


def _vmap(batch: Batch, lowering: str) -> Any:
    axes = [0 if x.ndim == 3 else None for x in batch.operands]
    return jax.jit(jax.vmap(_our(batch, lowering), axes))(*batch.operands)


def _sharded(batch: Batch, lowering: str) -> Any:
    devices = jax.devices()[:4]
    mesh = jax.make_mesh(
        (len(devices),), ("i",), devices=devices, axis_types=(jax.sharding.AxisType.Auto,)
    )
    specs = tuple(PartitionSpec("i") if x.ndim == 3 else PartitionSpec() for x in batch.operands)
    return jax.shard_map(
        _our(batch, lowering), mesh=mesh, in_specs=specs, out_specs=PartitionSpec("i")
    )


def _in_shard_map(batch: Batch, lowering: str) -> Any:
    return jax.jit(_sharded(batch, lowering))(*batch.operands)


def _tangent(batch: Batch, lowering: str) -> Any:
    by = batch.differentiable

    def tangent(operands: Sequence[Any], tangents: Sequence[Any]) -> Any:
        of = inexact(_our(batch, lowering), operands, by)
        return jax.jvp(of, [operands[k] for k in by], list(tangents))[1]

    return jax.jit(tangent)(batch.operands, directions(batch))


def pulled_back(batch: Batch, fun: Any, by: Sequence[int]) -> Any:
    """The gradients of a function by some of its operands."""

    def gradient(operands: Sequence[Any], cts: Sequence[Any]) -> Any:
        of = inexact(fun, operands, by)
        return jax.vjp(of, *(operands[k] for k in by))[1](list(cts))

    return jax.jit(gradient)(batch.operands, cotangents(batch))


def _gradient(batch: Batch, lowering: str) -> Any:
    return pulled_back(batch, _our(batch, lowering), batch.differentiable)


def _gradient_by_one(batch: Batch, lowering: str) -> Any:
    return pulled_back(batch, _our(batch, lowering), [chosen(batch)])


def _gradient_in_shard_map(batch: Batch, lowering: str) -> Any:
    return pulled_back(batch, _sharded(batch, lowering), batch.differentiable)


WAYS: dict[str, tuple[Callable[[Batch, str], Any], str]] = {
    "value": (_value, "kernel"),
    "value by xla": (_value, "xla"),
    "tangent": (_tangent, "kernel"),
    "tangent by xla": (_tangent, "xla"),
    "gradient": (_gradient, "kernel"),
    "gradient by xla": (_gradient, "xla"),
    "gradient by one": (_gradient_by_one, "kernel"),
    "vmap": (_vmap, "kernel"),
    "shard_map": (_in_shard_map, "kernel"),
    "gradient in shard_map": (_gradient_in_shard_map, "kernel"),
}


def chosen(batch: Batch) -> int:
    which = batch.differentiable
    return which[len(batch.functions[0].body) % len(which)]


def _random(like: Any, shape: tuple[int, ...], seed: int) -> np.ndarray:
    values = np.random.default_rng(seed).integers(-4, 5, (2, *shape)) / 4
    complex_ = jnp.issubdtype(like, jnp.complexfloating)
    return (values[0] + 1j * values[1] if complex_ else values[0]).astype(like)


def directions(batch: Batch) -> list[np.ndarray]:
    chosen = [batch.operands[k] for k in batch.differentiable]
    return [_random(x.dtype, x.shape, 7 + k) for k, x in enumerate(chosen)]


def cotangents(batch: Batch) -> list[np.ndarray]:
    dtypes = [np.dtype(NUMPY[r.dtype]) for _, r in batch.results()]
    inexact = [dtype for dtype in dtypes if jnp.issubdtype(dtype, jnp.inexact)]
    return [_random(dtype, SHAPE, 70 + k) for k, dtype in enumerate(inexact)]
