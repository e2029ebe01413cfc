// Storage types of array elements, and their conversion to and from the type that is computed in.
//
// 16-bit floats are stored as their bits and computed in float32: a value is rounded where the
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

// Conversions in integer arithmetic: what the host uses, and GPUs without the instruction.
namespace portable {

JEW_DEVICE float widen(float16 x) {
  const uint32 sign = static_cast<uint32>(x.bits & 0x8000u) << 16;
  const uint32 exponent = (x.bits >> 10) & 0x1fu;
  const uint32 mantissa = x.bits & 0x3ffu;
  if (exponent == 0x1fu) return bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent != 0) return bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;  // zero or subnormal: exact
  return bit_cast<float>(sign | bit_cast<uint32>(magnitude));
}

JEW_DEVICE float16 to_float16(float x) {
  const uint32 bits = bit_cast<uint32>(x);
  const uint32 sign = (bits >> 16) & 0x8000u;
  const uint32 magnitude = bits & 0x7fffffffu;
  uint32 half;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u;                       // NaN
  } else if (magnitude >= 0x477ff000u) {  // 65520, halfway between the largest value and infinity
    half = 0x7c00u;
  } else if (magnitude < 0x38800000u) {
    // Below 2^-14. The spacing of floats in [0.5, 1) is the spacing of subnormal halves, so the
    // addition rounds to nearest even.
    half = bit_cast<uint32>(bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  } else {
    half = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  }
  return float16{static_cast<uint16>(sign | half)};
}

JEW_DEVICE bfloat16 to_bfloat16(float x) {
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
  static JEW_DEVICE T widen(T x) { return x; }
  static JEW_DEVICE T narrow(T x) { return x; }
};

template <>
struct Element<bool8> {
  using Compute = bool;
  static JEW_DEVICE bool widen(bool8 x) { return x.bits != 0; }  // any byte but 0 is true
  static JEW_DEVICE bool8 narrow(bool x) { return bool8{static_cast<uint8>(x)}; }
};

template <>
struct Element<float16> {
  using Compute = float;
  static JEW_DEVICE float widen(float16 x) {
#if defined(__CUDA_ARCH__)
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x.bits));
    return wide;
#else
    return portable::widen(x);
#endif
  }
  static JEW_DEVICE float16 narrow(float x) {
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
  static JEW_DEVICE float widen(bfloat16 x) {
    return bit_cast<float>(static_cast<uint32>(x.bits) << 16);
  }
  static JEW_DEVICE bfloat16 narrow(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    bfloat16 half;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(half.bits) : "f"(x));
    return half;
#else
    return portable::to_bfloat16(x);
#endif
  }
};

template <class T>
using Compute = typename Element<T>::Compute;

// The nearest value that T can hold, as a value to compute with.
template <class T>
JEW_DEVICE Compute<T> round_to(Compute<T> x) {
  return Element<T>::widen(Element<T>::narrow(x));
}

}  // namespace jax_elementwise
