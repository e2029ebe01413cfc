// CUDA's __nv_bfloat16 and __nv_bfloat162, for text that was written for cuda_bf16.h: as half.h.
#pragma once

#if defined(__CUDACC__) && !defined(__CUDACC_RTC__)
#include <cuda_bf16.h>
#elif !defined(__CUDA_BF16_H__)
#define __CUDA_BF16_H__  // CUDA's header, should it come later, is then empty

#include <jax_elementwise/cuda/names.h>
#include <jax_elementwise/cuda/short_arithmetic.h>

#define EW_FLOAT __nv_bfloat16
#define EW_PAIR __nv_bfloat162
#define EW_FLOAT_RAW __nv_bfloat16_raw
#define EW_PAIR_RAW __nv_bfloat162_raw
#define EW_STORED bfloat16
#define EW_NAME(before, after) before##bfloat16##after
#define EW_BROADCAST __bfloat162bfloat162
#include <jax_elementwise/cuda/short_float.h>

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
