"""What ``cuda_functor`` reads out of its arguments: the form of the text, names, types, headers."""

import re

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from jax_elementwise._codegen.cuda_functor import declaration
from jax_elementwise._cplusplus import find_struct
from jax_elementwise._source import Parameter, parse


def parsed(text, **options):
    defaults = {
        "name": None,
        "inputs": None,
        "scalars": (),
        "outputs": None,
        "index": None,
        "preamble": "",
        "headers": {},
    }
    return parse(text, **{**defaults, **options})


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
    assert [s.is_template for s in structs.values()] == [True, False, False]
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


# ---- Headers -------------------------------------------------------------------------------------


def test_headers_stand_where_they_are_included():
    headers = {"a.h": "A1\nA2", "b.h": '#pragma once\n#include "a.h"\nB', "unused.h": "U"}
    source = parsed(
        "x\n#include <a.h>  // again\n+ y",
        inputs="x, y",
        name="f",
        preamble='P1\n#include "b.h"\n  #  include <b.h> /* not again */\nP2',
        headers=headers,
    )
    assert source.preamble.split("\n") == [
        "P1",
        "#ifndef JEW_HEADER_1",
        "#define JEW_HEADER_1",
        '#line 1 "b.h"',
        "",
        '#line 1 "a.h"',
        "A1",
        "A2",
        '#line 3 "b.h"',
        "B",
        "#endif",
        '#line 3 "f, preamble"',
        "",
        "P2",
    ]  # fmt: skip
    assert source.text.split("\n") == [
        "x", '#line 1 "a.h"', "A1", "A2", '#line 3 "f"', "+ y",
    ]  # fmt: skip


def test_headers_at_the_head_of_a_body_go_before_it():
    source = parsed('#include "a.h"\nx', inputs="x", preamble="P", headers={"a.h": "A"}, name="f")
    assert source.text == "\nx"  # the lines of the user's text keep their numbers
    assert source.preamble == 'P\n#line 1 "f"\n#line 1 "a.h"\nA\n#line 2 "f"'
    text = (
        '// what it needs\n#define K \\\n  2\n#if K > 1\n#include "a.h"\n#endif\n#define L 3\nx * K'
    )
    source = parsed(text, inputs="x", headers={"a.h": "A"}, name="f")
    assert source.text == "\n" * 7 + "x * K"
    assert source.preamble.startswith(
        '#line 1 "f"\n// what it needs\n#define K \\\n  2\n#if K > 1\n'
    )
    assert source.preamble.endswith('A\n#line 6 "f"\n#endif\n#define L 3')
    unbalanced = '#if K\n#include "a.h"\nx\n#else\n2 * x\n#endif'
    source = parsed(unbalanced, inputs="x", headers={"a.h": "A"}, name="f")
    assert not source.preamble
    assert source.text.startswith('#if K\n#line 1 "a.h"\nA\n')


def test_what_is_included_in_a_comment_is_not():
    text = '/* as in\n#include "a.h"\n*/\n// #include "b.h"\n// and \\\n#include "c.h"\nx'
    assert parsed(text, inputs="x").text == text


def test_headers_under_a_condition_are_left_to_the_compiler():
    preamble = '#if 0\n#include "a.h"\n#include "missing.h"\n#endif\n#include "a.h"'
    for header in ("#pragma once\nA", "#ifndef A_H\n#define A_H\nA\n#endif", "A"):
        source = parsed("x", inputs="x", preamble=preamble, headers={"a.h": header})
        assert source.preamble.split("\n").count("A") == 2
        assert "\n#error the header 'missing.h' is not there: give its text" in source.preamble


@pytest.mark.parametrize(
    "header",
    ["cuda_fp16.h", "cuda_bf16.h", "cuda_fp8.h", "cuda_runtime.h", "cuda.h", "math.h", "cmath",
     "stdint.h", "cstdint", "stddef.h", "cstddef"],
)  # fmt: skip
def test_headers_that_are_there_are_dropped(header):
    assert parsed(f"#include <{header}>\nx", inputs="x").text == "\nx"
    replaced = parsed(f"#include <{header}>\nx", inputs="x", headers={header: "mine"})
    assert "\nmine\n" in replaced.preamble


@pytest.mark.parametrize(
    "header",
    ["// licence\n/* more\n */\n#ifndef A_H\n#define A_H\nint a;\n#endif\n",
     "// licence\n#pragma once\nint a;\n"],
    ids=["macro", "pragma"],
)  # fmt: skip
def test_a_header_with_a_guard_is_read_once_per_functor(header):
    b = '#ifndef B_H\n#define B_H\n#include "a.h"\n#endif'
    includes = '#include "b.h"\n#include "a.h"\n#include "b.h"'
    source = parsed("x", inputs="x", preamble=includes, headers={"a.h": header, "b.h": b})
    assert source.preamble.count("int a;") == 1
    (guard,) = set(re.findall(r"define (A_H|JEW_\w+)", source.preamble))
    assert declaration(source, ["float32"], [], "space").endswith(
        "".join(sorted((f"#undef {guard}\n", "#undef B_H\n"), key=lambda line: "B_H" not in line))
    )


def test_a_header_that_includes_itself_is_there_once():
    headers = {"a.h": '#include "b.h"\nA', "b.h": '#include "a.h"\nB'}
    source = parsed("x", inputs="x", preamble='#include "a.h"', headers=headers)
    assert (source.preamble.count("A"), source.preamble.count("B")) == (1, 1)


def test_the_declaration_shows_the_lines_of_the_user():
    source = parsed("\nT(x) + y", inputs="T x, y", name='a "name"\\', preamble="int p;")
    assert source.file == "a _name__"
    text = declaration(source, ["float16", "int8"], [], "space")
    assert text.startswith('namespace space {\nusing T = __half;\n#line 1 "a _name__, preamble"\n')
    assert "function(__half x, signed char y) {\n" in text
    assert '#line 1 "a _name__"\n\nT(x) + y\n' in text
    assert text.endswith('#line 1 "the kernel of a _name__"\n}\n')


# ---- Members -------------------------------------------------------------------------------------

CALL = "float operator()(float x) const { if (x > 0) { return x; } return -x; }"
MEMBERS = {
    f"float s; {CALL}": {"s": False},
    f"float s = 2, b{{3}}; {CALL} private: const float c;": {"s": True, "b": True, "c": False},
    f"static constexpr int k = 3; using T = float; enum E {{ A, B }}; {CALL}": {},
    f"std::function<int(int)> f; Pair<int, Pair<int, T>> p; {CALL}": {"f": False, "p": False},
    f"{CALL} template <class U> U g(U x) {{ return x; }} int n;": {"n": False},
    f"__device__ S(float a) : a(a) {{}} float a; {CALL}": None,
    f"explicit S(int a); {CALL} float a;": None,
    f"float w[3]; {CALL}": None,
}  # fmt: skip


@pytest.mark.parametrize("body", MEMBERS)
def test_members_of_a_struct(body):
    struct = find_struct(f"struct S {{ {body} }};", None)
    assert (None if struct.members is None else dict(struct.members)) == MEMBERS[body]


def test_members_of_a_struct_with_a_base_are_not_known():
    assert find_struct(f"struct S : Base {{ float s; {CALL} }};", None).members is None
    assert find_struct(f"struct S final {{ ns::T s; {CALL} }};", None).members == (("s", False),)


# ---- Structs and statements in disguise ----------------------------------------------------------

DISGUISED = {
    "inner_struct": f"struct S {{ struct In {{ float a; }}; float s; {CALL} }};",
    "inner_functor": f"struct S {{ float s; {CALL} struct In {{ float b; {CALL} }}; }};",
    "inner_enum": f"struct S {{ enum class Mode {{ P, Q }}; float s; {CALL} }};",
    "constexpr_static": f"struct S {{ constexpr static int N = 3; float s; {CALL} }};",
    "inline_static": f"struct S {{ inline static constexpr int N = 3; float s; {CALL} }};",
    "member_of_struct_type": f"struct P {{ int i; }}; struct S {{ float s; {CALL} }};",
    "aligned": f"struct alignas(8) S {{ float s; {CALL} }};",
    "attribute": f"struct [[nodiscard]] S final {{ float s; {CALL} }};",
    "default_type": f"template <class T = float> struct S {{ float s; {CALL} }};",
    "comment": f"struct S {{ float s; {CALL} }}; // struct Old \\\n {{ {CALL} }};",
    "character": f"struct S {{ float s; char c = u8'\"'; {CALL} /* \" */ }};",
}  # fmt: skip


@pytest.mark.parametrize("text", DISGUISED.values(), ids=DISGUISED)
def test_the_struct_is_the_one_that_is_called(text):
    struct = find_struct(text, None)
    assert struct.name == "S"
    assert struct.parameters == ("x",)
    assert [name for name, has_value in struct.members if not has_value] == ["s"]


def test_conditions_at_compile_time_are_no_functions():
    assert parsed("if constexpr (true) { return x; }", inputs="x").struct is None


SETTING = ["y = x", "y.real = x", "y[0] += x", "y += x", "y <<= 2", "++y", "y--", "set(x, &y)",
           "set(y, x)", "set(x, y )", "float& r = y; r = x", "a = b == y = x"]  # fmt: skip
READING = ["f(x).y", "p->y + x", "ns::y * x", "y + x", "x == y", "x * y_", "f(x, y + 1)"]


@pytest.mark.parametrize("text", SETTING + READING)
def test_a_result_that_is_assigned_is_told_from_a_name(text):
    source = parsed(text, inputs="x", outputs="float y")
    assert source.assigns == (text in SETTING)
