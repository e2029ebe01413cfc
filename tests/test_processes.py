"""Two processes under ``jax.distributed``, each with two devices of one mesh, on CPUs."""

import os
import socket
import subprocess
import sys

PROGRAM = """
import sys
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

rank, address = int(sys.argv[1]), sys.argv[2]
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(address, 2, rank)
import jax_elementwise as je

f = je.elementwise(lambda x, s: jnp.sin(x * s), lowering="kernel")
for kind in (AxisType.Explicit, AxisType.Auto):
    mesh = jax.make_mesh((4,), ("devices",), axis_types=(kind,))
    with jax.set_mesh(mesh):
        local = np.linspace(rank, rank + 1, 2048, dtype=np.float32)
        x = jax.make_array_from_process_local_data(NamedSharding(mesh, P("devices")), local)
        s = jax.device_put(jnp.float32(0.5), NamedSharding(mesh, P()))
        y = jax.jit(f)(x, s)
        parts = sorted(y.addressable_shards, key=lambda part: part.index[0].start)
        mine = np.concatenate([part.data for part in parts])
        np.testing.assert_allclose(mine, np.sin(local / 2), rtol=1e-5, atol=1e-6)
        gradient = jax.jit(jax.grad(lambda s, x: f(x, s).sum()))
        compiled = gradient.lower(s, x).compile()
        x64 = np.linspace([0, 1], [1, 2], 2048)
        np.testing.assert_allclose(compiled(s, x), (x64 * np.cos(x64 / 2)).sum(), rtol=1e-4)
        text = compiled.as_text()
        print(kind.name, text.count("all-reduce("), text.count("jax_elementwise_kernel"))
info = je.cache_info()
print(info.compilations + info.disk_hits, info.loads)
"""


def free_port():
    with socket.socket() as server:
        server.bind(("localhost", 0))
        return server.getsockname()[1]


def test_each_process_compiles_its_own_kernels_and_computes_its_part(host_compiler, tmp_path):
    environment = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
        "JAX_ELEMENTWISE_CACHE_DIR": str(tmp_path),  # shared by both
    }
    address = f"localhost:{free_port()}"
    processes = [
        subprocess.Popen(
            [sys.executable, "-P", "-c", PROGRAM, str(rank), address],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        outputs = [process.communicate(timeout=240) for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, (out, err) in zip(processes, outputs, strict=True):
        assert process.returncode == 0, err[-3000:]
        # A function and its gradient: two kernels, over meshes of both types.
        lines = [line for line in out.splitlines() if "[Gloo]" not in line]
        assert lines == ["Explicit 1 1", "Auto 1 1", "2 2"]
    assert len(list(tmp_path.glob("*.kernel"))) == 2
