// Scalar operations that C++ lacks or leaves undefined, with the meaning that XLA gives them.
//
// Everything else in generated code is a C operator or a function of <math.h> by its usual name,
// which CUDA declares without any header.
#pragma once

#include <jax_elementwise/dtypes.h>
#include <jax_elementwise/math/integer.h>

namespace jax_elementwise {

// Quotient of two values that will be rounded to a 16-bit float: within 2 ulp of float32 over the
// full range, which an IEEE division would only make slower (bf16 silu on an H200 was bound by
// arithmetic with it, at half the bandwidth).
JAX_ELEMENTWISE_DEVICE float divide_for_narrow(float x, float y) {
#if defined(__CUDA_ARCH__)
  float quotient;
  asm("div.full.f32 %0, %1, %2;" : "=f"(quotient) : "f"(x), "f"(y));
  return quotient;
#else
  return x / y;
#endif
}

// erfc of a value that will be rounded to a 16-bit float: relative error below 2e-5 down to the
// smallest bfloat16, in fewer instructions than erfcf. erfc(|x|) = t exp(-x^2 + P(t)) with
// t = 1 / (1 + |x| / 2) (the substitution of Press et al., Numerical Recipes, section 6.2); P is a
// minimax fit of degree 5 on |x| < 10.5, to the base 2.
JAX_ELEMENTWISE_DEVICE float erfc_for_narrow(float x) {
  const float magnitude = fabsf(x);
  const float t = divide_for_narrow(1.0f, 0.5f * magnitude + 1.0f);
  float p = 3.30076277e-01f;
  p = p * t + -1.02315116e+00f;
  p = p * t + 6.84554935e-01f;
  p = p * t + 3.67080688e-01f;
  p = p * t + 1.46868396e+00f;
  p = p * t + -1.82723355e+00f;
  const float tail = t * exp2f(p - magnitude * magnitude * 0x1.715476p+0f);  // log2(e)
  return x < 0 ? 2.0f - tail : tail;
}

// 1 / (1 + exp(-x)), with an exponential that cannot overflow.
JAX_ELEMENTWISE_DEVICE float logistic(float x) {
  const float e = expf(-fabsf(x));
  return (x < 0 ? e : 1.0f) / (1.0f + e);
}
JAX_ELEMENTWISE_DEVICE double logistic(double x) {
  const double e = exp(-fabs(x));
  return (x < 0 ? e : 1.0) / (1.0 + e);
}
JAX_ELEMENTWISE_DEVICE float logistic_for_narrow(float x) {
  const float e = expf(-fabsf(x));
  return divide_for_narrow(x < 0 ? e : 1.0f, 1.0f + e);
}

// The larger and the smaller of two values. NaN in either is the result, and 0 is larger than -0.
template <class T>
JAX_ELEMENTWISE_DEVICE bool is_negative(T x) {
  return x < T(0);
}
JAX_ELEMENTWISE_DEVICE bool is_negative(float x) { return bit_cast<uint32>(x) >> 31; }
JAX_ELEMENTWISE_DEVICE bool is_negative(double x) { return bit_cast<uint64>(x) >> 63; }

template <class T>
JAX_ELEMENTWISE_DEVICE T maximum(T x, T y) {
  if (x == y) return is_negative(x) ? y : x;
  return x != x || x > y ? x : y;
}
template <class T>
JAX_ELEMENTWISE_DEVICE T minimum(T x, T y) {
  if (x == y) return is_negative(x) ? x : y;
  return x != x || x < y ? x : y;
}
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
JAX_ELEMENTWISE_DEVICE float maximum(float x, float y) {
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(x), "f"(y));
  return result;
}
JAX_ELEMENTWISE_DEVICE float minimum(float x, float y) {
  float result;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(x), "f"(y));
  return result;
}
#endif

template <class T>
JAX_ELEMENTWISE_DEVICE T clamp(T low, T x, T high) {
  return minimum(maximum(low, x), high);
}

// NaN and zeros of either sign are their own sign.
template <class T>
JAX_ELEMENTWISE_DEVICE T sign(T x) {
  if (x > T(0)) return T(1);
  return x < T(0) ? T(-1) : x;
}

template <class T>
JAX_ELEMENTWISE_DEVICE bool is_finite(T x) {
  return x - x == T(0);
}

// x^N by squaring, in the order of multiplications that XLA uses.
template <int N, class T>
JAX_ELEMENTWISE_DEVICE T power_by_squaring(T x) {
  if constexpr (N == 0) {
    return T(1);
  } else if constexpr (N == 1) {
    return x;
  } else if constexpr (N % 2 == 0) {
    return power_by_squaring<N / 2>(x * x);
  } else {
    return x * power_by_squaring<N / 2>(x * x);
  }
}
template <int N, class T>
JAX_ELEMENTWISE_DEVICE T integer_pow(T x) {
  return power_by_squaring<N>(x);
}
template <int N, class T>
JAX_ELEMENTWISE_DEVICE T integer_pow_wrapping(T x) {
  return static_cast<T>(power_by_squaring<N>(static_cast<Modular<T>>(x)));
}

}  // namespace jax_elementwise
