// NVIDIA's run-time compiler, found at run time.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace jax_elementwise::runtime {

// What to compile, and how. Everything that can change the result is here.
struct CompileRequest {
  std::string source;
  std::string name;                  // of the kernel: names the file in the compiler's messages
  int arch = 0;                      // compute capability, 10 * major + minor
  std::vector<std::string> options;  // further options of the compiler
};

struct CompiledImage {
  std::string bytes;  // a cubin, or PTX where the compiler does not know the architecture yet
  bool is_ptx = false;
};

// Where libnvrtc is: asked once, at the first compilation. Throws if it cannot be found.
void set_nvrtc_locator(std::function<std::string()> locator);

// Major and minor version of the compiler, as 1000 * major + minor.
int nvrtc_version();

// Throws CompileError with the log where the source does not compile, Error{kUnavailable} where
// there is no compiler. Thread-safe.
CompiledImage nvrtc_compile(const CompileRequest& request);

}  // namespace jax_elementwise::runtime
