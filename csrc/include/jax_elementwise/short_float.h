// A 16-bit float with CUDA's name, the pair of it, and their operators. half.h and bfloat16.h
// include this, with these macros:
//   JEW_FLOAT, JEW_PAIR          the types: __half, __half2
//   JEW_FLOAT_RAW, JEW_PAIR_RAW  their bits: __half_raw, __half2_raw
//   JEW_STORED                   what dtypes.h calls the format: float16
//   JEW_NAME(a, b)               a##half##b, for names with the word for the format in them
//   JEW_BROADCAST                what makes a pair of one value: __half2half2
//
// They are structs in the global namespace and no aliases of a template, so that a user's calls do
// not find the functions of jax_elementwise by the types of their arguments.

struct JEW_FLOAT_RAW {
  unsigned short x;
};
struct alignas(4) JEW_PAIR_RAW {
  unsigned short x;
  unsigned short y;
};

#define JEW_FROM(T, round)      \
  JEW_DEVICE JEW_FLOAT(T value) \
      : __x(jax_elementwise::round<jax_elementwise::JEW_STORED>(value).bits) {}
#define JEW_TO(T)                                                               \
  JEW_DEVICE operator T() const {                                               \
    return jax_elementwise::integer_of<T>(                                      \
        jax_elementwise::short_floats::wide(jax_elementwise::JEW_STORED{__x})); \
  }

// Conversions are implicit, as CUDA's are: an operation with a float is therefore ambiguous, and
// one with a converted float is not.
struct JEW_MAY_ALIAS JEW_FLOAT {
  unsigned short __x;

  JEW_FLOAT() = default;
  JEW_DEVICE constexpr JEW_FLOAT(const JEW_FLOAT_RAW& raw) : __x(raw.x) {}
  JEW_FROM(float, short_of)
  JEW_FROM(double, short_of)
  JEW_FROM(short, short_of_integer)
  JEW_FROM(unsigned short, short_of_integer)
  JEW_FROM(int, short_of_integer)
  JEW_FROM(unsigned int, short_of_integer)
  JEW_FROM(long, short_of_integer)
  JEW_FROM(unsigned long, short_of_integer)
  JEW_FROM(long long, short_of_integer)
  JEW_FROM(unsigned long long, short_of_integer)

  JEW_DEVICE constexpr operator JEW_FLOAT_RAW() const { return {__x}; }
  JEW_DEVICE operator float() const {
    return jax_elementwise::short_floats::wide(jax_elementwise::JEW_STORED{__x});
  }
  JEW_DEVICE constexpr operator bool() const { return (__x & 0x7fffu) != 0; }
  JEW_TO(char)
  JEW_TO(signed char)
  JEW_TO(unsigned char)
  JEW_TO(short)
  JEW_TO(unsigned short)
  JEW_TO(int)
  JEW_TO(unsigned int)
  JEW_TO(long)
  JEW_TO(unsigned long)
  JEW_TO(long long)
  JEW_TO(unsigned long long)
};
#undef JEW_TO
#undef JEW_FROM

struct JEW_MAY_ALIAS JEW_ALIGN_PAIR JEW_PAIR {
  JEW_FLOAT x;
  JEW_FLOAT y;

  JEW_PAIR() = default;
  JEW_DEVICE constexpr JEW_PAIR(const JEW_FLOAT& low, const JEW_FLOAT& high) : x(low), y(high) {}
  JEW_DEVICE constexpr JEW_PAIR(const JEW_PAIR_RAW& raw)
      : x(JEW_FLOAT_RAW{raw.x}), y(JEW_FLOAT_RAW{raw.y}) {}
  JEW_DEVICE constexpr operator JEW_PAIR_RAW() const { return {x.__x, y.__x}; }
};

// To what short_arithmetic.h computes with, and back. The functions below convert by these: a
// compiler takes long to choose among the constructors and conversions above.
namespace jax_elementwise::short_floats {

JEW_DEVICE JEW_STORED stored(::JEW_FLOAT x) { return {x.__x}; }
JEW_DEVICE Lanes<JEW_STORED> stored(::JEW_PAIR x) { return {{x.x.__x}, {x.y.__x}}; }
JEW_DEVICE ::JEW_FLOAT named(JEW_STORED x) { return ::JEW_FLOAT(::JEW_FLOAT_RAW{x.bits}); }
JEW_DEVICE ::JEW_PAIR named(Lanes<JEW_STORED> x) {
  return ::JEW_PAIR(::JEW_PAIR_RAW{x.low.bits, x.high.bits});
}
JEW_DEVICE float wide(::JEW_FLOAT x) { return Element<JEW_STORED>::widen({x.__x}); }
JEW_DEVICE ::JEW_FLOAT rounded(JEW_STORED, float x) {
  return named(Element<JEW_STORED>::narrow(x));
}
// 1 in the lanes that have bits.
JEW_DEVICE ::JEW_PAIR ones(JEW_STORED, uint32 mask) {
  const uint32 one = Element<JEW_STORED>::narrow(1.0f).bits;
  return bit_cast<::JEW_PAIR>(mask & (one << 16 | one));
}

}  // namespace jax_elementwise::short_floats

// ---- Functions of values, and of pairs ----------------------------------------------------------

#define JEW_OF_1(T, name, operation)                   \
  JEW_LAZY T name(T x) {                               \
    namespace ops = jax_elementwise::short_floats;     \
    return ops::named(ops::operation(ops::stored(x))); \
  }
#define JEW_OF_2(T, name, operation)                                   \
  JEW_LAZY T name(T x, T y) {                                          \
    namespace ops = jax_elementwise::short_floats;                     \
    return ops::named(ops::operation(ops::stored(x), ops::stored(y))); \
  }
#define JEW_OF_3(T, name, operation)                                                   \
  JEW_LAZY T name(T x, T y, T z) {                                                     \
    namespace ops = jax_elementwise::short_floats;                                     \
    return ops::named(ops::operation(ops::stored(x), ops::stored(y), ops::stored(z))); \
  }
#define JEW_BOTH(arity, name, name_of_pairs, operation) \
  JEW_OF_##arity(JEW_FLOAT, name, operation) JEW_OF_##arity(JEW_PAIR, name_of_pairs, operation)

JEW_BOTH(2, __hadd, __hadd2, sum)
JEW_BOTH(2, __hsub, __hsub2, difference)
JEW_BOTH(2, __hmul, __hmul2, product)
JEW_BOTH(2, __hadd_rn, __hadd2_rn, sum)
JEW_BOTH(2, __hsub_rn, __hsub2_rn, difference)
JEW_BOTH(2, __hmul_rn, __hmul2_rn, product)
JEW_BOTH(2, __hdiv, __h2div, quotient)
JEW_BOTH(3, __hfma, __hfma2, multiply_add)
JEW_BOTH(1, __hneg, __hneg2, opposite)
JEW_BOTH(1, __habs, __habs2, magnitude)
JEW_BOTH(2, __hadd_sat, __hadd2_sat, sum_saturated)
JEW_BOTH(2, __hsub_sat, __hsub2_sat, difference_saturated)
JEW_BOTH(2, __hmul_sat, __hmul2_sat, product_saturated)
JEW_BOTH(3, __hfma_sat, __hfma2_sat, multiply_add_saturated)
JEW_BOTH(3, __hfma_relu, __hfma2_relu, multiply_add_relu)
JEW_BOTH(2, __hmax, __hmax2, larger)
JEW_BOTH(2, __hmin, __hmin2, smaller)
JEW_BOTH(2, __hmax_nan, __hmax2_nan, larger_or_nan)
JEW_BOTH(2, __hmin_nan, __hmin2_nan, smaller_or_nan)
#undef JEW_BOTH
#undef JEW_OF_3
#undef JEW_OF_2
#undef JEW_OF_1

// By float32, rounded once: expression of a float x. What the C++ library rounds differently on a
// GPU and on a CPU may then differ in the last bit.
#define JEW_MATH(name, expression)                                  \
  JEW_LAZY JEW_FLOAT h##name(JEW_FLOAT value) {                     \
    namespace ops = jax_elementwise::short_floats;                  \
    const float x = ops::wide(value);                               \
    return ops::rounded(jax_elementwise::JEW_STORED{}, expression); \
  }                                                                 \
  JEW_LAZY JEW_PAIR h2##name(JEW_PAIR x) { return JEW_PAIR(h##name(x.x), h##name(x.y)); }
JEW_MATH(sqrt, jax_elementwise::exact_sqrt(x))
JEW_MATH(rcp, jax_elementwise::exact_div(1.0f, x))
JEW_MATH(rsqrt, rsqrtf(x))
JEW_MATH(exp, expf(x))
JEW_MATH(exp2, exp2f(x))
JEW_MATH(exp10, exp10f(x))
JEW_MATH(log, logf(x))
JEW_MATH(log2, log2f(x))
JEW_MATH(log10, log10f(x))
JEW_MATH(sin, sinf(x))
JEW_MATH(cos, cosf(x))
JEW_MATH(tanh, tanhf(x))
JEW_MATH(tanh_approx, tanhf(x))
JEW_MATH(floor, floorf(x))
JEW_MATH(ceil, ceilf(x))
JEW_MATH(rint, rintf(x))
JEW_MATH(trunc, truncf(x))
#undef JEW_MATH

// An expression of floats a and b: of values; 1 or 0 per lane; true in both lanes; and all bits of
// a lane. `u` in a name is true where one is NaN.
#define JEW_COMPARISON(name, expression)                                                    \
  JEW_LAZY bool __h##name(JEW_FLOAT x, JEW_FLOAT y) {                                       \
    const float a = jax_elementwise::short_floats::wide(x);                                 \
    const float b = jax_elementwise::short_floats::wide(y);                                 \
    return expression;                                                                      \
  }                                                                                         \
  JEW_LAZY bool __hb##name##2(JEW_PAIR x, JEW_PAIR y) {                                     \
    return __h##name(x.x, y.x) && __h##name(x.y, y.y);                                      \
  }                                                                                         \
  JEW_LAZY unsigned int __h##name##2_mask(JEW_PAIR x, JEW_PAIR y) {                         \
    return (__h##name(x.x, y.x) ? 0xffffu : 0u) | (__h##name(x.y, y.y) ? 0xffff0000u : 0u); \
  }                                                                                         \
  JEW_LAZY JEW_PAIR __h##name##2(JEW_PAIR x, JEW_PAIR y) {                                  \
    return jax_elementwise::short_floats::ones(jax_elementwise::JEW_STORED{},               \
                                               __h##name##2_mask(x, y));                    \
  }
JEW_COMPARISON(eq, a == b)
JEW_COMPARISON(ne, a<b || a> b)
JEW_COMPARISON(lt, a < b)
JEW_COMPARISON(le, a <= b)
JEW_COMPARISON(gt, a > b)
JEW_COMPARISON(ge, a >= b)
JEW_COMPARISON(equ, !(a < b || a > b))
JEW_COMPARISON(neu, a != b)
JEW_COMPARISON(ltu, !(a >= b))
JEW_COMPARISON(leu, !(a > b))
JEW_COMPARISON(gtu, !(a <= b))
JEW_COMPARISON(geu, !(a < b))
#undef JEW_COMPARISON

JEW_LAZY bool __hisnan(JEW_FLOAT x) { return __hneu(x, x); }
JEW_LAZY JEW_PAIR __hisnan2(JEW_PAIR x) { return __hneu2(x, x); }
// As in CUDA, the sign of the infinity.
JEW_LAZY int __hisinf(JEW_FLOAT x) {
  const float value = jax_elementwise::short_floats::wide(x);
  const unsigned int bits = jax_elementwise::bit_cast<unsigned int>(value);
  return bits == 0x7f800000u ? 1 : bits == 0xff800000u ? -1 : 0;
}

// ---- Operators ----------------------------------------------------------------------------------

#define JEW_ARITHMETIC(symbol, T, function)                                     \
  JEW_LAZY T operator symbol(const T& x, const T& y) { return function(x, y); } \
  JEW_LAZY T& operator symbol## = (T & x, const T& y) { return x = function(x, y); }
#define JEW_STEP(symbol, T, function, one)                                   \
  JEW_LAZY T& operator symbol##symbol(T& x) { return x = function(x, one); } \
  JEW_LAZY T operator symbol##symbol(T& x, int) {                            \
    const T before = x;                                                      \
    x = function(x, one);                                                    \
    return before;                                                           \
  }
#define JEW_COMPARE(symbol, T, function) \
  JEW_LAZY bool operator symbol(const T& x, const T& y) { return function(x, y); }

JEW_ARITHMETIC(+, JEW_FLOAT, __hadd)
JEW_ARITHMETIC(-, JEW_FLOAT, __hsub)
JEW_ARITHMETIC(*, JEW_FLOAT, __hmul)
JEW_ARITHMETIC(/, JEW_FLOAT, __hdiv)
JEW_STEP(+, JEW_FLOAT, __hadd, JEW_FLOAT(1.0f))
JEW_STEP(-, JEW_FLOAT, __hsub, JEW_FLOAT(1.0f))
JEW_LAZY JEW_FLOAT operator+(const JEW_FLOAT& x) { return x; }
JEW_LAZY JEW_FLOAT operator-(const JEW_FLOAT& x) { return __hneg(x); }
JEW_COMPARE(==, JEW_FLOAT, __heq)
JEW_COMPARE(!=, JEW_FLOAT, __hneu)
JEW_COMPARE(<, JEW_FLOAT, __hlt)
JEW_COMPARE(<=, JEW_FLOAT, __hle)
JEW_COMPARE(>, JEW_FLOAT, __hgt)
JEW_COMPARE(>=, JEW_FLOAT, __hge)

JEW_ARITHMETIC(+, JEW_PAIR, __hadd2)
JEW_ARITHMETIC(-, JEW_PAIR, __hsub2)
JEW_ARITHMETIC(*, JEW_PAIR, __hmul2)
JEW_ARITHMETIC(/, JEW_PAIR, __h2div)
JEW_STEP(+, JEW_PAIR, __hadd2, JEW_PAIR(1.0f, 1.0f))
JEW_STEP(-, JEW_PAIR, __hsub2, JEW_PAIR(1.0f, 1.0f))
JEW_LAZY JEW_PAIR operator+(const JEW_PAIR& x) { return x; }
JEW_LAZY JEW_PAIR operator-(const JEW_PAIR& x) { return __hneg2(x); }
JEW_COMPARE(==, JEW_PAIR, __hbeq2)
JEW_COMPARE(!=, JEW_PAIR, __hbneu2)
JEW_COMPARE(<, JEW_PAIR, __hblt2)
JEW_COMPARE(<=, JEW_PAIR, __hble2)
JEW_COMPARE(>, JEW_PAIR, __hbgt2)
JEW_COMPARE(>=, JEW_PAIR, __hbge2)
#undef JEW_COMPARE
#undef JEW_STEP
#undef JEW_ARITHMETIC

JEW_LAZY JEW_FLOAT __ldg(const JEW_FLOAT* address) { return *address; }
JEW_LAZY JEW_PAIR __ldg(const JEW_PAIR* address) { return *address; }

#include <jax_elementwise/short_conversions.h>

#undef JEW_FLOAT
#undef JEW_PAIR
#undef JEW_FLOAT_RAW
#undef JEW_PAIR_RAW
#undef JEW_STORED
#undef JEW_NAME
#undef JEW_BROADCAST
