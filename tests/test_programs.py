"""What a program may hold: its digest, the attributes of its calls, and the buffers they are given.

Programs are made by hand here. Whatever is wrong in one is an error, and no value.
"""

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from cases import TARGET
from support import programs, simt

import jax_elementwise as je
from jax_elementwise._codegen.iteration import iteration_space
from jax_elementwise._codegen.kernel import Kernel
from jax_elementwise._codegen.types import DTYPES
from jax_elementwise._extension import DTYPE_CODES

pytestmark = pytest.mark.usefixtures("host_compiler")
CUSTOM_CALL = jax.export.DisabledSafetyCheck.custom_call(TARGET)

X = np.arange(24, dtype=np.float32).reshape(4, 6)
ROW = np.arange(6, dtype=np.float32)
# A result of two dimensions, an operand like it, and a row that is repeated.
GOOD = simt.make_kernel(lambda x, y: x * 2 + y, ["float32"] * 2, [X.shape, ROW.shape])
EXPECTED = X * 2 + ROW


@pytest.fixture(autouse=True)
def trusted():
    """These programs are no strangers."""
    je.trust_programs()
    yield
    je.trust_programs(False)


def run(attributes, operands=(X, ROW), results=(X,)):
    return programs.run(attributes, operands, programs.like(*results))


def refused(message, attributes, operands=(X, ROW), results=(X,)):
    with pytest.raises(jax.errors.JaxRuntimeError, match=f"(?s)jax_elementwise: .*{message}"):
        run(attributes, operands, results)


def test_what_is_right_runs():
    (y,) = run(programs.attributes_of(GOOD))
    np.testing.assert_array_equal(y, EXPECTED)


# ---- The digest ----------------------------------------------------------------------------------

CHANGES = {
    "digest": "0" * 64,
    "source": GOOD.source.replace("0x1.0000000000000p+1f", "0x1.8000000000000p+1f"),
    "name": GOOD.name + "x",
    "options": "--use_fast_math",
    "groups": (1, 1, 0),
    "spans": (3, 1),
    "pack": 2,
    "index_bits": 64,
    "operand_dtypes": (11, 4),
    "result_dtypes": (4,),
}


def test_every_attribute_can_be_changed():
    assert set(CHANGES) == {*programs.attributes_of(GOOD)} - {"format"}
    assert all(programs.attributes_of(GOOD)[name] != value for name, value in CHANGES.items())


@pytest.mark.parametrize("name", CHANGES)
def test_a_program_that_was_changed_is_refused_and_changes_nothing(name):
    refused("digest is not that", programs.attributes_of(GOOD, **{name: CHANGES[name]}))
    (y,) = run(programs.attributes_of(GOOD))  # never the other kernel under this name
    np.testing.assert_array_equal(y, EXPECTED)


def test_every_byte_of_an_exported_kernel_counts():
    pytest.importorskip("flatbuffers")
    f = je.elementwise(lambda x: x * 2, name="counts", lowering="kernel")
    exported = jax.export.export(jax.jit(f), platforms=["cpu"], disabled_checks=[CUSTOM_CALL])
    data = bytes(exported(X).serialize())
    source = f.cuda_source(X).encode()
    begin = data.index(source)
    constant = begin + source.index(b"0x1.0000000000000p+1f")
    for at, byte in [
        (constant + 2, b"9"),  # a factor of 18
        (begin + len(source) - 2, b" "),
        (begin + source.index(b"\n"), b" "),
    ]:
        changed = data[:at] + byte + data[at + 1 :]
        with pytest.raises(jax.errors.JaxRuntimeError, match="digest is not that"):
            jax.export.deserialize(bytearray(changed)).call(X)
        np.testing.assert_array_equal(f(X), X * 2)
    again = jax.export.deserialize(bytearray(data)).call(X)
    np.testing.assert_array_equal(again, X * 2)


def test_kernels_of_one_text_and_other_shapes_are_loaded_once():
    f = je.elementwise(lambda x: x * 1.0625, lowering="kernel")
    before = je.cache_info()
    for shape in ((24,), (4, 6), (2, 3, 4)):
        np.testing.assert_array_equal(f(X.reshape(shape)), X.reshape(shape) * np.float32(1.0625))
    after = je.cache_info()
    assert after.compilations + after.disk_hits - before.compilations - before.disk_hits == 1
    assert after.loads - before.loads == 1


# ---- What no kernel has --------------------------------------------------------------------------

NONE = (0, -1, -4, 3, 6, 32, 2**40, 2**63 - 1, -(2**63))
INVALID = {
    **{f"pack_{n}": ({"pack": n}, f"packs of {n} elements; packs are of 1") for n in NONE},
    **{f"bits_{n}": ({"index_bits": n}, f"of {n} bits; they have 32 or 64") for n in (0, 7, -64)},
    "name_empty": ({"name": ""}, "'' is no name of a kernel"),
    "name_path": ({"name": "../k"}, r"'\.\./k' is no name"),
    "name_digit": ({"name": "1k"}, "'1k' is no name"),
    "name_code": ({"name": "k) int x; (k"}, "is no name"),
    "name_accent": ({"name": "\u00e9"}, "is no name"),
    "name_long": ({"name": "k" * 129}, "is no name"),
    "nul": ({"source": GOOD.source + "\0"}, "must not contain NUL"),
    "option": (
        {"options": "--use_fast_math -fplugin=/tmp/a.so"},
        "option '-fplugin=/tmp/a.so'; a program may ask for these only: --use_fast_math --device",
    ),
    "option_response": ({"options": "@/etc/passwd"}, "option '@/etc/passwd'"),
    "option_spaces": ({"options": " "}, "option ''"),
    "option_newline": ({"options": "--use_fast_math\n-o"}, "option '--use_fast_math\n-o'"),
    "no_groups": ({"groups": ()}, "has 0 dimensions; it must have 1 to 63"),
    "many_groups": ({"groups": (1, 1, *[0] * 62)}, "has 64 dimensions"),
    "negative_group": ({"groups": (3, -1)}, "merges -1 dimensions"),
    "huge_group": ({"groups": (1, 2**62)}, f"merges {2**62} dimensions"),
    "huge_groups": ({"groups": (2**16, 2**16)}, "no number of dimensions"),
    "span": ({"spans": (3, 4)}, "an operand that spans 4, but its kernel 2 dimensions"),
    "index_span": ({"spans": (3, 2, ~4)}, "an operand that spans -5"),
    "smallest_span": ({"spans": (3, 2, -(2**63))}, f"an operand that spans {-(2**63)}"),
    "dtypes_few": ({"operand_dtypes": (11,)}, "dtypes of 1 operands for a kernel of 2"),
    "dtypes_many": ({"operand_dtypes": (11,) * 3}, "dtypes of 3 operands for a kernel of 2"),
    "no_results": ({"result_dtypes": ()}, "2 operands and 0 results; it must have a result"),
    "many_results": ({"result_dtypes": (11,) * 127}, "and 128 of both at most"),
    **{
        f"dtype_{n}": ({"result_dtypes": (n,)}, f"a result of dtype {n}, which kernels do not")
        for n in (0, 17, 21, 99, -11, 11 + 2**32)
    },
    "operand_dtype": ({"operand_dtypes": (11, 0)}, "an operand of dtype 0"),
    "more": ({"more": 1}, "has 12 attributes; its format has 11"),
}  # fmt: skip


@pytest.mark.parametrize("case", INVALID)
def test_what_no_kernel_has_is_refused_whoever_vouches_for_it(case):
    changes, message = INVALID[case]
    refused(message, programs.vouched(programs.attributes_of(GOOD, **changes)))


@pytest.mark.parametrize("format_", [-1, 0, 1, 3, 7])
def test_another_format_is_refused(format_):
    message = f"made for format {format_} of this custom call; the installed package reads format 2"
    refused(message, programs.vouched(programs.attributes_of(GOOD, format=format_)))


def test_a_program_of_the_format_before_is_refused_by_name():
    old = programs.attributes_of(GOOD, format=1, digest="0" * 32)
    del old["operand_dtypes"], old["result_dtypes"]
    refused("made for format 1", old)


@pytest.mark.parametrize(
    ("name", "value"),
    [("pack", np.int32(4)), ("pack", "4"), ("groups", np.ones(2, np.int32)), ("source", 3),
     ("digest", 3), ("format", "2"), ("spans", 3), ("operand_dtypes", np.float32([11, 11]))],
)  # fmt: skip
def test_attributes_of_other_types_are_refused(name, value):
    refused(
        f"no attribute '{name}' of the right type", programs.attributes_of(GOOD) | {name: value}
    )


@pytest.mark.parametrize("name", programs.attributes_of(GOOD))
def test_attributes_that_are_missing_are_refused(name):
    attributes = programs.attributes_of(GOOD)
    del attributes[name]
    refused("no attribute 'format'" if name == "format" else "has 10 attributes", attributes)


# ---- What this kernel has not --------------------------------------------------------------------

OTHER = {
    "pack": {"pack": 8},
    "smaller_pack": {"pack": 1},
    "index_bits": {"index_bits": 64},
    "rank": {"groups": (1, 1, 0)},
    "all_of_it": {"spans": (3, 3)},
    "scalar": {"spans": (3, 0)},
    "column": {"spans": (3, 1)},
    "two_rows": {"spans": (2, 2)},
    "index": {"spans": (3, ~2), "operand_dtypes": (11,)},
    "one_more": {"spans": (3, 2, 2), "operand_dtypes": (11, 11, 11)},
    "one_less": {"spans": (3,), "operand_dtypes": (11,)},
    "one_more_result": {"result_dtypes": (11, 11)},
    "wider_operand": {"operand_dtypes": (11, 12)},
    "wider_result": {"result_dtypes": (12,)},
}


@pytest.mark.parametrize("case", OTHER)
def test_attributes_that_are_not_the_kernels_are_refused(case):
    """On a CPU a kernel says what it was made for: nothing out of bounds is read or written."""
    attributes = programs.vouched(programs.attributes_of(GOOD, **OTHER[case]))
    refused(r"was made for other arrays than the program says\. Make", attributes)


def test_a_text_that_is_no_kernel_of_ours_is_refused():
    empty = "#include <jax_elementwise/kernel.h>\nnamespace jax_elementwise { void k(int) {} }"
    kernel = Kernel("k", empty, (), iteration_space([()], ()), 4, None, ("float32",), ("float32",))
    refused("was made for other arrays", programs.attributes_of(kernel), (X[0, 0],), (X[0, 0],))


def test_a_text_that_does_not_compile_is_an_error():
    kernel = Kernel("k", "int f() { return nothing; }", (), iteration_space([], ()), 4, None, (),
                    ("float32",))  # fmt: skip
    message = "'nothing' was not declared|undeclared identifier 'nothing'"
    refused(f"({message})", programs.attributes_of(kernel), (), (X,))


# ---- Buffers -------------------------------------------------------------------------------------

f32, f64, i32 = np.float32, np.float64, np.int32
BUFFERS = {
    "operands_few": ((X,), (X,), "1 operands where the kernel has 2"),
    "operands_many": ((X, ROW, ROW), (X,), "3 operands where the kernel has 2"),
    "results_many": ((X, ROW), (X, X), "2 results where the kernel has 1"),
    "operand_dtype": ((X, ROW.astype(i32)), (X,), "operand 1 is of dtype int32 where .* float32"),
    "operand_narrow": ((X.astype("f2"), ROW), (X,), "operand 0 is of dtype float16 .* float32"),
    "result_dtype": ((X, ROW), (X.astype(i32),), "result 0 is of dtype int32 where .* float32"),
    "result_narrow": ((X, ROW), (X.astype(bool),), "result 0 is of dtype bool where .* float32"),
    "dimensions_few": ((X, ROW), (X.ravel(),), "1 dimensions of the results where .* has 2"),
    "dimensions_many": ((X, ROW), (X[None],), "3 dimensions of the results where .* has 2"),
    "no_dimensions": ((X, ROW), (X[0, 0],), "0 dimensions of the results where .* has 2"),
    "operand_short": ((X[:3], ROW), (X,), "array 1 has 18 elements where the kernel reads 24"),
    "operand_long": ((np.vstack([X, X]), ROW), (X,), "array 1 has 48 elements .* reads 24"),
    "row_short": ((X, ROW[:5]), (X,), "array 2 has 5 elements where the kernel reads 6"),
    "operand_empty": ((X[:0], ROW), (X,), "array 1 has 0 elements where the kernel reads 24"),
    "result_short": ((X, ROW), (X[:, :5],), "array 1 has 24 elements where the kernel reads 20"),
}  # fmt: skip


@pytest.mark.parametrize("case", BUFFERS)
def test_buffers_that_are_not_the_kernels_are_refused(case):
    operands, results, message = BUFFERS[case]
    refused(message, programs.attributes_of(GOOD), operands, results)


def test_a_second_result_of_another_size_is_refused():
    kernel = simt.make_kernel(lambda x: (x + 1, x * 3), ["float32"], [X.shape])
    attributes = programs.attributes_of(kernel)
    for y, expected in zip(run(attributes, (X,), (X, X)), (X + 1, X * 3), strict=True):
        np.testing.assert_array_equal(y, expected)
    refused("array 1 has 12 elements .* reads 24", attributes, (X,), (X, X[:2]))
    refused("array 1 has 24 elements .* reads 0", attributes, (X,), (X[:0], X))
    refused("result 1 is of dtype int32", attributes, (X,), (X, X.astype(i32)))


@pytest.mark.parametrize("shape", [(0, 6), (4, 0), (0, 0)])
def test_arrays_without_elements(shape):
    """With two results, since XLA leaves out a call of one without elements."""
    kernel = simt.make_kernel(lambda x, y: (x + y, x - y), ["float32"] * 2, [X.shape, ROW.shape])
    x, row = np.zeros(shape, f32), np.zeros(shape[1:], f32)
    for y in run(programs.attributes_of(kernel), (x, row), (x, x)):
        assert y.shape == shape


# ---- Every dtype ---------------------------------------------------------------------------------


def test_every_dtype_has_the_code_of_xla(x64):
    """Whose buffers say what they are."""
    assert set(DTYPE_CODES) == set(DTYPES)
    xs = [jnp.asarray([0, 1, 1], name) for name in DTYPES]
    f = je.elementwise(lambda *xs: [x == 1 for x in xs] + [x + x for x in xs], lowering="kernel")
    results = f(*xs)
    for x, is_one, twice in zip(xs, results, results[len(xs) :], strict=False):
        assert is_one.tolist() == [False, True, True]
        assert twice.dtype == x.dtype
        np.testing.assert_array_equal(twice, x + x)
