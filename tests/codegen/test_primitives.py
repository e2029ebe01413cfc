"""Numerics of every row of the operator table, for every dtype that it has C++ for.

Each row's own kernel is compiled for the host and compared with ``jax.lax`` in float64 (and NumPy:
see support/reference.py), in units in the last place, with the bounds that the table states.
"""

from __future__ import annotations

import itertools

import jax
import numpy as np
import pytest
from jax import lax
from support import reference, simt, ulp

from jax_elementwise._codegen.primitives import OPERATORS
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


@pytest.fixture(scope="module")
def computed(x64_types):
    """Inputs and results of all rows, from one program."""
    kernels = simt.kernels_of_rows(CASES)
    program = simt.build([kernel for kernel, _ in kernels.values()])
    inputs = {case: _inputs(OPERATORS[case[0]], case[1]) for case in kernels}
    calls = [
        simt.Call(kernel, inputs[case][0].shape[1:], (result,), tuple(inputs[case][0]))
        for case, (kernel, result) in kernels.items()
    ]
    return {
        case: (*inputs[case], result)
        for case, (result,) in zip(kernels, program.run(calls), strict=True)
    }


def _known(computed, name, dtype):
    if (name, dtype) not in computed:
        pytest.skip(f"JAX {jax.__version__} has no public function for {name}")
    return (OPERATORS[name], *computed[name, dtype])


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


def _expected(row, inputs, result):
    if inputs.dtype == np.float64:
        return reference.by_numpy(row, inputs)
    return reference.by_lax(row, inputs, result)


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_random_values_are_within_the_stated_error(computed, name, dtype):
    row, inputs, (_, random, *_), actual = _known(computed, name, dtype)
    inputs, actual = inputs[:, random], actual[random]
    expected = _expected(row, inputs, actual.dtype)
    assert not ulp.is_float(expected.dtype) or np.isfinite(expected).mean() > 0.7
    _check(actual, expected, _allowed(row, actual.dtype), inputs)


@pytest.mark.parametrize(("name", "dtype"), [c for c in CASES if OPERATORS[c[0]].special])
def test_special_values_are_those_of_lax(computed, name, dtype):
    row, inputs, (special, *_), actual = _known(computed, name, dtype)
    inputs, actual = inputs[:, special], actual[special]
    if inputs.dtype != np.float64:
        expected = reference.by_lax(row, inputs, actual.dtype)
        return _check(actual, expected, _allowed(row, actual.dtype), inputs)
    _check(actual, reference.by_numpy(row, inputs), _allowed(row, actual.dtype), inputs)
    # XLA flushes float64's own subnormals, and its own functions are off by up to 200 ulp.
    tiny = np.finfo(np.float64).tiny
    subnormal = ((inputs != 0) & (np.abs(inputs) < tiny)).any(axis=0)
    if ulp.is_float(actual.dtype):
        subnormal |= (actual != 0) & (np.abs(actual) < tiny)
    inputs, actual = inputs[:, ~subnormal], actual[~subnormal]
    return _check(actual, reference.by_lax(row, inputs, actual.dtype), 200, inputs)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [c for c in CASES if OPERATORS[c[0]].arity == 1 and DTYPES[c[1]].kind == "float"],
)
def test_values_of_every_exponent_are_within_the_stated_error(computed, name, dtype):
    """All values of the types of 8 and 16 bits."""
    row, inputs, (_, _, every), actual = _known(computed, name, dtype)
    inputs, actual = inputs[:, every], actual[every]
    _check(actual, _expected(row, inputs, actual.dtype), _allowed(row, actual.dtype), inputs)


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
