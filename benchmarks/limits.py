"""When not to use a kernel of ours: where plain ``jax.jit`` should win, measured.

    python benchmarks/limits.py [--only GROUP ...] [--small] [--json FILE]

Groups: chain, eight elementwise functions one after another; neighbours, operations next to an
elementwise function, with which XLA would fuse it; layouts, transposes and convolutions, whose
layouts XLA would choose; tiny, few elements in a program, and the host's time of eager calls.

A case is one step, written up to three times: "ours" with functions of ours between operations of
JAX; "better", where there is a better way, with more in one function; "XLA" with nothing of ours.
The method is that of ``bandwidth.py``: a program of many steps, each on the last one's result, in
turns; medians. Kernels are counted in the compiled programs, and among them "moves": copies and
transposes, and fusions with one, which take no pass over memory for it.
"""

import argparse
import functools
import json
import pathlib
import re
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from bandwidth import REPEATS, Chain, calls_for, machine, power, report_machine
from jax.experimental.layout import Layout, with_layout_constraint

import jax_elementwise as je

Step = Callable[..., jax.Array]


class Case(NamedTuple):
    """A row: a step's variants by name, and its operands. Its result becomes the first of them."""

    name: str
    steps: dict[str, Step]
    operands: list[jax.Array]


def plain(function: Callable) -> Callable:
    return function


def case(name: str, step: Callable, operands: list[jax.Array], **better: Step) -> Case:
    return Case(name, {"ours": step(je.elementwise), **better, "XLA": step(plain)}, operands)


def near_one(*shape: int, dtype: Any = jnp.float32) -> jax.Array:
    return jax.random.uniform(jax.random.key(len(shape)), shape, dtype, 0.9, 1.1)


def weights(*shape: int, inputs: int) -> jax.Array:
    """Of a layer whose results, after a gelu, are about as large as its inputs."""
    return (2 / inputs) ** 0.5 * jax.random.normal(jax.random.key(0), shape, jnp.bfloat16)


def gelu(x):
    return 0.5 * x * jax.lax.erfc(-x * 0.5**0.5)


def chain(wrap: Callable) -> Step:
    """Eight functions, each wrapped by itself. Together they are chaotic: data stay random."""
    first = lambda x: 2 * x, lambda x: x - 1, lambda x: x * x, lambda x: 1 - x
    others = lambda x: jnp.maximum(x, 0.01), jnp.tanh, lambda x: 1.3 * x, jnp.abs
    functions = [wrap(function) for function in (*first, *others)]
    return lambda x: functools.reduce(lambda value, function: function(value), functions, x)


def chain_cases(small: bool) -> Iterator[Case]:
    for size in [1 << 12] if small else [1 << 20, 1 << 24, 1 << 28]:
        better = je.elementwise(chain(plain))
        yield case(f"8 functions, {power(size)}", chain, [0.5 * near_one(size)], better=better)


def averaged(wrap: Callable) -> Step:
    """The mean of a function's values; the last step's mean is an operand."""
    function = wrap(lambda x, last: gelu(x - last))
    return lambda last, x: jnp.mean(function(x, last))


def converted(wrap: Callable) -> Step:
    """What a function gets is converted and scaled outside of it; its result is converted, too."""
    function = wrap(gelu)
    return lambda x, s: function(x.astype(jnp.float32) * s).astype(x.dtype)


def moments(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Of each row: the mean, and one over the standard deviation."""
    scale = jax.lax.rsqrt(jnp.var(x, axis=1, keepdims=True) + 1e-5)
    return jnp.mean(x, axis=1, keepdims=True), scale


def normalised(wrap: Callable) -> Step:
    """What a function gets is a matrix whose rows are normalised outside of it."""
    function = wrap(gelu)
    return lambda x: function((x - moments(x)[0]) * moments(x)[1])


def neighbours_cases(small: bool) -> Iterator[Case]:
    size = 1 << (12 if small else 28)
    yield case(f"mean(f(x)), {power(size)}", averaged, [jnp.float32(0), near_one(size)])
    operands = [near_one(size, dtype=jnp.bfloat16), jnp.float32(1.2)]
    inside, name = je.elementwise(converted(plain)), f"f(bfloat16 to float32 * s), {power(size)}"
    yield case(name, converted, operands, better=inside)
    inside = je.elementwise(lambda x, mean, scale: gelu((x - mean) * scale))
    x, name = near_one(size // 1024, 1024), f"f(normalised rows), {size // 1024} x 1024"
    yield case(name, normalised, [x], better=lambda x: inside(x, *moments(x)))


def transposed(wrap: Callable) -> Step:
    """From row-major to row-major, as programs take and give arrays, or XLA could move nothing."""
    f, row_major = wrap(gelu), Layout(major_to_minor=(0, 1))
    return lambda x: with_layout_constraint(f(with_layout_constraint(x, row_major).T), row_major)


def heads(wrap: Callable) -> Step:
    """A matrix product whose columns are split into heads; these go before the rows, and back."""
    function = wrap(gelu)

    def step(x, w):
        split = (x @ w).reshape(*x.shape[:2], -1, 64).transpose(0, 2, 1, 3)
        return function(split).transpose(0, 2, 1, 3).reshape(x.shape)

    return step


def convolutions(wrap: Callable, layouts: tuple[str, str, str]) -> Step:
    """Four, each with an activation."""
    function = wrap(gelu)

    def step(x, w):
        for _ in range(4):
            x = jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=layouts)
            x = function(x)
        return x

    return step


def layouts_cases(small: bool) -> Iterator[Case]:
    n = 64 if small else 1 << 14
    yield case(f"f(x.T), {n} x {n}", transposed, [near_one(n, n)])
    b, n, c = (2, 8, 128) if small else (32, 1024, 1024)
    operands = [near_one(b, n, c, dtype=jnp.bfloat16), weights(c, c, inputs=c)]
    yield case(f"f(heads of x @ w), {b} x {n} x {c} bfloat16", heads, operands)
    b, n, c = (2, 8, 8) if small else (64, 64, 128)
    x, w = near_one(b, n, n, c, dtype=jnp.bfloat16), weights(3, 3, c, c, inputs=9 * c)
    name = f"4 x f(convolution), {b} x {n} x {n} x {c} bfloat16"
    yield case(f"{name}, NHWC", lambda f: convolutions(f, ("NHWC", "HWIO", "NHWC")), [x, w])
    x, w = x.transpose(0, 3, 1, 2), w.transpose(3, 2, 0, 1)
    yield case(f"{name}, NCHW", lambda f: convolutions(f, ("NCHW", "OIHW", "NCHW")), [x, w])


def tiny_cases(small: bool) -> Iterator[Case]:
    for size in [1, 1000] if small else [1, 1000, 1 << 16, 1 << 20]:
        operands = [near_one(size)] * 3
        yield case(f"x * y + z, n = {size}", lambda f: f(lambda x, y, z: x * y + z), operands)


CASES = (chain_cases, neighbours_cases, layouts_cases, tiny_cases)
GROUPS = {cases.__name__.removesuffix("_cases"): cases for cases in CASES}


MOVES = {"copy", "copy-start", "transpose"}
KERNELS = MOVES | {"fusion", "custom-call", "reduce", "dot", "convolution"}


def counts(text: str, steps: int) -> dict[str, float]:
    """Of a compiled program: kernels, and those of them that change a layout, per step."""
    bodies = re.findall(r"^(?:ENTRY )?%?([\w.-]+) \(.*\{\n((?:  .*\n)*)", text, re.MULTILINE)
    pattern = r"^  (?:ROOT )?%?[\w.-]+ = .*?[\]})] ([a-z-]+)\((?:.*[ ,]calls=%?([\w.-]+))?"
    found = {name: re.findall(pattern, body, re.MULTILINE) for name, body in bodies}
    fused = {body for names in found.values() for name, body in names if name == "fusion"}
    outside = [pair for name in found.keys() - fused for pair in found[name] if pair[0] in KERNELS]
    inside = [{name, *(inner for inner, _ in found.get(body, ()))} for name, body in outside]
    moves = sum(not MOVES.isdisjoint(names) for names in inside)
    return {"kernels": len(outside) / steps, "moves": moves / steps}


def medians(timers: Mapping[str, Callable[[], float]], repeats: int) -> dict[str, float]:
    """Microseconds, from functions that return seconds and take turns."""
    times = [{who: timer() for who, timer in timers.items()} for _ in range(repeats)]
    return {who: 1e6 * statistics.median(one[who] for one in times) for who in timers}


def device_time(case: Case, small: bool) -> dict[str, Any]:
    """Of a step, each way it is written."""
    steps = 2 if small else calls_for(max(operand.size for operand in case.operands))
    chains = {who: Chain(step, case.operands, steps) for who, step in case.steps.items()}
    timers = {who: program.seconds_per_call for who, program in chains.items()}
    counted = {who: counts(chain.executable.as_text(), steps) for who, chain in chains.items()}
    return {"case": case.name, "us": medians(timers, 2 if small else REPEATS), "counts": counted}


def host_time(case: Case, small: bool) -> dict[str, Any]:
    """Of an eager call, whose dispatch alone counts."""

    def seconds(function: Step) -> float:
        result = jax.block_until_ready(function(*case.operands))
        start = time.perf_counter()
        for _ in range(100):
            result = function(*case.operands)
        elapsed = time.perf_counter() - start
        jax.block_until_ready(result)
        return elapsed / 100

    functions: dict[str, Step] = {"ours": case.steps["ours"], "XLA": jax.jit(case.steps["XLA"])}
    timers = {who: functools.partial(seconds, f) for who, f in functions.items()}
    return {"case": f"{case.name}, eager", "us": medians(timers, 3 if small else 50), "counts": {}}


def row_text(row: dict[str, Any]) -> str:
    us, counted = row["us"], row["counts"].values()
    cells = [f"{us[who]:.2f}" if who in us else "" for who in ("ours", "better", "XLA")]
    cells += [f"{us['XLA'] / us[who]:.2f}" if who in us else "" for who in ("ours", "better")]
    cells += [", ".join(f"{c[what]:.3g}" for c in counted) for what in ("kernels", "moves")]
    return f"| {row['case']} | {' | '.join(cells)} |"


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Measures, prints and returns everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=GROUPS, default=list(GROUPS))
    parser.add_argument("--small", action="store_true", help="only see that everything runs")
    parser.add_argument("--json", metavar="FILE", help="save all measurements")
    options = parser.parse_args(argv)

    about = machine()
    report_machine(about)
    print("| a step | ours, µs | better | XLA | XLA/ours | XLA/better | kernels | moves |")
    print("|---|---:|---:|---:|---:|---:|---|---|")
    rows = []
    for group in options.only:
        for case in GROUPS[group](options.small):
            for measure in (device_time, host_time) if group == "tiny" else (device_time,):
                rows.append({"group": group, **measure(case, options.small)})
                print(row_text(rows[-1]), flush=True)
    print("\nXLA/ours below 1: plain jax.jit is faster. Kernels and moves: of ours, better, XLA.")
    measurements = {"machine": about, "rows": rows}
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(measurements, indent=2) + "\n")
    return measurements


if __name__ == "__main__":
    main()
