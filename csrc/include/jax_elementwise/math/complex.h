// Complex numbers: the type, its arithmetic, and what needs no transcendental function.
//
// Every result is accurate as a whole: |computed - exact| is a few units in the last place of
// |exact|, while the smaller component may have lost digits. Nothing overflows on the way to a
// result that does not, and float is computed in float: most GPUs are 64 times slower in double.
#pragma once

#include <jax_elementwise/convert.h>

namespace jax_elementwise {

// Aligned to its size, so that an element is one load.
template <class T>
struct alignas(2 * sizeof(T)) Complex {
  T re, im;
};
using complex64 = Complex<float>;
using complex128 = Complex<double>;

// ---- Real functions that templates can name -----------------------------------------------------

namespace scalar {

#define EW_SCALAR_FUNCTION(name)                                      \
  JAX_ELEMENTWISE_DEVICE float name(float x) { return ::name##f(x); } \
  JAX_ELEMENTWISE_DEVICE double name(double x) { return ::name(x); }
EW_SCALAR_FUNCTION(asinh)
EW_SCALAR_FUNCTION(exp)
EW_SCALAR_FUNCTION(exp2)
EW_SCALAR_FUNCTION(expm1)
EW_SCALAR_FUNCTION(fabs)
EW_SCALAR_FUNCTION(log)
EW_SCALAR_FUNCTION(log1p)
EW_SCALAR_FUNCTION(sqrt)
#undef EW_SCALAR_FUNCTION

#define EW_SCALAR_FUNCTION(name)                                                  \
  JAX_ELEMENTWISE_DEVICE float name(float x, float y) { return ::name##f(x, y); } \
  JAX_ELEMENTWISE_DEVICE double name(double x, double y) { return ::name(x, y); }
EW_SCALAR_FUNCTION(atan2)
EW_SCALAR_FUNCTION(copysign)
EW_SCALAR_FUNCTION(hypot)
EW_SCALAR_FUNCTION(pow)
#undef EW_SCALAR_FUNCTION

JAX_ELEMENTWISE_DEVICE float fma(float x, float y, float z) { return ::fmaf(x, y, z); }
JAX_ELEMENTWISE_DEVICE double fma(double x, double y, double z) { return ::fma(x, y, z); }
JAX_ELEMENTWISE_DEVICE void sincos(float x, float* sine, float* cosine) {
  ::sincosf(x, sine, cosine);
}
JAX_ELEMENTWISE_DEVICE void sincos(double x, double* sine, double* cosine) {
  ::sincos(x, sine, cosine);
}

// A product that the compiler may not fuse with an addition, for what relies on its rounding.
#if defined(__CUDA_ARCH__)
JAX_ELEMENTWISE_DEVICE float rounded_product(float x, float y) { return __fmul_rn(x, y); }
JAX_ELEMENTWISE_DEVICE double rounded_product(double x, double y) { return __dmul_rn(x, y); }
#else
template <class T>
JAX_ELEMENTWISE_DEVICE T rounded_product(T x, T y) {
  return x * y;
}
#endif

template <class T>
struct Format;
template <>
struct Format<float> {
  using Bits = uint32;
  static constexpr int mantissa = 23, bias = 127;
  static constexpr float max_exp = 88.0f;  // exp of it is finite, and little more is
};
template <>
struct Format<double> {
  using Bits = uint64;
  static constexpr int mantissa = 52, bias = 1023;
  static constexpr double max_exp = 709.0;
};

// 2^n, for the n of normal numbers; one more is infinity.
template <class T>
JAX_ELEMENTWISE_DEVICE T power_of_two(int n) {
  using Bits = typename Format<T>::Bits;
  return bit_cast<T>(static_cast<Bits>(n + Format<T>::bias) << Format<T>::mantissa);
}
template <class T>
JAX_ELEMENTWISE_DEVICE T infinity() {
  return power_of_two<T>(Format<T>::bias + 1);
}
template <class T>
JAX_ELEMENTWISE_DEVICE T nan() {
  return infinity<T>() - infinity<T>();
}
template <class T>
JAX_ELEMENTWISE_DEVICE bool is_inf(T x) {
  return fabs(x) == infinity<T>();
}

// x 2^n, for n up to twice the range of exponents: the first factor overflows only if x 2^n does.
template <class T>
JAX_ELEMENTWISE_DEVICE T scale(T x, int n) {
  return x * power_of_two<T>(n / 2) * power_of_two<T>(n - n / 2);
}

// The exponent of a value, such that 2^n and 2^-n are normal numbers.
template <class T>
JAX_ELEMENTWISE_DEVICE int exponent(T x) {
  constexpr int bias = Format<T>::bias;
  const auto bits = bit_cast<typename Format<T>::Bits>(x) >> Format<T>::mantissa;
  const int n = static_cast<int>(bits & (2 * bias + 1)) - bias;
  return n < 1 - bias ? 1 - bias : (n > bias - 1 ? bias - 1 : n);
}

}  // namespace scalar

// ---- Components and comparison ------------------------------------------------------------------

template <class T>
JAX_ELEMENTWISE_DEVICE T complex_real(Complex<T> z) {
  return z.re;
}
template <class T>
JAX_ELEMENTWISE_DEVICE T complex_imag(Complex<T> z) {
  return z.im;
}
template <class T>
JAX_ELEMENTWISE_DEVICE Complex<T> complex_conj(Complex<T> z) {
  return {z.re, -z.im};
}
template <class T>
JAX_ELEMENTWISE_DEVICE bool operator==(Complex<T> x, Complex<T> y) {
  return x.re == y.re && x.im == y.im;
}
template <class T>
JAX_ELEMENTWISE_DEVICE bool operator!=(Complex<T> x, Complex<T> y) {
  return !(x == y);
}

// The larger and the smaller in the lexicographic order of lax.max and lax.min, which take the
// second operand where neither is.
template <class T>
JAX_ELEMENTWISE_DEVICE Complex<T> complex_maximum(Complex<T> x, Complex<T> y) {
  return (x.re == y.re ? x.im > y.im : x.re > y.re) ? x : y;
}
template <class T>
JAX_ELEMENTWISE_DEVICE Complex<T> complex_minimum(Complex<T> x, Complex<T> y) {
  return (x.re == y.re ? x.im < y.im : x.re < y.re) ? x : y;
}

template <class T>
JAX_ELEMENTWISE_DEVICE bool complex_is_finite(Complex<T> z) {
  return is_finite(z.re) && is_finite(z.im);
}

template <class To, class From>
struct Convert<Complex<To>, From> {
  static JAX_ELEMENTWISE_DEVICE Complex<To> apply(From x) { return {convert<To>(x), To(0)}; }
};
template <class To, class From>
struct Convert<Complex<To>, Complex<From>> {
  static JAX_ELEMENTWISE_DEVICE Complex<To> apply(Complex<From> z) {
    return {convert<To>(z.re), convert<To>(z.im)};
  }
};

// ---- Arithmetic ---------------------------------------------------------------------------------

template <class T>
JAX_ELEMENTWISE_DEVICE Complex<T> operator+(Complex<T> x, Complex<T> y) {
  return {x.re + y.re, x.im + y.im};
}
template <class T>
JAX_ELEMENTWISE_DEVICE Complex<T> operator-(Complex<T> x, Complex<T> y) {
  return {x.re - y.re, x.im - y.im};
}
template <class T>
JAX_ELEMENTWISE_DEVICE Complex<T> operator-(Complex<T> z) {
  return {-z.re, -z.im};
}
// As XLA multiplies: an infinity times a complex number often is NaN.
template <class T>
JAX_ELEMENTWISE_DEVICE Complex<T> operator*(Complex<T> x, Complex<T> y) {
  return {x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re};
}

template <class T>
JAX_ELEMENTWISE_DEVICE Complex<T> complex_one_minus_square(Complex<T> z) {
  return Complex<T>{T(1) + z.re, z.im} * Complex<T>{T(1) - z.re, -z.im};
}
template <class T>
JAX_ELEMENTWISE_DEVICE Complex<T> complex_square(Complex<T> z) {
  return z * z;
}

// z^N by squaring, in the order of multiplications that XLA uses.
template <int N, class T>
JAX_ELEMENTWISE_DEVICE Complex<T> complex_integer_pow(Complex<T> z) {
  static_assert(N >= 0, "the caller takes the reciprocal");
  if constexpr (N == 0) {
    return {T(1), T(0)};
  } else if constexpr (N == 1) {
    return z;
  } else if constexpr (N % 2 == 0) {
    return complex_integer_pow<N / 2>(z * z);
  } else {
    return z * complex_integer_pow<N / 2>(z * z);
  }
}

namespace scalar {

// z / 2^n, of a size near 1 unless z is subnormal, zero, infinite or NaN. The products of two such
// numbers neither overflow nor lose what matters to their sum.
template <class T>
JAX_ELEMENTWISE_DEVICE Complex<T> normalize(Complex<T> z, int n) {
  const T factor = power_of_two<T>(-n);
  return {z.re * factor, z.im * factor};
}

template <class T>
JAX_ELEMENTWISE_DEVICE int exponent(Complex<T> z) {
  const T re = fabs(z.re), im = fabs(z.im);
  return exponent(re > im ? re : im);
}

template <class T>
JAX_ELEMENTWISE_DEVICE T square_of_abs(Complex<T> z) {
  return fma(z.re, z.re, z.im * z.im);
}

// 0 or 1 with the sign of x, the latter for infinity.
template <class T>
JAX_ELEMENTWISE_DEVICE T unit_if_infinite(T x) {
  return copysign(is_inf(x) ? T(1) : T(0), x);
}

template <class T>
JAX_ELEMENTWISE_DEVICE bool has_infinity(Complex<T> z) {
  return is_inf(z.re) || is_inf(z.im);
}

// x conj(y) times 0 or infinity, of infinite components only their sign and that they are.
template <class T>
JAX_ELEMENTWISE_DEVICE Complex<T> extreme_quotient(T size, Complex<T> x, Complex<T> y) {
  return {size * (x.re * y.re + x.im * y.im), size * (x.im * y.re - x.re * y.im)};
}
template <class T>
JAX_ELEMENTWISE_DEVICE Complex<T> units_if_infinite(Complex<T> z) {
  return {unit_if_infinite(z.re), unit_if_infinite(z.im)};
}

}  // namespace scalar

// (x conj(y)) / |y|^2, where scaling by powers of two takes the place of Smith's ratio (Algorithm
// 116, 1962): it is exact, and no branch. Zeros and infinities are treated as in C99, Annex G.
template <class T>
JAX_ELEMENTWISE_DEVICE Complex<T> complex_divide(Complex<T> x, Complex<T> y) {
  if (y.re == 0 && y.im == 0) {
    const T infinity = scalar::copysign(scalar::infinity<T>(), y.re);
    return {infinity * x.re, infinity * x.im};
  }
  if (scalar::has_infinity(y) && complex_is_finite(x)) {
    return scalar::extreme_quotient(T(0), x, scalar::units_if_infinite(y));
  }
  const int m = scalar::exponent(x), n = scalar::exponent(y);
  const Complex<T> a = scalar::normalize(x, m), b = scalar::normalize(y, n);
  const T square = scalar::square_of_abs(b);
  const T re = (a.re * b.re + a.im * b.im) / square, im = (a.im * b.re - a.re * b.im) / square;
  if (re != re && im != im && scalar::has_infinity(x) && complex_is_finite(y)) {
    return scalar::extreme_quotient(scalar::infinity<T>(), scalar::units_if_infinite(x), y);
  }
  return {scalar::scale(re, m - n), scalar::scale(im, m - n)};
}

template <class T>
JAX_ELEMENTWISE_DEVICE T complex_abs(Complex<T> z) {
  return scalar::hypot(z.re, z.im);
}

// z / |z|. Zeros of either sign are their own sign.
template <class T>
JAX_ELEMENTWISE_DEVICE Complex<T> complex_sign(Complex<T> z) {
  if (z.re == 0 && z.im == 0) return z;
  // Twice, as the first leaves a subnormal number small.
  const Complex<T> close = scalar::normalize(z, scalar::exponent(z));
  const Complex<T> unit = scalar::normalize(close, scalar::exponent(close));
  const T size = scalar::sqrt(scalar::square_of_abs(unit));
  return {unit.re / size, unit.im / size};
}

// ---- Square roots -------------------------------------------------------------------------------

namespace scalar {

// The square root of a finite number other than zero: t = sqrt((|re| + |z|) / 2) is one component,
// and im / (2 t) the other (Kahan, "Branch cuts for complex elementary functions", 1987).
template <class T>
JAX_ELEMENTWISE_DEVICE Complex<T> finite_sqrt(Complex<T> z) {
  const T t = sqrt((fabs(z.re) + sqrt(square_of_abs(z))) * T(0.5));
  const T other = z.im / (t + t);
  return is_negative(z.re) ? Complex<T>{fabs(other), copysign(t, z.im)} : Complex<T>{t, other};
}

template <class T>
JAX_ELEMENTWISE_DEVICE int even_exponent(Complex<T> z) {
  return exponent(z) & ~1;
}

}  // namespace scalar

template <class T>
JAX_ELEMENTWISE_DEVICE Complex<T> complex_sqrt(Complex<T> z) {
  if (z.re == 0 && z.im == 0) return {T(0), z.im};
  if (scalar::is_inf(z.im)) return {scalar::infinity<T>(), z.im};
  if (scalar::is_inf(z.re)) {
    const T zero = z.im - z.im;  // or NaN
    if (z.re > 0) return {z.re, scalar::copysign(zero, z.im)};
    return {zero, scalar::copysign(z.re, z.im)};
  }
  const int n = scalar::even_exponent(z);
  const Complex<T> root = scalar::finite_sqrt(scalar::normalize(z, n));
  const T factor = scalar::power_of_two<T>(n / 2);
  return {root.re * factor, root.im * factor};
}

// conj(sqrt(z)) / |z|. As in XLA, zero gives (inf, nan).
template <class T>
JAX_ELEMENTWISE_DEVICE Complex<T> complex_rsqrt(Complex<T> z) {
  if (z.re == 0 && z.im == 0) return {scalar::infinity<T>(), scalar::nan<T>()};
  if (scalar::has_infinity(z)) return {T(0), scalar::copysign(T(0), -z.im)};
  const int n = scalar::even_exponent(z);
  const Complex<T> scaled = scalar::normalize(z, n);
  const Complex<T> root = scalar::finite_sqrt(scaled);
  const T factor = scalar::power_of_two<T>(-n / 2),
          size = scalar::sqrt(scalar::square_of_abs(scaled));
  return {root.re / size * factor, -root.im / size * factor};
}

}  // namespace jax_elementwise
