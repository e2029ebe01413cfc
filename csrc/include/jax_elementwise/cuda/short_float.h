// A 16-bit float with CUDA's name, the pair of it, and their operators. half.h and bfloat16.h
// include this, with these macros:
//   EW_FLOAT, EW_PAIR          the types: __half, __half2
//   EW_FLOAT_RAW, EW_PAIR_RAW  their bits: __half_raw, __half2_raw
//   EW_STORED                  what dtypes.h calls the format: float16
//   EW_NAME(a, b)              a##half##b, for names with the word for the format in them
//   EW_BROADCAST               what makes a pair of one value: __half2half2
//
// They are structs in the global namespace and no aliases of a template, so that a user's calls do
// not find the functions of jax_elementwise by the types of their arguments.

struct EW_FLOAT_RAW {
  unsigned short x;
};
struct alignas(4) EW_PAIR_RAW {
  unsigned short x;
  unsigned short y;
};

#define EW_FROM(T, round)                  \
  JAX_ELEMENTWISE_DEVICE EW_FLOAT(T value) \
      : __x(jax_elementwise::round<jax_elementwise::EW_STORED>(value).bits) {}
#define EW_TO(T)                                                               \
  JAX_ELEMENTWISE_DEVICE operator T() const {                                  \
    return jax_elementwise::integer_of<T>(                                     \
        jax_elementwise::short_floats::wide(jax_elementwise::EW_STORED{__x})); \
  }

// Conversions are implicit, as CUDA's are: an operation with a float is therefore ambiguous, and
// one with a converted float is not.
struct JAX_ELEMENTWISE_MAY_ALIAS EW_FLOAT {
  unsigned short __x;

  EW_FLOAT() = default;
  JAX_ELEMENTWISE_DEVICE constexpr EW_FLOAT(const EW_FLOAT_RAW& raw) : __x(raw.x) {}
  EW_FROM(float, short_of)
  EW_FROM(double, short_of)
  EW_FROM(short, short_of_integer)
  EW_FROM(unsigned short, short_of_integer)
  EW_FROM(int, short_of_integer)
  EW_FROM(unsigned int, short_of_integer)
  EW_FROM(long, short_of_integer)
  EW_FROM(unsigned long, short_of_integer)
  EW_FROM(long long, short_of_integer)
  EW_FROM(unsigned long long, short_of_integer)

  JAX_ELEMENTWISE_DEVICE constexpr operator EW_FLOAT_RAW() const { return {__x}; }
  JAX_ELEMENTWISE_DEVICE operator float() const {
    return jax_elementwise::short_floats::wide(jax_elementwise::EW_STORED{__x});
  }
  JAX_ELEMENTWISE_DEVICE constexpr operator bool() const { return (__x & 0x7fffu) != 0; }
  EW_TO(char)
  EW_TO(signed char)
  EW_TO(unsigned char)
  EW_TO(short)
  EW_TO(unsigned short)
  EW_TO(int)
  EW_TO(unsigned int)
  EW_TO(long)
  EW_TO(unsigned long)
  EW_TO(long long)
  EW_TO(unsigned long long)
};
#undef EW_TO
#undef EW_FROM

struct JAX_ELEMENTWISE_MAY_ALIAS JAX_ELEMENTWISE_ALIGN_PAIR EW_PAIR {
  EW_FLOAT x;
  EW_FLOAT y;

  EW_PAIR() = default;
  JAX_ELEMENTWISE_DEVICE constexpr EW_PAIR(const EW_FLOAT& low, const EW_FLOAT& high)
      : x(low), y(high) {}
  JAX_ELEMENTWISE_DEVICE constexpr EW_PAIR(const EW_PAIR_RAW& raw)
      : x(EW_FLOAT_RAW{raw.x}), y(EW_FLOAT_RAW{raw.y}) {}
  JAX_ELEMENTWISE_DEVICE constexpr operator EW_PAIR_RAW() const { return {x.__x, y.__x}; }
};

// To what short_arithmetic.h computes with, and back. The functions below convert by these: a
// compiler takes long to choose among the constructors and conversions above.
namespace jax_elementwise::short_floats {

JAX_ELEMENTWISE_DEVICE EW_STORED stored(::EW_FLOAT x) { return {x.__x}; }
JAX_ELEMENTWISE_DEVICE Lanes<EW_STORED> stored(::EW_PAIR x) { return {{x.x.__x}, {x.y.__x}}; }
JAX_ELEMENTWISE_DEVICE ::EW_FLOAT named(EW_STORED x) { return ::EW_FLOAT(::EW_FLOAT_RAW{x.bits}); }
JAX_ELEMENTWISE_DEVICE ::EW_PAIR named(Lanes<EW_STORED> x) {
  return ::EW_PAIR(::EW_PAIR_RAW{x.low.bits, x.high.bits});
}
JAX_ELEMENTWISE_DEVICE float wide(::EW_FLOAT x) { return Element<EW_STORED>::widen({x.__x}); }
JAX_ELEMENTWISE_DEVICE ::EW_FLOAT rounded(EW_STORED, float x) {
  return named(Element<EW_STORED>::narrow(x));
}
// 1 in the lanes that have bits.
JAX_ELEMENTWISE_DEVICE ::EW_PAIR ones(EW_STORED, uint32 mask) {
  const uint32 one = Element<EW_STORED>::narrow(1.0f).bits;
  return bit_cast<::EW_PAIR>(mask & (one << 16 | one));
}

}  // namespace jax_elementwise::short_floats

// ---- Functions of values, and of pairs ----------------------------------------------------------

#define EW_OF_1(T, name, operation)                    \
  JAX_ELEMENTWISE_LAZY T name(T x) {                   \
    namespace ops = jax_elementwise::short_floats;     \
    return ops::named(ops::operation(ops::stored(x))); \
  }
#define EW_OF_2(T, name, operation)                                    \
  JAX_ELEMENTWISE_LAZY T name(T x, T y) {                              \
    namespace ops = jax_elementwise::short_floats;                     \
    return ops::named(ops::operation(ops::stored(x), ops::stored(y))); \
  }
#define EW_OF_3(T, name, operation)                                                    \
  JAX_ELEMENTWISE_LAZY T name(T x, T y, T z) {                                         \
    namespace ops = jax_elementwise::short_floats;                                     \
    return ops::named(ops::operation(ops::stored(x), ops::stored(y), ops::stored(z))); \
  }
#define EW_BOTH(arity, name, name_of_pairs, operation) \
  EW_OF_##arity(EW_FLOAT, name, operation) EW_OF_##arity(EW_PAIR, name_of_pairs, operation)

EW_BOTH(2, __hadd, __hadd2, sum)
EW_BOTH(2, __hsub, __hsub2, difference)
EW_BOTH(2, __hmul, __hmul2, product)
EW_BOTH(2, __hadd_rn, __hadd2_rn, sum)
EW_BOTH(2, __hsub_rn, __hsub2_rn, difference)
EW_BOTH(2, __hmul_rn, __hmul2_rn, product)
EW_BOTH(2, __hdiv, __h2div, quotient)
EW_BOTH(3, __hfma, __hfma2, multiply_add)
EW_BOTH(1, __hneg, __hneg2, opposite)
EW_BOTH(1, __habs, __habs2, magnitude)
EW_BOTH(2, __hadd_sat, __hadd2_sat, sum_saturated)
EW_BOTH(2, __hsub_sat, __hsub2_sat, difference_saturated)
EW_BOTH(2, __hmul_sat, __hmul2_sat, product_saturated)
EW_BOTH(3, __hfma_sat, __hfma2_sat, multiply_add_saturated)
EW_BOTH(3, __hfma_relu, __hfma2_relu, multiply_add_relu)
EW_BOTH(2, __hmax, __hmax2, larger)
EW_BOTH(2, __hmin, __hmin2, smaller)
EW_BOTH(2, __hmax_nan, __hmax2_nan, larger_or_nan)
EW_BOTH(2, __hmin_nan, __hmin2_nan, smaller_or_nan)
#undef EW_BOTH
#undef EW_OF_3
#undef EW_OF_2
#undef EW_OF_1

// By float32, rounded once: expression of a float x. What the C++ library rounds differently on a
// GPU and on a CPU may then differ in the last bit.
#define EW_MATH(name, expression)                                  \
  JAX_ELEMENTWISE_LAZY EW_FLOAT h##name(EW_FLOAT value) {          \
    namespace ops = jax_elementwise::short_floats;                 \
    const float x = ops::wide(value);                              \
    return ops::rounded(jax_elementwise::EW_STORED{}, expression); \
  }                                                                \
  JAX_ELEMENTWISE_LAZY EW_PAIR h2##name(EW_PAIR x) { return EW_PAIR(h##name(x.x), h##name(x.y)); }
EW_MATH(sqrt, jax_elementwise::exact_sqrt(x))
EW_MATH(rcp, jax_elementwise::exact_div(1.0f, x))
EW_MATH(rsqrt, rsqrtf(x))
EW_MATH(exp, expf(x))
EW_MATH(exp2, exp2f(x))
EW_MATH(exp10, exp10f(x))
EW_MATH(log, logf(x))
EW_MATH(log2, log2f(x))
EW_MATH(log10, log10f(x))
EW_MATH(sin, sinf(x))
EW_MATH(cos, cosf(x))
EW_MATH(tanh, tanhf(x))
EW_MATH(tanh_approx, tanhf(x))
EW_MATH(floor, floorf(x))
EW_MATH(ceil, ceilf(x))
EW_MATH(rint, rintf(x))
EW_MATH(trunc, truncf(x))
#undef EW_MATH

// An expression of floats a and b: of values; 1 or 0 per lane; true in both lanes; and all bits of
// a lane. `u` in a name is true where one is NaN.
#define EW_COMPARISON(name, expression)                                                     \
  JAX_ELEMENTWISE_LAZY bool __h##name(EW_FLOAT x, EW_FLOAT y) {                             \
    const float a = jax_elementwise::short_floats::wide(x);                                 \
    const float b = jax_elementwise::short_floats::wide(y);                                 \
    return expression;                                                                      \
  }                                                                                         \
  JAX_ELEMENTWISE_LAZY bool __hb##name##2(EW_PAIR x, EW_PAIR y) {                           \
    return __h##name(x.x, y.x) && __h##name(x.y, y.y);                                      \
  }                                                                                         \
  JAX_ELEMENTWISE_LAZY unsigned int __h##name##2_mask(EW_PAIR x, EW_PAIR y) {               \
    return (__h##name(x.x, y.x) ? 0xffffu : 0u) | (__h##name(x.y, y.y) ? 0xffff0000u : 0u); \
  }                                                                                         \
  JAX_ELEMENTWISE_LAZY EW_PAIR __h##name##2(EW_PAIR x, EW_PAIR y) {                         \
    return jax_elementwise::short_floats::ones(jax_elementwise::EW_STORED{},                \
                                               __h##name##2_mask(x, y));                    \
  }
EW_COMPARISON(eq, a == b)
EW_COMPARISON(ne, a<b || a> b)
EW_COMPARISON(lt, a < b)
EW_COMPARISON(le, a <= b)
EW_COMPARISON(gt, a > b)
EW_COMPARISON(ge, a >= b)
EW_COMPARISON(equ, !(a < b || a > b))
EW_COMPARISON(neu, a != b)
EW_COMPARISON(ltu, !(a >= b))
EW_COMPARISON(leu, !(a > b))
EW_COMPARISON(gtu, !(a <= b))
EW_COMPARISON(geu, !(a < b))
#undef EW_COMPARISON

JAX_ELEMENTWISE_LAZY bool __hisnan(EW_FLOAT x) { return __hneu(x, x); }
JAX_ELEMENTWISE_LAZY EW_PAIR __hisnan2(EW_PAIR x) { return __hneu2(x, x); }
// As in CUDA, the sign of the infinity.
JAX_ELEMENTWISE_LAZY int __hisinf(EW_FLOAT x) {
  const float value = jax_elementwise::short_floats::wide(x);
  const unsigned int bits = jax_elementwise::bit_cast<unsigned int>(value);
  return bits == 0x7f800000u ? 1 : bits == 0xff800000u ? -1 : 0;
}

// ---- Operators ----------------------------------------------------------------------------------

#define EW_ARITHMETIC(symbol, T, function)                                                  \
  JAX_ELEMENTWISE_LAZY T operator symbol(const T& x, const T& y) { return function(x, y); } \
  JAX_ELEMENTWISE_LAZY T& operator symbol## = (T & x, const T& y) { return x = function(x, y); }
#define EW_STEP(symbol, T, function, one)                                                \
  JAX_ELEMENTWISE_LAZY T& operator symbol##symbol(T& x) { return x = function(x, one); } \
  JAX_ELEMENTWISE_LAZY T operator symbol##symbol(T& x, int) {                            \
    const T before = x;                                                                  \
    x = function(x, one);                                                                \
    return before;                                                                       \
  }
#define EW_COMPARE(symbol, T, function) \
  JAX_ELEMENTWISE_LAZY bool operator symbol(const T& x, const T& y) { return function(x, y); }

EW_ARITHMETIC(+, EW_FLOAT, __hadd)
EW_ARITHMETIC(-, EW_FLOAT, __hsub)
EW_ARITHMETIC(*, EW_FLOAT, __hmul)
EW_ARITHMETIC(/, EW_FLOAT, __hdiv)
EW_STEP(+, EW_FLOAT, __hadd, EW_FLOAT(1.0f))
EW_STEP(-, EW_FLOAT, __hsub, EW_FLOAT(1.0f))
JAX_ELEMENTWISE_LAZY EW_FLOAT operator+(const EW_FLOAT& x) { return x; }
JAX_ELEMENTWISE_LAZY EW_FLOAT operator-(const EW_FLOAT& x) { return __hneg(x); }
EW_COMPARE(==, EW_FLOAT, __heq)
EW_COMPARE(!=, EW_FLOAT, __hneu)
EW_COMPARE(<, EW_FLOAT, __hlt)
EW_COMPARE(<=, EW_FLOAT, __hle)
EW_COMPARE(>, EW_FLOAT, __hgt)
EW_COMPARE(>=, EW_FLOAT, __hge)

EW_ARITHMETIC(+, EW_PAIR, __hadd2)
EW_ARITHMETIC(-, EW_PAIR, __hsub2)
EW_ARITHMETIC(*, EW_PAIR, __hmul2)
EW_ARITHMETIC(/, EW_PAIR, __h2div)
EW_STEP(+, EW_PAIR, __hadd2, EW_PAIR(1.0f, 1.0f))
EW_STEP(-, EW_PAIR, __hsub2, EW_PAIR(1.0f, 1.0f))
JAX_ELEMENTWISE_LAZY EW_PAIR operator+(const EW_PAIR& x) { return x; }
JAX_ELEMENTWISE_LAZY EW_PAIR operator-(const EW_PAIR& x) { return __hneg2(x); }
EW_COMPARE(==, EW_PAIR, __hbeq2)
EW_COMPARE(!=, EW_PAIR, __hbneu2)
EW_COMPARE(<, EW_PAIR, __hblt2)
EW_COMPARE(<=, EW_PAIR, __hble2)
EW_COMPARE(>, EW_PAIR, __hbgt2)
EW_COMPARE(>=, EW_PAIR, __hbge2)
#undef EW_COMPARE
#undef EW_STEP
#undef EW_ARITHMETIC

JAX_ELEMENTWISE_LAZY EW_FLOAT __ldg(const EW_FLOAT* address) { return *address; }
JAX_ELEMENTWISE_LAZY EW_PAIR __ldg(const EW_PAIR* address) { return *address; }

#include <jax_elementwise/cuda/short_conversions.h>

#undef EW_FLOAT
#undef EW_PAIR
#undef EW_FLOAT_RAW
#undef EW_PAIR_RAW
#undef EW_STORED
#undef EW_NAME
#undef EW_BROADCAST
