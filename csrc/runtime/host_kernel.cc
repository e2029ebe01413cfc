#include "host_kernel.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cfenv>
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <shared_mutex>
#include <string>

#include "error.h"
#include "host_compiler.h"
#include "kernel_cache.h"
#include "process.h"

namespace jax_elementwise::runtime {
namespace {

// ---- Loading ------------------------------------------------------------------------------------

std::mutex loading_mutex;  // held for long; who executes does not wait for it
std::shared_mutex table_mutex;
std::map<std::string, HostFunction*, std::less<>> table;

// From memory, for where nothing in the directory of temporary files may be executed. The file
// stays open: the name of a closed one would be taken for this library.
void* open_from_memory(const std::string& library) {
  const int file = ::memfd_create("jax_elementwise", MFD_CLOEXEC);
  if (file < 0) return nullptr;
  size_t done = 0;
  while (done < library.size()) {
    const ssize_t count = ::write(file, library.data() + done, library.size() - done);
    if (count <= 0) break;
    done += static_cast<size_t>(count);
  }
  const std::string path = "/proc/self/fd/" + std::to_string(file);
  void* handle = done == library.size() ? ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
  if (handle == nullptr) ::close(file);
  return handle;
}

HostFunction* open_library(const std::string& library) {
  std::string reason = "unknown reason";
  void* handle = nullptr;
  {
    const TemporaryDirectory directory;
    const std::string path = directory.write("kernel.so", library);
    handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (const char* error = handle == nullptr ? ::dlerror() : nullptr) reason = error;
  }
  if (handle == nullptr) handle = open_from_memory(library);
  if (handle == nullptr) throw Error(Fault::kInternal, "cannot load a compiled kernel: " + reason);
  auto* function = reinterpret_cast<HostFunction*>(::dlsym(handle, "jew_host_entry"));
  if (function == nullptr) throw Error(Fault::kInternal, "a compiled kernel has no entry point");
  count_load();
  return function;
}

// ---- Running ------------------------------------------------------------------------------------

// Chunks are at least this large, so that taking one costs nothing beside it, and begin at lines of
// the caches where arrays do.
constexpr std::int64_t kSmallestChunk = 256;  // packs
constexpr std::int64_t kChunksPerThread = 8;  // elements may differ in what they cost
// Less work than this is not worth waking a thread for.
constexpr std::chrono::microseconds kWorthHelp{50};

// XLA has the threads flush subnormals, which kernels keep. While in scope they do not.
class DefaultArithmetic {
 public:
  DefaultArithmetic() {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultArithmetic() { std::fesetenv(&saved_); }
  DefaultArithmetic(const DefaultArithmetic&) = delete;
  DefaultArithmetic& operator=(const DefaultArithmetic&) = delete;

 private:
  std::fenv_t saved_;
};

// What is to be done. A helper may come when everything is: only with a chunk in hand may it look
// at what belongs to the call.
struct Work {
  HostFunction* kernel;
  void* const* parameters;  // of the call
  std::int64_t packs;
  std::int64_t chunk;  // packs in each but the last
  std::int64_t chunks;
  std::atomic<std::int64_t> next{0};
  std::int64_t left;  // chunks that are not done
  std::mutex mutex;
  std::condition_variable done;

  // Does one chunk that nobody else does; false where there is none.
  bool do_one() {
    const std::int64_t index = next.fetch_add(1, std::memory_order_relaxed);
    if (index >= chunks) return false;
    kernel(parameters, index * chunk, std::min((index + 1) * chunk, packs));
    const std::lock_guard<std::mutex> lock(mutex);
    if (--left == 0) done.notify_all();
    return true;
  }
  void do_all() {
    const DefaultArithmetic arithmetic;
    while (do_one()) continue;
  }
  void wait() {
    std::unique_lock<std::mutex> lock(mutex);
    done.wait(lock, [this] { return left == 0; });
  }
};

std::int64_t chunk_size(std::int64_t packs, std::int64_t threads) {
  const std::int64_t wanted = packs / (threads * kChunksPerThread) + 1;
  return (wanted + kSmallestChunk - 1) / kSmallestChunk * kSmallestChunk;
}

void ask_for_help(const std::shared_ptr<Work>& work, std::int64_t count, const Helpers& helpers) {
  try {
    for (std::int64_t i = 0; i < count; ++i) helpers.schedule([work] { work->do_all(); });
  } catch (const std::bad_alloc&) {  // then with fewer: some may be at work on the caller's stack
  }
}

}  // namespace

HostFunction* find_host_kernel(std::string_view digest) {
  const std::shared_lock<std::shared_mutex> lock(table_mutex);
  const auto found = table.find(digest);
  return found == table.end() ? nullptr : found->second;
}

HostFunction* load_host_kernel(std::string_view digest, CompileRequest request) {
  if (HostFunction* kernel = find_host_kernel(digest)) return kernel;
  request.arch = kHostCpu;
  const std::shared_ptr<const CompiledImage> image = get_image(request);
  const std::lock_guard<std::mutex> loading(loading_mutex);
  if (HostFunction* kernel = find_host_kernel(digest)) return kernel;
  HostFunction* kernel = open_library(image->bytes);
  const std::unique_lock<std::shared_mutex> lock(table_mutex);
  return table[std::string(digest)] = kernel;
}

void run_on_host(HostFunction* kernel, const Call& call, const Helpers& helpers) {
  if (call.arrays[0].elements == 0) return;
  Parameters parameters(call);
  const std::int64_t packs = parameters.packs();
  const std::int64_t chunk = chunk_size(packs, helpers.count + 1);
  const std::int64_t chunks = (packs + chunk - 1) / chunk;
  if (chunks == 1 || helpers.count == 0) {
    const DefaultArithmetic arithmetic;
    kernel(parameters.addresses(), 0, packs);
    return;
  }
  const auto work = std::make_shared<Work>();
  work->kernel = kernel;
  work->parameters = parameters.addresses();
  work->packs = packs;
  work->chunk = chunk;
  work->chunks = work->left = chunks;
  // How long an element takes is not known before: the first chunk tells.
  const auto begin = std::chrono::steady_clock::now();
  {
    const DefaultArithmetic arithmetic;
    work->do_one();
  }
  if ((std::chrono::steady_clock::now() - begin) * (chunks - 1) > kWorthHelp) {
    ask_for_help(work, std::min(helpers.count, chunks - 1), helpers);
  }
  work->do_all();
  work->wait();
}

}  // namespace jax_elementwise::runtime
