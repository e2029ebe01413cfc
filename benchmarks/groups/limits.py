"""When not to use a kernel of ours: where plain ``jax.jit`` should win.

Chains: eight elementwise functions one after another. Neighbours: operations next to an elementwise
function, with which XLA would fuse it. Layouts: transposes and convolutions, whose layouts XLA
would choose. Tiny: few elements in a program, and the host's time of eager calls.

A case is one step, written up to three times: "ours" with functions of ours between operations of
JAX; "better", where there is a better way, with more in one function; "XLA" with nothing of ours.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from case import Case, power, uniform
from jax.experimental.layout import Layout, with_layout_constraint
from measuring import measured
from report import Row

import jax_elementwise as je
from groups.bandwidth import fma, gelu

TITLE = "When not to use it"
RATIOS = (("XLA", "ours"), ("XLA", "better"))
PROCESSES = {"steps": {}, "tiny": {}}  # apart, since recording device time slows launches down

Step = Callable[..., jax.Array]


def plain(function: Callable) -> Callable:
    return function


def case(table: str, name: str, step: Callable, operands: Callable, **better: Step) -> Case:
    ways = {"ours": step(je.elementwise), **better, "XLA": step(plain)}
    return Case(name, ways, operands, labels={"table": table, "a step": name})


def weights(*shape: int, inputs: int) -> jax.Array:
    """Of a layer whose results, after a gelu, are about as large as its inputs."""
    return (2 / inputs) ** 0.5 * jax.random.normal(jax.random.key(0), shape, jnp.bfloat16)


def chain(wrap: Callable) -> Step:
    """Eight functions, each wrapped by itself."""
    first = lambda x: 2 * x, lambda x: x - 1, lambda x: x * x, lambda x: 1 - x
    others = lambda x: jnp.maximum(x, 0.01), jnp.tanh, lambda x: 1.3 * x, jnp.abs
    functions = [wrap(function) for function in (*first, *others)]
    return lambda x: functools.reduce(lambda value, function: function(value), functions, x)


def chains(small: bool) -> Iterator[Case]:
    for size in [1 << 12] if small else [1 << 20, 1 << 24, 1 << 28]:
        better = je.elementwise(chain(plain))
        name = f"8 functions, {power(size)}"
        yield case("chain", name, chain, uniform((size,), low=0.45, high=0.55), better=better)


def averaged(wrap: Callable) -> Step:
    """The mean of a function's values."""
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


def neighbours(small: bool) -> Iterator[Case]:
    size = 1 << (12 if small else 28)
    yield case("neighbours", f"mean(f(x)), {power(size)}", averaged, uniform((), (size,)))
    inside = je.elementwise(converted(plain))
    yield case(
        "neighbours",
        f"f(bfloat16 to float32 * s), {power(size)}",
        converted,
        lambda i: [*uniform((size,), dtype=jnp.bfloat16)(i), jnp.float32(1.2)],
        better=inside,
    )
    inside_rows = je.elementwise(lambda x, mean, scale: gelu((x - mean) * scale))
    yield case(
        "neighbours",
        f"f(normalised rows), {size // 1024} x 1024",
        normalised,
        uniform((size // 1024, 1024)),
        better=lambda x: inside_rows(x, *moments(x)),
    )


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


def layouts(small: bool) -> Iterator[Case]:
    n = 64 if small else 1 << 14
    yield case("layouts", f"f(x.T), {n} x {n}", transposed, uniform((n, n)))
    b, n, c = (2, 8, 128) if small else (32, 1024, 1024)
    images = uniform((b, n, c), dtype=jnp.bfloat16)
    yield case(
        "layouts",
        f"f(heads of x @ w), {b} x {n} x {c} bfloat16",
        heads,
        lambda i: [*images(i), weights(c, c, inputs=c)],
    )
    b, n, c = (2, 8, 8) if small else (64, 64, 128)
    w = weights(3, 3, c, c, inputs=9 * c)
    for layout, shape, kernel in (
        (("NHWC", "HWIO", "NHWC"), (b, n, n, c), w),
        (("NCHW", "OIHW", "NCHW"), (b, c, n, n), w.transpose(3, 2, 0, 1)),
    ):
        yield case(
            "layouts",
            f"4 x f(convolution), {b} x {n} x {n} x {c} bfloat16, {layout[0]}",
            functools.partial(convolutions, layouts=layout),
            lambda i, shape=shape, kernel=kernel: [
                *uniform(shape, dtype=jnp.bfloat16)(i),
                kernel,
            ],
        )


def tiny(small: bool) -> Iterator[Case]:
    ours = je.elementwise(fma)
    programs: dict[str, Any] = {"ours": ours, "XLA": fma}
    eager: dict[str, Any] = {"ours": ours, "XLA": jax.jit(fma)}
    for size in [1, 1000] if small else [1, 1000, 1 << 16, 1 << 20]:
        for clock, ways, suffix in (("program", programs, ""), ("dispatch", eager, ", eager")):
            name = f"x * y + z, n = {size}{suffix}"
            labels = {"table": "tiny", "a step": name}
            yield Case(name, ways, uniform(*[(size,)] * 3), clock=clock, labels=labels)


def rows(process: str, quick: bool) -> Iterator[Row]:
    for cases in (tiny,) if process == "tiny" else (chains, neighbours, layouts):
        yield from measured(cases(quick), quick)
