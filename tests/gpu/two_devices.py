"""First use of kernels on two GPUs; run by test_two_devices.py with an empty kernel cache."""

import os
import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import jax_elementwise as je
from jax_elementwise import _runtime

SIZE = 2**20 + 3
MODULES = 2  # MiB: what the driver takes at once for the code of many kernels


def wave(x, y):
    return jnp.sin(x) * y, lax.fori_loop(0, 5, lambda _, s: s * x + y, x)


def expected(x, y):
    horner = x
    for _ in range(5):
        horner = horner * x + y
    return np.sin(x) * y, horner


def own_memory(index):
    """MiB that the driver has given to this process on a GPU, modules included."""
    query = ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"]
    done = subprocess.run([*query, "-i", str(index)], capture_output=True, check=True, text=True)
    used = dict(line.split(", ") for line in done.stdout.splitlines())
    return int(used[str(os.getpid())])


def operands(where, seed=0):
    rng = np.random.default_rng(seed)
    arrays = [rng.uniform(-1, 1, SIZE).astype(np.float32) for _ in range(2)]
    return arrays, [jax.device_put(a, where) for a in arrays]


def check(results, arrays, where):
    for result, right in zip(results, expected(*arrays), strict=True):
        assert result.devices() == {where}
        np.testing.assert_allclose(result, right, 1e-5, 1e-6)


def second_first():
    """A value, a gradient and a program of many calls, all on the second GPU."""
    first, second = jax.local_devices()
    f = je.elementwise(wave)
    in_use = first.memory_stats()["bytes_in_use"]
    arrays, xs = operands(second)
    before = own_memory(0)
    check(f(*xs), arrays, second)
    gradient = jax.jit(jax.grad(lambda x, y: f(x, y)[0].sum(), (0, 1)))(*xs)
    np.testing.assert_allclose(gradient[1], np.sin(arrays[0]), 1e-5, 1e-6)
    assert gradient[0].devices() == {second}
    captured = jax.jit(lambda x, y: lax.fori_loop(0, 10, lambda _, x: f(x, y)[0], x))(*xs)
    assert captured.devices() == {second}
    counters = _runtime.counters()
    assert counters["compilations"] == 2, counters
    assert counters["loads"] == 4, counters  # a program may run on any GPU, when it is loaded
    assert first.memory_stats()["peak_bytes_in_use"] == in_use
    assert own_memory(0) - before <= MODULES, (own_memory(0), before)

    arrays, xs = operands(first)
    check(f(*xs), arrays, first)
    assert _runtime.counters() == counters
    print("right, on the second alone")


def threads():
    """Each thread computes on a GPU of its own, again and again."""
    together = threading.Barrier(2)
    f = je.elementwise(wave)
    failures = []

    def work(where):
        try:
            for seed in range(20):
                arrays, xs = operands(where, seed)
                together.wait(60)
                check(f(*xs), arrays, where)
        except BaseException as failure:
            failures.append(failure)
            together.abort()
            raise

    workers = [threading.Thread(target=work, args=(where,)) for where in jax.local_devices()]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures
    counters = _runtime.counters()
    assert (counters["compilations"], counters["loads"]) == (1, 2), counters
    print("right on both")


{"second_first": second_first, "threads": threads}[sys.argv[1]]()
