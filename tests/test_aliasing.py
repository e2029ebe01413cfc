"""``input_output_aliases``: what becomes of the pairs, and that no value hangs on them."""

import functools
import re

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from cases import TARGET, assert_same, calls, kernels, lowered, random_array
from jax import lax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import jax_elementwise as je


def adam(p, m, v, g, rate):
    m = 0.9 * m + 0.1 * g
    v = 0.99 * v + 0.01 * g * g
    return p - rate * m / (jnp.sqrt(v) + 1e-3), m, v


def product(x, y):
    return x * y + 1


def crossed(x, y):
    return {"b": y * 2 - x, "a": x * 3}


def partly(x, y):
    return x, x * y, y * y


# Function, number of operands, aliases.
FUNCTIONS = {
    "adam": (adam, 5, {0: 0, 1: 1, 2: 2}),
    "product": (product, 2, {0: 0}),
    "second": (product, 2, {1: 0}),
    "crossed": (crossed, 2, {0: 1, 1: 0}),
    "partly": (partly, 2, {0: 0, 1: 2}),
}
EVERY_FUNCTION = pytest.mark.parametrize(
    ("fun", "count", "aliases"), FUNCTIONS.values(), ids=FUNCTIONS
)


def operands(rng, count, shape=(6, 4)):
    """Positive arrays, the last of them of one element if there are many."""
    shapes = [shape] * min(count, 4) + [()] * max(count - 4, 0)
    return [random_array(rng, s, low=0.5) for s in shapes]


def aliased(fun, aliases):
    return je.elementwise(fun, input_output_aliases=aliases)


def kept(fun, *args):
    """Per call of the primitive in the jaxpr of ``fun``, its aliases."""
    return [dict(e.params["options"].aliases) for e in calls(fun, *args)]


def program(fun, *args, donate=()):
    """The StableHLO of a function for CUDA."""
    traced = jax.jit(fun, donate_argnums=donate).trace(*args)
    return traced.lower(lowering_platforms=("cuda",)).as_text()


def pairs(text):
    """Operand and result of every alias in a program with one call."""
    pattern = r"output_tuple_indices = \[(\d*)\], operand_index = (\d+)"
    return {int(operand): int(result or 0) for result, operand in re.findall(pattern, text)}


# ---- Values --------------------------------------------------------------------------------------


@pytest.mark.sampled
@EVERY_FUNCTION
@pytest.mark.parametrize("shape", [(), (1,), (5,), (6, 4), (0,), (3, 0)], ids=str)
def test_values_with_and_without_donation(fun, count, aliases, shape, rng):
    xs = operands(rng, count, shape)
    f, expected = aliased(fun, aliases), je.elementwise(fun)(*xs)
    before = [np.array(x) for x in xs]
    assert_same(f(*xs), expected)
    assert_same(jax.jit(f)(*xs), expected)
    assert_same(xs, list(map(jnp.asarray, before)), eps=0)
    donated = tuple(sorted(aliases))
    assert_same(jax.jit(f, donate_argnums=donated)(*xs), expected)
    assert [x.is_deleted() for x in xs] == [i in donated for i in range(count)]


@EVERY_FUNCTION
def test_values_of_temporaries_and_of_repeated_operands(fun, count, aliases, rng):
    xs = operands(rng, count)

    def run(f, *xs):
        once = f(*(jnp.sin(x) + 2 for x in xs))
        return once, f(*[xs[0]] * count)

    mine = jax.jit(functools.partial(run, aliased(fun, aliases)))(*xs)
    assert_same(mine, run(je.elementwise(fun), *xs))


def test_a_loop(rng):
    p, m, v, g, rate = operands(rng, 5)

    def run(f, p, m, v):
        return lax.fori_loop(0, 5, lambda _, pmv: f(*pmv, g, rate), (p, m, v))

    expected = run(je.elementwise(adam), p, m, v)
    f = aliased(adam, {0: 0, 1: 1, 2: 2})
    mine = jax.jit(functools.partial(run, f), donate_argnums=(0, 1, 2))(p, m, v)
    assert_same(mine, expected, eps=64)


def gradients(fun, order, count):
    """The gradients of the sum of all results; of the sum of those, if ``order`` is 2."""

    def total(*xs):
        return sum(leaf.sum() for leaf in jax.tree.leaves(fun(*xs)))

    first = jax.grad(total, tuple(range(count)))
    return first if order == 1 else gradients(first, order - 1, count)


@pytest.mark.sampled
@EVERY_FUNCTION
@pytest.mark.parametrize("lowering", ["auto", "xla"])
def test_derivatives_are_those_without_aliases(fun, count, aliases, lowering, rng):
    xs = operands(rng, count)
    f = je.elementwise(fun, input_output_aliases=aliases, lowering=lowering)
    g = je.elementwise(fun, lowering=lowering)

    for order in (1, 2):
        mine, theirs = gradients(f, order, count), jax.jit(gradients(g, order, count))
        assert_same(mine(*xs), theirs(*xs), eps=256)
    jvp = jax.jit(jax.jvp, static_argnums=0)
    expected = jvp(g, xs, xs)
    assert_same(jax.jvp(f, xs, xs), expected, eps=64)
    assert_same(jvp(f, xs, xs), expected, eps=64)


@pytest.mark.sampled
@EVERY_FUNCTION
def test_vmap_over_any_operands(fun, count, aliases, rng):
    xs = operands(rng, count)
    stacked = [jnp.stack([x, 2 * x, x + 1]) for x in xs]
    f, g = aliased(fun, aliases), je.elementwise(fun)
    for mapped in range(1, 2**count, 1 if count < 5 else 5):
        axes = [0 if mapped >> i & 1 else None for i in range(count)]
        mixed = [s if axis == 0 else x for x, s, axis in zip(xs, stacked, axes, strict=True)]
        assert_same(jax.vmap(f, axes)(*mixed), jax.vmap(g, axes)(*mixed))
    expected = jax.vmap(g)(*stacked)
    donated = tuple(sorted(aliases))
    assert_same(jax.jit(jax.vmap(f), donate_argnums=donated)(*stacked), expected)


# ---- What the primitive keeps --------------------------------------------------------------------


def test_no_aliases_are_none(rng):
    for aliases in (None, {}):
        assert kept(aliased(product, aliases), *operands(rng, 2)) == [{}]


def test_numbers_count_leaves_of_arguments_and_results(rng):
    x, y = operands(rng, 2)

    @functools.partial(
        je.elementwise, input_output_aliases={2: 0, 1: 1}, static_argnames=("power",)
    )
    def f(power, tree, shift=1.0, *, z):
        return {"a": tree["k"] + z**power, "b": (tree["l"] * shift,)}

    assert kept(lambda x, y: f(3, {"k": 1.0, "l": y}, z=x), x, y) == [{2: 0, 1: 1}]
    given_by_name = functools.partial(f, power=3)
    assert kept(lambda x, y: given_by_name(z=x, tree={"k": 1.0, "l": y}), x, y) == [{2: 0, 1: 1}]


@pytest.mark.parametrize(
    ("fun", "aliases", "expected"),
    [
        (lambda x, y, z: (z * 2, x + 1), {2: 0, 0: 1}, [{0: 1, 1: 0}]),  # y is not read
        (lambda x, y, z: (x, z + y), {0: 0, 2: 1}, [{1: 0}]),  # result 0 is not computed
        (lambda x, y, z: (y, z + y), {0: 0, 1: 1}, [{0: 0}]),
        (lambda x, y, z: (x * y, x * y + z, x * y), {0: 0, 2: 1}, [{0: 0, 2: 1}]),
        (lambda x, y, z: y + z, {0: 0}, [{}]),
        (lambda x, y, z: z, {0: 0}, []),
    ],
)
def test_operands_and_results_that_are_dropped(fun, aliases, expected, rng):
    xs = operands(rng, 3)
    assert kept(aliased(fun, aliases), *xs) == expected
    assert_same(aliased(fun, aliases)(*xs), fun(*xs))
    donated = jax.jit(aliased(fun, aliases), donate_argnums=2)
    assert_same(donated(*xs[:2], jnp.array(xs[2])), fun(*xs))


def test_equal_results_are_one_result(rng):
    def fun(x, y):
        total = x + y
        return total, total, total * y

    xs = operands(rng, 2)
    assert kept(aliased(fun, {0: 1, 1: 2}), *xs) == [{0: 0, 1: 1}]
    assert kept(aliased(fun, {0: 0, 1: 1}), *xs) == [{0: 0}]
    expected = fun(*xs)
    assert_same(jax.jit(aliased(fun, {0: 0, 1: 1}), donate_argnums=(0, 1))(*xs), expected)


def test_captured_values_come_after_the_arguments(rng):
    x, y = operands(rng, 2)

    def run(s, x, y):
        return aliased(lambda x, y: (x * s, y + s), {0: 0, 1: 1})(x, y)

    assert kept(run, jnp.float32(2), x, y) == [{0: 0, 1: 1}]
    assert_same(run(jnp.float32(2), x, y), (2 * x, y + 2))


@pytest.mark.parametrize(
    ("axes", "expected"),
    [
        ((0, None), {0: 0}),
        ((None, 0), {1: 1}),
        ((0, 0), {0: 0, 1: 1}),
        ((1, 1), {0: 0, 1: 1}),
        ((0, 1), {0: 0, 1: 1}),
    ],
)
def test_vmap_keeps_the_operands_that_it_maps(axes, expected, rng):
    x, y = random_array(rng, (4, 4)), random_array(rng, (4, 4))
    f = aliased(lambda x, y: (x + y, y - x), {0: 0, 1: 1})
    x, y = (a if axis is not None else a[0] for a, axis in zip((x, y), axes, strict=True))
    assert kept(jax.vmap(f, axes), x, y) == [expected]


def test_vmap_of_an_operand_that_is_not_mapped_twice(rng):
    x, y = random_array(rng, (3,)), random_array(rng, (2, 3))
    f = aliased(lambda x, y: (x + y, y - x), {0: 0, 1: 1})
    assert kept(jax.vmap(f, (None, 0)), x[0], y[:, 0]) == [{1: 1}]
    inner = jax.vmap(f, (None, 0))
    assert kept(jax.vmap(inner, (0, None)), x, y[:, 0]) == [{}]
    assert kept(jax.vmap(inner, (0, 1)), x, y) == [{1: 1}]


def test_derivatives_have_no_aliases_and_the_function_keeps_its_own(rng):
    xs = operands(rng, 5)
    f = aliased(adam, {0: 0, 1: 1, 2: 2})
    assert kept(lambda *xs: jax.jvp(f, xs, xs), *xs) == [{0: 0, 1: 1, 2: 2}, {}]
    gradient = jax.grad(lambda *xs: sum(leaf.sum() for leaf in f(*xs)), (0, 1, 2, 3, 4))
    assert [pair for pair in kept(gradient, *xs) if pair] == [{0: 0, 1: 1, 2: 2}]


def test_the_transpose_of_a_linear_function_has_no_aliases(rng):
    x, y = operands(rng, 2)
    f = aliased(lambda x, y: (x - y, x + y, 3 * y), {1: 2, 0: 1})
    transposed = jax.linear_transpose(f, x, y)
    assert kept(transposed, (x, y, x)) == [{}]
    assert_same(transposed((x, y, x)), (x + y, y - x + 3 * x), eps=32)


# ---- Programs for CUDA ---------------------------------------------------------------------------


def test_a_program_names_the_pairs_and_the_donated_arguments(rng):
    xs = operands(rng, 5)
    f = aliased(adam, {0: 0, 1: 1, 2: 2})
    assert "alias" not in program(je.elementwise(adam), *xs)
    text = program(f, *xs)
    assert pairs(text) == {0: 0, 1: 1, 2: 2}
    assert "tf.aliasing_output" not in text
    donated = program(f, *xs, donate=(0, 1, 2))
    assert pairs(donated) == {0: 0, 1: 1, 2: 2}
    marks = r"%arg(\d): tensor<6x4xf32> \{(?:tf\.aliasing_output = (\d) : i32|jax\.buffer_donor)"
    assert re.findall(marks, donated) == [("0", "0"), ("1", "1"), ("2", "2")]


def test_a_program_with_one_result_names_its_pair(rng):
    text = program(aliased(product, {1: 0}), *operands(rng, 2), donate=1)
    assert "output_operand_alias<output_tuple_indices = [], operand_index = 1" in text
    assert re.search(r"%arg1: tensor<6x4xf32> \{tf\.aliasing_output = 0", text)


def test_pairs_are_numbered_as_in_the_call(rng):
    def fun(x, y, z):
        return x, y, z * 2, z * x

    xs = operands(rng, 3)
    assert pairs(program(aliased(fun, {1: 1, 2: 2, 0: 3}), *xs)) == {0: 1, 1: 0}


def test_other_lowerings_have_no_pairs(rng, monkeypatch):
    xs = operands(rng, 2)
    f = aliased(product, {0: 0})
    assert "operand_alias" not in lowered(f, *xs, platform="cpu")
    assert "operand_alias" not in lowered(
        je.elementwise(product, input_output_aliases={0: 0}, lowering="xla"), *xs
    )
    monkeypatch.setenv("JAX_ELEMENTWISE_LOWERING", "xla")
    assert "operand_alias" not in lowered(lambda *xs: f(*xs), *xs)


def test_the_environment_keeps_aliases(rng, monkeypatch):
    monkeypatch.setenv("JAX_ELEMENTWISE_LOWERING", "kernel")
    assert pairs(program(lambda *xs: aliased(product, {0: 0})(*xs), *operands(rng, 2))) == {0: 0}


def test_an_exported_program_keeps_them(rng):
    xs = operands(rng, 2)
    step = jax.jit(aliased(product, {0: 0}), donate_argnums=0)
    allowed = jax.export.DisabledSafetyCheck.custom_call(TARGET)
    for platforms in (["cuda"], ["cpu", "cuda"]):
        exported = jax.export.export(step, platforms=platforms, disabled_checks=[allowed])(*xs)
        assert pairs(exported.mlir_module()) == {0: 0}
    assert_same(exported.call(*xs), product(*xs))


def test_the_text_tells_the_compiler_which_arrays_may_be_one(rng):
    xs = operands(rng, 2)
    f = aliased(lambda x, y: (x * y, x - y), {1: 0})
    text = f.cuda_source(*xs)
    assert text.count("__restrict__") == 2
    assert "float* out0," in text
    assert "float* __restrict__ out1," in text
    assert "const float* __restrict__ in0," in text
    assert "const float* in1)" in text
    assert "InPlace<float>{out0" in text
    assert "Output<float>{out1" in text


def test_kernels_with_and_without_aliases_are_two_kernels(rng):
    xs = operands(rng, 2)
    f, g = aliased(product, {0: 0}), je.elementwise(product)
    assert f.cuda_source(*xs) != g.cuda_source(*xs)
    assert kernels(lowered(f, *xs)) != kernels(lowered(g, *xs))
    # One that is left without aliases is the same kernel.
    unmapped = jax.vmap(f, (None, 0)), jax.vmap(g, (None, 0))
    args = xs[0], jnp.stack([xs[1]] * 2)
    assert len({*map(str, (kernels(lowered(h, *args)) for h in unmapped))}) == 1


# ---- Sharding ------------------------------------------------------------------------------------

needs_8_devices = pytest.mark.skipif(jax.device_count() < 8, reason="needs 8 devices")


def make_mesh(kind):
    return jax.make_mesh((4, 2), ("x", "y"), axis_types=(kind,) * 2)


@pytest.mark.sampled
@needs_8_devices
@pytest.mark.parametrize("kind", [AxisType.Explicit, AxisType.Auto], ids=["explicit", "auto"])
@pytest.mark.parametrize("spec", [("x", "y"), ("x",), ()], ids=str)
def test_sharded_arrays(kind, spec, rng):
    mesh = make_mesh(kind)
    f, g = aliased(adam, {0: 0, 1: 1, 2: 2}), je.elementwise(adam)
    *arrays, rate = operands(rng, 5, (64, 8))
    with jax.set_mesh(mesh):
        xs = [jax.device_put(x, NamedSharding(mesh, P(*spec))) for x in arrays]
        expected = jax.jit(g)(*xs, rate)
        assert_same(jax.jit(f)(*xs, rate), expected)
        assert_same(f(*xs, rate), expected)
        results = jax.jit(f, donate_argnums=(0, 1, 2))(*xs, rate)
    assert_same(results, expected)
    for mine, theirs in zip(results, expected, strict=True):
        assert mine.sharding.is_equivalent_to(theirs.sharding, 2)


@needs_8_devices
def test_over_an_explicit_mesh_each_device_has_its_pairs(rng):
    mesh = make_mesh(AxisType.Explicit)
    f = aliased(adam, {0: 0, 1: 1, 2: 2})
    *arrays, rate = operands(rng, 5, (64, 8))
    with jax.set_mesh(mesh):
        xs = [jax.device_put(x, NamedSharding(mesh, P("x", "y"))) for x in arrays]
        text = program(f, *xs, rate, donate=(0, 1, 2))
        row = jax.device_put(arrays[0][0], NamedSharding(mesh, P("y")))
        assert kept(aliased(product, {0: 0}), xs[0], row) == [{0: 0}]
    assert pairs(text) == {0: 0, 1: 1, 2: 2}
    assert "tensor<16x4xf32>" in text.split("custom_call")[1]
    assert len(re.findall(r"tf\.aliasing_output|jax\.buffer_donor", text)) == 3
