"""What runs the ways of a case: a class for each library, and which way is whose.

A new peer is a class with the methods of ``Jax``, and a line of ``PEERS``.
"""

import importlib.util
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

SAMPLE = 1 << 16  # elements of a result that are compared


class Jax:
    """Functions of JAX arrays, under ``jax.jit``."""

    def missing(self) -> str | None:
        """Why it cannot run here."""
        return None

    def given(self, arrays: Sequence[jax.Array]) -> list[Any]:
        """Operands as this peer takes them."""
        return list(arrays)

    def compiled(self, way: Callable, operands: Sequence[Any]) -> Callable:
        """What a call runs."""
        return jax.jit(way).lower(*operands).compile()

    def wait(self, results: Any) -> None:
        """Until results are there."""
        jax.block_until_ready(results)

    def sample(self, results: Any) -> list[np.ndarray]:
        """The first elements of each result."""
        return [np.asarray(x.ravel()[:SAMPLE]) for x in jax.tree.leaves(results)]


class Pallas(Jax):
    """Kernels of Pallas by Triton."""

    def missing(self) -> str | None:
        if jax.default_backend() != "gpu":
            return "its Triton needs a GPU"
        return None


class Cupy:
    """Kernels that CuPy compiles and launches: its own, and CUDA by hand."""

    def missing(self) -> str | None:
        if jax.default_backend() != "gpu":
            return "it needs a GPU"
        if importlib.util.find_spec("cupy") is None:
            return "CuPy is not installed"
        return None

    def given(self, arrays: Sequence[jax.Array]) -> list[Any]:
        import cupy

        return [cupy.from_dlpack(x) for x in arrays]

    def compiled(self, way: Any, operands: Sequence[Any]) -> Callable:
        return way.compiled()

    def wait(self, results: Any) -> None:
        import cupy

        cupy.cuda.Device().synchronize()

    def sample(self, results: Any) -> list[np.ndarray]:
        return [results.ravel()[:SAMPLE].get()]


class CupyElementwise:
    """A ``cupy.ElementwiseKernel``, as a user would write it."""

    def __init__(self, *description: str) -> None:
        self._description = description

    def compiled(self) -> Callable:
        import cupy

        return cupy.ElementwiseKernel(*self._description)


class CudaKernel:
    """A kernel by hand: one element per thread.

    Its text is the body of a function of pointers ``in0``, ``in1``, ..., ``out`` and the element's
    index ``k``.
    """

    def __init__(self, name: str, body: str, ins: Sequence[str], out: str) -> None:
        pointers = [f"const {c_type}* __restrict__ in{i}" for i, c_type in enumerate(ins)]
        parameters = ", ".join([*pointers, f"{_C_TYPES[out]}* __restrict__ out", "long long n"])
        self._name, self._out = name, out
        self._text = f"""
extern "C" __global__ void __launch_bounds__(256) {name}({parameters}) {{
  const long long k = blockIdx.x * 256ll + threadIdx.x;
  if (k >= n) return;
  {body}
}}"""

    def compiled(self) -> Callable:
        import cupy

        kernel = cupy.RawKernel(self._text, self._name)

        def run(*operands):
            result = cupy.empty(operands[0].shape, self._out)
            kernel((-(-result.size // 256),), (256,), (*operands, result, result.size))
            return result

        return run


_C_TYPES = {"float32": "float", "int32": "int"}


class Copy:
    """The yardstick: a kernel that only moves bytes, 128 bits per access, in as many streams.

    A thread reads 16 bytes of each input and writes their exclusive or to each output. On an H200
    this reaches 4387 GB/s with two inputs and an output of 2^30 bytes; two or four accesses per
    thread 4370, evict-first loads (``__ldcs``) 4174, and ``cudaMemcpy`` 2714.
    """

    def __init__(self, moved: int, streams: tuple[int, int]) -> None:
        self._reads, self._writes = streams
        self._bytes = max(16, moved // sum(streams) // 16 * 16)

    def operands(self, number: int) -> list[jax.Array]:
        """A set of arrays of its own, whatever the shapes of the case's are."""
        keys = jax.random.split(jax.random.key(number), self._reads)
        return [jax.random.bits(key, (self._bytes // 4,), np.uint32) for key in keys]

    def compiled(self) -> Callable:
        import cupy

        ins = [f"in{i}" for i in range(self._reads)]
        outs = [f"out{i}" for i in range(self._writes)]
        parameters = [f"const uint4* __restrict__ {name}" for name in ins]
        parameters += [f"uint4* __restrict__ {name}" for name in outs]
        members = (" ^ ".join(f"{name}[k].{m}" for name in ins) or "0" for m in "xyzw")
        text = f"""
extern "C" __global__ void __launch_bounds__(256) yardstick({", ".join(parameters)}, long long n) {{
  const long long k = blockIdx.x * 256ll + threadIdx.x;
  if (k >= n) return;
  const uint4 moved = make_uint4({", ".join(members)});
  {" ".join(f"{name}[k] = moved;" for name in outs)}
}}"""
        kernel = cupy.RawKernel(text, "yardstick")
        count = self._bytes // 16

        def run(*operands):
            results = [cupy.empty(self._bytes, "uint8") for _ in outs]
            kernel((-(-count // 256),), (256,), (*operands, *results, count))
            return results[0]

        return run


_JAX, _CUPY = Jax(), Cupy()
PEERS = {
    "ours": _JAX,
    "better": _JAX,  # ours as it should be written, where "ours" shows how not to
    "Apply2": _JAX,  # a CUDA functor by pairs
    "scalar": _JAX,  # and one by one
    "XLA": _JAX,
    "Pallas": Pallas(),
    "CuPy": _CUPY,
    "CUDA": _CUPY,
    "copy": _CUPY,
}
