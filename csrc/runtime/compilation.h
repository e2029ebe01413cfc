// What the compilers take and give: NVRTC, and the C++ compiler of the machine.
#pragma once

#include <string>
#include <vector>

namespace jax_elementwise::runtime {

// The options that a kernel may have, as NVRTC calls them.
constexpr const char kFastMath[] = "--use_fast_math";
// So that users need not write __device__.
constexpr const char kDeviceByDefault[] = "--device-as-default-execution-space";

// What to compile, and how. Everything that can change the result is here.
struct CompileRequest {
  std::string source;
  std::string name;  // of the kernel: names the file in the compiler's messages
  int arch = 0;      // compute capability, 10 * major + minor; or kHostCpu of host_compiler.h
  std::vector<std::string> options;  // beside those that every kernel is compiled with
};

struct CompiledImage {
  std::string bytes;  // a cubin, or PTX where the compiler does not know the architecture yet; for
                      // a CPU, a shared library
  bool is_ptx = false;
};

}  // namespace jax_elementwise::runtime
