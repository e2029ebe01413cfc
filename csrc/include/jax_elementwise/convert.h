// Conversions between the types that are computed in, and changes of a value's representation.
#pragma once

#include <jax_elementwise/math/math.h>

namespace jax_elementwise {

// As lax.convert_element_type does it: integers wrap, floats truncate towards zero and saturate,
// NaN becomes 0, and all but 0 is true.
template <class T>
JAX_ELEMENTWISE_DEVICE constexpr bool has_fractions() {
  return T(0.5) != T(0) && T(0.5) != T(1);
}

template <class To, class From>
JAX_ELEMENTWISE_DEVICE To saturate(From x) {
  constexpr To largest = static_cast<To>(Unsigned<To>(~Unsigned<To>(0)) >> is_signed<To>());
  constexpr To smallest = static_cast<To>(~largest);
  // 2^(bits of a magnitude): the first float that is too large, and exact as one.
  constexpr From limit = static_cast<From>(largest / 2 + 1) * From(2);
  if (x >= limit) return largest;
  if (x <= (is_signed<To>() ? -limit : From(0))) return smallest;
  return x == x ? static_cast<To>(x) : To(0);
}

template <class To, class From>
struct Convert {
  static JAX_ELEMENTWISE_DEVICE To apply(From x) {
    if constexpr (has_fractions<From>() && !has_fractions<To>()) {
      return saturate<To>(x);
    } else {
      return static_cast<To>(x);
    }
  }
};
template <class From>
struct Convert<bool, From> {
  static JAX_ELEMENTWISE_DEVICE bool apply(From x) { return x != From(0); }
};

template <class To, class From>
JAX_ELEMENTWISE_DEVICE To convert(From x) {
  return Convert<To, From>::apply(x);
}

// What a user's C++ gives, where an integer is declared: a float becomes one as above, while C++
// leaves undefined what is out of bounds.
template <class To, class From>
JAX_ELEMENTWISE_DEVICE To to_integer(From x) {
  return static_cast<To>(x);
}
template <class To>
JAX_ELEMENTWISE_DEVICE To to_integer(float x) {
  return saturate<To>(x);
}
template <class To>
JAX_ELEMENTWISE_DEVICE To to_integer(double x) {
  return saturate<To>(x);
}

// A float to round once more to a narrow float, with the result of rounding the double at once:
// what float32 cannot hold makes the last bit odd (Boldo & Melquiond, "Emulation of FMA and
// correctly rounded sums: proved algorithms using rounding to odd", 2008).
JAX_ELEMENTWISE_DEVICE float round_to_odd(double x) {
  const float nearest = static_cast<float>(x);
  const double error = x - static_cast<double>(nearest);
  if (!(error != 0) || !is_finite(nearest)) return nearest;
  const uint32 bits = bit_cast<uint32>(nearest);
  const bool away_from_zero = (error < 0) != is_negative(nearest);
  return bit_cast<float>((bits - away_from_zero) | 1u);
}

// The layout of a float: bits of its mantissa and the largest biased exponent.
template <class T>
struct Layout;
template <>
struct Layout<float> {
  static constexpr int kMantissa = 23, kExponent = 8;
};
template <>
struct Layout<double> {
  static constexpr int kMantissa = 52, kExponent = 11;
};

// The nearest value with that many bits of exponent and mantissa, to nearest even. As in XLA, what
// is too small for a normal number of that format becomes a zero of its sign.
template <int Exponent, int Mantissa, class T>
JAX_ELEMENTWISE_DEVICE T reduce_precision(T x) {
  if (!is_finite(x)) return x;
  using Bits = Unsigned<T>;
  using L = Layout<T>;
  constexpr int dropped = L::kMantissa - Mantissa;
  const Bits bits = bit_cast<Bits>(x);
  const Bits sign = bits & (Bits(1) << (bits_of<T>() - 1));
  Bits magnitude = bits ^ sign;
  if constexpr (dropped > 0) {
    const Bits half = (Bits(1) << (dropped - 1)) - 1 + ((magnitude >> dropped) & 1);
    magnitude = (magnitude + half) & ~((Bits(1) << dropped) - 1);
  }
  constexpr Bits bias = (Bits(1) << (Exponent - 1)) - 1;
  constexpr Bits own_bias = (Bits(1) << (L::kExponent - 1)) - 1;
  constexpr Bits too_large = (own_bias + bias + 1) << L::kMantissa;
  constexpr Bits infinity = ((Bits(1) << L::kExponent) - 1) << L::kMantissa;
  if (magnitude >= too_large) return bit_cast<T>(sign | infinity);
  if constexpr (Exponent < L::kExponent) {
    constexpr Bits smallest = (own_bias - bias + 1) << L::kMantissa;
    if (magnitude < smallest) magnitude = 0;
  }
  return bit_cast<T>(sign | magnitude);
}

// The next value that a stored T can hold, from x towards y.
template <class T>
JAX_ELEMENTWISE_DEVICE Compute<T> next_after(Compute<T> x, Compute<T> y) {
  using Bits = Unsigned<T>;
  constexpr Bits sign_bit = Bits(1) << (bits_of<T>() - 1);
  if (x != x || y != y) return x + y;
  if (x == y) return y;
  Bits bits = bit_cast<Bits>(Element<T>::narrow(x));
  if (x == 0) {
    bits = static_cast<Bits>((bit_cast<Bits>(Element<T>::narrow(y)) & sign_bit) | 1);
  } else {
    bits = static_cast<Bits>((x < y) == (x > 0) ? bits + 1 : bits - 1);
  }
  return Element<T>::widen(bit_cast<T>(bits));
}

// Numbers in the order of IEEE 754's totalOrder: -NaN, -inf, ..., -0, 0, ..., inf, NaN.
template <class T>
JAX_ELEMENTWISE_DEVICE Signed<T> total_order(T x) {
  const Signed<T> bits = bit_cast<Signed<T>>(x);
  const Signed<T> every_sign = bits >> (bits_of<T>() - 1);
  return bits ^ static_cast<Signed<T>>(static_cast<Unsigned<T>>(every_sign) >> 1);
}

}  // namespace jax_elementwise
