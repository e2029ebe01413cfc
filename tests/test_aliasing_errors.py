"""Aliases that cannot be: refused when the function is made or called, before anything compiles."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_elementwise as je

# ---- When the function is made -------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [[(0, 0)], {0}, 3, {"x": 0}, {0: "x"}, {0: 0.0}, {0: None}, {True: 0}, {0: (1,)}],
    ids=str,
)
def test_aliases_are_a_dict_of_ints(value):
    match = r"input_output_aliases of 'f' must be a dict of ints, \{argument: result\}, not "
    with pytest.raises(TypeError, match=match + re.escape(repr(value))):
        je.elementwise(lambda x: x, name="f", input_output_aliases=value)
    with pytest.raises(TypeError, match=match):
        je.elementwise(name="f", input_output_aliases=value)(lambda x: x)


@pytest.mark.parametrize("aliases", [{-1: 0}, {0: -1}, {0: 0, 1: -2}], ids=str)
def test_negative_numbers(aliases):
    match = rf"'f' counts arguments and results from 0, but got {re.escape(str(aliases))}"
    with pytest.raises(ValueError, match=match):
        je.elementwise(lambda x: x, name="f", input_output_aliases=aliases)


def test_a_result_in_two_arguments():
    match = r"'f' gives result 1 to arguments 0 and 3; it can be written into one of them"
    with pytest.raises(ValueError, match=match):
        je.elementwise(lambda x: x, name="f", input_output_aliases={3: 1, 0: 1})


# ---- At the call ---------------------------------------------------------------------------------

AT_THE_CALL = pytest.mark.parametrize(
    "call",
    [
        lambda f, *args: f(*args),
        lambda f, *args: jax.jit(f)(*args),
        lambda f, *args: jax.eval_shape(f, *args),
        lambda f, *args: f.cuda_source(*args),
        lambda f, *args: jax.grad(lambda *args: jax.tree.leaves(f(*args))[0].sum())(*args),
    ],
    ids=["eager", "jit", "eval_shape", "cuda_source", "grad"],
)
LOWERINGS = pytest.mark.parametrize("lowering", ["auto", "kernel", "xla"])


def pair_of(params, y, *, scale=1.0):
    return {"r": params["w"] * y, "s": (params["w"] * scale, y > 0)}


def refused(call, lowering, aliases, error, match, *args):
    f = je.elementwise(pair_of, name="f", lowering=lowering, input_output_aliases=aliases)
    with pytest.raises(error, match=match):
        call(f, *args)


@AT_THE_CALL
@LOWERINGS
def test_an_argument_that_the_call_does_not_have(call, lowering):
    match = r"'f' aliases argument 2, but this call has 2 array arguments, .*: params\['w'\], y\."
    refused(call, lowering, {2: 0}, ValueError, match, {"w": jnp.ones(3)}, jnp.ones(3))


@AT_THE_CALL
@LOWERINGS
def test_a_result_that_the_function_does_not_have(call, lowering):
    match = r"'f' aliases result 3, but returns 3, counted from 0"
    refused(call, lowering, {0: 3}, ValueError, match, {"w": jnp.ones(3)}, jnp.ones(3))


@AT_THE_CALL
@LOWERINGS
def test_an_alias_of_two_dtypes(call, lowering):
    match = (
        r"'f' aliases argument 'y' of dtype float32 to result 2 at \['s'\]\[1\] of dtype bool; "
        "convert one of them"
    )
    refused(call, lowering, {1: 2}, TypeError, match, {"w": jnp.ones(3)}, jnp.ones(3))


@AT_THE_CALL
@LOWERINGS
@pytest.mark.parametrize("shape", [(), (3,), (1, 3), (2, 1)], ids=str)
def test_an_argument_that_is_broadcast(call, lowering, shape):
    match = (
        rf"'f' aliases argument \"params\['w'\]\" of shape {re.escape(str(shape))} to result 0 at "
        r"\['r'\] of shape \(2, 3\); an argument that is broadcast has no room for a result"
    )
    refused(call, lowering, {0: 0}, ValueError, match, {"w": jnp.ones(shape)}, jnp.ones((2, 3)))


@pytest.mark.parametrize("make", [jnp.float32, np.float32])
def test_captured_scalars_have_no_number(make):
    s = make(2)
    f = je.elementwise(lambda x: x * s, name="f", input_output_aliases={1: 0})
    with pytest.raises(ValueError, match=r"has 1 array arguments.*Captured values have no number"):
        f(jnp.ones(()))


def test_a_function_without_arguments_has_nothing_to_alias():
    f = je.elementwise(lambda: 3.0, name="f", input_output_aliases={0: 0})
    with pytest.raises(ValueError, match=r"'f' aliases argument 0, but this call has 0"):
        f()


def test_a_static_argument_has_no_number():
    f = je.elementwise(
        lambda n, x: x * n, name="f", static_argnames="n", input_output_aliases={1: 0}
    )
    with pytest.raises(ValueError, match=r"this call has 1 array arguments, counted from 0: x\."):
        f(2, jnp.ones(3))


def test_nothing_is_compiled_before_an_error(compilations):
    x = jnp.ones(3)
    compilations.clear()
    f = je.elementwise(lambda x: x > 0, input_output_aliases={0: 0})
    with pytest.raises(TypeError, match="dtype"):
        f(x)
    assert not compilations
