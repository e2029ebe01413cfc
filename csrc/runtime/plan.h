// From the arrays of a call to the parameters of its kernel, on GPUs and CPUs.
#pragma once

#include <array>
#include <cstdint>

namespace jax_elementwise::runtime {

constexpr int kMaxArrays = 128;         // operands and results of one kernel
constexpr int kMaxDimensions = 64;      // of its iteration space
constexpr int kMaxGeometryWords = 510;  // with two pointers, the 4 KiB of a kernel's parameters

// An array of the call. `span`: bit d is set where it has dimension d of the iteration space. All
// bits: it is contiguous with the results; none: it has one element. An index is in no memory: its
// elements would be their own indices. It has strides like any other and no pointer.
struct Array {
  const void* data;
  std::int64_t elements;
  std::int64_t itemsize;
  std::uint64_t span;
  bool is_index;  // without an initialiser: a launch would run through 128 of them
};

// The arrays of a call, results first, and the dimensions that are left after merging those that no
// array tells apart.
struct Call {
  std::array<Array, kMaxArrays> arrays;
  int results = 0;
  int count = 0;  // of arrays
  std::array<std::int64_t, kMaxDimensions> extents;
  int rank = 0;
  int pack = 1;         // elements per pack, as the kernel was compiled
  int index_bits = 64;  // 32 or 64, as the kernel was compiled
};

// The span of an array with every dimension.
std::uint64_t full_span(const Call& call);

// How many elements an array with these dimensions has; the largest number where that is none.
std::int64_t spanned_elements(const Call& call, std::uint64_t span);

// What the kernel receives beside its pointers: the words of jax_elementwise::Geometry.
struct Geometry {
  std::array<std::uint64_t, kMaxGeometryWords> words;
  std::int64_t packs = 0;
};

// Throws Error{kInvalidArgument} where the arrays do not fit the iteration space. Without elements
// there are no packs, and no words.
Geometry plan(const Call& call);

// What a kernel is called with, as the driver takes it: the address of the geometry, then that of
// one pointer per array in memory.
class Parameters {
 public:
  // Throws as plan() does.
  explicit Parameters(const Call& call);
  Parameters(const Parameters&) = delete;
  Parameters& operator=(const Parameters&) = delete;

  void** addresses() { return addresses_.data(); }
  std::int64_t packs() const { return geometry_.packs; }

 private:
  Geometry geometry_;
  std::array<const void*, kMaxArrays> pointers_;
  std::array<void*, kMaxArrays + 1> addresses_;
};

}  // namespace jax_elementwise::runtime
