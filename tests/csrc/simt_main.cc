// Runs kernels on the host through the package's own launcher: plan.cc plans the call,
// launch.cc "launches" it, and what that calls of the driver is the stand-in.
//
// usage: program CALLS RESULTS. Both files are sequences of 64-bit words; tests/support/simt.py
// writes the one and reads the other.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "error.h"
#include "launch.h"
#include "simt.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size) (static_cast<void>(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) (static_cast<void>(size))
#endif

// Generated next to the kernels.
extern const simt::Kernel kKernels[];

// ---- The driver ---------------------------------------------------------------------------------

namespace jax_elementwise::runtime {
namespace {

constexpr CUresult kInvalidValue = 1;

CUresult launch_kernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                       unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                       CUstream, void** params, void** extra) {
  if (grid_x == 0 || grid_y != 1 || grid_z != 1 || block_x == 0 || block_y != 1 || block_z != 1)
    return kInvalidValue;
  if (shared_bytes != 0 || extra != nullptr) return kInvalidValue;
  simt::run(*reinterpret_cast<const simt::Kernel*>(function), grid_x, block_x, params);
  return 0;
}

Driver stand_in() {
  Driver driver{};
  driver.cuLaunchKernel = launch_kernel;
  return driver;
}

}  // namespace

const Driver& driver() {
  static const Driver instance = stand_in();
  return instance;
}

void check(CUresult result, const char* call) {
  if (result != 0)
    throw Error(Fault::kInternal,
                std::string(call) + " failed with code " + std::to_string(result));
}

}  // namespace jax_elementwise::runtime

// ---- Calls --------------------------------------------------------------------------------------

namespace {

namespace rt = jax_elementwise::runtime;

constexpr std::size_t kBaseAlignment = 64;  // more than any access asks for
constexpr std::size_t kGuard = 64;          // bytes before and after every result
constexpr unsigned char kSentinel = 0xa5;

int current_call = -1;

void report_call() { std::fprintf(stderr, "simt: in call %d\n", current_call); }

[[noreturn]] void die(const std::string& message) {
  std::fprintf(stderr, "simt: %s\n", message.c_str());
  report_call();
  std::exit(1);
}

class Words {
 public:
  explicit Words(const char* path) : file_(std::fopen(path, "rb")) {
    if (file_ == nullptr) die(std::string("cannot open ") + path);
  }
  ~Words() { std::fclose(file_); }

  std::int64_t next() {
    std::int64_t word;
    bytes(&word, sizeof(word));
    return word;
  }
  void bytes(void* to, std::size_t count) {
    if (std::fread(to, 1, count, file_) != count) die("the file of calls ends too early");
  }

 private:
  std::FILE* file_;
};

// An array in a heap block of exactly its size, so that the sanitizer sees the first byte beyond.
// It begins `offset` bytes after a boundary of 64. Results have guards around them, unless they are
// inputs too: then the sanitizer sees to both.
class Buffer {
 public:
  Buffer(std::size_t offset, std::size_t bytes, bool is_guarded)
      : begin_((is_guarded ? kGuard : 0) + offset),
        bytes_(bytes),
        size_(begin_ + bytes + (is_guarded ? kGuard : 0)),
        is_guarded_(is_guarded) {
    void* block = nullptr;
    if (posix_memalign(&block, kBaseAlignment, size_ == 0 ? 1 : size_) != 0) die("out of memory");
    block_ = static_cast<unsigned char*>(block);
    std::memset(block_, kSentinel, size_);
    // What lies before an input is not the kernel's to read either. (Whole granules of 8 bytes
    // only.)
    if (!is_guarded) ASAN_POISON_MEMORY_REGION(block_, begin_);
  }
  ~Buffer() {
    ASAN_UNPOISON_MEMORY_REGION(block_, size_);
    std::free(block_);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  unsigned char* data() const { return block_ + begin_; }
  std::size_t bytes() const { return bytes_; }

  void check_guards(int array) const {
    if (!is_guarded_) return;
    for (std::size_t i = 0; i < size_; ++i) {
      if (i == begin_) i += bytes_;
      if (i < size_ && block_[i] != kSentinel) {
        die("result " + std::to_string(array) + " was written at byte " +
            std::to_string(static_cast<long long>(i) - static_cast<long long>(begin_)) + " of " +
            std::to_string(bytes_));
      }
    }
  }

 private:
  std::size_t begin_, bytes_, size_;
  bool is_guarded_;
  unsigned char* block_;
};

void write_words(std::FILE* out, const void* data, std::size_t bytes) {
  static const char padding[8] = {};
  std::fwrite(data, 1, bytes, out);
  std::fwrite(padding, 1, (8 - bytes % 8) % 8, out);
}

void write_word(std::FILE* out, std::int64_t word) { write_words(out, &word, sizeof(word)); }

void run_call(Words& in, std::FILE* out) {
  const simt::Kernel& kernel = kKernels[in.next()];
  rt::LoadedKernel loaded{reinterpret_cast<rt::CUfunction>(const_cast<simt::Kernel*>(&kernel)),
                          in.next()};
  rt::Call call;
  call.pack = static_cast<int>(in.next());
  call.index_bits = static_cast<int>(in.next());
  call.rank = static_cast<int>(in.next());
  for (int d = 0; d < call.rank; ++d) call.extents[d] = in.next();
  call.results = static_cast<int>(in.next());
  call.count = static_cast<int>(in.next());
  std::vector<std::shared_ptr<Buffer>> buffers;
  for (int k = 0; k < call.count; ++k) {
    rt::Array& array = call.arrays[k];
    array.elements = in.next();
    array.itemsize = in.next();
    array.span = static_cast<std::uint64_t>(in.next());
    const auto offset = static_cast<std::size_t>(in.next());
    const auto bytes = static_cast<std::size_t>(in.next());
    const std::int64_t partner = in.next();  // shares its buffer; -1: none does
    const bool is_result = k < call.results;
    buffers.push_back(!is_result && partner >= 0
                          ? buffers[static_cast<std::size_t>(partner)]
                          : std::make_shared<Buffer>(offset, bytes, is_result && partner < 0));
    if (!is_result) in.bytes(buffers.back()->data(), bytes);
    array.data = buffers.back()->data();
    array.is_index = false;
  }
  try {
    // As the FFI handler does: nothing is launched for arrays without elements.
    if (call.arrays[0].elements != 0) rt::launch(loaded, nullptr, call);
  } catch (const rt::Error& error) {
    write_word(out, 1 + static_cast<std::int64_t>(error.fault()));
    write_word(out, static_cast<std::int64_t>(std::strlen(error.what())));
    write_words(out, error.what(), std::strlen(error.what()));
    return;
  }
  write_word(out, 0);
  for (int k = 0; k < call.results; ++k) {
    buffers[k]->check_guards(k);
    write_words(out, buffers[k]->data(), buffers[k]->bytes());
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) die("usage: program CALLS RESULTS");
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_set_death_callback(report_call);
#endif
  Words in(argv[1]);
  std::FILE* out = std::fopen(argv[2], "wb");
  if (out == nullptr) die(std::string("cannot open ") + argv[2]);
  const std::int64_t count = in.next();
  for (std::int64_t i = 0; i < count; ++i) {
    current_call = static_cast<int>(i);
    run_call(in, out);
  }
  return std::fclose(out);
}
