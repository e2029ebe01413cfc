// The overloads of <math.h>'s functions: in the global namespace those of NVRTC, on a CPU too, and
// for NVRTC, too, what <cmath> has beyond them (integers count as double, a float beside a double
// as well); in std those of <cmath>.
//
// A float beside an integer stays a float, as in NVRTC, where <cmath> makes both double.
#pragma once

#include <jax_elementwise/platform.h>

// The C++ library has overloads of its own where its <cmath> came first.
#if !defined(_GLIBCXX_CMATH) && !defined(_LIBCPP_CMATH)

namespace jax_elementwise {

template <class T>
constexpr int kArithmetic = 0;  // 1: integer, 2: float, 4: double
template <>
constexpr int kArithmetic<bool> = 1;
template <>
constexpr int kArithmetic<char> = 1;
template <>
constexpr int kArithmetic<signed char> = 1;
template <>
constexpr int kArithmetic<unsigned char> = 1;
template <>
constexpr int kArithmetic<short> = 1;
template <>
constexpr int kArithmetic<unsigned short> = 1;
template <>
constexpr int kArithmetic<int> = 1;
template <>
constexpr int kArithmetic<unsigned int> = 1;
template <>
constexpr int kArithmetic<long> = 1;
template <>
constexpr int kArithmetic<unsigned long> = 1;
template <>
constexpr int kArithmetic<long long> = 1;
template <>
constexpr int kArithmetic<unsigned long long> = 1;
template <>
constexpr int kArithmetic<float> = 2;
template <>
constexpr int kArithmetic<double> = 4;

template <bool Enable, class T>
struct EnableIf {};
template <class T>
struct EnableIf<true, T> {
  using type = T;
};
template <class T, class Result>
using ForInteger = typename EnableIf<kArithmetic<T> == 1, Result>::type;
// Of two numbers: integers, or a float and a double.
template <class T, class U, int kinds = kArithmetic<T> | kArithmetic<U>>
using ForMixed =
    typename EnableIf<kArithmetic<T> != 0 && kArithmetic<U> != 0 && (kinds == 1 || kinds == 6),
                      double>::type;

}  // namespace jax_elementwise

// clang-format off
#define EW_UNARY_FUNCTIONS(X) \
  X(acos) X(acosh) X(asin) X(asinh) X(atan) X(atanh) X(cbrt) X(ceil) X(cos) X(cosh) X(erf) X(erfc) \
  X(exp) X(exp2) X(expm1) X(fabs) X(floor) X(lgamma) X(log) X(log10) X(log1p) X(log2) X(logb) \
  X(nearbyint) X(rint) X(round) X(sin) X(sinh) X(sqrt) X(tan) X(tanh) X(tgamma) X(trunc)
#define EW_BINARY_FUNCTIONS(X) \
  X(atan2) X(copysign) X(fdim) X(fmax) X(fmin) X(fmod) X(hypot) X(nextafter) X(pow) X(remainder)
#define EW_CLASSIFICATIONS(X) X(isfinite) X(isinf) X(isnan) X(signbit)
#define EW_TO_INTEGER_FUNCTIONS(X) \
  X(int, ilogb) X(long, lrint) X(long, lround) X(long long, llrint) X(long long, llround)
// clang-format on

// ---- On a CPU: float ----------------------------------------------------------------------------

#if !defined(__CUDACC__)
#undef isfinite
#undef isinf
#undef isnan
#undef signbit
#undef isnormal
#undef fpclassify

#define EW_FLOAT_UNARY(name) \
  inline float name(float x) { return ::name##f(x); }
#define EW_FLOAT_BINARY(name) \
  inline float name(float x, float y) { return ::name##f(x, y); }
#define EW_FLOAT_CLASSIFICATION(name)                            \
  inline bool name(float x) { return __builtin_##name(x) != 0; } \
  inline bool name(double x) { return __builtin_##name(x) != 0; }
#define EW_FLOAT_TO_INTEGER(T, name) \
  inline T name(float x) { return ::name##f(x); }
EW_UNARY_FUNCTIONS(EW_FLOAT_UNARY)
EW_FLOAT_UNARY(j0)
EW_FLOAT_UNARY(j1)
EW_FLOAT_UNARY(y0)
EW_FLOAT_UNARY(y1)
EW_BINARY_FUNCTIONS(EW_FLOAT_BINARY)
EW_CLASSIFICATIONS(EW_FLOAT_CLASSIFICATION)
EW_TO_INTEGER_FUNCTIONS(EW_FLOAT_TO_INTEGER)
#undef EW_FLOAT_TO_INTEGER
#undef EW_FLOAT_CLASSIFICATION
#undef EW_FLOAT_BINARY
#undef EW_FLOAT_UNARY

inline float jn(int n, float x) { return ::jnf(n, x); }
inline float yn(int n, float x) { return ::ynf(n, x); }
inline float fma(float x, float y, float z) { return ::fmaf(x, y, z); }
inline float frexp(float x, int* exponent) { return ::frexpf(x, exponent); }
inline float ldexp(float x, int exponent) { return ::ldexpf(x, exponent); }
inline float scalbn(float x, int exponent) { return ::scalbnf(x, exponent); }
inline float scalbln(float x, long exponent) { return ::scalblnf(x, exponent); }
inline float modf(float x, float* whole) { return ::modff(x, whole); }
inline float remquo(float x, float y, int* quotient) { return ::remquof(x, y, quotient); }
inline void sincos(float x, float* sine, float* cosine) { ::sincosf(x, sine, cosine); }

inline long abs(long x) { return x < 0 ? -x : x; }
inline long long abs(long long x) { return x < 0 ? -x : x; }
inline float abs(float x) { return ::fabsf(x); }
inline double abs(double x) { return ::fabs(x); }
#endif

// ---- Integers, and a float beside a double ------------------------------------------------------

#define EW_INTEGER_UNARY(name)                                              \
  template <class T>                                                        \
  JAX_ELEMENTWISE_DEVICE jax_elementwise::ForInteger<T, double> name(T x) { \
    return name(static_cast<double>(x));                                    \
  }
#define EW_MIXED_BINARY(name)                                             \
  template <class T, class U>                                             \
  JAX_ELEMENTWISE_DEVICE jax_elementwise::ForMixed<T, U> name(T x, U y) { \
    return name(static_cast<double>(x), static_cast<double>(y));          \
  }
#define EW_INTEGER_CLASSIFICATION(name)                                   \
  template <class T>                                                      \
  JAX_ELEMENTWISE_DEVICE jax_elementwise::ForInteger<T, bool> name(T x) { \
    return name(static_cast<double>(x));                                  \
  }
#define EW_INTEGER_TO_INTEGER(R, name)                                 \
  template <class T>                                                   \
  JAX_ELEMENTWISE_DEVICE jax_elementwise::ForInteger<T, R> name(T x) { \
    return name(static_cast<double>(x));                               \
  }
EW_UNARY_FUNCTIONS(EW_INTEGER_UNARY)
EW_BINARY_FUNCTIONS(EW_MIXED_BINARY)
EW_CLASSIFICATIONS(EW_INTEGER_CLASSIFICATION)
EW_TO_INTEGER_FUNCTIONS(EW_INTEGER_TO_INTEGER)
#undef EW_INTEGER_TO_INTEGER
#undef EW_INTEGER_CLASSIFICATION
#undef EW_MIXED_BINARY
#undef EW_INTEGER_UNARY

// ---- std ----------------------------------------------------------------------------------------

namespace std {

#define EW_USING(name) using ::name;
#define EW_USING_2(T, name) using ::name;
EW_UNARY_FUNCTIONS(EW_USING)
EW_BINARY_FUNCTIONS(EW_USING)
EW_CLASSIFICATIONS(EW_USING)
EW_TO_INTEGER_FUNCTIONS(EW_USING_2)
#undef EW_USING_2
#undef EW_USING
using ::abs;
using ::fma;
using ::frexp;
using ::ldexp;
using ::modf;
using ::remquo;
using ::scalbln;
using ::scalbn;

using ::int16_t;
using ::int32_t;
using ::int64_t;
using ::int8_t;
using ::ptrdiff_t;
using ::size_t;
using ::uint16_t;
using ::uint32_t;
using ::uint64_t;
using ::uint8_t;

// Unlike the functions of CUDA these are comparisons: the first value where one is NaN.
template <class T>
JAX_ELEMENTWISE_DEVICE constexpr const T& min(const T& x, const T& y) {
  return y < x ? y : x;
}
template <class T>
JAX_ELEMENTWISE_DEVICE constexpr const T& max(const T& x, const T& y) {
  return x < y ? y : x;
}
template <class T>
JAX_ELEMENTWISE_DEVICE constexpr const T& clamp(const T& x, const T& low, const T& high) {
  return x < low ? low : high < x ? high : x;
}

}  // namespace std

#undef EW_TO_INTEGER_FUNCTIONS
#undef EW_CLASSIFICATIONS
#undef EW_BINARY_FUNCTIONS
#undef EW_UNARY_FUNCTIONS

#endif
