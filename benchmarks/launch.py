"""The least time of a call: chains of dependent calls on small arrays, captured by XLA and not.

    python benchmarks/launch.py [--sizes 2^10,2^16,2^20] [--json FILE]

A program makes 100 calls of a small kernel, each on the result of the last one, as a function of
ours and as XLA's own kernels; ``optimization_barrier`` keeps these apart. The programs are run
twice, in two processes: with XLA's default flags, by which it captures kernels into command buffers
(CUDA graphs) and launches many at once, and with command buffers off. The custom calls are counted
in the compiled program; ``tests/gpu/test_command_buffers.py`` shows where they end up.

Then the same calls outside of ``jit``: the host's time of the dispatch of one.

Ours and XLA's take turns. In its turn a program runs 40 times in a row, of which the median counts;
the result is the median of all turns. Nothing is subtracted.
"""

import argparse
import functools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import jax
from bandwidth import (
    REPEATS,
    Chain,
    machine,
    power,
    random_operands,
    report_machine,
    sizes_of,
)
from limits import medians

import jax_elementwise as je

CALLS = 100
RUNS = 40  # in a row: in the first ones, programs and their data are in no cache of the CPU
SIZES = "2^10,2^16,2^20"
MODES = {"on": "", "off": "--xla_gpu_enable_command_buffer="}  # command buffers; flags of XLA


def small(x):
    """The function: bound by neither memory nor arithmetic. A chain of it tends to 2."""
    return x * 0.5 + 1


def functions():
    return {"ours": je.elementwise(small), "XLA": jax.jit(small)}


# ---- One process ---------------------------------------------------------------------------------


def settled(program):
    """Seconds per call of a program that runs again and again."""
    return statistics.median(program.seconds_per_call() for _ in range(RUNS))


def chain(size, calls, repeats):
    """One row: microseconds of a call in a program of many."""
    operands = random_operands([(size,)], "float32", jax.random.key(size))
    chains = {who: Chain(f, operands, calls) for who, f in functions().items()}
    timers = {who: functools.partial(settled, program) for who, program in chains.items()}
    text = chains["ours"].executable.as_text()
    return {
        "what": "in a program",
        "size": size,
        "us": medians(timers, repeats),
        "custom_calls": text.count('custom_call_target="jax_elementwise_kernel"'),
        "faults": {who: program.faults(operands[0]) for who, program in chains.items()},
    }


def eager(size, calls, repeats):
    """One row: microseconds of the dispatch of a call outside of jit."""
    (first,) = random_operands([(size,)], "float32", jax.random.key(size))

    def timer(function):
        def seconds():
            x = jax.block_until_ready(function(first))
            start = time.perf_counter()
            for _ in range(calls):
                x = function(x)
            elapsed = time.perf_counter() - start  # dispatch alone: the device may still be busy
            jax.block_until_ready(x)
            return elapsed / calls

        return seconds

    timers = {who: timer(f) for who, f in functions().items()}
    return {
        "what": "eager",
        "size": size,
        "us": medians(timers, repeats),
        "custom_calls": None,
        "faults": {},
    }


def measure(sizes):
    """Everything that one process measures."""
    rows = [what(size, CALLS, REPEATS) for what in (chain, eager) for size in sizes]
    return {"machine": machine(), "rows": rows}


# ---- Both processes, and the report --------------------------------------------------------------


def in_mode(mode, sizes):
    """What a process of its own measures, with command buffers on or off."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} {MODES[mode]}".strip()
    with tempfile.TemporaryDirectory() as directory:
        file = pathlib.Path(directory, "rows.json")
        command = [sys.executable, __file__, "--one-process", "--json", str(file), "--sizes"]
        command.append(",".join(map(str, sizes)))
        done = subprocess.run(command, env={**os.environ, "XLA_FLAGS": flags})
        if done.returncode:
            sys.exit(done.returncode)
        return json.loads(file.read_text())


HEADER = """\
| calls        | command buffers |  size |  ours µs |   XLA µs | XLA/ours | custom calls |
|--------------|-----------------|------:|---------:|---------:|---------:|-------------:|"""


def row_text(mode, row):
    ours, xla = row["us"]["ours"], row["us"]["XLA"]
    calls = "" if row["custom_calls"] is None else row["custom_calls"]
    return (
        f"| {row['what']:12} | {mode:15} | {power(row['size']):>5} | {ours:8.2f} | {xla:8.2f} "
        f"| {xla / ours:8.2f} | {calls:12} |"
    )


def report(measured):
    print(HEADER)
    for what in ("in a program", "eager"):
        for mode, of_mode in measured.items():
            for row in of_mode["rows"]:
                if row["what"] == what:
                    print(row_text(mode, row))
    print(f"\nMedians of {REPEATS}, {CALLS} dependent calls each; eager calls: dispatch alone.")
    for mode, of_mode in measured.items():
        for row in of_mode["rows"]:
            for who, faults in row["faults"].items():
                if faults:
                    print(
                        f"DOUBTFUL: command buffers {mode}, {power(row['size'])}, {who}: "
                        + ", ".join(faults)
                    )


def main(argv=None):
    """Measures, prints and returns everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=sizes_of, default=SIZES, help="elements (%(default)s)")
    parser.add_argument("--json", metavar="FILE", help="save all measurements")
    parser.add_argument("--one-process", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)

    if options.one_process:
        if jax.default_backend() != "gpu":
            parser.error("this needs a GPU: on a CPU nothing is launched")
        measured = measure(options.sizes)
    else:
        # Two processes, since XLA reads its flags once. This one leaves the GPU to them.
        measured = {mode: in_mode(mode, options.sizes) for mode in MODES}
        report_machine(measured["on"]["machine"])
        report(measured)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(measured, indent=2) + "\n")
    return measured


if __name__ == "__main__":
    main()
