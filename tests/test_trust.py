"""Programs of strangers: their kernels run on a CPU only where the user said so."""

import functools
import json
import pickle

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from cases import TARGET, run_python
from jax.experimental import serialize_executable
from support import programs, simt
from support.extension import entries

import jax_elementwise as je
from jax_elementwise import _extension

pytestmark = pytest.mark.usefixtures("host_compiler")
CUSTOM_CALL = jax.export.DisabledSafetyCheck.custom_call(TARGET)
VARIABLE = "JAX_ELEMENTWISE_TRUST_PROGRAMS"
X = np.arange(5, dtype=np.float32)
ONE = jax.devices()[:1]
F = je.elementwise(lambda x: x * 2.625, name="strange", lowering="kernel")

# Loads a program and says what came of it, in a process that did not make it.
LOAD = """
import json, pickle, sys
import jax, jax.export, numpy as np
import jax_elementwise as je
from jax.experimental import serialize_executable
BEFORE
try:
    with open(PATH, "rb") as file:
        kind, data = pickle.load(file)
    x = np.arange(5, dtype=np.float32)
    if kind == "export":
        y = jax.export.deserialize(bytearray(data)).call(x)
    else:
        y = serialize_executable.deserialize_and_load(*data)(x)
    found = y.tolist()
except Exception as error:
    found = f"{type(error).__name__}: {error}"
print(json.dumps([found, *je.cache_info()[:4]]))
"""


@pytest.fixture(params=["export", "executable"])
def program(request, tmp_path):
    """The path of a program of this process."""
    if request.param == "export":
        pytest.importorskip("flatbuffers")
        export = jax.export.export(jax.jit(F), platforms=["cpu"], disabled_checks=[CUSTOM_CALL])
        data = bytes(export(X).serialize())
    else:
        data = serialize_executable.serialize(jax.jit(F).lower(X).compile())
    path = tmp_path / "program"
    path.write_bytes(pickle.dumps((request.param, data)))
    return path


def load(path, before="", **environment):
    """What came of it, and compilations, entries read, kernels found and libraries loaded."""
    code = LOAD.replace("PATH", repr(str(path))).replace("BEFORE", before)
    found, *counts = json.loads(run_python(code, JAX_PLATFORMS="cpu", XLA_FLAGS="", **environment))
    return found, counts


def refused(found, counts):
    return found.startswith("JaxRuntimeError: PERMISSION_DENIED: ") and counts == [0] * 4


def test_a_program_of_another_process_is_refused_before_anything_is_done(program):
    found, counts = load(program)  # its kernel is in the cache of both
    assert refused(found, counts)
    assert "jax_elementwise: the kernel ew_strange_" in found
    assert "comes with a program that this process did not make" in found
    assert "could run any code" in found
    assert "call jax_elementwise.trust_programs() before it is loaded" in found
    assert f"set {VARIABLE}=1 in the environment" in found


def test_a_program_that_the_user_trusts_runs(program, tmp_path):
    for before, environment in (("", {VARIABLE: "1"}), ("je.trust_programs()", {})):
        found, counts = load(program, before, **environment)
        assert found == (X * 2.625).tolist()
        assert counts == [0, 1, 0, 1]


def strange(number):
    """The attributes of a kernel that this process has not lowered, and how to run it."""
    kernel = simt.make_kernel(lambda x: x + number, ["float32"])
    run = functools.partial(programs.run, operands=(X,), results=programs.like(X))
    return kernel, run


@pytest.mark.parametrize("value", ["", "0", "yes", "true", "11", " 1"])
def test_the_environment_must_say_1(value, monkeypatch):
    kernel, run = strange(2.75)
    monkeypatch.setenv(VARIABLE, value)
    with pytest.raises(jax.errors.JaxRuntimeError, match="PERMISSION_DENIED") as caught:
        run(programs.attributes_of(kernel))
    assert (f"(it is '{value}')" in str(caught.value)) == bool(value)


def test_trust_is_taken_back(monkeypatch):
    kernel, run = strange(2.8125)
    attributes = programs.attributes_of(kernel)
    je.trust_programs()
    try:
        np.testing.assert_array_equal(run(attributes)[0], X + 2.8125)
    finally:
        je.trust_programs(False)
    with pytest.raises(jax.errors.JaxRuntimeError, match="PERMISSION_DENIED"):
        run(attributes)
    monkeypatch.setenv(VARIABLE, "1")
    np.testing.assert_array_equal(run(attributes)[0], X + 2.8125)


@pytest.mark.parametrize("value", ["no", 0, None, np.bool_(True)])
def test_trust_is_a_bool(value):
    with pytest.raises(TypeError, match=r"^trust must be True or False, not .*"):
        je.trust_programs(value)


def test_a_process_that_lowers_the_function_itself_needs_no_trust(program):
    same = "F = je.elementwise(lambda x: x * 2.625, name='strange', lowering='kernel')\n"
    lower = "jax.jit(F).lower(jax.ShapeDtypeStruct((5,), 'float32'))"
    assert load(program, same + lower)[0] == (X * 2.625).tolist()
    found, _ = load(program, (same + lower).replace("2.625", "2.375"))
    assert refused(found, [0] * 4)


def test_what_this_process_made_needs_no_trust():
    pytest.importorskip("flatbuffers")
    export = jax.export.export(jax.jit(F), platforms=["cpu"], disabled_checks=[CUSTOM_CALL])
    again = jax.export.deserialize(export(X).serialize())
    np.testing.assert_array_equal(again.call(X), X * 2.625)
    serialized = serialize_executable.serialize(jax.jit(F).lower(X).compile())
    np.testing.assert_array_equal(
        serialize_executable.deserialize_and_load(*serialized, execution_devices=ONE)(X), X * 2.625
    )


def test_changing_what_this_process_made_makes_a_stranger_of_it(directory):
    kernel, run = strange(2.875)
    _extension.trust_program(programs.attributes_of(kernel)["digest"])
    np.testing.assert_array_equal(run(programs.attributes_of(kernel))[0], X + 2.875)
    evil = kernel.source + "__attribute__((constructor)) static void run() { __builtin_trap(); }\n"
    changed = programs.attributes_of(kernel, source=evil)
    with pytest.raises(jax.errors.JaxRuntimeError, match="digest is not that"):
        run(changed)
    with pytest.raises(jax.errors.JaxRuntimeError, match=rf"the kernel {kernel.name} comes with"):
        run(programs.vouched(changed))
    assert len(entries(directory)) == 1


def test_a_known_text_with_other_options_is_a_stranger_too():
    kernel, run = strange(2.9375)
    _extension.trust_program(programs.attributes_of(kernel)["digest"])
    changed = programs.vouched(programs.attributes_of(kernel, options="--use_fast_math"))
    with pytest.raises(jax.errors.JaxRuntimeError, match="PERMISSION_DENIED"):
        run(changed)


def test_lowering_for_cuda_asks_no_trust_and_gives_it():
    """A program for both platforms has one text."""
    f = je.elementwise(lambda x: x * 2.65625, lowering="kernel")
    kernel = f._kernel((X,), {})
    attributes = programs.attributes_of(kernel)
    with pytest.raises(jax.errors.JaxRuntimeError, match="PERMISSION_DENIED"):
        programs.run(attributes, (X,), programs.like(X))
    jax.jit(f).trace(X).lower(lowering_platforms=("cuda",))
    (y,) = programs.run(attributes, (X,), programs.like(X))
    np.testing.assert_array_equal(y, X * np.float32(2.65625))


def test_a_function_of_users_cuda_is_asked_for_like_any_other(tmp_path):
    pytest.importorskip("flatbuffers")
    f = je.cuda_functor("x * 3.375f", inputs="float x", outputs="float")
    export = jax.export.export(jax.jit(f), platforms=["cpu"], disabled_checks=[CUSTOM_CALL])
    path = tmp_path / "program"
    path.write_bytes(pickle.dumps(("export", bytes(export(X).serialize()))))
    assert refused(*load(path))
    assert load(path, **{VARIABLE: "1"})[0] == (X * 3.375).tolist()


def test_what_needs_no_kernel_needs_no_trust(tmp_path):
    pytest.importorskip("flatbuffers")
    f = je.elementwise(lambda x: jnp.sin(x) * 0, lowering="xla")
    path = tmp_path / "program"
    exported = jax.export.export(jax.jit(f), platforms=["cpu"])(X)
    path.write_bytes(pickle.dumps(("export", bytes(exported.serialize()))))
    assert load(path)[0] == [0.0] * 5
