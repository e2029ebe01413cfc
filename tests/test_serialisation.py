"""Programs that outlive their process: compiled ahead of time, exported, and in JAX's own cache."""

import functools
import json
import pickle

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from cases import TARGET, assert_same, collectives_in, random_array, run_python
from jax.experimental import serialize_executable
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import jax_elementwise as je

pytestmark = pytest.mark.usefixtures("host_compiler")
needs_8_devices = pytest.mark.skipif(jax.device_count() < 8, reason="needs 8 devices")
KINDS = pytest.mark.parametrize("kind", [AxisType.Explicit, AxisType.Auto], ids=str)

# What the documentation names.
ALLOWED = [jax.export.DisabledSafetyCheck.custom_call("jax_elementwise_kernel")]

# For processes that run programs of this one.
TRUST = {"JAX_ELEMENTWISE_TRUST_PROGRAMS": "1"}


def reference(x, w):
    return jnp.tanh(x * w) + w, x - w


F = je.elementwise(reference, lowering="kernel")


def gradient(f):
    return jax.grad(lambda x, w: sum(y.sum() for y in f(x, w)), (0, 1))


TRANSFORMATIONS = pytest.mark.parametrize(
    "transform", [lambda f: f, gradient], ids=["forward", "gradient"]
)


@pytest.fixture
def xw(rng):
    return random_array(rng, (6, 4)), random_array(rng, (4,))


def export(fun, *args, platforms=("cpu", "cuda"), allowed=ALLOWED):
    return jax.export.export(jax.jit(fun), platforms=platforms, disabled_checks=allowed)(*args)


def again(exported):
    """After a trip through bytes."""
    pytest.importorskip("flatbuffers")
    return jax.export.deserialize(exported.serialize())


# ---- Ahead of time -------------------------------------------------------------------------------


@TRANSFORMATIONS
def test_compiled_ahead_of_time(transform, xw):
    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in xw]
    compiled = jax.jit(transform(F)).trace(*shapes).lower().compile()
    assert TARGET in compiled.as_text()
    assert_same(compiled(*xw), transform(reference)(*xw), eps=64)
    with pytest.raises(TypeError, match="Argument types differ"):
        compiled(xw[0][:3], xw[1])


@needs_8_devices
@KINDS
def test_compiled_ahead_of_time_for_several_devices(kind, rng):
    mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(kind,) * 2)
    placement = NamedSharding(mesh, P("x", "y"))
    shape = jax.ShapeDtypeStruct((64, 8), jnp.float32, sharding=placement)
    with jax.set_mesh(mesh):
        compiled = jax.jit(F).lower(shape, shape).compile()
        assert collectives_in(compiled.as_text()) == []
        x, w = (jax.device_put(random_array(rng, (64, 8)), placement) for _ in range(2))
        assert_same(compiled(x, w), reference(x, w), eps=64)


_LOAD = """
import json, pickle, sys
import jax, numpy as np
import jax_elementwise as je
from jax.experimental import serialize_executable
with open({path!r}, "rb") as file:
    compiled = serialize_executable.deserialize_and_load(*pickle.load(file))
print(json.dumps([np.asarray(y).tolist() for y in compiled(*np.load({operands!r}).values())]))
"""


def test_an_executable_moves_to_another_process(xw, tmp_path):
    compiled = jax.jit(F).lower(*xw).compile()
    (tmp_path / "program").write_bytes(pickle.dumps(serialize_executable.serialize(compiled)))
    np.savez(tmp_path / "operands.npz", *xw)
    code = _LOAD.format(path=str(tmp_path / "program"), operands=str(tmp_path / "operands.npz"))
    one = {"XLA_FLAGS": "", "JAX_ELEMENTWISE_CACHE_DIR": ""}
    printed = run_python(code, JAX_PLATFORMS="cpu", **one, **TRUST)
    for mine, theirs in zip(json.loads(printed), F(*xw), strict=True):
        np.testing.assert_array_equal(np.float32(mine), theirs)


# ---- Exports -------------------------------------------------------------------------------------


@TRANSFORMATIONS
def test_an_export_runs_here_and_has_the_kernel_of_cuda(transform, xw):
    exported = again(export(transform(F), *xw))
    assert exported.platforms == ("cpu", "cuda")
    assert TARGET in exported.mlir_module()
    assert_same(exported.call(*xw), transform(reference)(*xw), eps=64)


def test_the_check_that_an_export_must_disable_names_the_call(xw):
    for platform in ("cpu", "cuda"):
        with pytest.raises(ValueError, match="jax_elementwise_kernel"):
            export(F, *xw, platforms=[platform], allowed=())


def test_an_export_of_xla_operations_needs_nothing(xw):
    f = je.elementwise(reference, lowering="xla")
    exported = again(export(f, *xw, allowed=()))
    assert "custom_call" not in exported.mlir_module()
    assert_same(exported.call(*xw), reference(*xw), eps=64)


_IMPORT = """
import json, pathlib, jax.export, numpy as np
import jax_elementwise as je  # registers the call
exported = jax.export.deserialize(bytearray(pathlib.Path({path!r}).read_bytes()))
results = exported.call(*np.load({operands!r}).values())
print(json.dumps([[np.asarray(y).tolist() for y in results], je.cache_info().compilations]))
"""


def test_an_export_brings_its_kernel_to_another_process(xw, tmp_path):
    pytest.importorskip("flatbuffers")
    (tmp_path / "program").write_bytes(export(F, *xw).serialize())
    np.savez(tmp_path / "operands.npz", *xw)
    code = _IMPORT.format(path=str(tmp_path / "program"), operands=str(tmp_path / "operands.npz"))
    caches = {"JAX_ELEMENTWISE_CACHE_DIR": str(tmp_path / "kernels")}
    values, compilations = json.loads(run_python(code, JAX_PLATFORMS="cpu", **caches, **TRUST))
    assert compilations == 1
    for mine, theirs in zip(values, F(*xw), strict=True):
        np.testing.assert_array_equal(np.float32(mine), theirs)


@pytest.mark.sampled
@pytest.mark.parametrize("lowering", ["auto", "kernel", "xla"])
@TRANSFORMATIONS
def test_symbolic_dimensions(transform, lowering, rng):
    f = je.elementwise(reference, lowering=lowering)
    batch, width = jax.export.symbolic_shape("b, n")
    x = jax.ShapeDtypeStruct((batch, 3, width), jnp.float32)
    w = jax.ShapeDtypeStruct((width,), jnp.float32)
    exported = again(export(transform(f), x, w))
    for shape in ((1, 3, 4), (5, 3, 1), (2, 3, 129)):
        x, w = random_array(rng, shape), random_array(rng, shape[-1:])
        assert_same(exported.call(x, w), transform(reference)(x, w), eps=256)


@needs_8_devices
@KINDS
@TRANSFORMATIONS
def test_exports_for_several_devices(kind, transform, rng):
    mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(kind,) * 2)
    with jax.set_mesh(mesh):
        x = jax.device_put(random_array(rng, (64, 8)), NamedSharding(mesh, P("x", "y")))
        w = jax.device_put(random_array(rng, (8,)), NamedSharding(mesh, P("y")))
        compiled = []
        for f in (F, reference):
            exported = again(export(transform(f), x, w))
            assert exported.nr_devices == 8
            compiled.append(jax.jit(exported.call).lower(x, w).compile())
        mine, theirs = (c(x, w) for c in compiled)
        assert_same(mine, theirs, eps=256)
        for a, b in zip(mine, theirs, strict=True):
            assert a.sharding.is_equivalent_to(b.sharding, a.ndim)
        mine, theirs = (c.as_text() for c in compiled)
        assert TARGET in mine
        assert collectives_in(mine) == collectives_in(theirs)


@needs_8_devices
@pytest.mark.parametrize("lowering", ["auto", "kernel"])
def test_symbolic_dimensions_on_several_devices(lowering, rng):
    """Under automatic meshes. JAX cannot refine those of ``shard_map``, nor of explicit ones."""
    mesh = jax.make_mesh((8,), ("x",), axis_types=(AxisType.Auto,))
    placement = NamedSharding(mesh, P("x"))
    f = je.elementwise(reference, lowering=lowering)
    (batch,) = jax.export.symbolic_shape("b")
    x = jax.ShapeDtypeStruct((8 * batch, 3), jnp.float32, sharding=placement)
    w = jax.ShapeDtypeStruct((3,), jnp.float32, sharding=NamedSharding(mesh, P()))
    exported = again(export(f, x, w))
    w = jax.device_put(random_array(rng, (3,)), w.sharding)
    for batch in (1, 5):
        x = jax.device_put(random_array(rng, (8 * batch, 3)), placement)
        assert_same(jax.jit(exported.call)(x, w), reference(x, w), eps=64)


# ---- JAX's cache of programs ---------------------------------------------------------------------

_PROGRAMS = """
import json, os
import jax, jax.numpy as jnp, numpy as np
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
import jax_elementwise as je

jax.config.update("jax_compilation_cache_dir", os.environ["PROGRAMS"])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
events = []
jax.monitoring.register_event_listener(lambda event, **_: events.append(event.split("/")[-1]))

def newton(x, w):
    return lax.fori_loop(0, 20, lambda _, y: y - (y * y - x) / (2 * y), x) * w

F = je.elementwise(lambda x, w: (jnp.tanh(x * w) + w, x - w), lowering="kernel")
NEWTON = je.elementwise(newton)
PROGRAMS = {
    "forward": F, "gradient": jax.grad(lambda x, w: NEWTON(x, w).sum(), (0, 1)), "loop": NEWTON,
}

x = np.linspace(0.5, 2, 512, dtype=np.float32).reshape(64, 8)
found = {}

def run(name, *args):
    for label, fun in PROGRAMS.items():
        program = jax.jit(fun).lower(*args)
        events.clear()
        compiled = program.compile()
        counts = [events.count(f"cache_{what}") for what in ("hits", "misses")]
        values = [float(np.sum(np.asarray(y))) for y in jax.tree.leaves(compiled(*args))]
        found[f"{name} {label}"] = [*counts, "jax_elementwise_kernel" in compiled.as_text(), values]

run("plain", x, x[0])
for kind in (AxisType.Auto, AxisType.Explicit):
    mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(kind,) * 2)
    with jax.set_mesh(mesh):
        placed = [
            jax.device_put(a, NamedSharding(mesh, P(*s))) for a, s in ((x, "xy"), (x[0], "y"))
        ]
        run(kind.name, *placed)
print(json.dumps({"found": found, "kernels": je.cache_info()[:2]}))
"""


def test_a_second_process_finds_its_programs_and_kernels(tmp_path):
    run = functools.partial(
        run_python,
        _PROGRAMS,
        JAX_PLATFORMS="cpu",
        PROGRAMS=str(tmp_path / "programs"),
        XLA_FLAGS="--xla_force_host_platform_device_count=8",
    )
    caches = {"JAX_ELEMENTWISE_CACHE_DIR": str(tmp_path / "kernels")}
    first, second = json.loads(run(**caches)), json.loads(run(**caches, PYTHONHASHSEED="7"))
    assert len(first["found"]) == 9
    for name, (*counts, ours, values) in first["found"].items():
        assert counts == [0, 1], name
        assert ours, name
        assert second["found"][name] == [1, 0, ours, values], name
    assert first["kernels"][0] > 3
    assert first["kernels"][1] == 0
    assert second["kernels"][0] == 0
    assert second["kernels"][1] == first["kernels"][0]
    # Programs hold the text of their kernels, and so need no cache of ours.
    third = json.loads(run(JAX_ELEMENTWISE_CACHE_DIR=""))
    assert third["found"] == second["found"]
    assert third["kernels"] == first["kernels"]
