// Storage types of array elements, and their conversion to and from the type that is computed in.
//
// Floats of 8 and 16 bits are stored as bits and computed in float32: a value is rounded where the
// traced function says so (outputs, conversions), not after every operation.
#pragma once

#include <jax_elementwise/platform.h>

namespace jax_elementwise {

struct bool8 {
  uint8 bits;
};
struct float16 {
  uint16 bits;
};
struct bfloat16 {
  uint16 bits;
};
struct float8_e4m3fn {
  uint8 bits;
};
struct float8_e5m2 {
  uint8 bits;
};

// Conversions in integer arithmetic: what the host uses, and GPUs without the instruction.
namespace portable {

JAX_ELEMENTWISE_DEVICE float widen(float16 x) {
  const uint32 sign = static_cast<uint32>(x.bits & 0x8000u) << 16;
  const uint32 exponent = (x.bits >> 10) & 0x1fu;
  const uint32 mantissa = x.bits & 0x3ffu;
  if (exponent == 0x1fu) return bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent != 0) return bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;  // zero or subnormal: exact
  return bit_cast<float>(sign | bit_cast<uint32>(magnitude));
}

// The bits of a finite float's magnitude in a format with fewer bits of mantissa and another bias
// of the exponent, rounded to nearest even.
template <int Mantissa, int Bias>
JAX_ELEMENTWISE_DEVICE uint32 narrow_magnitude(uint32 magnitude) {
  constexpr int dropped = 23 - Mantissa;
  if (magnitude < (128u - Bias) << 23) {
    // Subnormal there. Floats of the size of `unit` are as far apart as those, so the addition
    // rounds.
    constexpr uint32 unit = (127u + 24u - Bias - Mantissa) << 23;
    return bit_cast<uint32>(bit_cast<float>(magnitude) + bit_cast<float>(unit)) - unit;
  }
  const uint32 half = (1u << (dropped - 1)) - 1u + ((magnitude >> dropped) & 1u);
  return (magnitude - ((127u - Bias) << 23) + half) >> dropped;
}

// Calls the above for the magnitudes below `overflow`; others become `infinity`, NaN becomes `nan`.
template <int Mantissa, int Bias>
JAX_ELEMENTWISE_DEVICE uint32 narrow(float x, uint32 overflow, uint32 infinity, uint32 nan) {
  const uint32 magnitude = bit_cast<uint32>(x) & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return nan;
  return magnitude >= overflow ? infinity : narrow_magnitude<Mantissa, Bias>(magnitude);
}

JAX_ELEMENTWISE_DEVICE float16 to_float16(float x) {
  const uint32 sign = (bit_cast<uint32>(x) >> 16) & 0x8000u;
  // From 65520 on, halfway between the largest value and what would be next.
  const uint32 magnitude = narrow<10, 15>(x, 0x477ff000u, 0x7c00u, 0x7e00u);
  return float16{static_cast<uint16>(sign | magnitude)};
}

JAX_ELEMENTWISE_DEVICE uint8 sign_of_8_bits(float x) {
  return static_cast<uint8>((bit_cast<uint32>(x) >> 24) & 0x80u);
}
// The largest value is 448, and there is no infinity: what is too large is NaN, as in XLA, where
// CUDA's own conversions saturate. 464 is halfway to what would be next, and rounds down.
constexpr uint32 kOverflowE4m3fn = 0x43e80001u;
JAX_ELEMENTWISE_DEVICE float8_e4m3fn to_float8_e4m3fn(float x) {
  const uint32 magnitude = narrow<3, 7>(x, kOverflowE4m3fn, 0x7fu, 0x7fu);
  return float8_e4m3fn{static_cast<uint8>(sign_of_8_bits(x) | magnitude)};
}
// The largest value is 57344; 61440 is halfway to what would be next, and rounds up.
constexpr uint32 kOverflowE5m2 = 0x47700000u;
JAX_ELEMENTWISE_DEVICE float8_e5m2 to_float8_e5m2(float x) {
  const uint32 magnitude = narrow<2, 15>(x, kOverflowE5m2, 0x7cu, 0x7eu);
  return float8_e5m2{static_cast<uint8>(sign_of_8_bits(x) | magnitude)};
}

JAX_ELEMENTWISE_DEVICE bfloat16 to_bfloat16(float x) {
  const uint32 bits = bit_cast<uint32>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    return bfloat16{static_cast<uint16>((bits >> 16) | 0x0040u)};  // keep a NaN a NaN
  }
  return bfloat16{static_cast<uint16>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

}  // namespace portable

// Element<T>: the type a stored T is computed in, and the way there and back. Most types are
// computed in as they are stored.
template <class T>
struct Element {
  using Compute = T;
  static JAX_ELEMENTWISE_DEVICE T widen(T x) { return x; }
  static JAX_ELEMENTWISE_DEVICE T narrow(T x) { return x; }
};

template <>
struct Element<bool8> {
  using Compute = bool;
  static JAX_ELEMENTWISE_DEVICE bool widen(bool8 x) {
    return x.bits != 0;
  }  // any byte but 0 is true
  static JAX_ELEMENTWISE_DEVICE bool8 narrow(bool x) { return bool8{static_cast<uint8>(x)}; }
};

template <>
struct Element<float16> {
  using Compute = float;
  static JAX_ELEMENTWISE_DEVICE float widen(float16 x) {
#if defined(__CUDA_ARCH__)
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x.bits));
    return wide;
#else
    return portable::widen(x);
#endif
  }
  static JAX_ELEMENTWISE_DEVICE float16 narrow(float x) {
#if defined(__CUDA_ARCH__)
    float16 half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half.bits) : "f"(x));
    return half;
#else
    return portable::to_float16(x);
#endif
  }
};

template <>
struct Element<bfloat16> {
  using Compute = float;
  static JAX_ELEMENTWISE_DEVICE float widen(bfloat16 x) {
    return bit_cast<float>(static_cast<uint32>(x.bits) << 16);
  }
  static JAX_ELEMENTWISE_DEVICE bfloat16 narrow(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    bfloat16 half;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(half.bits) : "f"(x));
    return half;
#else
    return portable::to_bfloat16(x);
#endif
  }
};

// The magnitude's bits are those of a float16 that is 2^8 times smaller.
template <>
struct Element<float8_e4m3fn> {
  using Compute = float;
  static JAX_ELEMENTWISE_DEVICE float widen(float8_e4m3fn x) {
    const uint32 sign = (x.bits & 0x80u) << 8, magnitude = x.bits & 0x7fu;
    const float16 scaled{static_cast<uint16>(sign | magnitude << 7)};
    const float value = Element<float16>::widen(scaled) * 256.0f;
    return magnitude == 0x7fu ? bit_cast<float>(sign << 16 | 0x7fc00000u) : value;
  }
  static JAX_ELEMENTWISE_DEVICE float8_e4m3fn narrow(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    uint16 pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %1;" : "=h"(pair) : "f"(x));
    const bool overflows = (bit_cast<uint32>(x) & 0x7fffffffu) >= portable::kOverflowE4m3fn;
    return float8_e4m3fn{static_cast<uint8>(overflows ? pair | 0x7fu : pair)};
#else
    return portable::to_float8_e4m3fn(x);
#endif
  }
};

// The upper half of a float16.
template <>
struct Element<float8_e5m2> {
  using Compute = float;
  static JAX_ELEMENTWISE_DEVICE float widen(float8_e5m2 x) {
    return Element<float16>::widen(float16{static_cast<uint16>(x.bits << 8)});
  }
  static JAX_ELEMENTWISE_DEVICE float8_e5m2 narrow(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    uint16 pair;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %1;" : "=h"(pair) : "f"(x));
    const uint32 magnitude = bit_cast<uint32>(x) & 0x7fffffffu;
    const bool overflows = magnitude >= portable::kOverflowE5m2 && magnitude <= 0x7f800000u;
    return float8_e5m2{static_cast<uint8>(overflows ? (pair & 0x80u) | 0x7cu : pair)};
#else
    return portable::to_float8_e5m2(x);
#endif
  }
};

template <class T>
using Compute = typename Element<T>::Compute;

// The nearest value that T can hold, as a value to compute with.
template <class T>
JAX_ELEMENTWISE_DEVICE Compute<T> round_to(Compute<T> x) {
  return Element<T>::widen(Element<T>::narrow(x));
}

}  // namespace jax_elementwise
