// FNV-1a (Fowler, Noll, Vo), 64 bits: names cache files and finds damage in them. It is not trusted
// alone: a cache entry holds its whole key, which is compared.
#pragma once

#include <cstdint>
#include <string_view>

namespace jax_elementwise::runtime {

inline std::uint64_t fnv1a(std::string_view bytes, std::uint64_t hash = 0xcbf29ce484222325u) {
  for (const char byte : bytes) {
    hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3u;
  }
  return hash;
}

}  // namespace jax_elementwise::runtime
