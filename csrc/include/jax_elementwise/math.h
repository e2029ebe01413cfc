// Scalar operations that C++ lacks or leaves undefined, with the meaning that XLA gives them.
//
// Everything else in generated code is a C operator or a function of <math.h> by its usual name,
// which CUDA declares without any header.
#pragma once

#include <jax_elementwise/dtypes.h>

namespace jax_elementwise {

// Integers wrap around. Signed overflow is undefined in C++, hence the detour.
template <class T>
JEW_DEVICE T wrap_add(T x, T y) {
  return static_cast<T>(static_cast<Unsigned<T>>(x) + static_cast<Unsigned<T>>(y));
}
template <class T>
JEW_DEVICE T wrap_sub(T x, T y) {
  return static_cast<T>(static_cast<Unsigned<T>>(x) - static_cast<Unsigned<T>>(y));
}
template <class T>
JEW_DEVICE T wrap_mul(T x, T y) {
  return static_cast<T>(static_cast<Unsigned<T>>(x) * static_cast<Unsigned<T>>(y));
}

template <class T>
JEW_DEVICE T negate(T x) {
  return wrap_sub(T(0), x);
}
template <class T>
JEW_DEVICE T absolute(T x) {
  return x < T(0) ? negate(x) : x;
}
template <class T>
JEW_DEVICE T one_minus_square(T x) {
  return wrap_mul(wrap_add(T(1), x), wrap_sub(T(1), x));
}

// x / 0 has all bits set (-1 where there is a sign), and the smallest integer by -1 is itself; the
// remainders are x and 0.
template <class T>
JEW_DEVICE bool is_minus_one(T x) {
  return T(-1) < T(0) && x == T(-1);
}
template <class T>
JEW_DEVICE T divide(T x, T y) {
  if (y == 0) return T(-1);
  return is_minus_one(y) ? negate(x) : x / y;
}
template <class T>
JEW_DEVICE T remainder(T x, T y) {
  if (y == 0) return x;
  return is_minus_one(y) ? T(0) : x % y;
}

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

// 1 / (1 + exp(-x)), with an exponential that cannot overflow.
JEW_DEVICE float logistic(float x) {
  const float e = expf(-fabsf(x));
  return (x < 0 ? e : 1.0f) / (1.0f + e);
}
JEW_DEVICE double logistic(double x) {
  const double e = exp(-fabs(x));
  return (x < 0 ? e : 1.0) / (1.0 + e);
}
JEW_DEVICE float logistic_for_half(float x) {
  const float e = expf(-fabsf(x));
  return divide_for_half(x < 0 ? e : 1.0f, 1.0f + e);
}

// The larger and the smaller of two values. NaN in either is the result, and 0 is larger than -0.
template <class T>
JEW_DEVICE bool is_negative(T x) {
  return x < T(0);
}
JEW_DEVICE bool is_negative(float x) { return bit_cast<uint32>(x) >> 31; }
JEW_DEVICE bool is_negative(double x) { return bit_cast<uint64>(x) >> 63; }

template <class T>
JEW_DEVICE T maximum(T x, T y) {
  if (x == y) return is_negative(x) ? y : x;
  return x != x || x > y ? x : y;
}
template <class T>
JEW_DEVICE T minimum(T x, T y) {
  if (x == y) return is_negative(x) ? x : y;
  return x != x || x < y ? x : y;
}
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
JEW_DEVICE float maximum(float x, float y) {
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(x), "f"(y));
  return result;
}
JEW_DEVICE float minimum(float x, float y) {
  float result;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(x), "f"(y));
  return result;
}
#endif

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
template <int N>
JEW_DEVICE int64 integer_pow(int64 x) {
  return static_cast<int64>(integer_pow<N>(static_cast<uint64>(x)));
}

// The nearest value with that many bits of exponent and mantissa, to nearest even. As in XLA, what
// is too small for a normal number of that format becomes a zero of its sign.
template <int Exponent, int Mantissa>
JEW_DEVICE float reduce_precision(float x) {
  if (!is_finite(x)) return x;
  constexpr int dropped = 23 - Mantissa;
  const uint32 bits = bit_cast<uint32>(x);
  const uint32 sign = bits & 0x80000000u;
  uint32 magnitude = bits & 0x7fffffffu;
  if constexpr (dropped > 0) {
    const uint32 half = (1u << (dropped - 1)) - 1u + ((magnitude >> dropped) & 1u);
    magnitude = (magnitude + half) & ~((1u << dropped) - 1u);
  }
  constexpr uint32 bias = (1u << (Exponent - 1)) - 1u;
  constexpr uint32 too_large = (127u + bias + 1u) << 23;
  if (magnitude >= too_large) return bit_cast<float>(sign | 0x7f800000u);
  if constexpr (Exponent < 8) {
    constexpr uint32 smallest = (127u - bias + 1u) << 23;
    if (magnitude < smallest) magnitude = 0;
  }
  return bit_cast<float>(sign | magnitude);
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
template <class To, class From>
struct Saturate {
  static JEW_DEVICE To apply(From x) {
    constexpr bool is_signed = To(-1) < To(0);
    constexpr To largest = static_cast<To>(~Unsigned<To>(0) >> is_signed);
    constexpr To smallest = static_cast<To>(~largest);
    // 2^(bits of a magnitude): the first float that is too large, and exact as one.
    constexpr From limit = static_cast<From>(largest / 2 + 1) * From(2);
    if (x >= limit) return largest;
    if (x <= (is_signed ? -limit : From(0))) return smallest;
    return x == x ? static_cast<To>(x) : To(0);
  }
};
template <>
struct Convert<int, float> : Saturate<int, float> {};
template <>
struct Convert<int, double> : Saturate<int, double> {};
template <>
struct Convert<int64, float> : Saturate<int64, float> {};
template <>
struct Convert<int64, double> : Saturate<int64, double> {};
template <>
struct Convert<uint32, float> : Saturate<uint32, float> {};
template <>
struct Convert<uint32, double> : Saturate<uint32, double> {};
template <>
struct Convert<uint64, float> : Saturate<uint64, float> {};
template <>
struct Convert<uint64, double> : Saturate<uint64, double> {};

// A float to round once more to a 16-bit float, with the result of rounding the double at once:
// what float32 cannot hold makes the last bit odd (Boldo & Melquiond, "Emulation of FMA and
// correctly rounded sums: proved algorithms using rounding to odd", 2008).
JEW_DEVICE float round_to_odd(double x) {
  const float nearest = static_cast<float>(x);
  const double error = x - static_cast<double>(nearest);
  if (!(error != 0) || !is_finite(nearest)) return nearest;
  const uint32 bits = bit_cast<uint32>(nearest);
  const bool away_from_zero = (error < 0) != is_negative(nearest);
  return bit_cast<float>((bits - away_from_zero) | 1u);
}

template <class To, class From>
JEW_DEVICE To convert(From x) {
  return Convert<To, From>::apply(x);
}

}  // namespace jax_elementwise
