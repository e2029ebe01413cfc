// CUDA's floats of 8 bits, for text that was written for cuda_fp8.h: explicit conversions only.
// What is too large for a format is its largest value, infinities too, where
// jax_elementwise::Element and XLA give NaN or infinity.
#pragma once

#if defined(__CUDACC__) && !defined(__CUDACC_RTC__)
#include <cuda_fp8.h>
#elif !defined(__CUDA_FP8_H__)
#define __CUDA_FP8_H__

#include <jax_elementwise/cuda/bfloat16.h>
#include <jax_elementwise/cuda/half.h>

namespace jax_elementwise {

template <class T>
JAX_ELEMENTWISE_DEVICE T narrow_saturated(float x, float largest) {
  if (x > largest) x = largest;
  if (x < -largest) x = -largest;
  return Element<T>::narrow(x);
}

// A value of one of the types that floats of 8 bits convert to.
template <class T>
JAX_ELEMENTWISE_DEVICE T number_of(float x) {
  if constexpr (T(0.5f) == T(0) && sizeof(T) <= 8) {
    return integer_of<T>(x);
  } else {
    return static_cast<T>(x);
  }
}
template <>
JAX_ELEMENTWISE_DEVICE bool number_of<bool>(float x) {
  return x != 0;
}
template <>
JAX_ELEMENTWISE_DEVICE __half number_of<__half>(float x) {
  return __half(x);
}
template <>
JAX_ELEMENTWISE_DEVICE __nv_bfloat16 number_of<__nv_bfloat16>(float x) {
  return __nv_bfloat16(x);
}

}  // namespace jax_elementwise

// From and to numbers and the floats of 16 bits. What float32 cannot hold of an integer is larger
// than the largest value; a double is rounded to odd in between.
#define EW_FLOAT8(name, stored, largest)                                                       \
  struct name {                                                                                \
    unsigned char __x;                                                                         \
    name() = default;                                                                          \
    JAX_ELEMENTWISE_DEVICE explicit name(float x)                                              \
        : __x(jax_elementwise::narrow_saturated<jax_elementwise::stored>(x, largest).bits) {}  \
    JAX_ELEMENTWISE_DEVICE explicit name(double x) : name(jax_elementwise::round_to_odd(x)) {} \
    template <class T>                                                                         \
    JAX_ELEMENTWISE_DEVICE explicit name(T x) : name(static_cast<float>(x)) {}                 \
    template <class T>                                                                         \
    JAX_ELEMENTWISE_DEVICE explicit operator T() const {                                       \
      const float x = jax_elementwise::Element<jax_elementwise::stored>::widen({__x});         \
      return jax_elementwise::number_of<T>(x);                                                 \
    }                                                                                          \
  };
EW_FLOAT8(__nv_fp8_e4m3, float8_e4m3fn, 448.0f)
EW_FLOAT8(__nv_fp8_e5m2, float8_e5m2, 57344.0f)
#undef EW_FLOAT8

#endif
