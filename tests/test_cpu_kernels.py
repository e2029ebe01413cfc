"""Kernels on a CPU, compiled by the machine's own C++ compiler: values, and JAX around them."""

import ctypes
import functools
import itertools
import json
import os
import subprocess
import sys

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from cases import (
    SMOOTH,
    TARGET,
    assert_same,
    collectives,
    kernels,
    lowered,
    random_array,
    run_python,
)
from jax import lax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from support import reference, simt, ulp

import jax_elementwise as je
from jax_elementwise import _extension
from jax_elementwise._codegen.rules.operators import OPERATORS
from jax_elementwise._codegen.types import DTYPES
from jax_elementwise._lowering import platforms

pytestmark = pytest.mark.usefixtures("host_compiler")

kernel = functools.partial(je.elementwise, lowering="kernel")
by_xla = functools.partial(je.elementwise, lowering="xla")
FLOATS = ("float32", "float64", "bfloat16", "float8_e5m2")
INTS = ("int8", "uint32", "int64")
CUSTOM_CALL = jax.export.DisabledSafetyCheck.custom_call(TARGET)


def calls_on_cpu(fun, *args):
    return len(kernels(lowered(fun, *args, platform="cpu")))


# ---- Values --------------------------------------------------------------------------------------


# One float and one integer by default: codegen/test_operators.py has all of them.
@pytest.mark.sampled
@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize(
    "dtype",
    [
        pytest.param(dtype, marks=[pytest.mark.exhaustive] * (dtype not in ("float32", "int8")))
        for dtype in (*FLOATS, *INTS)
    ],
)
def test_every_operator(dtype, part, rng, x64):
    """Against ``jax.lax`` in float64, and for float64 against NumPy, to the bounds of the table."""
    rows = [
        row
        for name, row in OPERATORS.items()
        if row.form(DTYPES[dtype]) is not None
        and reference.lax_function(row) is not None
        and name not in ("complex", "conj")
    ]
    check_rows(rows[part::4], dtype, rng)


def check_rows(rows, dtype, rng):
    """One kernel of many functions, each with operands of its own."""
    operands = [operands_of(row, dtype, rng) for row in rows]
    ends = np.cumsum([row.arity for row in rows])

    @kernel
    def every(*xs):
        functions = map(reference.lax_function, rows)
        return [
            f(*xs[end - row.arity : end]) for f, row, end in zip(functions, rows, ends, strict=True)
        ]

    results = list(map(np.asarray, every(*itertools.chain(*operands))))
    wide = dtype == "float64"
    stacks = list(map(np.stack, operands))
    if wide:
        wanted = [reference.by_numpy(row, stack) for row, stack in zip(rows, stacks, strict=True)]
    else:
        dtypes = [actual.dtype for actual in results]
        wanted = reference.by_lax_each(list(zip(rows, stacks, dtypes, strict=True)))
    for row, xs, actual, expected in zip(rows, operands, results, wanted, strict=True):
        narrow = DTYPES[dtype].is_narrow
        allowed = 0 if dtype in INTS else 1 if narrow else row.ulp[wide]
        bad = np.flatnonzero(ulp.wrong(actual, expected, allowed))[:4]
        assert not len(bad), (row.name, [x[bad] for x in xs], actual[bad], expected[bad])


def operands_of(row, dtype, rng, size=301):
    special = reference.special_values(dtype)
    operands = []
    for k in range(row.arity):
        x = reference.random_values(rng, dtype, size, row.domain)
        if row.special:
            for at, value in enumerate(np.repeat(special, 1 if k else len(special))):
                x[at % size] = value
        operands.append(np.abs(x) if row.name in reference.POSITIVE_ONLY else x)
    return operands


@pytest.mark.sampled
@pytest.mark.parametrize("case", SMOOTH, ids=str)
def test_functions_of_several_operators(case, rng):
    operands = case.operands(rng, [(6, 37), (37,), ()][: len(case.dtypes)])
    f = kernel(case.fun)
    assert calls_on_cpu(f, *operands) == 1
    assert_same(f(*operands), by_xla(case.fun)(*operands))


def test_complex_numbers(rng):
    def f(z, w):
        return z * w, jnp.exp(z), jnp.sqrt(w), abs(z), z / w, jnp.sin(z)

    z, w = (random_array(rng, (99,)) + 1j * random_array(rng, (99,)) for _ in range(2))
    assert_same(kernel(f)(z, w), by_xla(f)(z, w), eps=32)


def test_subnormals_are_kept_in_every_thread():
    """XLA has its threads flush them."""
    x = np.full(1 << 20, 1e-42, np.float32)
    y = np.asarray(kernel(lambda x: 3 * x + jnp.sin(x) * 0)(x))
    np.testing.assert_array_equal(y, 3 * x)
    assert np.asarray(jnp.asarray(x) * 3)[0] == 0  # and goes on doing so


def test_nothing_is_contracted(rng):
    x, y, z = (rng.standard_normal(10007).astype(np.float32) for _ in range(3))
    np.testing.assert_array_equal(kernel(lambda x, y, z: x * y + z)(x, y, z), x * y + z)


def test_fast_math_flushes_nothing_elsewhere():
    x = np.float32([1e-42, 3.0])
    fast = kernel(lambda x: x / 3 + 1, fast_math=True)
    np.testing.assert_allclose(fast(x), x / 3 + 1, 1e-6)
    np.testing.assert_array_equal(kernel(lambda x: 2 * x)(x), 2 * x)


# ---- Sizes and shapes ----------------------------------------------------------------------------

SIZES = (0, 1, 3, 4, 5, 15, 16, 17, 31, 1021, 4093)


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", ["int8", "bfloat16", "float32", "float64"])
def test_sizes_around_packs_and_chunks(dtype, rng, x64):
    f = kernel(lambda x, y: x * 2 - y)
    for size in SIZES:
        x, y = (random_array(rng, (size,), dtype) for _ in range(2))
        np.testing.assert_array_equal(f(x, y), by_numpy(x, y))


def by_numpy(x, y):
    x, y = np.asarray(x), np.asarray(y)
    if ulp.is_float(x.dtype):  # rounded once
        return (x.astype(np.float64) * 2 - y.astype(np.float64)).astype(x.dtype)
    return x * np.int8(2) - y


@pytest.mark.parametrize("size", [2**20, 2**20 + 1, 999983])
def test_large_arrays_by_several_threads(size):
    x = np.arange(size, dtype=np.int32)
    y = kernel(lambda x: (x * 3 + 1, x < 7))(x)
    np.testing.assert_array_equal(y[0], x * 3 + 1)
    np.testing.assert_array_equal(y[1], x < 7)


@pytest.mark.sampled
@pytest.mark.parametrize(
    "shapes",
    [[(7, 5), (5,)], [(7, 1), (1, 5)], [(3, 1, 5), (4, 1), ()], [(6, 4, 3), (4, 1)],
     [(300, 1000), (1000,)], [(1000, 300), (1000, 1)], [(2, 0, 3), (3,)], [(), ()], [(1, 1), (1,)]],
    ids=str,
)  # fmt: skip
def test_broadcasting(shapes, rng):
    operands = [random_array(rng, shape) for shape in shapes]
    f = kernel(lambda *xs: sum(xs[1:], 2 * xs[0]))
    assert calls_on_cpu(f, *operands) == 1
    expected = sum(map(np.asarray, operands[1:]), 2 * np.asarray(operands[0]))
    np.testing.assert_array_equal(f(*operands), expected)


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_misaligned_buffers_and_parts_of_the_packs(dtype):
    """The library alone: XLA aligns the arrays that it makes."""
    made = simt.make_kernel(lambda x: x + x, [dtype])
    run = entry_point(made)
    itemsize, size = np.dtype(dtype).itemsize, 100
    for into, out_of, shift in itertools.product(range(0, 16, itemsize), (0, 4, 12), range(4)):
        x = np.zeros(size + 32, dtype)
        y = np.zeros(size + 32, dtype)
        x = aligned(x, out_of, size)
        y = aligned(y, into, size)
        x[:] = np.arange(size) + 1
        starts = [a.ctypes.data - shift * itemsize for a in (y, x)]
        mask = sum((start % 16 == 0) << k for k, start in enumerate(starts))
        packs = -(-(size + shift) // made.pack)
        for begin, end in ((0, 3), (3, 3), (3, packs)):
            run([size, shift, mask], [y, x], begin, end)
            first, last = (max(0, min(size, p * made.pack - shift)) for p in (begin, end))
            np.testing.assert_array_equal(y[first:last], 2 * x[first:last])
            assert not y[last:].any()


def aligned(x, offset, size):
    """``size`` elements that begin ``offset`` bytes after a multiple of 16."""
    start = (-x.ctypes.data % 16 + offset) // x.itemsize
    return x[start : start + size]


def entry_point(made):
    """A kernel's function of geometry, arrays, and a range of packs."""
    fd = os.memfd_create("kernel")
    os.write(fd, _extension.compile(made, _extension.HOST_CPU))
    function = ctypes.CDLL(f"/proc/self/fd/{fd}").ew_host_entry

    def run(words, arrays, begin, end):
        geometry = (ctypes.c_int64 * len(words))(*words)
        pointers = [ctypes.c_void_p(a.ctypes.data) for a in arrays]
        addresses = [ctypes.addressof(p) for p in (geometry, *pointers)]
        parameters = (ctypes.c_void_p * len(addresses))(*addresses)
        function(parameters, ctypes.c_longlong(begin), ctypes.c_longlong(end))

    return run


# ---- Transformations -----------------------------------------------------------------------------


def test_derivatives_and_batches(rng):
    x, w = random_array(rng, (6, 4)), random_array(rng, (4,))

    def transformed(f):
        loss = jax.value_and_grad(lambda x, w: f(x, w).sum(), (0, 1))
        second = jax.grad(lambda w: jax.grad(lambda w: f(x, w).sum())(w).sum())
        return jax.jit(loss)(x, w), second(w), jax.vmap(f, (1, 0))(x, w), jax.jvp(f, (x, w), (x, w))

    def fun(x, w):
        return jnp.tanh(x * w) + w

    assert calls_on_cpu(jax.grad(lambda x: kernel(fun)(x, w).sum()), x) >= 1
    assert_same(transformed(kernel(fun)), transformed(by_xla(fun)), eps=32)


def test_results_in_the_place_of_operands(rng):
    x, y = random_array(rng, (100003,)), random_array(rng, (100003,))
    f = kernel(lambda x, y: (x - 0.5 * y, y + 1), input_output_aliases={0: 0, 1: 1})
    expected = np.asarray(x) - np.float32(0.5) * np.asarray(y), np.asarray(y) + 1
    assert "output_operand_aliases = [#stablehlo" in lowered(f, x, y, platform="cpu")
    for a, b in zip(f(x, y), expected, strict=True):  # not donated: both survive
        np.testing.assert_array_equal(a, b)
    pointers = x.unsafe_buffer_pointer(), y.unsafe_buffer_pointer()
    results = jax.jit(f, donate_argnums=(0, 1))(x, y)
    assert tuple(r.unsafe_buffer_pointer() for r in results) == pointers
    for a, b in zip(results, expected, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("kind", [AxisType.Explicit, AxisType.Auto], ids=["explicit", "auto"])
def test_arrays_spread_over_devices(kind, rng):
    if jax.device_count() < 8:
        pytest.skip("needs 8 devices")
    mesh = jax.make_mesh((8,), ("x",), axis_types=(kind,))
    x, w = random_array(rng, (64, 1024)), random_array(rng, (1024,))
    spread = (
        jax.device_put(x, NamedSharding(mesh, P("x"))),
        jax.device_put(w, NamedSharding(mesh, P())),
    )
    f = kernel(lambda x, w: jnp.sin(x) * w)
    mapped = jax.shard_map(
        f, mesh=mesh, in_specs=(P("x"), P()), out_specs=P("x"), check_vma=False
    )  # fmt: skip
    for g in (f, mapped) if kind is AxisType.Explicit else (mapped,):
        assert not collectives(g, *spread)
        assert_same(np.asarray(jax.jit(g)(*spread)), np.sin(x) * w)


def test_inside_of_loops_and_conditions(rng):
    x = random_array(rng, (1000,))
    f = kernel(lambda x: x * 0.5 + 1)

    def loop(x):
        x = lax.fori_loop(0, 50, lambda _, x: f(x), x)
        return lax.cond(x[0] > 0, f, lambda x: x, x)

    expected = np.asarray(x)
    for _ in range(51):
        expected = expected * np.float32(0.5) + 1
    np.testing.assert_array_equal(jax.jit(loop)(x), expected)


# ---- Programs ------------------------------------------------------------------------------------


def test_the_program_is_the_one_for_cuda(rng):
    x = random_array(rng, (6, 4))
    f = kernel(jnp.tanh)
    assert lowered(f, x, platform="cpu") == lowered(f, x, platform="cuda")


def test_the_environment_asks_for_kernels(rng, monkeypatch):
    f, x = je.elementwise(jnp.tanh), random_array(rng, (6, 4))
    monkeypatch.setenv("JAX_ELEMENTWISE_LOWERING", "kernel")
    assert calls_on_cpu(lambda x: f(x), x) == 1
    monkeypatch.delenv("JAX_ELEMENTWISE_LOWERING")
    assert calls_on_cpu(lambda x: f(x), x) == 0


def test_an_export_runs_in_another_process(rng, tmp_path):
    pytest.importorskip("flatbuffers")
    x = random_array(rng, (6, 4))
    f = kernel(lambda x: x * 2 + 3, name="exported")
    exported = jax.export.export(jax.jit(f), platforms=["cpu"], disabled_checks=[CUSTOM_CALL])(x)
    (tmp_path / "program").write_bytes(exported.serialize())
    code = f"""
import pathlib, json, jax, jax.export, jax.numpy as jnp
import jax_elementwise as je
exported = jax.export.deserialize(pathlib.Path({str(tmp_path / "program")!r}).read_bytes())
print(json.dumps([exported.call(jnp.ones((6, 4))).tolist(), je.cache_info()]))
"""
    values, info = json.loads(run_python(code, JAX_ELEMENTWISE_TRUST_PROGRAMS="1"))
    assert values == [[5.0] * 4] * 6
    assert info[:2] == [0, 1]  # no compilation, one entry read


INDEPENDENT = """
import faulthandler, os
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
faulthandler.dump_traceback_later(50, exit=True)
import jax, jax.numpy as jnp, jax_elementwise as je
f = je.elementwise(jnp.sin, lowering="kernel")
xs = [jnp.ones(1 << 14) + i for i in range(64)]
g = jax.jit(lambda xs: [f(f(x)) for x in xs])
for _ in range(20):
    results = jax.block_until_ready(g(xs))
print(all(jnp.allclose(r, jnp.sin(jnp.sin(x))) for r, x in zip(results, xs)))
"""


@pytest.mark.parametrize("devices", [1, 8])
def test_many_independent_calls_do_not_wait_for_each_other(devices):
    flags = f"--xla_force_host_platform_device_count={devices}"
    done = subprocess.run(
        [sys.executable, "-P", "-c", INDEPENDENT],
        env={**os.environ, "XLA_FLAGS": flags},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "True\n", done.stderr[-3000:]


# ---- Which functions -----------------------------------------------------------------------------


def newton(x):
    return lax.while_loop(lambda y: jnp.abs(y * y - x) > 1e-3, lambda y: 0.5 * (y + x / y), x)


def scan(length):
    return lambda x: lax.scan(lambda c, _: (c * x + 1, None), x, length=length)[0]


@pytest.mark.parametrize(
    ("fun", "wanted"),
    [
        (jnp.tanh, False),
        (newton, True),
        (jax.jit(newton), True),
        (lambda x: lax.cond(x > 0, newton, jnp.sin, x), True),
        (lambda x: lax.fori_loop(0, x.astype(int), lambda _, y: y * x, x), True),
        (lambda x: lax.fori_loop(0, 8, lambda _, y: y * x, x), False),
        (scan(8), False),
        (scan(9), True),
        (lambda x: lax.scan(lambda c, _: (newton(c), None), x, length=2)[0], True),
    ],
    ids=["line", "while", "jit", "cond", "fori", "short_fori", "short", "long", "inner"],
)
def test_functions_with_loops_want_kernels(fun, wanted):
    assert platforms.is_kernel_on_cpu(simt.make_functor(fun, ["float32"])) == wanted


def test_auto_takes_kernels_where_they_are_wanted(rng):
    x = random_array(rng, (6, 4))

    def loop(x):
        return lax.fori_loop(0, 9, lambda _, y: jnp.tanh(y), x)

    assert calls_on_cpu(je.elementwise(jnp.tanh), x) == 0
    assert calls_on_cpu(je.elementwise(loop), x) == 1
    assert calls_on_cpu(by_xla(loop), x) == 0
