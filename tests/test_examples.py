"""The examples run as their users run them: as programs."""

import importlib.util
import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
# Most programs run whole in these tests; by default they are lowered, and the first ones run.
exhaustive = pytest.mark.exhaustive


def start(*arguments, cwd=ROOT, **environment):
    # Without the virtual devices of the other tests, and beside them where there is a GPU.
    shared = {**os.environ, "XLA_FLAGS": "", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    environment = {**shared, **environment}
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)


def run(*arguments, cwd=ROOT, **environment):
    done = start(*arguments, cwd=cwd, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_readme(nvrtc, tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    program = "\n".join(blocks) + "print([gradient.shape for gradient in gradients])"
    output = run("-W", "error", "-c", program, cwd=tmp_path)
    assert "__global__" in output
    assert output.endswith("[(1024, 1024), (1024,)]\n")


def test_quickstart():
    output = run("-W", "error", "examples/quickstart.py")
    assert "jit, vmap and grad agree with jax.numpy." in output
    assert re.search(r"float32 gradient +(XLA's operations|CUDA kernels: 1) ", output)


@exhaustive
def test_digits_learns_and_draws(tmp_path):
    picture = tmp_path / "digits.png"
    output = run("examples/digits.py", "--steps=100", "--seeds=2", "--quiet", "--output", picture)
    (line,) = output.splitlines()
    accuracy = re.fullmatch(r"test accuracy: (0\.\d+), mean of 2 seeds", line)
    assert float(accuracy.group(1)) > 0.9
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_digits_has_one_kernel_forward_and_one_backward_per_activation():
    # Lowered for CUDA, which needs no GPU.
    program = """
import jax, jax.numpy as jnp
import digits

parameters, state = digits.ensemble_start(jax.random.split(jax.random.key(0), 3))
keys = jax.random.split(jax.random.key(1), 3)
data = jnp.zeros((200, 64)), jnp.zeros(200, jnp.int32)
step = digits.ensemble_step.trace(parameters, state, keys, *data)
print(step.lower(lowering_platforms=("cuda",)).as_text())
"""
    text = run("-c", program, cwd=ROOT / "examples")
    assert text.count("stablehlo.custom_call @jax_elementwise_kernel") == 4


def test_digits_refuses_no_steps():
    done = start("examples/digits.py", "--steps=0")
    assert done.returncode == 2
    assert "invalid positive value: '0'" in done.stderr


@exhaustive
@pytest.mark.parametrize("mesh", ["explicit", "auto"])
def test_adam(mesh):
    arguments = ("examples/adam.py", "--quick", "--mesh", mesh)
    output = run("-W", "error", *arguments, JAX_PLATFORMS="cpu")  # one device
    curves = re.findall(r"^  (.+?) +the same curve within (\d\.\de[-+]\d\d)", output, re.MULTILINE)
    names = ["by its updates", "jax.numpy"]
    if importlib.util.find_spec("optax"):
        names += ["in optax.chain", "optax"]
        assert "  optax " in output.partition("an update of")[2]
    assert [name for name, _ in curves] == names
    assert "an update of 65,536 parameters moves 1,835,008 bytes" in output
    assert "786,436 of them reused for results" in output


@exhaustive
def test_adam_on_parts_by_kernels_in_place(host_compiler):
    output = run(
        "-W", "error", "examples/adam.py", "--quick", "--steps=20", "--mesh=auto",
        "--mu-dtype=bfloat16", "--weight-decay=0.01",
        JAX_ELEMENTWISE_LOWERING="kernel",
        XLA_FLAGS="--xla_force_host_platform_device_count=4",
        JAX_PLATFORMS="cpu",
    )  # fmt: skip
    assert output.startswith("On 4 x cpu")
    assert "moves 1,572,864 bytes, 393,216 per device" in output
    assert re.search(r"^  ours +kernels: 1 ", output, re.MULTILINE)


@pytest.mark.parametrize("kind", ["explicit", pytest.param("auto", marks=exhaustive)])
def test_adam_is_one_kernel_per_array_on_each_device(kind):
    # Lowered for CUDA, which needs no GPU.
    program = f"""
import jax
import adam

mesh = jax.make_mesh((8,), (adam.AXIS,), axis_types=(adam.KINDS[{kind!r}],))
with jax.set_mesh(mesh):
    optimizer = adam.adam(mesh)
    params, state = adam.start(mesh, optimizer)
    step = jax.jit(optimizer.apply, donate_argnums=(0, 1))
    traced = step.trace(params, state, params)
print(len(jax.tree.leaves(params)))
print(traced.lower(lowering_platforms=("cuda",)).as_text())
"""
    flags = "--xla_force_host_platform_device_count=8"
    text = run("-c", program, cwd=ROOT / "examples", XLA_FLAGS=flags, JAX_PLATFORMS="cpu")
    leaves, _, text = text.partition("\n")
    calls = [line for line in text.splitlines() if "custom_call @jax_elementwise_kernel" in line]
    assert len(calls) == int(leaves)
    assert all(line.count("output_operand_alias<") == 3 for line in calls)
    assert sum("tensor<8x96xf32>" in line for line in calls) == 1  # of 64 x 96 weights


@exhaustive
def test_kepler(tmp_path):
    picture = tmp_path / "kepler.png"
    output = run("-W", "error", "examples/kepler.py", "--quick", "--output", picture)
    steps = re.search(r"within \de-\d\d of SciPy's brentq, in at most (\d+) steps", output)
    assert 5 <= int(steps.group(1)) <= 10
    fit = re.search(r"eccentricity of Icarus: (0\.\d+) \+- 0\.000\d found, 0\.8269 is true", output)
    assert abs(float(fit.group(1)) - 0.8269) < 0.003
    assert picture.read_bytes().startswith(b"\x89PNG")


@exhaustive
def test_mandelbrot(tmp_path):
    picture = tmp_path / "mandelbrot.png"
    output = run("-W", "error", "examples/mandelbrot.py", "--quick", "--output", picture)
    counts = re.search(r"counts of 6912 pixels: (\d+\.\d+)% are NumPy's", output)
    assert float(counts.group(1)) > 99.5
    assert re.search(r"slopes: within \de-\d\d of differences", output)
    assert picture.read_bytes().startswith(b"\x89PNG")


@exhaustive
def test_implied_volatility(tmp_path):
    picture = tmp_path / "implied_volatility.png"
    output = run("-W", "error", "examples/implied_volatility.py", "--quick", "--output", picture)
    assert re.search(r"volatilities come back within \de-1\d, ", output)
    errors = re.findall(r"^  by (\w+) +(\d)e-1\d$", output, re.MULTILINE)
    assert [name for name, _ in errors] == ["price", "spot", "strike", "years", "rate"]
    assert picture.read_bytes().startswith(b"\x89PNG")


@exhaustive
def test_functors(host_compiler):
    output = run("-W", "error", "examples/functors.py", "--quick")
    assert output.count("agrees with NumPy\n") == 33
    assert output.count("the bits of the same function in Python\n") == 13
    # The rows are those of the tables in the documentation, in the same order.
    page = (ROOT / "docs" / "cuda-functors.md").read_text().partition("## From other")[2]
    names = re.findall(r"^\| ([^|`]+?) \| `", page, re.MULTILINE)
    assert names == re.findall(r"^  \w+ +(.+?) +agrees", output, re.MULTILINE)


def test_loops_are_kernels_also_in_reverse():
    # Lowered for CUDA, which needs no GPU.
    program = """
import jax, jax.numpy as jnp
import implied_volatility, kepler, mandelbrot

x = jnp.ones((8, 8))
for function, count in (
    (kepler.orbits, 7),
    (mandelbrot.slopes, 2),
    (implied_volatility.implied_volatility, 5),
    (implied_volatility.sensitivities, 5),
):
    args = (x, x, 100) if function is mandelbrot.slopes else [x] * count
    text = function.trace(*args).lower(lowering_platforms=("cuda",)).as_text()
    print(text.count("stablehlo.custom_call @jax_elementwise_kernel"), "stablehlo.while" in text)
"""
    lines = run("-c", program, cwd=ROOT / "examples").splitlines()
    assert lines == ["1 False", "2 False", "1 False", "1 False"]
