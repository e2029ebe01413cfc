"""Functors of 16-bit floats, by pairs and one by one: ``python benchmarks/apply2.py --help``.

The same function four ways, in turns: a CUDA functor with ``Apply2``, the same without it, the
function in Python (computed in float32 and rounded once), and XLA's fusion. The method is that of
``bandwidth.py``: dependent calls in one program, medians, GB/s of what must be moved.

Functors by pairs and one by one round every operation, so their results are compared bit by bit.
The text of each kernel is searched for ``Apply2``, and ``--machine-code`` counts the instructions
on pairs, where ``nvdisasm`` is installed.
"""

import argparse
import collections
import json
import pathlib
import re
import shutil
import statistics
import subprocess
import tempfile
from typing import NamedTuple

import bandwidth
import jax
import jax.numpy as jnp
import numpy as np
from bandwidth import Chain, calls_for, machine, power, random_operands, report_machine, sizes_of

import jax_elementwise as je

DTYPES = {"float16": "__half", "bfloat16": "__nv_bfloat16"}
PAIRS = {"float16": "__half2", "bfloat16": "__nv_bfloat162"}


# ---- The functions, each on one element and on a pair --------------------------------------------


class Case(NamedTuple):
    """A function.

    Attributes:
      function: in Python.
      one: of operands T x, y, z, in CUDA C++.
      two: of operands T2 x, y, z, two at once.
      operands: how many.
    """

    function: object
    one: str
    two: str
    operands: int


def relu(x):
    return jnp.where(x > 0, x, 0)


CASES = {
    "add": Case(bandwidth.add, "x + y", "__hadd2(x, y)", 2),
    "mul": Case(bandwidth.mul, "x * y", "__hmul2(x, y)", 2),
    "fma": Case(bandwidth.fma, "__hfma(x, y, z)", "__hfma2(x, y, z)", 3),
    "relu": Case(relu, "__hmax(x, T(0))", "__hmax2(x, T2(T(0), T(0)))", 1),
}


def text(name, dtype, pairs):
    """The functor; without the member ``Apply2`` unless it is asked for."""
    case = CASES[name]
    letters = "xyz"[: case.operands]
    one = ", ".join(f"T {v}" for v in letters)
    pointers = ", ".join(f"const T* {v}_" for v in letters)
    loads = " ".join(f"const T2 {v} = *(const T2*){v}_;" for v in letters)
    apply2 = f"""
  __device__ void Apply2(T* out, {pointers}) const {{
    {loads}
    *(T2*)out = {case.two};
  }}"""
    return f"""
using T = {DTYPES[dtype]};
using T2 = {PAIRS[dtype]};
struct {name.capitalize()} {{
  __device__ T operator()({one}) const {{ return {case.one}; }}{apply2 if pairs else ""}
}};"""


def functions(name, dtype):
    """By how they compute."""
    function = CASES[name].function
    return {
        "Apply2": je.cuda_functor(text(name, dtype, pairs=True)),
        "scalar": je.cuda_functor(text(name, dtype, pairs=False)),
        "traced": je.elementwise(function, name=f"{name}_traced", lowering="kernel"),
        "XLA": jax.jit(function),
    }


# ---- Whether they are what they say --------------------------------------------------------------


def verify(ways, operands):
    """Stops where a kernel is not what its column says, or computes something else."""
    for way in ("Apply2", "scalar", "traced"):
        source = ways[way].cuda_source(*operands)
        assert ("void Apply2(" in source) == (way == "Apply2"), way
    results = {way: np.asarray(f(*operands)) for way, f in ways.items()}
    bits = [results[way].view(np.uint16) for way in ("Apply2", "scalar")]
    assert (bits[0] == bits[1]).all(), "Apply2 computes something else"
    unit = float(jnp.finfo(operands[0].dtype).eps)
    exact = results["traced"].astype(np.float32)
    for way in ("Apply2", "XLA"):
        error = np.abs(results[way].astype(np.float32) - exact)
        assert (error <= unit * np.maximum(np.abs(exact), 1)).all(), way


def machine_code(ways, operands, arch):
    """How many instructions of which kind compute, by way; nothing without a disassembler."""
    disassembler = shutil.which("nvdisasm")
    if disassembler is None:
        return {}
    counts = {}
    with tempfile.TemporaryDirectory() as directory:
        file = pathlib.Path(directory, "kernel.cubin")
        for way in ("Apply2", "scalar", "traced"):
            file.write_bytes(ways[way].cubin(*operands, arch=arch))
            done = subprocess.run([disassembler, file], check=True, capture_output=True, text=True)
            found = re.findall(r"\b([HF](?:ADD|MUL|FMA|MNMX)2?)\b", done.stdout)
            counts[way] = dict(collections.Counter(found))
    return counts


# ---- Measuring -----------------------------------------------------------------------------------


def measure(name, dtype, size, calls, repeats):
    """One row: the times of a call, each way, and GB/s."""
    dtype = jnp.dtype(dtype)
    case = CASES[name]
    ways = functions(name, dtype.name)
    operands = random_operands([(size,)] * case.operands, dtype, jax.random.key(size))
    verify(ways, [x[: 1 << 12] for x in operands])
    chains = {way: Chain(f, operands, calls) for way, f in ways.items()}
    times = {way: [] for way in chains}
    for _ in range(repeats):
        for way, chain in chains.items():
            times[way].append(chain.seconds_per_call())
    seconds = {way: statistics.median(values) for way, values in times.items()}
    moved = (case.operands + 1) * size * dtype.itemsize
    return {
        "function": name,
        "dtype": dtype.name,
        "size": size,
        "bytes": moved,
        "us": {way: 1e6 * s for way, s in seconds.items()},
        "GBps": {way: moved / s / 1e9 for way, s in seconds.items()},
        "faults": {way: chain.faults(operands[0]) for way, chain in chains.items()},
    }


HEADER = """\
| function | dtype    |  size |     Apply2 | scalar | traced |    XLA | /scalar | /traced |   /XLA |
|----------|----------|------:|-----------:|-------:|-------:|-------:|--------:|--------:|-------:|"""


def row_text(row):
    speed = row["GBps"]
    ratios = [speed["Apply2"] / speed[way] for way in ("scalar", "traced", "XLA")]
    return (
        f"| {row['function']:8} | {row['dtype']:8} | {power(row['size']):>5} "
        f"| {speed['Apply2']:10.0f} | {speed['scalar']:6.0f} | {speed['traced']:6.0f} "
        f"| {speed['XLA']:6.0f} | {ratios[0]:7.2f} | {ratios[1]:7.2f} | {ratios[2]:6.2f} |"
    )


def report(dtypes, sizes, repeats):
    print(HEADER)
    rows = []
    for dtype in dtypes:
        for size in sizes:
            for name in CASES:
                rows.append(measure(name, dtype, size, calls_for(size), repeats))
                print(row_text(rows[-1]), flush=True)
    print(
        f"\nGB/s, medians of {repeats}. Ratios are of the speed by pairs to the others: above 1, "
        "pairs are faster."
    )
    for row in rows:
        for way, faults in row["faults"].items():
            if faults:
                what = f"{row['function']} {row['dtype']} {power(row['size'])}, {way}"
                print(f"DOUBTFUL: {what}: {', '.join(faults)}")
    return rows


def report_machine_code(dtypes, arch):
    counts = {}
    for dtype in dtypes:
        for name, case in CASES.items():
            operands = [jax.ShapeDtypeStruct((4096,), dtype)] * case.operands
            counts[f"{name} {dtype}"] = found = machine_code(functions(name, dtype), operands, arch)
            for way, kinds in found.items():
                listed = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
                print(f"{name} {dtype}, {way}: {listed}")
    if not any(counts.values()):
        print("nvdisasm is not installed: no machine code.")
    return counts


def main(argv=None):
    """Measures, prints and returns everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=sizes_of, help="elements, as in 2^24,2^28 (the default)")
    parser.add_argument("--dtypes", default="float16,bfloat16", help="of these two")
    parser.add_argument("--quick", action="store_true", help="only see that everything runs")
    parser.add_argument("--machine-code", metavar="ARCH", help="count instructions, as for sm_90")
    parser.add_argument("--json", metavar="FILE", help="save all measurements")
    options = parser.parse_args(argv)
    dtypes = options.dtypes.split(",")
    if not set(dtypes) <= DTYPES.keys():
        parser.error(f"dtypes are {' and '.join(DTYPES)}")
    about = machine()
    if about["platform"] != "gpu":
        parser.error("this needs a GPU: pairs are instructions of GPUs")

    report_machine(about)
    sizes = options.sizes or sizes_of("2^16" if options.quick else "2^24,2^28")
    measurements = {
        "machine": about,
        "rows": report(dtypes, sizes, 1 if options.quick else bandwidth.REPEATS),
    }
    if options.machine_code:
        measurements["machine code"] = report_machine_code(dtypes, options.machine_code)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(measurements, indent=2) + "\n")
    return measurements


if __name__ == "__main__":
    main()
