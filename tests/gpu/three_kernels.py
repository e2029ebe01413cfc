"""Calls three kernels and prints, as JSON, what came out and what the runtime counted.

With two arguments, ``export FILE`` or ``import FILE``, it instead writes such a program to a file,
or runs one that was written; ``save FILE`` and ``load FILE`` do so with one that XLA has compiled.
"""

import json
import pathlib
import pickle
import sys

import jax
import jax.numpy as jnp
from jax import export
from jax.experimental import serialize_executable

import jax_elementwise as je
from jax_elementwise import _runtime

TARGET = "jax_elementwise_kernel"

soft = je.elementwise(lambda x, y: x * jnp.tanh(y) + 1)
rounded = je.elementwise(lambda x: (jnp.floor(x) * 3).astype(jnp.bfloat16))


@jax.jit
def program(x, y):
    z = soft(x, y)  # contiguous operands
    z = soft(z, y[:1])  # a scalar one: another kernel
    return rounded(z)


def operands():
    return jnp.linspace(-3, 3, 1003), jnp.linspace(0, 2, 1003)


def call():
    results = program(*operands())
    for _ in range(10):
        jax.block_until_ready(program(*operands()))
    # Another program with the same kernels.
    jax.block_until_ready(jax.jit(lambda x, y: soft(x, y) + soft(x, y[:1]))(*operands()))
    return results


def main(action="call", file=""):
    if action == "export":
        check = export.DisabledSafetyCheck.custom_call(TARGET)
        exported = export.export(program, platforms=["cuda"], disabled_checks=[check])(*operands())
        pathlib.Path(file).write_bytes(exported.serialize())
        return
    if action == "save":
        compiled = program.lower(*operands()).compile()
        pathlib.Path(file).write_bytes(pickle.dumps(serialize_executable.serialize(compiled)))
        return
    if action == "load":
        saved = pickle.loads(pathlib.Path(file).read_bytes())
        load = serialize_executable.deserialize_and_load
        results = load(*saved, execution_devices=jax.devices()[:1])(*operands())
    elif action == "import":
        program_again = export.deserialize(bytearray(pathlib.Path(file).read_bytes()))
        results = program_again.call(*operands())
    else:
        results = call()
    values = results.astype(jnp.float32).tolist()
    print(json.dumps({"values": values, "counters": _runtime.counters()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
