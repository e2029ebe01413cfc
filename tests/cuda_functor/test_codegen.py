"""Users' C++ inside of kernels: it compiles for all GPUs, and pairs of elements stay pairs."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import reference, sass, simt, ulp
from support.sass import every_architecture

import jax_elementwise as je
from jax_elementwise._cuda_functor.codegen import CUDA_TYPES

pytestmark = pytest.mark.usefixtures("x64")

NARROW = ("float16", "bfloat16")


def spec(dtype, shape=(64,)):
    return jax.ShapeDtypeStruct(shape, dtype)


def cubin_for(architecture, f, *specs, **scalars):
    """Machine code for a GPU of ``every_architecture``."""
    sass.require_nvrtc()
    return f.cubin(*specs, arch=f"sm_{sass.number(architecture)}", **scalars)


def own_text(source):
    """A kernel's text without that of users."""
    return source[source.rindex("\nnamespace jax_elementwise {") :]


# ---- Everything compiles -------------------------------------------------------------------------

FORMS = {
    "expression": ("T(y)", {"inputs": "T x, T y"}),
    "body": ("T z = y;\nif (i > 3) z = x;\nreturn z;", {"inputs": "T x, T y", "index": "i"}),
    "assignment": ("z = x; w = T(y);", {"inputs": "T x, T y", "outputs": "T z, T w"}),
    "struct": (
        "struct F { int n; template <class T> __device__ __forceinline__ T operator()(T x, T y)"
        " const { return n > 1 ? x : y; } };",
        {"scalars": "int n"},
    ),
}


@every_architecture
@pytest.mark.parametrize("dtype", CUDA_TYPES)
def test_every_dtype_compiles_for_old_and_new_gpus(dtype, architecture):
    form = list(FORMS)[list(CUDA_TYPES).index(dtype) % len(FORMS)]
    text, options = FORMS[form]
    f = je.cuda_functor(text, **{"outputs": dtype, **options})
    specs = [spec(dtype)] * 2 + [spec("int32", ())] * (form == "struct")
    assert cubin_for(architecture, f, *specs)[:4] == b"\x7fELF"


@pytest.mark.sampled
@every_architecture
@pytest.mark.parametrize("dtype", ["float32", *NARROW])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_compiles_for_old_and_new_gpus(form, dtype, architecture):
    text, options = FORMS[form]
    f = je.cuda_functor(text, **options)  # NVRTC finds the type of the result, too
    specs = [spec(dtype)] * 2 + [spec("int32", ())] * (form == "struct")
    cubin = cubin_for(architecture, f, *specs)
    codes = Counter(code.split(".")[0] for code in sass.opcodes(cubin))
    assert codes["LDL"] == codes["STL"] == 0
    accesses = Counter(map(sass.access_bits, _codes(cubin, "LDG")))
    assert accesses[128] == 2 - (form == "expression")  # which has no use for x


def _codes(cubin, *names):
    return [code for code in sass.opcodes(cubin) if code.split(".")[0] in names]


@pytest.mark.parametrize(
    "text",
    ["x + y  // @ and @_functor", 'x + (sizeof("@ \\"@") > 0 ? y : x)', "x + y /* { ( \" */",
     "x +\\\n y", "x + y //"],
)  # fmt: skip
def test_signs_in_the_text_of_users(text, nvrtc):
    f = je.cuda_functor(text, inputs="x, y", outputs="float", name='a "b@c" \\ \n?')
    x = jnp.float32([1, 2])
    np.testing.assert_array_equal(f(x, x), [2, 4])
    assert f.cubin(x, x)[:4] == b"\x7fELF"
    assert text in f.cuda_source(x, x)


def test_the_index_is_computed():
    f = je.cuda_functor("x + i", inputs="float x", index="i", outputs="float")
    cubin = f.cubin(spec("float32"))
    assert Counter(map(sass.access_bits, _codes(cubin, "LDG"))) == {128: 1, 32: 4}


# ---- Namespaces ----------------------------------------------------------------------------------


def test_functors_of_one_kernel_do_not_see_each_other(nvrtc):
    header = {"h.h": "#ifndef H\n#define H\ninline float helper(float x) { return x + K; }\n#endif"}
    one, two = (
        je.cuda_functor(
            "helper(x)", inputs="float x", outputs="float", headers=header,
            preamble=f'constexpr int K = {k};\n#include "h.h"', name=f"f{k}",
        )
        for k in (1, 2)
    )  # fmt: skip
    f = je.elementwise(lambda x: one(x) + 10 * two(x) + 100 * one(2 * x))
    x = jnp.float32([0, 1])
    text = f.cuda_source(x)
    assert re.findall(r"^namespace (source\d) {", text, re.MULTILINE) == ["source0", "source1"]
    assert len(re.findall(r"source0::function\(", text)) == 2
    np.testing.assert_array_equal(f(x), [121, 332])
    assert f.cubin(x)[:4] == b"\x7fELF"


def test_macros_end_with_their_functor(nvrtc):
    """Also those that have the names of what stands after it: ours, and another functor's."""
    one = je.cuda_functor(
        "WIDE(x, K) + (M_E > 2)", inputs="float x", outputs="float", name="one",
        preamble="#define K 2.0f\n  # define WIDE(x, y) \\\n ((x) * (y))\n"
        "#ifndef M_E\n#define M_E 0\n#endif\n"
        "#define v0 nonsense\n#define Output nonsense\n#define make_tuple nonsense",
    )  # fmt: skip
    two = je.cuda_functor("float K = x + 1; return K;", inputs="float x", outputs="float")
    three = je.cuda_functor("x * (M_E > 2)", inputs="float x", outputs="float")
    f = je.elementwise(lambda x: three(two(one(x) + jnp.sin(0 * x))))
    x = jnp.float32([0, 1])
    np.testing.assert_array_equal(f(x), [2, 4])
    assert f.cubin(x)[:4] == b"\x7fELF"
    assert "#undef" not in je.cuda_functor("x", inputs="float x").cuda_source(x)


def test_macros_of_a_functor_are_not_those_of_the_next():
    def scaled(value):
        return je.cuda_functor(
            "x * TILE_MAX * K_MIN", inputs="float x", outputs="float", name=f"by{value}",
            preamble=f"#ifndef TILE_MAX\n# /* a */ define TILE_MAX {value}\n#endif\n"
            "enum { K_MIN = 1 };",
        )  # fmt: skip

    one, two = scaled(2), scaled(3)
    x = jnp.float32([0, 1])
    f = je.elementwise(lambda x: one(x) + 10 * two(x))
    np.testing.assert_array_equal(f(x), [0, 32])


def test_one_text_for_two_types_is_two_namespaces():
    twice = je.cuda_functor("x + x", inputs="T x", outputs="T")
    f = je.elementwise(lambda x, n: twice(x) + twice(n))
    text = f.cuda_source(spec("float32"), spec("int32"))
    assert "using T = float;" in text
    assert "using T = int;" in text
    equal = je.cuda_functor("x + x", inputs="T x", outputs="T")
    g = je.elementwise(lambda x, y: twice(x) + equal(y))
    assert g.cuda_source(spec("float32"), spec("float32")).count("\nnamespace source") == 1


# ---- Pairs ---------------------------------------------------------------------------------------

PAIR = {"float16": ("half", "half2"), "bfloat16": ("__nv_bfloat16", "__nv_bfloat162")}
OPERATIONS = {
    "add": ("x + y", "__hadd2({x}, {y})", lambda x, y: x + y),
    "mul": ("x * y", "__hmul2({x}, {y})", lambda x, y: x * y),
}


def apply2(operation, dtype):
    single, double = PAIR[dtype]
    x, y = (f"*reinterpret_cast<const {double}*>({n})" for n in "xy")
    return (
        f"__device__ void Apply2({single}* out, const {single}* x, const {single}* y) const {{"
        f" *reinterpret_cast<{double}*>(out) = {OPERATIONS[operation][1].format(x=x, y=y)}; }}"
    )


def pairwise(operation, dtype, *, pairs=True):
    """A functor with Apply2, or the same one without."""
    return je.cuda_functor(
        f"struct Op {{ template <class T> __device__ T operator()(T x, T y) const {{"
        f" return {OPERATIONS[operation][0]}; }}\n{apply2(operation, dtype) * pairs} }};",
        outputs=dtype,
    )


SCALED = """
struct Scaled {
  half a;
  half2 both;
  __device__ explicit Scaled(half s) : a(s), both(__half2half2(s)) {}
  __device__ half operator()(half x) const { return a * x; }
  __device__ void Apply2(half* out, const half* x) const {
    *reinterpret_cast<half2*>(out) = __hmul2(both, *reinterpret_cast<const half2*>(x));
  }
};
"""


def _packed(cubin):
    """Instructions on two 16-bit floats at once: none of them takes one half of a register."""
    names = re.compile(r"(?:@\S+ )?(HADD2|HFMA2|HMUL2)\b")
    found = [i for i in sass.instructions(cubin) if names.match(i)]
    return [i for i in found if not re.search(r"\.(H0_H0|H1_H1|H0_NH1|F32)", i)], found


@pytest.mark.sampled
@every_architecture
@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_pairs_are_computed_by_packed_instructions(operation, dtype, architecture):
    cubin = cubin_for(architecture, pairwise(operation, dtype), *[spec(dtype)] * 2)
    loads, stores = (Counter(map(sass.access_bits, _codes(cubin, n))) for n in ("LDG", "STG"))
    assert (loads[128], stores[128]) == (2, 1)
    if (dtype, architecture) == ("bfloat16", "oldest"):
        return  # has no instructions for it
    packed, found = _packed(cubin)
    assert len(packed) == len(found) == 4  # of 8 elements


def test_where_there_are_pairs_no_element_is_computed_by_itself():
    """Compilers pack sums of single halves, too, but not sums of floats."""
    struct = (
        "struct Op {{ __device__ half operator()(half x, half y) const {{"
        " return half(float(x) + float(y)); }}\n{} }};"
    )
    counts = []
    for text in (struct.format(""), struct.format(apply2("add", "float16"))):
        cubin = je.cuda_functor(text, outputs="half").cubin(*[spec("float16")] * 2)
        counts.append((len(_codes(cubin, "FADD")), len(_packed(cubin)[0])))
    assert counts == [(8, 0), (0, 4)]


def test_pairs_are_used_for_what_the_struct_takes_and_nothing_else():
    f = pairwise("add", "float16")
    x, row = spec("float16", (4, 64)), spec("float16", (64,))
    assert "Apply2" in own_text(f.cuda_source(x, x))
    assert "Apply2" in own_text(f.cuda_source(x, row))
    for fun in (lambda x, y: f(x, y) * 2, lambda x, y: f(y, x), lambda x, y: f(x, x)):
        g = je.elementwise(fun)
        assert "Apply2" in g.cuda_source(x, x)  # in the user's text
        assert "Apply2" not in own_text(g.cuda_source(x, x))
    other = je.cuda_functor(pairwise("add", "float16")._source.text, outputs="float")
    packed, _ = _packed(other.cubin(spec("float32"), spec("float32")))
    assert not packed


def _source_of(fun, *args):
    lowered = jax.jit(fun).trace(*args).lower(lowering_platforms=("cuda",)).as_text()
    (text,) = re.findall(r'source = "((?:[^"\\]|\\.)*)"', lowered)
    return text.replace("\\0A", "\n").replace("\\22", '"')


def test_pairs_are_not_used_where_every_element_has_its_own_scalar():
    f = je.cuda_functor(SCALED, scalars="half s", outputs="half")
    x, s = spec("float16", (3, 64)), spec("float16", (3,))
    one = _source_of(f, x, spec("float16", ()))
    assert "Apply2" in own_text(one)
    mapped = _source_of(jax.vmap(f), x, s)
    assert "Apply2" not in own_text(mapped)
    assert "Apply2" in own_text(_source_of(jax.vmap(f, (0, None)), x, spec("float16", ())))


@every_architecture
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_what_a_struct_computes_of_its_scalars_is_computed_once(dtype, architecture):
    f = je.cuda_functor(
        "struct F { float e; __device__ F(float s) : e(expf(s)) {}\n"
        "template <class T> __device__ T operator()(T x) const { return T(float(x) * e); } };",
        scalars="float s",
        outputs=dtype,
    )
    assert f"elementwise<int, {16 // reference.np_dtype(dtype).itemsize}>" in f.cuda_source(
        spec(dtype), 1.0
    )
    assert len(_codes(cubin_for(architecture, f, spec(dtype), 1.0), "MUFU")) == 1


# ---- On the host, under sanitizers ---------------------------------------------------------------


def _kernel(f, dtypes, *, name):
    """The kernel for arrays, with a namespace of its own, so that several make one program."""
    kernel = f._kernel(tuple(map(spec, dtypes)), {})
    return dataclasses.replace(kernel, source=kernel.source.replace("source0", name))


def _values(rng, dtype, size):
    kind = reference.np_dtype(dtype)
    return rng.integers(0, 2**16, size, dtype=np.uint16).view(kind)


@pytest.mark.parametrize("dtype", NARROW)
def test_pairs_give_the_bits_of_single_elements_wherever_they_stand(dtype, rng):
    """At sizes around the pack and every alignment; every byte outside of an array is an error."""
    kernels = {
        (operation, pairs): _kernel(
            pairwise(operation, dtype, pairs=pairs), [dtype] * 2, name=f"{operation}{pairs:d}"
        )
        for operation, pairs in itertools.product(OPERATIONS, (True, False))
    }
    assert all(kernel.pack == 8 for kernel in kernels.values())
    program = simt.build(list(kernels.values()), sanitize=True)
    calls, expected = [], []
    for operation, size in itertools.product(OPERATIONS, (0, 1, 2, 7, 8, 9, 15, 16, 17, 100)):
        x, y = (_values(rng, dtype, size) for _ in range(2))
        with np.errstate(all="ignore"):
            wanted = OPERATIONS[operation][2](x, y)
        for offsets in ((0, 0, 0), (2, 2, 2), (6, 6, 0), (0, 2, 14), (14, 10, 4)):
            for pairs in (True, False):
                kernel = kernels[operation, pairs]
                calls.append(simt.Call(kernel, (size,), (dtype,), (x, y), offsets=offsets))
                expected.append(wanted)
    results = program.run(calls)
    for (result,), wanted in zip(results, expected, strict=True):
        ulp.assert_same(result, wanted)
    for (with_pairs,), (single,) in zip(results[::2], results[1::2], strict=True):
        number = ~np.isnan(single)
        np.testing.assert_array_equal(ulp.bits_of(with_pairs)[number], ulp.bits_of(single)[number])


def test_apply2_is_what_is_called(rng):
    """Of pairs that compute something else than single elements do, nothing else is seen."""
    f = je.cuda_functor(
        "struct F { half operator()(half x) const { return x; }\n"
        "void Apply2(half* out, const half* x) const { out[0] = x[1]; out[1] = x[0]; } };",
        outputs="half",
    )
    kernel = _kernel(f, ["float16"], name="swap")
    x = np.arange(16, dtype=np.float16)
    (result,) = simt.build([kernel], sanitize=True).run(
        [simt.Call(kernel, (16,), ("float16",), (x,))]
    )
    np.testing.assert_array_equal(result[0], x.reshape(8, 2)[:, ::-1].ravel())
