// The one exception type of the runtime, and a macro for the status codes of the CUDA libraries.
#pragma once

#include <stdexcept>
#include <string>

namespace jax_elementwise::runtime {

enum class Fault {
  kInvalidArgument,  // the caller's: a kernel that does not compile, buffers that do not fit it
  kUnavailable,      // the machine's: no driver, no compiler, no such GPU
  kInternal,         // ours
};

class Error : public std::runtime_error {
 public:
  Error(Fault fault, const std::string& message) : std::runtime_error(message), fault_(fault) {}
  Fault fault() const { return fault_; }

 private:
  Fault fault_;
};

// A kernel's source that the compiler refused; what() holds the compiler's messages.
class CompileError : public Error {
 public:
  explicit CompileError(const std::string& log) : Error(Fault::kInvalidArgument, log) {}
};

}  // namespace jax_elementwise::runtime
