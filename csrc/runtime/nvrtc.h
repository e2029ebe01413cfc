// NVIDIA's run-time compiler, found at run time.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "compilation.h"

namespace jax_elementwise::runtime {

// Where libnvrtc is: asked once, at the first compilation. Throws if it cannot be found.
void set_nvrtc_locator(std::function<std::string()> locator);

// Major and minor version of the compiler, as 1000 * major + minor.
int nvrtc_version();

// Empty where the compiler knows the architecture, else what to tell whoever asked for it.
std::string refusal_of(int arch);

// All options that a request is compiled with. Throws Unavailable where the compiler knows no
// architecture whose code could run.
std::vector<std::string> compiler_options(const CompileRequest& request);

// Throws CompileError with the log where the source does not compile, Unavailable where there is no
// compiler, or none for the architecture. Thread-safe.
CompiledImage nvrtc_compile(const CompileRequest& request);

}  // namespace jax_elementwise::runtime
