"""What a host compiler lacks of CUDA's functions, on a CPU: values of host/functions.h,
host/intrinsics.h and cuda/math.h."""

from __future__ import annotations

import ctypes
import functools
import subprocess

import mpmath
import numpy as np
import pytest
from kernels.test_half import library, loop
from support import simt
from support.ulp import distance

_MANY = 1000


def _around_zero(limit):
    return lambda rng: np.concatenate(
        [rng.uniform(-limit, limit, _MANY), rng.standard_normal(_MANY) * 1e-3, [0.0, -0.0, 1, -1]]
    )


def _positive(rng):
    return np.concatenate([2.0 ** rng.uniform(-100, 100, _MANY), [1.0, 4.0, 8.0]])


def _between(low, high):
    return lambda rng: np.concatenate([rng.uniform(low, high, _MANY), [(low + high) / 2]])


def _near_ends(high):
    """In (0, high): small ones on either side, too."""

    def sample(rng):
        small = 2.0 ** np.where(
            rng.random(_MANY) < 0.5, rng.uniform(-1000, -120, _MANY), rng.uniform(-120, -2, _MANY)
        )
        return np.concatenate(
            [
                small,
                rng.uniform(0, high, _MANY),
                high - small[small > 1e-6],
                high / 2 * (1 - small[small > 1e-15]),
            ]
        )

    return sample


def _erfcinv(y):
    return -mpmath.erfinv(y - 1) if y > 0.5 else _erfcinv_of_small(y)


def _erfcinv_of_small(y):
    start = mpmath.sqrt(-mpmath.log(y * mpmath.sqrt(-mpmath.log(y) * mpmath.pi)))
    return mpmath.findroot(lambda x: mpmath.log(mpmath.erfc(x)) - mpmath.log(y), start)


# Name, what is right, where, and how many units in the last place of float and of double it may be
# off. The functions have `f` after their names for float, and overloads.
FUNCTIONS = {
    "rsqrt": (lambda x: 1 / mpmath.sqrt(x), _positive, 1, 1),
    "rcbrt": (lambda x: 1 / mpmath.cbrt(x), _positive, 1, 1),
    "sinpi": (mpmath.sinpi, _around_zero(50), 1, 2),
    "cospi": (mpmath.cospi, _around_zero(50), 1, 2),
    "exp10": (lambda x: mpmath.mpf(10) ** x, _between(-30, 30), 1, 2),
    "normcdf": (mpmath.ncdf, _between(-12, 6), 1, 2),
    "normcdfinv": (lambda y: -mpmath.sqrt(2) * _erfcinv(2 * y), _near_ends(1.0), 2, 4),
    "erfcx": (lambda x: mpmath.exp(x * x) * mpmath.erfc(x), _between(-5, 40), 2, 2),
    "erfinv": (mpmath.erfinv, _between(-0.999, 0.999), 2, 4),
    "erfcinv": (_erfcinv, _near_ends(2.0), 2, 4),
}
# The functions of the C library, whose float overloads must be those of float.
OVERLOADS = {
    "exp": (mpmath.exp, _between(-30, 30)),
    "log": (mpmath.log, _positive),
    "sin": (mpmath.sin, _around_zero(100)),
    "tanh": (mpmath.tanh, _around_zero(5)),
    "sqrt": (mpmath.sqrt, _positive),
    "cbrt": (mpmath.cbrt, _positive),
    "erf": (mpmath.erf, _around_zero(3)),
    "abs": (abs, _around_zero(5)),
    "floor": (mpmath.floor, _around_zero(50)),
}
_BINARY = {
    "rhypot": lambda x, y: 1 / mpmath.hypot(x, y),
    "hypot": mpmath.hypot,
    "pow": lambda x, y: mpmath.mpf(abs(x)) ** y,
    "fmax": max,
    "min": min,
}
_C = {"float32": "float", "float64": "double"}


@functools.cache
def functions() -> ctypes.CDLL:
    text = ""
    for dtype, type_ in _C.items():
        for name in [*FUNCTIONS, *OVERLOADS]:
            text += loop(f"{name}_{dtype}", type_, type_, 1, f"{name}(x)")
            text += f'static_assert(sizeof({name}({type_}(1))) == sizeof({type_}), "");\n'
        for name in FUNCTIONS:
            suffixed = f"{name}f" if dtype == "float32" else name
            text += loop(f"c_{name}_{dtype}", type_, type_, 1, f"{suffixed}(x)")
        for name in _BINARY:
            x = "fabs(x)" if name == "pow" else "x"
            text += loop(f"{name}_{dtype}", type_, type_, 2, f"{name}({x}, y)")
    return library(text, "functions")


def evaluate(name: str, *operands: np.ndarray) -> np.ndarray:
    result = np.empty_like(operands[0])
    arguments = [ctypes.c_void_p(a.ctypes.data) for a in (result, *operands)]
    functions()[f"{name}_{result.dtype.name}"](*arguments, ctypes.c_long(result.size))
    return result


def wanted(reference, *operands: np.ndarray) -> np.ndarray:
    with mpmath.workdps(60):
        rows = zip(*(map(mpmath.mpf, x.tolist()) for x in operands), strict=True)
        return np.array([float(reference(*row)) for row in rows]).astype(operands[0].dtype)


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", _C)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_that_the_c_library_lacks(name, dtype):
    reference, sample, ulp_float, ulp_double = FUNCTIONS[name]
    x = sample(np.random.default_rng(0)).astype(dtype)
    if name in ("erfcinv", "normcdfinv"):
        x = x[(x > 0) & (x < (2 if name == "erfcinv" else 1))]
        x = x[::4].copy()
    off = distance(evaluate(name, x), wanted(reference, x))
    assert off.max() <= (ulp_float if dtype == "float32" else ulp_double), x[off.argmax()]
    np.testing.assert_array_equal(evaluate(f"c_{name}", x), evaluate(name, x))


@pytest.mark.parametrize("dtype", _C)
@pytest.mark.parametrize("name", OVERLOADS)
def test_overloads_are_of_their_type(name, dtype):
    reference, sample = OVERLOADS[name]
    x = sample(np.random.default_rng(0)).astype(dtype)
    off = distance(evaluate(name, x), wanted(reference, x))
    assert off.max() <= (4 if name == "cbrt" else 2), x[off.argmax()]  # glibc's cbrt is off by 4


@pytest.mark.parametrize("dtype", _C)
@pytest.mark.parametrize("name", _BINARY)
def test_functions_of_two_numbers(name, dtype):
    rng = np.random.default_rng(0)
    x, y = (2.0 ** rng.uniform(-3, 3, (2, _MANY)) * rng.choice([-1, 1], (2, _MANY))).astype(dtype)
    off = distance(evaluate(name, x, y), wanted(_BINARY[name], x, y))
    assert off.max() <= 1


def test_special_values():
    inf, nan = np.inf, np.nan
    cases = {
        "sinpi": [
            (0.0, 0.0),
            (-0.0, -0.0),
            (3.0, 0.0),
            (-3.0, -0.0),
            (0.5, 1.0),
            (inf, nan),
            (1e300, 0.0),
        ],
        "cospi": [(0.0, 1.0), (0.5, 0.0), (1.0, -1.0), (1.5, 0.0), (-inf, nan), (1e300, 1.0)],
        "normcdf": [(inf, 1.0), (-inf, 0.0), (0.0, 0.5), (nan, nan)],
        "normcdfinv": [(0.0, -inf), (1.0, inf), (0.5, 0.0), (-1.0, nan), (2.0, nan)],
        "erfcinv": [(0.0, inf), (2.0, -inf), (1.0, 0.0), (-1.0, nan), (3.0, nan)],
        "erfcx": [(inf, 0.0), (-inf, inf), (0.0, 1.0), (nan, nan), (1e300, 5.641895835477563e-301)],
        "rsqrt": [(0.0, inf), (inf, 0.0), (-1.0, nan)],
        "rcbrt": [(0.0, inf), (-8.0, -0.5), (inf, 0.0)],
    }
    for name, points in cases.items():
        x, result = (np.array(v) for v in zip(*points, strict=True))
        found = evaluate(name, x)
        assert np.all(distance(found, result) <= 1), (name, found)
        if name in ("sinpi", "cospi"):
            np.testing.assert_array_equal(np.signbit(found[x == 0]), np.signbit(result[x == 0]))


# Expressions of constants, and their values.
VALUES = {
    "__clz(1)": 31, "__clz(0)": 32, "__clzll(-1ll)": 0, "__popc(0xf0u)": 4, "__popcll(~0ull)": 64,
    "__ffs(8)": 4, "__ffs(0)": 0, "__ffsll(1ll << 40)": 41, "__brev(1u)": 0x80000000,
    "__brevll(2ull)": 1 << 62, "__mulhi(-1, 1)": -1, "__umulhi(~0u, 2u)": 1,
    "__mul64hi(-1ll, 1ll)": -1, "__umul64hi(~0ull, 2ull)": 1, "__mul24(-3, 5)": -15,
    "__mul24(0x01000002, 3)": 6, "__umul24(0xff000002u, 3u)": 6, "__sad(-2, 3, 4u)": 9,
    "__usad(3u, 5u, 1u)": 3, "__byte_perm(0x33221100u, 0x77665544u, 0x7531u)": 0x77553311,
    "__byte_perm(0x80u, 0u, 0x8888u)": 0xFFFFFFFF, "__funnelshift_l(0x80000000u, 1u, 1u)": 3,
    "__funnelshift_l(5u, 1u, 32u)": 1, "__funnelshift_lc(5u, 1u, 32u)": 5,
    "__funnelshift_r(2u, 1u, 1u)": 0x80000001, "__funnelshift_rc(2u, 7u, 40u)": 7,
    "__hadd(-3, 0)": -2, "__hadd(0x7fffffff, 0x7fffffff)": 0x7FFFFFFF, "__rhadd(-3, 0)": -1,
    "__uhadd(~0u, ~0u)": 0xFFFFFFFF, "__float_as_int(1.0f)": 0x3F800000,
    "__double_as_longlong(-0.0)": -(2**63), "__float2int_rn(2.5f)": 2, "__float2int_rn(3.5f)": 4,
    "__float2int_rz(-1.5f)": -1, "__float2int_rd(-1.5f)": -2, "__float2int_ru(1.2f)": 2,
    "__float2int_rn(1e20f)": 2**31 - 1, "__float2int_rn(NAN)": 0, "__float2uint_rz(-1.0f)": 0,
    "__float2ll_rn(NAN)": -(2**63), "__float2ll_rz(-1e30f)": -(2**63),
    "__double2int_rn(-2.5)": -2, "__double2ll_ru(0.1)": 1, "max(-1, 1u)": 0xFFFFFFFF,
    "max(2, 1)": 2, "min(1.0f, 2.0) == 1.0": 1, "max(NAN, 1.0f) == 1.0f": 1,
    "max(1ll, 2ull)": 2, "abs(-3ll)": 3, "abs(-2.5f) == 2.5f": 1, "fabs(-3) == 3.0": 1,
    "isnan(NAN)": 1, "isnan(1)": 0, "isinf(-INFINITY)": 1, "isfinite(1.0)": 1,
    "signbit(-0.0f)": 1, "std::max(1.0f, 2.0f) == 2.0f": 1, "std::isnan(0.0f)": 0,
    "std::pow(2.0f, 3.0f) == 8.0f": 1, "pow(2, 3) == 8.0": 1, "exp(0) == 1.0": 1,
    "__saturatef(NAN) == 0.0f": 1, "__saturatef(2.0f) == 1.0f": 1, "sizeof(pow(2.0f, 2))": 4,
    "sizeof(sqrt(2))": 8, "sizeof(max(1.0f, 2.0))": 8, "sizeof(fmax(1.0f, 2.0))": 8,
    "norm3d(2.0, 3.0, 6.0) == 7.0": 1, "norm3df(2.0f, 3.0f, 6.0f) == 7.0f": 1,
    "norm4d(1e300, 1e300, 1e300, 1e300) == 2e300": 1, "rnorm3df(2.0f, 2.0f, 1.0f) * 3 == 1": 1,
    "norm3d(INFINITY, NAN, 0.0) == INFINITY": 1, "ldexp(1.5f, 2) == 6.0f": 1,
    "__hiloint2double(__double2hiint(2.5), __double2loint(2.5)) == 2.5": 1,
}  # fmt: skip


@functools.cache
def values() -> ctypes.CDLL:
    text = "".join(
        loop(f"v{k}", "long long", "long long", 1, f"static_cast<long long>({expression})")
        for k, expression in enumerate(VALUES)
    )
    return library(text, "values")


@pytest.mark.parametrize("expression", VALUES)
def test_values(expression):
    result = np.empty(1, np.int64)
    arguments = (ctypes.c_void_p(result.ctypes.data),) * 2
    values()[f"v{list(VALUES).index(expression)}"](*arguments, ctypes.c_long(1))
    assert result[0] == VALUES[expression]


def test_beside_the_cpp_library(tmp_path):
    """The stand-in of a GPU includes it first; its overloads are then the ones there are."""
    source = tmp_path / "beside.cc"
    text = """
        int main() {
          const half x = 6, y = 3;
          const float f = std::exp(0.0f) + exp(0.0f) + rsqrt(4.0f) + min(1.0f, 2.0f) + __expf(0.0f);
          return float(x / y) == 2.0f && f == 4.5f ? 0 : 1;
        }"""
    source.write_text(f'#include "simt.h"\n{simt.USERS_HEADERS}{text}')
    assert subprocess.run([simt.compile_cpp([source], "beside", ["-w"])]).returncode == 0
