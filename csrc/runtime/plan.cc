#include "plan.h"

#include <algorithm>
#include <limits>
#include <string>

#include "error.h"
#include "jax_elementwise/alignment.h"

namespace jax_elementwise::runtime {

std::uint64_t full_span(const Call& call) {
  return call.rank == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << call.rank) - 1;
}

std::int64_t spanned_elements(const Call& call, std::uint64_t span) {
  constexpr std::int64_t kTooMany = std::numeric_limits<std::int64_t>::max();
  std::int64_t elements = 1;
  for (int d = 0; d < call.rank; ++d) {
    if (!(span >> d & 1)) continue;
    // A dimension without elements may follow.
    if (__builtin_mul_overflow(elements, call.extents[d], &elements)) elements = kTooMany;
  }
  return elements;
}

namespace {

[[noreturn]] void invalid(const std::string& message) {
  throw Error(Fault::kInvalidArgument, message);
}

bool is_contiguous(const Call& call, const Array& array) { return array.span == full_span(call); }
bool is_broadcast(const Call& call, const Array& array) {
  return array.span != 0 && !is_contiguous(call, array);
}

void check_arrays(const Call& call) {
  for (int k = 0; k < call.count; ++k) {
    const Array& array = call.arrays[k];
    if (array.elements != spanned_elements(call, array.span)) {
      invalid("array " + std::to_string(k) + " has " + std::to_string(array.elements) +
              " elements where the kernel reads " +
              std::to_string(spanned_elements(call, array.span)));
    }
    if (reinterpret_cast<std::uintptr_t>(array.data) %
            static_cast<std::uintptr_t>(array.itemsize) !=
        0) {
      invalid("array " + std::to_string(k) + " is not aligned to its elements of " +
              std::to_string(array.itemsize) + " bytes");
    }
  }
}

Alignment choose_alignment(const Call& call) {
  std::array<Placement, kMaxVectorized> placements;
  const int count = std::min(call.count, kMaxVectorized);
  for (int k = 0; k < count; ++k) {
    const Array& array = call.arrays[k];
    placements[k] = {array.data, array.itemsize, !array.is_index && is_contiguous(call, array)};
  }
  return best_alignment(placements.data(), count, call.results, call.pack);
}

// Multiplier and shift of the division in geometry.h, for a divisor from 1 to 2^(bits - 1).
void append_divider(Geometry& geometry, int& word, std::uint64_t divisor, int bits) {
  int shift = 0;
  while (shift < bits - 1 && (std::uint64_t{1} << shift) < divisor) ++shift;
  __extension__ using uint128 = unsigned __int128;
  const uint128 excess = (uint128{1} << shift) - divisor;
  const auto multiplier = static_cast<std::uint64_t>((excess << bits) / divisor + 1);
  geometry.words[word++] = divisor;
  geometry.words[word++] = multiplier;
  geometry.words[word++] = static_cast<std::uint64_t>(shift);
}

void append_strides(Geometry& geometry, int& word, const Call& call, const Array& array) {
  std::int64_t stride = array.elements;
  for (int d = 0; d < call.rank; ++d) {
    const bool spans = array.span >> d & 1;
    if (spans) stride /= call.extents[d];
    geometry.words[word++] = spans ? static_cast<std::uint64_t>(stride) : 0;
  }
}

}  // namespace

Geometry plan(const Call& call) {
  check_arrays(call);
  const std::int64_t size = spanned_elements(call, full_span(call));
  if (size == 0) return {};
  if (call.index_bits == 32 && size > kMaxSize32) {
    invalid("a kernel with 32-bit indices was given " + std::to_string(size) + " elements");
  }
  const int broadcasts =
      static_cast<int>(std::count_if(call.arrays.begin(), call.arrays.begin() + call.count,
                                     [&](const Array& a) { return is_broadcast(call, a); }));
  if (3 + (broadcasts == 0 ? 0 : 3 * (call.rank - 1) + broadcasts * call.rank) >
      kMaxGeometryWords) {
    invalid("too many broadcast operands: " + std::to_string(broadcasts) + " over " +
            std::to_string(call.rank) + " dimensions");
  }
  const Alignment alignment = choose_alignment(call);
  const std::int64_t shift = alignment.shift(call.pack);
  Geometry geometry;
  int word = 0;
  geometry.words[word++] = static_cast<std::uint64_t>(size);
  geometry.words[word++] = static_cast<std::uint64_t>(shift);
  geometry.words[word++] = alignment.vectorized;
  geometry.packs = pack_count(size, shift, call.pack);
  if (broadcasts == 0) return geometry;
  for (int d = 1; d < call.rank; ++d) {
    append_divider(geometry, word, static_cast<std::uint64_t>(call.extents[d]), call.index_bits);
  }
  for (int k = 0; k < call.count; ++k) {
    if (is_broadcast(call, call.arrays[k])) append_strides(geometry, word, call, call.arrays[k]);
  }
  return geometry;
}

Parameters::Parameters(const Call& call) : geometry_(plan(call)) {
  addresses_[0] = geometry_.words.data();
  int count = 0;
  for (int k = 0; k < call.count; ++k) {
    if (call.arrays[k].is_index) continue;
    pointers_[count] = call.arrays[k].data;
    addresses_[count + 1] = &pointers_[count];
    ++count;
  }
}

}  // namespace jax_elementwise::runtime
