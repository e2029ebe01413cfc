// What a user's CUDA text may name without including anything: put before it. It serves the text's
// own includes of cuda_fp16.h, cuda_bf16.h, cuda_fp8.h, cmath, math.h, cstdint and stdint.h too.
#pragma once

#include <jax_elementwise/bfloat16.h>
#include <jax_elementwise/cuda_names.h>
#include <jax_elementwise/float8.h>
#include <jax_elementwise/half.h>
