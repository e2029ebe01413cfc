"""Loops per element: Kepler's equation and the Mandelbrot set, side by side.

    python benchmarks/loops.py [--quick] [--only ours,xla,pallas,cupy,cuda] [--json FILE]

The same arithmetic, on the same inputs, in turns: as a function of this package, under
``jax.jit(jax.vmap(...))``, as a Pallas kernel, as a CuPy ``ElementwiseKernel`` as a user would
write it, and as a CUDA kernel written by hand. A timing is that of several calls in a row; the
median counts. Results are compared with each other.
"""

import argparse
import json
import pathlib
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np
from bandwidth import machine, report_machine
from jax import lax

import jax_elementwise as je

MAX_STEPS = 1000  # of the Mandelbrot set

# ---- The functions, each on one element ----------------------------------------------------------


def kepler(mean, eccentricity):
    """Newton's method until the step is small."""

    def unsettled(state):
        _, step, count = state
        return (jnp.abs(step) > 1e-6) & (count < 50)

    def newton(state):
        anomaly, _, count = state
        error = anomaly - eccentricity * jnp.sin(anomaly) - mean
        step = error / (1 - eccentricity * jnp.cos(anomaly))
        return anomaly - step, step, count + 1

    start = mean + eccentricity * jnp.sin(mean)
    return lax.while_loop(unsettled, newton, (start, jnp.ones_like(mean), jnp.int32(0)))[0]


def mandelbrot(c_re, c_im):
    """Steps until |z| is above 2."""

    def inside(state):
        x, y, count = state
        return (count < MAX_STEPS) & (x * x + y * y <= 4)

    def step(state):
        x, y, count = state
        return x * x - y * y + c_re, 2 * x * y + c_im, count + 1

    zero = jnp.zeros_like(c_re)
    return lax.while_loop(inside, step, (zero, zero, jnp.int32(0)))[2]


KEPLER = """
float E = M + e * sinf(M), d = 1;
int steps = 0;
while (fabsf(d) > 1e-6f && steps < 50) {
  SINCOS
  d = (E - e * s - M) / (1 - e * c);
  E -= d;
  ++steps;
}
out = E;
"""
SINES = "float s = sinf(E), c = cosf(E);"
SINCOS = "float s, c; sincosf(E, &s, &c);"
MANDELBROT = f"""
float x = 0, y = 0;
int steps = 0;
while (steps < {MAX_STEPS} && x * x + y * y <= 4) {{
  float t = x * x - y * y + a;
  y = 2 * x * y + b;
  x = t;
  ++steps;
}}
out = steps;
"""

# ---- The contenders ------------------------------------------------------------------------------


def cupy_functions():
    """ElementwiseKernels, as a user would write them."""
    import cupy

    kepler_kernel = cupy.ElementwiseKernel(
        "float32 M, float32 e", "float32 out", KEPLER.replace("SINCOS", SINES), "kepler"
    )
    mandelbrot_kernel = cupy.ElementwiseKernel(
        "float32 a, float32 b", "int32 out", MANDELBROT, "mandelbrot"
    )
    return {"kepler": kepler_kernel, "mandelbrot": mandelbrot_kernel}


def cuda_functions():
    """Kernels by hand: one element per thread."""
    import cupy

    def make(name, body, first, second, result, out_type):
        source = f"""
extern "C" __global__ void {name}(const float* __restrict__ p, const float* __restrict__ q,
                                  {result}* __restrict__ r, long long n) {{
  const long long k = blockIdx.x * 256ll + threadIdx.x;
  if (k >= n) return;
  const float {first} = p[k], {second} = q[k];
  {result} out;
  {body}
  r[k] = out;
}}"""
        kernel = cupy.RawKernel(source, name)

        def run(p, q):
            r = cupy.empty(p.shape, out_type)
            kernel(((p.size + 255) // 256,), (256,), (p, q, r, p.size))
            return r

        return run

    return {
        "kepler": make("kepler", KEPLER.replace("SINCOS", SINCOS), "M", "e", "float", "float32"),
        "mandelbrot": make("mandelbrot", MANDELBROT, "a", "b", "int", "int32"),
    }


def pallas_functions():
    """Pallas kernels, by Triton: a block of elements goes around until its last one is done."""
    from jax.experimental import pallas
    from jax.experimental.pallas import triton

    def kepler_block(mean, eccentricity):
        def unsettled(state):
            _, step, count = state
            return (jnp.max(jnp.abs(step)) > 1e-6) & (count < 50)

        def newton(state):
            anomaly, _, count = state
            error = anomaly - eccentricity * jnp.sin(anomaly) - mean
            step = error / (1 - eccentricity * jnp.cos(anomaly))
            return anomaly - step, step, count + 1

        start = mean + eccentricity * jnp.sin(mean)
        return lax.while_loop(unsettled, newton, (start, jnp.ones_like(mean), 0))[0]

    def mandelbrot_block(c_re, c_im):
        def some_inside(state):
            x, y, _, count = state
            return (count < MAX_STEPS) & (jnp.min(x * x + y * y) <= 4)

        def step(state):
            x, y, steps, count = state
            inside = x * x + y * y <= 4
            x, y = (
                jnp.where(inside, x * x - y * y + c_re, x),
                jnp.where(inside, 2 * x * y + c_im, y),
            )
            return x, y, steps + inside.astype(jnp.int32), count + 1

        zero = jnp.zeros_like(c_re)
        steps = jnp.zeros(c_re.shape, jnp.int32)
        return lax.while_loop(some_inside, step, (zero, zero, steps, 0))[2]

    def make(function, dtype, block, warps):
        def kernel(p, q, r):
            r[...] = function(p[...], q[...])

        def run(p, q):
            spec = pallas.BlockSpec((block,), lambda i: (i,))
            return pallas.pallas_call(
                kernel,
                out_shape=jax.ShapeDtypeStruct(p.shape, dtype),
                grid=(p.size // block,),
                in_specs=[spec, spec],
                out_specs=spec,
                compiler_params=triton.CompilerParams(num_warps=warps),
            )(p, q)

        return jax.jit(run)

    # The best of a few sizes.
    return {
        "kepler": make(kepler_block, jnp.float32, 128, 1),
        "mandelbrot": make(mandelbrot_block, jnp.int32, 256, 1),
    }


def jax_functions():
    """Ours and XLA's, and the derivatives of ours."""
    ours = je.elementwise(kepler)
    ones = jnp.ones_like

    def gradient(argnums):
        return jax.jit(jax.grad(lambda m, e: ours(m, e).sum(), argnums=argnums))

    return {
        "ours": {"kepler": jax.jit(ours), "mandelbrot": jax.jit(je.elementwise(mandelbrot))},
        "xla": {
            "kepler": jax.jit(jax.vmap(kepler)),
            "mandelbrot": jax.jit(jax.vmap(mandelbrot)),
        },
        "ours, derivatives": {
            "tangent": jax.jit(lambda m, e: jax.jvp(ours, (m, e), (ones(m), ones(e)))[1]),
            "gradient, M": gradient(0),
            "gradient, M and e": gradient((0, 1)),
        },
    }


# ---- Timing --------------------------------------------------------------------------------------


def synchronize(result):
    if isinstance(result, (jax.Array, tuple)):
        jax.block_until_ready(result)
    else:
        result.device.synchronize()


def seconds_per_call(function, arguments, calls):
    start = time.perf_counter()
    for _ in range(calls):
        result = function(*arguments)
    synchronize(result)
    return (time.perf_counter() - start) / calls


def measure(contenders, repeats):
    """Median times of functions that take turns: {name: (function, arguments)}."""
    times = {name: [] for name in contenders}
    for function, arguments in contenders.values():
        synchronize(function(*arguments))
    for _ in range(repeats):
        for name, (function, arguments) in contenders.items():
            once = seconds_per_call(function, arguments, 1)
            calls = max(1, min(20, int(0.02 / once)))
            times[name].append(seconds_per_call(function, arguments, calls))
    return {name: 1e3 * statistics.median(values) for name, values in times.items()}


def inputs(size, width):
    """Random orbits, and the points of an image."""
    rng = np.random.default_rng(0)
    orbits = rng.uniform(0, 6.28, size), rng.uniform(0, 0.95, size)
    re, im = np.meshgrid(np.linspace(-2, 0.6, width), np.linspace(-1.3, 1.3, width))
    return {
        "kepler": [x.astype(np.float32) for x in orbits],
        "mandelbrot": [x.astype(np.float32).ravel() for x in (re, im)],
    }


def main(argv=None):
    """Measures, prints and returns everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="only see that everything runs")
    parser.add_argument("--only", default="ours,xla,pallas,cupy,cuda", help="contenders")
    parser.add_argument("--json", metavar="FILE", help="save all measurements")
    options = parser.parse_args(argv)
    about = machine()
    report_machine(about)
    on_gpu = about["platform"] == "gpu"
    given = inputs(1 << 24, 4096) if on_gpu else inputs(1 << 20, 512)
    given = inputs(1 << 10, 32) if options.quick else given
    on_device = {name: [jnp.asarray(x) for x in xs] for name, xs in given.items()}

    functions = jax_functions()
    wanted = options.only.split(",")
    contenders = {name: functions[name] for name in ("ours", "xla") if name in wanted}
    if on_gpu:
        makers = {"pallas": pallas_functions, "cupy": cupy_functions, "cuda": cuda_functions}
        contenders |= {name: make() for name, make in makers.items() if name in wanted}
    rows = {}
    for problem, xs in on_device.items():
        entries = {}
        for name, of_problem in contenders.items():
            arguments = xs
            if name in ("cupy", "cuda"):
                import cupy

                arguments = [cupy.asarray(x) for x in given[problem]]
            entries[name] = of_problem[problem], arguments
        rows[problem] = measure(entries, 1 if options.quick else 5)
        results = {name: np.asarray(f(*xs).get() if name in ("cupy", "cuda") else f(*xs))
                   for name, (f, xs) in entries.items()}  # fmt: skip
        compare(problem, results)
    derivatives = {
        name: (function, on_device["kepler"])
        for name, function in functions["ours, derivatives"].items()
    }
    rows["derivatives of kepler"] = measure(derivatives, 1 if options.quick else 5)
    report(rows)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps({"machine": about, "ms": rows}, indent=2))
    return rows


def compare(problem, results):
    """All contenders agree: on angles to rounding, on nearly all counts exactly."""
    first = next(iter(results.values()))
    for name, result in results.items():
        if problem == "kepler":
            assert np.abs(result - first).max() < 1e-4, name
        else:
            assert (result == first).mean() > 0.99, name


def report(rows):
    print("| problem | contender | ms | of ours |\n|---|---|---:|---:|")
    forward = rows["kepler"].get("ours")
    for problem, times in rows.items():
        base = times.get("ours", forward)
        for name, milliseconds in times.items():
            ratio = f"{milliseconds / base:.2f}" if base else ""
            print(f"| {problem} | {name} | {milliseconds:.3f} | {ratio} |")


if __name__ == "__main__":
    main()
