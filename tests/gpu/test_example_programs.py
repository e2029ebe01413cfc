"""The examples on a GPU: they run, and what should be one kernel is one."""

import re

import pytest
from gpu import device

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("kernels_only")]

COMMANDS = {
    "quickstart": ["quickstart.py"],
    "digits": ["digits.py", "--steps", "30", "--quiet", "--output", "digits.png"],
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """By name, a finished example and the directory of XLA's dumps. They run at once."""
    processes = {}
    for name, (script, *arguments) in COMMANDS.items():
        directory = tmp_path_factory.mktemp(name)
        arguments = [str(directory / a) if a.endswith(".png") else a for a in arguments]
        process = device.start_python(
            device.ROOT / "examples" / script,
            *arguments,
            XLA_FLAGS=f"--xla_dump_to={directory} --xla_dump_hlo_as_text",
        )
        processes[name] = process, directory
    return {
        name: (device.finish(process), directory)
        for name, (process, directory) in processes.items()
    }


def test_quickstart(runs):
    completed, _ = runs["quickstart"]
    printed = device.output(completed)
    assert "CUDA kernels: 1" in printed
    assert "XLA's operations" not in printed


def test_digits(runs):
    completed, directory = runs["digits"]
    printed = device.output(completed)
    accuracy = re.search(r"accuracy: (0\.\d+)", printed)
    assert accuracy, printed
    assert float(accuracy[1]) > 0.5
    assert (directory / "digits.png").stat().st_size > 10_000


def test_a_training_step_has_one_kernel_forward_and_one_backward_per_activation(runs):
    completed, directory = runs["digits"]
    device.output(completed)
    steps = list(directory.glob("*jit_step*gpu_after_optimizations.txt"))
    counts = {text.read_text().count('"jax_elementwise_kernel"') for text in steps}
    assert counts == {4}  # of two activations
