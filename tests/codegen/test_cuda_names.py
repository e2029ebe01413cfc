"""Users' CUDA text compiles as it is: by NVRTC without any header, by the host compiler without
CUDA, and, as a check of the tests, by nvcc with CUDA's headers."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections import Counter
from typing import NamedTuple

import pytest
from support import sass, simt, together
from support.sass import every_architecture

from jax_elementwise import _runtime

# Functions at namespace scope, as people write them.
SNIPPETS = {
    "axpy": """
        __device__ float f(float alpha, float x, float y) { return alpha * x + y; }""",
    "functor": """
        template <class T> struct Axpy {
          T alpha;
          __device__ __forceinline__ T operator()(const T x, const T y) const {
            return alpha * x + y;
          }
        };
        template struct Axpy<float>; template struct Axpy<double>; template struct Axpy<half>;
        template struct Axpy<__nv_bfloat16>; template struct Axpy<int64_t>;""",
    "apply2": """
        struct Add {
          __host__ __device__ half operator()(half x, half y) const { return x + y; }
          __device__ void Apply2(half* z, const half* x, const half* y) const {
            const half2 x2 = *reinterpret_cast<const half2*>(x);
            const half2 y2 = *reinterpret_cast<const half2*>(y);
            *reinterpret_cast<half2*>(z) = __hadd2(x2, y2);
          }
        };""",
    "apply2 of bfloat16": """
        struct Gate {
          __device__ void Apply2(nv_bfloat16* z, const nv_bfloat16* x, const nv_bfloat16* y) const {
            const nv_bfloat162 a = *(const nv_bfloat162*)x;
            const float2 f = __bfloat1622float2(a);
            *(nv_bfloat162*)z = __floats2bfloat162_rn(f.x, f.y) * *(const nv_bfloat162*)y;
            *z = __hmul(__low2bfloat16(a), __float2bfloat16(0.5f));
          }
        };""",
    "half operators": """
        template <class T> __device__ T g(T x, T y, float f) {
          T z = x * x + y;
          z += x; z -= y; z *= x; z /= y; z += 2.0f; z -= 1; z *= T(f);
          ++z; --z; z++; z--;
          z = x > y ? x : -y;
          if (x > T(0) && x != y && x <= T(1.0f) && !(x == y)) z = T(3);
          z = 1; z = 1.0f; z = 1.0; z = (short)1; z = 3u; z = 3ll; z = 'c'; z = f;
          const T constants[2] = {1.0f, 2};
          const float wide = z; const double wider = z; const int whole = z;
          return static_cast<T>(wide * f + expf(x) + float(y) * f + fmaxf(x, y) + wider + whole)
                 + constants[0] + T{f};
        }
        template __device__ __half g(__half, __half, float);
        template __device__ __nv_bfloat16 g(__nv_bfloat16, __nv_bfloat16, float);""",
    "half2 operators": """
        template <class P, class T> __device__ P h(P x, P y, T s) {
          P z = x * x + y;
          z += x; z -= y; z *= x; z /= y; ++z; z--;
          z = P(s, s) * -z + P{s, s};
          z.x = s;
          return x == y ? z : x;
        }
        template __device__ half2 h(half2, half2, half);
        template __device__ __nv_bfloat162 h(__nv_bfloat162, __nv_bfloat162, __nv_bfloat16);""",
    "half intrinsics": """
        __device__ half k(half x, half y, float f) {
          half z = __hfma(x, y, __float2half(f));
          z = __hadd(z, __hmul(x, __hsub(y, __hdiv(x, y))));
          z = __hmax(z, __hmin(x, y)); z = __hfma(x, y, 1.0f); z = __hmax(z, 0);
          if (__hgt(x, y) || __hisnan(z) || __hisinf(x)) z = __hneg(z);
          if (__heq(z, CUDART_ZERO_FP16)) z = CUDART_INF_FP16;
          z = hexp(hlog(hsqrt(hrsqrt(x)))) + hsin(x) * hcos(y) + hfloor(x) + hceil(x) + hrint(x);
          z = __int2half_rn(__half2int_rn(z) + __half2int_rz(x)) + __double2half(1.5);
          return __hfma_relu(z, __habs(x), __ushort_as_half(__half_as_ushort(y)));
        }
        __device__ half2 k2(half2 x, half2 y, float f, half s) {
          half2 z = __hfma2(x, y, __float2half2_rn(f));
          z = __hadd2(z, __hmul2(x, __hsub2(y, __h2div(x, __half2half2(s)))));
          z = __hmax2(z, __hmin2(x, h2exp(y))); z = __hfma2_relu(z, x, __hgt2(x, y));
          z = __halves2half2(__low2half(z), __high2half(x)); z = make_half2(s, s);
          return __hneg2(__habs2(__floats2half2_rn(__half22float2(z).x, __low2float(z))));
        }""",
    "bfloat16 intrinsics": """
        __device__ __nv_bfloat16 k(__nv_bfloat16 x, __nv_bfloat16 y, float f) {
          __nv_bfloat16 z = __hfma(x, y, __float2bfloat16_rn(f));
          z = __hadd(z, __hmul(x, __hsub(y, __hdiv(x, y)))); z = __hmax(z, __hmin(x, y));
          if (__hgt(x, y) || __hisnan(z)) z = __float2bfloat16(__bfloat162float(z));
          return hexp(z) + __int2bfloat16_rn(__bfloat162int_rz(x)) + __ushort_as_bfloat16(0x3f80);
        }
        __device__ __nv_bfloat162 k2(__nv_bfloat162 x, __nv_bfloat162 y, __nv_bfloat16 s) {
          return __hfma2(x, y, __bfloat162bfloat162(s)) + __float2bfloat162_rn(1.0f);
        }""",
    "float8": """
        __device__ float f(float x) {
          const __nv_fp8_e4m3 a(x); const __nv_fp8_e5m2 b = __nv_fp8_e5m2(__half(x));
          return float(a) + static_cast<float>(b) + float(half(a)) + float(__nv_bfloat16(b));
        }""",
    "math of float and double": """
        template <class T> __device__ T f(T x, T y) {
          return exp(x) + log(x) + sin(x) * cos(x) + tan(x) + tanh(x) + sqrt(x) + pow(x, y)
                 + pow(x, 2) + fabs(x) + abs(x) + floor(x) + ceil(x) + round(x) + trunc(x) + rint(x)
                 + erf(x) + erfc(x) + cbrt(x) + rsqrt(x) + hypot(x, y) + atan2(x, y) + fmod(x, y)
                 + fma(x, y, x) + fmax(x, y) + fmin(x, y) + max(x, y) + min(x, y) + exp2(x)
                 + exp10(x) + expm1(x) + log1p(x) + log2(x) + log10(x) + sinpi(x) + cospi(x)
                 + normcdf(x) + normcdfinv(x) + erfcx(x) + erfinv(x) + erfcinv(x) + rcbrt(x)
                 + rhypot(x, y) + lgamma(x) + tgamma(x) + copysign(x, y) + ldexp(x, 2) + fdim(x, y);
        }
        template __device__ float f(float, float); template __device__ double f(double, double);
        static_assert(sizeof(exp(1.0f)) == 4 && sizeof(exp(1.0)) == 8, "");
        static_assert(sizeof(abs(1.0f)) == 4 && sizeof(max(1.0f, 1.0)) == 8, "");""",
    "math by its C names": """
        __device__ float f(float x, float y) {
          float s, c; sincosf(x, &s, &c); sincospif(x, &s, &c); sincos(x, &s, &c);
          return expf(x) + logf(x) + powf(x, y) + tanhf(x) + rsqrtf(x) + rcbrtf(x) + exp10f(x)
                 + normcdff(x) + erfcxf(x) + norm3df(x, y, x) + rhypotf(x, y) + sinpif(x) + s * c
                 + fdividef(x, y) + j0f(x) + fmaf(x, y, x);
        }""",
    "std": """
        #define FLOOR std::floor
        __device__ float f(float x, int n) {
          float sum = std::exp(x) + std::pow(x, x) + std::abs(x) + std::sqrt(x) + FLOOR(x);
          sum += std::max(x, 1.0f) + std::min(x, 2.0f) + std::fma(x, x, x) + std::fmax(x, 1.0f);
          static_assert(sizeof(std::exp(x)) == 4, "");
          return std::isnan(x) || std::isinf(x) || !std::isfinite(x) || std::signbit(x) ? 0 : sum;
        }""",
    "integers": """
        __device__ double f(int n, long long m, float x) {
          return exp(n) + sqrt(m) + pow(n, 2) + pow(x, 2.0) + fabs(n) + abs(n) + abs(m) + max(n, 2)
                 + min(n, 2u) + floor(n) + isnan(n);
        }""",
    "fast functions": """
        __device__ float f(float x, float y) {
          float s, c; __sincosf(x, &s, &c);
          return __expf(x) + __logf(x) + __log2f(x) + __log10f(x) + __exp10f(x) + __sinf(x)
                 + __cosf(x) + __tanf(x) + __powf(x, y) + __fdividef(x, y) + __saturatef(x)
                 + __frcp_rn(x) + __fsqrt_rn(x) + __frsqrt_rn(x) + __fdiv_rn(x, y) + s * c
                 + __fadd_rn(x, y) + __fmul_rn(x, y) + __fmaf_rn(x, y, x);
        }
        __device__ double g(double x) {
          return __dadd_rn(x, __dmul_rn(x, __fma_rn(x, x, __ddiv_rn(x, __drcp_rn(x)))));
        }""",
    "bits": """
        __device__ long long f(int x, unsigned y, long long m) {
          return __clz(x) + __clzll(m) + __popc(y) + __popcll(m) + __ffs(x) + __ffsll(m) + __brev(y)
                 + __mulhi(x, x) + __umulhi(y, y) + __mul64hi(m, m) + __mul24(x, x) + __sad(x, x, y)
                 + __byte_perm(y, y, 0x3210) + __funnelshift_l(y, y, 3) + __funnelshift_r(y, y, 3)
                 + __hadd(x, x) + __rhadd(x, x) + __float_as_int(__int_as_float(x))
                 + __double_as_longlong(__longlong_as_double(m)) + __float2int_rn(1.5f)
                 + __float2int_rz(__int2float_rn(x)) + __double2int_rn(2.5) + __float2ll_rn(1.0f)
                 + __float2uint_rn(__uint_as_float(__float_as_uint(1.0f)));
        }""",
    "types and constants": """
        __constant__ const float kScale = 2.0f;
        __device__ __noinline__ float f(const float* __restrict__ x, uint8_t a, int b, size_t n) {
          const float4 v = make_float4(1, 2, 3, M_PI); const int2 w = make_int2(a, b);
          uint64_t big = UINT32_MAX; big += n;
          big -= LLONG_MIN + ULLONG_MAX + SHRT_MAX + USHRT_MAX + SCHAR_MIN + UCHAR_MAX + CHAR_BIT;
          big += SIZE_MAX + LLONG_MAX + SHRT_MIN + SCHAR_MAX;
          assert(n > 0);
          return v.w * w.x + __ldg(x) + INFINITY + NAN + kScale + big + float(M_SQRT1_2);
        }""",
}


def text_of(snippets) -> tuple[str, str]:
    """A translation unit of snippets, each in a namespace, with a kernel; and the kernel's name."""
    parts = [f"namespace snippet_{k} {{\n{text}\n}}\n" for k, text in enumerate(snippets)]
    body = "".join(parts)
    name = f"names_{hashlib.sha256(body.encode()).hexdigest()[:8]}"
    kernel = f'extern "C" __global__ void {name}(float* out) {{ *out = 1; }}\n'
    return f"{simt.USERS_HEADERS}{body}namespace jax_elementwise {{\n{kernel}}}\n", name


@pytest.fixture(scope="module", autouse=True)
def no_disk_cache():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX_ELEMENTWISE_CACHE_DIR", "")
        yield


# ---- Compiling -----------------------------------------------------------------------------------


@every_architecture
@pytest.mark.parametrize("snippet", SNIPPETS)
def test_nvrtc_compiles(snippet, architecture):
    sass.require_nvrtc()
    text, name = text_of([SNIPPETS[snippet]])
    assert name.encode() in _runtime.compile(text, name, sass.number(architecture), [])


@pytest.mark.sampled
@pytest.mark.usefixtures("host_compiler")
@pytest.mark.parametrize("snippet", SNIPPETS)
def test_the_host_compiler_compiles(snippet):
    text, name = text_of([SNIPPETS[snippet]])
    assert _runtime.compile(text, name, _runtime.HOST_CPU, [])[:4] == b"\x7fELF"


@pytest.mark.usefixtures("host_compiler")
def test_all_of_it_compiles_together_and_beside_a_kernel():
    text, name = text_of(SNIPPETS.values())
    text = f"#include <jax_elementwise/kernel.h>\n{text}"
    assert _runtime.compile(text, name, _runtime.HOST_CPU, [])
    assert _runtime.compile(text, name, sass.require_nvrtc()[0], ["--use_fast_math"])


def test_nvcc_compiles_with_the_headers_of_cuda(tmp_path):
    """What the snippets say is CUDA C++, and our headers stay out of the way there."""
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("no nvcc")
    source = tmp_path / "names.cu"
    standard = "#include <algorithm>\n#include <cmath>\n#include <cstdint>\n"
    source.write_text(f"{standard}{text_of(SNIPPETS.values())[0]}")
    command = [nvcc, "-std=c++17", "-arch=sm_90", "-cubin", "--expt-relaxed-constexpr", "-w"]
    command += [f"-I{simt.ROOT / 'csrc' / 'include'}", "-o", tmp_path / "names.cubin", source]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:4000]


# What CUDA refuses, as it does not say which arithmetic is meant, is refused here too.
AMBIGUOUS = ["x * 2.0f", "x * 2", "x > 0.0f", "x == 0", "2.0f * x", "x - 1.0", "__hadd(x, 1.0f)"]


@pytest.mark.usefixtures("host_compiler")
@pytest.mark.parametrize("expression", AMBIGUOUS)
def test_what_is_ambiguous_in_cuda_is_refused(expression):
    text, name = text_of([f"__device__ float f(half x) {{ return float({expression}); }}"])
    for arch in (sass.require_nvrtc()[0], _runtime.HOST_CPU):
        with pytest.raises(_runtime.CompilationFailure, match=r"ambiguous|more than one"):
            _runtime.compile(text, name, arch, [])


# ---- Machine code --------------------------------------------------------------------------------

_ARITHMETIC = ("HADD2", "HMUL2", "HFMA2", "HMNMX2", "FADD", "FMUL", "FFMA", "F2F", "F2FP")


def arithmetic_of(type_: str, expression: str, arch: int) -> Counter:
    """How often which instruction computes the expression of three values of a type."""
    name = f"code_{hashlib.sha256(f'{type_} {expression}'.encode()).hexdigest()[:8]}"
    text = f"""
    extern "C" __global__ void {name}({type_}* out, const {type_}* in) {{
      const {type_} x = in[0], y = in[1], z = in[2];
      out[0] = {expression};
    }}"""
    found = [code.split(".")[0] for code in sass.opcodes_of(_Written(name, text), arch)]
    # HADD2.F32 and the like with immediates may also make constants.
    return Counter(code for code in found if code in _ARITHMETIC)


class _Written(NamedTuple):
    """A kernel as ``sass.opcodes_of`` takes it."""

    name: str
    text: str
    options: tuple[str, ...] = ()

    @property
    def source(self) -> str:
        return f"{simt.USERS_HEADERS}{self.text}\n"


# Older GPUs have no instructions for bfloat16.
_GPUS = pytest.mark.parametrize(
    "architecture", ["Hopper", pytest.param("newest", marks=pytest.mark.exhaustive)]
)


@together.compiled
@_GPUS
@pytest.mark.parametrize("type_", ["half2", "__nv_bfloat162", "half", "__nv_bfloat16"])
@pytest.mark.parametrize("expression", ["x + y", "x - y", "x * y", "fma"])
def test_an_operation_is_one_instruction(type_, expression, architecture):
    if expression == "fma":
        expression = "__hfma2(x, y, z)" if type_.endswith("2") else "__hfma(x, y, z)"
    found = arithmetic_of(type_, expression, sass.number(architecture))
    assert sum(found.values()) == 1, found
    assert set(found) <= {"HADD2", "HMUL2", "HFMA2"}


@together.compiled
@_GPUS
@pytest.mark.parametrize("type_", ["half2", "__nv_bfloat162", "half", "__nv_bfloat16"])
@pytest.mark.parametrize("expression", ["x * y + z", "z - x * y"])
def test_a_product_and_a_sum_are_not_fused(type_, expression, architecture):
    assert sum(arithmetic_of(type_, expression, sass.number(architecture)).values()) == 2
