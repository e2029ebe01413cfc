"""A call as one packed CUDA kernel, through XLA's foreign function interface."""

from __future__ import annotations

import functools

from jax_elementwise import _extension
from jax_elementwise._codegen.kernel import Kernel
from jax_elementwise._lowering.rule import rule

__all__ = ["lower"]


def _compile(kernel: Kernel) -> None:
    """For the GPUs of this machine; there are none where one lowers for another machine."""
    for arch in sorted(set(_local_architectures())):
        _extension.compile(kernel, arch)


@functools.cache
def _local_architectures() -> tuple[int, ...]:
    return tuple(_extension.compute_capabilities())


lower = rule(lambda functor: True, _compile, "no CUDA kernel can be compiled here")
