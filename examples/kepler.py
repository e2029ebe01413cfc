"""Where minor planets are, from their orbital elements: ``python examples/kepler.py --help``.

Needs matplotlib and SciPy, which the extra ``test`` brings along.

An orbit gives the position of a body through Kepler's equation, E - e sin E = M, which has no
closed solution. Newton's method takes a step or two for a round orbit and eight for a comet's. Here
each element of an array goes around a loop of its own, and derivatives are taken through the loop:
from noisy positions of a body gradient descent finds the eccentricity of its orbit.
"""

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np

import jax_elementwise as je

# Osculating elements in the J2000 ecliptic from the JPL Small-Body Database (ssd.jpl.nasa.gov),
# rounded: epoch (Julian day), semi-major axis (AU), eccentricity; then in degrees inclination,
# longitude of the ascending node, argument of perihelion, mean anomaly at the epoch.
BODIES = {
    "Ceres": (2458600.5, 2.76917, 0.07601, 10.594, 80.306, 73.598, 77.372),
    "Pallas": (2458600.5, 2.77247, 0.23034, 34.836, 173.080, 310.049, 59.699),
    "Juno": (2458600.5, 2.66915, 0.25694, 12.989, 169.853, 248.139, 34.925),
    "Vesta": (2458600.5, 2.36142, 0.08872, 7.142, 103.811, 150.729, 95.862),
    "Eros": (2461000.5, 1.45812, 0.22284, 10.828, 304.270, 178.930, 310.554),
    "Icarus": (2459600.5, 1.078, 0.8269, 22.80, 87.96, 31.44, 0.33),
    "Halley": (2449400.5, 17.83414, 0.96714, 162.263, 58.420, 111.332, 38.384),
}
START = 2460676.5  # 1 January 2025: where time begins here
GAUSS = 0.01720209895  # mean motion in radians a day, where the semi-major axis is 1 AU


# ---- What happens to one element -----------------------------------------------------------------


def eccentric_anomaly(mean, e):
    """The solution E of E - e sin E = mean, for mean from -pi to pi, and how many steps it took.

    For a positive mean all three starts are at or above the solution, where the left side is
    convex: Newton's steps lead down to it, and past it only by rounding, which ends the loop.
    """
    sign = jnp.where(mean < 0, -1, 1).astype(mean.dtype)
    mean = sign * mean
    start = jnp.minimum(jnp.minimum(mean + e, mean / (1 - e)), jnp.pi)
    smallest = 4 * jnp.finfo(mean.dtype).eps

    def goes_on(state):
        E, step, _ = state
        return step > smallest * E

    def newton(state):
        E, _, steps = state
        step = (E - e * jnp.sin(E) - mean) / (1 - e * jnp.cos(E))
        return E - step, step, steps + 1

    unknown = jnp.full_like(start, jnp.inf)
    E, _, steps = jax.lax.while_loop(goes_on, newton, (start, unknown, jnp.int32(0)))
    return sign * E, steps


def position(axis, e, inclination, node, perihelion, mean, days):
    """Heliocentric x, y, z (AU) of one body on one day, and the steps that Newton's method took."""
    turns = (mean + GAUSS * axis**-1.5 * days) / (2 * jnp.pi)
    E, steps = eccentric_anomaly(2 * jnp.pi * (turns - jnp.round(turns)), e)
    along = axis * (jnp.cos(E) - e)  # in the plane of the orbit: towards perihelion,
    across = axis * jnp.sqrt((1 - e) * (1 + e)) * jnp.sin(E)  # and where the body goes from there
    cos, sin = jnp.cos(perihelion), jnp.sin(perihelion)
    along, across = cos * along - sin * across, sin * along + cos * across
    across, z = jnp.cos(inclination) * across, jnp.sin(inclination) * across
    cos, sin = jnp.cos(node), jnp.sin(node)
    return cos * along - sin * across, sin * along + cos * across, z, steps


solve = jax.jit(je.elementwise(eccentric_anomaly))
orbits = jax.jit(je.elementwise(position))


# ---- Orbits --------------------------------------------------------------------------------------


def elements(synthetic, seed=0):
    """Elements of the real bodies, then of made-up ones that resemble them: a row for each kind."""
    epoch, axis, e, *angles = np.array(list(BODIES.values())).T
    inclination, node, perihelion, mean = np.radians(angles)
    mean = mean + GAUSS * axis**-1.5 * (START - epoch)
    real = np.stack([axis, e, inclination, node, perihelion, mean])
    random = np.random.default_rng(seed)
    # Mostly like the first four, which are in the main belt.
    like = random.choice(len(BODIES), synthetic, p=[0.24, 0.24, 0.24, 0.24, 0.02, 0.01, 0.01])
    made = real[:, like]
    made[0] *= random.normal(1, 0.06, synthetic).clip(0.8, 1.2)
    made[1] = (made[1] + random.normal(0, 0.04, synthetic)).clip(0.001, 0.97)
    made[2] *= random.rayleigh(0.6, synthetic).clip(0, 1)
    made[3:] = random.uniform(-np.pi, np.pi, (3, synthetic))
    return np.concatenate([real, made], axis=1)


def check_solution(count):
    """The largest error of the solution, in float64, against a root that brackets find."""
    from scipy.optimize import brentq

    random = np.random.default_rng(1)
    mean = random.uniform(-np.pi, np.pi, count) * random.uniform(0, 1, count) ** 4
    e = random.uniform(0, 0.97, count)
    ours, steps = solve(mean, e)
    roots = [
        brentq(lambda x, m=m, e=e: x - e * np.sin(x) - m, -4, 4, xtol=1e-15)
        for m, e in zip(mean, e, strict=True)
    ]
    error = np.abs(ours - np.array(roots)).max()
    assert error < 1e-12, f"Kepler's equation is solved to {error}"
    print(
        f"Kepler's equation: within {error:.0e} of SciPy's brentq, in at most {steps.max()} steps"
    )


# ---- A fit through the loop ----------------------------------------------------------------------


def fit_eccentricity(body, guess=0.5, noise=0.01, observations=60, steps=15):
    """Gradient descent on the eccentricity: all its values, their standard error, and the truth."""
    days = jnp.linspace(0.0, 800.0, observations)
    axis, truth, *others = jnp.array(body)

    def positions(e):
        return jnp.stack(orbits(axis, e, *others, days)[:3])

    observed = positions(truth) + noise * jax.random.normal(jax.random.key(0), (3, observations))

    @jax.jit
    @jax.grad
    def gradient(e):
        return jnp.mean((positions(e) - observed) ** 2)

    values = [jnp.asarray(guess, truth.dtype)]
    for _ in range(steps):
        values.append(jnp.clip(values[-1] - 0.2 * gradient(values[-1]), 0, 0.97))
    # How far noise moves the minimum; the tangents of the positions come from the loop, too.
    _, tangents = jax.jvp(positions, values[-1:], [jnp.ones_like(truth)])
    error = noise / jnp.linalg.norm(tangents)
    assert abs(values[-1] - truth) < 4 * error, f"found {values[-1]}, wanted {truth} +- {error}"
    print(f"eccentricity of Icarus: {values[-1]:.4f} +- {error:.4f} found, {truth} is true")
    return np.array(values), float(truth)


# ---- Times and the picture -----------------------------------------------------------------------


def report_times(args):
    days_of_a_body = jax.vmap(position, in_axes=(None,) * 6 + (0,))
    plain = jax.jit(jax.vmap(days_of_a_body, in_axes=(0,) * 6 + (None,)))
    columns = [a.ravel() for a in args]
    for ours, theirs in zip(orbits(*args)[:3], plain(*columns)[:3], strict=True):
        assert np.allclose(ours, theirs, atol=2e-3), "differs from jit(vmap(...))"
    ours, theirs = milliseconds(orbits, args), milliseconds(plain, columns)
    bodies, days = len(columns[0]), len(columns[-1])
    print(f"{bodies} bodies on {days} days, float32, on {jax.devices()[0].device_kind}:")
    print(f"  jax_elementwise {ours:.2f} ms, jit(vmap(...)) {theirs:.2f} ms")


def milliseconds(function, args, calls=5):
    """Of the fastest call."""
    times = []
    for _ in range(calls + 1):  # the first one compiles
        start = time.perf_counter()
        jax.block_until_ready(function(*args))
        times.append(time.perf_counter() - start)
    return 1e3 * min(times[1:])


def draw(path, table, fit, truth):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    axes = plt.figure(figsize=(12, 6.6), layout="constrained").subplot_mosaic(
        "AAB;AAC", width_ratios=[1, 1, 1.15]
    )
    sky, effort, descent = (axes[name] for name in "ABC")
    sky.set_facecolor("#0b1020")
    x, y, *_ = orbits(*table, 0.0)
    sky.scatter(x, y, s=1.2, c="#8fa3c8", lw=0, alpha=0.7)
    real = table[:, : len(BODIES), None]
    # Once around, from perihelion, where bodies are fast and points are close.
    turn = 0.5 * np.linspace(-1, 1, 2001) ** 3
    paths = orbits(*real[:5], 0.0, turn * 2 * np.pi / GAUSS * real[0] ** 1.5)
    for i, (name, color) in enumerate(zip(BODIES, plt.cm.Set2.colors, strict=False)):
        sky.plot(paths[0][i], paths[1][i], color=color, lw=1.2)
        sky.plot(x[i], y[i], "o", color=color, ms=6, label=name)
    sky.plot(0, 0, "o", color="#ffd75e", ms=9)
    sky.set(xlim=(-4.2, 4.2), ylim=(-4.2, 4.2), aspect="equal", xlabel="AU", ylabel="AU")
    sky.set_title("Minor planets on 1 January 2025; dots are made up", loc="left")
    sky.legend(loc="upper right", ncols=2, labelcolor="w", facecolor="#0b1020", fontsize=9)

    mean, e = np.linspace(-np.pi, np.pi, 400), np.linspace(0, 0.97, 300)[:, None]
    _, steps = solve(mean, e)
    colors = plt.get_cmap("viridis", int(steps.max()))
    box = (-180, 180, 0, 0.97)
    image = effort.imshow(
        steps, extent=box, origin="lower", aspect="auto", cmap=colors, vmin=0.5, vmax=colors.N + 0.5
    )
    plt.colorbar(image, ax=effort, ticks=range(1, colors.N + 1, 2))
    effort.set(xlabel="mean anomaly, degrees", ylabel="eccentricity", xticks=range(-180, 181, 90))
    effort.set_title("Newton's steps, element by element", loc="left")

    descent.axhline(truth, color="#b5541c", lw=1.2, ls="--", label="the truth")
    descent.plot(fit, "o-", color="#2a6f97", lw=1.8, ms=4, label="gradient descent")
    descent.set(xlabel="step", ylabel="eccentricity")
    descent.set_title("Icarus' orbit from noisy positions", loc="left")
    descent.legend(loc="lower right", frameon=False)
    descent.spines[["top", "right"]].set_visible(False)
    plt.savefig(path, dpi=150)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", default="kepler.png", help="the picture (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="few bodies and days, for tests")
    options = parser.parse_args(argv)
    jax.config.update("jax_enable_x64", True)  # the check and the fit are in float64

    check_solution(count=200 if options.quick else 2000)
    large = jax.devices()[0].platform == "gpu" and not options.quick
    table = elements(1 << 15 if large else 3000)
    fit, truth = fit_eccentricity(table[:, list(BODIES).index("Icarus")])
    days = np.linspace(0, 3650, 1000 if large else 10 if options.quick else 100)
    report_times([jnp.asarray(a, jnp.float32) for a in (*table[:, :, None], days)])
    draw(options.output, table[:, :3007], fit, truth)
    print(f"picture: {options.output}")


if __name__ == "__main__":
    main()
