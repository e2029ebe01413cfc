"""Which class of users' C++ is the functor, and what its members are."""

import re
import subprocess

import pytest

import jax_elementwise as je
from jax_elementwise._cuda_functor.cplusplus import Variable, find_struct, is_name

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
    members = struct.members
    assert (None if members is None else {m.name: m.has_value for m in members}) == MEMBERS[body]


def test_members_of_a_struct_with_a_base_are_not_known():
    assert find_struct(f"struct S : Base {{ float s; {CALL} }};", None).members is None
    assert find_struct(f"struct S final {{ ns::T s; {CALL} }};", None).members == (
        Variable("s", "ns::T", False),
    )


def test_types_of_parameters_and_members():
    text = "template <class T> struct S { T a, b = 1; mutable const U<T> c; float d; T operator()"
    struct = find_struct(f"{text}(const T& x, T y = 2, volatile ns::V z, T* w) const; }};", None)
    assert [(v.name, v.type) for v in struct.parameters] == [
        ("x", "T"),
        ("y", "T"),
        ("z", "ns::V"),
        ("w", "T *"),
    ]
    assert [(v.name, v.type) for v in struct.members] == [
        ("a", "T"),
        ("b", "T"),
        ("c", "U"),
        ("d", "float"),
    ]
    assert struct.of_template(2, 1) == [(0, "x"), (1, "y"), (2, "a")]


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
    assert [x.name for x in struct.parameters] == ["x"]
    assert [member.name for member in struct.members if not member.has_value] == ["s"]


def test_a_macro_that_stands_for_nothing_is_no_name(host_compiler, tmp_path):
    """Where a name is one, as __device__ is, the parameter has none, and what is read is 0 or 1."""
    names = "".join(
        f"#include <jax_elementwise/{header}>\n"
        for header in (
            "kernel.h",
            *(f"cuda/{n}.h" for n in ("names", "half", "bfloat16", "float8")),
        )
    )
    source = tmp_path / "macros.cc"
    source.write_text(names)
    command = ["g++", "-std=c++17", "-dM", "-E", f"-I{je.include_dir()}", source]
    command += ["-include", "jax_elementwise/host/host.h"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    empty = re.findall(r"^#define (\w+) *$", done.stdout, re.MULTILINE)
    assert {"__device__", "JAX_ELEMENTWISE_DEVICE"} & set(empty)
    assert [name for name in empty if is_name(name)] == []
