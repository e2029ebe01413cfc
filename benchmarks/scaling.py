"""One array on one GPU, and divided among several: how much faster a step becomes.

    python benchmarks/scaling.py [--sizes 2^28] [--dtypes float32,bfloat16] [--json FILE]

A step is gelu forward and then backward. A program makes 100 of them, kept apart by
``optimization_barrier``, on arrays that are sharded over the first 1, 2, 4, ... devices: as a
function of ours, and as XLA compiles the same one. Our results must be the same on all
numbers of devices, and our programs without collectives.

The method is that of ``bandwidth.py``: all programs take turns; medians; nothing is subtracted.
"""

import argparse
import json
import pathlib

import jax
import numpy as np
from bandwidth import (
    REPEATS,
    Chain,
    gelu,
    machine,
    power,
    random_operands,
    report_machine,
    sizes_of,
)
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from limits import medians

import jax_elementwise as je

FUNCTIONS = {"ours": je.elementwise(gelu), "XLA": gelu}
STEPS = 100  # of 20, starting a program on two devices took up to a twentieth
COLLECTIVES = ("all-gather", "all-reduce", "all-to-all", "collective-permute", "reduce-scatter")


class Steps(Chain):
    """A program of steps, each on the results of the last: a value and a cotangent.

    Both become smaller by half in each step, and are never subnormal.
    """

    def __init__(self, function, operands, calls):
        self.operands, self.calls = operands, calls

        def run(x, cotangent):
            for _ in range(calls):
                y, pull = jax.vjp(function, x)
                # Or XLA would compute both in one kernel, as it could in no program where something
                # lies between the forward and the backward pass.
                y, cotangent = jax.lax.optimization_barrier((y, cotangent))
                x, cotangent = jax.lax.optimization_barrier((y, *pull(cotangent)))
            return x, cotangent

        self.executable = jax.jit(run).lower(*operands).compile()
        self.seconds_per_call()

    def result(self):
        """Of the last step, value and cotangent."""
        return np.stack([np.asarray(y, np.float32) for y in self.executable(*self.operands)])


def device_counts():
    """1, 2, 4, ... and all of them."""
    count = jax.local_device_count()
    return sorted({1 << i for i in range(count.bit_length())} | {count})


def divided(x, count):
    """An array, on as many devices."""
    mesh = jax.make_mesh((count,), ("x",), devices=jax.local_devices()[:count])
    return jax.device_put(x, NamedSharding(mesh, P("x")))


def measure(size, dtype, calls, repeats):
    """One row for each number of devices."""
    operands = random_operands([(size,)] * 2, dtype, jax.random.key(size))
    programs = {
        (who, count): Steps(function, [divided(x, count) for x in operands], calls)
        for count in device_counts()
        for who, function in FUNCTIONS.items()
    }
    us = medians({key: program.seconds_per_call for key, program in programs.items()}, repeats)
    results = {count: programs["ours", count].result() for count in device_counts()}
    return [
        {
            "size": size,
            "dtype": dtype,
            "devices": count,
            "us": {who: us[who, count] for who in FUNCTIONS},
            "speedup": {who: us[who, 1] / us[who, count] for who in FUNCTIONS},
            "collectives": sum(
                programs["ours", count].executable.as_text().count(f" {name}(")
                for name in COLLECTIVES
            ),
            "equal": bool((results[count] == results[1]).all()),
        }
        for count in device_counts()
    ]


HEADER = """\
| dtype    |  size | devices |  ours µs | ours, 1 device / this |   XLA µs | XLA, 1 / this |
|----------|------:|--------:|---------:|----------------------:|---------:|--------------:|"""


def row_text(row):
    us, speedup = row["us"], row["speedup"]
    return (
        f"| {row['dtype']:8} | {power(row['size']):>5} | {row['devices']:7} | {us['ours']:8.1f} "
        f"| {speedup['ours']:21.2f} | {us['XLA']:8.1f} | {speedup['XLA']:13.2f} |"
    )


def main(argv=None):
    """Measures, prints and returns everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=sizes_of, default="2^28", help="elements (%(default)s)")
    parser.add_argument("--dtypes", default="float32,bfloat16", help="(%(default)s)")
    parser.add_argument("--quick", action="store_true", help="only see that everything runs")
    parser.add_argument("--json", metavar="FILE", help="save all measurements")
    options = parser.parse_args(argv)

    about = machine()
    report_machine(about)
    print(HEADER)
    rows = []
    for dtype in options.dtypes.split(","):
        for size in sizes_of("2^12") if options.quick else options.sizes:
            calls, repeats = (2, 1) if options.quick else (STEPS, REPEATS)
            rows += measure(size, dtype, calls, repeats)
            for row in rows[-len(device_counts()) :]:
                print(row_text(row), flush=True)
    print(f"\nMedians of {REPEATS}, {jax.local_device_count()} devices.")
    for row in rows:
        if row["collectives"] or not row["equal"]:
            print(f"DOUBTFUL: {row}")
    if options.json:
        measurements = {"machine": about, "rows": rows}
        pathlib.Path(options.json).write_text(json.dumps(measurements, indent=2) + "\n")
    return rows


if __name__ == "__main__":
    main()
