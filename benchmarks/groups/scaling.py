"""One array on one GPU, and sharded over several: how much faster a step becomes.

A step is gelu forward and then backward, on arrays that are sharded over the first 1, 2, 4, ...
devices. Our results must be the same on all numbers of devices, and our programs without
collectives.
"""

from collections.abc import Callable, Iterator

import jax
import numpy as np
from case import Case, power, uniform
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from measuring import measured
from report import Row

import jax_elementwise as je
from groups.bandwidth import gelu

TITLE = "One array on several devices"


def step(function: Callable) -> Callable:
    """Of a value and a cotangent: both become smaller by half, and are never subnormal."""

    def forward_and_backward(x, cotangent):
        y, pull = jax.vjp(function, x)
        # Or XLA would compute both in one kernel, as it could in no program where something lies
        # between the forward and the backward pass.
        y, cotangent = jax.lax.optimization_barrier((y, cotangent))
        return y, *pull(cotangent)

    return forward_and_backward


def sharded(operands: Callable, count: int) -> Callable:
    """The operands, over as many devices."""
    mesh = jax.make_mesh((count,), ("x",), devices=jax.local_devices()[:count])
    return lambda i: [jax.device_put(x, NamedSharding(mesh, P("x"))) for x in operands(i)]


class SameOnAll:
    """A check: results of ours are those on one device."""

    def __init__(self) -> None:
        self._first = None

    def __call__(self, results) -> list[str]:
        ours = np.stack([x.astype(np.float32) for x in results["ours"]])
        self._first = ours if self._first is None else self._first
        same = np.array_equal(ours, self._first)
        return [] if same else ["ours computes something else than on one device"]


def cases(quick: bool) -> Iterator[Case]:
    devices = jax.local_device_count()
    counts = sorted({1 << i for i in range(devices.bit_length())} | {devices})
    size = 1 << (12 if quick else 28)
    for dtype in ("float32", "bfloat16"):
        check = SameOnAll()
        for count in counts:
            yield Case(
                f"gelu, {dtype}, {power(size)}, {count} devices",
                {"ours": step(je.elementwise(gelu)), "XLA": step(gelu)},
                sharded(uniform((size,), (size,), dtype=np.dtype(dtype)), count),
                clock="program",
                check=check,
                labels={"dtype": dtype, "size": power(size), "devices": str(count)},
            )


def rows(process: str, quick: bool) -> Iterator[Row]:
    del process
    for row in measured(cases(quick), quick):
        if row["way"] == "ours" and row["collectives"]:
            row.setdefault("faults", []).append("our program has collectives")
        yield row
