#include "kernel_cache.h"

#include <algorithm>
#include <future>
#include <map>

#include "disk_cache.h"
#include "error.h"
#include "headers.h"
#include "host_compiler.h"
#include "jax_elementwise/alignment.h"
#include "nvrtc.h"

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

std::mutex table_mutex;
std::map<std::string, std::unique_ptr<Kernel>, std::less<>> table;

LoadedKernel load_on_current_device(const CompiledImage& image, const std::string& name,
                                    CUdevice device) {
  CUlibrary library = nullptr;
  JEW_CUDA(cuLibraryLoadData, &library, image.bytes.c_str(), nullptr, nullptr, 0, nullptr, nullptr,
           0);
  CUkernel kernel = nullptr;
  JEW_CUDA(cuLibraryGetKernel, &kernel, library, name.c_str());
  LoadedKernel loaded{};
  JEW_CUDA(cuKernelGetFunction, &loaded.function, kernel);
  // Now, and not lazily at the first launch, which may be inside of a graph capture.
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

void Kernel::load_on_active_devices() {
  for (int ordinal = 0; ordinal < std::min(device_count(), kMaxDevices); ++ordinal) {
    try {
      if (is_active(ordinal)) load(ordinal);
    } catch (const Error&) {  // on() reports it, if the kernel is to run there
    }
  }
}

const LoadedKernel& Kernel::on(int ordinal) {
  if (ordinal < 0 || ordinal >= kMaxDevices) {
    throw Unavailable("device ordinal " + std::to_string(ordinal) + " is not below " +
                      std::to_string(kMaxDevices));
  }
  const std::atomic<const LoadedKernel*>& device = devices_[static_cast<size_t>(ordinal)];
  if (device.load(std::memory_order_acquire) == nullptr) load(ordinal);
  return *device.load(std::memory_order_acquire);
}

void Kernel::load(int ordinal) {
  std::atomic<const LoadedKernel*>& device = devices_[static_cast<size_t>(ordinal)];
  const std::lock_guard<std::mutex> lock(loading_);
  if (device.load(std::memory_order_acquire) != nullptr) return;
  const ScopedContext context(ordinal);
  CompileRequest request = request_;
  request.arch = compute_capability(context.device());
  const SharedImage image = get_image(request);
  device.store(new LoadedKernel(load_on_current_device(*image, request.name, context.device())),
               std::memory_order_release);
}

Kernel& kernel_of(std::string_view digest, const CompileRequest& request) {
  const std::lock_guard<std::mutex> lock(table_mutex);
  std::unique_ptr<Kernel>& kernel = table[std::string(digest)];
  if (!kernel) kernel = std::make_unique<Kernel>(request);
  return *kernel;
}

}  // namespace jax_elementwise::runtime
