"""Functions of arrays from CUDA C++: values, types of operands and results, scalars, messages."""

import inspect
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import TARGET, lowered, random_array
from support import ulp
from support.sampling import sampled

import jax_elementwise as je
from jax_elementwise import _runtime
from jax_elementwise._cuda_functor.codegen import CUDA_TYPES

pytestmark = pytest.mark.usefixtures("host_compiler")

FLOATS = ("float32", "float64", "float16", "bfloat16")
INTS = tuple(d for d in CUDA_TYPES if "int" in d)
NARROW = ("float16", "bfloat16")


def same(actual, expected):
    assert str(actual.dtype) == str(expected.dtype)
    ulp.assert_same(np.asarray(actual), np.asarray(expected))


def operands(rng, dtype, count=2, size=1021):
    return [np.asarray(random_array(rng, (size,), dtype)) for _ in range(count)]


# ---- Values --------------------------------------------------------------------------------------

FORMS = {
    "expression": ("x * y - x", {"inputs": "x, y"}),
    "body": ("auto z = x * y;\nreturn z - x;", {"inputs": "x, y"}),
    "assignment": ("z = x * y; z = z - x;", {"inputs": "T x, T y", "outputs": "T z"}),
    "struct": (
        "struct F { template <class T> __device__ T operator()(T x, T y) const {"
        " return x * y - x; } };",
        {},
    ),
    "class_template": (
        "template <int N> struct By { template <class T> static T get(T x) { return x; } };\n"
        "struct F { template <class T> T operator()(T x, const T& y) const {"
        " return By<1>::get(x) * y - x; } };",
        {},
    ),
}


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("form", "dtype"),
    sampled(
        itertools.product(FORMS, FLOATS),
        [*((form, "float32") for form in FORMS), *(("struct", dtype) for dtype in FLOATS[1:])],
    ),
)
def test_every_form_rounds_after_every_operation(form, dtype, rng, x64):
    text, options = FORMS[form]
    f = je.cuda_functor(text, **options)
    x, y = operands(rng, dtype)
    same(f(x, y), x * y - x)
    same(jax.jit(f)(x, y), x * y - x)
    same(f(x[3:-4], y[7:]), x[3:-4] * y[7:] - x[3:-4])


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", INTS)
def test_integers_are_cpps(dtype, rng, x64):
    """Those of less than 32 bits become int before arithmetic."""
    x, y = operands(rng, dtype)
    wide = dtype if np.dtype(dtype).itemsize >= 4 else "int32"
    same(je.cuda_functor("x * y - 3", inputs="x, y")(x, y), (x.astype(wide) * y - 3).astype(wide))
    typed = je.cuda_functor("x * y - 3", inputs="T x, T y", outputs="T")
    same(typed(x, y), (x * y - 3).astype(dtype))


def test_int8_times_int8_is_int32():
    x = np.int8([100, -128, 127])
    same(je.cuda_functor("x * y", inputs="x, y")(x, x), np.int32([10000, 16384, 16129]))


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_floats_of_8_bits_are_converted(dtype, rng):
    x, y = operands(rng, dtype)
    f = je.cuda_functor("T(float(x) * float(y))", inputs="T x, T y")
    with np.errstate(all="ignore"):
        same(f(x, y), (x.astype(np.float32) * y.astype(np.float32)).astype(x.dtype))
    same(je.cuda_functor("x", inputs="x, y")(x, y), x)
    same(je.cuda_functor("float(x)", inputs="x")(x), x.astype(np.float32))


def test_bools(rng):
    x, y = operands(rng, "bool")
    same(je.cuda_functor("x && !y", inputs="x, y")(x, y), x & ~y)
    same(je.cuda_functor("x + y", inputs="x, y")(x, y), x.astype(np.int32) + y)
    same(je.cuda_functor("x + y", inputs="x, y", outputs=bool)(x, y), x | y)


def test_complex_numbers(rng):
    x, y = (a + 1j * b for a, b in (operands(rng, "float32") for _ in range(2)))
    product = je.cuda_functor("x * y", inputs="x, y")(x, y)
    assert product.dtype == np.complex64
    np.testing.assert_allclose(product, x * y, 1e-5)
    same(je.cuda_functor("x + y", inputs="x, y")(x, y), x + y)


@pytest.mark.parametrize("dtype", [*NARROW, "float32", "int8"])
def test_sizes(dtype, rng):
    f = je.cuda_functor("T(x + y)", inputs="T x, T y", outputs="T")
    for size in (0, 1, 7, 8, 9, 4097):
        x, y = operands(rng, dtype, size=size)
        same(f(x, y), x + y)


def test_arguments_broadcast(rng):
    f = je.cuda_functor("x * y + z", inputs="x, y", scalars="z")
    for shapes in (((3, 1, 5), (4, 1)), ((), (7,)), ((2, 3), ()), ((0, 4), (4,)), ((), ())):
        x, y = (np.asarray(random_array(rng, s)) for s in shapes)
        same(f(x, y, 2.5), (x * y + np.float32(2.5)).astype(np.float32))


@pytest.mark.parametrize("shape", [(5,), (3, 7), ()])
def test_several_results(shape, rng):
    x, y = (np.asarray(random_array(rng, shape)) for _ in range(2))
    body = je.cuda_functor(
        "s = x + y; if (x > y) { m = true; } else { m = false; }",
        inputs="float x, float y",
        outputs="float s, bool m",
    )
    struct = je.cuda_functor(
        "struct Both { template <class T> void operator()(T x, T y, T& s, bool& m) const {"
        " s = x + y; m = x > y; } };",
        inputs="T x, T y",
        outputs=["T", bool],
    )
    for f in (body, struct):
        results = f(x, y)
        assert isinstance(results, tuple)
        same(results[0], x + y)
        same(results[1], x > y)


def test_one_result_that_is_assigned_is_no_tuple():
    f = je.cuda_functor("z = x; z += 1;", inputs="T x", outputs="T z")
    same(f(np.float32([1, 2])), np.float32([2, 3]))


def test_parameters_may_be_changed():
    f = je.cuda_functor("x += y; y = 7; return x * y;", inputs="x, y")
    same(f(np.float32([1, 2]), 1), np.float32([14, 21]))


def test_helpers_in_preambles_and_headers():
    f = je.cuda_functor(
        "thrice(x) + kOne + twice(x)",
        inputs="float x",
        preamble='#include "twice.h"\n#define ONE 1\nconstexpr float kOne = ONE;\n'
        "__device__ float thrice(float x) { return x + twice(x); }",
        headers={"twice.h": "#pragma once\ninline float twice(float x) { return 2 * x; }"},
    )
    same(f(np.float32([1, 2])), np.float32([6, 11]))


def test_cudas_functions_need_no_header(rng):
    x = np.abs(operands(rng, "float32", 1)[0])
    f = je.cuda_functor("fmaf(rsqrtf(x), __expf(x), max(x, 1.0f))", inputs="x")
    np.testing.assert_allclose(f(x), np.exp(x) / np.sqrt(x) + np.maximum(x, 1), 1e-5)


# ---- Types of results ----------------------------------------------------------------------------

TEMPLATE = "struct F { template <class T> T operator()(T x) const { return x + x; } };"


def test_the_result_has_the_type_that_cpp_gives_it(x64):
    f = je.cuda_functor(TEMPLATE)
    for dtype in (*FLOATS, "int32", "uint64", "int8", "complex64"):
        assert f(jnp.ones(3, dtype)).dtype == dtype
    x = jnp.ones(3)
    for text, dtype in {
        "x > 1": "bool",
        "x * 2.0": "float64",
        "(short)x": "int16",
        "(char)x": "int8",
        "(unsigned char)x": "uint8",
        "(long)x": "int64",
        "(unsigned long long)x": "uint64",
        "__half(x)": "float16",
        "nv_bfloat16(x)": "bfloat16",
    }.items():
        assert je.cuda_functor(text, inputs="float x")(x.astype("float32")).dtype == dtype


def test_without_64_bit_types_results_have_32_bits():
    x = np.float32([1, 2])
    same(je.cuda_functor("x * 2.5", inputs="x")(x), x * np.float32(2.5))
    same(je.cuda_functor("(long long)x", inputs="x")(x), np.int32([1, 2]))
    same(je.cuda_functor("x", inputs="x", outputs="double")(x), x)
    same(je.cuda_functor("z = x;", inputs="x", outputs="double z")(x), x)


def test_declared_results_are_converted_to():
    x = np.float32([1.75, -2.5])
    same(je.cuda_functor("x", inputs="x", outputs=jnp.int8)(x), np.int8([1, -2]))
    same(je.cuda_functor("x", inputs="x", outputs="half")(x), x.astype(np.float16))
    same(
        je.cuda_functor("x * n", inputs="T x, U n", outputs="U")(x, np.int16(3)), np.int16([5, -7])
    )


def test_the_reference_decides_the_type_of_the_result():
    f = je.cuda_functor("x", inputs="x", reference=lambda x: (2 * x).astype(jnp.bfloat16))
    assert f(jnp.ones(3)).dtype == jnp.bfloat16


@pytest.mark.parametrize("text", ["return;", "(void)x;", "return &x;", "return Pair{x, x};"])
def test_a_result_that_is_no_number(text):
    f = je.cuda_functor(text, inputs="x", name="f", preamble="struct Pair { float a, b; };")
    with pytest.raises(TypeError, match="'f' returns, for float32, what is no element"):
        f(jnp.ones(3))


# ---- Operands ------------------------------------------------------------------------------------


def test_weak_scalars_take_the_type_of_arrays():
    f = je.cuda_functor("x + y", inputs="x, y")
    for dtype in (*NARROW, "float32"):
        same(f(jnp.ones(2, dtype), 0.1), (jnp.ones(2, dtype) + 0.1).astype(dtype))
        same(f(2, jnp.ones(2, dtype)), jnp.full(2, 3, dtype))
    assert f(1, 2).dtype == jnp.int32
    assert f(1, 2.5).dtype == jnp.float32
    assert f(jnp.int8([1]), 2).dtype == jnp.int32
    assert je.cuda_functor("y", inputs="x, y")(jnp.int8([1]), 2).dtype == jnp.int8
    typed = je.cuda_functor("y", inputs="T x, T y")
    assert typed(jnp.float16([1]), 2).dtype == jnp.float16
    assert typed(1, 2.5) == 2.5
    assert typed(2.5, 1).dtype == jnp.float32
    assert je.cuda_functor("x", inputs="half x")(1.5).dtype == jnp.float16


def test_arguments_by_position_and_by_name():
    f = je.cuda_functor("a * x - y", inputs="x, y", scalars="a")
    x = np.float32([1, 2])
    expected = 3 * x - 5
    same(f(x, 5.0, 3.0), expected)
    same(f(x, a=3.0, y=5.0), expected)
    same(f(a=3.0, y=np.float32(5), x=x), expected)
    same(f(x, jnp.full(2, 5.0), jnp.float32(3)), expected)


def test_new_values_of_scalars_neither_trace_nor_compile(directory, compilations):
    f = je.cuda_functor("a * x", inputs="x", scalars="float a", name="scaled")
    x = jnp.ones(5)
    traces = [f(x, 2.0), f(x, np.float32(2))]  # weakly typed, and not
    compiled = je.cache_info().compilations, len(compilations)
    assert compiled[0] == 2  # the kernel, and what asked for the type
    traces += [f(x, a) for a in (3.0, np.float32(4), 5.0)]
    np.testing.assert_array_equal(np.stack(traces)[:, 0], [2, 2, 3, 4, 5])
    assert (je.cache_info().compilations, len(compilations)) == compiled


def test_scalars_are_read_once_per_thread():
    f = je.cuda_functor("a * x", inputs="x", scalars="float a")
    assert "Scalar<float>{in1[0]}" in f.cuda_source(jnp.ones(5), 2.0)


@pytest.mark.parametrize("alias", [{0: 0}, {1: 0}])
def test_aliases(alias):
    f = je.cuda_functor("x - a * y", inputs="x, y", scalars="a", input_output_aliases=alias)
    x, y = np.float32([5, 6]), np.float32([1, 2])
    (given,) = alias
    text = lowered(f, x, y, 2.0, platform="cpu")
    assert f"operand_index = {given}" in text
    g = jax.jit(f, donate_argnums=given)
    same(g(jnp.asarray(x), jnp.asarray(y), 2.0), x - 2 * y)
    same(f(x, y, 2.0), x - 2 * y)


# ---- Messages ------------------------------------------------------------------------------------

X = np.float32([1, 2])
WRONG = {
    "few": ((X,), {}, "'f': missing a required argument: 'y'"),
    "many": ((X, X, 1.0, X), {}, "'f': too many positional arguments"),
    "unknown": ((X, X), {"b": 1.0}, "'f': .*'a'|'f': got an unexpected keyword argument 'b'"),
    "twice": ((X, X, 1.0), {"x": X}, "'f': multiple values for argument 'x'"),
    "dtype": ((np.int32([1]), X, 1.0), {}, "'f': argument 'x' has dtype int32, .* float32"),
    "weak": ((1j, X, 1.0), {}, "'f': argument 'x' is a complex64, and must be float32"),
    "pytree": (({"k": X}, X, 1.0), {}, "'f' takes arrays, but argument 'x' is"),
    "none": ((X, None, 1.0), {}, "'f' takes arrays, but argument 'y' is None"),
    "array": ((X, X, X), {}, r"'f': the scalar 'a' must be .* not of shape \(2,\). Make"),
}  # fmt: skip


def test_what_converting_takes_is_said():
    f = je.cuda_functor("x", inputs="double x", name="f")
    message = "'f': argument 'x' has dtype float32, and must be float64. Convert it"
    with pytest.raises(TypeError, match=rf"{message}, which takes jax_enable_x64\."):
        f(X)
    with jax.enable_x64(True), pytest.raises(TypeError, match=rf"{message}\."):
        f(X)


@pytest.mark.parametrize("case", WRONG)
@pytest.mark.parametrize("lowering", ["auto", "xla"])
def test_wrong_arguments(case, lowering):
    args, options, message = WRONG[case]
    f = je.cuda_functor(
        "a * x + y", inputs="float x, y", scalars="float a", name="f", lowering=lowering
    )
    with pytest.raises(TypeError, match=message):
        f(*args, **options)


def test_python_scalars_become_declared_types_under_strict_promotion():
    f = je.cuda_functor("a * x", inputs="float x", scalars="float a", outputs="float")
    with jax.numpy_dtype_promotion("strict"):
        np.testing.assert_array_equal(f(jnp.ones(3), 2), [2, 2, 2])


def test_wrong_types_of_declared_integers_and_letters():
    f = je.cuda_functor("x << n", inputs="int x, int n", name="f")
    with pytest.raises(TypeError, match="argument 'n' is a float32, and must be int32"):
        f(jnp.int32([1]), 2.0)
    f = je.cuda_functor("x + y", inputs="T x, T y", name="f")
    message = (
        "argument 'y' has dtype int32, and another one of the same type T has float32. Convert"
    )
    with pytest.raises(TypeError, match=message):
        f(jnp.ones(2), jnp.int32([1]))


@pytest.mark.parametrize("index", [None, "i"])
def test_shapes_that_do_not_broadcast(index):
    f = je.cuda_functor("x + y", inputs="x, y", index=index, name="f")
    with pytest.raises(
        ValueError, match=r"arguments of 'f' do not broadcast: x: \(2,\), y: \(3,\)"
    ):
        f(jnp.ones(2), jnp.ones(3))


BROKEN = {
    "expression": ("x +\n  nope", {}, "f:2:", "nope"),
    "body": ("float z = x;\n\n  z = nope;\n return z;", {}, "f:3:", "nope"),
    "assignment": ("\nz = nope;", {"outputs": "float z"}, "f:2:", "nope"),
    "struct": ("struct f {\n float operator()(float x) const {\n  return nope; }\n};",
               {"inputs": None}, "f:3:", "nope"),
    "template": ("struct f {\n template <class T>\n T operator()(T x) const {\n return x.nope;}};",
                 {"inputs": None}, "f:4:", "nope"),
    "preamble": ("x", {"preamble": "#include <cmath>\n\nfloat g() { return nope; }"},
                 "f, preamble:3:", "nope"),
    "header": ("x", {"preamble": "#include <a.h>", "headers": {"a.h": "//\nfloat g() { nope; }"}},
               "a.h:2:", "nope"),
    "header_of_text": ("#include <a.h>\nx", {"headers": {"a.h": "float g() {\n\n nope; }"}},
                       "a.h:3:", "nope"),
    "after_header": ("x +\n#include <a.h>\nnope", {"headers": {"a.h": "int a;"}}, "f:3:", "nope"),
}  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize("outputs", [None, "float"])
@pytest.mark.parametrize("case", BROKEN)
def test_compilers_messages_show_the_users_lines(case, outputs):
    text, options, place, word = BROKEN[case]
    f = je.cuda_functor(text, **{"inputs": "x", "name": "f", "outputs": outputs, **options})
    with pytest.raises(je.CompileError, match=rf"(?m)^{place}\d+: error: .*{word}"):
        f(np.float32([1]))


def test_names_and_representation():
    f = je.cuda_functor("x", inputs="x", scalars="a", index="i", name="my op!")
    assert repr(f) == "<CUDA functor my op!>"
    assert f.__name__ == "my op!"
    assert str(inspect.signature(f)) == "(x, a)"
    assert "ew_my_op" in f.cuda_source(X, 1.0)
    assert je.cuda_functor(TEMPLATE).__name__ == "F"


def test_the_same_functor_twice_is_one_kernel(directory):
    for _ in range(2):
        same(je.cuda_functor("x + 1.25f", inputs="x")(X), X + np.float32(1.25))
    assert _runtime.counters()["compilations"] == 2
    assert TARGET in lowered(je.cuda_functor("x", inputs="x", outputs="float"), X)


# ---- What the text says --------------------------------------------------------------------------

TWICE = {
    "members_named_like_results": ("make_float2(x, 2 * x).y", {"outputs": "float y"}),
    "semicolon_and_comment": ("2 * x;;  // twice", {"outputs": "float"}),
    "continued_comment": ("// comment \\\n return 5;\n2 * x", {"outputs": "float"}),
    "include_in_a_comment": (
        '/*\n#include "a.h"\n*/\n#ifndef K\n#define K 2\n#endif\nx * K',
        {"outputs": "float", "headers": {"a.h": "#define K 3"}},
    ),
    "include_that_is_left_out": (
        '#ifdef UNDEFINED\n#include "a.h"\n#include "missing.h"\n#endif\n#include "a.h"\ntwo(x)',
        {
            "outputs": "float",
            "headers": {"a.h": "#pragma once\nfloat two(float x) { return 2 * x; }"},
        },
    ),
    "macro_before_its_header": (
        '#define K 2\n#include "a.h"\n'
        "struct S { float operator()(float x) const { return x * L; } };",
        {"headers": {"a.h": "#ifndef K\n#define K 3\n#endif\nconstexpr int L = K;"}},
    ),
    "header_that_is_included_twice": (
        '#define X(n) s += n * x;\nfloat s = 0;\n#include "list.h"\n#include "list.h"\nreturn s;',
        {"outputs": "float", "headers": {"list.h": "X(0.25f)\nX(0.75f)"}},
    ),
    "nested_struct": (
        "struct S { struct In { float a; };"
        " float operator()(float x) const { In i{x}; return 2 * i.a; } };",
        {},
    ),
}  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize("case", TWICE)
def test_texts_that_double(case, nvrtc):
    text, options = TWICE[case]
    inputs = None if "struct S" in text else "float x"
    f = je.cuda_functor(text, inputs=inputs, **options)
    x = jnp.float32([1, -2])
    np.testing.assert_array_equal(f(x), 2 * x)
    assert f.cubin(x)[:4] == b"\x7fELF"


def test_parameters_named_like_words_of_python():
    f = je.cuda_functor(
        "struct S { float lambda; float operator()(float in) const { return lambda * in; } };",
        scalars="float lambda",
    )
    np.testing.assert_array_equal(f(in_=jnp.float32([1, 2]), lambda_=3.0), [3, 6])


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32", "int64", "uint64"])
@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_floats_become_integers_as_everywhere(dtype, kind, x64):
    """Out of bounds this is undefined in C++, and has a value in JAX."""
    x = jnp.array([np.nan, np.inf, -np.inf, 3e9, -3e9, 300.5, -300.5, 2.75, 1e30], kind)
    f = je.cuda_functor("x", inputs="x", outputs=dtype)
    np.testing.assert_array_equal(f(x), je.elementwise(lambda x: x.astype(dtype))(x))
