"""A call as one packed CUDA kernel, through XLA's foreign function interface."""

from __future__ import annotations

import functools
import warnings

from jax_elementwise import _kernels
from jax_elementwise._codegen.kernel import Kernel
from jax_elementwise._lowering import kernel

__all__ = ["lower"]


def _compile(kernel: Kernel) -> None:
    """For the GPUs of this machine; there are none where one lowers for another machine."""
    for arch in sorted(set(_local_architectures())):
        _kernels.compile(kernel, arch)


@functools.cache
def _local_architectures() -> tuple[int, ...]:
    return tuple(_kernels.compute_capabilities())


def _warn(reason: str) -> None:
    warnings.warn(
        f"no CUDA kernel can be compiled here, so XLA's own operations are used: {reason}",
        stacklevel=2,
    )


lower = kernel.rule(lambda functor: True, _compile, _warn)
