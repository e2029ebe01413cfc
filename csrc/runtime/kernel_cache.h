// From source text to machine code, memory, then disk, then the compiler; and to a kernel that is
// loaded on a GPU.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "compilation.h"
#include "driver.h"
#include "error.h"

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

// Called now and then by a thread that waits for another one's compilation; throws to end the wait.
void set_interrupt_check(std::function<void()> check);

// The machine code of a request, for a GPU or for this CPU. Each request is compiled once, however
// many threads ask for it; a failure is not remembered.
std::shared_ptr<const CompiledImage> get_image(const CompileRequest& request);

// Forgets the machine code of a request, in memory and on disk.
void forget_image(const CompileRequest& request);

// Machine code that cannot be loaded: damaged, or of a compiler that made something else.
class BadImage : public Error {
 public:
  explicit BadImage(const std::string& message) : Error(Fault::kInternal, message) {}
};

// What `load` makes of the machine code of a request. Code that it finds bad is forgotten, in
// memory and on disk, and made once more.
template <class Load>
auto load_image(const CompileRequest& request, const Load& load) {
  try {
    return load(*get_image(request));
  } catch (const BadImage&) {
    forget_image(request);
  }
  try {
    return load(*get_image(request));
  } catch (const BadImage&) {
    forget_image(request);
    throw;
  }
}

// By what loaded kernels are known: all of a request but the architecture.
std::string content_of(const CompileRequest& request);

// A kernel, and the GPUs of this process that it is loaded on.
class Kernel {
 public:
  explicit Kernel(CompileRequest request) : request_(std::move(request)) {}

  // Loads it on all devices whose primary context is active, among which are those that XLA may run
  // it on. Launches must not find it missing, if possible: what loads a module may wait for the
  // device, and the device, in a collective, for another one.
  void load_on_active_devices();

  // On a device, where this loads it if it is not there. Otherwise takes no lock.
  const LoadedKernel& on(int device_ordinal);

 private:
  static constexpr int kMaxDevices = 64;
  void load(int device_ordinal);

  const CompileRequest request_;  // its architecture is that of the device
  std::mutex loading_;
  std::array<std::atomic<const LoadedKernel*>, kMaxDevices> devices_{};
};

// The kernel of a request; the same one for all programs that have it. It lives as long as the
// process: any of them may be the last to use it.
Kernel& kernel_of(const CompileRequest& request);

}  // namespace jax_elementwise::runtime
