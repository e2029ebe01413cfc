"""Which class of users' C++ is the functor, and what its members are."""

import pytest

from jax_elementwise._cuda_functor.cplusplus import find_struct

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
