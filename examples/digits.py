"""Trains an ensemble of small networks on handwritten digits, with activations written by hand.

Needs the extra ``test`` (scikit-learn, matplotlib, tqdm). Run ``python examples/digits.py --help``.

Each layer's bias and activation are one function of one element, so on a GPU one kernel adds the
bias and activates, and one kernel computes the gradients of all of its arguments. One of the
activations has a parameter per unit that is learnt like any weight.
"""

import argparse
import functools
import sys

import jax
import jax.numpy as jnp
import numpy as np

import jax_elementwise as je

HIDDEN = (96, 64)
CLASSES = 10
BATCH = 128


# ---- The activations: what happens to one element ------------------------------------------------


def bias_gelu(x, bias):
    """The exact gelu of x + bias."""
    x = x + bias
    return 0.5 * x * jax.lax.erfc(-x * 0.5**0.5)


def bias_swish(x, bias, beta):
    """Swish of x + bias; beta goes from a linear function (0) towards relu (large)."""
    x = x + bias
    return x * jax.nn.sigmoid(beta * x)


# The network is written once, for any pair of activations. These become kernels on a GPU; the
# functions above are also plain jax.numpy on arrays, so they serve to compare with.
ELEMENTWISE = (je.elementwise(bias_gelu), je.elementwise(bias_swish))
PLAIN = (bias_gelu, bias_swish)


# ---- The network ---------------------------------------------------------------------------------


def initialize(key):
    """Parameters of one network."""
    sizes = (64, *HIDDEN, CLASSES)
    weights = [
        jax.random.normal(k, (n, m)) * np.sqrt(2 / n)
        for k, n, m in zip(jax.random.split(key, 3), sizes, sizes[1:], strict=False)
    ]
    biases = [jnp.zeros(m) for m in sizes[1:]]
    return {"weights": weights, "biases": biases, "beta": jnp.ones(HIDDEN[1])}


def predict(activations, parameters, images):
    """Logits of a batch of images."""
    gelu, swish = activations
    (w1, w2, w3), (b1, b2, b3) = parameters["weights"], parameters["biases"]
    x = gelu(images @ w1, b1)
    x = swish(x @ w2, b2, parameters["beta"])
    return x @ w3 + b3


def loss(activations, parameters, images, labels):
    """Mean cross-entropy."""
    log_probabilities = jax.nn.log_softmax(predict(activations, parameters, images))
    return -jnp.take_along_axis(log_probabilities, labels[:, None], axis=1).mean()


def accuracy(parameters, images, labels):
    """Fraction of images that are classified correctly."""
    return (predict(ELEMENTWISE, parameters, images).argmax(axis=1) == labels).mean()


# ---- Training: Adam, on a random batch, for the whole ensemble at once ---------------------------


def adam(parameters, gradients, state, rate=2e-3, decay=(0.9, 0.99), epsilon=1e-8):
    """One step of Adam."""
    count, means, squares = state
    count = count + 1
    means = jax.tree.map(lambda m, g: decay[0] * m + (1 - decay[0]) * g, means, gradients)
    squares = jax.tree.map(lambda s, g: decay[1] * s + (1 - decay[1]) * g * g, squares, gradients)

    def updated(p, m, s):
        return p - rate * (m / (1 - decay[0] ** count)) / (
            jnp.sqrt(s / (1 - decay[1] ** count)) + epsilon
        )

    return jax.tree.map(updated, parameters, means, squares), (count, means, squares)


def start(key):
    """Parameters and the optimizer's state of one network."""
    parameters = initialize(key)
    zeros = jax.tree.map(jnp.zeros_like, parameters)
    return parameters, (jnp.zeros(()), zeros, zeros)


def step(parameters, state, key, images, labels):
    """One step of one network: new parameters, state and the loss on the batch."""
    batch = jax.random.choice(key, len(images), (BATCH,), replace=False)
    value, gradients = jax.value_and_grad(functools.partial(loss, ELEMENTWISE))(
        parameters, images[batch], labels[batch]
    )
    return *adam(parameters, gradients, state), value


# Over networks: each has parameters and batches of its own, all have the same data.
ensemble_start = jax.jit(jax.vmap(start))
ensemble_step = jax.jit(jax.vmap(step, in_axes=(0, 0, 0, None, None)), donate_argnums=(0, 1))
ensemble_accuracy = jax.jit(jax.vmap(accuracy, in_axes=(0, None, None)))


# ---- Checks --------------------------------------------------------------------------------------


def check_first_gradient(parameters, images, labels):
    """The gradients of every network agree with those of plain jax.numpy."""

    def gradients(activations):
        gradient = jax.grad(functools.partial(loss, activations))
        return jax.jit(jax.vmap(gradient, in_axes=(0, None, None)))(parameters, images, labels)

    ours, plain = gradients(ELEMENTWISE), gradients(PLAIN)
    errors = jax.tree.map(lambda a, b: jnp.abs(a - b).max() / jnp.abs(b).max(), ours, plain)
    worst = float(max(jax.tree.leaves(errors)))
    # Not closer: a GPU may round what it multiplies to TensorFloat-32, and so magnify a last bit.
    assert worst < 1e-3, f"gradients differ from jax.numpy by {worst} of their largest entry"
    return worst


def count_kernels(*args):
    """Custom calls to kernels of jax_elementwise in the compiled training step."""
    compiled = ensemble_step.lower(*args).compile().as_text()
    return compiled.count('custom_call_target="jax_elementwise_kernel"')


# ---- The picture ---------------------------------------------------------------------------------


def draw(path, steps, losses, accuracies):
    """Saves curves of the ensemble: its mean, and the range of its members."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    seeds = losses.shape[1]
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for axes, values, title, color in (
        (left, losses, "Cross-entropy on training batches", "#2a6f97"),
        (right, 100 * accuracies, "Accuracy on test images, %", "#b5541c"),
    ):
        band = axes.fill_between(steps, values.min(1), values.max(1), color=color, alpha=0.2, lw=0)
        (line,) = axes.plot(steps, values.mean(1), color=color, lw=1.8)
        axes.legend([line, band], [f"mean of {seeds} seeds", "lowest to highest"], frameon=False)
        axes.set_title(title, loc="left", fontsize=11)
        axes.set_xlabel("step")
        axes.margins(x=0)
        axes.grid(color="0.9", lw=0.8)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    left.set_yscale("log")
    if accuracies[-1].min() > 0.9:
        right.set_ylim(80, 100)  # the first few steps are below, the differences are up here
        right.set_yticks(range(80, 101, 5))
    right.annotate(
        f"{100 * accuracies[-1].mean():.1f}",
        (steps[-1], 100 * accuracies[-1].mean()),
        (4, 0),
        textcoords="offset points",
        va="center",
        color="#b5541c",
    )
    figure.savefig(path, dpi=150)
    plt.close(figure)


# ---- The main program ----------------------------------------------------------------------------


def load():
    """Images and labels, for training and for testing."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    images, labels = load_digits(return_X_y=True)
    images = images.astype(np.float32) / 16
    labels = labels.astype(np.int32)
    train, test, train_labels, test_labels = train_test_split(
        images, labels, test_size=0.2, random_state=0, stratify=labels
    )
    return tuple(map(jnp.asarray, (train, train_labels, test, test_labels)))


def positive(text):
    """A number of steps or seeds."""
    if int(text) < 1:
        raise ValueError
    return int(text)


def main(argv=None):
    """Trains; returns the ensemble's mean accuracy on the test images."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=positive, default=600, help="training steps (%(default)s)")
    parser.add_argument("--seeds", type=positive, default=8, help="networks to train (%(default)s)")
    parser.add_argument("--output", default="digits.png", help="the picture (%(default)s)")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    options = parser.parse_args(argv)
    from tqdm import tqdm

    def say(message):
        if not options.quiet:
            print(message)

    images, labels, test_images, test_labels = load()
    key, seed = jax.random.split(jax.random.key(0))
    parameters, state = ensemble_start(jax.random.split(seed, options.seeds))

    worst = check_first_gradient(parameters, images, labels)
    say(f"first gradient: within {worst:.1e} of jax.numpy's, relative to the largest entry")
    device = jax.devices()[0]
    kernels = count_kernels(parameters, state, jax.random.split(key, options.seeds), images, labels)
    if kernels:
        say(f"on {device.device_kind}: {kernels} kernels of ours in a training step, that is")
        say(f"one forward and one backward for each of {len(ELEMENTWISE)} activations")
        assert kernels == 2 * len(ELEMENTWISE)
    else:
        say(f"on {device.device_kind}: XLA compiles the activations")

    every = max(1, options.steps // 60)
    steps, losses, accuracies, recent = [], [], [], []
    hidden = options.quiet or not sys.stderr.isatty()
    with tqdm(total=options.steps, unit="step", disable=hidden) as bar:
        for i in range(1, options.steps + 1):
            keys = jax.random.split(jax.random.fold_in(key, i), options.seeds)
            parameters, state, value = ensemble_step(parameters, state, keys, images, labels)
            recent.append(value)
            if i == 1 or i % every == 0 or i == options.steps:
                steps.append(i)
                losses.append(np.mean(recent, axis=0))
                recent.clear()
                correct = ensemble_accuracy(parameters, test_images, test_labels)
                accuracies.append(np.asarray(correct))
                bar.set_postfix(loss=losses[-1].mean(), accuracy=accuracies[-1].mean())
            bar.update()

    draw(options.output, steps, np.stack(losses), np.stack(accuracies))
    beta = parameters["beta"]
    say(f"learnt beta of swish: {beta.min():.2f} to {beta.max():.2f}, from 1 in every unit")
    say(f"picture: {options.output}")
    result = float(accuracies[-1].mean())
    print(f"test accuracy: {result:.4f}, mean of {options.seeds} seeds")
    return result


if __name__ == "__main__":
    main()
