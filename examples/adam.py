"""Adam as one function of one element, on all devices: ``python examples/adam.py --help``.

Needs the extra ``test`` (scikit-learn; optax to compare with, where it is installed).

The new parameter and both moments are three results of one function, so on a GPU the update of an
array is one kernel: it reads four arrays once, and writes three in place of what it read. The
rule comes in two forms: a ``GradientTransformation`` like those of optax, which fits into
``optax.chain``, and a step that gives the new parameters at once, in place of the old ones.

The network of ``digits.py`` is trained, with parameters and moments divided among all devices: each
gathers the parameters for its part of a batch, and updates its own part of them. Training with this
Adam and with optax's gives the same curve. Then the update alone is timed, and its memory counted.
"""

import argparse
import functools
import statistics
import time
from typing import Any, NamedTuple

import digits
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import jax_elementwise as je

try:
    import optax
except ImportError:
    optax = None

AXIS = "devices"
KINDS = {"explicit": AxisType.Explicit, "auto": AxisType.Auto}
REPEATS = 9


# ---- Adam: what happens to one element -----------------------------------------------------------


class Adam(NamedTuple):
    """What does not change from step to step, with the names and defaults of ``optax.adamw``.

    ``weight_decay=0`` is ``optax.adam``. Both moments are computed in the gradient's type;
    ``mu_dtype`` is what the first one is kept in.
    """

    learning_rate: float = 1e-3
    b1: float = 0.9
    b2: float = 0.999
    eps: float = 1e-8
    eps_root: float = 0.0
    weight_decay: float = 0.0
    mu_dtype: Any = None

    def direction(self, p, m, v, g, correction1, correction2):
        """What to add to p, and both moments."""
        m = self.b1 * m.astype(g.dtype) + (1 - self.b1) * g
        v = self.b2 * v + (1 - self.b2) * (g * g)
        step = (m / correction1) / (jnp.sqrt(v / correction2 + self.eps_root) + self.eps)
        if self.weight_decay:
            step = step + self.weight_decay * p
        return -self.learning_rate * step, m, v

    def next(self, p, m, v, g, *corrections):
        """What takes the place of p, m and v."""
        update, mean, square = self.direction(p, m, v, g, *corrections)
        return p + update, mean.astype(m.dtype), square

    def change(self, p, m, v, g, *corrections):
        """What takes the place of m, v and g: the moments, and what to add to p."""
        update, mean, square = self.direction(p, m, v, g, *corrections)
        return mean.astype(m.dtype), square, update


# ---- Adam: what happens to a tree of arrays ------------------------------------------------------


class State(NamedTuple):
    """Steps so far, and the moments of every parameter."""

    count: Any
    mu: Any
    nu: Any


class Optimizer(NamedTuple):
    """``init`` and ``update`` are those of optax; ``apply`` gives new parameters at once."""

    init: Any
    update: Any
    apply: Any


class GradientTransformation(NamedTuple):
    """As in optax, whose class takes its place where optax is installed."""

    init: Any
    update: Any


def adam(mesh=None, **options):
    """Adam, by functions of this package.

    Where the caller of ``apply`` donates parameters and state, they are updated in place. Over a
    mesh with an automatic axis that takes ``shard_map``: XLA forgets what is in place when it
    divides a call by itself. Over an explicit axis it does not have to.
    """
    rule = Adam(**options)
    step = je.elementwise(rule.next, name="adam", input_output_aliases={0: 0, 1: 1, 2: 2})
    change = je.elementwise(
        rule.change, name="adam_update", input_output_aliases={1: 0, 2: 1, 3: 2}
    )
    if mesh is not None and AxisType.Auto in mesh.axis_types:
        step, change = (functools.partial(on_parts, mesh, f) for f in (step, change))

    def init(params):
        mu = jax.tree.map(lambda p: jnp.zeros_like(p, dtype=rule.mu_dtype), params)
        return State(jnp.zeros((), jnp.int32), mu, jax.tree.map(jnp.zeros_like, params))

    def each(function, params, state, gradients):
        """The three results of a function of one element, as three trees; and the new count."""
        count = state.count + 1
        # Scalars: computed once, and passed to the kernel, not once per element in it.
        corrections = 1 - rule.b1**count, 1 - rule.b2**count
        results = jax.tree.map(
            lambda *arrays: function(*arrays, *corrections), params, state.mu, state.nu, gradients
        )
        structure = jax.tree.structure(params), jax.tree.structure((0, 0, 0))
        return count, *jax.tree.transpose(*structure, results)

    def update(gradients, state, params):
        count, mu, nu, updates = each(change, params, state, gradients)
        return updates, State(count, mu, nu)

    def apply(params, state, gradients):
        count, params, mu, nu = each(step, params, state, gradients)
        return params, State(count, mu, nu)

    return Optimizer(init, update, apply)


def on_parts(mesh, function, p, *arrays):
    """Calls a function of four arrays and scalars on each device's part of them."""
    spec = spec_of(p)
    specs = [spec if x.ndim else P() for x in arrays]
    mapped = jax.shard_map(function, mesh=mesh, in_specs=(spec, *specs), out_specs=(spec,) * 3)
    return mapped(p, *arrays)


def transformation(optimizer):
    """What optax knows of an optimizer, as for ``optax.chain``."""
    kind = GradientTransformation if optax is None else optax.GradientTransformation
    return kind(optimizer.init, optimizer.update)


# ---- Adam again, to compare with -----------------------------------------------------------------


def plain(**options):
    """The same arithmetic by jax.numpy, on whole arrays."""
    rule = Adam(**options)

    def apply(params, state, gradients):
        count = state.count + 1
        corrections = 1 - rule.b1**count, 1 - rule.b2**count
        results = jax.tree.map(
            lambda *arrays: rule.next(*arrays, *corrections), params, state.mu, state.nu, gradients
        )
        structure = jax.tree.structure(params), jax.tree.structure((0, 0, 0))
        params, mu, nu = jax.tree.transpose(*structure, results)
        return params, State(count, mu, nu)

    return Optimizer(adam(**options).init, None, apply)


def added(params, updates):
    """What ``optax.apply_updates`` does."""
    return jax.tree.map(lambda p, u: p + u, params, updates)


def by_updates(transform):
    """An optimizer from a transformation, whose updates are added by XLA."""

    def apply(params, state, gradients):
        updates, state = transform.update(gradients, state, params)
        return added(params, updates), state

    return Optimizer(transform.init, transform.update, apply)


def of_optax(**options):
    if not options.get("weight_decay"):
        options.pop("weight_decay", None)
        return optax.adam(**options)
    return optax.adamw(**options)


# ---- The network of digits.py, divided among devices ---------------------------------------------


def spec_of(leaf):
    """Divided along the first dimension that all devices can share; else one copy on each."""
    count = jax.device_count()
    for d, n in enumerate(leaf.shape):
        if n % count == 0:
            return P(*[None] * d, AXIS)
    return P()


def put(mesh, tree, spec=None):
    """Arrays on the devices of a mesh."""
    shardings = jax.tree.map(lambda x: NamedSharding(mesh, spec or spec_of(x)), tree)
    return jax.device_put(tree, shardings)


def constrained(mesh, x, spec):
    """The array, divided like that: over explicit axes by its type, else as a wish to XLA."""
    if AxisType.Explicit in mesh.axis_types:
        return jax.sharding.reshard(x, spec)
    return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, spec))


def loss(mesh, params, images, labels):
    """Mean cross-entropy of a batch; labels are one-hot."""
    # Gathered where they are needed; the gradient of that divides their gradients again.
    whole = jax.tree.map(lambda p: constrained(mesh, p, P()), params)
    logits = digits.predict(digits.ELEMENTWISE, whole, images)
    return -jnp.mean(jnp.sum(labels * jax.nn.log_softmax(logits), axis=1))


def training_step(mesh, optimizer):
    def step(params, state, images, labels):
        value, gradients = jax.value_and_grad(functools.partial(loss, mesh))(params, images, labels)
        return *optimizer.apply(params, state, gradients), value

    return jax.jit(step, donate_argnums=(0, 1))


def batches(steps):
    """Images and one-hot labels of every step, the same for every optimizer."""
    images, labels, _, _ = map(np.asarray, digits.load())
    count = jax.device_count()
    size = -(-digits.BATCH // count) * count
    rng = np.random.default_rng(0)
    for _ in range(steps):
        chosen = rng.choice(len(images), size, replace=False)
        yield images[chosen], np.eye(digits.CLASSES, dtype=np.float32)[labels[chosen]]


def start(mesh, optimizer):
    params = put(mesh, digits.initialize(jax.random.key(0)))
    return params, put(mesh, optimizer.init(params))


def train(mesh, optimizer, steps):
    """The loss of every step."""
    params, state = start(mesh, optimizer)
    step = training_step(mesh, optimizer)
    losses = []
    for batch in batches(steps):
        params, state, value = step(params, state, *put(mesh, batch, P(AXIS)))
        losses.append(value)
    return np.array(losses)


def compare_curves(mesh, steps, options):
    """Trains with every Adam there is; returns the largest difference of each curve from ours."""
    ours = adam(mesh, **options)
    others = {"by its updates": by_updates(transformation(ours)), "jax.numpy": plain(**options)}
    if optax is not None:
        clip = optax.clip_by_global_norm(1e6)  # of what is never that large
        others["in optax.chain"] = by_updates(optax.chain(clip, transformation(ours)))
        others["optax"] = by_updates(of_optax(**options))
    curve = train(mesh, ours, steps)
    print(f"training: loss {curve[0]:.3f} to {curve[-1]:.3f} in {steps} steps")
    assert curve[-1] < curve[0] / 2, curve
    # Rounding alone may differ; training magnifies it, the more of a moment of 16 bits.
    allowed = 1e-2 if options["mu_dtype"] is None else 1e-1
    for name, other in others.items():
        difference = np.abs(train(mesh, other, steps) - curve).max() / curve[0]
        print(f"  {name:16}the same curve within {difference:.1e} of the first loss")
        assert difference < allowed, f"{name} trains differently"
    if optax is None:
        print("  optax is not installed, so nothing is compared with it")


# ---- The update alone ----------------------------------------------------------------------------


def bytes_moved(size, mu_dtype):
    """Of an update of float32 parameters: four arrays read, three written."""
    return size * (5 * 4 + 2 * jnp.dtype(mu_dtype or jnp.float32).itemsize)


class Update:
    """The update of one large array in a program of its own, with donated parameters and state."""

    def __init__(self, mesh, optimizer, size):
        sharding = NamedSharding(mesh, P(AXIS))
        make = functools.partial(jax.jit, out_shardings=sharding)
        self.gradient = make(lambda: jnp.full(size, 1e-3))()
        self.params = make(lambda: jnp.ones(size))()
        state = jax.eval_shape(optimizer.init, self.params)
        placed = jax.tree.map(lambda x: sharding if x.ndim else NamedSharding(mesh, P()), state)
        self.state = jax.jit(optimizer.init, out_shardings=placed)(self.params)
        step = jax.jit(optimizer.apply, donate_argnums=(0, 1))
        self.executable = step.lower(self.params, self.state, self.gradient).compile()

    def seconds(self, calls):
        """From a number of updates in a row, of one."""
        began = time.perf_counter()
        for _ in range(calls):
            self.params, self.state = self.executable(self.params, self.state, self.gradient)
        jax.block_until_ready(self.params)
        return (time.perf_counter() - began) / calls

    def kernels(self):
        """Calls of kernels of ours in the program."""
        return self.executable.as_text().count('custom_call_target="jax_elementwise_kernel"')

    def memory(self):
        """Bytes per device: of the arguments, of those reused for results, of anything else."""
        analysis = self.executable.memory_analysis()
        return (
            analysis.argument_size_in_bytes,
            analysis.alias_size_in_bytes,
            analysis.temp_size_in_bytes,
        )


def peak():
    """The most bytes that were in use on the first device, and those that are; None on a CPU."""
    jax.effects_barrier()
    stats = jax.devices()[0].memory_stats() or {}
    return stats.get("peak_bytes_in_use"), stats.get("bytes_in_use")


def check_memory(name, update, size, mu_dtype):
    """Says what the program takes, and that it updates in place."""
    arguments, reused, temporary = update.memory()
    part = size // jax.device_count()
    kept = part * (8 + jnp.dtype(mu_dtype or jnp.float32).itemsize)
    print(f"  {name:8}{arguments:>14,} bytes of arguments, {reused:,} of them reused for results,")
    print(f"  {'':8}{temporary:>14,} of temporaries, on each device")
    assert reused >= kept, f"{name}: {reused} bytes are reused, and p, m and v are {kept}"
    return temporary


def measure(mesh, size, calls, repeats, options):
    """Prints what an update moves and takes, and how long, beside optax's."""
    mu_dtype = options["mu_dtype"]
    moved = bytes_moved(size, mu_dtype)
    count = jax.device_count()
    print(f"an update of {size:,} parameters moves {moved:,} bytes, {moved // count:,} per device")

    ours = Update(mesh, adam(mesh, **options), size)
    before, _ = peak()
    temporary = check_memory("ours", ours, size, mu_dtype)
    assert temporary < max(size // count, 1 << 16), "something of the size of an array is copied"
    ours.seconds(1)
    after, in_use = peak()
    if after is not None:
        print(f"  {'':8}{in_use:>14,} in use on the first device after it, at most {after:,}")
        if after > before:
            print(f"  {'':8}{after - before:>14,} more than before it")
    updates = {"ours": ours}
    if optax is not None:
        updates["optax"] = Update(mesh, by_updates(of_optax(**options)), size)
        check_memory("optax", updates["optax"], size, mu_dtype)
        updates["optax"].seconds(1)

    times = {name: [] for name in updates}
    for _ in range(repeats):  # in turns, so that both see the same machine
        for name, update in updates.items():
            times[name].append(update.seconds(calls))
    for name, update in updates.items():
        seconds = statistics.median(times[name])
        where = f"kernels: {update.kernels()}" if update.kernels() else "XLA's operations"
        print(f"  {name:8}{where:18}{1e3 * seconds:9.3f} ms {moved / seconds / 1e9:8.0f} GB/s")
    if jax.default_backend() != "gpu":
        print("Without a GPU XLA compiles the same operations for both: expect equal times.")
    return {name: statistics.median(values) for name, values in times.items()}


# ---- The main program ----------------------------------------------------------------------------


def main(argv=None):
    """Trains, compares and measures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mesh", choices=KINDS, default="explicit", help="its axis (%(default)s)")
    parser.add_argument("--steps", type=digits.positive, help="training steps (200)")
    parser.add_argument("--size", type=digits.positive, help="parameters of the update alone")
    parser.add_argument("--rate", type=float, default=2e-3, help="learning rate (%(default)s)")
    parser.add_argument("--weight-decay", type=float, default=0.0, help="as in optax.adamw")
    parser.add_argument("--mu-dtype", choices=["float32", "bfloat16"], help="of the first moment")
    parser.add_argument("--quick", action="store_true", help="little of everything, for tests")
    options = parser.parse_args(argv)
    on_gpu = jax.default_backend() == "gpu"
    count = jax.device_count()
    steps = options.steps or (60 if options.quick else 200)
    size = options.size or 1 << (16 if options.quick else 27 if on_gpu else 22)
    size = -(-size // count) * count  # each device has as many

    mesh = jax.make_mesh((count,), (AXIS,), axis_types=(KINDS[options.mesh],))
    rule = {
        "learning_rate": options.rate,
        "weight_decay": options.weight_decay,
        "mu_dtype": None if options.mu_dtype is None else jnp.dtype(options.mu_dtype),
    }
    print(f"On {count} x {jax.devices()[0].device_kind}, a mesh of type {options.mesh}:")
    with jax.set_mesh(mesh):
        compare_curves(mesh, steps, rule)
        calls, repeats = (2, 1) if options.quick else (20 if on_gpu else 3, REPEATS)
        return measure(mesh, size, calls, repeats, rule)


if __name__ == "__main__":
    main()
