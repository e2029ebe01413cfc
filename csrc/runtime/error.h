// The exceptions of the runtime.
#pragma once

#include <stdexcept>
#include <string>

#include "utf8.h"

namespace jax_elementwise::runtime {

enum class Fault {
  kInvalidArgument,  // the caller's: a kernel that does not compile, buffers that do not fit it
  kUnavailable,      // the machine's: no driver, no compiler, no such GPU; thrown as Unavailable
  kInternal,         // ours
  kUntrusted,        // a program that this process did not make and was not told to trust
};

// Messages may quote compilers and programs, which need not write UTF-8.
class Error : public std::runtime_error {
 public:
  Error(Fault fault, const std::string& message)
      : std::runtime_error(printable(message)), fault_(fault) {}
  Fault fault() const { return fault_; }

 private:
  Fault fault_;
};

// A kernel's source that the compiler refused; what() holds the compiler's messages.
class CompileError : public Error {
 public:
  explicit CompileError(const std::string& log) : Error(Fault::kInvalidArgument, log) {}
};

// What this machine lacks, so that the caller may do without a kernel.
class Unavailable : public Error {
 public:
  explicit Unavailable(const std::string& message) : Error(Fault::kUnavailable, message) {}
};

// Ctrl-C, while somebody waits who cannot raise Python's exception.
class Interrupted : public std::runtime_error {
 public:
  Interrupted() : std::runtime_error("interrupted") {}
};

}  // namespace jax_elementwise::runtime
