#include "nvrtc.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <mutex>

#include "dynamic_library.h"
#include "error.h"
#include "headers.h"

namespace jax_elementwise::runtime {
namespace {

using NvrtcResult = int;
using NvrtcProgram = struct _nvrtcProgram*;

constexpr NvrtcResult kCompilationError = 6;
constexpr NvrtcResult kBuiltinOperationFailure = 7;  // libnvrtc-builtins is missing, say

struct Nvrtc {
  NvrtcResult (*nvrtcVersion)(int*, int*);
  const char* (*nvrtcGetErrorString)(NvrtcResult);
  NvrtcResult (*nvrtcGetNumSupportedArchs)(int*);
  NvrtcResult (*nvrtcGetSupportedArchs)(int*);
  NvrtcResult (*nvrtcCreateProgram)(NvrtcProgram*, const char*, const char*, int,
                                    const char* const*, const char* const*);
  NvrtcResult (*nvrtcDestroyProgram)(NvrtcProgram*);
  NvrtcResult (*nvrtcCompileProgram)(NvrtcProgram, int, const char* const*);
  NvrtcResult (*nvrtcGetProgramLogSize)(NvrtcProgram, size_t*);
  NvrtcResult (*nvrtcGetProgramLog)(NvrtcProgram, char*);
  NvrtcResult (*nvrtcGetCUBINSize)(NvrtcProgram, size_t*);
  NvrtcResult (*nvrtcGetCUBIN)(NvrtcProgram, char*);
  NvrtcResult (*nvrtcGetPTXSize)(NvrtcProgram, size_t*);
  NvrtcResult (*nvrtcGetPTX)(NvrtcProgram, char*);
  std::vector<int> archs;  // ascending

  void check(NvrtcResult result, const char* call) const {
    if (result == 0) return;
    throw Error(Fault::kInternal, std::string(call) + " failed: " + nvrtcGetErrorString(result));
  }
};

std::mutex locator_mutex;
std::function<std::string()> locator = [] { return std::string("libnvrtc.so"); };

std::string locate() {
  std::function<std::string()> current;
  {
    const std::lock_guard<std::mutex> lock(locator_mutex);
    current = locator;
  }
  return current();  // without the lock: it may call into Python, which may wait for another thread
}

Nvrtc load_nvrtc() {
  const DynamicLibrary library(locate());
  Nvrtc n;
#define EW_RESOLVE(name) library.resolve(n.name, #name)
  EW_RESOLVE(nvrtcVersion);
  EW_RESOLVE(nvrtcGetErrorString);
  EW_RESOLVE(nvrtcGetNumSupportedArchs);
  EW_RESOLVE(nvrtcGetSupportedArchs);
  EW_RESOLVE(nvrtcCreateProgram);
  EW_RESOLVE(nvrtcDestroyProgram);
  EW_RESOLVE(nvrtcCompileProgram);
  EW_RESOLVE(nvrtcGetProgramLogSize);
  EW_RESOLVE(nvrtcGetProgramLog);
  EW_RESOLVE(nvrtcGetCUBINSize);
  EW_RESOLVE(nvrtcGetCUBIN);
  EW_RESOLVE(nvrtcGetPTXSize);
  EW_RESOLVE(nvrtcGetPTX);
#undef EW_RESOLVE
  int count = 0;
  n.check(n.nvrtcGetNumSupportedArchs(&count), "nvrtcGetNumSupportedArchs");
  n.archs.resize(count);
  n.check(n.nvrtcGetSupportedArchs(n.archs.data()), "nvrtcGetSupportedArchs");
  std::sort(n.archs.begin(), n.archs.end());
  return n;
}

const Nvrtc& nvrtc() {
  static std::mutex mutex;
  static std::unique_ptr<const Nvrtc> instance;
  const std::lock_guard<std::mutex> lock(mutex);
  if (!instance) instance = std::make_unique<const Nvrtc>(load_nvrtc());
  return *instance;
}

// Frees the program on every path.
class Program {
 public:
  Program(const Nvrtc& n, const CompileRequest& request) : n_(n) {
    std::vector<const char*> texts, names;
    for (const Header& header : headers()) {
      texts.push_back(header.text);
      names.push_back(header.name);
    }
    n_.check(
        n_.nvrtcCreateProgram(&program_, request.source.c_str(), (request.name + ".cu").c_str(),
                              static_cast<int>(texts.size()), texts.data(), names.data()),
        "nvrtcCreateProgram");
  }
  ~Program() { n_.nvrtcDestroyProgram(&program_); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void compile(const std::vector<std::string>& options) const {
    std::vector<const char*> argv;
    for (const std::string& option : options) argv.push_back(option.c_str());
    const NvrtcResult result =
        n_.nvrtcCompileProgram(program_, static_cast<int>(argv.size()), argv.data());
    if (result == kBuiltinOperationFailure) throw Unavailable("NVRTC is incomplete: " + log());
    if (result == kCompilationError) throw CompileError(log());
    if (result != 0) {  // it fails at this text as it might crash
      throw CompileError(std::string("nvrtcCompileProgram failed: ") +
                         n_.nvrtcGetErrorString(result) + "\n" + log());
    }
  }

  std::string read(NvrtcResult (*size_of)(NvrtcProgram, size_t*),
                   NvrtcResult (*copy)(NvrtcProgram, char*)) const {
    size_t size = 0;
    n_.check(size_of(program_, &size), "nvrtcGet...Size");
    std::string bytes(size, '\0');
    n_.check(copy(program_, bytes.data()), "nvrtcGet...");
    return bytes;
  }

 private:
  std::string log() const {
    std::string text = read(n_.nvrtcGetProgramLogSize, n_.nvrtcGetProgramLog);
    text.resize(std::min(text.size(), text.find('\0')));
    return text;
  }

  const Nvrtc& n_;
  NvrtcProgram program_ = nullptr;
};

std::string refusal(const Nvrtc& n, int arch) {
  std::string supported;
  for (const int known : n.archs) {
    supported += (supported.empty() ? "sm_" : ", sm_") + std::to_string(known);
  }
  const int version = nvrtc_version();
  return "NVRTC " + std::to_string(version / 1000) + "." + std::to_string(version % 1000) +
         " cannot compile for sm_" + std::to_string(arch) + "; it supports " + supported;
}

// What to compile to for a GPU: its own machine code, else PTX of the newest architecture before
// it, which the driver translates.
struct Target {
  int arch;
  bool is_ptx;
};

Target target_for(const Nvrtc& n, int arch) {
  const auto newer = std::upper_bound(n.archs.begin(), n.archs.end(), arch);
  if (newer == n.archs.begin()) throw Unavailable(refusal(n, arch));
  const int newest = *std::prev(newer);
  return {newest, newest != arch};
}

}  // namespace

void set_nvrtc_locator(std::function<std::string()> new_locator) {
  const std::lock_guard<std::mutex> lock(locator_mutex);
  locator = std::move(new_locator);
}

int nvrtc_version() {
  int major = 0, minor = 0;
  nvrtc().check(nvrtc().nvrtcVersion(&major, &minor), "nvrtcVersion");
  return 1000 * major + minor;
}

std::string refusal_of(int arch) {
  const Nvrtc& n = nvrtc();
  return std::binary_search(n.archs.begin(), n.archs.end(), arch) ? "" : refusal(n, arch);
}

std::vector<std::string> compiler_options(const CompileRequest& request) {
  const Target target = target_for(nvrtc(), request.arch);
  std::vector<std::string> options = {
      (target.is_ptx ? "--gpu-architecture=compute_" : "--gpu-architecture=sm_") +
          std::to_string(target.arch),
      "--std=c++17",
      "--device-int128",
  };
  options.insert(options.end(), request.options.begin(), request.options.end());
  return options;
}

CompiledImage nvrtc_compile(const CompileRequest& request) {
  const Nvrtc& n = nvrtc();
  const Program program(n, request);
  program.compile(compiler_options(request));
  if (target_for(n, request.arch).is_ptx)
    return {program.read(n.nvrtcGetPTXSize, n.nvrtcGetPTX), true};
  return {program.read(n.nvrtcGetCUBINSize, n.nvrtcGetCUBIN), false};
}

}  // namespace jax_elementwise::runtime
