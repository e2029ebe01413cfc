#include "host_kernel.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cfenv>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string>

#include "error.h"
#include "host_compiler.h"
#include "kernel_cache.h"

namespace jax_elementwise::runtime {
namespace {

// ---- Loading ------------------------------------------------------------------------------------

std::mutex loading_mutex;  // held for long
std::mutex table_mutex;
std::map<std::string, const HostKernel> table;  // by content

const HostKernel* find(const std::string& content) {
  const std::lock_guard<std::mutex> lock(table_mutex);
  const auto found = table.find(content);
  return found == table.end() ? nullptr : &found->second;
}

// Opens a file's library; null where it is none, with the reason.
void* open_library(const std::string& path, std::string& reason) {
  void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (const char* error = handle == nullptr ? ::dlerror() : nullptr) reason = error;
  return handle;
}

bool write_all(int file, const std::string& bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = ::write(file, bytes.data() + done, bytes.size() - done);
    if (count <= 0) return false;
    done += static_cast<size_t>(count);
  }
  return true;
}

// By a temporary file, which is gone once the library is open.
void* open_from_disk(const std::string& library, std::string& reason) {
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::temp_directory_path(error);
  std::string path = (error ? "/tmp" : parent.string()) + "/jax_elementwise.XXXXXX.so";
  const int file = ::mkstemps(path.data(), 3);
  if (file < 0) return nullptr;
  const bool is_written = write_all(file, library);
  ::close(file);
  void* handle = is_written ? open_library(path, reason) : nullptr;
  ::unlink(path.c_str());
  return handle;
}

// From memory, for where nothing in the directory of temporary files may be executed. The file
// stays open: the name of a closed one would be taken for this library.
void* open_from_memory(const std::string& library, std::string& reason) {
  const int file = ::memfd_create("jax_elementwise", MFD_CLOEXEC);
  if (file < 0) return nullptr;
  void* handle = nullptr;
  if (write_all(file, library))
    handle = open_library("/proc/self/fd/" + std::to_string(file), reason);
  if (handle == nullptr) ::close(file);
  return handle;
}

template <class Function>
Function* symbol_of(void* handle, const char* name) {
  void* symbol = ::dlsym(handle, name);
  if (symbol == nullptr) throw BadImage(std::string("a compiled kernel has no ") + name);
  return reinterpret_cast<Function*>(symbol);
}

std::vector<long long> describe(HostDescription& description) {
  // A kernel may read scalars and its geometry before it describes itself.
  alignas(16) static const unsigned char zeros[16] = {};
  static const std::array<std::uint64_t, kMaxGeometryWords> geometry{};
  const void* pointer = zeros;
  std::array<void*, kMaxArrays + 1> parameters;
  parameters.fill(&pointer);
  parameters[0] = const_cast<std::uint64_t*>(geometry.data());
  std::vector<long long> words(5 + 4 * kMaxArrays);
  words.resize(static_cast<size_t>(description(parameters.data(), words.data())));
  return words;
}

HostKernel load(const CompiledImage& image) {
  std::string reason = "unknown reason";
  void* handle = open_from_disk(image.bytes, reason);
  if (handle == nullptr) handle = open_from_memory(image.bytes, reason);
  if (handle == nullptr) throw BadImage("cannot load a compiled kernel: " + reason);
  const HostKernel kernel{symbol_of<HostFunction>(handle, "ew_host_entry"),
                          describe(*symbol_of<HostDescription>(handle, "ew_host_describe"))};
  count_load();
  return kernel;
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

const HostKernel& load_host_kernel(CompileRequest request) {
  const std::string content = content_of(request);
  request.arch = kHostCpu;
  if (const HostKernel* known = find(content)) return *known;
  // Without the lock, since compiling may wait for Python, which may wait for a thread.
  return *load_image(request, [&](const CompiledImage& image) {
    const std::lock_guard<std::mutex> lock(loading_mutex);
    if (const HostKernel* known = find(content)) return known;
    const HostKernel kernel = load(image);
    const std::lock_guard<std::mutex> adding(table_mutex);
    return &table.emplace(content, kernel).first->second;
  });
}

void run_on_host(HostFunction* kernel, const Call& call, const Helpers& helpers) {
  Parameters parameters(call);
  const std::int64_t packs = parameters.packs();
  if (packs == 0) return;
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
