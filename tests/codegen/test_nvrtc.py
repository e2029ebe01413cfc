"""Every kernel text compiles for old and new GPUs, and moves packs in one access each."""

from __future__ import annotations

import re
from collections import Counter

import goldens
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from support import reference, sass, simt, together
from support.sass import every_architecture

from jax_elementwise import _runtime
from jax_elementwise._codegen.types import DTYPES

exhaustive = pytest.mark.exhaustive
# A dtype of every width and kind: the other dtypes' texts differ by a name from one of these.
_REPRESENTATIVES = ("bool", "int32", "bfloat16", "float32", "float64")


@pytest.fixture(scope="module", autouse=True)
def no_disk_cache():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX_ELEMENTWISE_CACHE_DIR", "")
        yield


@pytest.fixture(scope="module", autouse=True)
def x64_types():
    with jax.enable_x64(True):
        yield


def _compile(kernels, arch):
    """The cubin of several kernels, as one translation unit."""
    (options,) = {kernel.options for kernel in kernels}
    text = "".join({kernel.source: "" for kernel in kernels})
    return _runtime.compile(text, kernels[0].name, arch, list(options))


# ---- Everything compiles -------------------------------------------------------------------------


@every_architecture
@pytest.mark.parametrize("name", goldens.NAMES)
def test_golden_kernels_compile(name, architecture):
    arch = sass.number(architecture)
    text = (goldens.DIRECTORY / f"{name}.cu").read_text()
    kernel_name, options = re.match(r"// name: (\w+)\n// options: ?(.*)\n", text).groups()
    assert kernel_name.encode() in _runtime.compile(text, kernel_name, arch, options.split())


def _of_dtypes(*, hopper):
    """Parameters dtype and architecture: representatives for all GPUs, others for Hopper.

    By default, those for Hopper: of dtypes ``hopper``.
    """
    return pytest.mark.parametrize(
        ("dtype", "architecture"),
        [
            *((d, "Hopper") if d in hopper else pytest.param(d, "Hopper", marks=exhaustive)
              for d in DTYPES),
            *(pytest.param(d, other, marks=exhaustive)
              for d in _REPRESENTATIVES for other in ("oldest", "newest")),
        ],
    )  # fmt: skip


@pytest.mark.sampled
@_of_dtypes(hopper=(*_REPRESENTATIVES, "complex64"))
def test_every_operator_compiles(dtype, architecture):
    arch = sass.number(architecture)
    kernels = []
    of_complex = dtype.startswith("complex")
    for name, row_dtype in reference.rows_and_dtypes(of_complex=of_complex):
        row = reference.OPERATORS[name]
        function = reference.lax_function(row)
        if row_dtype == dtype and function is not None:
            fun = lambda *xs, f=function: f(*xs)  # noqa: E731
            kernels.append(simt.make_kernel(fun, [dtype] * row.arity, name=name))
    cubin = _compile(kernels, arch)
    assert all(kernel.name.encode() in cubin for kernel in kernels)


@every_architecture
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "complex64"])
def test_every_conversion_compiles(dtype, architecture):
    def convert(to):
        return lambda x: (x.real if jnp.iscomplexobj(x) else x).astype(to)

    kernels = [simt.make_kernel(convert(to), [dtype]) for to in DTYPES]
    kernels += [simt.make_kernel(convert(dtype), [source]) for source in DTYPES]
    _compile(kernels, sass.number(architecture))


def test_wide_operands_that_are_not_packed_compile_beside_narrow_ones():
    shapes = ([(64,), ()], [(8, 64), (8, 1)], [(4, 8, 64), (4, 1, 1)])
    kernels = [
        simt.make_kernel(lambda x, s: (x * s).astype("bfloat16"), ["bfloat16", wide], pair)
        for wide in ("float32", "float64")
        for pair in shapes
    ]
    _compile(kernels, 90)


# ---- Machine code --------------------------------------------------------------------------------

_BINARY = {"bool": lambda x, y: x ^ y}


def _accesses(kernel, arch):
    """How many global accesses of each width a kernel has; and that it has none to local memory."""
    sass.require_nvrtc()
    found = sass.opcodes_of(kernel, arch)
    assert len(found) > 20
    assert not [code for code in found if code.split(".")[0] in ("LDL", "STL")], "local memory"
    loads, stores = (
        Counter(sass.access_bits(code) for code in found if code.split(".")[0] == name)
        for name in ("LDG", "STG")
    )
    return loads, stores


def _binary(dtype, shapes, other=None):
    other = other or dtype
    fun = _BINARY.get(dtype, lambda x, y: x + y)
    return simt.make_kernel(fun, [dtype, other], shapes)


@pytest.mark.sampled
@together.compiled
@_of_dtypes(hopper=DTYPES)
def test_packs_are_one_access_each(dtype, architecture):
    """Two loads and a store of 128 bits; what is narrower is for misaligned and partial packs."""
    arch = sass.number(architecture)
    kernel = _binary(dtype, [(64,), (64,)])
    loads, stores = _accesses(kernel, arch)
    assert _compile([kernel], arch)  # also by itself, without other kernels' headers
    # For sm_12x the loop over float64 packs is unrolled, so there are several of each.
    assert loads[128] == 2 * stores[128] > 0
    narrow = 8 * reference.np_dtype(dtype).itemsize
    assert set(loads) == set(stores) == {128, narrow}


@together.compiled
@pytest.mark.parametrize(("shape", "packs"), [((64,), 2), ((), 1), ((8, 1), 1)], ids=str)
@pytest.mark.parametrize("dtype", _REPRESENTATIVES)
def test_rows_and_scalars_are_packed_too(dtype, shape, packs):
    loads, stores = _accesses(_binary(dtype, [(8, 64), shape]), 90)
    assert (loads[128], stores[128]) == (packs, 1)


@together.compiled
@pytest.mark.parametrize(
    ("operands", "result", "load_bits", "store_bits"),
    [
        # The widest type of the kernel fills 128 bits, the others move as many elements.
        (["float32", "bfloat16"], "float32", {128: 1, 64: 1}, 128),
        (["float64", "float32"], "float64", {128: 1, 64: 1}, 128),
        (["float64", "bool"], "float64", {128: 1, 16: 1}, 128),
        (["float32"], "bfloat16", {128: 1}, 64),
        (["float64"], "bfloat16", {128: 1}, 32),
        (["float32"], "bool", {128: 1}, 32),
        (["bfloat16"], "bool", {128: 1}, 64),
        (["bool"], "float32", {32: 1}, 128),
        (["float16", "bfloat16"], "float16", {128: 2}, 128),
    ],
)
def test_packs_of_mixed_widths_are_one_access_each(operands, result, load_bits, store_bits):
    kernel = simt.make_kernel(lambda *xs: sum(xs[1:], xs[0]).astype(result), operands)
    elements = kernel.pack
    loads, stores = _accesses(kernel, 90)
    for bits, count in load_bits.items():
        scalars = sum(
            elements for d in operands if 8 * reference.np_dtype(d).itemsize == bits
        )  # the loads of single elements that have this width
        assert loads[bits] == count + scalars, (bits, loads)
    single = elements if 8 * reference.np_dtype(result).itemsize == store_bits else 0
    assert stores[store_bits] == 1 + single, stores


@together.compiled
def test_several_results_are_one_access_each():
    def fun(x, y):
        return x + y, x > y, (x * y).astype("bfloat16")

    loads, stores = _accesses(simt.make_kernel(fun, ["float32"] * 2), 90)
    assert loads[128] == 2
    # Four elements: 128 bits of float32, 64 of bfloat16, 32 of bool; elements are 32, 16 and 8.
    assert (stores[128], stores[64], stores[32]) == (1, 1, 1 + 4)


@together.compiled
def test_64_bit_indices_stay_in_registers():
    (n,) = jax.export.symbolic_shape("n")
    kernel = simt.make_kernel(lambda x, y: x + y, ["bfloat16"] * 2, [(n,), (n,)], (n,))
    assert kernel.space.index_bits == 64
    loads, stores = _accesses(kernel, 90)
    assert (loads[128], stores[128]) == (2, 1)


@together.compiled
def test_many_operands_stay_in_registers():
    loads, stores = _accesses(simt.make_kernel(lambda *xs: sum(xs), ["float32"] * 12), 90)
    assert (loads[128], stores[128]) == (12, 1)


@together.compiled
@pytest.mark.parametrize("fun", [jax.nn.gelu, jax.nn.silu, jnp.tanh, jax.nn.softplus])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_activations_stay_in_registers(dtype, fun):
    """Those without trigonometric functions, whose large arguments need a table."""
    loads, stores = _accesses(simt.make_kernel(fun, [dtype]), 90)
    assert (loads[128], stores[128]) == (1, 1)


# ---- Tables --------------------------------------------------------------------------------------

_TABLE = np.linspace(-1, 2, 16, dtype=np.float32) ** 2


def _by_steps(x):
    table = jnp.asarray(_TABLE)
    return lax.fori_loop(0, 16, lambda k, total: total * x + table[k], x)


@together.compiled
@pytest.mark.parametrize(
    ("fun", "lookups"),
    [
        (lambda x: jnp.asarray(_TABLE)[(x * 4).astype("int32")], 1),
        (lambda x: jnp.asarray(_TABLE)[(jnp.stack([x, x * 2]) * 4).astype("int32")].sum(), 2),
        (lambda x: jnp.polyval(_TABLE, x), 0),
        (lambda x: jnp.sum(x * _TABLE[:, None] * _TABLE[:4]), 0),
    ],
    ids=["lookup", "two", "polynomial", "sums"],
)
@every_architecture
def test_a_table_costs_one_load_per_lookup_and_no_local_memory(fun, lookups, architecture):
    loads, stores = _accesses(simt.make_kernel(fun, ["float32"]), sass.number(architecture))
    assert (loads[128], stores[128]) == (1, 1)
    # Each of the four elements of a pack, besides the loads of single elements.
    assert loads[32] == 4 + 4 * lookups
    assert stores[32] == 4


@together.compiled
@every_architecture
def test_a_loop_over_a_table_needs_no_local_memory(architecture):
    kernel = simt.make_kernel(_by_steps, ["float32"])
    loads, stores = _accesses(kernel, sass.number(architecture))
    assert set(loads) == set(stores) == {32}


@together.compiled
@every_architecture
@pytest.mark.parametrize("derivative", [False, True], ids=["value", "gradient"])
def test_interpolation_in_tables_needs_no_local_memory(derivative, architecture):
    def fun(x):
        return jnp.interp(x, np.arange(16, dtype=np.float32), _TABLE)

    kernel = simt.make_kernel(jax.grad(fun) if derivative else fun, ["float32"])
    loads, _ = _accesses(kernel, sass.number(architecture))
    assert loads[128] == 1


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", DTYPES)
def test_tables_of_every_dtype_compile(dtype):
    """Each on its own, so that no other kernel's headers are there."""
    values = np.array([0, 1, 3, 2, 7, 1]).astype(reference.np_dtype(dtype))
    tables = [values]
    if DTYPES[dtype].kind in ("float", "complex"):
        tables.append(np.array([1, np.nan, 2, 3, -0.0, np.inf]).astype(values.dtype))
    for table in tables:
        for fun in (
            lambda i, table=table: jnp.asarray(table)[i],
            lambda i, table=table: (jnp.asarray(table)[i], i)[1],  # not used
            lambda i, table=table: jnp.asarray(table[:3])[i] == table[0],
        ):
            _compile([simt.make_kernel(fun, ["int32"])], 90)


@together.compiled
def test_small_arrays_stay_in_registers():
    def fun(x, y, i):
        values = jnp.stack([x, y, x * y, x - y]).at[i].set(0)
        return values[jnp.argmax(values)], jnp.cumsum(values)[i], jnp.linalg.norm(values)

    _accesses(simt.make_kernel(fun, ["float32", "float32", "int32"]), 90)


# ---- Results in the place of operands ------------------------------------------------------------


def _in_place_accesses(kernel, arch):
    """Loads through the read-only cache, other loads, and stores: how many of each width."""
    kinds = {"constant": Counter(), "load": Counter(), "store": Counter()}
    for code in sass.opcodes_of(kernel, arch):
        name, *modifiers = code.split(".")
        if name in ("LDG", "STG"):
            load = "constant" if "CONSTANT" in modifiers else "load"
            kinds[load if name == "LDG" else "store"][sass.access_bits(code)] += 1
    return kinds.values()


@together.compiled
@pytest.mark.parametrize(
    ("dtype", "architecture"),
    [
        *((dtype, "Hopper") for dtype in DTYPES),
        *(pytest.param("float32", other, marks=exhaustive) for other in ("oldest", "newest")),
    ],
)
@pytest.mark.parametrize("operand", [0, 1])
def test_an_operand_that_is_overwritten_is_no_constant_and_others_are(dtype, architecture, operand):
    fun = _BINARY.get(dtype, lambda x, y: x + y)
    kernel = simt.make_kernel(fun, [dtype] * 2, aliases=((operand, 0),))
    constants, loads, stores = _in_place_accesses(kernel, sass.number(architecture))
    assert constants == loads == stores
    assert set(stores) == {128, 8 * reference.np_dtype(dtype).itemsize}


@together.compiled
def test_every_overwritten_operand_is_no_constant():
    def adam(p, m, v, g):
        return p - m * g, m + g, v + g * g

    kernel = simt.make_kernel(adam, ["float32"] * 4, aliases=((0, 0), (1, 1), (2, 2)))
    constants, loads, stores = _in_place_accesses(kernel, 90)
    assert constants == {128: 1, 32: 4}
    assert loads == stores == {128: 3, 32: 12}


@together.compiled
def test_without_aliases_every_operand_is_a_constant():
    constants, loads, stores = _in_place_accesses(_binary("float32", [(64,), (64,)]), 90)
    assert constants == {128: 2, 32: 8}
    assert not loads
    assert stores == {128: 1, 32: 4}


@together.compiled
@pytest.mark.parametrize(("shape", "packs"), [((64,), 2), ((8, 1), 1), ((), 1)], ids=str)
def test_packs_beside_broadcast_operands_are_overwritten_in_one_access(shape, packs):
    def fun(x, y):
        return x + y

    kernel = simt.make_kernel(fun, ["bfloat16"] * 2, [(8, 64), shape], aliases=((0, 0),))
    constants, loads, stores = _in_place_accesses(kernel, 90)
    assert loads[128] >= 1  # rows are never read as constants
    assert constants[128] + loads[128] == packs
    assert stores[128] == 1


# ---- Options and arithmetic ----------------------------------------------------------------------


@together.compiled
def test_fast_math_uses_approximate_instructions():
    precise = simt.make_kernel(goldens.silu, ["float32"])
    fast = simt.make_kernel(goldens.silu, ["float32"], fast_math=True)
    count = {k.options: len(sass.opcodes_of(k, 90)) for k in (precise, fast)}
    assert count[fast.options] < 0.8 * count[precise.options]


@together.compiled
@pytest.mark.parametrize(
    ("fun", "dtype"),
    [
        (lambda x: lax.while_loop(lambda s: s != 5, lambda s: s * 3 + 2, x), "int32"),
        (
            lambda x: jnp.where(lax.while_loop(lambda s: ~(s < 1), lambda s: s / 2, x) < 1, 1, 0),
            "float32",
        ),
    ],
    ids=["known", "compared"],
)
@every_architecture
def test_a_loop_that_may_never_end_reads_what_decides_it(fun, dtype, architecture):
    """C++ lets a compiler assume its end, and thus what is known of the value behind it."""
    loads, _ = _accesses(simt.make_kernel(fun, [dtype]), sass.number(architecture))
    assert loads


@together.compiled
def test_16_bit_divisions_are_not_ieee_divisions():
    """bfloat16 silu was bound by arithmetic with those, which call a subroutine."""
    kernel = simt.make_kernel(jax.nn.silu, ["bfloat16"])
    assert "CALL.REL.NOINC" not in sass.opcodes_of(kernel, 90)
