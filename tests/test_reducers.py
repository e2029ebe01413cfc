"""Calls inside of the computations of other operations, where XLA takes no kernel."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jax_elementwise as je

X = jnp.arange(8.0)
add = je.elementwise(lambda a, b: a + b, lowering="kernel")
triple = je.elementwise(lambda x: 3 * x, lowering="kernel")
larger = je.elementwise(jnp.maximum, lowering="kernel")
loop = je.elementwise(
    lambda a, b: lax.while_loop(lambda s: s[1] < 3, lambda s: (s[0] + b / 3, s[1] + 1), (a, 0))[0],
    name="loop",
)
branch = je.elementwise(
    lambda a, b: lax.cond(a > b, jnp.sin, jnp.exp, a), name="branch", lowering="kernel"
)
in_cpp = je.cuda_functor("a + b", inputs="float a, float b", outputs="float", name="in_cpp")
with_reference = je.cuda_functor(
    "a + b", inputs="float a, float b", outputs="float", reference=lambda a, b: a + b
)


def reduce(computation):
    return jax.jit(lambda x: lax.reduce(x, np.float32(0), computation, (0,)))(X)


@pytest.mark.parametrize("lowering", ["auto", "kernel"])
def test_reduce(lowering):
    assert reduce(je.elementwise(lambda a, b: a + b, lowering=lowering)) == 28


@pytest.mark.parametrize(
    ("fun", "expected"),
    [
        (lambda x: lax.reduce_window(x, np.float32(0), add, (2,), (1,), "valid"), X[1:] + X[:-1]),
        (lambda x: lax.reduce_window(x, -np.inf, larger, (2,), (2,), "valid"), X[1::2]),
        (lambda x: x.at[jnp.array([1, 2])].apply(triple), X.at[1:3].multiply(3)),
        (lambda x: lax.reduce(x, np.float32(0), jax.jit(lambda a, b: add(a, b)), (0,)), 28),
        (lambda x: lax.reduce(x, np.float32(0), with_reference, (0,)), 28),
        (lambda x: jax.grad(lambda y: lax.reduce(y, np.float32(0), add, (0,)))(x), jnp.ones(8)),
        (
            lambda x: lax.scatter_apply(
                x,
                jnp.array([[1], [2]]),
                triple,
                lax.ScatterDimensionNumbers((), (0,), (0,)),
                update_shape=(2,),
            ),
            X.at[1:3].multiply(3),
        ),
    ],
)
def test_computations_on_scalars(fun, expected):
    np.testing.assert_array_equal(jax.jit(fun)(X), expected)


def test_what_only_calls_with_scalars_stays_a_kernel():
    """Programs, their loops and their branches take custom calls."""
    for fun in (
        lambda x: add(x[0], x[1]),
        lambda x: lax.while_loop(lambda c: c < 9, lambda c: add(c, x[1]), x[0]),
        lambda x: lax.cond(x[0] > 0, lambda: add(x[0], x[1]), lambda: x[0]),
        lambda x: in_cpp(x[0], x[1]),
    ):
        assert "jax_elementwise_kernel" in jax.jit(fun).lower(X).as_text()


def test_scalars_in_a_nested_jit():
    """The function that it becomes might be called by a reducer."""
    nested = jax.jit(lambda x: jax.jit(lambda y: add(y, y) + loop(y, y))(x[1]))
    assert "jax_elementwise_kernel" not in nested.lower(X).as_text()
    assert nested(X) == 4
    arrays = jax.jit(lambda x: jax.jit(lambda y: add(y, y))(x))
    assert "jax_elementwise_kernel" in arrays.lower(X).as_text()


def test_cuda_functors_need_a_reference_there():
    with pytest.raises(NotImplementedError, match=r"'in_cpp' is CUDA C\+\+.* by a reduce. Give it"):
        reduce(in_cpp)
    message = r"'in_cpp' is CUDA C\+\+.* in a nested jit.*reference=.* or call it with arrays"
    with pytest.raises(NotImplementedError, match=message):
        reduce(jax.jit(lambda a, b: in_cpp(a, b)))
    with pytest.raises(NotImplementedError, match=r"'in_cpp' is CUDA C\+\+.* by a reduce"):
        reduce(lambda a, b: in_cpp(a[None], b[None])[0])


@pytest.mark.parametrize("computation", [loop, branch])
def test_what_xla_does_not_take_there(computation):
    with pytest.raises(
        NotImplementedError, match=r"is called by a reduce, .* operations on scalars"
    ):
        reduce(computation)
