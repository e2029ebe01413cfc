"""The least time of a call: chains of dependent calls on small arrays, captured by XLA and not.

A program makes 100 calls of a small kernel, each on the result of the last one. It is run in two
processes, since XLA reads its flags once: with the default flags, by which XLA captures kernels
into command buffers (CUDA graphs) and launches many at once, and with command buffers off. Then the
same calls outside of ``jit``.
"""

import os
from collections.abc import Iterator

import jax
from case import Case, power, uniform
from measuring import measured
from report import Row

import jax_elementwise as je

TITLE = "Small calls"
_FLAGS = os.environ.get("XLA_FLAGS", "")
PROCESSES = {
    "on": {},
    "off": {"XLA_FLAGS": f"{_FLAGS} --xla_gpu_enable_command_buffer=".strip()},
}
SIZES = (8, 10, 16, 20)


def small(x):
    """Bound by neither memory nor arithmetic. A chain of it tends to 2."""
    return x * 0.5 + 1


def cases(command_buffers: str, quick: bool) -> Iterator[Case]:
    ours = je.elementwise(small)
    for clock, ways in (
        ("program", {"ours": ours, "XLA": small}),
        ("dispatch", {"ours": ours, "XLA": jax.jit(small)}),
    ):
        for exponent in (10,) if quick else SIZES:
            size = power(1 << exponent)
            calls = "in a program" if clock == "program" else "eager"
            yield Case(
                f"{calls}, command buffers {command_buffers}, {size}",
                ways,
                uniform((1 << exponent,)),
                clock=clock,
                labels={"calls": calls, "command buffers": command_buffers, "floats": size},
            )


def rows(process: str, quick: bool) -> Iterator[Row]:
    return measured(cases(process, quick), quick)
