"""Random functions every way, and the search for those that differ.

``EW_TESTS_FUZZ_SECONDS=3600 pytest -n 0 tests/test_fuzz_functions.py`` looks for an hour.
"""

import dataclasses
import os
import random
import time

import numpy as np
import pytest
from fuzzing import comparing, search
from fuzzing.batches import SHAPE, Batch, operands
from fuzzing.comparing import Expected
from fuzzing.functions import Block, Statement, Variable, lines, smaller

from jax_elementwise._codegen.rules.operators import OPERATORS

SECONDS = os.environ.get("EW_TESTS_FUZZ_SECONDS")
# A fixed number unless one asks for more.
MORE = pytest.param(range(2, 8), marks=pytest.mark.exhaustive)
SEEDS = [range(10**6)] if SECONDS else [range(2), MORE]
X, Y = Variable("x", "f32"), Variable("y", "f32")


def block(parameters, *statements):
    """A function that gives its last statement; a statement is a text and what it reads."""
    made = []
    for k, (text, reads, *blocks) in enumerate(statements):
        made.append(Statement(Variable(f"v{k}", "f32"), text, reads, tuple(blocks)))
    return Block(parameters, tuple(made), (made[-1].result,))


def v(k):
    return Variable(f"v{k}", "f32")


def batch(function):
    values = np.random.default_rng(3).uniform(0.5, 2, (2, *SHAPE)).astype(np.float32)
    return Batch((X, Y), (function,), tuple(values))


@pytest.mark.usefixtures("host_compiler")
@pytest.mark.parametrize("seeds", SEEDS)
def test_random_functions_are_the_same_every_way(seeds):
    tally = search.search(seeds, 8, time.monotonic() + float(SECONDS or 120))
    assert not tally.faults, str(tally)
    assert tally.functions >= 16
    assert tally.compared > 2 * tally.left_out
    assert not tally.refused, str(tally)


# ---- The search finds ----------------------------------------------------------------------------

SINE = block((X, Y), ("lax.sin({n0})", (X,)))
A, B = Variable("a", "f32"), Variable("b", "f32")
INNER = Block((A,), (Statement(B, "lax.sin({n0})", (A,)),), (B,))


def deep(number):
    """A function that no other test has, which would find its kernels."""
    return block(
        (X, Y),
        ("lax.exp({n0})", (X,)),
        (f"{{n0}} * {{n1}} * f32({number})", (v(0), Y)),
        ("jax.jit({b0})({0})", (v(1),), INNER),
        ("{n0} + {n1}", (v(2), v(0))),
    )


@pytest.mark.usefixtures("host_compiler")
def test_an_operator_that_is_wrong_is_found_and_shown(monkeypatch, capsys):
    wrong = dataclasses.replace(OPERATORS["sin"], forms={"float": "1.001f * sin{f}({0})"})
    monkeypatch.setitem(OPERATORS, "sin", wrong)
    assert not comparing.run(batch(deep(0.25)), ["value by xla", "gradient by xla"]).differences
    differences = comparing.run(batch(deep(0.5))).differences
    assert {d.way for d in differences} >= {"value", "vmap", "shard_map"}
    assert not [d for d in differences if d.way.endswith("by xla")]
    text = search.explained(batch(deep(0.5)), differences[0])
    assert text.count("lax.") == 1  # the sine is left, and nothing else
    assert "lax.sin" in text
    exec(text, {})  # the program that it prints shows both
    assert len(capsys.readouterr().out.splitlines()) >= 2


@pytest.mark.usefixtures("host_compiler")
def test_a_derivative_that_is_wrong_is_found(monkeypatch):
    """Of the cosine, which only derivatives call."""
    wrong = dataclasses.replace(OPERATORS["cos"], forms={"float": "1.001f * cos{f}({0})"})
    monkeypatch.setitem(OPERATORS, "cos", wrong)
    ways = {d.way for d in comparing.run(batch(deep(0.75))).differences}
    assert ways == {"tangent", "gradient", "gradient by one", "gradient in shard_map"}


def test_what_is_refused_is_told(monkeypatch):
    def refuse(*_):
        raise NotImplementedError("not that")

    monkeypatch.setitem(comparing.WAYS, "value", (refuse, "kernel"))
    assert comparing.run(batch(SINE), ["value"]).refused == {"value": "not that"}


# ---- Its parts -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "rows", "actual", "is_wrong", "is_certain"),
    [
        ("f4", [1, 1, 1], 1 + 1e-6, False, True),
        ("f4", [1, 1, 1], 1 + 1e-5, True, True),
        ("f4", [1, 1 + 4e-6, 1], 1 + 1e-5, False, True),  # noise allows it
        ("f4", [1, 3, 1], 9, False, False),  # noise decides
        ("f4", [np.nan] * 3, 1, True, True),
        ("f4", [np.nan] * 3, np.nan, False, True),
        ("f4", [np.inf] * 3, 1, True, True),
        ("f4", [np.inf] * 3, np.inf, False, True),
        ("f4", [np.inf, 1e38, 1e38], 1, False, False),
        ("f4", [1, 1, 1], np.nan, True, True),
        ("i4", [1, 1, 1], 2, True, True),
        ("i4", [1, 2, 1], 2, False, False),
        ("c8", [1 + 1j] * 3, 1 + 1.0001j, True, True),
    ],
)
def test_compare(dtype, rows, actual, is_wrong, is_certain):
    rows = [np.array([row]) for row in rows]
    expected = Expected(0, np.dtype(dtype), rows, 0)
    with np.errstate(all="ignore"):
        wrong, certain = comparing.compare(np.array([actual], dtype), expected, 0.0)
    assert (wrong.item(), certain.item()) == (is_wrong, is_certain)


def test_the_errors_of_a_sum_are_those_of_its_terms():
    rows = [np.zeros(1)] * 3
    for size, is_wrong in ((1e4, False), (0, True)):
        expected = Expected(None, np.dtype("f4"), rows, np.full(1, size))
        wrong, _ = comparing.compare(np.full(1, 1e-3), expected, 1e-7)
        assert wrong.item() == is_wrong


@pytest.mark.parametrize("seed", range(20))
def test_functions_are_python_and_so_are_smaller_ones(seed):
    for function in search.batch(seed, 2).functions:
        for each in [function, *smaller(function)]:
            compile("\n".join(lines(each, "fun")), "fun", "exec")
            compile("\n".join(lines(each, "fun", noise=True)), "fun", "exec")
            assert not each.captured


def test_seeds_are_the_same_functions_every_time():
    first, second = search.batch(5, 3), search.batch(5, 3)
    assert first.functions == second.functions != search.batch(6, 3).functions
    for x, y in zip(first.operands, second.operands, strict=True):
        np.testing.assert_array_equal(x, y)


def test_copies_are_not_shown():
    function = block((X, Y), ("{0}", (X,)), ("{n0} * {n1}", (v(0), Y)), ("{0}", (v(1),)))
    (only,) = function.without_copies().body
    assert only.operands == (X, Y)


def test_operands_have_special_values_and_broadcast():
    given = (X, Variable("i", "i32"), Variable("c", "c64"), Variable("b", "b"))
    arrays = operands(random.Random(1), given)
    assert arrays[0].shape == SHAPE
    assert np.broadcast_shapes(*(x.shape for x in arrays)) == SHAPE
    assert [x.dtype.kind for x in arrays] == ["f", "i", "c", "b"]
