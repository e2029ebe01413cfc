// SHA-256 (FIPS 180-4): says whether a program's kernel is the one that was written.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace jax_elementwise::runtime {

class Sha256 {
 public:
  void update(std::string_view bytes);

  // Of everything so far, as 64 hexadecimal digits. Nothing may be added afterwards.
  std::string hex_digest();

 private:
  void compress();

  std::array<std::uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<unsigned char, 64> block_{};
  size_t filled_ = 0;       // bytes of the block
  std::uint64_t size_ = 0;  // bytes in all
};

}  // namespace jax_elementwise::runtime
