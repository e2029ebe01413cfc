"""Meshes of devices, arrays placed on them, and pairs of placements that tests go through."""

import jax
import pytest
from cases import assert_same
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

EXPLICIT, AUTO = AxisType.Explicit, AxisType.Auto
KINDS = pytest.mark.parametrize("kind", [EXPLICIT, AUTO], ids=["explicit", "auto"])

# The shape and the specification of one operand, and of another.
PLACEMENTS = {
    "same": ((64, 8), ("x", "y"), (64, 8), ("x", "y")),
    "both_axes_on_one_dimension": ((64, 8), (("x", "y"),), (64, 8), (("x", "y"),)),
    "row": ((64, 8), ("x", "y"), (8,), ("y",)),
    "replicated_row": ((64, 8), ("x", "y"), (8,), ()),
    "column": ((64, 8), ("x", "y"), (64, 1), ("x",)),
    "scalar": ((64, 8), ("x", "y"), (), ()),
    "complementary": ((64, 8), ("x",), (64, 8), (None, "y")),
    "outer": ((64, 1), ("x",), (1, 8), (None, "y")),
    "replicated": ((64, 8), (), (64, 8), ()),
    "higher_rank": ((3, 64, 8), (None, "x"), (8,), ("y",)),
}


def make_mesh(kind, shape=(4, 2)):
    """Devices in rows and columns, with axes of one type."""
    return jax.make_mesh(shape, ("x", "y"), axis_types=(kind,) * 2)


def put(mesh, array, *spec):
    """The array, divided among the devices."""
    return jax.device_put(array, NamedSharding(mesh, P(*spec)))


def assert_alike(mine, theirs, eps=32):
    """Equal numbers, types (which show explicit shardings) and placements."""
    assert_same(mine, theirs, eps)
    for a, b in zip(jax.tree.leaves(mine), jax.tree.leaves(theirs), strict=True):
        assert str(jax.typeof(a)) == str(jax.typeof(b))
        assert a.sharding.is_equivalent_to(b.sharding, b.ndim), (a.sharding, b.sharding)
