"""Functions of one element that many tests use, and how results are compared and counted."""

import dataclasses
import os
import re
import subprocess
import sys
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

TARGET = "jax_elementwise_kernel"

# ---- The case table ------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Case:
    """A function of one element.

    Attributes:
      name: of the case.
      fun: takes and returns scalars.
      dtypes: of its operands.
      low: the smallest value that an operand takes; the largest is 2.
    """

    name: str
    fun: Callable
    dtypes: tuple[str, ...] = ("float32",)
    low: float = -2.0

    def operands(self, rng, shapes):
        """Random arrays of these shapes, of one dimension tuple per operand."""
        return tuple(
            random_array(rng, shape, dtype, self.low)
            for shape, dtype in zip(shapes, self.dtypes, strict=True)
        )

    def __str__(self):
        return self.name


@jax.custom_jvp
def safe_log(x):
    return jnp.log(jnp.maximum(x, 0.1))


@safe_log.defjvp
def _safe_log_jvp(primals, tangents):
    (x,), (dot,) = primals, tangents
    return safe_log(x), dot / jnp.maximum(x, 0.1)


@jax.custom_vjp
def scaled_gradient(x):
    return jnp.sin(x)


scaled_gradient.defvjp(
    lambda x: (jnp.sin(x), x), lambda x, cotangent: (3.0 * jnp.cos(x) * cotangent,)
)


def branch(x, y):
    return lax.cond(x > y, lambda x, y: x * x * y, lambda x, y: jnp.sin(x) - y, x, y)


def many(x, y):
    return {"product": x * y, "pair": (jnp.exp(-x), y - x)}


UNARY = (
    Case("gelu", lambda x: jax.nn.gelu(x, approximate=False)),
    Case("gelu_tanh", lambda x: jax.nn.gelu(x, approximate=True)),
    Case("silu", jax.nn.silu),
    Case("softplus", jax.nn.softplus),
    Case("mish", lambda x: x * jnp.tanh(jax.nn.softplus(x))),
    Case("cube", lambda x: x**3),
    Case("log_sqrt", lambda x: jnp.log(x) + jnp.sqrt(x), low=0.5),
    Case("custom_jvp", safe_log, low=0.5),
    Case("jitted", jax.jit(lambda x: jnp.sin(x) * x)),
    Case("remat", jax.checkpoint(lambda x: jnp.sin(jnp.sin(x)))),
)
BINARY = (
    Case("tanh_product", lambda x, y: jnp.tanh(x) * y, ("float32",) * 2),
    Case("quotient", lambda x, y: x / (1 + y * y), ("float32",) * 2),
    Case("branch", branch, ("float32",) * 2),
    Case("power", lambda x, y: x**y, ("float32",) * 2, low=0.5),
    Case("many", many, ("float32",) * 2),
)
SMOOTH = (
    *UNARY,
    *BINARY,
    Case("three", lambda x, y, z: x * jnp.cos(y) + z * y, ("float32",) * 3),
)

# ---- Arrays and references -----------------------------------------------------------------------


def random_array(rng, shape, dtype="float32", low=-2.0):
    if dtype == "bool":
        return jnp.asarray(rng.random(shape) < 0.5)
    if jnp.issubdtype(dtype, jnp.integer):
        return jnp.asarray(rng.integers(-3, 4, shape), dtype)
    return jnp.asarray(rng.uniform(low, 2.0, shape), dtype)


def reference(fun):
    """``fun`` on arrays that broadcast, by ``jax.vmap`` over one long axis and nothing of ours.

    It is one program: operation by operation takes several times as long to compile.
    """
    return jax.jit(eager_reference(fun))


def eager_reference(fun):
    """The same, operation by operation, so that no two of them are fused into another one."""

    def on_arrays(*operands):
        shape = np.broadcast_shapes(*(jnp.shape(x) for x in operands))
        flat = [jnp.broadcast_to(x, shape).reshape(-1) for x in operands]
        return jax.tree.map(lambda x: x.reshape(shape), jax.vmap(fun)(*flat))

    return on_arrays


def assert_same(actual, expected, eps=8, through=None):
    """Pytrees of one structure, with the same shapes and dtypes and almost the same numbers.

    ``eps`` counts machine epsilons, relative to the number or to 1: those of each leaf's dtype, or
    of the dtype ``through`` which numbers went on their way, if that is coarser.
    """
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    for a, e in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        assert a.shape == e.shape
        assert a.dtype == e.dtype
        if not jnp.issubdtype(e.dtype, jnp.inexact):
            np.testing.assert_array_equal(a, e)
            continue
        tolerance = eps * max(float(jnp.finfo(d).eps) for d in (e.dtype, through or e.dtype))
        wide = np.float64 if jnp.issubdtype(e.dtype, jnp.floating) else np.complex128
        np.testing.assert_allclose(
            np.asarray(a).astype(wide), np.asarray(e).astype(wide), tolerance, tolerance
        )


# ---- Looking at programs -------------------------------------------------------------------------


def equations(jaxpr):
    """Every equation of a jaxpr, those of inner jaxprs included."""
    for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        yield equation
        for value in equation.params.values():
            for inner in value if isinstance(value, (tuple, list)) else (value,):
                if hasattr(inner, "eqns"):
                    yield from equations(inner)


def calls(fun, *args):
    """The equations of our primitive in the jaxpr of ``fun``."""
    jaxpr = jax.make_jaxpr(fun)(*args)
    return [e for e in equations(jaxpr) if e.primitive.name == "elementwise"]


def lowered(fun, *args, platform="cuda"):
    """The StableHLO of ``jax.jit(fun)`` for a platform, without the text of kernels."""
    text = jax.jit(fun).trace(*args).lower(lowering_platforms=(platform,)).as_text()
    return re.sub(r'source = "(?:[^"\\]|\\.)*"', "source = ...", text)


def kernels(text):
    """The names of the kernels that a lowered program calls, in order."""
    named = re.findall(rf'custom_call @{TARGET}\(.*?name = "([^"]*)"', text)
    assert len(named) == text.count(f"custom_call @{TARGET}(")
    return named


def collectives(fun, *args):
    """The collective operations of a compiled program."""
    return collectives_in(jax.jit(fun).lower(*args).compile().as_text())


def collectives_in(text):
    """Those of a program as XLA writes it."""
    names = "all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter"
    return sorted(re.findall(rf"[)\]}}] ({names})(?:-start)?\(", text))


def run_python(code, **environment):
    """What a new Python process prints."""
    process = subprocess.run(
        [sys.executable, "-P", "-W", "error", "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


def enlargements(fun, *args):
    """What makes an array larger: in the jaxpr around our calls, and in the program for CUDA."""
    jaxpr = [
        str(equation)
        for equation in equations(jax.make_jaxpr(fun)(*args))
        if equation.primitive.name != "elementwise"
        and not any(hasattr(value, "eqns") for value in equation.params.values())
        and max(v.aval.size for v in equation.outvars)
        > max((v.aval.size for v in equation.invars), default=0)
    ]
    pattern = r"stablehlo\.(?:broadcast_in_dim|pad|concatenate|dynamic_broadcast\w*).*"
    operations = re.findall(pattern, lowered(fun, *args))
    return jaxpr, [op for op in operations if _size(op, "->") > _size(op, ": (")]


def _size(operation, marker):
    """Elements of the first tensor after a marker."""
    (shape,) = re.findall(rf"{re.escape(marker)} ?\(?tensor<((?:\d+x)*)", operation)[:1]
    return int(np.prod([int(n) for n in shape.split("x") if n], dtype=np.int64))
