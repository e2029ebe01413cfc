#include "kernel_cache.h"

#include <array>
#include <atomic>
#include <future>
#include <map>
#include <mutex>
#include <shared_mutex>

#include "disk_cache.h"
#include "error.h"
#include "headers.h"
#include "host_compiler.h"
#include "launch.h"

namespace jax_elementwise::runtime {
namespace {

struct AtomicCounters {
  std::atomic<std::int64_t> compilations{0}, disk_hits{0}, memory_hits{0}, loads{0};
} counters;

// ---- Images ------------------------------------------------------------------------------------

bool is_for_host(const CompileRequest& request) { return request.arch == kHostCpu; }

std::string nvrtc_identity(const CompileRequest& request) {
  std::string result = "nvrtc " + std::to_string(nvrtc_version()) + "\narch " +
                       std::to_string(request.arch) + "\noptions";
  for (const std::string& option : compiler_options(request)) result += " " + option;
  return result;
}

// Everything that decides the machine code, so that no entry is ever taken for another.
std::string cache_key(const CompileRequest& request) {
  return "package " JEW_PACKAGE_VERSION "\nheaders " + std::to_string(headers_hash()) + "\n" +
         (is_for_host(request) ? "host " + host_compiler_identity(request)
                               : nvrtc_identity(request)) +
         "\nname " + request.name + "\n" + request.source;
}

// The first byte of a cached payload tells PTX from machine code.
CompiledImage compile_or_read(const CompileRequest& request, const std::string& key) {
  if (std::optional<std::string> payload = read_cache(key); payload && !payload->empty()) {
    ++counters.disk_hits;
    return {payload->substr(1), payload->front() == 'p'};
  }
  CompiledImage image = is_for_host(request) ? host_compile(request) : nvrtc_compile(request);
  ++counters.compilations;
  write_cache(key, (image.is_ptx ? "p" : "c") + image.bytes);
  return image;
}

using SharedImage = std::shared_ptr<const CompiledImage>;

std::mutex images_mutex;
std::map<std::string, std::shared_future<SharedImage>> images;

// ---- Kernels on devices ------------------------------------------------------------------------

constexpr int kMaxDevices = 64;

struct KernelSlots {
  std::mutex loading;
  std::array<std::atomic<const LoadedKernel*>, kMaxDevices> devices{};
};

std::shared_mutex table_mutex;
std::map<std::string, std::unique_ptr<KernelSlots>, std::less<>> table;

KernelSlots* find_slots(std::string_view digest) {
  const std::shared_lock<std::shared_mutex> lock(table_mutex);
  const auto found = table.find(digest);
  return found == table.end() ? nullptr : found->second.get();
}

KernelSlots& make_slots(std::string_view digest) {
  const std::unique_lock<std::shared_mutex> lock(table_mutex);
  std::unique_ptr<KernelSlots>& slots = table[std::string(digest)];
  if (!slots) slots = std::make_unique<KernelSlots>();
  return *slots;
}

void check_ordinal(int ordinal) {
  if (ordinal < 0 || ordinal >= kMaxDevices) {
    throw Unavailable("device ordinal " + std::to_string(ordinal) + " is not below " +
                      std::to_string(kMaxDevices));
  }
}

LoadedKernel load_on_current_device(const CompiledImage& image, const std::string& name,
                                    CUdevice device) {
  CUlibrary library = nullptr;
  JEW_CUDA(cuLibraryLoadData, &library, image.bytes.c_str(), nullptr, nullptr, 0, nullptr, nullptr,
           0);
  CUkernel kernel = nullptr;
  JEW_CUDA(cuLibraryGetKernel, &kernel, library, name.c_str());
  LoadedKernel loaded{};
  JEW_CUDA(cuKernelGetFunction, &loaded.function, kernel);
  // Now, and not lazily at the first launch: a load inside a graph capture would break it.
  if (driver().cuFuncLoad != nullptr) JEW_CUDA(cuFuncLoad, loaded.function);
  loaded.max_blocks = max_blocks(driver().attribute(kMultiprocessorCount, device),
                                 driver().attribute(kMaxThreadsPerMultiprocessor, device));
  count_load();
  return loaded;
}

}  // namespace

CacheCounters cache_counters() {
  return {counters.compilations, counters.disk_hits, counters.memory_hits, counters.loads};
}

void reset_cache_counters() {
  counters.compilations = 0;
  counters.disk_hits = 0;
  counters.memory_hits = 0;
  counters.loads = 0;
}

void count_load() { ++counters.loads; }

void clear_cache() {
  {
    const std::lock_guard<std::mutex> lock(images_mutex);
    images.clear();  // whoever waits for one has a share of its future
  }
  remove_cache_entries();
  reset_cache_counters();
}

SharedImage get_image(const CompileRequest& request) {
  const std::string key = cache_key(request);
  std::promise<SharedImage> promise;
  std::shared_future<SharedImage> future;
  bool is_first = false;
  {
    const std::lock_guard<std::mutex> lock(images_mutex);
    const auto [entry, inserted] = images.try_emplace(key);
    if (inserted) entry->second = promise.get_future().share();
    is_first = inserted;
    future = entry->second;
  }
  if (!is_first) {
    ++counters.memory_hits;
    return future.get();
  }
  try {
    promise.set_value(std::make_shared<const CompiledImage>(compile_or_read(request, key)));
  } catch (...) {
    promise.set_exception(std::current_exception());
    const std::lock_guard<std::mutex> lock(images_mutex);
    images.erase(key);
  }
  return future.get();
}

const LoadedKernel* find_kernel(std::string_view digest, int ordinal) {
  check_ordinal(ordinal);
  const KernelSlots* slots = find_slots(digest);
  return slots == nullptr ? nullptr : slots->devices[ordinal].load(std::memory_order_acquire);
}

const LoadedKernel& load_kernel(std::string_view digest, int ordinal,
                                const CompileRequest& request) {
  if (const LoadedKernel* kernel = find_kernel(digest, ordinal)) return *kernel;
  KernelSlots& slots = make_slots(digest);
  const std::lock_guard<std::mutex> lock(slots.loading);
  std::atomic<const LoadedKernel*>& slot = slots.devices[ordinal];
  if (const LoadedKernel* kernel = slot.load(std::memory_order_acquire)) return *kernel;
  const ScopedContext context(ordinal);
  CompileRequest request_here = request;
  request_here.arch = compute_capability(context.device());
  const SharedImage image = get_image(request_here);
  // Never freed: executables keep the digest, not the kernel, and may outlive any count of users.
  const auto* kernel =
      new LoadedKernel(load_on_current_device(*image, request.name, context.device()));
  slot.store(kernel, std::memory_order_release);
  return *kernel;
}

}  // namespace jax_elementwise::runtime
