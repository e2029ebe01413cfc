// Conversions of a 16-bit float that have the format in their names. half.h includes this once for
// each format, with the macros of short_float.h and
//   JEW_NAME(a, b)  a##half##b, for names with the word for the format in them
//   JEW_BROADCAST   the function that makes a pair of one value: __half2half2

JEW_DEVICE JEW_FLOAT JEW_NAME(__float2, )(float x) { return x; }
JEW_DEVICE JEW_FLOAT JEW_NAME(__float2, _rn)(float x) { return x; }
JEW_DEVICE JEW_FLOAT JEW_NAME(__double2, )(double x) { return x; }
JEW_DEVICE float JEW_NAME(__, 2float)(JEW_FLOAT x) { return x; }

JEW_DEVICE short JEW_NAME(__, _as_short)(JEW_FLOAT x) { return static_cast<short>(x.__x); }
JEW_DEVICE unsigned short JEW_NAME(__, _as_ushort)(JEW_FLOAT x) { return x.__x; }
JEW_DEVICE JEW_FLOAT JEW_NAME(__short_as_, )(short bits) {
  return JEW_FLOAT_RAW{static_cast<unsigned short>(bits)};
}
JEW_DEVICE JEW_FLOAT JEW_NAME(__ushort_as_, )(unsigned short bits) { return JEW_FLOAT_RAW{bits}; }

#define JEW_INTEGER(word, T)                                         \
  JEW_DEVICE JEW_FLOAT JEW_NAME(__##word##2, _rn)(T x) { return x; } \
  JEW_DEVICE T JEW_NAME(__, 2##word##_rn)(JEW_FLOAT x) {             \
    return jax_elementwise::integer_of<T>(rintf(x));                 \
  }                                                                  \
  JEW_DEVICE T JEW_NAME(__, 2##word##_rz)(JEW_FLOAT x) {             \
    return jax_elementwise::integer_of<T>(static_cast<float>(x));    \
  }                                                                  \
  JEW_DEVICE T JEW_NAME(__, 2##word##_rd)(JEW_FLOAT x) {             \
    return jax_elementwise::integer_of<T>(floorf(x));                \
  }                                                                  \
  JEW_DEVICE T JEW_NAME(__, 2##word##_ru)(JEW_FLOAT x) {             \
    return jax_elementwise::integer_of<T>(ceilf(x));                 \
  }
JEW_INTEGER(short, short)
JEW_INTEGER(ushort, unsigned short)
JEW_INTEGER(int, int)
JEW_INTEGER(uint, unsigned int)
JEW_INTEGER(ll, long long)
JEW_INTEGER(ull, unsigned long long)
#undef JEW_INTEGER
JEW_DEVICE signed char JEW_NAME(__, 2char_rz)(JEW_FLOAT x) { return x; }
JEW_DEVICE unsigned char JEW_NAME(__, 2uchar_rz)(JEW_FLOAT x) { return x; }

// ---- Pairs --------------------------------------------------------------------------------------

JEW_DEVICE JEW_PAIR JEW_NAME(make_, 2)(JEW_FLOAT x, JEW_FLOAT y) { return {x, y}; }
JEW_DEVICE JEW_PAIR JEW_NAME(__halves2, 2)(JEW_FLOAT x, JEW_FLOAT y) { return {x, y}; }
JEW_DEVICE JEW_PAIR JEW_BROADCAST(JEW_FLOAT x) { return {x, x}; }
JEW_DEVICE JEW_FLOAT JEW_NAME(__low2, )(JEW_PAIR x) { return x.x; }
JEW_DEVICE JEW_FLOAT JEW_NAME(__high2, )(JEW_PAIR x) { return x.y; }
JEW_DEVICE JEW_PAIR JEW_NAME(__low2, 2)(JEW_PAIR x) { return {x.x, x.x}; }
JEW_DEVICE JEW_PAIR JEW_NAME(__high2, 2)(JEW_PAIR x) { return {x.y, x.y}; }
JEW_DEVICE JEW_PAIR JEW_NAME(__lows2, 2)(JEW_PAIR x, JEW_PAIR y) { return {x.x, y.x}; }
JEW_DEVICE JEW_PAIR JEW_NAME(__highs2, 2)(JEW_PAIR x, JEW_PAIR y) { return {x.y, y.y}; }
JEW_DEVICE JEW_PAIR __lowhigh2highlow(JEW_PAIR x) { return {x.y, x.x}; }

JEW_DEVICE JEW_PAIR JEW_NAME(__float2, 2_rn)(float x) { return JEW_BROADCAST(x); }
JEW_DEVICE JEW_PAIR JEW_NAME(__floats2, 2_rn)(float x, float y) { return {x, y}; }
JEW_DEVICE JEW_PAIR JEW_NAME(__float22, 2_rn)(float2 x) { return {x.x, x.y}; }
JEW_DEVICE float2 JEW_NAME(__, 22float2)(JEW_PAIR x) { return make_float2(x.x, x.y); }
JEW_DEVICE float __low2float(JEW_PAIR x) { return x.x; }
JEW_DEVICE float __high2float(JEW_PAIR x) { return x.y; }
