// The C++ compiler of this machine, which compiles kernels for its CPU.
//
// Starting programs, waiting for them and being interrupted meanwhile is Python's trade, so
// jax_elementwise/_host_compiler.py does all of it; the runtime calls it from any thread.
#pragma once

#include <functional>
#include <string>

#include "compilation.h"

namespace jax_elementwise::runtime {

// In place of an architecture: the CPU of this machine.
constexpr int kHostCpu = -1;

// Both throw Unavailable where there is no compiler, and may be called from several threads.
struct HostCompiler {
  // All that decides the machine code beside the request's text: which compiler it is, what it
  // takes this CPU for, and every option.
  std::function<std::string(const CompileRequest&)> identity;
  // The bytes of a shared library. Throws CompileError with the compiler's messages where the
  // source does not compile.
  std::function<std::string(const CompileRequest&)> compile;
};

void set_host_compiler(HostCompiler compiler);

std::string host_compiler_identity(const CompileRequest& request);
CompiledImage host_compile(const CompileRequest& request);

}  // namespace jax_elementwise::runtime
