"""Kernels over small and misaligned arrays, for compute-sanitizer: see test_sanitizer.py."""

import dataclasses
import sys

import jax
import jax.numpy as jnp
import numpy as np

import jax_elementwise as je
from jax_elementwise._lowering import custom_call

DTYPES = ("float32", "bfloat16", "bool")
SIZES = [*range(1, 71), 255, 256, 257, 1025]
BROADCASTS = (
    ((5, 1, 7), (4, 7)),
    ((17, 3), (17, 1)),
    ((9, 33), (33,)),
    ((3, 1, 5, 1), (4, 1, 6)),
    ((1, 8), (8, 1)),
    ((), (7,)),
)
OFFSETS = ((0, 1), (1, 0), (3, 5), (7, 7))
FOLD_SLICES = {"xla_gpu_enable_dynamic_slice_fusion": True}


def numbers(shape, dtype):
    values = np.arange(np.prod(shape, dtype=int)) % 7 - 3
    return jnp.asarray((values > 0 if dtype == "bool" else values).reshape(shape), dtype)


def fun(x, y):
    if x.dtype == bool:
        return x ^ y, jnp.where(x, 1.0, 2.0)
    return x * 2 + y, x > y


def check(f, pairs, *arrays, fold=False):
    """Calls the function on all pairs in one program, and compares with plain operations."""
    options = FOLD_SLICES if fold and jax.default_backend() == "gpu" else None
    lowered = jax.jit(lambda *arrays: [f(x, y) for x, y in pairs(*arrays)]).lower(*arrays)
    results = lowered.compile(compiler_options=options)(*arrays)
    host = [np.asarray(x).astype(np.float32 if x.dtype != bool else bool) for x in arrays]
    for (x, y), (first, second) in zip(pairs(*host), results, strict=True):
        expected = (x ^ y, np.where(x, 1.0, 2.0)) if x.dtype == bool else (x * 2 + y, x > y)
        shape = np.broadcast_shapes(x.shape, y.shape)
        for actual, wanted in zip((first, second), expected, strict=True):
            wide = np.asarray(actual).astype(np.float32)
            np.testing.assert_array_equal(wide, np.broadcast_to(wanted, shape))


def misaligned(x):
    return [(x[o : o + n], x[p : p + n]) for n in (3, 8, 33, 1025) for o, p in OFFSETS]


def check_everything() -> None:
    f = je.elementwise(fun)
    for dtype in DTYPES:
        # Buffers of their own: what lies next to them belongs to nobody.
        arrays = [numbers((n,), dtype) for n in SIZES]
        check(f, lambda *arrays: [(x, x) for x in arrays], *arrays)

        check(f, misaligned, numbers((1200,), dtype), fold=True)

        arrays = [numbers(shape, dtype) for pair in BROADCASTS for shape in pair]
        check(f, lambda *arrays: list(zip(arrays[::2], arrays[1::2], strict=True)), *arrays)
    print("right")


def read_beyond_the_end() -> None:
    """What must be noticed: a kernel that reads its operand from a place further on."""
    kernel_for = custom_call.kernel_for

    def shifted(*args, **kwargs):
        kernel = kernel_for(*args, **kwargs)
        text = kernel.source.replace("Contiguous<float>{in0", "Contiguous<float>{in0 + (1ll << 31)")
        assert text != kernel.source
        return dataclasses.replace(kernel, source=text)

    custom_call.kernel_for = shifted
    jax.block_until_ready(je.elementwise(lambda x: x * 0.125)(jnp.ones(64)))


if __name__ == "__main__":
    read_beyond_the_end() if "--beyond-the-end" in sys.argv else check_everything()
