// Arithmetic of 16-bit floats: every operation rounds once, to nearest even, on every path.
//
// So the bits are the same on a GPU and on a CPU, but for the sign and payload of a NaN. On a GPU
// that takes the rounding modifier `.rn`: PTX allows an `add.f16` or `mul.f16` without one to be
// fused with its neighbour, which would round a product and a sum once instead of twice. CUDA's own
// operators have none, and may be fused. Assembler also keeps out what --use_fast_math does to
// float32; what remains of it are comparisons, to which subnormal bfloat16 are then zeros, and, on
// a CPU, quotients by way of reciprocals.
//
// Elsewhere operations go through float32, which is wide enough: of operands with p bits, the
// result of + - * / or sqrt that is first rounded to 2p + 2 or more bits rounds to the right p
// (Figueroa, "When is double rounding innocuous?", 1995), here for p = 11 and 8. A fused
// multiply-add is not among these, and is rounded to odd in between.
#pragma once

#include <jax_elementwise/convert.h>
#include <jax_elementwise/dtypes.h>

namespace jax_elementwise {

// A pointer to elements of an array may be cast to one to pairs of them.
#if defined(__CUDACC__)
#define JAX_ELEMENTWISE_MAY_ALIAS
#define JAX_ELEMENTWISE_ALIGN_PAIR alignas(4)
#else
#define JAX_ELEMENTWISE_MAY_ALIAS __attribute__((may_alias))
#define JAX_ELEMENTWISE_ALIGN_PAIR __attribute__((aligned(4)))
#endif

// A function that is compiled where it is used: NVRTC takes 0.1 ms for each other one. It is called
// as if it were no template, with conversions of its arguments.
#define JAX_ELEMENTWISE_LAZY \
  template <int = 0>         \
  JAX_ELEMENTWISE_DEVICE

// Two 16-bit floats as one register of 32 bits.
template <class T>
struct alignas(4) Lanes {
  T low;
  T high;
};

// ---- Operations of float32 that no option of the compiler loosens -------------------------------

#if defined(__CUDA_ARCH__)
#define EW_EXACT(name, symbol, instruction)                            \
  JAX_ELEMENTWISE_DEVICE float name(float x, float y) {                \
    float z;                                                           \
    asm(instruction ".rn.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y)); \
    return z;                                                          \
  }
#else
#define EW_EXACT(name, symbol, instruction) \
  JAX_ELEMENTWISE_DEVICE float name(float x, float y) { return x symbol y; }
#endif
EW_EXACT(exact_add, +, "add")
EW_EXACT(exact_sub, -, "sub")
EW_EXACT(exact_mul, *, "mul")
EW_EXACT(exact_div, /, "div")
#undef EW_EXACT

JAX_ELEMENTWISE_DEVICE float exact_sqrt(float x) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("sqrt.rn.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return sqrtf(x);
#endif
}

// x + y, where what double cannot hold makes the last bit odd.
JAX_ELEMENTWISE_DEVICE double add_to_odd(double x, double y) {
  const double sum = x + y;
  const double added = sum - x;
  const double error = (x - (sum - added)) + (y - added);
  if (!(error > 0 || error < 0)) return sum;  // exact, infinite or NaN
  const uint64 bits = bit_cast<uint64>(sum);
  if (bits & 1) return sum;
  return bit_cast<double>((error > 0) == (sum > 0) ? bits + 1 : bits - 1);
}

// ---- Rounding numbers to 16-bit floats ----------------------------------------------------------

template <class T>
JAX_ELEMENTWISE_DEVICE T short_of(float x) {
  return Element<T>::narrow(x);
}
template <class T>
JAX_ELEMENTWISE_DEVICE T short_of(double x) {
  return Element<T>::narrow(round_to_odd(x));
}

// Not by way of float32 as it is, which would round the integer first: its bits below those that
// decide are gathered in the lowest one that is kept.
JAX_ELEMENTWISE_DEVICE float float_to_odd(uint64 x) {
#pragma unroll
  for (int dropped = 8; dropped <= 40; dropped += 8) {
    const uint64 unit = uint64(1) << dropped;
    if (x >> (16 + dropped)) x = (x & ~(unit - 1)) | ((x & (unit - 1)) ? unit : 0);
  }
  return static_cast<float>(x);
}
template <class T, class Integer>
JAX_ELEMENTWISE_DEVICE T short_of_integer(Integer x) {
  if constexpr (sizeof(Integer) <= 2) {
    return short_of<T>(static_cast<float>(x));
  } else if constexpr (is_signed<Integer>()) {
    const float magnitude = float_to_odd(Unsigned<Integer>(absolute(x)));
    return short_of<T>(x < 0 ? -magnitude : magnitude);
  } else {
    return short_of<T>(float_to_odd(x));
  }
}

// As CUDA converts: saturated, and NaN is 0 or, of 64 bits, only the highest bit.
template <class Integer>
JAX_ELEMENTWISE_DEVICE Integer integer_of(float x) {
  if constexpr (sizeof(Integer) == 8) {
    if (x != x) return static_cast<Integer>(uint64(1) << 63);
  }
  return saturate<Integer>(x);
}

// ---- The operations -----------------------------------------------------------------------------

namespace short_floats {

template <class T>
JAX_ELEMENTWISE_DEVICE float wide(T x) {
  return Element<T>::widen(x);
}
template <class T>
JAX_ELEMENTWISE_DEVICE bool is_nan(T x) {
  return wide(x) != wide(x);
}

template <class T>
JAX_ELEMENTWISE_DEVICE T quotient(T x, T y) {
  return short_of<T>(exact_div(wide(x), wide(y)));
}
template <class T>
JAX_ELEMENTWISE_DEVICE Lanes<T> quotient(Lanes<T> x, Lanes<T> y) {
  return {quotient(x.low, y.low), quotient(x.high, y.high)};
}

// Signs of NaN are changed, too.
template <class T>
JAX_ELEMENTWISE_DEVICE T opposite(T x) {
  return bit_cast<T>(static_cast<Unsigned<T>>(bit_cast<Unsigned<T>>(x) ^ 0x80008000u));
}
template <class T>
JAX_ELEMENTWISE_DEVICE T magnitude(T x) {
  return bit_cast<T>(static_cast<Unsigned<T>>(bit_cast<Unsigned<T>>(x) & 0x7fff7fffu));
}

// In [0, 1]; NaN is 0.
template <class T>
JAX_ELEMENTWISE_DEVICE T saturated(T x) {
  const float value = wide(x);
  return value >= 1.0f ? short_of<T>(1.0f) : T{static_cast<uint16>(value > 0.0f ? x.bits : 0)};
}
template <class T>
JAX_ELEMENTWISE_DEVICE Lanes<T> saturated(Lanes<T> x) {
  return {saturated(x.low), saturated(x.high)};
}

// Without instructions for them.
namespace by_float {

template <class T>
JAX_ELEMENTWISE_DEVICE T sum(T x, T y) {
  return short_of<T>(exact_add(wide(x), wide(y)));
}
template <class T>
JAX_ELEMENTWISE_DEVICE T difference(T x, T y) {
  return short_of<T>(exact_sub(wide(x), wide(y)));
}
template <class T>
JAX_ELEMENTWISE_DEVICE T product(T x, T y) {
  return short_of<T>(exact_mul(wide(x), wide(y)));
}
template <class T>
JAX_ELEMENTWISE_DEVICE T multiply_add(T x, T y, T z) {
  const double product = static_cast<double>(wide(x)) * static_cast<double>(wide(y));  // exact
  return short_of<T>(add_to_odd(product, static_cast<double>(wide(z))));
}
// 0 is larger than -0.
template <class T>
JAX_ELEMENTWISE_DEVICE T larger_or_nan(T x, T y) {
  return short_of<T>(jax_elementwise::maximum(wide(x), wide(y)));
}
template <class T>
JAX_ELEMENTWISE_DEVICE T smaller_or_nan(T x, T y) {
  return short_of<T>(jax_elementwise::minimum(wide(x), wide(y)));
}
// A number beside a NaN is the result.
template <class T>
JAX_ELEMENTWISE_DEVICE T larger(T x, T y) {
  return is_nan(x) ? y : is_nan(y) ? x : larger_or_nan(x, y);
}
template <class T>
JAX_ELEMENTWISE_DEVICE T smaller(T x, T y) {
  return is_nan(x) ? y : is_nan(y) ? x : smaller_or_nan(x, y);
}

}  // namespace by_float

#if defined(__CUDA_ARCH__)
#define EW_BINARY(name, T, instruction)                                        \
  JAX_ELEMENTWISE_DEVICE T name(T x, T y) {                                    \
    T z;                                                                       \
    asm(instruction " %0, %1, %2;" : "=h"(z.bits) : "h"(x.bits), "h"(y.bits)); \
    return z;                                                                  \
  }                                                                            \
  JAX_ELEMENTWISE_DEVICE Lanes<T> name(Lanes<T> x, Lanes<T> y) {               \
    uint32 z;                                                                  \
    asm(instruction "x2 %0, %1, %2;"                                           \
        : "=r"(z)                                                              \
        : "r"(bit_cast<uint32>(x)), "r"(bit_cast<uint32>(y)));                 \
    return bit_cast<Lanes<T>>(z);                                              \
  }
#define EW_TERNARY(name, T, instruction)                                                        \
  JAX_ELEMENTWISE_DEVICE T name(T x, T y, T z) {                                                \
    T w;                                                                                        \
    asm(instruction " %0, %1, %2, %3;" : "=h"(w.bits) : "h"(x.bits), "h"(y.bits), "h"(z.bits)); \
    return w;                                                                                   \
  }                                                                                             \
  JAX_ELEMENTWISE_DEVICE Lanes<T> name(Lanes<T> x, Lanes<T> y, Lanes<T> z) {                    \
    uint32 w;                                                                                   \
    asm(instruction "x2 %0, %1, %2, %3;"                                                        \
        : "=r"(w)                                                                               \
        : "r"(bit_cast<uint32>(x)), "r"(bit_cast<uint32>(y)), "r"(bit_cast<uint32>(z)));        \
    return bit_cast<Lanes<T>>(w);                                                               \
  }
#endif
// The same in either lane.
#define EW_LANES_2(name, T)                                      \
  JAX_ELEMENTWISE_DEVICE Lanes<T> name(Lanes<T> x, Lanes<T> y) { \
    return {name(x.low, y.low), name(x.high, y.high)};           \
  }
#define EW_BY_FLOAT(name, T)                                               \
  JAX_ELEMENTWISE_DEVICE T name(T x, T y) { return by_float::name(x, y); } \
  EW_LANES_2(name, T)
#define EW_FMA_BY_FLOAT(T)                                                                         \
  JAX_ELEMENTWISE_DEVICE T multiply_add(T x, T y, T z) { return by_float::multiply_add(x, y, z); } \
  JAX_ELEMENTWISE_DEVICE Lanes<T> multiply_add(Lanes<T> x, Lanes<T> y, Lanes<T> z) {               \
    return {multiply_add(x.low, y.low, z.low), multiply_add(x.high, y.high, z.high)};              \
  }

#if defined(__CUDA_ARCH__)
EW_BINARY(sum, float16, "add.rn.f16")
EW_BINARY(difference, float16, "sub.rn.f16")
EW_BINARY(product, float16, "mul.rn.f16")
EW_TERNARY(multiply_add, float16, "fma.rn.f16")
#else
EW_BY_FLOAT(sum, float16)
EW_BY_FLOAT(difference, float16)
EW_BY_FLOAT(product, float16)
EW_FMA_BY_FLOAT(float16)
#endif

// sm_80 has nothing but the product-sum, which is as good: 1 x + y, and x y - 0, where a zero
// keeps the sign of the product.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
EW_TERNARY(multiply_add, bfloat16, "fma.rn.bf16")
#define EW_BY_FMA(T, one, minus_one, minus_zero)                                          \
  JAX_ELEMENTWISE_DEVICE T sum(T x, T y) { return multiply_add(x, one, y); }              \
  JAX_ELEMENTWISE_DEVICE T difference(T x, T y) { return multiply_add(y, minus_one, x); } \
  JAX_ELEMENTWISE_DEVICE T product(T x, T y) { return multiply_add(x, y, minus_zero); }
EW_BY_FMA(bfloat16, (bfloat16{0x3f80}), (bfloat16{0xbf80}), (bfloat16{0x8000}))
EW_BY_FMA(Lanes<bfloat16>, bit_cast<Lanes<bfloat16>>(0x3f803f80u),
          bit_cast<Lanes<bfloat16>>(0xbf80bf80u), bit_cast<Lanes<bfloat16>>(0x80008000u))
#undef EW_BY_FMA
#else
EW_BY_FLOAT(sum, bfloat16)
EW_BY_FLOAT(difference, bfloat16)
EW_BY_FLOAT(product, bfloat16)
EW_FMA_BY_FLOAT(bfloat16)
#endif

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define EW_EXTREMUM(T, suffix)                  \
  EW_BINARY(larger, T, "max" suffix)            \
  EW_BINARY(smaller, T, "min" suffix)           \
  EW_BINARY(larger_or_nan, T, "max.NaN" suffix) \
  EW_BINARY(smaller_or_nan, T, "min.NaN" suffix)
#else
#define EW_EXTREMUM(T, suffix)  \
  EW_BY_FLOAT(larger, T)        \
  EW_BY_FLOAT(smaller, T)       \
  EW_BY_FLOAT(larger_or_nan, T) \
  EW_BY_FLOAT(smaller_or_nan, T)
#endif
EW_EXTREMUM(float16, ".f16")
EW_EXTREMUM(bfloat16, ".bf16")
#undef EW_EXTREMUM
#undef EW_FMA_BY_FLOAT
#undef EW_BY_FLOAT
#undef EW_LANES_2
#undef EW_TERNARY
#undef EW_BINARY

template <class T>
JAX_ELEMENTWISE_DEVICE T sum_saturated(T x, T y) {
  return saturated(sum(x, y));
}
template <class T>
JAX_ELEMENTWISE_DEVICE T difference_saturated(T x, T y) {
  return saturated(difference(x, y));
}
template <class T>
JAX_ELEMENTWISE_DEVICE T product_saturated(T x, T y) {
  return saturated(product(x, y));
}
template <class T>
JAX_ELEMENTWISE_DEVICE T multiply_add_saturated(T x, T y, T z) {
  return saturated(multiply_add(x, y, z));
}
template <class T>
JAX_ELEMENTWISE_DEVICE T multiply_add_relu(T x, T y, T z) {
  return larger_or_nan(multiply_add(x, y, z), T{});
}

}  // namespace short_floats
}  // namespace jax_elementwise
