"""Which dimensions of a call are treated as one, and what operands are along them."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from jax_elementwise._codegen.iteration import IterationSpace, iteration_space

CONTIGUOUS, SCALAR = "Contiguous", "Scalar"


def space(*shapes):
    return iteration_space(shapes, np.broadcast_shapes(*shapes))


def kinds(made):
    """The class of operand.h of every operand."""
    return [kind.access.value for kind in made.kinds]


@pytest.mark.parametrize(
    ("shapes", "groups", "spans", "accesses"),
    [
        # Nothing is broadcast: one dimension.
        ([(8, 3, 5), (8, 3, 5)], (3,), (1, 1), [CONTIGUOUS] * 2),
        ([(7,)], (1,), (1,), [CONTIGUOUS]),
        # Scalars, of any rank.
        ([(8, 3), ()], (2,), (1, 0), [CONTIGUOUS, SCALAR]),
        ([(8, 3), (1, 1)], (2,), (1, 0), [CONTIGUOUS, SCALAR]),
        # A row, a column, both.
        ([(8, 3, 5), (3, 5)], (1, 2), (3, 2), [CONTIGUOUS, "Rows"]),
        ([(8, 3, 5), (8, 1, 1)], (1, 2), (3, 1), [CONTIGUOUS, "Columns"]),
        ([(8, 1), (1, 5)], (1, 1), (1, 2), ["Columns", "Rows"]),
        ([(2, 1, 10), (1, 2, 10)], (1, 1, 1), (5, 6), ["Rows", "Rows"]),
        # A dimension in the middle keeps its neighbours apart.
        ([(2, 3, 4, 5), (3, 1, 1)], (1, 1, 2), (7, 2), [CONTIGUOUS, "Columns"]),
        ([(2, 3, 4, 5), (2, 1, 1, 5)], (1, 2, 1), (7, 5), [CONTIGUOUS, "Rows"]),
        # Dimensions of one element belong to any neighbour.
        ([(1, 6, 1, 1, 7, 1)], (6,), (1,), [CONTIGUOUS]),
        ([(1, 6, 1, 7, 1), (7, 1)], (2, 3), (3, 2), [CONTIGUOUS, "Rows"]),
        ([(6, 1, 7), (6, 1, 1)], (1, 2), (3, 1), [CONTIGUOUS, "Columns"]),
        # One element in all: everything is contiguous with it.
        ([()], (0,), (1,), [CONTIGUOUS]),
        ([(), ()], (0,), (1, 1), [CONTIGUOUS] * 2),
        ([(1, 1), (1,)], (2,), (1, 1), [CONTIGUOUS] * 2),
        # No elements.
        ([(0, 4), (4,)], (1, 1), (3, 2), [CONTIGUOUS, "Rows"]),
        ([(0,), ()], (1,), (1, 0), [CONTIGUOUS, SCALAR]),
        ([(0,), (1,)], (1,), (1, 0), [CONTIGUOUS, SCALAR]),
    ],
)
def test_dimensions_are_merged(shapes, groups, spans, accesses):
    made = space(*shapes)
    assert made == IterationSpace(groups, spans, 32)
    assert kinds(made) == accesses
    assert sum(made.groups) == len(np.broadcast_shapes(*shapes))


def test_each_broadcast_operand_has_strides_of_its_own():
    made = space((8, 3, 5), (3, 5), (), (8, 1, 1), (5,))
    assert [kind.slot for kind in made.kinds if kind.is_broadcast] == [0, 1, 2]
    assert made.geometry == "3, 3"
    # Size, shift and mask; two dividers of three words; three strides per operand.
    assert made.geometry_words == 3 + 2 * 3 + 3 * 3
    assert space((8, 3), ()).geometry == "0, 0"
    assert space((8, 3), ()).geometry_words == 3


def test_only_rows_and_contiguous_operands_are_packed():
    made = space((8, 5), (5,), (8, 1), ())
    assert kinds(made) == [CONTIGUOUS, "Rows", "Columns", SCALAR]
    assert [kind.is_packed for kind in made.kinds] == [True, True, False, False]


@pytest.mark.parametrize(
    ("shape", "bits"),
    [((2**30,), 32), ((2**15, 2**15), 32), ((2**30 + 1,), 64), ((2**16, 2**15), 64), ((0,), 32)],
)
def test_large_results_have_64_bit_indices(shape, bits):
    assert iteration_space([shape], shape).index_bits == bits
    assert iteration_space([shape, ()], shape).index_bits == bits


def test_small_operands_with_a_large_result_have_64_bit_indices():
    assert space((65537, 1), (1, 32769)).index_bits == 64


def test_symbolic_extents():
    n, m = jax.export.symbolic_shape("n, m")
    assert iteration_space([(n, m), (n, m)], (n, m)) == IterationSpace((2,), (1, 1), 64)
    made = iteration_space([(n, 3, m), (m,), (), (n, 1, 1)], (n, 3, m))
    assert made == IterationSpace((1, 1, 1), (7, 4, 0, 1), 64)
    assert kinds(made) == [CONTIGUOUS, "Rows", SCALAR, "Columns"]
    # A symbol that is 1 at run time is a dimension of its own.
    assert iteration_space([(n, 1), (1, m)], (n, m)).groups == (1, 1)


def test_equal_patterns_share_a_kernel_space():
    assert space((8, 3, 5), (3, 5)) == space((2, 9, 4), (9, 4))
    assert space((8, 3, 5), (3, 5)) != space((8, 3, 5), (5,))
    assert hash(space((4,))) == hash(space((5,)))
