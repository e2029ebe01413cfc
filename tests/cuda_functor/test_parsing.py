"""What ``cuda_functor`` reads out of its arguments: the form of the text, names and types."""

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from support.sources import parsed

from jax_elementwise._cuda_functor.codegen import declaration
from jax_elementwise._cuda_functor.source import Parameter


def names(parameters):
    return [p.name for p in parameters]


# ---- Forms ---------------------------------------------------------------------------------------

PAIR = "struct Pair { void operator()(float x, float& a, float& b) const { a = b = x; } };"
STRUCT = "struct Add { float operator()(float x, float y) const { return x + y; } };"


@pytest.mark.parametrize(
    "text",
    [
        "x + y",
        "  x\n + y\n",
        "x + y  // the sum; not the difference",
        "x /* return; */ + y",
        "f('a') + x",
        "returned + x",
    ],
)
def test_expressions(text):
    source = parsed(text, inputs="x, y")
    assert source.is_expression
    assert not source.assigns
    assert source.struct is None
    assert source.text == text
    assert source.name == "cuda_functor"


@pytest.mark.parametrize("text", ["return x;", "float z = x; return z + y;", "if (x > 0) return x"])
def test_statements(text):
    source = parsed(text, inputs="x, y", outputs="float")
    assert not source.is_expression
    assert not source.assigns


@pytest.mark.parametrize(
    ("outputs", "assigns"),
    [("float s, float d", True), ("T s", True), ("float", False), (["T"], False), (None, False)],
    ids=str,
)
def test_names_of_results_make_assignments(outputs, assigns):
    assert parsed("s = d = x;", inputs="T x", outputs=outputs).assigns == assigns


STRUCTS = {
    "plain": (STRUCT, "Add", ["x", "y"]),
    "class": ("class A { public: float operator()(float x) const { return x; } };", "A", ["x"]),
    "template": (
        "struct A { template <class T> T operator()(T x, T y) const { return x + y; } };",
        "A",
        ["x", "y"],
    ),
    "class_template": (
        "template <class T, int N = 3>\nstruct A { A(T a); T operator()(T x) const; T a; };",
        "A",
        ["x"],
    ),
    "base": (
        "struct Base { float a; };\n"
        "struct A : public Base { float operator () (float x) const { return x + a; } };",
        "A",
        ["x"],
    ),
    "final": ("struct A final { float operator()(float x) const { return x; } };", "A", ["x"]),
    "several": (
        "struct First { float operator()(float a) const; };\n"
        "struct Last { float operator()(float b, float c) const; };\n"
        "struct Data { float d; };",
        "Last",
        ["b", "c"],
    ),
    "helper_template": (
        "template <class T> struct Twice { T value; };\n"
        "struct A { float operator()(float x) const { return Twice<float>{x}.value; } };",
        "A",
        ["x"],
    ),
    "comments": (
        "// struct No { float operator()(float q) const; };\n"
        "struct A {\n"
        "  /* float operator()(float r) const; */\n"
        '  const char* text = "float operator()(float s) const { \\" ";\n'
        "  float operator()(float x /* , y */, // z\n float w) const { return x + w; }\n"
        "};",
        "A",
        ["x", "w"],
    ),
    "characters": (
        "struct A {\n"
        "  static constexpr char quote = '\"', other = '\\'', hex = '\\x22', backslash = '\\\\';\n"
        "  static constexpr int million = 1'000'000, bits = 0b1'1;\n"
        "  float operator()(float x /* \" */, float w) const { return x + w; }\n"
        "};",
        "A",
        ["x", "w"],
    ),
    "defaults": (
        "struct A { float operator()(float x, float y = f(1, 2), int z = g<3, 4>()) const; };",
        "A",
        ["x", "y", "z"],
    ),
    "commas": (
        "struct A { float operator()(Pair<float, Pair<int, int>> p, const float& x) const; };",
        "A",
        ["p", "x"],
    ),
    "index": ("struct A { float operator()(float x, long long k) const; };", "A", ["x", "k"]),
    "types_of_results": (
        "struct A { Complex<float> operator()(float x) const; int n{}; };\n"
        "struct B { const T*operator()(float y) const; };\n"
        "struct C { decltype(auto) operator()(float z) const; };\n"
        "struct D { float &operator()(float u, float v) const; };",
        "D",
        ["u", "v"],
    ),
    "newlines": (
        "struct\nA\n{\nfloat\noperator()\n(\nfloat\nx\n,\nconst int *\ny\n)\nconst;\n};",
        "A",
        ["x", "y"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", STRUCTS)
def test_structs(case):
    text, struct, inputs = STRUCTS[case]
    source = parsed(text)
    assert (source.struct.name, source.name) == (struct, struct)
    assert names(source.inputs) == inputs
    assert not any(p.type for p in source.inputs)
    assert not source.is_expression
    assert not source.assigns
    assert source.text == text


def test_the_name_chooses_among_structs():
    text = STRUCTS["several"][0]
    source = parsed(text, name="First")
    assert (source.struct.name, source.name, names(source.inputs)) == ("First", "First", ["a"])
    source = parsed(text, name="other")
    assert (source.struct.name, source.name, names(source.inputs)) == ("Last", "other", ["b", "c"])
    assert parsed(text, name="Data").struct.name == "Last"  # which is no functor


@pytest.mark.parametrize("name", "ABC")
def test_types_of_results_may_be_more_than_a_word(name):
    assert parsed(STRUCTS["types_of_results"][0], name=name).struct.name == name


def test_templates_and_results():
    structs = {
        text: parsed(text, outputs=outputs).struct
        for text, outputs in (
            ("template <typename T> struct A { T operator()(T x) const; };", None),
            ("struct A { template <class T> T operator()(T x) const; };", None),
            ("struct A { void operator()(float x, float& y) const; };", "float32"),
        )
    }
    assert [s.template for s in structs.values()] == ["T", None, None]
    assert [s.returns_void for s in structs.values()] == [False, False, True]


def test_a_result_that_is_not_assigned_is_returned():
    source = parsed("x * 2", inputs="T x", outputs="T twice")
    assert source.is_expression
    assert not source.assigns
    assert names(source.outputs) == [""]
    assert parsed("twice = x * 2;", inputs="T x", outputs="T twice").assigns


def test_a_structs_results_and_index_are_no_inputs():
    text = "struct A { void operator()(float x, int y, long long k, float& s, bool& t) const; };"
    source = parsed(text, outputs=["float", "bool"], index="k")
    assert names(source.inputs) == ["x", "y"]
    assert source.index == "k"
    assert source.assigns
    source = parsed("struct A { float operator()(float x, long long k) const; };", index="k")
    assert names(source.inputs) == ["x"]


def test_inputs_give_a_struct_types_and_other_names():
    source = parsed(STRUCT, inputs="float a, T b", scalars="half slope")
    assert source.inputs == (Parameter("a", "float32"), Parameter("b", "T"))
    assert source.scalars == (Parameter("slope", "float16"),)
    assert names(source.parameters) == ["a", "b", "slope"]


# ---- Declarations --------------------------------------------------------------------------------

TYPES = {
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "__half": "float16",
    "nv_bfloat16": "bfloat16",
    "__nv_bfloat16": "bfloat16",
    "__nv_fp8_e4m3": "float8_e4m3fn",
    "__nv_fp8_e5m2": "float8_e5m2",
    "char": "int8",
    "signed char": "int8",
    "unsigned  char": "uint8",
    "int8_t": "int8",
    "uint8_t": "uint8",
    "short": "int16",
    "unsigned short": "uint16",
    "int": "int32",
    "unsigned": "uint32",
    "unsigned int": "uint32",
    "int64_t": "int64",
    "long long": "int64",
    "unsigned long long": "uint64",
    "bool": "bool",
    "bfloat16": "bfloat16",
    "complex64": "complex64",
    "T": "T",
}


@pytest.mark.parametrize("spelled", TYPES)
def test_types_by_name(spelled):
    assert parsed("x", inputs=f"{spelled} x").inputs == (Parameter("x", TYPES[spelled]),)
    assert parsed("x", inputs=[f"  {spelled} x"]).inputs == (Parameter("x", TYPES[spelled]),)
    assert parsed("z = x;", inputs=f"{spelled} x", outputs=f"{spelled} z").outputs == (
        Parameter("z", TYPES[spelled]),
    )


@pytest.mark.parametrize(
    ("given", "dtype"),
    [
        (jnp.float32, "float32"),
        (np.float16, "float16"),
        (np.dtype("int8"), "int8"),
        (jnp.bfloat16, "bfloat16"),
        (ml_dtypes.float8_e5m2, "float8_e5m2"),
        (jnp.dtype("uint64"), "uint64"),
        (np.bool_, "bool"),
        (bool, "bool"),
        ("half", "float16"),
        ("T", "T"),
    ],
    ids=str,
)
def test_types_of_results(given, dtype):
    for outputs in (given, [given], (given,)):
        assert parsed("x", inputs="T x", outputs=outputs).outputs == (Parameter("", dtype),)
    several = parsed(PAIR, inputs="T x", outputs=[given, "float"]).outputs
    assert several == (Parameter("", dtype), Parameter("", "float32"))


def test_declarations_are_strings_or_sequences_of_them():
    expected = (Parameter("x"), Parameter("y", "float32"), Parameter("z", "T"))
    for inputs in ("x, float y, T z", ["x", "float y", "T z"], ("x", " float  y", "T z ")):
        assert parsed("x", inputs=inputs).inputs == expected
    assert parsed("x", inputs="x,").inputs == (Parameter("x"),)
    source = parsed("x", inputs="x", scalars=["a", "half b"], index="i")
    assert source.scalars == (Parameter("a"), Parameter("b", "float16"))
    assert source.index == "i"
    assert not Parameter("y", "float32").is_letter
    assert Parameter("y", "T").is_letter


def test_a_functor_of_scalars_only_has_a_shape():
    assert names(parsed("a", inputs=(), scalars="a").parameters) == ["a"]


# ---- Bodies --------------------------------------------------------------------------------------


def test_conditions_at_compile_time_are_no_functions():
    assert parsed("if constexpr (true) { return x; }", inputs="x").struct is None


SETTING = ["y = x", "y.real = x", "y[0] += x", "y += x", "y <<= 2", "++y", "y--", "set(x, &y)",
           "set(y, x)", "set(x, y )", "float& r = y; r = x", "a = b == y = x"]  # fmt: skip
READING = ["f(x).y", "p->y + x", "ns::y * x", "y + x", "x == y", "x * y_", "f(x, y + 1)"]


@pytest.mark.parametrize("text", SETTING + READING)
def test_a_result_that_is_assigned_is_told_from_a_name(text):
    source = parsed(text, inputs="x", outputs="float y")
    assert source.assigns == (text in SETTING)


def test_the_declaration_shows_the_lines_of_the_user():
    source = parsed("\nT(x) + y", inputs="T x, y", name='a "name"\\', preamble="int p;")
    assert source.file == "a _name__"
    text = declaration(source, ["float16", "int8"], [], "space")
    assert text.startswith('namespace space {\nusing T = __half;\n#line 1 "a _name__, preamble"\n')
    assert "function(__half x, signed char y) {\n" in text
    assert '#line 1 "a _name__"\n\nT(x) + y\n' in text
    assert text.endswith('#line 1 "the kernel of a _name__"\n}\n')
