// The functions that convert a 16-bit float, most with its format in their names: the last part of
// short_float.h, whose macros it needs.

JAX_ELEMENTWISE_LAZY EW_FLOAT EW_NAME(__float2, )(float x) { return EW_FLOAT(x); }
JAX_ELEMENTWISE_LAZY EW_FLOAT EW_NAME(__float2, _rn)(float x) { return EW_FLOAT(x); }
JAX_ELEMENTWISE_LAZY EW_FLOAT EW_NAME(__double2, )(double x) { return EW_FLOAT(x); }
JAX_ELEMENTWISE_LAZY float EW_NAME(__, 2float)(EW_FLOAT x) {
  return jax_elementwise::short_floats::wide(x);
}

JAX_ELEMENTWISE_LAZY short EW_NAME(__, _as_short)(EW_FLOAT x) { return static_cast<short>(x.__x); }
JAX_ELEMENTWISE_LAZY unsigned short EW_NAME(__, _as_ushort)(EW_FLOAT x) { return x.__x; }
JAX_ELEMENTWISE_LAZY EW_FLOAT EW_NAME(__short_as_, )(short bits) {
  return EW_FLOAT_RAW{static_cast<unsigned short>(bits)};
}
JAX_ELEMENTWISE_LAZY EW_FLOAT EW_NAME(__ushort_as_, )(unsigned short bits) {
  return EW_FLOAT_RAW{bits};
}

#define EW_INTEGER(word, T)                                                                \
  JAX_ELEMENTWISE_LAZY EW_FLOAT EW_NAME(__##word##2, _rn)(T x) { return EW_FLOAT(x); }     \
  JAX_ELEMENTWISE_LAZY T EW_NAME(__, 2##word##_rn)(EW_FLOAT x) {                           \
    return jax_elementwise::integer_of<T>(rintf(jax_elementwise::short_floats::wide(x)));  \
  }                                                                                        \
  JAX_ELEMENTWISE_LAZY T EW_NAME(__, 2##word##_rz)(EW_FLOAT x) {                           \
    return jax_elementwise::integer_of<T>(jax_elementwise::short_floats::wide(x));         \
  }                                                                                        \
  JAX_ELEMENTWISE_LAZY T EW_NAME(__, 2##word##_rd)(EW_FLOAT x) {                           \
    return jax_elementwise::integer_of<T>(floorf(jax_elementwise::short_floats::wide(x))); \
  }                                                                                        \
  JAX_ELEMENTWISE_LAZY T EW_NAME(__, 2##word##_ru)(EW_FLOAT x) {                           \
    return jax_elementwise::integer_of<T>(ceilf(jax_elementwise::short_floats::wide(x)));  \
  }
EW_INTEGER(short, short)
EW_INTEGER(ushort, unsigned short)
EW_INTEGER(int, int)
EW_INTEGER(uint, unsigned int)
EW_INTEGER(ll, long long)
EW_INTEGER(ull, unsigned long long)
#undef EW_INTEGER
JAX_ELEMENTWISE_LAZY signed char EW_NAME(__, 2char_rz)(EW_FLOAT x) { return x; }
JAX_ELEMENTWISE_LAZY unsigned char EW_NAME(__, 2uchar_rz)(EW_FLOAT x) { return x; }

// ---- Pairs --------------------------------------------------------------------------------------

JAX_ELEMENTWISE_LAZY EW_PAIR EW_NAME(make_, 2)(EW_FLOAT x, EW_FLOAT y) { return EW_PAIR(x, y); }
JAX_ELEMENTWISE_LAZY EW_PAIR EW_NAME(__halves2, 2)(EW_FLOAT x, EW_FLOAT y) { return EW_PAIR(x, y); }
JAX_ELEMENTWISE_LAZY EW_PAIR EW_BROADCAST(EW_FLOAT x) { return EW_PAIR(x, x); }
JAX_ELEMENTWISE_LAZY EW_FLOAT EW_NAME(__low2, )(EW_PAIR x) { return x.x; }
JAX_ELEMENTWISE_LAZY EW_FLOAT EW_NAME(__high2, )(EW_PAIR x) { return x.y; }
JAX_ELEMENTWISE_LAZY EW_PAIR EW_NAME(__low2, 2)(EW_PAIR x) { return EW_PAIR(x.x, x.x); }
JAX_ELEMENTWISE_LAZY EW_PAIR EW_NAME(__high2, 2)(EW_PAIR x) { return EW_PAIR(x.y, x.y); }
JAX_ELEMENTWISE_LAZY EW_PAIR EW_NAME(__lows2, 2)(EW_PAIR x, EW_PAIR y) { return EW_PAIR(x.x, y.x); }
JAX_ELEMENTWISE_LAZY EW_PAIR EW_NAME(__highs2, 2)(EW_PAIR x, EW_PAIR y) {
  return EW_PAIR(x.y, y.y);
}
JAX_ELEMENTWISE_LAZY EW_PAIR __lowhigh2highlow(EW_PAIR x) { return EW_PAIR(x.y, x.x); }

JAX_ELEMENTWISE_LAZY EW_PAIR EW_NAME(__float2, 2_rn)(float x) { return EW_BROADCAST(EW_FLOAT(x)); }
JAX_ELEMENTWISE_LAZY EW_PAIR EW_NAME(__floats2, 2_rn)(float x, float y) {
  return EW_PAIR(EW_FLOAT(x), EW_FLOAT(y));
}
JAX_ELEMENTWISE_LAZY EW_PAIR EW_NAME(__float22, 2_rn)(float2 x) {
  return EW_PAIR(EW_FLOAT(x.x), EW_FLOAT(x.y));
}
JAX_ELEMENTWISE_LAZY float __low2float(EW_PAIR x) {
  return jax_elementwise::short_floats::wide(x.x);
}
JAX_ELEMENTWISE_LAZY float __high2float(EW_PAIR x) {
  return jax_elementwise::short_floats::wide(x.y);
}
JAX_ELEMENTWISE_LAZY float2 EW_NAME(__, 22float2)(EW_PAIR x) {
  return make_float2(__low2float(x), __high2float(x));
}
