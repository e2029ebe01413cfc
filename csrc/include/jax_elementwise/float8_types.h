// CUDA's floats of 8 bits: storage only, with explicit conversions. What is too large for a format
// is its largest value, infinities too, where jax_elementwise::Element and XLA give NaN or
// infinity.
#pragma once

#include <jax_elementwise/dtypes.h>

#if !defined(__CUDA_FP8_H__)
#define __CUDA_FP8_H__

namespace jax_elementwise {

template <class T>
JEW_DEVICE T narrow_saturated(float x, float largest) {
  if (x > largest) x = largest;
  if (x < -largest) x = -largest;
  return Element<T>::narrow(x);
}

}  // namespace jax_elementwise

#define JEW_FROM(name, T) \
  JEW_DEVICE explicit name(T x) : name(static_cast<float>(x)) {}
#define JEW_TO(T) \
  JEW_DEVICE explicit operator T() const { return static_cast<T>(static_cast<float>(*this)); }
#define JEW_TO_INTEGER(T)                                             \
  JEW_DEVICE explicit operator T() const {                            \
    return jax_elementwise::integer_of<T>(static_cast<float>(*this)); \
  }
// Whatever float32 cannot hold of an integer is larger than the largest value.
#define JEW_FLOAT8(name, stored, largest)                                                     \
  struct name {                                                                               \
    unsigned char __x;                                                                        \
    name() = default;                                                                         \
    JEW_DEVICE explicit name(float x)                                                         \
        : __x(jax_elementwise::narrow_saturated<jax_elementwise::stored>(x, largest).bits) {} \
    JEW_DEVICE explicit name(double x) : name(jax_elementwise::round_to_odd(x)) {}            \
    JEW_FROM(name, __half)                                                                    \
    JEW_FROM(name, __nv_bfloat16)                                                             \
    JEW_FROM(name, short)                                                                     \
    JEW_FROM(name, unsigned short)                                                            \
    JEW_FROM(name, int)                                                                       \
    JEW_FROM(name, unsigned int)                                                              \
    JEW_FROM(name, long)                                                                      \
    JEW_FROM(name, unsigned long)                                                             \
    JEW_FROM(name, long long)                                                                 \
    JEW_FROM(name, unsigned long long)                                                        \
    JEW_DEVICE explicit operator float() const {                                              \
      return jax_elementwise::Element<jax_elementwise::stored>::widen({__x});                 \
    }                                                                                         \
    JEW_TO(__half)                                                                            \
    JEW_TO(__nv_bfloat16)                                                                     \
    JEW_TO(double)                                                                            \
    JEW_DEVICE explicit operator bool() const { return (__x & 0x7fu) != 0; }                  \
    JEW_TO_INTEGER(char)                                                                      \
    JEW_TO_INTEGER(signed char)                                                               \
    JEW_TO_INTEGER(unsigned char)                                                             \
    JEW_TO_INTEGER(short)                                                                     \
    JEW_TO_INTEGER(unsigned short)                                                            \
    JEW_TO_INTEGER(int)                                                                       \
    JEW_TO_INTEGER(unsigned int)                                                              \
    JEW_TO_INTEGER(long)                                                                      \
    JEW_TO_INTEGER(unsigned long)                                                             \
    JEW_TO_INTEGER(long long)                                                                 \
    JEW_TO_INTEGER(unsigned long long)                                                        \
  };

JEW_FLOAT8(__nv_fp8_e4m3, float8_e4m3fn, 448.0f)
JEW_FLOAT8(__nv_fp8_e5m2, float8_e5m2, 57344.0f)

#undef JEW_FLOAT8
#undef JEW_TO_INTEGER
#undef JEW_TO
#undef JEW_FROM

#endif
