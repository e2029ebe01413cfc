// Scalar operations that C++ lacks or leaves undefined, with the meaning that XLA gives them.
//
// Everything else in generated code is a C operator or a function of <math.h> by its usual name,
// which CUDA declares without any header.
#pragma once

#include <jax_elementwise/dtypes.h>

namespace jax_elementwise {

// Integers wrap around. Signed overflow is undefined in C++, hence the detour.
JEW_DEVICE int wrap_add(int x, int y) {
  return static_cast<int>(static_cast<uint32>(x) + static_cast<uint32>(y));
}
JEW_DEVICE int wrap_sub(int x, int y) {
  return static_cast<int>(static_cast<uint32>(x) - static_cast<uint32>(y));
}
JEW_DEVICE int wrap_mul(int x, int y) {
  return static_cast<int>(static_cast<uint32>(x) * static_cast<uint32>(y));
}
JEW_DEVICE uint32 wrap_add(uint32 x, uint32 y) { return x + y; }
JEW_DEVICE uint32 wrap_sub(uint32 x, uint32 y) { return x - y; }
JEW_DEVICE uint32 wrap_mul(uint32 x, uint32 y) { return x * y; }

// x / 0 is -1 (all bits set) and INT_MIN / -1 is INT_MIN; the remainders are x and 0.
JEW_DEVICE int divide(int x, int y) {
  if (y == 0) return -1;
  return y == -1 ? wrap_sub(0, x) : x / y;
}
JEW_DEVICE uint32 divide(uint32 x, uint32 y) { return y == 0 ? ~uint32{0} : x / y; }
JEW_DEVICE int remainder(int x, int y) {
  if (y == 0) return x;
  return y == -1 ? 0 : x % y;
}
JEW_DEVICE uint32 remainder(uint32 x, uint32 y) { return y == 0 ? x : x % y; }

// Quotient of two values that will be rounded to a 16-bit float: within 2 ulp of float32 over the
// full range, which an IEEE division would only make slower (bf16 silu on an H200 was bound by
// arithmetic with it, at half the bandwidth).
JEW_DEVICE float divide_for_half(float x, float y) {
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
JEW_DEVICE float erfc_for_half(float x) {
  const float magnitude = fabsf(x);
  const float t = divide_for_half(1.0f, 0.5f * magnitude + 1.0f);
  float p = 3.30076277e-01f;
  p = p * t + -1.02315116e+00f;
  p = p * t + 6.84554935e-01f;
  p = p * t + 3.67080688e-01f;
  p = p * t + 1.46868396e+00f;
  p = p * t + -1.82723355e+00f;
  const float tail = t * exp2f(p - magnitude * magnitude * 0x1.715476p+0f);  // log2(e)
  return x < 0 ? 2.0f - tail : tail;
}

// A NaN in either operand is the result.
template <class T>
JEW_DEVICE T maximum(T x, T y) {
  return x != x || x > y ? x : y;
}
template <class T>
JEW_DEVICE T minimum(T x, T y) {
  return x != x || x < y ? x : y;
}

template <class T>
JEW_DEVICE T clamp(T low, T x, T high) {
  return minimum(maximum(low, x), high);
}

// NaN and zeros of either sign are their own sign.
template <class T>
JEW_DEVICE T sign(T x) {
  if (x > T(0)) return T(1);
  return x < T(0) ? T(-1) : x;
}

template <class T>
JEW_DEVICE bool is_finite(T x) {
  return x - x == T(0);
}

// x^N by squaring, in the order of multiplications that XLA uses.
template <int N, class T>
JEW_DEVICE T integer_pow(T x) {
  if constexpr (N == 0) {
    return T(1);
  } else if constexpr (N == 1) {
    return x;
  } else if constexpr (N % 2 == 0) {
    return integer_pow<N / 2>(x * x);
  } else {
    return x * integer_pow<N / 2>(x * x);
  }
}
template <int N>
JEW_DEVICE int integer_pow(int x) {
  return static_cast<int>(integer_pow<N>(static_cast<uint32>(x)));
}

// Conversion between the types that are computed in, as lax.convert_element_type does it: integers
// wrap, floats truncate towards zero and saturate, NaN becomes 0, and all but 0 is true.
template <class To, class From>
struct Convert {
  static JEW_DEVICE To apply(From x) { return static_cast<To>(x); }
};
template <class From>
struct Convert<bool, From> {
  static JEW_DEVICE bool apply(From x) { return x != From(0); }
};
template <class From>
struct SaturatingToInt {
  static JEW_DEVICE int apply(From x) {
    if (x >= From(2147483648.0)) return 2147483647;
    if (x <= From(-2147483648.0)) return -2147483647 - 1;
    return x == x ? static_cast<int>(x) : 0;
  }
};
template <>
struct Convert<int, float> : SaturatingToInt<float> {};
template <>
struct Convert<int, double> : SaturatingToInt<double> {};

template <class To, class From>
JEW_DEVICE To convert(From x) {
  return Convert<To, From>::apply(x);
}

}  // namespace jax_elementwise
