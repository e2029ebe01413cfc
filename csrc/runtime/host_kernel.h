// Kernels that are loaded into this process, and how they run on its threads.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "compilation.h"
#include "plan.h"

namespace jax_elementwise::runtime {

// Goes through the packs [begin, end) of a call. The parameters are those of the kernel, by
// address.
using HostFunction = void(void* const* parameters, long long begin, long long end);

// Writes what the kernel was made for, as numbers (host_description.h); returns how many.
using HostDescription = long long(void* const* parameters, long long* words);

struct HostKernel {
  HostFunction* function;
  std::vector<long long> description;
};

// Compiles (or finds) the kernel and loads it. It stays loaded. A second call is a look-up.
const HostKernel& load_host_kernel(CompileRequest request);

// Threads that may help the calling one.
struct Helpers {
  std::int64_t count;
  std::function<void(std::function<void()>)> schedule;  // lets one of them run a task, some time
};

// Runs the kernel and returns when all of its results are written. The calling thread takes chunks
// of packs as the helpers do, and waits for chunks that have begun, not for helpers to come: these
// may all be waiting in calls of their own.
void run_on_host(HostFunction* kernel, const Call& call, const Helpers& helpers);

}  // namespace jax_elementwise::runtime
