"""What a compiled program holds for the devices of a mesh, beside the same program of JAX."""

import re
from typing import NamedTuple

import jax
import jax.numpy as jnp
from cases import TARGET, collectives_in

import jax_elementwise as je
from support import meshes


class Found(NamedTuple):
    collectives: list
    kernels: int
    shapes: list  # of what kernels get and give on one device
    results: object


def found(fun, *args):
    """What a compiled program holds and computes."""
    compiled = jax.jit(fun).lower(*args).compile()
    text = compiled.as_text()
    calls = [line for line in text.splitlines() if f'custom_call_target="{TARGET}"' in line]
    return Found(
        collectives_in(text),
        len(calls),
        [re.findall(r"\w+\[([\d,]*)\]\{", line.split("metadata")[0]) for line in calls],
        compiled(*args),
    )


def assert_alike(transform, mine, theirs, *args, eps=256):
    """Equal collectives, numbers, types and placements; answers what is found of ours."""
    a, b = found(transform(mine), *args), found(transform(theirs), *args)
    assert a.kernels > 0
    assert b.kernels == 0
    assert a.collectives == b.collectives
    meshes.assert_alike(a.results, b.results, eps)
    return a


def kernel(fun, **options):
    return je.elementwise(fun, lowering="kernel", **options)


# ---- The table -----------------------------------------------------------------------------------


def two(x, w):
    return jnp.tanh(x * w) + w, x - w


def total(f):
    return lambda *args: sum(leaf.sum() for leaf in jax.tree.leaves(f(*args)))


PLACEMENTS = {
    **meshes.PLACEMENTS,
    "ones": ((1, 64, 1), (None, "x"), (1, 1, 8), (None, None, "y")),
    "only_the_smaller": ((64, 8), (), (8,), ("x",)),
}
TRANSFORMATIONS = {
    "forward": lambda f: f,
    "jvp": lambda f: lambda *args: jax.jvp(f, args, args),
    "grad": lambda f: jax.grad(total(f), (0, 1)),
    "vmap": lambda f: jax.vmap(f, (0, None)),
}
TABLE = [
    (placement, transformation)
    for placement, (shape, _, other, _) in PLACEMENTS.items()
    for transformation in TRANSFORMATIONS
    if transformation != "vmap" or len(other) < len(shape)
]


def check_row(mesh, placement, transformation, x, w):
    """A row of the table: operands are given whole, and placed on the mesh here."""
    _, spec, _, other_spec = PLACEMENTS[placement]
    with jax.set_mesh(mesh):
        x, w = meshes.put(mesh, x, *spec), meshes.put(mesh, w, *other_spec)
        mine = assert_alike(TRANSFORMATIONS[transformation], kernel(two), two, x, w)
    if transformation != "grad":  # which has sums, and the way back of what was resharded
        assert mine.collectives == []
    return mine.collectives
