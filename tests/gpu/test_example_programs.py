"""The examples on a GPU: they run, and what should be one kernel is one."""

import os
import re

import pytest
from gpu import device

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("kernels_only")]

COMMANDS = {
    "quickstart": ["quickstart.py"],
    "digits": ["digits.py", "--steps", "30", "--quiet", "--output", "digits.png"],
    "functors": ["functors.py"],
    "adam": ["adam.py", "--steps", "30", "--size", "4194304"],
    "adam_auto": ["adam.py", "--steps", "30", "--size", "4194304", "--mesh", "auto"],
}


DIRECTORIES = {}


def start(tmp_path_factory):
    """The examples, each with a directory for what it and XLA write."""
    programs = {}
    for name, command in COMMANDS.items() if not device.ON_CPU else ():
        DIRECTORIES[name] = directory = tmp_path_factory.mktemp(name)
        script, *arguments = command
        arguments = [str(directory / a) if a.endswith(".png") else a for a in arguments]
        flags = f"--xla_dump_to={directory} --xla_dump_hlo_as_text"
        script = device.ROOT / "examples" / script
        path = os.pathsep.join([str(device.PACKAGES), str(script.parent)])  # one imports another
        programs[name] = device.python(script, *arguments, XLA_FLAGS=flags, PYTHONPATH=path)
    return programs


def test_quickstart(program):
    printed = program("quickstart").output()
    assert "CUDA kernels: 1" in printed
    assert "XLA's operations" not in printed


def test_digits(program):
    printed = program("digits").output()
    accuracy = re.search(r"accuracy: (0\.\d+)", printed)
    assert accuracy, printed
    assert float(accuracy[1]) > 0.5
    assert (DIRECTORIES["digits"] / "digits.png").stat().st_size > 10_000


def test_a_training_step_has_one_kernel_forward_and_one_backward_per_activation(program):
    program("digits").output()
    steps = list(DIRECTORIES["digits"].glob("*jit_step*gpu_after_optimizations.txt"))
    counts = {text.read_text().count('"jax_elementwise_kernel"') for text in steps}
    assert counts == {4}  # of two activations


def test_functors(program):
    printed = program("functors").output()
    assert printed.endswith("33 rows, and 13 functions with the same bits.\n")


@pytest.mark.parametrize("name", ["adam", "adam_auto"])
def test_adam(name, program):
    printed = program(name).output()
    assert printed.count("the same curve within") in (2, 4)  # without optax, and with it
    assert "an update of 4,194,304 parameters moves 117,440,512 bytes" in printed
    assert re.search(r"^  ours +kernels: 1 ", printed, re.MULTILINE)
