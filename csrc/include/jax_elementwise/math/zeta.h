// The Hurwitz zeta function and the polygamma functions, with the meaning that XLA gives them.
//
// Both are Euler and Maclaurin's sum (DLMF 25.11.5, 25.11.28): a few terms, the integral of the
// rest, and corrections of Bernoulli numbers, as many as an error of a tenth of a unit in the last
// place takes for every order and argument whose result is a finite number other than 0.
#pragma once

#include <jax_elementwise/math/special.h>

namespace jax_elementwise {
namespace special {

JAX_ELEMENTWISE_DEVICE float power(float x, float y) { return powf(x, y); }
JAX_ELEMENTWISE_DEVICE float round_down(float x) { return floorf(x); }
JAX_ELEMENTWISE_DEVICE float half_epsilon(float) { return 5.9604645e-08f; }
JAX_ELEMENTWISE_DEVICE float infinity(float) { return bit_cast<float>(0x7f800000u); }
JAX_ELEMENTWISE_DEVICE int zeta_terms(float) { return 4; }
JAX_ELEMENTWISE_DEVICE int largest_factorial(float) { return 34; }

JAX_ELEMENTWISE_DEVICE double power(double x, double y) { return pow(x, y); }
JAX_ELEMENTWISE_DEVICE double round_down(double x) { return floor(x); }
JAX_ELEMENTWISE_DEVICE double half_epsilon(double) { return 1.1102230246251565e-16; }
JAX_ELEMENTWISE_DEVICE double infinity(double) {
  return bit_cast<double>(uint64(0x7ff0000000000000));
}
JAX_ELEMENTWISE_DEVICE int zeta_terms(double) { return 8; }
JAX_ELEMENTWISE_DEVICE int largest_factorial(double) { return 170; }

// The power of two after a positive x, one whose reciprocal is a normal number.
JAX_ELEMENTWISE_DEVICE float power_of_two_after(float x) {
  const uint32 exponent = (bit_cast<uint32>(x) >> 23) + 1;
  return bit_cast<float>((exponent < 253 ? exponent : 253) << 23);
}
JAX_ELEMENTWISE_DEVICE double power_of_two_after(double x) {
  const uint64 exponent = (bit_cast<uint64>(x) >> 52) + 1;
  return bit_cast<double>((exponent < 2045 ? exponent : 2045) << 52);
}

template <class T>
JAX_ELEMENTWISE_DEVICE bool is_integer(T x) {
  return x == round_down(x);
}
template <class T>
JAX_ELEMENTWISE_DEVICE bool is_even(T x) {
  return is_finite(x) && 2 * round_down(x / 2) == x;
}

// Nested sums 1 + quotient (s / a) ((s + 1) / a) (1 + ...), s growing by 2, from 1 / a. The
// quotients are those of B_2k / (2k)! by the one before. Neither s^2 nor a^2 is taken, which may
// overflow.
template <class T>
JAX_ELEMENTWISE_DEVICE T bernoulli_series(T, T) {
  return T(1);
}
template <class T, class... Rest>
JAX_ELEMENTWISE_DEVICE T bernoulli_series(T s, T inverse, T quotient, Rest... rest) {
  const T inner = bernoulli_series(s + 2, inverse, rest...);
  return multiply_add(quotient * (s * inverse) * ((s + 1) * inverse), inner, T(1));
}

// The corrections' sum, but for the factor s / (12 a), from 1 / a. The quotients tend to
// -1 / (4 pi^2) (DLMF 24.8.1, 25.6.2).
JAX_ELEMENTWISE_DEVICE float zeta_corrections(float s, float inverse) {
  return bernoulli_series(s + 1, inverse, -0.016666668f, -0.023809524f, -0.025f);
}
JAX_ELEMENTWISE_DEVICE double zeta_corrections(double s, double inverse) {
  return bernoulli_series(s + 1, inverse, -0.016666666666666666, -0.023809523809523808, -0.025,
                          -0.025252525252525252, -0.02531135531135531, -0.02532561505065123,
                          -0.025329131652661066, -0.025330005504037488);
}

// ((q + k) / unit)^-s. The rounding of q + k would cost s times itself: it is made up for, unless s
// is so large that no result is finite and not 0.
template <class T>
JAX_ELEMENTWISE_DEVICE T zeta_term(T s, T q, T k, T unit) {
  const T a = q + k;
  const T added = a - q;
  const T rounding = (q - (a - added)) + (k - added);
  const T term = power(a / unit, -s);
  return multiply_add(-term, minimum(s * (rounding / a), T(1)), term);
}

// unit^s zeta(s, q) for s > 1 and q > 0, both finite. The unit keeps powers from overflow.
template <class T>
JAX_ELEMENTWISE_DEVICE T zeta_series(T s, T q, T unit) {
  const T first = power(q / unit, -s);
  const T terms = T(zeta_terms(q));
  T rest = 0;
#pragma unroll 1
  for (T k = terms - 1; k > 0; k -= 1) rest += zeta_term(s, q, k, unit);
  // The integral from a on, and the term at a. s - 1 is exact.
  const T a = q + terms;
  const T integrand = zeta_term(s - 1, q, terms, unit);
  const T integral = integrand * unit / (s - 1);
  const T term = integrand / (a / unit);
  // They bound what is left, and the corrections, which diverge for large s / a, are not needed.
  if (!(integral + term > first * half_epsilon(q) / 4)) return first + rest;
  const T inverse = 1 / a;
  const T corrections = s * inverse / 12 * zeta_corrections(s, inverse);
  return first + (rest + (integral + term * (T(0.5) + corrections)));
}

// unit^s zeta(s, q) for finite q, negative ones too, but no poles. Those need an integer s: less
// the terms below 0, which are those of two other series, it is the series from q - floor(q) on.
template <class T>
JAX_ELEMENTWISE_DEVICE T zeta_series_of_any(T s, bool s_is_even, T q, T unit) {
  const T floor = round_down(q);
  const bool is_positive = q > 0;
  const T sign = s_is_even ? T(1) : T(-1);
  T y = is_positive ? q : q - floor;
  T factor = 1;
  T sum = 0;
#pragma unroll 1
  for (int part = is_positive ? 2 : 0; part < 3; ++part) {
    sum += factor * zeta_series(s, y, unit);
    y = part == 0 ? floor + 1 - q : 1 - q;
    factor = part == 0 ? sign : -sign;
  }
  return sum;
}

template <class T>
JAX_ELEMENTWISE_DEVICE bool is_zeta_pole(T q) {
  return q <= 0 && is_integer(q);
}

}  // namespace special

// The sum of (q + k)^-s over k >= 0. As in XLA: infinity for s = 1; at the poles infinity for even
// s and otherwise NaN; NaN for s < 1, for negative q unless s is an integer, and for infinities.
template <class T>
JAX_ELEMENTWISE_DEVICE T zeta(T s, T q) {
  if (s == 1) return special::infinity(s);
  if (special::is_zeta_pole(q) && special::is_even(s)) return special::infinity(s);
  if (!(s > 1) || !is_finite(s) || !is_finite(q) || special::is_zeta_pole(q) ||
      (q < 0 && !special::is_integer(s))) {
    return special::not_a_number(s);
  }
  return special::zeta_series_of_any(s, special::is_even(s), q, T(1));
}

// The derivative of order n of digamma: (-1)^(n + 1) n! zeta(n + 1, x) (DLMF 25.11.12). NaN unless
// n is an integer and not negative.
template <class T>
JAX_ELEMENTWISE_DEVICE T polygamma(T n, T x) {
  if (n == 0) return digamma(x);
  const T s = n + 1;
  const bool s_is_even = !special::is_even(n);  // n + 1 may be rounded to n
  const T sign = s_is_even ? T(1) : T(-1);
  const bool is_pole = special::is_zeta_pole(x);
  if (!(n > 0) || !is_finite(s) || !special::is_integer(n) || (is_pole && !s_is_even)) {
    return special::not_a_number(x);
  }
  if (is_pole) return sign * special::infinity(x);
  if (!is_finite(x)) return special::not_a_number(x);
  // In units of about the distance from the nearest pole the series is not much more than 1.
  const T floor = special::round_down(x);
  const T distance = x > 0 ? x : minimum(x - floor, floor + 1 - x);
  if (n <= T(special::largest_factorial(x))) {
    const T unit = special::power_of_two_after(distance);
    const T inverse = 1 / unit;
    const T series = special::zeta_series_of_any(s, s_is_even, x, unit);
    // As exact as n! itself, and no smaller than the result.
    const T magnitude = special::power_of_two_after(special::magnitude(series));
    T factorial = magnitude * inverse;
#pragma unroll 1
    for (T k = 1; k <= n; k += 1) factorial *= k * inverse;
    return sign * (series / magnitude) * factorial;
  }
  // By Stirling's formula (DLMF 5.11.1), n! = Gamma(s); half the logarithm of 2 pi is 0.9189...
  const T inverse = 1 / s;
  const T correction =
      special::polynomial(inverse * inverse, T(1.0 / 1260), T(-1.0 / 360), T(1.0 / 12)) * inverse;
  const T exponent = s * (special::logarithm(s / distance) - 1) +
                     (correction - special::logarithm(s) / 2 + T(0.9189385332046728));
  return sign * special::zeta_series_of_any(s, s_is_even, x, distance) *
         special::exponential(exponent);
}

}  // namespace jax_elementwise
