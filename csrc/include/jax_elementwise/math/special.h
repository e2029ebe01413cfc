// Special functions that <math.h> lacks, with the meaning that XLA gives them, in straight lines:
// no loop, and branches only between ranges of the argument.
//
// Every polynomial is a minimax fit of relative error (Remez exchange in 40 digits) whose
// coefficients were rounded one after another, from the constant on, the others fitted anew each
// time. The formulas are those of the NIST Digital Library of Mathematical Functions (DLMF).
#pragma once

#include <jax_elementwise/math/math.h>

namespace jax_elementwise {
namespace special {

// <math.h> by one name for both types.
JAX_ELEMENTWISE_DEVICE float magnitude(float x) { return fabsf(x); }
JAX_ELEMENTWISE_DEVICE float nearest_integer(float x) { return rintf(x); }
JAX_ELEMENTWISE_DEVICE float logarithm(float x) { return logf(x); }
JAX_ELEMENTWISE_DEVICE float square_root(float x) { return sqrtf(x); }
JAX_ELEMENTWISE_DEVICE float exponential(float x) { return expf(x); }
JAX_ELEMENTWISE_DEVICE float multiply_add(float x, float y, float z) { return fmaf(x, y, z); }
JAX_ELEMENTWISE_DEVICE float not_a_number(float) { return bit_cast<float>(0x7fc00000u); }

JAX_ELEMENTWISE_DEVICE double magnitude(double x) { return fabs(x); }
JAX_ELEMENTWISE_DEVICE double nearest_integer(double x) { return rint(x); }
JAX_ELEMENTWISE_DEVICE double logarithm(double x) { return log(x); }
JAX_ELEMENTWISE_DEVICE double square_root(double x) { return sqrt(x); }
JAX_ELEMENTWISE_DEVICE double exponential(double x) { return exp(x); }
JAX_ELEMENTWISE_DEVICE double multiply_add(double x, double y, double z) { return fma(x, y, z); }
JAX_ELEMENTWISE_DEVICE double not_a_number(double) {
  return bit_cast<double>(uint64(0x7ff8000000000000));
}

// Horner's scheme, the coefficient of the highest power first.
template <class T, class... Rest>
JAX_ELEMENTWISE_DEVICE T polynomial(T x, T leading, Rest... rest) {
  T p = leading;
  ((p = multiply_add(p, x, rest)), ...);
  return p;
}

// Up to here I_n is summed in powers of x^2 (DLMF 10.25.2), beyond in powers of 1 / x.
JAX_ELEMENTWISE_DEVICE bool is_bessel_series(float x) { return x < 6.0f; }

// (I_0(x) - 1) / x^2 for square = x^2, and, roughly, how fast the logarithm of I_0 grows with x^2.
JAX_ELEMENTWISE_DEVICE float bessel_i0_series(float square) {
  return polynomial(square, 1.4529776e-14f, 2.0824787e-12f, 4.8107074e-10f, 6.763928e-08f,
                    6.7834185e-06f, 0.0004340189f, 0.01562502f, 0.24999999f);
}
JAX_ELEMENTWISE_DEVICE float bessel_i0_growth(float x) { return polynomial(x, -0.0194f, 0.19f); }

// The same of I_1(x) / x, which is 1/2 at 0.
JAX_ELEMENTWISE_DEVICE float bessel_i1_series(float square) {
  return polynomial(square, 7.733332e-16f, 1.346611e-13f, 3.4121664e-11f, 5.643191e-09f,
                    6.782439e-07f, 5.4253134e-05f, 0.0026041672f, 0.0625f);
}
JAX_ELEMENTWISE_DEVICE float bessel_i1_growth(float x) { return polynomial(x, -0.00995f, 0.123f); }

// sqrt(x) exp(-x) I_n(x) for inverse = 1 / x. At infinity that is 1 / sqrt(2 pi) (DLMF 10.40.1), in
// two parts lest its rounding be an error of every result.
JAX_ELEMENTWISE_DEVICE float bessel_i0_tail(float inverse) {
  const float p = polynomial(inverse, -148.71167f, 87.556274f, -18.925638f, 2.2368076f,
                             -0.08627191f, 0.033478823f, 0.027985118f, 0.049868125f);
  return 0.3989423f + multiply_add(p, inverse, -1.133517e-08f);
}
JAX_ELEMENTWISE_DEVICE float bessel_i1_tail(float inverse) {
  const float p = polynomial(inverse, 162.91902f, -96.84866f, 21.084133f, -2.5237956f, 0.09111538f,
                             -0.045787483f, -0.046675164f, -0.14960375f);
  return 0.3989423f + multiply_add(p, inverse, -1.133517e-08f);
}

// psi(x) for x in [1, 2], given x - offset: x less its positive root, in two parts, times a fit of
// the quotient.
JAX_ELEMENTWISE_DEVICE float digamma_near_root(float x, float offset) {
  const float distance = (x - (1.4616321f - offset)) - 1.243815e-08f;
  return distance * polynomial(distance, 0.03165145f, -0.030037684f, 0.012402199f, -0.027348978f,
                               0.05064809f, -0.07306619f, 0.107684374f, -0.16389345f, 0.25850353f,
                               -0.44276392f, 0.9676722f);
}

// (log(x) - 1 / (2 x) - psi(x)) x^2 for x >= 2 and z = 1 / x^2: a fit where DLMF 5.11.2 has
// Bernoulli numbers, whose series is not good enough below 6.
JAX_ELEMENTWISE_DEVICE float digamma_tail(float z) {
  return polynomial(z, 0.002473544f, -0.003404619f, 0.003913046f, -0.008331879f, 0.08333333f);
}

// pi r cot(pi r) (1 - r^2) / (1 - 4 r^2) for r in [-1/2, 1/2] and w = r^2: the zeros at 1/2 and the
// poles at 1 taken out (DLMF 4.22.3), what is left is nearly a constant.
JAX_ELEMENTWISE_DEVICE float cotangent_fit(float w) {
  return polynomial(w, -0.0019143502f, -0.006982932f, -0.03425602f, -0.289868f, 1.0f);
}

// The same fits for double.
JAX_ELEMENTWISE_DEVICE bool is_bessel_series(double x) { return x < 10.0; }

JAX_ELEMENTWISE_DEVICE double bessel_i0_series(double square) {
  return polynomial(square, 1.0190481432430477e-36, 3.6059982984458494e-34, 5.29629099126176e-31,
                    3.7876797029650336e-28, 2.6031761364979734e-25, 1.4959590326889119e-22,
                    7.242449535006763e-20, 2.8968962850958234e-17, 9.385968909735227e-15,
                    2.402807512489941e-12, 4.709502802036528e-10, 6.781684027333189e-08,
                    6.781684027802675e-06, 0.00043402777777769893, 0.015625000000000118,
                    0.24999999999999994);
}
JAX_ELEMENTWISE_DEVICE double bessel_i0_growth(double x) { return polynomial(x, -0.0088, 0.133); }

JAX_ELEMENTWISE_DEVICE double bessel_i1_series(double square) {
  return polynomial(square, 2.980006963899121e-38, 1.1403357723051735e-35, 1.7607050506807338e-32,
                    1.3537261195127404e-29, 1.0010864212021692e-26, 6.233292044400524e-24,
                    3.292013649343077e-21, 1.4484485824238063e-18, 5.214427014008463e-16,
                    1.5017546993807638e-13, 3.3639305721449933e-11, 5.651403356201887e-09,
                    6.781684027795462e-07, 5.4253472222215755e-05, 0.0026041666666666782,
                    0.06249999999999999);
}
JAX_ELEMENTWISE_DEVICE double bessel_i1_growth(double x) { return polynomial(x, -0.00574, 0.0989); }

JAX_ELEMENTWISE_DEVICE double bessel_i0_tail(double inverse) {
  const double p = polynomial(
      inverse, 442482283453570.6, -427864038414385.44, 189058334346519.56, -50613034933598.89,
      9182940218954.178, -1197349601054.439, 116123018827.58105, -8552551573.412649,
      484046558.38957214, -21158285.140655536, 713847.918424136, -18458.584851118852,
      364.3777316778016, -4.5793820983779225, 0.28369762169248, 0.0902023952286029,
      0.044744085595331946, 0.029219400268408524, 0.02805062909698275, 0.04986778505017717);
  return 0.3989422804014327 + multiply_add(p, inverse, -2.49232720227773e-17);
}
JAX_ELEMENTWISE_DEVICE double bessel_i1_tail(double inverse) {
  const double p = polynomial(
      inverse, -463400808990984.0, 449173447985739.94, -198997786187293.1, 53428177278203.13,
      -9724680079768.336, 1272488781969.998, -123901098162.90492, 9166431499.836111,
      -521452903.7557303, 22928534.738193955, -778949.2724705706, 20308.55265678577,
      -404.9927651062188, 5.133601744403299, -0.3331707806692527, -0.11026863587622678,
      -0.05752796314882928, -0.04090716102222348, -0.04675104849335436, -0.14960335515053355);
  return 0.3989422804014327 + multiply_add(p, inverse, -2.49232720227773e-17);
}

JAX_ELEMENTWISE_DEVICE double digamma_near_root(double x, double offset) {
  const double distance = (x - (1.4616321449683622 - offset)) - 9.549995429965697e-17;
  return distance * polynomial(distance, -0.00026762781033720835, 0.0004868806435277106,
                               -0.0003196579451420198, 0.0003298925373252578,
                               -0.0007256771107590898, 0.0011426891399134221, -0.001585714808438226,
                               0.0022911392690321093, -0.003367502615162645, 0.0049287161806690705,
                               -0.007204864003810802, 0.010538621183021507, -0.015424738179228641,
                               0.022597657561465676, -0.033161127824570646, 0.04880428786613062,
                               -0.07219956122122942, 0.10782405069616023, -0.1639427054428205,
                               0.25849976095561944, -0.4427631689835907, 0.9676722454476212);
}

JAX_ELEMENTWISE_DEVICE double digamma_tail(double z) {
  return polynomial(z, -5646.806054958867, 13102.455154518397, -14079.084952991256,
                    9320.621546583128, -4272.554156459485, 1448.6560932068367, -380.8021311966863,
                    81.04471834835063, -14.714104663233833, 2.4550647375207637,
                    -0.41838302442901404, 0.08253889653330349, -0.021074387649279235,
                    0.007575468782617414, -0.004166663883349734, 0.00396825395420675,
                    -0.008333333333306674, 0.08333333333333333);
}

JAX_ELEMENTWISE_DEVICE double cotangent_fit(double w) {
  return polynomial(w, -2.101598267296449e-06, -5.79155109936369e-06, -2.46087214561067e-05,
                    -9.852963776792132e-05, -0.0003988829764008881, -0.0016411106726358024,
                    -0.0070431305979123116, -0.034250868511547926, -0.2898681336964534, 1.0);
}

// exp(-x) (constant + quotient x^2), the sum being one of the series above. Rounding x^2 shifts it
// by up to x / 2 units in its last place, which goes into the constant: a small part of a large
// sum.
template <class T>
JAX_ELEMENTWISE_DEVICE T scaled_series(T x, T square, T constant, T quotient, T growth) {
  const T rounding = multiply_add(x, x, -square);
  const T sum = multiply_add(quotient, square, constant);
  const T shifted = multiply_add(sum, rounding * growth, constant);
  return multiply_add(quotient, square, shifted) * exponential(-x);
}

}  // namespace special

// exp(-|x|) I_0(x).
template <class T>
JAX_ELEMENTWISE_DEVICE T bessel_i0e(T x) {
  x = special::magnitude(x);
  if (special::is_bessel_series(x)) {
    const T square = x * x;
    const T quotient = special::bessel_i0_series(square);
    const T growth = special::bessel_i0_growth(x);
    return special::scaled_series(x, square, T(1), quotient, growth);
  }
  const T root = 1 / special::square_root(x);
  return special::bessel_i0_tail(root * root) * root;
}

// exp(-|x|) I_1(x).
template <class T>
JAX_ELEMENTWISE_DEVICE T bessel_i1e(T x) {
  const T magnitude = special::magnitude(x);
  if (special::is_bessel_series(magnitude)) {
    const T square = magnitude * magnitude;
    const T quotient = special::bessel_i1_series(square);
    const T growth = special::bessel_i1_growth(magnitude);
    return special::scaled_series(magnitude, square, T(0.5), quotient, growth) * x;
  }
  const T root = 1 / special::square_root(magnitude);
  const T y = special::bessel_i1_tail(root * root) * root;
  return x < 0 ? -y : y;
}

// psi(x), the logarithmic derivative of the gamma function: -inf at 0 of either sign, as in XLA
// since JAX 0.11, NaN at its other poles and at -inf.
template <class T>
JAX_ELEMENTWISE_DEVICE T digamma(T x) {
  const T magnitude = special::magnitude(x);
  // Below 1 it is psi(1 + |x|) less a pole term: by DLMF 5.5.2 that is 1 / x, and for negative x by
  // DLMF 5.5.4 pi cot(pi x) = pi cot(pi r), where r = x - (the nearest integer) is exact.
  const bool is_below_one = x < 1;
  T numerator = is_below_one ? T(1) : T(0);
  T denominator = is_below_one ? x : T(1);
  if (x < 0) {
    const T r = x - special::nearest_integer(x);
    const T w = r * r;
    numerator = special::multiply_add(2 * r, -2 * r, T(1)) * special::cotangent_fit(w);
    denominator = r - r * w;
  }
  if (magnitude == 0) return -1 / magnitude;
  if (denominator == 0) return special::not_a_number(x);
  const T pole = numerator / denominator;
  const T y = is_below_one ? 1 + magnitude : x;
  if (y < 2) {
    // From |x| itself, not from the rounded 1 + |x|.
    const T offset = is_below_one ? T(1) : T(0);
    return special::digamma_near_root(is_below_one ? magnitude : x, offset) - pole;
  }
  const T inverse = 1 / y;
  const T z = inverse * inverse;
  return special::logarithm(y) - (special::digamma_tail(z) * z + inverse / 2) - pole;
}

// log(|Gamma(x)|), which <math.h> has with the special values of XLA: infinity at the poles, 0
// included, and at both infinities.
JAX_ELEMENTWISE_DEVICE float lgamma(float x) { return ::lgammaf(x); }
JAX_ELEMENTWISE_DEVICE double lgamma(double x) { return ::lgamma(x); }

}  // namespace jax_elementwise
