// Reads chunks from its input, each after its length in 8 bytes, and prints for each its SHA-256,
// taken in two pieces, and the hexadecimal digits of its printable form.
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <string>

#include "sha256.h"
#include "utf8.h"

int main() {
  namespace rt = jax_elementwise::runtime;
  std::uint64_t size = 0;
  while (std::cin.read(reinterpret_cast<char*>(&size), sizeof(size))) {
    std::string chunk(size, '\0');
    if (size != 0) std::cin.read(chunk.data(), static_cast<std::streamsize>(size));
    rt::Sha256 sha;
    sha.update(std::string_view(chunk).substr(0, size / 3));
    sha.update(std::string_view(chunk).substr(size / 3));
    std::printf("%s ", sha.hex_digest().c_str());
    for (const unsigned char byte : rt::printable(chunk)) std::printf("%02x", byte);
    std::printf("\n");
  }
}
