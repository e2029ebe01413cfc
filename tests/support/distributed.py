"""One process of several that make one mesh; ``test_distributed.py`` starts them.

Arguments: address of the first process, number of processes, which one this is.
"""

import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import multihost_utils
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import jax_elementwise as je


def reference(x, w, xp=jnp):
    return xp.tanh(x * w) + w, x - w


def root(x, w):
    return lax.fori_loop(0, 20, lambda _, y: y - (y * y - x) / (2 * y), x) * w


F = je.elementwise(reference, lowering="kernel")
ROOT = je.elementwise(root)
COUNT = je.cuda_functor("x + i", inputs="float x", outputs="float y", index="i", name="count")
X = np.linspace(0.5, 2, 32, dtype=np.float32).reshape(8, 4)
W = X[0] * 2


def close(found, expected):
    """Whether all of an array is right that this process has."""
    for shard in found.addressable_shards:
        np.testing.assert_allclose(shard.data, expected[shard.index], 1e-5, 1e-5)
    return len(found.addressable_shards)


def main():
    """Checks values against NumPy; prints what the parent looks at."""
    address, count, process = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(
        address, count, process, initialization_timeout=60, heartbeat_timeout_seconds=20
    )
    assert (jax.process_count(), jax.device_count()) == (count, 2 * count)
    multihost_utils.sync_global_devices("all compile at once")
    shards = []
    for kind in (AxisType.Auto, AxisType.Explicit):
        mesh = jax.make_mesh((count, 2), ("x", "y"), axis_types=(kind,) * 2)
        with jax.set_mesh(mesh):
            x, w = (
                jax.make_array_from_callback(a.shape, NamedSharding(mesh, P(*spec)), a.__getitem__)
                for a, spec in ((X, ("x", "y")), (W, ("y",)))
            )
            both = jax.jit(F)(x, w)
            shards += [close(y, e) for y, e in zip(both, reference(X, W, np), strict=True)]
            dx, dw = jax.jit(jax.grad(lambda x, w: F(x, w)[0].sum(), (0, 1)))(x, w)
            slope = 1 - np.tanh(X * W) ** 2
            shards += [close(dx, slope * W), close(dw, (slope * X + 1).sum(0))]
            value, (dx, dw) = jax.jit(
                jax.value_and_grad(lambda x, w: ROOT(x, w).sum(), (0, 1))
            )(x, w)  # fmt: skip
            shards += [close(value, (np.sqrt(X) * W).sum())]
            shards += [close(dx, W / 2 / np.sqrt(X)), close(dw, np.sqrt(X).sum(0))]
            shards += [close(jax.jit(COUNT)(x), X + np.arange(32.0).reshape(8, 4))]
    information = je.cache_info()
    print(
        json.dumps(
            {
                "shards": shards,
                "compilations": information.compilations,
                "disk_hits": information.disk_hits,
            }
        )
    )
    jax.distributed.shutdown()


main()
