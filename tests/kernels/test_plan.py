"""The launcher: its arithmetic, in C++, and what it makes of calls that do not fit the kernel."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from elements import Batch, Function, random_array
from support import simt


def test_division_by_multiplication_is_exact_and_grids_and_spans_are_right():
    source = simt.ROOT / "tests" / "csrc" / "plan_test.cc"
    program = simt.compile_cpp([source], "plan_test", simt.SANITIZERS)
    assert simt.run_binary(program) == "0 failures\n"


def test_functors_in_kernels_do_pairs_and_get_indices():
    source = simt.ROOT / "tests" / "csrc" / "functor_test.cc"
    flags = ["-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", *simt.SANITIZERS]
    program = simt.compile_cpp([source], "functor_test", flags)
    assert simt.run_binary(program) == "0 failures\n"


def test_the_launcher_takes_as_many_strides_as_the_generator_gives():
    """Both know how many parameters a kernel has, and must agree."""

    def shapes(count):
        lacking = [(37 * i + 11) % 1023 for i in range(count)]
        return [tuple(1 if bits >> d & 1 else 2 for d in range(10)) for bits in lacking]

    def function(count):
        return Function(lambda *xs: sum(xs[1:], xs[0]), ("float32",) * count)

    count = 30
    while _fits(function(count + 1), shapes(count + 1)):
        count += 1
    assert count < 100
    batch, rng = Batch(), np.random.default_rng(8)
    batch.add(function(count), [random_array(rng, shape, "float32") for shape in shapes(count)])
    batch.check(sanitize=False)  # which take 10 s to compile it


def _fits(function, shapes):
    try:
        function.kernel(shapes)
    except ValueError:
        return False
    return True


def _refusal(call):
    (result,) = simt.build([call.kernel]).run([call])
    assert isinstance(result, simt.LaunchError), result
    return result


def _call(shapes=((8,), (8,)), index_bits=32, **options):
    function = Function(lambda x, y: x * 2 - y, ("float32", "float32"))
    xs = tuple(np.zeros(shape, np.float32) for shape in shapes)
    kernel = function.kernel(shapes, index_bits)
    return simt.Call(kernel, np.broadcast_shapes(*shapes), ("float32",), xs, **options)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ({"elements": {2: 7}}, r"^array 2 has 7 elements where the kernel reads 8$"),
        ({"elements": {0: 9}}, r"^array 0 has 9 elements where the kernel reads 8$"),
        ({"shapes": ((4, 8), (8,)), "elements": {2: 4}}, "array 2 has 4 elements .* reads 8"),
        ({"shapes": ((8,), ()), "elements": {2: 2}}, "array 2 has 2 elements .* reads 1"),
        ({"offsets": (0, 2, 0)}, r"^array 1 is not aligned to its elements of 4 bytes$"),
        ({"offsets": (1, 0, 0)}, r"^array 0 is not aligned to its elements of 4 bytes$"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(call, message):
    refusal = _refusal(_call(**call))
    assert refusal.fault == "InvalidArgument"
    with pytest.raises(simt.LaunchError, match=message):
        raise refusal


def test_too_many_elements_for_32_bit_indices_are_refused():
    size = 2**30 + 1
    huge = {"extents": (size,), "elements": dict.fromkeys(range(3), size)}
    refusal = _refusal(_call(**huge))
    assert refusal.fault == "InvalidArgument"
    assert str(refusal) == f"a kernel with 32-bit indices was given {size} elements"


def test_more_strides_than_a_kernel_takes_are_refused():
    rank, count = 20, 60
    kernel = simt.make_kernel(lambda *xs: sum(xs), ["float32"] * count)
    space = dataclasses.replace(kernel.space, groups=(1,) * rank, spans=(1,) * count)
    call = simt.Call(
        dataclasses.replace(kernel, space=space),
        (1,) * rank,
        ("float32",),
        tuple(np.zeros(1, np.float32) for _ in range(count)),
    )
    refusal = _refusal(call)
    assert refusal.fault == "InvalidArgument"
    assert str(refusal) == "too many broadcast operands: 60 over 20 dimensions"
