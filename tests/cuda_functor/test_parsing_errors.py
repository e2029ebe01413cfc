"""What ``cuda_functor`` refuses at once, with messages that say what to do."""

import jax.numpy as jnp
import pytest

import jax_elementwise as je

STRUCT = "struct Add { float operator()(float x, float y) const { return x + y; } };"
INDEXED = "struct A { float operator()(float x, long long k) const; };"
# The exception, what it says, the text, and options, beside inputs="x".
ERRORS = {
    "source": (TypeError, "source must be CUDA C.. as a string, not 3", 3, {}),
    "bytes": (TypeError, "source must be CUDA C.. as a string", b"x", {}),
    "preamble": (TypeError, "preamble must be CUDA C.. as a string", "x", {"preamble": None}),
    "name": (TypeError, "name must be a string, not 3", "x", {"name": 3}),
    "index": (TypeError, "index must be a string, not 0", "x", {"index": 0}),
    "inputs": (
        TypeError, "inputs must be like 'x, y' or 'float x, T y', not 3",
        "x", {"inputs": 3},
    ),
    "inputs_of": (TypeError, "inputs must be like", "x", {"inputs": [3]}),
    "scalars": (TypeError, "scalars must be like 'x, y'.*not 2.0", "x", {"scalars": 2.0}),
    "headers": (TypeError, "headers must be texts by name.*not .'a'", "x", {"headers": ["a"]}),
    "header_text": (TypeError, "headers must be texts by name", "x", {"headers": {"a": 1}}),
    "empty": (ValueError, "source has no code", " // x\n", {}),
    "zero_byte": (ValueError, "hold a zero byte", "x\0", {}),
    "zero_byte_2": (ValueError, "hold a zero byte", "x", {"preamble": "\0"}),
    "zero_byte_3": (ValueError, "hold a zero byte", "x", {"headers": {"a": "\0"}}),
    "surrogate": (ValueError, r"source has a lone surrogate \('.udce9'\)", "x // \udce9", {}),
    "surrogate_2": (ValueError, "preamble has a lone surrogate", "x", {"preamble": "\ud800"}),
    "surrogate_3": (ValueError, "name has a lone surrogate", "x", {"name": "\udfff"}),
    "surrogate_4": (
        ValueError, "the header 'a' has a lone surrogate", "x", {"headers": {"a": "// \udc80"}},
    ),
    "surrogate_5": (
        ValueError, r"the header '.udc80' has a lone surrogate", "x", {"headers": {"\udc80": ""}},
    ),
    "no_inputs": (
        ValueError, "'f' needs the names of its inputs, as in inputs='x, y'",
        "x", {"inputs": None, "name": "f"},
    ),
    "no_shape": (
        ValueError, "'cuda_functor' has no inputs, so there is no shape",
        "1", {"inputs": ()},
    ),
    "no_shape_2": (
        ValueError, "'A' has no inputs",
        "struct A { int operator()() const; };", {"inputs": None},
    ),
    "no_shape_3": (
        ValueError, "'A' has no inputs",
        "struct A { int operator()(void) const; };", {"inputs": None},
    ),
    "no_struct": (
        ValueError, r"source has an operator\(\) but no struct",
        "float operator()(float x);", {"inputs": None},
    ),
    "last": (
        ValueError, r"'A': the last parameter of operator\(\) must be the index, 'i'",
        INDEXED, {"inputs": None, "index": "i"},
    ),
    "template": (
        ValueError, "'A' is a template of T, which is the type of no input and of no scalar.*"
        "name='A<float>'", "template <class T> struct A { float operator()(float x) const; };",
        {"inputs": None},
    ),
    "no_template": (
        ValueError, "name='Add<float>', but source has no template 'Add'",
        STRUCT, {"inputs": None, "name": "Add<float>"},
    ),
    "no_template_of_that_name": (
        ValueError, "name='Sub<float>', but source has no template 'Sub'",
        "template <class T> struct A { T operator()(T x) const; };",
        {"inputs": None, "name": "Sub<float>"},
    ),
    "count": (
        ValueError, r"'Add': operator\(\) has 2 inputs \('x', 'y'\), and inputs= names 1",
        STRUCT, {},
    ),
    "keyword": (
        ValueError, "'cuda_functor': 'float' cannot be a name in C",
        "x", {"inputs": "x, float"},
    ),
    "number": (ValueError, "'2x' cannot be a name", "x", {"inputs": "2x"}),
    "unicode": (ValueError, "'\u00e9' cannot be a name", "x", {"inputs": "\u00e9"}),
    "star": (ValueError, r"'\*x' cannot be a name", "x", {"inputs": "float *x"}),
    "nothing": (ValueError, "'' cannot be a name", "x", {"inputs": ["x", ""]}),
    **{
        f"name_{word}": (ValueError, f"'{word}' cannot be a name", "1", {"inputs": f"float {word}"})
        for word in (
            *("__device__", "__host__", "__shared__", "__LINE__", "__CUDA_ARCH__", "_Float16"),
            *("NULL", "M_PI", "INT_MAX", "FLT_MAX", "NAN", "INFINITY", "assert", "CUDART_PI_F"),
            *("JAX_ELEMENTWISE_DEVICE", "JAX_ELEMENTWISE_HOST", "EXIT_FAILURE__"),
        )
    },
    "macro_of_result": (ValueError, "'NULL' cannot be", "NULL = x;", {"outputs": "float NULL"}),
    "macro_of_index": (ValueError, "'NULL' cannot be", "x + NULL", {"index": "NULL"}),
    "name_of_scalar": (ValueError, "'this' cannot be a name", "x", {"scalars": "this"}),
    "name_of_index": (ValueError, "'for' cannot be a name", "x", {"index": "for"}),
    "name_of_result": (ValueError, "'int' cannot be a name", "x", {"outputs": "float int"}),
    "unnamed": (
        ValueError, "'float' cannot be a name",
        "struct A { float operator()(float) const; };", {"inputs": None},
    ),
    "twice": (ValueError, "'cuda_functor' has two parameters 'x'", "x", {"inputs": "x, x"}),
    "twice_scalar": (ValueError, "has two parameters 'x'", "x", {"scalars": "x"}),
    "twice_index": (ValueError, "has two parameters 'x'", "x", {"index": "x"}),
    "twice_result": (
        ValueError, "has two parameters 'y'", "y = 2;", {"outputs": "float y, float y"},
    ),
    "scalar_as_result": (
        ValueError, "has two parameters 's'", "s = x;", {"scalars": "s", "outputs": "float s"},
    ),
    "type": (
        ValueError, r"inputs has the type 'floot', which is neither a dtype \(bool, .*letter",
        "x", {"inputs": "floot x"},
    ),
    "type_of_scalar": (
        ValueError, "scalars has the type 'const float'",
        "x", {"scalars": "const float a"},
    ),
    "small": (ValueError, "outputs has the type 't'", "x", {"outputs": "t"}),
    "int4": (ValueError, "outputs has the type .*int4", "x", {"outputs": jnp.int4}),
    "outputs": (ValueError, "outputs has the type 3", "x", {"outputs": 3}),
    "no_outputs": (ValueError, "outputs must name at least one result", "x", {"outputs": ()}),
    "letter": (
        ValueError, "the type 'U' of a result is that of no input",
        "x", {"inputs": "T x", "outputs": "U"},
    ),
    "untyped": (
        ValueError, "the result 's' needs a type, as in outputs='float s'",
        "s = d = x;", {"outputs": "s, float d"},
    ),
    "unnamed_results": (
        ValueError, "'cuda_functor': several results need names to assign to",
        "s = d = x;", {"outputs": ["float", "int"]},
    ),
    "header": (
        ValueError, r"the header 'a/b.h' is not there: give its text, as in headers=\{'a/b.h'",
        '#include "a/b.h"\nx', {},
    ),
    "header_of_preamble": (
        ValueError, "the header 'vector' is not there",
        "x", {"preamble": "#include <vector>"},
    ),
    "header_of_header": (
        ValueError, "the header 'b.h' is not there",
        "x", {"preamble": "#include <a.h>", "headers": {"a.h": "#include <b.h>"}},
    ),
    "reference": (TypeError, "reference must be a function, not 3", "x", {"reference": 3}),
    "jvp": (TypeError, "jvp must be a function, not 'x'", "x", {"jvp": "x"}),
    "lowering": (ValueError, "lowering must be one of .*not 'gpu'", "x", {"lowering": "gpu"}),
    "aliases": (TypeError, "input_output_aliases", "x", {"input_output_aliases": 3}),
    "void": (
        ValueError, r"'A': operator\(\) returns nothing, so outputs= must give the types",
        "struct A { void operator()(float x, float& y) const; };", {"inputs": None},
    ),
    "one_result": (
        ValueError, r"'Add': operator\(\) returns one result, and outputs= names 2. For several",
        STRUCT, {"inputs": None, "outputs": ["float", "float"]},
    ),
    "never_assigned": (
        ValueError, "'f' never assigns to the result 'd'",
        "s = x;", {"name": "f", "outputs": "float s, float d"},
    ),
    "template_of_two": (
        ValueError, "'A' is a template of more than one type. Make its operator",
        "template <class T, class U> struct A { T operator()(T x) const; };", {"inputs": None},
    ),
    "template_of_a_number": (
        ValueError, "'A' is a template of more than one type",
        "template <int N> struct A { int operator()(int x) const; };", {"inputs": None},
    ),
    "members": (
        ValueError, r"'A' is constructed from its scalars \('s',\), so nothing gives its members "
        r"\('c', 'd'\) a value: name them in scalars=",
        "struct A { float s; int b = 1; private: float c, d; float operator()(float x) const; };",
        {"inputs": None, "scalars": "float s"},
    ),
    "order_of_members": (
        ValueError, r"from its scalars in their order \('b', 's'\), and its members have the order "
        r"\('s', 'b'\)",
        "struct A { float operator()(float x) const { return s * x + b; } float s, b; };",
        {"inputs": None, "scalars": "float b, float s"},
    ),
    "function": (
        ValueError, "source is the function 'f'. Give it as preamble=, and as source an expression "
        r"that calls it, as in source='f\(x\)'",
        "__device__ inline float f(float x) {\n return x; }", {"inputs": None},
    ),
    "kernel": (
        ValueError, "source is the function 'k'.* Kernels .__global__. the package writes itself",
        'extern "C" __global__ void k(float* x) {}', {"inputs": "x"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ERRORS)
def test_errors_at_once(case):
    kind, message, text, options = ERRORS[case]
    with pytest.raises(kind, match=message) as caught:
        je.cuda_functor(text, **{"inputs": "x", **options})
    assert type(caught.value) is kind
