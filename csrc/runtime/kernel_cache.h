// From source text to machine code, memory, then disk, then the compiler; and to a kernel that is
// loaded on a GPU.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "driver.h"
#include "nvrtc.h"

namespace jax_elementwise::runtime {

struct LoadedKernel {
  CUfunction function;
  std::int64_t max_blocks;  // the cap of its grid on this device
};

// Counts since the process began (or reset_cache_counters).
struct CacheCounters {
  std::int64_t compilations = 0;
  std::int64_t disk_hits = 0;
  std::int64_t memory_hits = 0;
  std::int64_t loads = 0;
};
CacheCounters cache_counters();
void reset_cache_counters();
void count_load();

// Forgets images, removes the entries of the cache directory and resets the counters. Kernels stay
// loaded, since executables use them. What is being compiled meanwhile may be kept.
void clear_cache();

// The machine code of a request, for a GPU or for this CPU. Each request is compiled once, however
// many threads ask for it; a failure is not remembered.
std::shared_ptr<const CompiledImage> get_image(const CompileRequest& request);

// The kernel that load_kernel put there for this digest and device, or null. Takes no exclusive
// lock.
const LoadedKernel* find_kernel(std::string_view digest, int device_ordinal);

// Compiles (or finds) the kernel, loads it on the device and remembers it under the digest, which
// must be one of the request without its architecture. A second call is a look-up.
const LoadedKernel& load_kernel(std::string_view digest, int device_ordinal,
                                const CompileRequest& request);

}  // namespace jax_elementwise::runtime
