// CUDA's intrinsic functions on a CPU. Those that are fast and inaccurate on a GPU are the
// functions of the C library here: a result differs by what the GPU's approximation is off.
#pragma once

#include <jax_elementwise/convert.h>
#include <math.h>

// ---- Bits ---------------------------------------------------------------------------------------

inline int __float_as_int(float x) { return jax_elementwise::bit_cast<int>(x); }
inline unsigned int __float_as_uint(float x) { return jax_elementwise::bit_cast<unsigned int>(x); }
inline float __int_as_float(int x) { return jax_elementwise::bit_cast<float>(x); }
inline float __uint_as_float(unsigned int x) { return jax_elementwise::bit_cast<float>(x); }
inline long long __double_as_longlong(double x) { return jax_elementwise::bit_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return jax_elementwise::bit_cast<double>(x); }
inline int __double2hiint(double x) { return static_cast<int>(__double_as_longlong(x) >> 32); }
inline int __double2loint(double x) { return static_cast<int>(__double_as_longlong(x)); }
inline double __hiloint2double(int high, int low) {
  return __longlong_as_double(static_cast<long long>(high) * 4294967296ll +
                              static_cast<unsigned int>(low));
}

// ---- Arithmetic that is rounded to nearest ------------------------------------------------------

inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fsub_rn(float x, float y) { return x - y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
// By double, which is wide enough but for a few values that are off by one.
inline float __frsqrt_rn(float x) { return static_cast<float>(1 / sqrt(static_cast<double>(x))); }
inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
inline double __dadd_rn(double x, double y) { return x + y; }
inline double __dsub_rn(double x, double y) { return x - y; }
inline double __dmul_rn(double x, double y) { return x * y; }
inline double __ddiv_rn(double x, double y) { return x / y; }
inline double __drcp_rn(double x) { return 1.0 / x; }
inline double __dsqrt_rn(double x) { return sqrt(x); }
inline double __fma_rn(double x, double y, double z) { return fma(x, y, z); }

// ---- Fast functions -----------------------------------------------------------------------------

inline float __expf(float x) { return expf(x); }
inline float __exp10f(float x) { return exp10f(x); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __log10f(float x) { return log10f(x); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __tanf(float x) { return tanf(x); }
inline float __tanhf(float x) { return tanhf(x); }
inline void __sincosf(float x, float* sine, float* cosine) { sincosf(x, sine, cosine); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float __fdividef(float x, float y) { return x / y; }
inline float fdividef(float x, float y) { return x / y; }
inline double fdivide(double x, double y) { return x / y; }
inline float __saturatef(float x) { return x >= 1.0f ? 1.0f : x > 0.0f ? x : 0.0f; }

// ---- Integers -----------------------------------------------------------------------------------

inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned int>(x)); }
inline int __clzll(long long x) {
  return x == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(x));
}
inline int __popc(unsigned int x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned int __brev(unsigned int x) {
  x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
  x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
  x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
  return __builtin_bswap32(x);
}
inline unsigned long long __brevll(unsigned long long x) {
  return static_cast<unsigned long long>(__brev(static_cast<unsigned int>(x))) << 32 |
         __brev(static_cast<unsigned int>(x >> 32));
}

inline int __mulhi(int x, int y) { return static_cast<int>(static_cast<long long>(x) * y >> 32); }
inline unsigned int __umulhi(unsigned int x, unsigned int y) {
  return static_cast<unsigned int>(static_cast<unsigned long long>(x) * y >> 32);
}
inline long long __mul64hi(long long x, long long y) {
  return static_cast<long long>(static_cast<__int128>(x) * y >> 64);
}
inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
  return static_cast<unsigned long long>(static_cast<unsigned __int128>(x) * y >> 64);
}
// The low 32 bits of the product of the low 24.
inline unsigned int __umul24(unsigned int x, unsigned int y) {
  return (x & 0xffffffu) * (y & 0xffffffu);
}
inline int __mul24(int x, int y) {
  const long long wide_x = static_cast<int>(static_cast<unsigned int>(x) << 8) >> 8;
  const long long wide_y = static_cast<int>(static_cast<unsigned int>(y) << 8) >> 8;
  return static_cast<int>(wide_x * wide_y);
}

inline unsigned int __usad(unsigned int x, unsigned int y, unsigned int z) {
  return (x < y ? y - x : x - y) + z;
}
inline unsigned int __sad(int x, int y, unsigned int z) {
  const unsigned int wide_x = static_cast<unsigned int>(x), wide_y = static_cast<unsigned int>(y);
  return (x < y ? wide_y - wide_x : wide_x - wide_y) + z;
}
// Averages, rounded down and up.
inline int __hadd(int x, int y) { return static_cast<int>((static_cast<long long>(x) + y) >> 1); }
inline int __rhadd(int x, int y) {
  return static_cast<int>((static_cast<long long>(x) + y + 1) >> 1);
}
inline unsigned int __uhadd(unsigned int x, unsigned int y) {
  return static_cast<unsigned int>((static_cast<unsigned long long>(x) + y) >> 1);
}
inline unsigned int __urhadd(unsigned int x, unsigned int y) {
  return static_cast<unsigned int>((static_cast<unsigned long long>(x) + y + 1) >> 1);
}

// Four of the eight bytes of y:x, by the lowest three bits of each four of the selector; the fourth
// asks for the sign of that byte.
inline unsigned int __byte_perm(unsigned int x, unsigned int y, unsigned int selector) {
  const unsigned long long bytes = static_cast<unsigned long long>(y) << 32 | x;
  unsigned int result = 0;
  for (int k = 0; k < 4; ++k) {
    const unsigned int which = selector >> (4 * k) & 0xfu;
    unsigned int byte = static_cast<unsigned int>(bytes >> (8 * (which & 7u))) & 0xffu;
    if (which & 8u) byte = byte & 0x80u ? 0xffu : 0u;
    result |= byte << (8 * k);
  }
  return result;
}

// 32 bits of high:low: the upper ones after a shift to the left, the lower ones after one to the
// right. The distance counts modulo 32, or (with c) as 32 where it is larger.
inline unsigned int __funnelshift_lc(unsigned int low, unsigned int high, unsigned int shift) {
  const unsigned long long both = static_cast<unsigned long long>(high) << 32 | low;
  return shift >= 32 ? low : static_cast<unsigned int>((both << shift) >> 32);
}
inline unsigned int __funnelshift_rc(unsigned int low, unsigned int high, unsigned int shift) {
  const unsigned long long both = static_cast<unsigned long long>(high) << 32 | low;
  return shift >= 32 ? high : static_cast<unsigned int>(both >> shift);
}
inline unsigned int __funnelshift_l(unsigned int low, unsigned int high, unsigned int shift) {
  return __funnelshift_lc(low, high, shift & 31u);
}
inline unsigned int __funnelshift_r(unsigned int low, unsigned int high, unsigned int shift) {
  return __funnelshift_rc(low, high, shift & 31u);
}

// ---- Conversions --------------------------------------------------------------------------------

namespace jax_elementwise::host {

// Saturated. NaN is 0; of 64 bits, and from double, it is only the highest bit.
template <class Integer, class Float>
Integer to_integer(Float x) {
  if (x != x && (sizeof(Integer) == 8 || sizeof(Float) == 8)) {
    return static_cast<Integer>(Unsigned<Integer>(1) << (8 * sizeof(Integer) - 1));
  }
  return saturate<Integer>(x);
}

}  // namespace jax_elementwise::host

#define EW_ROUNDED(word, Float, T, suffix, round, to)                            \
  inline T __##word##2##to##_##suffix(Float x) {                                 \
    return jax_elementwise::host::to_integer<T>(static_cast<Float>(::round(x))); \
  }
#define EW_INTEGER(word, Float, f, T, to)      \
  EW_ROUNDED(word, Float, T, rn, rint##f, to)  \
  EW_ROUNDED(word, Float, T, rz, trunc##f, to) \
  EW_ROUNDED(word, Float, T, rd, floor##f, to) \
  EW_ROUNDED(word, Float, T, ru, ceil##f, to)
EW_INTEGER(float, float, f, int, int)
EW_INTEGER(float, float, f, unsigned int, uint)
EW_INTEGER(float, float, f, long long, ll)
EW_INTEGER(float, float, f, unsigned long long, ull)
EW_INTEGER(double, double, , int, int)
EW_INTEGER(double, double, , unsigned int, uint)
EW_INTEGER(double, double, , long long, ll)
EW_INTEGER(double, double, , unsigned long long, ull)
#undef EW_INTEGER
#undef EW_ROUNDED

inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline float __uint2float_rn(unsigned int x) { return static_cast<float>(x); }
inline float __ll2float_rn(long long x) { return static_cast<float>(x); }
inline float __ull2float_rn(unsigned long long x) { return static_cast<float>(x); }
inline double __int2double_rn(int x) { return x; }
inline double __uint2double_rn(unsigned int x) { return x; }
inline double __ll2double_rn(long long x) { return static_cast<double>(x); }
inline double __ull2double_rn(unsigned long long x) { return static_cast<double>(x); }
inline float __double2float_rn(double x) { return static_cast<float>(x); }

// ---- Others -------------------------------------------------------------------------------------

// Of numbers and vectors; cuda/half.h has those of its types.
template <class T>
inline T __ldg(const T* address) {
  return *address;
}

// The C library's, if it is included, stays.
#if !defined(assert)
#define assert(condition) static_cast<void>(0)
#endif
