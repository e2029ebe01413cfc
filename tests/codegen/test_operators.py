"""Numerics of every row of the operator table, for every dtype that it has C++ for.

Each row's own kernel is compiled for the host and compared with ``jax.lax`` in float64 (and NumPy:
see support/reference.py), in units in the last place, with the bounds that the table states.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import jax
import numpy as np
import pytest
from jax import lax
from support import reference, simt, ulp

from jax_elementwise._codegen.rules.operators import OPERATORS
from jax_elementwise._codegen.types import DTYPES

CASES = reference.rows_and_dtypes()


@pytest.fixture(scope="module", autouse=True)
def x64_types():
    with jax.enable_x64(True):
        yield


def _inputs(row, dtype):
    """A stack of operands, and which columns are special, random and of every exponent."""
    rng = np.random.default_rng(3)
    special = reference.special_values(dtype)
    columns = [np.array(list(itertools.product(special, repeat=row.arity))).T.astype(special.dtype)]
    random = [reference.random_values(rng, dtype, 2000, domain) for domain in row.operand_domains()]
    columns.append(np.array(random))
    if row.arity == 1 and ulp.is_float(special.dtype):
        count = 500 if row.name in reference.SLOW else 20000
        every = reference.of_every_exponent(rng, dtype, count)
        columns.append((np.abs(every) if row.name in reference.POSITIVE_ONLY else every)[None])
    ends = np.cumsum([0, *(part.shape[1] for part in columns)])
    return np.concatenate(columns, axis=1), [slice(*pair) for pair in itertools.pairwise(ends)]


class Computed(NamedTuple):
    """What one row gives for one dtype.

    Attributes:
      inputs: a stack of operands.
      parts: which columns are special, random and of every exponent.
      actual: what the row's kernel gives for them.
      by_lax: what it should give by ``jax.lax``, where that is asked.
    """

    inputs: np.ndarray
    parts: list[slice]
    actual: np.ndarray
    by_lax: np.ndarray | None


@pytest.fixture(scope="module")
def computed(x64_types):
    """All rows, from one program of kernels and one of XLA for each dtype."""
    kernels = simt.kernels_of_rows(CASES)
    program = simt.build([kernel for kernel, _ in kernels.values()])
    inputs = {case: _inputs(OPERATORS[case[0]], case[1]) for case in kernels}
    calls = [
        simt.Call(kernel, inputs[case][0].shape[1:], (result,), tuple(inputs[case][0]))
        for case, (kernel, result) in kernels.items()
    ]
    actual = {case: result for case, (result,) in zip(kernels, program.run(calls), strict=True)}
    by_lax = _by_lax({case: (inputs[case], actual[case].dtype) for case in kernels})
    return {case: Computed(*inputs[case], actual[case], by_lax[case]) for case in kernels}


def _by_lax(cases):
    """What ``jax.lax`` gives; for float64 it is asked about special values only."""
    asked = {}
    for (name, dtype), ((inputs, parts), result) in cases.items():
        columns = inputs[:, parts[0]] if dtype == "float64" else inputs
        asked[name, dtype] = OPERATORS[name], columns, result
    return dict(zip(asked, reference.by_lax_each(asked.values()), strict=True))


def _known(computed, name, dtype):
    if (name, dtype) not in computed:
        pytest.skip(f"JAX {jax.__version__} has no public function for {name}")
    return OPERATORS[name], computed[name, dtype]


def _allowed(row, dtype):
    """The table's bound, which is for whole results of the wider types."""
    itemsize = dtype.itemsize
    if not ulp.is_float(dtype):
        return 0
    return 1 if itemsize <= 2 else row.ulp[itemsize == 8]


def _check(actual, expected, allowed, inputs):
    bad = np.flatnonzero(ulp.wrong(actual, expected, allowed))
    shown = "\n".join(
        f"  {tuple(x.item() for x in inputs[:, i])}: {actual[i]!r} should be {expected[i]!r}"
        for i in bad[:8]
    )
    assert not len(bad), f"{len(bad)} of {len(actual)} are off by more than {allowed} ulp:\n{shown}"


def _check_part(row, values, part):
    """Compares a part of the columns, and gives what was expected."""
    inputs, actual = values.inputs[:, part], values.actual[part]
    is_wide = inputs.dtype == np.float64
    expected = reference.by_numpy(row, inputs) if is_wide else values.by_lax[part]
    _check(actual, expected, _allowed(row, actual.dtype), inputs)
    return expected


@pytest.mark.sampled
@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_random_values_are_within_the_stated_error(computed, name, dtype):
    row, values = _known(computed, name, dtype)
    expected = _check_part(row, values, values.parts[1])
    assert not ulp.is_float(expected.dtype) or np.isfinite(expected).mean() > 0.7


@pytest.mark.parametrize(("name", "dtype"), [c for c in CASES if OPERATORS[c[0]].special])
def test_special_values_are_those_of_lax(computed, name, dtype):
    row, values = _known(computed, name, dtype)
    special = values.parts[0]
    _check_part(row, values, special)
    if dtype != "float64":
        return
    # XLA flushes float64's own subnormals, and its own functions are off by up to 200 ulp.
    inputs, actual, expected = values.inputs[:, special], values.actual[special], values.by_lax
    tiny = np.finfo(np.float64).tiny
    subnormal = ((inputs != 0) & (np.abs(inputs) < tiny)).any(axis=0)
    if ulp.is_float(actual.dtype):
        subnormal |= (actual != 0) & (np.abs(actual) < tiny)
    _check(actual[~subnormal], expected[~subnormal], 200, inputs[:, ~subnormal])


@pytest.mark.parametrize(
    ("name", "dtype"),
    [c for c in CASES if OPERATORS[c[0]].arity == 1 and DTYPES[c[1]].kind == "float"],
)
def test_values_of_every_exponent_are_within_the_stated_error(computed, name, dtype):
    """All values of the types of 8 and 16 bits."""
    row, values = _known(computed, name, dtype)
    _check_part(row, values, values.parts[2])


@pytest.mark.parametrize("name", sorted(reference.POSITIVE_ONLY))
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_negative_arguments_with_the_error_of_the_terms_of_reflection(name, dtype):
    """Roots lie between the poles, where large terms cancel: the error is relative to those."""
    rng = np.random.default_rng(4)
    x = -rng.uniform(0, 30, 500).astype(dtype)
    actual = simt.evaluate(getattr(lax, name), x).astype(np.float64)
    wide = x.astype(np.float64)
    expected = reference.NUMPY[name](wide)
    terms = np.abs(expected) + np.log(1 - wide)
    if name == "digamma":
        terms += np.abs(np.pi / np.tan(np.pi * wide))
    assert (np.abs(actual - expected) <= 16 * np.finfo(dtype).eps * terms).all()


def test_the_table_is_sound():
    """Rows have forms that name each operand, and references exist for all of them."""
    for row in OPERATORS.values():
        for form in row.forms.values():
            assert all(f"{{{i}}}" in form for i in range(row.arity)), (row.name, form)
            assert f"{{{row.arity}}}" not in form
        domains = row.operand_domains()
        assert len(domains) == row.arity
        assert all(domain[0] < domain[-1] for domain in domains)
        assert row.arity <= 3
        if "float" in row.forms:
            assert row.name in reference.NUMPY, f"give {row.name} a function of NumPy"
