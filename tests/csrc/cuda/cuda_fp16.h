// Stands in for the toolkit's header of this name: what the example uses of it.
#pragma once

#include "cuda_runtime.h"
#include "jax_elementwise/dtypes.h"

struct __half {
  jax_elementwise::float16 value;
  operator float() const { return jax_elementwise::portable::widen(value); }
};
struct [[gnu::may_alias]] __half2 {
  __half x, y;
};

inline __half __float2half(float x) { return {jax_elementwise::portable::to_float16(x)}; }
inline float __half2float(__half x) { return x; }
inline __half __hadd(__half x, __half y) { return __float2half(float(x) + float(y)); }
inline __half2 __hadd2(__half2 x, __half2 y) { return {__hadd(x.x, y.x), __hadd(x.y, y.y)}; }
