// The launch of a kernel on a GPU.
#pragma once

#include "kernel_cache.h"
#include "plan.h"

namespace jax_elementwise::runtime {

// Starts the kernel on the stream. Nothing is compiled, loaded, allocated or waited for.
void launch(const LoadedKernel& kernel, CUstream stream, const Call& call);

}  // namespace jax_elementwise::runtime
