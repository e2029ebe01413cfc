"""CUDA functors, and their counterparts elsewhere: ``python examples/functors.py --help``.

Every row of the tables in docs/cuda-functors.md runs here and is compared with NumPy: what is
written with OneFlow's elementwise.cuh, with CuPy's ElementwiseKernel and with PyTorch's jiterator,
and what takes its place. Then functors in CUDA C++ are compared with the same functions in Python,
bit by bit. On a CPU the machine's C++ compiler compiles the same text.
"""

import argparse
import functools

import jax
import jax.numpy as jnp
import numpy as np

import jax_elementwise as je

# ---- Texts ---------------------------------------------------------------------------------------

RELU = """
struct Relu {
  template <class T> __device__ T operator()(T x) const { return x > T(0) ? x : T(0); }
};"""

IS_POSITIVE = """
struct IsPositive {
  __device__ bool operator()(float x) const { return x > 0; }
};"""

# Two halves are one instruction; other types use the call operator.
ADD = """
struct Add {
  template <class T> __device__ T operator()(T x, T y) const { return x + y; }
  __device__ void Apply2(__half* out, const __half* x, const __half* y) const {
    *(__half2*)out = *(const __half2*)x + *(const __half2*)y;
  }
  __device__ void Apply2(__nv_bfloat16* out, const __nv_bfloat16* x, const __nv_bfloat16* y) const {
    *(__nv_bfloat162*)out = *(const __nv_bfloat162*)x + *(const __nv_bfloat162*)y;
  }
};"""
MUL = ADD.replace("Add", "Mul").replace("x + ", "x * ")

FMA = """
struct Fma {
  template <class T> __device__ T operator()(T x, T y, T z) const { return x * y + z; }
};"""

# A functor with a run-time parameter, and a factory that makes it on the device.
SCALE_ADD = """
struct ScaleAdd {
  float alpha;
  __device__ float operator()(float x, float y) const { return alpha * x + y; }
};"""
SCALE_ADD_FACTORY = """
struct ScaleAddFactory {
  float alpha;
  __device__ ScaleAdd operator()() const { return ScaleAdd{alpha}; }
};"""

LEAKY = """
struct Leaky {
  float slope;
  __device__ Leaky(float degrees) : slope(tanf(degrees * float(M_PI / 180))) {}
  __device__ float operator()(float x) const { return x > 0 ? x : slope * x; }
};"""

BLEND = """
struct Blend {
  float weight;
  __device__ float operator()(float x, float y, float z) const {
    return weight * x + (1 - weight) * y + z;
  }
};"""

# As they are given to PyTorch.
MY_KERNEL = "template <typename T> T my_kernel(T x, T y, T alpha) { return -x + alpha * y; }"
HELPED = """
template <typename T> T util(T x, T y) { return ::sin(x) + ::cos(y); }
template <typename T> T my_kernel(T x, T y, T val) { return ::min(val, util(x, y)); }"""
TWO_RESULTS = """
template <typename T> void my_kernel(T x, T y, T& sum, T& difference) {
  sum = x + y;
  difference = x - y;
}"""


# ---- The rows ------------------------------------------------------------------------------------


class Rows:
    """Calls of functors, each with what NumPy says to it. Names are those of the tables."""

    def __init__(self, count):
        random = np.random.default_rng(0)
        self.count = count
        self.x, self.y, self.z = random.normal(size=(3, count)).astype(np.float32)
        self.n = random.integers(-100, 100, count).astype(np.int32)

    def oneflow(self):
        """elementwise.cuh of OneFlow."""
        x, y, z = self.x, self.y, self.z
        half = x.astype(np.float16)
        yield "Unary", je.cuda_functor(RELU)(x), np.maximum(x, 0)
        yield (
            "UnaryWithFactory",
            je.cuda_functor(LEAKY, scalars="float degrees")(x, jnp.float32(10.0)),
            np.where(x > 0, x, np.float32(np.tan(np.pi / 18)) * x),
        )
        yield "Binary", je.cuda_functor(ADD)(x, y), x + y
        yield (
            "BinaryWithFactory",
            je.cuda_functor(
                "ScaleAddFactory{alpha}()(x, y)",
                inputs="x, y",
                scalars="float alpha",
                preamble=SCALE_ADD + SCALE_ADD_FACTORY,
            )(x, y, 2.0),
            2 * x + y,
        )
        yield "Ternary", je.cuda_functor(FMA)(x, y, z), x * y + z
        yield (
            "TernaryWithFactory",
            je.cuda_functor(BLEND, scalars="float weight")(x, y, z, 0.25),
            np.float32(0.25) * x + np.float32(0.75) * y + z,
        )
        yield "Apply2", je.cuda_functor(ADD)(half, half), half + half
        yield "a result of another type", je.cuda_functor(IS_POSITIVE)(x), x > 0
        in_place = je.cuda_functor(RELU, input_output_aliases={0: 0})
        yield (
            "the result in the place of an input",
            jax.jit(in_place, donate_argnums=0)(jnp.array(x)),
            np.maximum(x, 0),
        )

    def cupy(self):
        """cupy.ElementwiseKernel."""
        x, y, n, size = self.x, self.y, self.n, self.count
        yield (
            "in_params, out_params, operation, name",
            je.cuda_functor(
                "z = (x - y) * (x - y)",
                inputs="float32 x, float32 y",
                outputs="float32 z",
                name="squared_diff",
            )(x, y),
            (x - y) * (x - y),
        )
        by_letter = je.cuda_functor(
            "T diff = x - y; z = diff * diff;", inputs="T x, T y", outputs="T z"
        )
        yield "type letters", by_letter(n, n[::-1]), (n - n[::-1]) ** 2
        yield (
            "a letter of the results only",
            je.cuda_functor("z = x * y", inputs="X x, Y y", outputs="float32 z")(x, n),
            x * n,
        )
        yield "Python scalars", by_letter(x, 5), (x - 5) ** 2
        yield (
            "several out_params",
            je.cuda_functor("s = x + y; d = x - y;", inputs="T x, T y", outputs="T s, T d")(x, y),
            (x + y, x - y),
        )
        yield (
            "an out_param that is read",
            je.cuda_functor("w -= rate * g;", inputs="T w, T g, T rate", outputs="T w")(x, y, 0.5),
            x - 0.5 * y,
        )
        yield (
            "broadcasting",
            by_letter(x[: size // 2 * 2].reshape(2, -1), y[: size // 2]),
            (x[: size // 2 * 2].reshape(2, -1) - y[: size // 2]) ** 2,
        )
        index = np.arange(size)
        yield (
            "i",
            je.cuda_functor("i % 2 ? x : -x", inputs="T x", index="i", outputs="T")(x),
            np.where(index % 2, x, -x),
        )
        yield (
            "_ind.size()",
            je.cuda_functor(
                "x / (n - i)", inputs="float x", scalars="int n", index="i", outputs="float"
            )(x, size),
            x / np.float32(size - index),
        )
        yield (
            "raw, a moved element",
            je.cuda_functor("x + y", inputs="T x, T y", outputs="T")(x, y[::-1]),
            x + y[::-1],
        )
        table = np.float32([1.0, -2.0, 4.0, -8.0])
        weigh = je.cuda_functor("x * weight", inputs="float x, float weight")
        yield (
            "raw, a small table",
            je.elementwise(lambda x, k: weigh(x, jnp.asarray(table)[k]))(x, n % 4),
            x * table[n % 4],
        )
        root = je.cuda_functor("sqrtf(i)", inputs="int i")
        yield (
            "size=",
            jax.jit(lambda: root(jnp.arange(size)))(),
            np.sqrt(index.astype(np.float32)),
        )
        yield (
            "preamble=",
            je.cuda_functor(
                "square(x)",
                inputs="float x",
                preamble="__device__ float square(float x) { return x * x; }",
            )(x),
            x * x,
        )
        yield (
            "loop_prep=",
            je.cuda_functor(LEAKY, scalars="float degrees")(x, 45.0),
            np.where(x > 0, x, np.float32(np.tan(np.pi / 4)) * x),
        )
        yield (
            "options=",
            je.cuda_functor("expf(x)", inputs="float x", fast_math=True)(x),
            np.exp(x),
        )
        step = je.cuda_functor(
            "p - lr * g",
            inputs="T p, T g",
            scalars="T lr",
            outputs="T",
            input_output_aliases={0: 0},
        )
        yield (
            "output arguments",
            jax.jit(step, donate_argnums=0)(jnp.array(x), y, 0.5),
            x - np.float32(0.5) * y,
        )
        yield (
            "return_tuple=, no_return=",
            (by_letter(x, y),),
            ((x - y) * (x - y),),
        )

    def jiterator(self):
        """torch.cuda.jiterator."""
        x, y, n = self.x, self.y, self.n
        my_kernel = functools.partial(
            je.cuda_functor(
                "my_kernel(x, y, alpha)", inputs="T x, T y", scalars="T alpha", preamble=MY_KERNEL
            ),
            alpha=1.0,
        )
        yield "_create_jit_fn", my_kernel(x, y), -x + y
        yield "a keyword scalar", my_kernel(x, y, alpha=3.0), -x + np.float32(3) * y
        yield "promotion of inputs", my_kernel(x, n.astype(x.dtype)), -x + n.astype(np.float32)
        half, other = x.astype(np.float16), y.astype(np.float16)
        yield (
            "16-bit floats",
            je.cuda_functor(
                "my_kernel<float>(x, y, alpha)",
                inputs="T x, T y",
                scalars="float alpha",
                outputs="T",
                preamble=MY_KERNEL,
            )(half, other, 0.1),
            (-half.astype(np.float32) + np.float32(0.1) * other.astype(np.float32)).astype("f2"),
        )
        yield (
            "several functions",
            je.cuda_functor(
                "my_kernel(x, y, val)", inputs="T x, T y", scalars="T val", preamble=HELPED
            )(x, y, 0.5),
            np.minimum(0.5, np.sin(x) + np.cos(y)),
        )
        yield (
            "a bool",
            je.cuda_functor(
                "is_train ? x * mask : x",
                inputs="T x, T mask",
                scalars="bool is_train",
                outputs="T",
            )(x, y, True),
            x * y,
        )
        yield (
            "_create_multi_output_jit_fn",
            je.cuda_functor(
                "my_kernel(x, y, s, d);",
                inputs="T x, T y",
                outputs="T s, T d",
                preamble=TWO_RESULTS,
            )(x, y),
            (x + y, x - y),
        )


def check(ours, expected):
    """Within a few units in the last place of the largest operand or result."""
    ours, expected = jax.tree.leaves(ours), jax.tree.leaves(expected)
    assert len(ours) == len(expected)
    for a, b in zip(ours, expected, strict=True):
        a = np.asarray(a)
        assert a.shape == b.shape
        if not np.issubdtype(a.dtype, np.floating):
            assert a.dtype == b.dtype
            assert (a == b).all()
            continue
        unit = float(jnp.finfo(a.dtype).eps)
        a, b = (v.astype(np.float64) for v in (a, b))
        error = np.abs(a - b).max()
        assert (np.abs(a - b) <= 8 * unit * np.maximum(np.abs(b), 1)).all(), f"off by {error}"


# ---- Twins ---------------------------------------------------------------------------------------

# The same functions in CUDA C++ and in Python. Both are kernels, on a CPU too.
TWINS = {
    "add": (ADD, lambda x, y: x + y),
    "mul": (MUL, lambda x, y: x * y),
    "relu": (RELU, lambda x: jnp.where(x > 0, x, 0)),
    "fma": (FMA, lambda x, y, z: x * y + z),
}
TYPES = {name: ["float32", "float16", "bfloat16", "int8"] for name in ("add", "mul", "relu")}
TYPES["fma"] = ["float32"]


def twin_operands(count, dtype, number):
    """Of all sizes, subnormal ones and infinities among them."""
    random = np.random.default_rng(1)
    if dtype == "int8":
        return [jnp.asarray(v) for v in random.integers(-128, 128, (number, count)).astype("i1")]
    exponents = random.integers(-30, 12, (number, count))
    values = random.normal(size=(number, count)) * 2.0**exponents
    values[:, :4] = [0.0, -0.0, np.inf, -np.inf]
    return [jnp.asarray(v, dtype) for v in values]


def equal_bits(name, dtype, count):
    """Whether a functor and its twin in Python give the same bits, or both NaN.

    For one operation they must. The functor rounds it to the type. The twin computes in float32,
    which has more than twice the digits of 16-bit floats and two more, and rounds the result: for
    a sum or a product that is the same number. For longer functions of 16-bit floats it is not.
    x * y + z in float32 has two operations. On a CPU neither is contracted; NVRTC contracts both
    to one fused multiply-add. NumPy's result differs from that in the last bits.
    """
    text, function = TWINS[name]
    operands = twin_operands(count, dtype, function.__code__.co_argcount)
    ours = np.asarray(je.cuda_functor(text, lowering="kernel")(*operands))
    twin = np.asarray(je.elementwise(function, name=name, lowering="kernel")(*operands))
    assert ours.dtype == twin.dtype
    bits = f"u{ours.dtype.itemsize}"
    return ((ours.view(bits) == twin.view(bits)) | ((ours != ours) & (twin != twin))).all()


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few elements, for tests")
    options = parser.parse_args(argv)
    count = 1001 if options.quick else 1_000_003  # odd: the last pack is not full

    print(f"On {jax.devices()[0].device_kind}, {count} elements:")
    rows = Rows(count)
    total = 0
    for peer, made in (
        ("OneFlow", rows.oneflow()),
        ("CuPy", rows.cupy()),
        ("jiterator", rows.jiterator()),
    ):
        for name, ours, expected in made:
            check(ours, expected)
            print(f"  {peer:10}{name:42}agrees with NumPy", flush=True)
            total += 1
    for name, dtypes in TYPES.items():
        for dtype in dtypes:
            assert equal_bits(name, dtype, count), f"{name} of {dtype} differs from its twin"
            print(f"  {name:5}{dtype:10}the bits of the same function in Python", flush=True)
    print(f"{total} rows, and {sum(map(len, TYPES.values()))} functions with the same bits.")


if __name__ == "__main__":
    main()
