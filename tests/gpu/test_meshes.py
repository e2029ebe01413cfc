"""Meshes of two GPUs: what these tell each other, and what each holds."""

import jax
import numpy as np
import pytest
from cases import random_array
from support.collectives import PLACEMENTS, TABLE, check_row, kernel, total, two
from support.meshes import KINDS, make_mesh, put

TWO_GPUS = jax.default_backend() == "gpu" and jax.local_device_count() >= 2

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not TWO_GPUS, reason="needs two GPUs")]


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
