"""Elementwise functions as kernels of jax_elementwise and under jax.jit, side by side.

    python benchmarks/bandwidth.py [--sizes 2^20,2^28] [--dtypes float32,int8] [--quick]

What is timed is the device's work. One timing is one execution of a compiled program that calls the
function many times, each time on the result of the call before, so that no call can be left out or
moved; ``optimization_barrier`` keeps XLA from merging neighbours. The compiled program is searched
for the right number of kernels, and for copies.

Ours and XLA's take turns; the median counts; nothing is subtracted. GB/s are the bytes that the
function must move, each input read once and each result written once, over the time of a call.
"""

import argparse
import json
import math
import pathlib
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

import jax_elementwise as je

COLUMNS = 4096  # of the matrix that a bias is added to
REPEATS = 9


# ---- The functions, each on one element ----------------------------------------------------------


def scale(x, s):
    return x * s


def mul(x, y):
    return x * y


def add(x, y):
    return x + y


def fma(x, y, z):
    return x * y + z


def gelu(x):
    return 0.5 * x * jax.lax.erfc(-x * 0.5**0.5)


def gelu_tanh(x):
    return 0.5 * x * (1 + jnp.tanh((2 / math.pi) ** 0.5 * (x + 0.044715 * x * x * x)))


class Case(NamedTuple):
    """A row of the table.

    Attributes:
      name: in the table.
      function: of one element.
      shapes: of its operands, from the number of elements.
      backward: whether to measure its gradient, for a given cotangent, instead.
    """

    name: str
    function: Callable
    shapes: Callable
    backward: bool = False


def full(count):
    return lambda size: [(size,)] * count


def matrix_and_row(size):
    columns = min(COLUMNS, size // 16)
    return [(size // columns, columns), (columns,)]


CASES = (
    Case("x * s (scalar s)", scale, lambda size: [(size,), ()]),
    Case("x * y", mul, full(2)),
    Case("x + y", add, full(2)),
    Case("x * y + z", fma, full(3)),
    Case("matrix + bias", add, matrix_and_row),
    Case("gelu", gelu, full(1)),
    Case("gelu, backward", gelu, full(1), backward=True),
    Case("gelu (tanh)", gelu_tanh, full(1)),
    Case("gelu (tanh), backward", gelu_tanh, full(1), backward=True),
)


ARITHMETIC = CASES[:5]  # what integers have


def backward_of(function):
    def backward(cotangent, *operands):
        return jax.vjp(function, *operands)[1](cotangent)[0]

    return backward


# ---- Device time ---------------------------------------------------------------------------------


class Chain:
    """A program that calls a function on the result of its last call, again and again."""

    def __init__(self, function, operands, calls):
        self.operands, self.calls = operands, calls

        def run(first, *others):
            for _ in range(calls):
                result = function(first, *others)
                # The other operands too, or XLA would compute what depends on them only once.
                first, others = jax.lax.optimization_barrier((result, others))
            return first

        self.executable = jax.jit(run).lower(*operands).compile()
        self.seconds_per_call()

    def seconds_per_call(self):
        """From one execution of the program."""
        start = time.perf_counter()
        jax.block_until_ready(self.executable(*self.operands))
        return (time.perf_counter() - start) / self.calls

    def faults(self, result):
        """What in the compiled program is not as it should be."""
        names = {
            "float32": "f32",
            "float16": "f16",
            "bfloat16": "bf16",
            "int8": "s8",
            "uint8": "u8",
        }
        kind = f"{names[result.dtype.name]}[{','.join(map(str, result.shape))}]"
        lines = [line for line in self.executable.as_text().splitlines() if f" = {kind}" in line]
        kernels = sum(bool(re.search(r"[ })](fusion|custom-call)\(", line)) for line in lines)
        copies = sum(bool(re.search(r"[ })]copy(-start)?\(", line)) for line in lines)
        faults = [f"{kernels} kernels for {self.calls} calls"] if kernels != self.calls else []
        return faults + ([f"{copies} copies"] if copies else [])


def calls_for(size):
    """Enough that the host's part of starting the program does not count."""
    return max(20, min(200, (1 << 30) // size))


def random_operands(shapes, dtype, key):
    """Near 1, so that a chain of products neither vanishes nor grows beyond bounds.

    Integers wrap around; odd ones, so that their products are never all zero.
    """
    keys = jax.random.split(key, len(shapes))
    if not jnp.issubdtype(dtype, jnp.floating):
        return [
            jax.random.bits(k, shape, jnp.uint8).astype(dtype) | 1
            for k, shape in zip(keys, shapes, strict=True)
        ]
    return [
        jax.random.uniform(k, shape, dtype, 0.9, 1.1) for k, shape in zip(keys, shapes, strict=True)
    ]


def measure(case, dtype, size, calls, repeats):
    """One row: the times of a call, as a kernel of ours and as compiled by XLA, and their GB/s."""
    shapes = case.shapes(size)
    elementwise = je.elementwise(case.function)
    functions = [elementwise, jax.jit(case.function)]
    if case.backward:
        shapes = [shapes[0], *shapes]
        functions = [backward_of(f) for f in functions]
    operands = random_operands(shapes, dtype, jax.random.key(size))
    ours, xla = (Chain(f, operands, calls) for f in functions)
    times = [], []
    for _ in range(repeats):
        for chain, measured in zip((ours, xla), times, strict=True):
            measured.append(chain.seconds_per_call())
    ours_s, xla_s = map(statistics.median, times)
    moved = sum(math.prod(shape) for shape in (*shapes, shapes[0])) * jnp.dtype(dtype).itemsize
    return {
        "function": case.name,
        "dtype": jnp.dtype(dtype).name,
        "size": size,
        "bytes": moved,
        "ours_us": 1e6 * ours_s,
        "xla_us": 1e6 * xla_s,
        "ours_GBps": moved / ours_s / 1e9,
        "xla_GBps": moved / xla_s / 1e9,
        "xla_over_ours": xla_s / ours_s,
        "faults": {"ours": ours.faults(operands[0]), "xla": xla.faults(operands[0])},
    }


# ---- Host time -----------------------------------------------------------------------------------


def eager_call(calls, repeats):
    """Host microseconds of one call outside of jit, on arrays of 16 elements."""
    x = jnp.ones(16)
    functions = {"ours": je.elementwise(fma), "jit": jax.jit(fma)}
    times = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            jax.block_until_ready(function(x, x, x))
            start = time.perf_counter()
            for _ in range(calls):
                result = function(x, x, x)
            elapsed = time.perf_counter() - start  # dispatch alone: the device may still be busy
            jax.block_until_ready(result)
            times[name].append(1e6 * elapsed / calls)
    return {name: statistics.median(values) for name, values in times.items()}


# ---- The report ----------------------------------------------------------------------------------


def machine():
    device = jax.devices()[0]
    return {
        "device": device.device_kind,
        "platform": device.platform,
        "jax": jax.__version__,
        "driver": driver_version(),
        "python": sys.version.split()[0],
    }


def driver_version():
    """Of NVIDIA's driver, or None."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.splitlines()[0].strip()


def power(size):
    exponent = size.bit_length() - 1
    return f"2^{exponent}" if size == 1 << exponent else str(size)


def row_text(row):
    return (
        f"| {row['function']:21} | {row['dtype']:8} | {power(row['size']):>5} "
        f"| {row['ours_us']:9.1f} | {row['ours_GBps']:6.0f} | {row['xla_us']:9.1f} "
        f"| {row['xla_GBps']:6.0f} | {row['xla_over_ours']:8.2f} |"
    )


HEADER = """\
| function              | dtype    |  size |   ours µs |   GB/s |    XLA µs |   GB/s | XLA/ours |
|-----------------------|----------|------:|----------:|-------:|----------:|-------:|---------:|"""


def sizes_of(text):
    """Reads ``2^20,1000``."""
    sizes = []
    for item in text.split(","):
        base, _, exponent = item.replace("**", "^").partition("^")
        sizes.append(int(base) ** int(exponent) if exponent else int(base))
    if min(sizes) < 256:
        raise argparse.ArgumentTypeError("sizes are at least 256")
    return sizes


def report_machine(about):
    driver = f", driver {about['driver']}" if about["driver"] else ""
    print(f"{about['device']}{driver}, JAX {about['jax']}, Python {about['python']}\n")


def report_bandwidth(dtypes, sizes, calls, repeats):
    print(HEADER)
    rows = []
    for dtype in map(jnp.dtype, dtypes):
        for size in sizes:
            for case in CASES if jnp.issubdtype(dtype, jnp.floating) else ARITHMETIC:
                rows.append(measure(case, dtype, size, calls or calls_for(size), repeats))
                print(row_text(rows[-1]), flush=True)
    print(f"\nMedians of {repeats}. XLA/ours above 1: ours is faster.")
    print(
        "Where the device's last-level cache holds the arrays, as it does at 2^20 on current GPUs, "
        "GB/s are those of the cache, not of the memory."
    )
    for row in rows:
        for who, faults in row["faults"].items():
            if faults and jax.default_backend() == "gpu":
                print(
                    f"DOUBTFUL: {row['function']} {row['dtype']} {power(row['size'])}, {who}: "
                    + ", ".join(faults)
                )
    return rows


def report_floor(calls, repeats):
    row = measure(CASES[2], jnp.float32, 256, calls, repeats)
    print(
        f"The least time of a call, x + y on 256 elements: {row['ours_us']:.2f} µs ours, "
        f"{row['xla_us']:.2f} µs XLA.\n"
    )
    return row


def report_eager(calls, repeats):
    eager = eager_call(calls, repeats)
    print(
        f"Host time of one eager call on 16 elements: {eager['ours']:.2f} µs ours, "
        f"{eager['jit']:.2f} µs jax.jit ({eager['ours'] / eager['jit']:.2f}x); "
        f"median of {repeats} times {calls} calls."
    )
    return eager


def main(argv=None):
    """Measures, prints and returns everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=sizes_of, help="elements, as in 2^20,2^24,2^28")
    parser.add_argument("--dtypes", default="float32,bfloat16", help="as in float32,int8")
    parser.add_argument("--quick", action="store_true", help="only see that everything runs")
    parser.add_argument("--json", metavar="FILE", help="save all measurements")
    options = parser.parse_args(argv)

    about = machine()
    default = "2^20,2^24,2^28" if about["platform"] == "gpu" else "2^16,2^20"
    sizes = options.sizes or sizes_of("2^12" if options.quick else default)
    calls, repeats = (2, 1) if options.quick else (None, REPEATS)
    report_machine(about)
    if about["platform"] != "gpu":
        print("Not a GPU: XLA compiles the same operations for both, and may merge calls.\n")
    measurements = {
        "machine": about,
        "bandwidth": report_bandwidth(options.dtypes.split(","), sizes, calls, repeats),
        "floor": report_floor(calls or 200, repeats),
        "eager_us": report_eager(100, 3 if options.quick else 100),
    }
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(measurements, indent=2) + "\n")
    return measurements


if __name__ == "__main__":
    main()
