"""Kernels whose results lie where their operands do, on the host, under ASan and UBSan.

Such a buffer has no guards: it is a heap block of exactly its size, so that the sanitizers see
whatever is read or written outside of it.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from elements import DTYPES, SIZES, WIDTHS, Batch, Function, np_dtype, random_array, random_offsets
from support import simt
from support.sampling import sampled

pytestmark = pytest.mark.usefixtures("x64")


@pytest.fixture
def rng():
    return np.random.default_rng(9)


def update(dtype, other=None):
    """A function of which no result is an operand, so that one that is read too late is seen."""
    fun = (lambda x, y: x != (y == y)) if dtype == "bool" else (lambda x, y: x * 2 + y)
    return Function(fun, (dtype, other or dtype))


def adam(*args):
    p, m, v, g = args
    return p - (m * 2 + g), m * 2 + g, v * 2 + g * g


# ---- Sizes and alignment -------------------------------------------------------------------------


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", sampled(DTYPES, WIDTHS))
@pytest.mark.parametrize("operand", [0, 1])
def test_every_size(rng, dtype, operand):
    batch, function = Batch(), update(dtype)
    for n in SIZES:
        xs = [random_array(rng, (n,), dtype) for _ in range(2)]
        batch.add(function, xs, aliases=((operand, 0),))
        offsets = random_offsets(rng, function)
        batch.add(function, xs, aliases=((operand, 0),), offsets=offsets)
    batch.check()


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_alignment_around_the_pack(rng, dtype):
    """Head and tail: partial packs, in which elements outside are replaced by others."""
    batch, function = Batch(), update(dtype)
    itemsize = np_dtype(dtype).itemsize
    pack = 16 // itemsize
    for n in (1, pack - 1, pack, pack + 1, 2 * pack + 1, 5 * pack - 1):
        xs = [random_array(rng, (n,), dtype) for _ in range(2)]
        for place in range(0, 16, itemsize):
            for other in {0, place, itemsize}:
                batch.add(function, xs, aliases=((0, 0),), offsets=(place, 0, other))
    batch.check()


@pytest.mark.parametrize("max_blocks", [1, 3])
@pytest.mark.parametrize("index_bits", [32, 64])
def test_few_blocks_stride_over_many_packs(rng, max_blocks, index_bits):
    batch = Batch()
    for dtype, n in (("float32", 4099), ("bool", 20011), ("float64", 1537)):
        function = update(dtype)
        xs = [random_array(rng, (n,), dtype) for _ in range(2)]
        options = {"max_blocks": max_blocks, "index_bits": index_bits}
        batch.add(function, xs, aliases=((0, 0),), offsets=random_offsets(rng, function), **options)
    batch.check()


# ---- Beside other arrays -------------------------------------------------------------------------


@pytest.mark.sampled
@pytest.mark.parametrize(
    "shapes", [((9, 5), (5,)), ((9, 5), (9, 1)), ((4, 3, 7), (3, 1)), ((13,), ()), ((1, 1), (1,))]
)
@pytest.mark.parametrize("dtypes", [("float32", "float32"), ("bfloat16", "float64")])
def test_beside_an_operand_that_is_broadcast(rng, shapes, dtypes):
    batch = Batch()
    function = Function(lambda x, y: (x * 2 + 1, x + y), dtypes)
    for _ in range(4):
        xs = [random_array(rng, s, d) for s, d in zip(shapes, dtypes, strict=True)]
        batch.add(function, xs, aliases=((0, 0),), offsets=random_offsets(rng, function))
    batch.check()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_several_results_in_several_operands(rng, dtype):
    batch, function = Batch(), Function(adam, (dtype,) * 4)
    for n in (0, 1, 7, 33, 1025):
        xs = [random_array(rng, (n,), dtype) for _ in range(4)]
        for order in itertools.permutations(range(3)):
            offsets = random_offsets(rng, function)
            batch.add(function, xs, aliases=tuple(enumerate(order)), offsets=offsets)
    batch.check()


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_optimised_code_reads_before_it_writes(rng, dtype):
    """Optimisers move loads past stores to what they are told is another array."""
    batch, function = Batch(), Function(adam, (dtype,) * 4)
    xs = [random_array(rng, (1025,), dtype) for _ in range(4)]
    for operands in itertools.permutations(range(4), 3):
        aliases = tuple(zip(operands, range(3), strict=True))
        batch.add(function, xs, aliases=aliases, offsets=random_offsets(rng, function))
    batch.check(sanitize=False, flags=("-O3", "-march=native", "-ffp-contract=off", "-w"))


def test_operands_of_other_widths(rng):
    """Packs of the narrow arrays are less than 128 bits wide."""
    batch = Batch()
    function = Function(lambda a, b: (b * 2 + 1, b > 0, a != (b > 1)), ("bool", "float64"))
    for n in (1, 2, 5, 18, 255):
        xs = [random_array(rng, (n,), dtype) for dtype in function.dtypes]
        for aliases in (((1, 0),), ((0, 1),), ((0, 2), (1, 0))):
            batch.add(function, xs, aliases=aliases, offsets=random_offsets(rng, function))
    batch.check()


# ---- The kernel and the stand-in -----------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_same_kernel_works_where_the_arrays_are_apart(rng, dtype):
    function = update(dtype)
    kernel = function.kernel(aliases=((0, 0),))
    for n in (5, 64, 257):
        xs = tuple(random_array(rng, (n,), dtype) for _ in range(2))
        call = simt.Call(kernel, (n,), function.results(), xs)
        ((result,),) = simt.build([kernel], sanitize=True).run([call])
        (expected,) = function.reference(xs, (n,))
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("n", [5, 8])
def test_the_stand_in_sees_accesses_beyond_a_shared_buffer(n):
    """The other tests prove something only if this one passes."""
    function = Function(lambda x: x * 2 + 1, ("float32",))
    call = simt.Call(
        function.kernel(aliases=((0, 0),)),
        (n,),
        ("float32",),
        (np.zeros(n, np.float32),),
        aliases=((0, 0),),
        extents=(n + 1,),
        elements={0: n + 1, 1: n + 1},
    )
    with pytest.raises(AssertionError, match=r"(?s)heap-buffer-overflow.*in call 0"):
        simt.build([call.kernel], sanitize=True).run([call])


def test_the_stand_in_shares_the_buffer():
    """A row that lies in the result, which nobody may ask for, is overwritten while it is read."""
    function = Function(lambda x, row: x + row, ("float32", "float32"))
    x, row = np.ones((3, 8), np.float32), np.full(8, 100, np.float32)
    kernel = function.kernel([x.shape, row.shape])
    apart, shared = (
        simt.Call(kernel, x.shape, ("float32",), (x, row), aliases=aliases)
        for aliases in ((), ((1, 0),))
    )
    results = [call[0][:, 0].tolist() for call in simt.build([kernel]).run([apart, shared])]
    assert results == [[101, 101, 101], [101, 102, 102]]


def test_in_place_kernels_compile_without_warnings():
    kernels = [update(dtype).kernel(aliases=((0, 0),)) for dtype in DTYPES if dtype != "bool"]
    simt.build(kernels, flags=("-O2", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas"))
