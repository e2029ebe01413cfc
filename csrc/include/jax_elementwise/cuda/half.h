// CUDA's __half and __half2, with their operators and the functions of elementwise code, for text
// that was written for cuda_fp16.h. Under nvcc, and where CUDA's header came first, they are
// CUDA's.
//
// Values are those of CUDA's header but for what short_arithmetic.h says (nothing is fused that is
// not called so) and for hexp and the like, which round the float32 function once.
#pragma once

#if defined(__CUDACC__) && !defined(__CUDACC_RTC__)
#include <cuda_fp16.h>
#elif !defined(__CUDA_FP16_H__)
#define __CUDA_FP16_H__  // CUDA's header, should it come later, is then empty

#include <jax_elementwise/cuda/names.h>
#include <jax_elementwise/cuda/short_arithmetic.h>

#define EW_FLOAT __half
#define EW_PAIR __half2
#define EW_FLOAT_RAW __half_raw
#define EW_PAIR_RAW __half2_raw
#define EW_STORED float16
#define EW_NAME(before, after) before##half##after
#define EW_BROADCAST __half2half2
#include <jax_elementwise/cuda/short_float.h>

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
