#include "launch.h"

#include "jax_elementwise/alignment.h"

namespace jax_elementwise::runtime {

void launch(const LoadedKernel& kernel, CUstream stream, const Call& call) {
  Parameters parameters(call);
  if (parameters.packs() == 0) return;
  const std::int64_t blocks = block_count(parameters.packs(), kernel.max_blocks);
  EW_CUDA(cuLaunchKernel, kernel.function, static_cast<unsigned>(blocks), 1, 1, kBlockSize, 1, 1, 0,
          stream, parameters.addresses(), nullptr);
}

}  // namespace jax_elementwise::runtime
