"""Functors of 16-bit floats in CUDA C++, by pairs (``Apply2``) and one by one.

The same function four ways: a functor with ``Apply2``, the same without it, the function in Python
("ours": computed in float32 and rounded once), and XLA's fusion. Functors by pairs and one by one
round every operation, so their results must have the same bits.
"""

import collections
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from case import Case, Results, agree, bytes_of, power, uniform
from measuring import measured
from report import Row

import jax_elementwise as je
from groups.bandwidth import add, fma, mul

TITLE = "Pairs of 16-bit floats"
VALUE = "GBps"
RATIOS = (("scalar", "Apply2"), ("ours", "Apply2"), ("XLA", "Apply2"))

DTYPES = {"float16": ("__half", "__half2"), "bfloat16": ("__nv_bfloat16", "__nv_bfloat162")}


class Functor(NamedTuple):
    """A function, in Python, and in CUDA C++ of T x, y, z and of T2 x, y, z."""

    function: Callable
    one: str
    two: str
    operands: int


def relu(x):
    return jnp.where(x > 0, x, 0)


FUNCTORS = {
    "add": Functor(add, "x + y", "__hadd2(x, y)", 2),
    "mul": Functor(mul, "x * y", "__hmul2(x, y)", 2),
    "fma": Functor(fma, "__hfma(x, y, z)", "__hfma2(x, y, z)", 3),
    "relu": Functor(relu, "__hmax(x, T(0))", "__hmax2(x, T2(T(0), T(0)))", 1),
}


def text(name: str, dtype: str, pairs: bool) -> str:
    """The functor; without the member ``Apply2`` unless it is asked for."""
    functor = FUNCTORS[name]
    one_type, pair_type = DTYPES[dtype]
    letters = "xyz"[: functor.operands]
    one = ", ".join(f"T {v}" for v in letters)
    pointers = ", ".join(f"const T* {v}_" for v in letters)
    loads = " ".join(f"const T2 {v} = *(const T2*){v}_;" for v in letters)
    apply2 = f"""
  __device__ void Apply2(T* out, {pointers}) const {{
    {loads}
    *(T2*)out = {functor.two};
  }}"""
    return f"""
using T = {one_type};
using T2 = {pair_type};
struct {name.capitalize()} {{
  __device__ T operator()({one}) const {{ return {functor.one}; }}{apply2 if pairs else ""}
}};"""


def check(results: Results) -> list[str]:
    """By pairs and one by one, the same bits."""
    bits = [results[way][0].view(np.uint16) for way in ("Apply2", "scalar")]
    same = (bits[0] == bits[1]).all()
    return agree(results) + ([] if same else ["Apply2 computes something else than scalar"])


def cases(quick: bool) -> Iterator[Case]:
    for dtype in DTYPES:
        for exponent in (12,) if quick else (24, 28):
            for name, functor in FUNCTORS.items():
                shapes = [(1 << exponent,)] * functor.operands
                yield Case(
                    name=f"{name}, {dtype}, {power(1 << exponent)}",
                    ways={
                        "Apply2": je.cuda_functor(text(name, dtype, pairs=True)),
                        "scalar": je.cuda_functor(text(name, dtype, pairs=False)),
                        "ours": je.elementwise(functor.function),
                        "XLA": functor.function,
                    },
                    operands=uniform(*shapes, dtype=jnp.dtype(dtype)),
                    moved=bytes_of(*shapes, shapes[0], dtype=dtype),
                    streams=(functor.operands, 1),
                    check=check,
                    labels={"function": name, "dtype": dtype, "size": power(1 << exponent)},
                )


def instructions(way: Callable, operands: list[jax.ShapeDtypeStruct]) -> dict[str, int]:
    """Of machine code for Hopper: how many compute, by their kind; those on pairs end with a 2."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(way.cubin(*operands, arch="sm_90"))
        file.flush()
        command = ["nvdisasm", file.name]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    found = re.findall(r"\b([HF](?:ADD|MUL|FMA|MNMX)2?)\b", done.stdout)
    return dict(sorted(collections.Counter(found).items()))


def machine_code(case: Case) -> Iterator[Row]:
    """What the kernels of a case consist of."""
    operands = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in case.operands(0)]
    for way in ("Apply2", "scalar", "ours"):
        row = {"case": case.name, "clock": "machine code", "way": way, "labels": dict(case.labels)}
        if shutil.which("nvdisasm") is None:
            yield {**row, "skipped": "nvdisasm is not installed"}
        else:
            yield {**row, "instructions": instructions(case.ways[way], operands)}


def rows(process: str, quick: bool) -> Iterator[Row]:
    del process
    yield from measured(cases(quick), quick)
    for case in cases(quick=True):
        yield from machine_code(case)
