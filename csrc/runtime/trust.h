// Which programs may have their kernels compiled for, and run on, a CPU.
//
// A kernel's text is C++: compiled for a CPU it may do whatever the process may. So a program that
// another process made is refused, unless the user said that programs are to be trusted. Programs
// are known by the digest of all that they hold of a kernel.
#pragma once

#include <string>
#include <string_view>

namespace jax_elementwise::runtime {

// This process made the program of this digest.
void trust_program(std::string digest);

// From now on every program is trusted, or only those that this process made.
void trust_programs(bool all);

// Throws Error{kUntrusted} unless this process made the program, or trust_programs(true) or
// JAX_ELEMENTWISE_TRUST_PROGRAMS=1 in the environment says that others are trusted too. `name` is
// that of the kernel.
void require_trust(std::string_view digest, std::string_view name);

}  // namespace jax_elementwise::runtime
