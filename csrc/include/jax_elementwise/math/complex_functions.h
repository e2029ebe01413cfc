// Transcendental functions of complex numbers.
//
// Branch cuts, signed zeros and special values are those of C99, Annex G, where it has the function
// (Kahan, "Branch cuts for complex elementary functions", 1987, says why they are so).
#pragma once

#include <jax_elementwise/math/complex.h>

namespace jax_elementwise {

namespace scalar {

constexpr double kLn2 = 0.693147180559945309417232121458;
constexpr double kHalfPi = 1.57079632679489661923132169164;

// sinh(x) = scale sinh and cosh(x) = scale cosh: a product with a sine may be finite where these
// are not.
template <class T>
struct Hyperbolic {
  T sinh, cosh, scale;
};
template <class T>
JAX_ELEMENTWISE_DEVICE Hyperbolic<T> sinh_cosh(T x) {
  const T size = fabs(x);
  if (size > Format<T>::max_exp) {
    const T root = exp(size * T(0.5));
    return {copysign(root * T(0.5), x), root * T(0.5), root};
  }
  // Sums of terms of one sign: with e = exp(|x|) - 1, 2 sinh = e + e / (1 + e) and
  // 2 cosh - 2 = e - e / (1 + e) = e^2 / (1 + e).
  const T e = expm1(size), ratio = e / (T(1) + e);
  return {copysign((e + ratio) * T(0.5), x), fma(e * T(0.5), ratio, T(1)), T(1)};
}

// 1 - |cos(y)|, without the loss of digits where the cosine is near 1.
template <class T>
JAX_ELEMENTWISE_DEVICE T one_minus_abs_cos(T sine, T cosine) {
  return sine * sine / (T(1) + fabs(cosine));
}

// Below it, the terms of an odd series behind the first are lost, and above its reciprocal those of
// a series in the reciprocal.
template <class T>
JAX_ELEMENTWISE_DEVICE constexpr T negligible() {
  return sizeof(T) == 4 ? T(0x1p-13) : T(0x1p-27);
}

template <class T>
JAX_ELEMENTWISE_DEVICE Complex<T> swap(Complex<T> z) {
  return {z.im, z.re};
}

}  // namespace scalar

// ---- Exponentials -------------------------------------------------------------------------------

namespace scalar {

// size factor exp(i (angle + low)): the factors apart, as their product may be infinite where the
// result is not, and an angle in two parts, as its rounding is an error that grows with it.
template <class T>
JAX_ELEMENTWISE_DEVICE Complex<T> polar(T size, T factor, T angle, T low) {
  T sine, cosine, low_sine = low, low_cosine = T(1);
  sincos(angle, &sine, &cosine);
  if (fabs(low) > negligible<T>()) sincos(low, &low_sine, &low_cosine);
  return {size * fma(-low_sine, sine, low_cosine * cosine) * factor,
          size * fma(low_sine, cosine, low_cosine * sine) * factor};
}

// The value of an exponential where the angle is infinite or NaN.
template <class T>
JAX_ELEMENTWISE_DEVICE Complex<T> exp_without_angle(Complex<T> z) {
  if (z.re == -infinity<T>()) return {T(0), copysign(T(0), z.im)};
  return {z.re == infinity<T>() ? z.re : nan<T>(), nan<T>()};
}

}  // namespace scalar

template <class T>
JAX_ELEMENTWISE_DEVICE Complex<T> complex_exp(Complex<T> z) {
  if (z.im == 0) return {scalar::exp(z.re), z.im};
  if (!is_finite(z.im)) return scalar::exp_without_angle(z);
  const bool large = z.re > scalar::Format<T>::max_exp;
  const T size = scalar::exp(large ? z.re * T(0.5) : z.re);
  return scalar::polar(size, large ? size : T(1), z.im, T(0));
}

template <class T>
JAX_ELEMENTWISE_DEVICE Complex<T> complex_exp2(Complex<T> z) {
  if (z.im == 0) return {scalar::exp2(z.re), z.im};
  if (!is_finite(z.im)) return scalar::exp_without_angle(z);
  constexpr T ln2 = static_cast<T>(scalar::kLn2);
  constexpr T ln2_low = static_cast<T>(sizeof(T) == 4 ? scalar::kLn2 - static_cast<double>(ln2)
                                                      : 2.319046813846299558e-17);
  const T angle = scalar::rounded_product(z.im, ln2);
  const T low = scalar::fma(z.im, ln2_low, scalar::fma(z.im, ln2, -angle));
  const bool large = z.re > T(scalar::Format<T>::bias);
  const T size = scalar::exp2(large ? z.re * T(0.5) : z.re);
  return scalar::polar(size, large ? size : T(1), angle, low);
}

// exp(re) cos(im) - 1 = expm1(re) cos(im) - (1 - cos(im)).
template <class T>
JAX_ELEMENTWISE_DEVICE Complex<T> complex_expm1(Complex<T> z) {
  if (z.im == 0) return {scalar::expm1(z.re), z.im};
  if (z.re > scalar::Format<T>::max_exp) return complex_exp(z);
  if (z.re == -scalar::infinity<T>()) return {T(-1), scalar::copysign(T(0), z.im)};
  T sine, cosine;
  scalar::sincos(z.im, &sine, &cosine);
  const T e = scalar::expm1(z.re);
  const T versine = cosine > 0 ? scalar::one_minus_abs_cos(sine, cosine) : T(1) - cosine;
  return {scalar::fma(e, cosine, -versine), scalar::exp(z.re) * sine};
}

// 1 / (1 + exp(-z)), with an exponential that cannot overflow.
template <class T>
JAX_ELEMENTWISE_DEVICE Complex<T> complex_logistic(Complex<T> z) {
  const T size = scalar::fabs(z.re), e = scalar::exp(-size);
  T sine, cosine;
  scalar::sincos(z.re < 0 ? z.im : -z.im, &sine, &cosine);
  // 1 + e cos = (1 - e) + e (1 + cos): no loss of digits near the poles.
  const T re = cosine < 0
                   ? scalar::fma(e, scalar::one_minus_abs_cos(sine, cosine), -scalar::expm1(-size))
                   : scalar::fma(e, cosine, T(1));
  const Complex<T> numerator = z.re < 0 ? Complex<T>{e * cosine, e * sine} : Complex<T>{T(1), T(0)};
  const T im = e * sine, square = scalar::fma(re, re, im * im);
  return {(numerator.re * re + numerator.im * im) / square,
          (numerator.im * re - numerator.re * im) / square};
}

// ---- Logarithms and powers ----------------------------------------------------------------------

namespace scalar {

// log(|z|), without loss of digits where |z| is near 1: there, re^2 + im^2 - 1 is a sum of the
// rounded squares and what their rounding lost.
template <class T>
JAX_ELEMENTWISE_DEVICE T log_abs(Complex<T> z) {
  if (has_infinity(z)) return infinity<T>();
  constexpr int limit = Format<T>::bias / 3;
  int n = exponent(z);
  if (n > -limit && n < limit) n = 0;
  const Complex<T> scaled = normalize(z, n);
  const bool re_is_large = fabs(scaled.re) > fabs(scaled.im);
  const T large = re_is_large ? scaled.re : scaled.im, small = re_is_large ? scaled.im : scaled.re;
  const T square = rounded_product(large, large), small_square = rounded_product(small, small);
  const T sum = square + small_square;
  if (n != 0 || !(sum > T(0.5) && sum < T(2))) {
    return fma(T(n), static_cast<T>(kLn2), T(0.5) * log(sum));
  }
  const T excess = square - T(1);
  T low = square - (excess + T(1));  // what the subtraction lost (Dekker's sum, 1971)
  low += fma(large, large, -square) + fma(small, small, -small_square);
  return T(0.5) * log1p((excess + small_square) + low);
}

}  // namespace scalar

template <class T>
JAX_ELEMENTWISE_DEVICE Complex<T> complex_log(Complex<T> z) {
  return {scalar::log_abs(z), scalar::atan2(z.im, z.re)};
}

template <class T>
JAX_ELEMENTWISE_DEVICE Complex<T> complex_log2(Complex<T> z) {
  const Complex<T> log = complex_log(z);
  return {log.re / static_cast<T>(scalar::kLn2), log.im / static_cast<T>(scalar::kLn2)};
}

// -i log((x + i y) / sqrt(x^2 + y^2)), as XLA has it.
template <class T>
JAX_ELEMENTWISE_DEVICE Complex<T> complex_atan2(Complex<T> y, Complex<T> x) {
  const Complex<T> length = complex_sqrt(x * x + y * y);
  const Complex<T> log = complex_log(complex_divide({x.re - y.im, x.im + y.re}, length));
  return {log.im, -log.re};
}

template <class T>
JAX_ELEMENTWISE_DEVICE Complex<T> complex_log1p(Complex<T> z) {
  const Complex<T> sum = {T(1) + z.re, z.im};
  const T angle = scalar::atan2(z.im, sum.re);
  if (!(scalar::fabs(z.re) < T(0.5) && scalar::fabs(z.im) < T(1))) {
    return {scalar::log_abs(sum), angle};
  }
  // |1 + z|^2 - 1 = (2 re + im^2) + re^2, where the sum in brackets may cancel.
  const T square = scalar::rounded_product(z.im, z.im);
  const T low = scalar::fma(z.re, z.re, scalar::fma(z.im, z.im, -square));
  return {T(0.5) * scalar::log1p((z.re + z.re + square) + low), angle};
}

namespace scalar {

// a b + c d as a sum of two numbers (Knuth's sum and the errors of the products).
template <class T>
struct DoubleWord {
  T high, low;
};
template <class T>
JAX_ELEMENTWISE_DEVICE DoubleWord<T> sum_of_products(T a, T b, T c, T d) {
  const T x = rounded_product(a, b), y = rounded_product(c, d);
  const T sum = x + y, rest = sum - x;
  const T low = (x - (sum - rest)) + (y - rest);
  return {sum, low + (fma(a, b, -x) + fma(c, d, -y))};
}

}  // namespace scalar

// exp(y log(x)). The error grows with |y log(x)|, as an exponential magnifies that of its argument;
// the product adds none to that of the logarithm. The special cases are XLA's.
template <class T>
JAX_ELEMENTWISE_DEVICE Complex<T> complex_pow(Complex<T> x, Complex<T> y) {
  const Complex<T> zero = {T(0), T(0)}, one = {T(1), T(0)};
  if (y == zero || x == one) return one;
  if (x == zero) {
    return y.im == 0 && y.re > 0 ? zero : Complex<T>{scalar::nan<T>(), scalar::nan<T>()};
  }
  if (x.im == 0 && x.re > 0 && y.im == 0) return {scalar::pow(x.re, y.re), T(0)};
  const Complex<T> log = complex_log(x);
  const auto re = scalar::sum_of_products(y.re, log.re, -y.im, log.im);
  const auto im = scalar::sum_of_products(y.re, log.im, y.im, log.re);
  if (im.high == 0 || !is_finite(re.high) || !is_finite(im.high)) {
    return complex_exp(Complex<T>{re.high, im.high});
  }
  const bool large = re.high > scalar::Format<T>::max_exp;
  const T size = scalar::exp(large ? re.high * T(0.5) : re.high);
  return scalar::polar(scalar::fma(size, re.low, size), large ? size : T(1), im.high, im.low);
}

// ---- Trigonometric and hyperbolic functions -----------------------------------------------------

template <class T>
JAX_ELEMENTWISE_DEVICE Complex<T> complex_sinh(Complex<T> z) {
  const scalar::Hyperbolic<T> x = scalar::sinh_cosh(z.re);
  if (z.im == 0) return {x.sinh * x.scale, z.im};
  T sine, cosine;
  scalar::sincos(z.im, &sine, &cosine);
  const bool keep = !is_finite(z.im) && (z.re == 0 || scalar::is_inf(z.re));
  return {keep ? z.re : x.sinh * cosine * x.scale, x.cosh * sine * x.scale};
}

template <class T>
JAX_ELEMENTWISE_DEVICE Complex<T> complex_cosh(Complex<T> z) {
  const scalar::Hyperbolic<T> x = scalar::sinh_cosh(z.re);
  if (z.im == 0) {
    const T im = z.re != z.re ? z.im : scalar::copysign(T(0), z.re) * z.im;
    return {x.cosh * x.scale, im};
  }
  T sine, cosine;
  scalar::sincos(z.im, &sine, &cosine);
  if (!is_finite(z.im) && scalar::is_inf(z.re)) return {scalar::fabs(z.re), sine};
  return {x.cosh * cosine * x.scale,
          z.re == 0 && !is_finite(z.im) ? z.re : x.sinh * sine * x.scale};
}

// (sinh cosh(re) + i sin cos(im)) / (sinh^2(re) + cos^2(im)): a sum of positive terms.
template <class T>
JAX_ELEMENTWISE_DEVICE Complex<T> complex_tanh(Complex<T> z) {
  T sine, cosine;
  scalar::sincos(z.im, &sine, &cosine);
  // Where the real part is 1 to the last digit.
  if (scalar::fabs(z.re) > T(scalar::Format<T>::mantissa) * T(0.4)) {
    const T one = scalar::copysign(T(1), z.re);
    if (is_finite(z.im)) {
      const T e = scalar::exp(-scalar::fabs(z.re));
      return {one, T(4) * sine * e * (cosine * e)};
    }
    if (scalar::is_inf(z.re)) return {one, scalar::copysign(T(0), z.im)};
    return {scalar::nan<T>(), scalar::nan<T>()};
  }
  const scalar::Hyperbolic<T> x = scalar::sinh_cosh(z.re);
  // 1 - sin^2 halves the error of a cosine near 1.
  const T square = scalar::fabs(sine) < T(0.5) ? scalar::fma(-sine, sine, T(1)) : cosine * cosine;
  const T denominator = scalar::fma(x.sinh, x.sinh, square);
  return {z.re == 0 ? z.re : x.sinh * x.cosh / denominator,
          z.im == 0 ? z.im : sine * cosine / denominator};
}

// f(z) = -i g(i z), and g is odd and g(conj(z)) = conj(g(z)): that is to swap the components of the
// argument and of the result.
template <class T>
JAX_ELEMENTWISE_DEVICE Complex<T> complex_sin(Complex<T> z) {
  return scalar::swap(complex_sinh(scalar::swap(z)));
}
template <class T>
JAX_ELEMENTWISE_DEVICE Complex<T> complex_tan(Complex<T> z) {
  return scalar::swap(complex_tanh(scalar::swap(z)));
}
template <class T>
JAX_ELEMENTWISE_DEVICE Complex<T> complex_cos(Complex<T> z) {
  return complex_cosh(Complex<T>{-z.im, z.re});
}

// ---- Inverse functions --------------------------------------------------------------------------

namespace scalar {

template <class T>
JAX_ELEMENTWISE_DEVICE bool is_negligible(Complex<T> z) {
  return fabs(z.re) < negligible<T>() && fabs(z.im) < negligible<T>();
}
template <class T>
JAX_ELEMENTWISE_DEVICE bool is_huge(Complex<T> z, T limit) {
  return fabs(z.re) > limit || fabs(z.im) > limit;
}

// What asin and acos share (Kahan, 1987): the roots of 1 + z and 1 - z, for z in the upper half
// plane; no sum of their products cancels.
template <class T>
struct Roots {
  Complex<T> plus, minus;  // minus: the conjugate, in the first quadrant
};
template <class T>
JAX_ELEMENTWISE_DEVICE Roots<T> roots(T re, T im) {
  return {complex_sqrt(Complex<T>{T(1) + re, im}), complex_sqrt(Complex<T>{T(1) - re, im})};
}
// |im(asin(z))| = |im(acos(z))|.
template <class T>
JAX_ELEMENTWISE_DEVICE T height(const Roots<T>& r) {
  return asinh(fma(r.plus.re, r.minus.im, r.plus.im * r.minus.re));
}
template <class T>
JAX_ELEMENTWISE_DEVICE T height_of_huge(Complex<T> z) {
  return log_abs(z) + static_cast<T>(kLn2);
}

}  // namespace scalar

template <class T>
JAX_ELEMENTWISE_DEVICE Complex<T> complex_asin(Complex<T> z) {
  if (scalar::is_negligible(z)) return z;
  const T im = scalar::fabs(z.im);
  if (scalar::is_huge(z, T(1) / scalar::negligible<T>())) {
    return {scalar::atan2(z.re, im), scalar::copysign(scalar::height_of_huge(z), z.im)};
  }
  const scalar::Roots<T> r = scalar::roots(z.re, im);
  const T cosine = scalar::fma(r.plus.re, r.minus.re, r.plus.im * r.minus.im);
  return {z.re == 0 ? z.re : scalar::atan2(z.re, cosine),
          scalar::copysign(scalar::height(r), z.im)};
}

template <class T>
JAX_ELEMENTWISE_DEVICE Complex<T> complex_acos(Complex<T> z) {
  const T im = scalar::fabs(z.im);
  if (scalar::is_huge(z, T(1) / scalar::negligible<T>())) {
    return {scalar::atan2(im, z.re), scalar::copysign(scalar::height_of_huge(z), -z.im)};
  }
  const scalar::Roots<T> r = scalar::roots(z.re, im);
  const T angle =
      z.re == 0 ? static_cast<T>(scalar::kHalfPi) : T(2) * scalar::atan2(r.minus.re, r.plus.re);
  return {angle, scalar::copysign(scalar::height(r), -z.im)};
}

template <class T>
JAX_ELEMENTWISE_DEVICE Complex<T> complex_asinh(Complex<T> z) {
  return scalar::swap(complex_asin(scalar::swap(z)));
}

template <class T>
JAX_ELEMENTWISE_DEVICE Complex<T> complex_acosh(Complex<T> z) {
  const Complex<T> w = complex_acos(z);
  return {scalar::fabs(w.im), scalar::copysign(w.re, z.im)};
}

namespace scalar {

// atanh of what is so large that the real part is that of 1 / z.
template <class T>
JAX_ELEMENTWISE_DEVICE Complex<T> atanh_of_huge(Complex<T> z) {
  const T size = hypot(z.re, z.im);
  const T re = is_inf(size) ? copysign(T(0), z.re) : z.re / size / size;
  return {re, size != size || z.im != z.im ? nan<T>() : copysign(static_cast<T>(kHalfPi), z.im)};
}

}  // namespace scalar

// Kahan's formulae (1987): log1p(4 |re| / |1 - z|^2) / 4, and half the angle of (1 + z) / (1 - z).
template <class T>
JAX_ELEMENTWISE_DEVICE Complex<T> complex_atanh(Complex<T> z) {
  if (scalar::is_negligible(z)) return z;
  if (scalar::is_huge(z, T(8) / scalar::negligible<T>() / scalar::negligible<T>())) {
    return scalar::atanh_of_huge(z);
  }
  const T size = scalar::fabs(z.re), rest = T(1) - size;
  const T angle = T(0.5) * scalar::atan2(z.im + z.im, rest * (T(1) + size) - z.im * z.im);
  if (size == T(1) && scalar::fabs(z.im) < scalar::negligible<T>()) {  // the square may be zero
    const T re = T(0.5) * (static_cast<T>(scalar::kLn2) - scalar::log(scalar::fabs(z.im)));
    return {scalar::copysign(re, z.re), angle};
  }
  const T square = scalar::fma(rest, rest, z.im * z.im);
  const T re = T(0.25) * scalar::log1p(T(4) * size / square);
  return {z.re == 0 ? z.re : scalar::copysign(re, z.re), angle};
}

template <class T>
JAX_ELEMENTWISE_DEVICE Complex<T> complex_atan(Complex<T> z) {
  return scalar::swap(complex_atanh(scalar::swap(z)));
}

}  // namespace jax_elementwise
