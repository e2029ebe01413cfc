"""Class templates of users' C++: of which type they are."""

import jax.numpy as jnp
import numpy as np
import pytest

import jax_elementwise as je

pytestmark = pytest.mark.usefixtures("host_compiler")

PICK = """
template <class T> struct Pick {
  __device__ T operator()(bool c, T a, T b) const { return c ? a : b; }
};"""
SCALE = """
template <class T> struct Scale {
  T by;
  __device__ T operator()(T x) const { return x * by; }
};"""
HALVE = """
template <class T> struct Halve {
  __device__ float operator()(float x) const { return x / T(2); }
};"""


@pytest.mark.parametrize("declared", [{}, {"inputs": "bool c, T a, T b", "outputs": "T"}])
@pytest.mark.parametrize("dtype", ["float32", "int8", "uint16", "bfloat16"])
def test_the_type_is_that_of_the_operands_that_have_it(declared, dtype):
    """And not that of the first operand, by which all of these were 1."""
    pick = je.cuda_functor(PICK, **declared)
    a, b = jnp.asarray([3, 4], dtype), jnp.asarray([5, 6], dtype)
    result = pick(jnp.array([True, False]), a, b)
    assert result.dtype == dtype
    np.testing.assert_array_equal(np.asarray(result, np.float32), [3, 6])


def test_operands_that_differ_are_an_error():
    with pytest.raises(TypeError, match="template of T, which is float32 by 'a', int32 by 'b'"):
        je.cuda_functor(PICK)(jnp.array(True), jnp.float32(1), jnp.int32(2))


def test_a_number_has_the_type_of_the_array_beside_it():
    x = jnp.asarray([1.5, 2.5], jnp.bfloat16)
    np.testing.assert_array_equal(je.cuda_functor(PICK)(False, x, 2), jnp.asarray([2, 2], x.dtype))


def test_a_member_has_the_type_too():
    """0.75 was lost where the input, which decided, is an integer."""
    x = jnp.arange(4, dtype=jnp.uint8)
    scale = je.cuda_functor(SCALE, scalars="float by")
    with pytest.raises(TypeError, match=r"uint8 by 'x', float32 by 'by'.*name='Scale<float>'"):
        scale(x, 0.75)
    assert scale(jnp.float32(4), 0.75) == 3


def test_the_user_may_say_the_type():
    scale = je.cuda_functor(SCALE, scalars="float by", name="Scale<float>")
    result = scale(jnp.arange(4, dtype=jnp.uint8), 0.75)
    assert result.dtype == jnp.float32
    np.testing.assert_array_equal(result, [0, 0.75, 1.5, 2.25])
    assert "Scale<float>" in repr(scale)


@pytest.mark.parametrize(("name", "expected"), [("Halve<float>", 2.5), ("Halve<int>", 2.5)])
def test_of_a_type_that_no_operand_has(name, expected):
    assert je.cuda_functor(HALVE, name=name)(jnp.float32(5)) == expected


def test_a_default_is_taken_where_no_operand_says_more():
    halve = je.cuda_functor(HALVE.replace("class T", "class T = double"))
    assert halve(jnp.float32(5)) == 2.5
    pick = je.cuda_functor(PICK.replace("class T", "class T = double"))
    assert pick(True, jnp.int32(1), jnp.int32(2)).dtype == jnp.int32
