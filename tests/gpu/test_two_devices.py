"""Two GPUs: what they tell each other, and that each has its own kernels and memory."""

import jax
import numpy as np
import pytest
from cases import random_array
from gpu import device
from support.collectives import PLACEMENTS, TABLE, check_row, kernel, total, two
from support.meshes import KINDS, make_mesh, put

TWO_GPUS = jax.default_backend() == "gpu" and jax.local_device_count() >= 2

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not TWO_GPUS, reason="needs two GPUs")]


def start(tmp_path_factory):
    """Programs that use kernels for the first time."""
    if not TWO_GPUS:
        return {}
    cache = str(tmp_path_factory.mktemp("two_devices"))
    return {
        name: device.python(
            device.HERE / "two_devices.py", name, JAX_ELEMENTWISE_CACHE_DIR=f"{cache}/{name}"
        )
        for name in ("second_first", "threads")
    }


def test_a_second_gpu_may_be_the_first_in_use(program):
    """And no array is allocated on the other one."""
    assert program("second_first").output() == "right, on the second alone\n"


def test_a_thread_for_each_gpu(program):
    """Both use a kernel for the first time at the same moment: compiled once, loaded twice."""
    assert program("threads").output() == "right on both\n"


@KINDS
@pytest.mark.parametrize("shape", [(2, 1), (1, 2)], ids=["rows", "columns"])
@pytest.mark.parametrize(("placement", "transformation"), TABLE)
def test_collectives_and_placements_are_those_of_jax(kind, shape, placement, transformation, rng):
    x, w = (random_array(rng, PLACEMENTS[placement][i]) for i in (0, 2))
    check_row(make_mesh(kind, shape), placement, transformation, x, w)


@KINDS
def test_a_gpu_holds_its_part_and_no_more(kind):
    """No temporary memory beside the parts of a result, in either direction."""
    size = 2**24
    mesh = make_mesh(kind, (2, 1))
    with jax.set_mesh(mesh):
        x = put(mesh, np.full(size, 0.5, np.float32), "x")
        for fun, results in ((kernel(two), 2), (jax.grad(total(kernel(two)), (0, 1)), 2)):
            analysis = jax.jit(fun).lower(x, x).compile().memory_analysis()
            part = x.nbytes // 2
            assert 0 <= analysis.output_size_in_bytes - results * part < 64  # a table of pointers
            assert analysis.temp_size_in_bytes < part + 2**20  # a cotangent, at most
