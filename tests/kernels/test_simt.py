"""The kernels and the launcher on the host, under ASan and UBSan.

Inputs lie in heap blocks of exactly their size and results between guards, so every byte that is
touched outside of an array is an error; every result is compared bit by bit with NumPy's.
"""

from __future__ import annotations

import itertools

import jax.numpy as jnp
import numpy as np
import pytest
from elements import (
    DTYPES,
    SIZES,
    WIDTHS,
    Batch,
    Function,
    every_offset,
    np_dtype,
    random_array,
    random_offsets,
)
from support import simt, ulp
from support.sampling import sampled

pytestmark = pytest.mark.usefixtures("x64")


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def twice_and_one(dtype):
    return Function(
        (lambda x: x != (x == x)) if dtype == "bool" else (lambda x: x * 2 + 1), (dtype,)
    )


def difference(*dtypes):
    return Function(lambda x, y: x * 2 - y, dtypes)


MIXED = (
    Function(lambda x, y, z: x + y + z, ("float32", "bfloat16", "float64")),
    Function(lambda x, y: x > y, ("float64", "float32")),
    Function(lambda x, y: (x, y * 2, x == (y > 0)), ("bool", "float16")),
    Function(lambda x, y: (x * 2, x < 0, y + 1, y != 0), ("float32", "int32")),
    Function(lambda x, y: (x * y, x == y), ("complex64", "bfloat16")),
)


# ---- Sizes ---------------------------------------------------------------------------------------


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", sampled(DTYPES, WIDTHS))
def test_every_size_of_one_operand(rng, dtype):
    batch, function = Batch(), twice_and_one(dtype)
    for n in SIZES:
        x = random_array(rng, (n,), dtype)
        batch.add(function, [x])
        batch.add(function, [x], offsets=random_offsets(rng, function))
    batch.check()


@pytest.mark.parametrize("function", MIXED, ids=lambda f: "-".join(f.dtypes))
def test_every_size_of_mixed_widths_and_several_results(rng, function):
    batch = Batch()
    for n in SIZES:
        xs = [random_array(rng, (n,), dtype) for dtype in function.dtypes]
        batch.add(function, xs)
        batch.add(function, xs, offsets=random_offsets(rng, function))
    batch.check()


@pytest.mark.parametrize(
    "targets", [("int8", "bfloat16", "float64"), ("int8",), ("complex64", "uint8", "float8_e5m2")]
)
def test_results_that_are_wider_and_narrower_than_the_operand(rng, targets):
    function = Function(lambda x: tuple(x.astype(np_dtype(to)) for to in targets), ("float32",))
    batch = Batch()
    for n in (0, 1, 15, 64, 1023, 4099):
        x = (np.arange(n) % 100).astype(np.float32) + np.float32(0.375)
        batch.add(function, [x])
        batch.add(function, [x], offsets=random_offsets(rng, function))
    batch.check()


def test_five_elements_are_all_that_is_read():
    batch = Batch()
    for offset in range(0, 16, 4):
        x = np.arange(5, dtype=np.float32)
        batch.add(Function(lambda x: x + 1, ("float32",)), [x], offsets=(0, offset))
    batch.check()


def test_the_stand_in_sees_reads_beyond_an_input():
    """The other tests prove something only if this one passes."""
    function = twice_and_one("float32")
    x = np.zeros(5, np.float32)
    call = simt.Call(
        function.kernel(), (5,), ("float32",), (x,), extents=(6,), elements={0: 6, 1: 6}
    )
    with pytest.raises(AssertionError, match=r"(?s)heap-buffer-overflow.*in call 0"):
        simt.build([call.kernel], sanitize=True).run([call])


def test_the_stand_in_sees_writes_beyond_a_result():
    function = twice_and_one("float32")
    x = np.zeros(6, np.float32)
    call = simt.Call(function.kernel(), (5,), ("float32",), (x,), extents=(6,), elements={0: 6})
    with pytest.raises(AssertionError, match="result 0 was written at byte 20 of 20"):
        simt.build([call.kernel], sanitize=True).run([call])


@pytest.mark.parametrize("max_blocks", [1, 2, 3])
def test_few_blocks_stride_over_many_packs(rng, max_blocks):
    batch = Batch()
    for dtype, n in (("float32", 4099), ("bool", 20011), ("float64", 1537)):
        function = twice_and_one(dtype)
        x = random_array(rng, (n,), dtype)
        options = {"offsets": random_offsets(rng, function), "max_blocks": max_blocks}
        batch.add(function, [x], **options)
        batch.add(function, [x], index_bits=64, **options)
    batch.check()


# ---- Alignment -----------------------------------------------------------------------------------


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_alignment_of_one_operand_and_its_result(rng, dtype):
    batch, function = Batch(), twice_and_one(dtype)
    pack = 16 // np_dtype(dtype).itemsize
    for n in (1, pack - 1, pack, 2 * pack + 1, 5 * pack - 1):
        x = random_array(rng, (n,), dtype)
        for offsets in every_offset(function):
            batch.add(function, [x], offsets=offsets)
    batch.check()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_every_alignment_of_two_operands(rng, dtype):
    batch, function = Batch(), difference(dtype, dtype)
    for n in (3, 8, 33):
        xs = [random_array(rng, (n,), dtype) for _ in range(2)]
        for offsets in every_offset(function):
            batch.add(function, xs, offsets=offsets)
    batch.check()


@pytest.mark.parametrize("function", MIXED[:2], ids=lambda f: "-".join(f.dtypes))
def test_every_alignment_of_mixed_widths(rng, function):
    batch = Batch()
    for n in (2, 7, 18):
        xs = [random_array(rng, (n,), dtype) for dtype in function.dtypes]
        for offsets in every_offset(function):
            batch.add(function, xs, offsets=offsets)
    batch.check()


def test_one_operand_at_an_odd_offset_among_wider_ones(rng):
    batch, function = Batch(), MIXED[0]
    xs = [random_array(rng, (4097,), dtype) for dtype in ("float32", "bfloat16")]
    for offset in (2, 6, 14):
        scalar = random_array(rng, (), "float64")
        batch.add(function, [*xs, scalar], offsets=(0, 0, offset, 0))
    batch.check()


# ---- Broadcasting --------------------------------------------------------------------------------

BROADCASTS = {
    "scalar": ((13,), ()),
    "scalar-first": ((), (19,)),
    "one-element-of-rank-3": ((1, 1, 1), (3, 5, 7)),
    "row": ((8, 16), (16,)),
    "row-odd": ((9, 5), (5,)),
    "row-prime": ((31, 37), (37,)),
    "column": ((8, 16), (8, 1)),
    "column-odd": ((9, 5), (9, 1)),
    "outer": ((7, 1), (1, 11)),
    "inner-1": ((23, 1), (1, 1)),
    "inner-2": ((23, 2), (2,)),
    "inner-2-column": ((23, 2), (23, 1)),
    "inner-3": ((23, 3), (3,)),
    "inner-3-column": ((23, 3), (23, 1)),
    "middle": ((5, 1, 7), (4, 7)),
    "channels": ((2, 3, 4, 5), (3, 1, 1)),
    "interleaved": ((3, 1, 5, 1), (4, 1, 6)),
    "C14": ((2, 1, 10), (1, 2, 10)),
    "rank-6": ((2, 3, 1, 5, 1, 7), (3, 1, 1, 2, 7)),
    "rank-6-outer": ((2, 1, 3, 1, 2, 1), (1, 3, 1, 2, 1, 5)),
    "ones-everywhere": ((1, 6, 1, 1, 7, 1), (1, 1, 7, 1)),
    "no-elements": ((0, 4), (4,)),
}


@pytest.mark.parametrize(
    ("dtypes", "index_bits"),
    [
        (("float32", "float32"), 32),
        pytest.param(("bfloat16", "bfloat16"), 32, marks=pytest.mark.exhaustive),
        (("bfloat16", "bfloat16"), 64),
        (("float64", "float32"), 32),
        pytest.param(("float64", "float32"), 64, marks=pytest.mark.exhaustive),
    ],
)
def test_broadcasting(rng, dtypes, index_bits):
    batch, function = Batch(), difference(*dtypes)
    for shapes in BROADCASTS.values():
        for round_ in range(4):
            xs = [random_array(rng, s, d) for s, d in zip(shapes, dtypes, strict=True)]
            offsets = random_offsets(rng, function) if round_ else (0, 0, 0)
            batch.add(function, xs, offsets=offsets, index_bits=index_bits)
            swapped = difference(*reversed(dtypes))
            batch.add(swapped, xs[::-1], index_bits=index_bits)
    batch.check()


def test_the_difference_of_two_broadcast_operands(rng):
    a, b = (rng.integers(0, 3, shape).astype(np.float64) for shape in ((2, 1, 10), (1, 2, 10)))
    batch = Batch()
    batch.add(Function(lambda a, b: a - b, ("float64", "float64")), [a, b])
    batch.add(
        Function(lambda a, b: a - b, ("float64", "float64")), [a[0, 0, :1], np.arange(1000.0)]
    )
    batch.check()
    np.testing.assert_array_equal(batch.expected[0][0], a - b)


@pytest.mark.parametrize("wide", ["float32", "float64"])
def test_wide_operands_that_are_not_packed_beside_narrow_ones(rng, wide):
    """A pack of the narrow arrays has more elements than one access of the wide type."""
    batch = Batch()
    for fun, narrow in ((lambda x, s: x, "bfloat16"), (lambda x, s: x == (s > 0), "bool")):
        both = Function(lambda x, s, fun=fun: (fun(x, s), x), (narrow, wide))
        for shapes in (((37,), ()), ((9, 21), (9, 1)), ((4, 3, 21), (4, 1, 1)), ((3, 33), (1, 1))):
            x, s = (
                random_array(rng, shape, d) for shape, d in zip(shapes, both.dtypes, strict=True)
            )
            batch.add(both, [x, s], offsets=random_offsets(rng, both))
    batch.check()


def _random_shapes(rng, count):
    """A result of rank 1 to 6 and operands that lack some of its dimensions."""
    rank = int(rng.integers(1, 7))
    extents = [int(rng.choice([1, 2, 3, 4, 5, 7, 8, 13, 16])) for _ in range(rank)]
    while np.prod(extents) > 4000:
        extents[int(rng.integers(rank))] = 2
    shapes = []
    for _ in range(count):
        kept = tuple(n if rng.random() < 0.6 else 1 for n in extents)
        shapes.append(kept[int(rng.integers(0, rank + 1)) :] if rng.random() < 0.3 else kept)
    return shapes


@pytest.mark.parametrize("seed", sampled(range(4), [0]))
def test_random_shapes_dtypes_and_alignments(seed):
    """Every operand has a result of its own dtype, so each must be read at the right places."""
    rng = np.random.default_rng(100 + seed)
    batch = Batch()
    for _ in range(20):
        count, index_bits = int(rng.integers(1, 5)), int(rng.choice([32, 64]))
        dtypes = tuple(str(rng.choice(DTYPES)) for _ in range(count))
        function = Function(lambda *xs: tuple(x * 2 if x.dtype != bool else ~x for x in xs), dtypes)
        shapes = _random_shapes(rng, count)
        for _ in range(4):
            batch.add(
                function,
                [random_array(rng, s, d) for s, d in zip(shapes, dtypes, strict=True)],
                offsets=random_offsets(rng, function),
                index_bits=index_bits,
                max_blocks=int(rng.choice([1, 2**31 - 1])),
            )
    batch.check()


# ---- Many arrays ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("inputs", "outputs"), sampled([(12, 9), (70, 3), (127, 1)], [(70, 3)]))
def test_many_arrays(rng, inputs, outputs):
    def sums(*xs):
        partial = list(itertools.accumulate(xs))
        return tuple(partial[-1 - i % len(partial)] * (i + 1) for i in range(outputs))

    function = Function(sums, ("float32",) * inputs)
    batch = Batch()
    for n in (1001, 5):
        xs = [random_array(rng, (n,), "float32") for _ in range(inputs)]
        batch.add(function, xs)
        batch.add(function, xs, offsets=random_offsets(rng, function))
    batch.check()


def test_the_headers_compile_without_warnings():
    """A host compiler's warnings, such as one about types that may not alias others."""
    kernels = [twice_and_one(dtype).kernel() for dtype in DTYPES if dtype != "bool"]
    kernels += [difference("float32", "float64").kernel(shapes) for shapes in BROADCASTS.values()]
    simt.build(kernels, flags=("-O2", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas"))


# ---- Body and tail -------------------------------------------------------------------------------


def _transcendental(x):
    return jnp.tanh(x * 1.1 + 0.3) * jnp.exp(-x * x) + jnp.sin(x) / (1 + x * x)


@pytest.mark.sampled
@pytest.mark.parametrize("flags", [("-O1",), ("-O3", "-march=native", "-ffp-contract=fast")])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_a_value_gives_the_same_bits_wherever_it_stands(rng, dtype, flags):
    """Head, body and tail, of every alignment, at sizes around the pack."""
    kernel = simt.make_kernel(_transcendental, [dtype])
    values = random_array(rng, (6,), dtype) / np_dtype(dtype).type(10)
    calls = [
        simt.Call(kernel, (n,), (dtype,), (np.full(n, value),), offsets=(a, b))
        for value in values
        for n in (1, 2, 9, 23, 64)
        for a in range(0, 16, np_dtype(dtype).itemsize)
        for b in (0, np_dtype(dtype).itemsize)
    ]
    results = simt.build([kernel], flags=flags).run(calls)
    for value in values:
        same = [
            result
            for call, (result,) in zip(calls, results, strict=True)
            if call.operands[0][0] == value
        ]
        assert len(np.unique(ulp.bits_of(np.concatenate(same)))) == 1


def test_all_bytes_but_zero_are_true():
    every = np.arange(256, dtype=np.uint8).view(np.bool_)
    function = Function(lambda x: x, ("bool",))
    call = simt.Call(function.kernel(), (256,), ("bool",), (every,))
    ((result,),) = simt.build([call.kernel], sanitize=True).run([call])
    np.testing.assert_array_equal(result.view(np.uint8), [0] + [1] * 255)
