// The functions that convert a 16-bit float, most with its format in their names: the last part of
// short_float.h, whose macros it needs.

JEW_LAZY JEW_FLOAT JEW_NAME(__float2, )(float x) { return JEW_FLOAT(x); }
JEW_LAZY JEW_FLOAT JEW_NAME(__float2, _rn)(float x) { return JEW_FLOAT(x); }
JEW_LAZY JEW_FLOAT JEW_NAME(__double2, )(double x) { return JEW_FLOAT(x); }
JEW_LAZY float JEW_NAME(__, 2float)(JEW_FLOAT x) { return jax_elementwise::short_floats::wide(x); }

JEW_LAZY short JEW_NAME(__, _as_short)(JEW_FLOAT x) { return static_cast<short>(x.__x); }
JEW_LAZY unsigned short JEW_NAME(__, _as_ushort)(JEW_FLOAT x) { return x.__x; }
JEW_LAZY JEW_FLOAT JEW_NAME(__short_as_, )(short bits) {
  return JEW_FLOAT_RAW{static_cast<unsigned short>(bits)};
}
JEW_LAZY JEW_FLOAT JEW_NAME(__ushort_as_, )(unsigned short bits) { return JEW_FLOAT_RAW{bits}; }

#define JEW_INTEGER(word, T)                                                               \
  JEW_LAZY JEW_FLOAT JEW_NAME(__##word##2, _rn)(T x) { return JEW_FLOAT(x); }              \
  JEW_LAZY T JEW_NAME(__, 2##word##_rn)(JEW_FLOAT x) {                                     \
    return jax_elementwise::integer_of<T>(rintf(jax_elementwise::short_floats::wide(x)));  \
  }                                                                                        \
  JEW_LAZY T JEW_NAME(__, 2##word##_rz)(JEW_FLOAT x) {                                     \
    return jax_elementwise::integer_of<T>(jax_elementwise::short_floats::wide(x));         \
  }                                                                                        \
  JEW_LAZY T JEW_NAME(__, 2##word##_rd)(JEW_FLOAT x) {                                     \
    return jax_elementwise::integer_of<T>(floorf(jax_elementwise::short_floats::wide(x))); \
  }                                                                                        \
  JEW_LAZY T JEW_NAME(__, 2##word##_ru)(JEW_FLOAT x) {                                     \
    return jax_elementwise::integer_of<T>(ceilf(jax_elementwise::short_floats::wide(x)));  \
  }
JEW_INTEGER(short, short)
JEW_INTEGER(ushort, unsigned short)
JEW_INTEGER(int, int)
JEW_INTEGER(uint, unsigned int)
JEW_INTEGER(ll, long long)
JEW_INTEGER(ull, unsigned long long)
#undef JEW_INTEGER
JEW_LAZY signed char JEW_NAME(__, 2char_rz)(JEW_FLOAT x) { return x; }
JEW_LAZY unsigned char JEW_NAME(__, 2uchar_rz)(JEW_FLOAT x) { return x; }

// ---- Pairs --------------------------------------------------------------------------------------

JEW_LAZY JEW_PAIR JEW_NAME(make_, 2)(JEW_FLOAT x, JEW_FLOAT y) { return JEW_PAIR(x, y); }
JEW_LAZY JEW_PAIR JEW_NAME(__halves2, 2)(JEW_FLOAT x, JEW_FLOAT y) { return JEW_PAIR(x, y); }
JEW_LAZY JEW_PAIR JEW_BROADCAST(JEW_FLOAT x) { return JEW_PAIR(x, x); }
JEW_LAZY JEW_FLOAT JEW_NAME(__low2, )(JEW_PAIR x) { return x.x; }
JEW_LAZY JEW_FLOAT JEW_NAME(__high2, )(JEW_PAIR x) { return x.y; }
JEW_LAZY JEW_PAIR JEW_NAME(__low2, 2)(JEW_PAIR x) { return JEW_PAIR(x.x, x.x); }
JEW_LAZY JEW_PAIR JEW_NAME(__high2, 2)(JEW_PAIR x) { return JEW_PAIR(x.y, x.y); }
JEW_LAZY JEW_PAIR JEW_NAME(__lows2, 2)(JEW_PAIR x, JEW_PAIR y) { return JEW_PAIR(x.x, y.x); }
JEW_LAZY JEW_PAIR JEW_NAME(__highs2, 2)(JEW_PAIR x, JEW_PAIR y) { return JEW_PAIR(x.y, y.y); }
JEW_LAZY JEW_PAIR __lowhigh2highlow(JEW_PAIR x) { return JEW_PAIR(x.y, x.x); }

JEW_LAZY JEW_PAIR JEW_NAME(__float2, 2_rn)(float x) { return JEW_BROADCAST(JEW_FLOAT(x)); }
JEW_LAZY JEW_PAIR JEW_NAME(__floats2, 2_rn)(float x, float y) {
  return JEW_PAIR(JEW_FLOAT(x), JEW_FLOAT(y));
}
JEW_LAZY JEW_PAIR JEW_NAME(__float22, 2_rn)(float2 x) {
  return JEW_PAIR(JEW_FLOAT(x.x), JEW_FLOAT(x.y));
}
JEW_LAZY float __low2float(JEW_PAIR x) { return jax_elementwise::short_floats::wide(x.x); }
JEW_LAZY float __high2float(JEW_PAIR x) { return jax_elementwise::short_floats::wide(x.y); }
JEW_LAZY float2 JEW_NAME(__, 22float2)(JEW_PAIR x) {
  return make_float2(__low2float(x), __high2float(x));
}
