// Integer operations with the meaning that XLA gives them, where C++ leaves them undefined or would
// compute in int.
#pragma once

#include <jax_elementwise/platform.h>

namespace jax_elementwise {

template <class T>
JAX_ELEMENTWISE_DEVICE constexpr bool is_signed() {
  return T(-1) < T(0);
}
template <class T>
JAX_ELEMENTWISE_DEVICE constexpr int bits_of() {
  return 8 * static_cast<int>(sizeof(T));
}

// Arithmetic modulo 2^n. Signed overflow is undefined in C++, and C++ computes with narrow types in
// int, where the product of two uint16 may overflow: hence an unsigned type of at least 32 bits.
template <class T>
using Modular = decltype(Unsigned<T>() + 0u);

template <class T>
JAX_ELEMENTWISE_DEVICE T wrap_add(T x, T y) {
  return static_cast<T>(static_cast<Modular<T>>(x) + static_cast<Modular<T>>(y));
}
template <class T>
JAX_ELEMENTWISE_DEVICE T wrap_sub(T x, T y) {
  return static_cast<T>(static_cast<Modular<T>>(x) - static_cast<Modular<T>>(y));
}
template <class T>
JAX_ELEMENTWISE_DEVICE T wrap_mul(T x, T y) {
  return static_cast<T>(static_cast<Modular<T>>(x) * static_cast<Modular<T>>(y));
}

template <class T>
JAX_ELEMENTWISE_DEVICE T negate(T x) {
  return wrap_sub(T(0), x);
}
template <class T>
JAX_ELEMENTWISE_DEVICE T absolute(T x) {
  return x < T(0) ? negate(x) : x;
}
template <class T>
JAX_ELEMENTWISE_DEVICE T one_minus_square(T x) {
  return wrap_mul(wrap_add(T(1), x), wrap_sub(T(1), x));
}

// x / 0 has all bits set (-1 where there is a sign), and the smallest integer by -1 is itself; the
// remainders are x and 0.
template <class T>
JAX_ELEMENTWISE_DEVICE bool is_minus_one(T x) {
  return is_signed<T>() && x == T(-1);
}
template <class T>
JAX_ELEMENTWISE_DEVICE T divide(T x, T y) {
  if (y == 0) return T(-1);
  return is_minus_one(y) ? negate(x) : static_cast<T>(x / y);
}
template <class T>
JAX_ELEMENTWISE_DEVICE T remainder(T x, T y) {
  if (y == 0) return x;
  return is_minus_one(y) ? T(0) : static_cast<T>(x % y);
}

// The upper half of the product.
JAX_ELEMENTWISE_DEVICE int64 multiply_high(int64 x, int64 y) {
#if defined(__CUDACC__)
  return __mul64hi(x, y);
#else
  __extension__ using Wide = __int128;
  return static_cast<int64>((static_cast<Wide>(x) * y) >> 64);
#endif
}
JAX_ELEMENTWISE_DEVICE uint64 multiply_high(uint64 x, uint64 y) {
#if defined(__CUDACC__)
  return __umul64hi(x, y);
#else
  __extension__ using Wide = unsigned __int128;
  return static_cast<uint64>((static_cast<Wide>(x) * y) >> 64);
#endif
}
template <class T>
JAX_ELEMENTWISE_DEVICE T multiply_high(T x, T y) {
  if constexpr (is_signed<T>()) {
    return static_cast<T>((static_cast<int64>(x) * y) >> bits_of<T>());
  } else {
    return static_cast<T>((static_cast<uint64>(x) * y) >> bits_of<T>());
  }
}

// Shifts by a negative number, or by as many bits as there are or more, shift everything out.
template <class T>
JAX_ELEMENTWISE_DEVICE bool shifts_everything(T count) {
  return static_cast<Unsigned<T>>(count) >= static_cast<Unsigned<T>>(bits_of<T>());
}
template <class T>
JAX_ELEMENTWISE_DEVICE T shift_left(T x, T count) {
  if (shifts_everything(count)) return T(0);
  return static_cast<T>(static_cast<Modular<T>>(x) << count);
}
template <class T>
JAX_ELEMENTWISE_DEVICE T shift_right_logical(T x, T count) {
  if (shifts_everything(count)) return T(0);
  return static_cast<T>(static_cast<Unsigned<T>>(x) >> count);
}
// The highest bit is repeated, also that of an unsigned integer.
template <class T>
JAX_ELEMENTWISE_DEVICE T shift_right_arithmetic(T x, T count) {
  const int most = bits_of<T>() - 1;
  return static_cast<T>(static_cast<Signed<T>>(x) >>
                        (shifts_everything(count) ? most : static_cast<int>(count)));
}

template <class T>
JAX_ELEMENTWISE_DEVICE T population_count(T x) {
  const auto bits = static_cast<Unsigned<T>>(x);
#if defined(__CUDA_ARCH__)
  return static_cast<T>(sizeof(T) == 8 ? __popcll(bits) : __popc(static_cast<uint32>(bits)));
#else
  return static_cast<T>(__builtin_popcountll(bits));
#endif
}

template <class T>
JAX_ELEMENTWISE_DEVICE T count_leading_zeros(T x) {
  const auto bits = static_cast<Unsigned<T>>(x);
  if (bits == 0) return static_cast<T>(bits_of<T>());
#if defined(__CUDA_ARCH__)
  return static_cast<T>(sizeof(T) == 8 ? __clzll(static_cast<int64>(bits))
                                       : __clz(static_cast<int>(bits)) - 32 + bits_of<T>());
#else
  return static_cast<T>(__builtin_clzll(bits) - 64 + bits_of<T>());
#endif
}

}  // namespace jax_elementwise
