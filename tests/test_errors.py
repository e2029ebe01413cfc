"""What bad input gets: the right exception, before anything compiles, that says what to do."""

import enum
import functools
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import random_array
from jax import lax

import jax_elementwise as je

PLATFORMS_ARE_ALIKE = pytest.mark.parametrize(
    "call", [lambda f, *args: f(*args), lambda f, *args: jax.jit(f)(*args)], ids=["eager", "jit"]
)


@je.elementwise
def weighted(x, params, *, scale=1.0):
    return x * params["w"] * scale


# ---- Arguments -----------------------------------------------------------------------------------


@PLATFORMS_ARE_ALIKE
def test_shapes_that_do_not_broadcast(call):
    x, w = jnp.ones((2, 3)), jnp.ones(4)
    with pytest.raises(ValueError, match=r"'weighted' do not broadcast") as error:
        call(weighted, x, {"w": w})
    assert "x: (2, 3), params['w']: (4,)" in str(error.value)
    with pytest.raises(ValueError, match=r"x: \(2, 3\), params\['w'\]: \(\), scale: \(2,\)"):
        weighted(x, {"w": 1.0}, scale=jnp.ones(2))


def test_shapes_of_variadic_arguments_are_named_by_position():
    f = je.elementwise(lambda *xs, **more: sum(xs) + sum(more.values()))
    with pytest.raises(ValueError, match=r"xs\[0\]: \(2,\), xs\[1\]: \(3,\), more\['z'\]: \(\)"):
        f(jnp.ones(2), jnp.ones(3), z=1.0)


# Those of them that this JAX has.
REFUSED = [
    name
    for name in (
        *("int2", "uint2", "int4", "uint4", "float4_e2m1fn", "float8_e3m4", "float8_e4m3"),
        *("float8_e4m3b11fnuz", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"),
    )
    if hasattr(jnp, name)
]


@pytest.mark.parametrize("dtype", REFUSED)
@pytest.mark.parametrize("lowering", ["auto", "kernel"])
@PLATFORMS_ARE_ALIKE
def test_dtypes_that_kernels_do_not_take(call, lowering, dtype):
    f = je.elementwise(lambda x, scale: x, name="f", lowering=lowering)
    with pytest.raises(TypeError, match=rf"'f' got argument 'scale' of dtype {dtype}") as error:
        call(f, jnp.ones(3), jnp.ones(3, dtype))
    assert "kernels take bool, int8, " in str(error.value)
    assert "lowering='xla'" in str(error.value)


@pytest.mark.parametrize("lowering", ["auto", "kernel"])
@PLATFORMS_ARE_ALIKE
def test_typed_keys_are_no_numbers(call, lowering):
    f = je.elementwise(lambda k: jax.random.uniform(k), lowering=lowering)
    with pytest.raises(TypeError, match=r"argument 'k' of dtype key<fry>"):
        call(f, jax.random.split(jax.random.key(0), 3))


@pytest.mark.parametrize(
    "value",
    ["text", object(), {1, 2}, np.array(["a"]), np.array([object()]), slice(3)],
    ids=["str", "object", "set", "strings", "objects", "slice"],
)
@pytest.mark.parametrize("lowering", ["auto", "xla"])
def test_objects_are_no_arrays(value, lowering):
    f = je.elementwise(lambda x, params: x, lowering=lowering)
    with pytest.raises(TypeError, match=r"params\['w'\]"):
        f(jnp.ones(3), {"w": value})


# ---- Results -------------------------------------------------------------------------------------


@pytest.mark.parametrize("lowering", ["auto", "kernel", "xla"])
@PLATFORMS_ARE_ALIKE
def test_a_function_must_return_scalars(call, lowering):
    f = je.elementwise(lambda x: (x, jnp.stack([x, x])), name="f", lowering=lowering)
    with pytest.raises(TypeError, match=r"'f' must return scalars.*shape \(2,\).*float32 at \[1\]"):
        call(f, jnp.ones(3))


def test_a_function_that_returns_an_array_on_its_own_is_told_so():
    f = je.elementwise(lambda x: x[None], name="f")
    with pytest.raises(TypeError, match=r"shape \(1,\) and dtype float32\."):
        f(jnp.ones(3))


def test_an_array_that_a_function_captures_for_each_element_is_named():
    x = jnp.ones(7)
    f = je.elementwise(lambda y: x * y, name="f")
    with pytest.raises(TypeError, match=r"captures is a whole table.*pass it as an argument"):
        f(jnp.ones(7))


class _Color(enum.Enum):
    RED = 1


@pytest.mark.parametrize(
    ("value", "shown"), [("text", "str"), (object(), "object"), (_Color.RED, "_Color")]
)
def test_a_function_that_returns_no_numbers(value, shown):
    @je.elementwise
    def f(x):
        return {"r": value}

    with pytest.raises(TypeError, match=rf"function f .*{shown}.*\['r'\]"):
        f(jnp.ones(3))


# ---- Captured values -----------------------------------------------------------------------------


@pytest.mark.parametrize("make", [jnp.ones, np.ones], ids=["jax", "numpy"])
@pytest.mark.parametrize("shape", [(65,), (5, 13), (1000, 1000)], ids=str)
@pytest.mark.parametrize("lowering", ["auto", "kernel"])
@PLATFORMS_ARE_ALIKE
def test_a_captured_array_of_more_than_64_entries(call, make, shape, lowering):
    w = make(shape, np.float32)
    f = je.elementwise(lambda x: (x * w).sum(), name="f", lowering=lowering)
    with pytest.raises(ValueError, match=r"'f' captures an array of shape") as error:
        call(f, jnp.ones(3))
    for part in (str(shape), "float32", "64 entries", "Pass it as an argument"):
        assert part in str(error.value)


@pytest.mark.parametrize("lowering", ["auto", "xla"])
def test_captured_arrays_of_64_entries_and_of_none_are_tables(lowering):
    for shape, total in (((64,), 64), ((2, 4, 8), 64), ((1,), 1), ((0,), 0)):
        w = np.ones(shape, np.float32)
        f = je.elementwise(lambda x, w=w: (x * w).sum(), lowering=lowering)
        np.testing.assert_array_equal(f(jnp.full(3, 2.0)), np.full(3, 2 * total))


@pytest.mark.parametrize(
    "wrap",
    [jax.jit, jax.checkpoint, lambda f: lambda x: lax.cond(x > 0, f, lambda x: x, x)],
    ids=["jit", "remat", "cond"],
)
def test_a_large_array_captured_by_an_inner_function(wrap):
    w = jnp.arange(65.0)
    f = je.elementwise(lambda x: wrap(lambda x: x * w.sum())(x), name="f")
    with pytest.raises(ValueError, match=r"'f' captures an array of shape \(65,\)"):
        f(jnp.ones(3))


@pytest.mark.parametrize("transform", [jax.jit, jax.grad, jax.vmap])
def test_a_captured_array_that_is_traced(transform):
    def run(w):
        return je.elementwise(lambda x: (x * w).sum(), name="f")(jnp.ones(3)).sum()

    w = jnp.ones((2, 3)) if transform is jax.vmap else jnp.ones(3)
    message = r"'f' captures an array of shape \(3,\) and dtype float32 whose values are not known"
    with pytest.raises(ValueError, match=message) as error:
        transform(run)(w)
    assert "Pass its entries as arguments" in str(error.value)


def _jvp_rule_with(w):
    f = jax.custom_jvp(lambda x: x)
    f.defjvp(lambda primals, dots: (f(*primals), dots[0] * w.sum()))
    return f


def test_a_derivative_rule_that_captures_a_large_or_a_traced_array():
    who = "a derivative rule inside an elementwise function captures an array of shape"

    def gradient(w):
        return jax.grad(lambda x: je.elementwise(_jvp_rule_with(w))(x).sum())(jnp.ones(3))

    np.testing.assert_array_equal(gradient(jnp.ones(64)), [64, 64, 64])
    with pytest.raises(ValueError, match=rf"{who} \(65,\) .* more than the 64 entries"):
        gradient(jnp.ones(65))
    with pytest.raises(ValueError, match=r"captures an array of shape \(4,\) .* not known"):
        jax.jit(gradient)(jnp.ones(4))


# ---- Operations without C++ ----------------------------------------------------------------------


def _root(x):
    return jnp.linalg.cholesky(x[None, None])[0, 0]  # the line that the message names


def _sort_in_a_loop(x):
    return lax.while_loop(lambda x: x > 1, lambda x: _sort(x) / 2, x)


def _sort_in_a_scan(x):
    return lax.fori_loop(0, 9, lambda _, x: _sort(x), x)


def _sort(x):
    return jnp.sort(jnp.stack([x, -x]))[0]  # the line that the message names


def _inverse(x):
    return jnp.linalg.inv(x * np.eye(2))[0, 0]  # the line that the message names


def _large(x):
    return jnp.sum(jnp.full((5, 13), x))  # the line that the message names


def _random(x):
    return x * jax.random.uniform(jax.random.key(0))  # the line that the message names


def _print(x):
    jax.debug.print("{x}", x=x)  # the line that the message names
    return x


def _callback(x):
    call = functools.partial(jax.pure_callback, np.sin, vmap_method="sequential")
    return call(x, x)  # the line that the message names


def _small(x):
    return x.astype(jnp.int4).astype(jnp.float32)  # the line that the message names


def _in_branch(x):
    return lax.cond(x > 0, _root, lambda x: x, x)


def _in_jit(x):
    return jax.jit(lambda x: 2 * _root(x))(x)


UNSUPPORTED = pytest.mark.parametrize(
    ("fun", "what", "where"),
    [
        (_root, "'cholesky'", _root),
        (_sort_in_a_loop, "'sort'", _sort),
        (_sort_in_a_scan, "'sort'", _sort),
        (_sort, "'sort'", _sort),
        (_inverse, "'lu'", _inverse),
        (_large, r"broadcast_in_dim, an array of shape \(5, 13\) per element", _large),
        (_random, "'random_", _random),
        (_print, "debug_print|debug_callback", _print),
        (_callback, "pure_callback", _callback),
        (_small, "convert_element_type, which has dtype int4", _small),
        (_in_branch, "'cholesky'", _root),
        (_in_jit, "'cholesky'", _root),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)


@UNSUPPORTED
@pytest.mark.parametrize("lowering", ["auto", "kernel"])
@PLATFORMS_ARE_ALIKE
def test_operations_without_a_kernel_are_refused_on_every_platform(
    call, lowering, fun, what, where
):
    f = je.elementwise(fun, lowering=lowering)
    with pytest.raises(NotImplementedError, match=what) as error:
        call(f, jnp.full(3, 0.5))
    message = str(error.value)
    assert f"test_errors.py:{_marked_line(where)}" in message
    assert where.__name__ in message
    assert "lowering='xla'" in message


@pytest.mark.sampled
@UNSUPPORTED
def test_operations_without_a_kernel_run_as_xla_operations(fun, what, where, rng):
    del what, where
    x = random_array(rng, (5,), low=0.1)
    f = je.elementwise(fun, lowering="xla")
    np.testing.assert_allclose(f(x), jnp.stack([fun(element) for element in x]), rtol=1e-6)


def _marked_line(function):
    lines, start = inspect.getsourcelines(function)
    (offset,) = (i for i, line in enumerate(lines) if "the line that the message names" in line)
    return start + offset


def test_an_operation_that_only_a_derivative_needs_is_refused_when_it_is_taken():
    @jax.custom_jvp
    def f(x):
        return jnp.sin(x)

    f.defjvp(lambda primals, tangents: (f(*primals), _sort(primals[0]) * tangents[0]))
    g = je.elementwise(f, name="g")
    x = jnp.ones(3)
    g(x)
    with pytest.raises(NotImplementedError, match="sort"):
        jax.grad(lambda x: g(x).sum())(x)


def test_too_many_operands_for_one_kernel():
    f = je.elementwise(lambda *xs: sum(xs), name="f")
    operands = [jnp.ones(3)] * 200
    for call in (f.cuda_source, f, jax.jit(f)):
        with pytest.raises(ValueError, match=r"'f' has 200 operands .* and 1 results"):
            call(*operands)
    by_xla = je.elementwise(lambda *xs: sum(xs), lowering="xla")
    np.testing.assert_array_equal(by_xla(*operands), [200, 200, 200])


# ---- The user's own mistakes ---------------------------------------------------------------------


def test_the_functions_own_exceptions_pass_through():
    @je.elementwise
    def f(x):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        f(jnp.ones(3))


def test_a_python_condition_on_an_element_is_jaxs_error_and_names_function_and_argument():
    @je.elementwise
    def f(x, speed):
        return x if speed > 0 else -x

    with pytest.raises(jax.errors.TracerBoolConversionError, match=r"(?s)function f .* speed"):
        f(jnp.ones(3), jnp.ones(3))


# ---- Options -------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [3, "text", jnp.ones(3), (abs,)], ids=str)
def test_only_functions_are_wrapped(value):
    with pytest.raises(TypeError, match="makes a function from a function"):
        je.elementwise(value)
    with pytest.raises(TypeError, match="makes a function from a function"):
        je.elementwise(name="f")(value)


@pytest.mark.parametrize("name", ["", 5, b"f", ("f",)], ids=repr)
def test_names_that_are_none(name):
    with pytest.raises(TypeError, match="name must be a string that is not empty, not"):
        je.elementwise(lambda x: x, name=name)


@pytest.mark.parametrize(
    "arch",
    [
        "90", "sm_", "sm_9x", "sm_90a", "sm_100f", "compute_90", "SM_90", "", 90, "sm_9", "sm_9000",
        "sm_-90", "sm_ 90", "sm_90\n", "sm_\u0669\u0660",
    ],
)  # fmt: skip
def test_architectures_that_are_none(arch):
    with pytest.raises(ValueError, match=r"arch must be like 'sm_90'"):
        je.elementwise(jnp.sin).cubin(jnp.ones(3), arch=arch)


@pytest.mark.parametrize("options", [{"lowring": "xla"}, {"static_argnums": 1}])
def test_options_that_do_not_exist(options):
    with pytest.raises(TypeError, match="unexpected keyword"):
        je.elementwise(lambda x: x, **options)
    with pytest.raises(TypeError, match="unexpected keyword"):
        functools.partial(je.elementwise, **options)(lambda x: x)
