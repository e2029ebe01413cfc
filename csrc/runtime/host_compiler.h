// The C++ compiler of this machine, which compiles kernels for its CPU.
#pragma once

#include <string>
#include <vector>

#include "compilation.h"

namespace jax_elementwise::runtime {

// In place of an architecture: the CPU of this machine.
constexpr int kHostCpu = -1;

// All that decides the machine code beside the request's text: which compiler it is, what it takes
// this CPU for, and every option. Throws Unavailable where there is no compiler.
std::string host_compiler_identity(const CompileRequest& request);

// The bytes of a shared library. Throws CompileError with the compiler's messages where the source
// does not compile, Unavailable where there is no compiler. Thread-safe.
CompiledImage host_compile(const CompileRequest& request);

}  // namespace jax_elementwise::runtime
