"""The Mandelbrot set, smoothly coloured and lit: ``python examples/mandelbrot.py --help``.

Needs matplotlib, which the extra ``test`` brings along.

Each pixel squares and adds until it escapes, in a loop of its own: most leave after a few steps,
and those in the set never do. The smooth count is a landscape around the set, and its gradient,
taken through the loop, is the slope there. So the light in the picture is a derivative.
"""

import argparse
import math
import time

import jax
import jax.numpy as jnp
import numpy as np

import jax_elementwise as je

ESCAPED = 1000.0  # far out, where the smooth count no longer depends on how far

# Title, centre, width, and the dtype that tells neighbouring pixels apart.
VIEWS = (
    ("The set", -0.6 + 0.0j, 3.2, np.float32),
    ("Seahorse valley", -0.7465 + 0.1115j, 0.012, np.float32),
    (
        "A spiral, 150 million times closer",
        -0.743643887037151 + 0.131825904205330j,
        2e-8,
        np.float64,
    ),
)


# ---- What happens to one pixel -------------------------------------------------------------------


def escape(x, y, most):
    """Steps until z = z^2 + x + iy is far out, at most ``most``; and the same without jumps.

    The second result is -1 in the set, as far as so many steps can tell.
    """
    c = jax.lax.complex(x, y)

    def inside(state):
        z, steps = state
        return (z.real**2 + z.imag**2 < ESCAPED**2) & (steps < most)

    def step(state):
        z, steps = state
        return z * z + c, steps + 1

    z, steps = jax.lax.while_loop(inside, step, (jnp.zeros_like(c), jnp.int32(0)))
    size = z.real**2 + z.imag**2
    escaped = size >= ESCAPED**2
    # How far beyond the border the last step went, on the scale on which each step doubles.
    beyond = jnp.log2(jnp.log(jnp.where(escaped, size, ESCAPED**2)) / math.log(ESCAPED**2))
    return steps, jnp.where(escaped, steps.astype(x.dtype) - beyond, -1)


elementwise_escape = je.elementwise(escape)
count = jax.jit(elementwise_escape)


@jax.jit
def slopes(x, y, most):
    """The smooth count and its gradient, by reverse mode through the loop: one more kernel."""
    x, y = jnp.broadcast_arrays(x, y)  # a slope for each pixel, not the sums of rows and columns
    smooth, pull = jax.vjp(lambda x, y: elementwise_escape(x, y, most)[1], x, y)
    return smooth, *pull(jnp.ones_like(smooth))


def pixels(centre, width, columns, rows, dtype):
    """Real parts, a row, and imaginary parts, a column: together they are broadcast to pixels."""
    x = centre.real + width * np.linspace(-0.5, 0.5, columns)
    y = centre.imag + width * rows / columns * np.linspace(-0.5, 0.5, rows)
    return jnp.asarray(x, dtype), jnp.asarray(y[:, None], dtype)


# ---- Checks and times ----------------------------------------------------------------------------


def check_counts(most=200):
    """The counts agree with NumPy's, up to the chaos at the border of the set."""
    x, y = pixels(*VIEWS[0][1:3], 96, 72, np.float64)
    c = np.asarray(x) + 1j * np.asarray(y)
    z, expected = np.zeros_like(c), np.zeros(c.shape, np.int32)
    for _ in range(most):
        inside = z.real**2 + z.imag**2 < ESCAPED**2
        z[inside] = z[inside] ** 2 + c[inside]
        expected += inside
    steps, _ = count(x, y, most)
    same = np.mean(np.asarray(steps) == expected)
    assert same > 0.995, f"only {same:.1%} of the counts are NumPy's"
    print(f"counts of {c.size} pixels: {same:.2%} are NumPy's")


def check_slopes(most=200):
    """The gradient agrees with differences of the smooth count, where that is not too steep."""
    x, y = pixels(*VIEWS[0][1:3], 96, 72, np.float64)
    smooth, slope, _ = slopes(x, y, most)
    h = 1e-7
    differences = (count(x + h, y, most)[1] - count(x - h, y, most)[1]) / (2 * h)
    gentle = (smooth > 0) & (jnp.abs(slope) < 1e3)
    error = jnp.abs(differences - slope)[gentle].max() / jnp.abs(slope[gentle]).max()
    assert error < 1e-4, f"slopes differ by {error}"
    print(f"slopes: within {error:.0e} of differences")


def report_times(columns, most):
    over_pixels = jax.vmap(jax.vmap(escape, in_axes=(0, None, None)), in_axes=(None, 0, None))
    plain = jax.jit(over_pixels)
    print(f"{columns} x {columns * 3 // 4} pixels, on {jax.devices()[0].device_kind}:")
    for title, centre, width, dtype in VIEWS[:2]:
        x, y = pixels(centre, width, columns, columns * 3 // 4, dtype)
        ours = milliseconds(count, x, y, most)
        theirs = milliseconds(plain, x, y[:, 0], most)
        print(f"  {title}: jax_elementwise {ours:.2f} ms, jit(vmap(...)) {theirs:.2f} ms")


def milliseconds(function, *args, calls=3):
    """Of the fastest call."""
    times = []
    for _ in range(calls + 1):  # the first one compiles
        start = time.perf_counter()
        jax.block_until_ready(function(*args))
        times.append(time.perf_counter() - start)
    return 1e3 * min(times[1:])


# ---- The picture ---------------------------------------------------------------------------------


def shaded(smooth, slope_x, slope_y):
    """Colours of pixels: hues go around with the count, light comes from the upper left."""
    from matplotlib.colors import LinearSegmentedColormap

    hues = ["#000764", "#206bcb", "#edffff", "#ffaa00", "#3b0d02", "#000764"]
    places = [0, 0.16, 0.42, 0.64, 0.86, 1]
    palette = LinearSegmentedColormap.from_list("dusk", list(zip(places, hues, strict=True)))
    outside = smooth > 0
    height = jnp.log(jnp.maximum(smooth, 1))
    low, high = jnp.percentile(height[outside], jnp.array([1, 90]))
    turns = 0.05 + 0.8 * (height - low) / (high - low)
    # No light where it is flat, or so steep that it is infinite.
    light = jnp.nan_to_num((slope_y - slope_x) / jnp.hypot(slope_x, slope_y))
    colours = palette(np.asarray(turns % 1))[..., :3] * (0.78 + 0.22 * light[..., None])
    return np.where(outside[..., None], colours.clip(0, 1), 0.02)


def draw(path, columns, most):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 3, figsize=(15, 4.2), layout="constrained")
    for axes, (title, centre, width, dtype) in zip(panels, VIEWS, strict=True):
        x, y = pixels(centre, width, columns, columns * 3 // 4, dtype)
        axes.imshow(shaded(*slopes(x, y, most)), origin="lower")
        axes.set_title(f"{title} ({np.dtype(dtype).name}, {width:g} wide)", fontsize=10)
        axes.axis("off")
    figure.savefig(path, dpi=150)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", default="mandelbrot.png", help="the picture (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="few pixels and steps, for tests")
    options = parser.parse_args(argv)
    jax.config.update("jax_enable_x64", True)  # the last view is too deep for float32

    check_counts()
    check_slopes()
    large = jax.devices()[0].platform == "gpu" and not options.quick
    report_times(4096 if large else 120 if options.quick else 480, most=300)
    draw(options.output, 720 if large else 80 if options.quick else 480, most=3000)
    print(f"picture: {options.output}")


if __name__ == "__main__":
    main()
