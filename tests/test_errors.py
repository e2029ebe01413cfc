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


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "complex64", "float8_e4m3fn"])
@pytest.mark.parametrize("lowering", ["auto", "kernel"])
@PLATFORMS_ARE_ALIKE
def test_dtypes_that_kernels_do_not_take(call, lowering, dtype):
    f = je.elementwise(lambda x, scale: x, name="f", lowering=lowering)
    with pytest.raises(TypeError, match=rf"'f' got argument 'scale' of dtype {dtype}") as error:
        call(f, jnp.ones(3), jnp.ones(3, dtype))
    assert "bfloat16, float32" in str(error.value)
    assert "lowering='xla'" in str(error.value)


@pytest.mark.parametrize("lowering", ["auto", "kernel", "xla"])
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
@pytest.mark.parametrize("shape", [(1,), (2,), (3, 4), (1000, 1000)], ids=str)
@pytest.mark.parametrize("lowering", ["auto", "xla"])
def test_a_captured_array(make, shape, lowering):
    w = make(shape, np.float32)
    f = je.elementwise(lambda x: x * w, name="f", lowering=lowering)
    with pytest.raises(ValueError, match=r"'f' captures an array of shape") as error:
        f(jnp.ones(3))
    assert str(shape) in str(error.value)
    assert "Pass it as an argument" in str(error.value)


@pytest.mark.parametrize("wrap", [jax.jit, jax.checkpoint], ids=["jit", "remat"])
def test_an_array_captured_by_an_inner_function(wrap):
    w = jnp.arange(3.0)
    f = je.elementwise(lambda x: wrap(lambda x: x * w.sum())(x), name="f")
    with pytest.raises(ValueError, match=r"'f' captures an array of shape \(3,\)"):
        f(jnp.ones(3))


def test_an_array_captured_by_a_branch():
    w = jnp.arange(3.0)
    f = je.elementwise(lambda x: lax.cond(x > 0, lambda: w.sum(), lambda: x), name="f")
    with pytest.raises(ValueError, match=r"'f' captures an array of shape \(3,\)"):
        f(jnp.ones(3))


def test_a_traced_array_captured_inside_jit():
    with pytest.raises(ValueError, match=r"'f' captures an array of shape \(3,\)"):
        jax.jit(lambda w: je.elementwise(lambda x: x * w, name="f")(jnp.ones(3)))(jnp.ones(3))


# ---- Operations without C++ ----------------------------------------------------------------------


def _gamma(x):
    return lax.lgamma(x)  # the line that the message names


def _loop(x):
    return lax.while_loop(lambda x: x > 1, lambda x: x / 2, x)  # the line that the message names


def _stack(x):
    return jnp.stack([x, x]).sum()  # the line that the message names


def _print(x):
    jax.debug.print("{x}", x=x)  # the line that the message names
    return x


def _callback(x):
    call = functools.partial(jax.pure_callback, np.sin, vmap_method="sequential")
    return call(x, x)  # the line that the message names


def _small(x):
    return x.astype(jnp.int8).astype(jnp.float32)  # the line that the message names


def _in_branch(x):
    return lax.cond(x > 0, _gamma, lambda x: x, x)


def _in_jit(x):
    return jax.jit(lambda x: 2 * _gamma(x))(x)


UNSUPPORTED = pytest.mark.parametrize(
    ("fun", "primitive", "where"),
    [
        (_gamma, "lgamma", _gamma),
        (_loop, "while", _loop),
        (_stack, r"stack|broadcast_in_dim|concatenate", _stack),
        (_print, "debug_print|debug_callback", _print),
        (_callback, "pure_callback", _callback),
        (_small, "convert_element_type", _small),
        (_in_branch, "lgamma", _gamma),
        (_in_jit, "lgamma", _gamma),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)


@UNSUPPORTED
@pytest.mark.parametrize("lowering", ["auto", "kernel"])
@PLATFORMS_ARE_ALIKE
def test_operations_without_a_kernel_are_refused_on_every_platform(
    call, lowering, fun, primitive, where
):
    f = je.elementwise(fun, lowering=lowering)
    with pytest.raises(NotImplementedError, match=primitive) as error:
        call(f, jnp.full(3, 0.5))
    message = str(error.value)
    assert f"test_errors.py:{_marked_line(where)}" in message
    assert where.__name__ in message
    assert "lowering='xla'" in message


@UNSUPPORTED
def test_operations_without_a_kernel_run_as_xla_operations(fun, primitive, where, rng):
    del primitive, where
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

    f.defjvp(lambda primals, tangents: (f(*primals), lax.digamma(primals[0]) * tangents[0]))
    g = je.elementwise(f, name="g")
    x = jnp.ones(3)
    g(x)
    with pytest.raises(NotImplementedError, match="digamma"):
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
