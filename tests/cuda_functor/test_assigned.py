"""Results of statements: what they are before they are assigned."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_elementwise as je
from jax_elementwise import _extension
from jax_elementwise._cuda_functor import assigned

pytestmark = pytest.mark.usefixtures("host_compiler")

X = jnp.array([1.0, 5.0, -2.0])


# ---- Inputs that are results, too ----------------------------------------------------------------


def test_a_name_among_inputs_and_outputs_is_one_variable():
    descend = je.cuda_functor("w -= rate * g;", inputs="T g, T rate, T w", outputs="T w")
    np.testing.assert_array_equal(descend(X, 0.5, jnp.full(3, 2.0)), 2 - 0.5 * X)
    np.testing.assert_array_equal(jax.vmap(descend, (0, None, None))(X, 0.5, 2.0), 2 - 0.5 * X)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int8", "uint32", "bool"])
def test_updates_of_every_type(dtype):
    clip = je.cuda_functor("if (x > low) x = low;", inputs="T x, T low", outputs="T x")
    x, low = jnp.asarray([0, 1, 3], dtype), jnp.asarray(1, dtype)
    np.testing.assert_array_equal(clip(x, low), jnp.minimum(x, low))


def test_two_updates_and_another_result_in_any_order():
    momentum = je.cuda_functor(
        "m = 0.5f * m + g; p -= m; size = fabsf(m);",
        inputs="float p, float g, float m",
        outputs="float m, float size, float p",
    )
    p, g, m = jnp.full(3, 1.0), X, jnp.full(3, 4.0)
    updated = 0.5 * m + g
    for result, expected in zip(
        momentum(p, g, m), (updated, abs(updated), p - updated), strict=True
    ):
        np.testing.assert_array_equal(result, expected)


def test_an_update_with_an_index_and_in_place():
    shift = je.cuda_functor(
        "if (i % 2) x += i;",
        inputs="float x",
        outputs="float x",
        index="i",
        input_output_aliases={0: 0},
    )
    np.testing.assert_array_equal(shift(X), [1, 6, -2])


def test_an_untyped_input_has_the_type_of_the_result():
    double = je.cuda_functor("x *= 2;", inputs="x", outputs="float x")
    with pytest.raises(TypeError, match="argument 'x' has dtype int32, and must be float32"):
        double(jnp.arange(3))


def test_two_types_of_one_variable_are_an_error():
    with pytest.raises(ValueError, match="'x' is an input of the type int32 and a result of the t"):
        je.cuda_functor("x *= 2;", inputs="int x", outputs="float x")


def test_an_update_is_differentiated_by_its_reference():
    descend = je.cuda_functor(
        "w -= g * g;", inputs="T g, T w", outputs="T w", reference=lambda g, w: w - g * g
    )
    descend.check(X, X)
    np.testing.assert_array_equal(jax.grad(lambda g: descend(g, X).sum())(X), -2 * X)


# ---- Results that may have no value --------------------------------------------------------------

WRONG = {
    "read_first": ("w -= x;", "w"),
    "one_path": ("if (x > 4) y = x;", "y"),
    "loop": ("for (int k = 0; k < x; ++k) y = k;", "y"),
    "switch": ("switch (int(x)) { case 1: y = 2; break; case 2: y = 3; }", "y"),
    "return": ("if (x > 4) return; y = x;", "y"),
    "second": ("s = x; if (x > 4) t = s;", "t"),
}


@pytest.mark.parametrize("dtype", ["half", "__nv_bfloat16", "__nv_fp8_e4m3", "double", "bool"])
def test_a_result_of_any_type(dtype, x64):
    functor = je.cuda_functor("if (b) y = x;", inputs=f"{dtype} x, bool b", outputs=f"{dtype} y")
    with pytest.raises(je.CompileError, match="the result 0, 'y', of 'cuda_functor' may be read"):
        functor(True if dtype == "bool" else 1.0, True)


@pytest.mark.parametrize(("text", "name"), WRONG.values(), ids=WRONG)
def test_a_result_without_a_value_is_an_error(text, name):
    outputs = "float s, float t" if name == "t" else f"float {name}"
    functor = je.cuda_functor(text, inputs="float x", outputs=outputs, name="given")
    number = int(name == "t")
    message = rf"the result {number}, '{name}', of 'given' may .*inputs='x, {name}'. Else assign it"
    with pytest.raises(je.CompileError, match=message):
        functor(X)


RIGHT = {
    "both_paths": ("if (x > 4) y = x; else y = -x;", lambda x: np.where(x > 4, x, -x)),
    "before": ("y = 1; if (x > 4) y += x;", lambda x: np.where(x > 4, 1 + x, 1)),
    "loop": ("y = 0; for (int k = 0; k < 3; ++k) y += x;", lambda x: x + x + x),
    "reference": ("float& z = y; z = x;", lambda x: x),
    "pointer": ("modff(x, &y);", np.trunc),
    "switch": ("switch (int(x)) { case 1: y = 2; break; default: y = 3; }", lambda x: 3 - (x == 1)),
}


@pytest.mark.parametrize(("text", "expected"), RIGHT.values(), ids=RIGHT)
def test_a_result_with_a_value_on_every_path(text, expected):
    functor = je.cuda_functor(text, inputs="float x", outputs="float y")
    np.testing.assert_array_equal(functor(X), expected(np.asarray(X)))


STRUCT = """
struct Split {
  void operator()(float x, float& up, float& down) const { up = x + 1; if (x > 4) down = x - 1; }
};"""


def test_a_result_of_a_struct_without_a_value():
    message = "the result 1, 'down', of 'Split' may be read .* at all. Assign it first"
    with pytest.raises(je.CompileError, match=message):
        je.cuda_functor(STRUCT, outputs=["float", "float"])(X)
    split = je.cuda_functor(STRUCT.replace("if (x > 4)", ""), outputs=["float", "float"])
    np.testing.assert_array_equal(split(X), [X + 1, X - 1])


def test_a_result_of_a_struct_without_a_name():
    text = STRUCT.replace("if (x > 4) down = x - 1;", "").replace("& down", "&")
    with pytest.raises(je.CompileError, match="the result 1, 'float', of 'Split' may be read"):
        je.cuda_functor(text, inputs="x", outputs=["float", "float"])(X)


@pytest.mark.parametrize(("dtype", "expected"), [("float", np.nan), ("half", np.nan), ("int", 0)])
def test_without_a_compiler_that_says_so_it_is_nan_or_0(dtype, expected, monkeypatch):
    monkeypatch.setattr(assigned, "_unassigned", lambda *args: None)
    functor = je.cuda_functor("if (x > 4) y = 7;", inputs="float x", outputs=f"{dtype} y")
    np.testing.assert_array_equal(functor(X), np.array([expected, 7, expected]))


def test_where_there_is_no_compiler_nothing_is_said(monkeypatch):
    def compile(*_):  # noqa: A001
        raise _extension.Unavailable("none")

    monkeypatch.setattr(_extension, "compile", compile)
    functor = je.cuda_functor("if (x > 4) y = 7;", inputs="float x", outputs="float y", name="any")
    assigned.check_assigned(functor._source, ["float32"], ["float32"])


PLAIN = ["y = x;", "s = x; y = s * s;", "y = x /* {} */;", "float d = x; y = d;"]


@pytest.mark.parametrize("text", PLAIN)
def test_plain_assignments_need_no_compiler(text):
    outputs = "float s, float y" if text.startswith("s") else "float y"
    functor = je.cuda_functor(text, inputs="float x", outputs=outputs)
    assert assigned._is_plain(functor._source)


@pytest.mark.parametrize(
    "text", ["if (x) y = x;", "y += x;", "y = y + x;", "z = y; y = x;", "set(y);", "++y; y = x;"]
)
def test_others_are_shown_to_the_compiler(text):
    functor = je.cuda_functor(text, inputs="float x", outputs="float y")
    assert not assigned._is_plain(functor._source)


def test_macros_are_shown_to_the_compiler():
    functor = je.cuda_functor(
        "y = x;", inputs="float x", outputs="float y", preamble="#define x (y)"
    )
    assert not assigned._is_plain(functor._source)
