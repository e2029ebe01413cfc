"""First steps with jax_elementwise: ``python examples/quickstart.py``."""

import time

import jax
import jax.numpy as jnp
import numpy as np

import jax_elementwise as je

# 1. Say what happens to one element: here an activation with a frequency of its own per channel.


@je.elementwise
def snake(x, frequency):
    return x + jnp.sin(frequency * x) ** 2 / frequency


# The same on whole arrays in plain jax.numpy, to compare with.
def plain_snake(x, frequency):
    return x + jnp.sin(frequency * x) ** 2 / frequency


def main() -> None:
    device = jax.devices()[0]
    rows, channels = (1 << 16, 1024) if device.platform == "gpu" else (1 << 10, 512)
    x, weights = jax.random.normal(jax.random.key(0), (2, rows, channels))
    frequency = jnp.linspace(0.5, 4.0, channels)

    # 2. Use it like any JAX function: under jit,
    y = jax.jit(snake)(x, frequency)
    check(y, plain_snake(x, frequency))

    # under vmap, here over three sets of frequencies (no copy of x is made for each),
    frequencies = jnp.stack([frequency, 2 * frequency, 3 * frequency])
    ys = jax.vmap(snake, in_axes=(None, 0))(x[:8], frequencies)
    check(ys, jax.vmap(plain_snake, in_axes=(None, 0))(x[:8], frequencies))

    # and under grad, for both arguments.
    gradient, plain_gradient = gradient_of(snake), gradient_of(plain_snake)
    for ours, theirs in zip(
        gradient(x, frequency, weights), plain_gradient(x, frequency, weights), strict=True
    ):
        check(ours, theirs)
    print("jit, vmap and grad agree with jax.numpy.")

    # 3. What ran, and how fast?
    print(f"\nOn {device.device_kind}, arrays of shape ({rows}, {channels}):")
    for dtype in (jnp.float32, jnp.bfloat16):
        args = [v.astype(dtype) for v in (x, frequency, weights)]
        report(f"{dtype.dtype} forward", jax.jit(snake), jax.jit(plain_snake), *args[:2])
        report(f"{dtype.dtype} gradient", gradient, plain_gradient, *args)
    if device.platform != "gpu":
        print("Without a GPU XLA compiles the same operations for both: expect equal times.")


def gradient_of(activation):
    def loss(x, frequency, weights):
        return jnp.sum(weights * activation(x, frequency))

    return jax.jit(jax.grad(loss, argnums=(0, 1)))


def check(ours, theirs) -> None:
    error, largest = jnp.abs(ours - theirs).max(), jnp.abs(theirs).max()
    assert error <= 1e-5 * largest, f"differs from jax.numpy by {error}, where {largest} is largest"


def report(what, ours, theirs, *args) -> None:
    compiled = ours.lower(*args).compile().as_text()
    kernels = compiled.count('custom_call_target="jax_elementwise_kernel"')
    where = f"CUDA kernels: {kernels}" if kernels else "XLA's operations"
    times = [], []
    for _ in range(5):  # in turns, so that both see the same machine
        for function, measured in zip((ours, theirs), times, strict=True):
            measured.append(milliseconds(function, *args))
    ours_ms, theirs_ms = map(np.median, times)
    print(f"  {what:18}{where:18}{ours_ms:8.3f} ms   jax.jit of jax.numpy{theirs_ms:8.3f} ms")


def milliseconds(function, *args, calls=5) -> float:
    jax.block_until_ready(function(*args))
    start = time.perf_counter()
    for _ in range(calls):
        results = function(*args)
    jax.block_until_ready(results)
    return 1e3 * (time.perf_counter() - start) / calls


if __name__ == "__main__":
    main()
