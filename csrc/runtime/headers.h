// The kernel headers of csrc/include, embedded when the extension is built.
#pragma once

#include <cstdint>
#include <vector>

namespace jax_elementwise::runtime {

struct Header {
  const char* name;  // as it is included: jax_elementwise/kernel.h
  const char* text;
};

const std::vector<Header>& headers();

// Of all names and texts: part of every kernel's cache key.
std::uint64_t headers_hash();

}  // namespace jax_elementwise::runtime
