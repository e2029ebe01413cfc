"""Volatilities implied by option prices: ``python examples/implied_volatility.py --help``.

Needs matplotlib, which the extra ``test`` brings along.

The Black-Scholes formula gives the price of an option from the volatility of what it is an option
on; traders read it backwards. There is no formula for that: each element of an array searches by
itself, with Newton's method or, where that would leave the interval that is known to hold the
solution, by halving it. The derivatives of what it finds are the sensitivities of the volatility to
all that it depends on.
"""

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np

import jax_elementwise as je

SPOT, RATE = 100.0, 0.03
DISTANCES = -0.6, 0.5  # logarithm of strike / forward price
YEARS = 0.05, 3.0
HIGHEST = 5.0  # volatility, 500% a year
MOST = 100  # steps; a handful is enough nearly everywhere


# ---- What happens to one option ------------------------------------------------------------------


def normal_cdf(x):
    return 0.5 * jax.lax.erfc(-x * 0.5**0.5)


def price_and_vega(volatility, spot, strike, years, rate):
    """The price of the option that is out of the money, call or put, and d price / d volatility."""
    discounted = strike * jnp.exp(-rate * years)
    spread = volatility * jnp.sqrt(years)
    d1 = jnp.log(spot / discounted) / spread + spread / 2
    side = jnp.where(discounted > spot, 1, -1).astype(d1.dtype)  # 1 for a call, -1 for a put
    price = side * (spot * normal_cdf(side * d1) - discounted * normal_cdf(side * (d1 - spread)))
    vega = spot * jnp.sqrt(years) * jnp.exp(-d1 * d1 / 2) * (2 * np.pi) ** -0.5
    return price, vega


def implied(price, spot, strike, years, rate):
    """The volatility at which the option has this price, and how many steps it took.

    NaN for prices that no volatility gives.
    """
    option = (spot, strike, years, rate)
    tolerance = jnp.finfo(price.dtype).eps ** 0.5  # the last step squares what error is left

    def newton(volatility):
        """A step, in the logarithm of the price, which is less bent; and whether to go up."""
        value, vega = price_and_vega(volatility, *option)
        return volatility - jnp.log(value / price) * value / vega, value < price

    def goes_on(state):
        _, _, high, change, steps = state
        return (change > tolerance * high) & (steps < MOST)

    def search(state):
        volatility, low, high, _, steps = state
        guess, up = newton(volatility)
        low, high = jnp.where(up, volatility, low), jnp.where(up, high, volatility)
        inside = (low <= guess) & (guess <= high)  # false for NaN, too
        new = jnp.where(inside, guess, (low + high) / 2)
        return new, low, high, jnp.abs(new - volatility), steps + 1

    # Where the price as a function of volatility bends from one side to the other.
    bend = jnp.sqrt(2 * jnp.abs(jnp.log(spot / strike) + rate * years) / years)
    start = jnp.clip(bend, 0.05, HIGHEST / 2)
    low, high = jnp.zeros_like(price), jnp.full_like(price, HIGHEST)
    volatility, *_, steps = jax.lax.while_loop(
        goes_on, search, (start, low, high, high, jnp.int32(0))
    )
    # One more step of Newton's. Where it starts has no part in its derivatives, so they are right
    # however the search got there, and no tangents go around the loop.
    volatility, _ = newton(jax.lax.stop_gradient(volatility))
    possible = (volatility > 0) & (volatility < HIGHEST)
    return jnp.where(possible, volatility, jnp.nan), steps


black_scholes = jax.jit(je.elementwise(price_and_vega))
implied_volatility = jax.jit(je.elementwise(implied))


@jax.jit
def sensitivities(*args):
    """The derivatives of the implied volatility by all five arguments: one kernel."""
    volatility, pull, _ = jax.vjp(je.elementwise(implied), *args, has_aux=True)
    return pull(jnp.ones_like(volatility))


# ---- A market, and checks ------------------------------------------------------------------------


def market(strikes, maturities, dtype):
    """A made-up surface of volatilities with a smile, and the arguments that give its prices."""
    distance = jnp.linspace(*DISTANCES, strikes)
    years = jnp.geomspace(*YEARS, maturities)[:, None]
    x = distance / jnp.sqrt(years + 0.15)
    smile = jnp.sqrt((x - 0.1) ** 2 + 0.06) - 0.5 * x
    volatility = 0.16 + 0.05 * jnp.exp(-years) + 0.12 * smile
    strike = SPOT * jnp.exp(distance + RATE * years)
    option = jnp.broadcast_arrays(SPOT, strike, years, RATE)
    return volatility.astype(dtype), [a.astype(dtype) for a in option]


def check_round_trip(strikes, maturities):
    """Prices of known volatilities give these back, and impossible prices NaN."""
    volatility, option = market(strikes, maturities, jnp.float64)
    price, _ = black_scholes(volatility, *option)
    found, steps = implied_volatility(price, *option)
    error = jnp.abs(found - volatility).max()
    assert error < 1e-10, f"volatilities come back with an error of {error}"
    impossible = jnp.array([-1.0, 0.0, 200.0])
    assert jnp.isnan(implied_volatility(impossible, SPOT, 100.0, 1.0, RATE)[0]).all()
    print(
        f"{price.size} options: volatilities come back within {error:.0e}, prices of "
        f"{price.min():.0e} to {price.max():.0f}"
    )
    print(f"steps: {steps.min()} to {steps.max()}, {steps.mean():.1f} on average")
    return np.asarray(found), np.asarray(steps)


def check_sensitivities(strikes, maturities):
    """The gradient is what the theorem on implicit functions says."""
    volatility, option = market(strikes, maturities, jnp.float64)
    price, vega = black_scholes(volatility, *option)
    spot, strike, years, rate = option
    spread = volatility * jnp.sqrt(years)
    d1 = (jnp.log(spot / strike) + rate * years) / spread + spread / 2
    side = jnp.where(strike * jnp.exp(-rate * years) > spot, 1, -1)
    delta = side * normal_cdf(side * d1)
    owed = side * jnp.exp(-rate * years) * normal_cdf(side * (d1 - spread))  # for each of strike
    theta = vega * volatility / (2 * years) + rate * strike * owed
    by_hand = 1 / vega, -delta / vega, owed / vega, -theta / vega, -strike * years * owed / vega
    names = "price", "spot", "strike", "years", "rate"
    print("sensitivities of the volatility, largest relative difference to those by hand:")
    for name, ours, wanted in zip(names, sensitivities(price, *option), by_hand, strict=True):
        error = (jnp.abs(ours - wanted) / jnp.abs(wanted)).max()
        assert error < 1e-6, f"the sensitivity to the {name} differs by {error}"
        print(f"  by {name:7}{error:.0e}")


# ---- Times and the picture -----------------------------------------------------------------------


def report_times(strikes, maturities, dtype, quick):
    volatility, option = market(strikes, maturities, dtype)
    args = [black_scholes(volatility, *option)[0], *option]
    # Plain JAX has no reverse mode through such a loop, so its derivatives are tangents.
    over_options = jax.jit(jax.vmap(jax.vmap(implied)))
    tangents = jax.jacfwd(lambda *args: implied(*args)[0], argnums=range(5))
    pairs = {
        "volatility": (implied_volatility, over_options),
        "gradient": (sensitivities, jax.jit(jax.vmap(jax.vmap(tangents)))),
    }
    device = jax.devices()[0].device_kind
    print(f"{maturities} x {strikes} options, {np.dtype(dtype).name}, on {device}:")
    for what, functions in list(pairs.items())[: 1 if quick else 2]:  # derivatives compile longer
        ours, theirs = (milliseconds(function, args) for function in functions)
        print(f"  {what:12}jax_elementwise {ours:.2f} ms, jit(vmap(...)) {theirs:.2f} ms")


def milliseconds(function, args, calls=5):
    """Of the fastest call."""
    times = []
    for _ in range(calls + 1):  # the first one compiles
        start = time.perf_counter()
        jax.block_until_ready(function(*args))
        times.append(time.perf_counter() - start)
    return 1e3 * min(times[1:])


def draw(path, volatility, steps):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    maturities, strikes = volatility.shape
    distance, years = np.linspace(*DISTANCES, strikes), np.geomspace(*YEARS, maturities)
    ticks, names = np.array([1 / 12, 1 / 4, 1, 3]), ["1 month", "3 months", "1 year", "3 years"]
    figure = plt.figure(figsize=(12, 5), layout="constrained")
    surface = figure.add_subplot(1, 2, 1, projection="3d")
    surface.plot_surface(
        *np.meshgrid(distance, np.log(years)),
        100 * volatility,
        cmap="plasma",
        rcount=40,
        ccount=50,
        edgecolor="k",
        linewidth=0.15,
    )
    surface.set_yticks(np.log(ticks), names)
    surface.set_xlabel("log(strike / forward)")
    surface.set_title("Implied volatility, %")
    surface.view_init(24, -58)
    surface.set_box_aspect((1.15, 1.15, 0.75), zoom=0.95)

    effort = figure.add_subplot(1, 2, 2)
    colors = plt.get_cmap("viridis", int(steps.max()))
    image = effort.pcolormesh(
        distance, years, steps, cmap=colors, vmin=0.5, vmax=colors.N + 0.5, rasterized=True
    )
    figure.colorbar(image, ax=effort, ticks=range(1, colors.N + 1, 2))
    effort.set(yscale="log", xlabel="log(strike / forward)")
    effort.set_yticks(ticks, names, minor=False)
    effort.yaxis.set_minor_locator(plt.NullLocator())
    effort.set_title("Steps, element by element", loc="left")
    figure.savefig(path, dpi=150)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", default="implied_volatility.png", help="picture (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="few options, for tests")
    options = parser.parse_args(argv)
    jax.config.update("jax_enable_x64", True)

    size = (60, 40) if options.quick else (200, 160)
    surface = check_round_trip(*size)
    check_sensitivities(*size)
    large = jax.devices()[0].platform == "gpu" and not options.quick
    for dtype in (jnp.float32,) if options.quick else (jnp.float32, jnp.float64):
        report_times(*((4096, 4096) if large else size), dtype, options.quick)
    draw(options.output, *surface)
    print(f"picture: {options.output}")


if __name__ == "__main__":
    main()
