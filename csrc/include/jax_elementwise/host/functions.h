// Functions of CUDA's mathematics that the C library lacks, on a CPU: within 2 units in the last
// place, of float32 by double and of double by long double. The inverses of erf and erfc are within
// 4 for double.
#pragma once

#include <jax_elementwise/platform.h>
#include <math.h>

namespace jax_elementwise::host {
template <class T>
T smaller(T x, T y) {
  return x < y ? x : y;
}
template <class T>
T larger(T x, T y) {
  return x < y ? y : x;
}
}  // namespace jax_elementwise::host

// Numbers of different kinds are taken as NVRTC takes them: these overloads and no others.
#define EW_EXTREMUM(T, U, R)                                                 \
  inline R min(T x, U y) { return jax_elementwise::host::smaller<R>(x, y); } \
  inline R max(T x, U y) { return jax_elementwise::host::larger<R>(x, y); }
#define EW_EXTREMA(T, U) \
  EW_EXTREMUM(T, T, T)   \
  EW_EXTREMUM(U, U, U)   \
  EW_EXTREMUM(T, U, U)   \
  EW_EXTREMUM(U, T, U)
EW_EXTREMA(int, unsigned int)
EW_EXTREMA(long, unsigned long)
EW_EXTREMA(long long, unsigned long long)
#undef EW_EXTREMA
#undef EW_EXTREMUM
inline float min(float x, float y) { return fminf(x, y); }
inline float max(float x, float y) { return fmaxf(x, y); }
#define EW_EXTREMUM(T, U)                                              \
  inline double min(T x, U y) { return ::fmin(double(x), double(y)); } \
  inline double max(T x, U y) { return ::fmax(double(x), double(y)); }
EW_EXTREMUM(double, double)
EW_EXTREMUM(float, double)
EW_EXTREMUM(double, float)
#undef EW_EXTREMUM

namespace jax_elementwise::host {

constexpr long double kPi = 3.141592653589793238462643383279502884L;

// sin(pi x) and cos(pi x): what is taken off x is exact.
template <class Wide, class T>
Wide sine_of_pi(T x) {
  if (x - x != 0) return x - x;
  T r = ::remainder(static_cast<double>(x), 2.0);
  if (r > T(0.5)) r = 1 - r;
  if (r < T(-0.5)) r = -1 - r;
  if (r == 0) return ::copysign(0.0, static_cast<double>(x));
  return static_cast<Wide>(::sinl(kPi * r));
}
template <class Wide, class T>
Wide cosine_of_pi(T x) {
  if (x - x != 0) return x - x;
  T r = ::fabs(::remainder(static_cast<double>(x), 2.0));
  if (r < T(0.25)) return static_cast<Wide>(::cosl(kPi * r));
  if (r > T(0.75)) return static_cast<Wide>(-::cosl(kPi * (1 - r)));
  return static_cast<Wide>(::sinl(kPi * (T(0.5) - r)));
}

// exp(x^2) erfc(x).
inline double scaled_erfc(double x) {
  const long double wide = x;
  if (x < 25) return static_cast<double>(expl(wide * wide) * erfcl(wide));
  // The asymptotic series; the terms fall to less than the last place.
  const long double t = 1 / (2 * wide * wide);
  long double sum = 1, term = 1;
  for (int k = 1; k < 9; ++k) sum += term *= -(2 * k - 1) * t;
  return static_cast<double>(sum / (wide * sqrtl(kPi)));
}

// The inverse of erfc for y in (0, 0.5], by Newton's method for its logarithm, which is nearly a
// parabola.
inline long double inverse_erfc_of_small(long double y) {
  const long double half_root_pi = sqrtl(kPi) / 2;
  const long double log_term = logl(y * (2 - y)), a = 0.147L;
  const long double b = 2 / (kPi * a) + log_term / 2;  // Winitzki, as for erfinv
  long double x = sqrtl(fmaxl(sqrtl(b * b - log_term / a) - b, 0));
  for (int step = 0; step < 5; ++step) {
    const long double value = erfcl(x);
    x += logl(value / y) * value * half_root_pi * expl(x * x);
  }
  return x;
}
inline long double inverse_erfc(long double y) {
  if (!(y > 0 && y < 2)) return y == 0 ? HUGE_VALL : y == 2 ? -HUGE_VALL : NAN;
  if (y > 0.5L && y < 1.5L) return erfinv(static_cast<double>(1 - y));  // exact, and has its digits
  return y < 1 ? inverse_erfc_of_small(y) : -inverse_erfc_of_small(2 - y);
}

inline double norm(int count, const double* x) {
  long double sum = 0;
  bool infinite = false;
  for (int i = 0; i < count; ++i) {
    sum += static_cast<long double>(x[i]) * x[i];
    infinite |= __builtin_isinf(x[i]) != 0;
  }
  return infinite ? HUGE_VAL : static_cast<double>(sqrtl(sum));
}
inline float norm(int count, const float* x) {
  double sum = 0;
  bool infinite = false;
  for (int i = 0; i < count; ++i) {
    sum += static_cast<double>(x[i]) * x[i];
    infinite |= __builtin_isinf(x[i]) != 0;
  }
  return static_cast<float>(infinite ? HUGE_VAL : ::sqrt(sum));
}
template <class T, class... Rest>
T norm_of(Rest... rest) {
  const T x[] = {rest...};
  return norm(sizeof...(Rest), x);
}

}  // namespace jax_elementwise::host

// name(double), namef(float) and name(float) by an expression of a wider x.
#define EW_FUNCTION(name, of_float, of_double)    \
  inline float name##f(float value) {             \
    [[maybe_unused]] const double x = value;      \
    return static_cast<float>(of_float);          \
  }                                               \
  inline double name(double value) {              \
    [[maybe_unused]] const long double x = value; \
    return static_cast<double>(of_double);        \
  }                                               \
  inline float name(float x) { return name##f(x); }

EW_FUNCTION(rsqrt, 1 / ::sqrt(x), 1 / sqrtl(x))
EW_FUNCTION(rcbrt, 1 / ::cbrt(x), 1 / cbrtl(x))
EW_FUNCTION(sinpi, jax_elementwise::host::sine_of_pi<double>(value),
            jax_elementwise::host::sine_of_pi<double>(value))
EW_FUNCTION(cospi, jax_elementwise::host::cosine_of_pi<double>(value),
            jax_elementwise::host::cosine_of_pi<double>(value))
EW_FUNCTION(normcdf, ::erfc(-x* M_SQRT1_2) / 2, erfcl(-x* sqrtl(0.5L)) / 2)
EW_FUNCTION(erfcx, jax_elementwise::host::scaled_erfc(x), jax_elementwise::host::scaled_erfc(value))
EW_FUNCTION(erfcinv, jax_elementwise::host::inverse_erfc(x), jax_elementwise::host::inverse_erfc(x))
EW_FUNCTION(normcdfinv, -sqrtl(2) * jax_elementwise::host::inverse_erfc(2 * x),
            -sqrtl(2) * jax_elementwise::host::inverse_erfc(2 * x))
#undef EW_FUNCTION

// glibc and musl have these two where GNU's names are asked for, as g++ and clang do.
inline float exp10(float x) { return static_cast<float>(::exp10(static_cast<double>(x))); }
inline float erfinv(float x) { return erfinvf(x); }

inline void sincospi(double x, double* sine, double* cosine) {
  *sine = sinpi(x);
  *cosine = cospi(x);
}
inline void sincospif(float x, float* sine, float* cosine) {
  *sine = sinpif(x);
  *cosine = cospif(x);
}
inline void sincospi(float x, float* sine, float* cosine) { sincospif(x, sine, cosine); }

// 1 / hypot(x, y), and the norms of 3, 4 and any number of values.
inline double rhypot(double x, double y) { return static_cast<double>(1 / hypotl(x, y)); }
inline float rhypotf(float x, float y) {
  return static_cast<float>(1 / ::hypot(static_cast<double>(x), static_cast<double>(y)));
}
inline float rhypot(float x, float y) { return rhypotf(x, y); }
inline double norm(int count, const double* x) { return jax_elementwise::host::norm(count, x); }
inline float normf(int count, const float* x) { return jax_elementwise::host::norm(count, x); }
inline double norm3d(double x, double y, double z) {
  return jax_elementwise::host::norm_of<double>(x, y, z);
}
inline float norm3df(float x, float y, float z) {
  return jax_elementwise::host::norm_of<float>(x, y, z);
}
inline double norm4d(double x, double y, double z, double w) {
  return jax_elementwise::host::norm_of<double>(x, y, z, w);
}
inline float norm4df(float x, float y, float z, float w) {
  return jax_elementwise::host::norm_of<float>(x, y, z, w);
}
inline double rnorm3d(double x, double y, double z) { return 1 / norm3d(x, y, z); }
inline float rnorm3df(float x, float y, float z) { return static_cast<float>(1 / norm3d(x, y, z)); }
inline double rnorm4d(double x, double y, double z, double w) { return 1 / norm4d(x, y, z, w); }
inline float rnorm4df(float x, float y, float z, float w) {
  return static_cast<float>(1 / norm4d(x, y, z, w));
}
