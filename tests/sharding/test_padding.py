"""Dimensions that XLA divides unevenly: it pads them, and no loop may run on what it adds."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import TARGET, assert_same, kernels, lowered, random_array
from jax import lax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import jax_elementwise as je

pytestmark = [
    pytest.mark.skipif(jax.device_count() < 8, reason="needs 8 devices"),
    pytest.mark.usefixtures("host_compiler"),
]

_COLLATZ = """
import jax, jax.numpy as jnp, numpy as np
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
import jax_elementwise as je

@je.elementwise  # for 0 it never ends
def steps(n):
    def step(s):
        return jnp.where(s[0] % 2 == 0, s[0] // 2, 3 * s[0] + 1), s[1] + 1
    return lax.while_loop(lambda s: s[0] != 1, step, (n, 0))[1]

steps_in_cpp = je.cuda_functor(
    "s = 0; while (n != 1) { n = n % 2 ? 3 * n + 1 : n / 2; ++s; }",
    inputs="int n", outputs="int s", name="steps",
)

def expected(n):
    return 0 if n == 1 else 1 + expected(3 * n + 1 if n % 2 else n // 2)

mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
n = jax.device_put(jnp.arange(1, 65), NamedSharding(mesh, P("x")))
square = NamedSharding(mesh, P("x", "y"))
PROGRAMS = {
    "slice": lambda n: n[1:],
    "short": lambda n: n[:10],
    "longer": lambda n: jnp.concatenate([n, n[:3]]),
    "two": lambda n: lax.with_sharding_constraint(n[1:].reshape(9, 7), square),
    "even": lambda n: n,
}
for name, before in PROGRAMS.items():
    for f in (steps, steps_in_cpp):
        print(name, f.__name__, flush=True)
        compiled = jax.jit(lambda n: f(before(n))).lower(n).compile()
        assert "jax_elementwise_kernel" in compiled.as_text()
        np.testing.assert_array_equal(compiled(n), np.vectorize(expected)(jax.jit(before)(n)))
"""


def test_loops_do_not_run_on_padding():
    process = subprocess.run(
        [sys.executable, "-P", "-c", _COLLATZ],
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    assert process.stdout.count("\n") == 10


def root(x, w):
    halves = lax.while_loop(lambda y: y * y > x, lambda y: y / 2, x + 1)
    return {"root": halves * w, "flag": halves > w, "narrow": (x * w).astype(jnp.bfloat16)}


def placement(*spec):
    mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
    return NamedSharding(mesh, P(*spec))


def divided(f):
    """The function of arrays of which the first is divided, evenly or not."""

    def run(x, *args):
        return f(lax.with_sharding_constraint(x, placement(*"xy"[: x.ndim])), *args)

    return jax.jit(run)


@pytest.mark.sampled
@pytest.mark.parametrize("shape", [(10, 7), (64, 7), (10, 8), (64, 8), (1, 1, 3)], ids=str)
def test_values_are_those_of_one_device(shape, rng):
    x, w = random_array(rng, shape, low=0.5), random_array(rng, shape[-1:])
    functions = (
        je.elementwise(root),
        jax.grad(lambda x, w: je.elementwise(root)(x, w)["root"].sum(), (0, 1)),
        je.elementwise(lambda x, w: root(x, w)["root"], input_output_aliases={0: 0}),
    )
    for f in functions:
        assert_same(divided(f)(x, w), jax.jit(f)(x, w), eps=64)


def test_a_program_lowered_without_the_types_it_was_traced_with():
    x = np.linspace(0.5, 9, 10)
    f = je.elementwise(lambda x: root(x, x)["root"])
    with jax.enable_x64(True):
        traced = divided(f).trace(x)
    compiled = traced.lower().compile()
    with jax.enable_x64(True):
        assert_same(compiled(x), jax.jit(f)(x))


def test_the_guard_is_one_operand_more_than_a_kernel_takes():
    def many(*xs):
        return lax.while_loop(lambda y: y > 1, lambda y: y / 2, sum(xs))

    xs = [jnp.ones(9)] * 127
    with pytest.raises(ValueError, match=r"^'many' has 128 operands .* and 1 results; one kernel"):
        divided(je.elementwise(many))(*xs)


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "complex64", "bool"])
def test_users_loops_of_all_types(dtype, rng):
    x = random_array(rng, (10, 7), dtype)
    f = je.cuda_functor(
        "struct f { template <class T> T operator()(T x, int i) const {"
        " T y = x; for (int j = 0; j < i; ++j) y = x; return y; } };",
        inputs="x", index="i",
    )  # fmt: skip
    mine = divided(f)(x)
    assert mine.dtype == dtype
    np.testing.assert_array_equal(np.asarray(mine), np.asarray(x))


LOOP, STRAIGHT = je.elementwise(root), je.elementwise(lambda x, w: x * w)
CPP_LOOP = je.cuda_functor("for (;;) if (x > w) return x; else x += w;", inputs="x, w", name="f")
CPP = je.cuda_functor("x * w", inputs="x, w", name="f")


@pytest.mark.parametrize(
    ("f", "shape", "guarded"),
    [
        (LOOP, (64, 7), True),
        (LOOP, (64, 8), False),  # no number of these devices divides it unevenly
        (STRAIGHT, (64, 7), False),
        (CPP_LOOP, (63, 8), True),
        (CPP_LOOP, (64, 8), False),
        (CPP, (63, 7), False),
    ],
)
def test_only_where_it_is_needed_a_kernel_is_told_what_is_real(f, shape, guarded):
    x, w = jax.device_put(jnp.ones(shape), placement()), jnp.ones(shape)
    text = lowered(f, x, w)
    assert [name.count("_guarded") for name in kernels(text)] == [guarded]
    (call,) = [line for line in text.splitlines() if f"custom_call @{TARGET}(" in line]
    assert call.count("xi1>") >= guarded
    assert ("optimization_barrier" in text) == guarded
    assert "_guarded" not in lowered(f, jnp.ones(shape), w)
