#include "kernel_cache.h"

#include <algorithm>
#include <chrono>
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
  return "package " EW_PACKAGE_VERSION "\nheaders " + std::to_string(headers_hash()) + "\n" +
         (is_for_host(request) ? "host " + host_compiler_identity(request)
                               : nvrtc_identity(request)) +
         "\nname " + request.name + "\n" + request.source;
}

// The first byte of a cached payload tells PTX from machine code.
CompiledImage compile_or_read(const CompileRequest& request, const std::string& key) {
  if (std::optional<std::string> payload = read_cache(key); payload && !payload->empty()) {
    ++counters.disk_hits;
    const bool is_ptx = payload->front() == 'p';
    return {std::move(payload->erase(0, 1)), is_ptx};
  }
  CompiledImage image = is_for_host(request) ? host_compile(request) : nvrtc_compile(request);
  ++counters.compilations;
  write_cache(key, (image.is_ptx ? "p" : "c") + image.bytes);
  return image;
}

using SharedImage = std::shared_ptr<const CompiledImage>;

// Null where whoever compiled gave up, so that somebody else must.
using FutureImage = std::shared_future<SharedImage>;

std::mutex images_mutex;
std::map<std::string, FutureImage> images;
std::function<void()> interrupt_check = [] {};  // set before any thread compiles

void forget_in_memory(const std::string& key) {
  const std::lock_guard<std::mutex> lock(images_mutex);
  images.erase(key);  // whoever waits for it has a share of its future
}

SharedImage compile_for_all(const CompileRequest& request, const std::string& key,
                            std::promise<SharedImage>& promise) {
  try {
    auto image = std::make_shared<const CompiledImage>(compile_or_read(request, key));
    promise.set_value(image);
    return image;
  } catch (const Error&) {
    forget_in_memory(key);
    promise.set_exception(std::current_exception());
    throw;
  } catch (...) {  // says nothing of the kernel: an interrupt, an exception of Python's
    forget_in_memory(key);
    promise.set_value(nullptr);
    throw;
  }
}

SharedImage wait_for(const FutureImage& future) {
  while (future.wait_for(std::chrono::milliseconds(50)) != std::future_status::ready) {
    interrupt_check();
  }
  return future.get();
}

// ---- Kernels on devices ------------------------------------------------------------------------

std::mutex table_mutex;
std::map<std::string, std::unique_ptr<Kernel>> table;

// Whether the driver says of an image, and not of the device, that it cannot be loaded: invalid
// image (200), of another GPU (209), invalid PTX (218), PTX of a newer version (222), invalid
// source (300), no such kernel in it (500).
bool is_about_image(CUresult result) {
  for (const CUresult known : {200, 209, 218, 222, 300, 500}) {
    if (result == known) return true;
  }
  return false;
}

void check_image(CUresult result, const char* call) {
  try {
    check(result, call);
  } catch (const Error& error) {
    if (is_about_image(result)) throw BadImage(error.what());
    throw;
  }
}

LoadedKernel load_on_current_device(const CompiledImage& image, const std::string& name,
                                    CUdevice device) {
  CUlibrary library = nullptr;
  check_image(driver().cuLibraryLoadData(&library, image.bytes.c_str(), nullptr, nullptr, 0,
                                         nullptr, nullptr, 0),
              "cuLibraryLoadData");
  CUkernel kernel = nullptr;
  check_image(driver().cuLibraryGetKernel(&kernel, library, name.c_str()), "cuLibraryGetKernel");
  LoadedKernel loaded{};
  check_image(driver().cuKernelGetFunction(&loaded.function, kernel), "cuKernelGetFunction");
  // Now, and not lazily at the first launch, which may be inside of a graph capture.
  if (driver().cuFuncLoad != nullptr) {
    check_image(driver().cuFuncLoad(loaded.function), "cuFuncLoad");
  }
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

void set_interrupt_check(std::function<void()> check) { interrupt_check = std::move(check); }

SharedImage get_image(const CompileRequest& request) {
  const std::string key = cache_key(request);
  for (;;) {
    std::promise<SharedImage> promise;
    FutureImage future;
    bool is_first = false;
    {
      const std::lock_guard<std::mutex> lock(images_mutex);
      const auto [entry, inserted] = images.try_emplace(key);
      if (inserted) entry->second = promise.get_future().share();
      is_first = inserted;
      future = entry->second;
    }
    if (is_first) return compile_for_all(request, key, promise);
    if (SharedImage image = wait_for(future)) {
      ++counters.memory_hits;
      return image;
    }
  }
}

void forget_image(const CompileRequest& request) {
  const std::string key = cache_key(request);
  forget_in_memory(key);
  remove_cache_entry(key);
}

std::string content_of(const CompileRequest& request) {
  std::string result = request.name;  // neither it nor an option has a line's end in it
  for (const std::string& option : request.options) result += " " + option;
  return result + "\n" + request.source;
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
  const LoadedKernel loaded = load_image(request, [&](const CompiledImage& image) {
    return load_on_current_device(image, request.name, context.device());
  });
  device.store(new LoadedKernel(loaded), std::memory_order_release);
}

Kernel& kernel_of(const CompileRequest& request) {
  const std::lock_guard<std::mutex> lock(table_mutex);
  std::unique_ptr<Kernel>& kernel = table[content_of(request)];
  if (!kernel) kernel = std::make_unique<Kernel>(request);
  return *kernel;
}

}  // namespace jax_elementwise::runtime
