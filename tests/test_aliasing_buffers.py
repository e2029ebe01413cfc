"""What XLA makes of aliases: which buffers it copies, and which memory it needs.

Custom calls are alike to the passes of XLA that decide about that, on every platform. So programs
with ours are compiled for the CPU here.
"""

import json
import pathlib

import jax
import pytest
from cases import run_python

pytestmark = pytest.mark.skipif(jax.device_count() < 8, reason="needs 8 devices")

MEGABYTE = 2**20
_COMPILE = f"""
import json, re, sys
sys.path.insert(0, {str(pathlib.Path(__file__).parent)!r})
import jax, jax.numpy as jnp, numpy as np
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
import jax_elementwise as je

def adam(p, m, v, g):
    m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
    return p - m / (jnp.sqrt(v) + 1e-3), m, v

def crossed(x, y):
    return y * 2 - x, x * 3

def product(x, y):
    return x * y + 1

def loop(f):
    return lambda p, m, v, g: lax.fori_loop(0, 9, lambda _, pmv: f(*pmv, g), (p, m, v))

NUMBERS = np.arange(512 * 512, dtype=np.float32).reshape(512, 512)
x = jax.ShapeDtypeStruct((512, 512), jnp.float32)  # a megabyte
found = {{}}

def compile(name, fun, *args, donate=()):
    compiled = jax.jit(fun, donate_argnums=donate).lower(*args).compile()
    text, memory = compiled.as_text(), compiled.memory_analysis()
    assert text.count('custom_call_target="jax_elementwise_kernel"') == 1
    found[name] = {{
        "copies": len(re.findall(r"f32\\[\\d+,\\d+\\]\\S* copy\\(", text)),
        "temporary": memory.temp_size_in_bytes,
        "aliased": memory.alias_size_in_bytes,
    }}

def both(name, fun, aliases, count, wrap=lambda f: f, x=x, donate=()):
    for option, label in ((aliases, name), (None, name + " without")):
        f = je.elementwise(fun, input_output_aliases=option)
        compile(label, wrap(f), *[x] * count, donate=donate)

both("adam", adam, {{0: 0, 1: 1, 2: 2}}, 4, donate=(0, 1, 2))
both("adam, nothing donated", adam, {{0: 0, 1: 1, 2: 2}}, 4)
both("loop", adam, {{0: 0, 1: 1, 2: 2}}, 4, loop, donate=(0, 1, 2))
both("vmap", product, {{0: 0}}, 2, jax.vmap, donate=0)
both("temporary", product, {{0: 0}}, 2, lambda f: lambda x, y: f(x @ y, y))
both("straight", crossed, {{0: 0, 1: 1}}, 2, donate=(0, 1))
both("crossed", crossed, {{0: 1, 1: 0}}, 2, donate=(0, 1))
both("twice", product, {{0: 0}}, 1, lambda f: lambda x: f(x, x), donate=0)
both("equal", product, {{0: 0}}, 1, lambda f: lambda x: f(x, x * 1), donate=0)
both("constant", product, {{0: 0}}, 1, lambda f: lambda y: f(jnp.asarray(NUMBERS), y))
both("returned", product, {{0: 0}}, 2, lambda f: lambda x, y: (f(t := x @ y, y), t))
mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
with jax.set_mesh(mesh):
    sharded = x.update(sharding=NamedSharding(mesh, P("x", "y")))
    both("mesh", adam, {{0: 0, 1: 1, 2: 2}}, 4, x=sharded, donate=(0, 1, 2))
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def compiled(host_compiler):
    """Of every program: its copies of arrays, and its bytes of memory."""
    return json.loads(run_python(_COMPILE, JAX_PLATFORMS="cpu", JAX_ELEMENTWISE_LOWERING="kernel"))


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["adam", "loop", "mesh", "vmap", "straight"])
def test_donated_operands_are_updated_where_they_are(compiled, name):
    found, without = compiled[name], compiled[f"{name} without"]
    assert found["copies"] == 0
    assert found["temporary"] < MEGABYTE / 16
    assert found["aliased"] == without["aliased"] > 0
    # Each result is then written elsewhere and copied.
    assert without["copies"] > 0


def test_a_temporary_is_overwritten(compiled):
    assert compiled["temporary"] == {"copies": 0, "temporary": 0, "aliased": 0}
    assert compiled["temporary without"]["temporary"] == MEGABYTE


def test_what_is_not_donated_is_copied(compiled):
    assert compiled["adam, nothing donated"] == {"copies": 3, "temporary": 0, "aliased": 0}
    assert compiled["adam, nothing donated without"]["copies"] == 0


@pytest.mark.parametrize("name", ["constant", "returned"])
def test_what_must_keep_its_values_is_copied(compiled, name):
    assert compiled[name]["copies"] == 1
    assert compiled[f"{name} without"]["copies"] == 0


def test_donated_arguments_are_paired_in_order_whatever_the_aliases_say(compiled):
    """Which the docstring warns of."""
    assert compiled["crossed"]["copies"] > compiled["crossed without"]["copies"]


@pytest.mark.parametrize("name", ["twice", "equal"])
def test_an_operand_that_is_also_another_operand_is_copied(compiled, name):
    """What cuda.py relies on: no other operand lies in the buffer that a result is written to."""
    assert compiled[name]["copies"] > 0
