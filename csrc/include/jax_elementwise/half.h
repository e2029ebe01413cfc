// CUDA's floats of 16 and 8 bits for text that was written for CUDA's own headers: __half, __half2,
// __nv_bfloat16, __nv_bfloat162, __nv_fp8_e4m3 and __nv_fp8_e5m2, with their operators and the
// functions of elementwise code. Under nvcc, and where CUDA's headers came first, these are CUDA's.
//
// Values are those of CUDA's headers but for what short_arithmetic.h says (nothing is fused that is
// not called so) and for hexp and the like, which round the float32 function once.
#pragma once

#if defined(__CUDACC__) && !defined(__CUDACC_RTC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#else

#include <jax_elementwise/cuda_names.h>
#include <jax_elementwise/short_arithmetic.h>

// A pointer to elements of an array may be cast to one to pairs of them.
#if defined(__CUDACC__)
#define JEW_MAY_ALIAS
#define JEW_ALIGN_PAIR alignas(4)
#else
#define JEW_MAY_ALIAS __attribute__((may_alias))
#define JEW_ALIGN_PAIR __attribute__((aligned(4)))
#endif

// CUDA's headers, when they come later, are then empty.
#if !defined(__CUDA_FP16_H__)
#define __CUDA_FP16_H__
#define JEW_FLOAT __half
#define JEW_PAIR __half2
#define JEW_FLOAT_RAW __half_raw
#define JEW_PAIR_RAW __half2_raw
#define JEW_STORED float16
#define JEW_NAME(before, after) before##half##after
#define JEW_BROADCAST __half2half2
#include <jax_elementwise/short_float.h>
#include <jax_elementwise/short_conversions.h>
#undef JEW_FLOAT
#undef JEW_PAIR
#undef JEW_FLOAT_RAW
#undef JEW_PAIR_RAW
#undef JEW_STORED
#undef JEW_NAME
#undef JEW_BROADCAST
using half = __half;
using half2 = __half2;
#define CUDART_INF_FP16 __ushort_as_half(0x7c00)
#define CUDART_NAN_FP16 __ushort_as_half(0x7fff)
#define CUDART_MIN_DENORM_FP16 __ushort_as_half(0x0001)
#define CUDART_MAX_NORMAL_FP16 __ushort_as_half(0x7bff)
#define CUDART_NEG_ZERO_FP16 __ushort_as_half(0x8000)
#define CUDART_ZERO_FP16 __ushort_as_half(0x0000)
#define CUDART_ONE_FP16 __ushort_as_half(0x3c00)
#endif

#if !defined(__CUDA_BF16_H__)
#define __CUDA_BF16_H__
#define JEW_FLOAT __nv_bfloat16
#define JEW_PAIR __nv_bfloat162
#define JEW_FLOAT_RAW __nv_bfloat16_raw
#define JEW_PAIR_RAW __nv_bfloat162_raw
#define JEW_STORED bfloat16
#define JEW_NAME(before, after) before##bfloat16##after
#define JEW_BROADCAST __bfloat162bfloat162
#include <jax_elementwise/short_float.h>
#include <jax_elementwise/short_conversions.h>
#undef JEW_FLOAT
#undef JEW_PAIR
#undef JEW_FLOAT_RAW
#undef JEW_PAIR_RAW
#undef JEW_STORED
#undef JEW_NAME
#undef JEW_BROADCAST
using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;
#define CUDART_INF_BF16 __ushort_as_bfloat16(0x7f80)
#define CUDART_NAN_BF16 __ushort_as_bfloat16(0x7fff)
#define CUDART_MIN_DENORM_BF16 __ushort_as_bfloat16(0x0001)
#define CUDART_MAX_NORMAL_BF16 __ushort_as_bfloat16(0x7f7f)
#define CUDART_NEG_ZERO_BF16 __ushort_as_bfloat16(0x8000)
#define CUDART_ZERO_BF16 __ushort_as_bfloat16(0x0000)
#define CUDART_ONE_BF16 __ushort_as_bfloat16(0x3f80)
#endif

#undef JEW_MAY_ALIAS
#undef JEW_ALIGN_PAIR

#include <jax_elementwise/float8_types.h>

#endif
