"""Every row of the operator table with every dtype through the public function, as XLA computes it.

What kernels compute is tested in ``codegen/test_operators.py`` and, on a GPU, in
``gpu/test_numerics.py``.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import kernels, lowered
from support import reference, sampling, ulp
from support.sampling import sampled

import jax_elementwise as je
from jax_elementwise._codegen.rules.operators import OPERATORS
from jax_elementwise._codegen.types import DTYPES

# XLA cannot compile these for CPUs.
_UNCOMPILED = {(n, d) for n in ("erfc", "bessel_i1e") for d in ("float8_e4m3fn", "float8_e5m2")}


def _functions(dtype):
    """The functions of the rows that take a dtype."""
    of_complex = DTYPES[dtype].kind == "complex"
    return {
        name: (OPERATORS[name], reference.lax_function(OPERATORS[name]))
        for name, row_dtype in reference.rows_and_dtypes(of_complex=of_complex)
        if row_dtype == dtype
        and (name, dtype) not in _UNCOMPILED
        and reference.lax_function(OPERATORS[name]) is not None
    }


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", sampled(DTYPES, sampling.DTYPES))
def test_every_operator_is_that_of_lax(dtype, rng, x64):
    functions = _functions(dtype)
    assert len(functions) >= 10
    xs = [
        jnp.asarray(np.r_[reference.random_values(rng, dtype, 64, (0.1, 4)), special])
        for special in (reference.special_values(dtype)[:20],) * 3
    ]

    @jax.jit
    def both(*xs):
        return {
            name: (je.elementwise(fun)(*xs[: row.arity]), fun(*xs[: row.arity]))
            for name, (row, fun) in functions.items()
        }

    for name, (actual, expected) in both(*xs).items():
        bad = ulp.wrong(np.asarray(actual), np.asarray(expected), 2)
        assert not bad.any(), name


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_operator_becomes_one_kernel_on_cuda(dtype, x64):
    functions = _functions(dtype)
    x = jnp.ones(8, dtype)

    def all_of_them(x):
        return [je.elementwise(fun)(*[x] * row.arity) for row, fun in functions.values()]

    found = kernels(lowered(all_of_them, x))
    assert len(found) == len(functions)
