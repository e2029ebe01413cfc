// The run-time part of a kernel's iteration space: what the launcher hands to the kernel by value.
//
// Every member is a 64-bit word, so the launcher can write one without knowing the template
// arguments (plan() in csrc/runtime/plan.cc does, in the order of the members below).
#pragma once

#include <jax_elementwise/math/integer.h>

namespace jax_elementwise {

// Division by a number known at launch: a multiplication, an addition and a shift, exact for
// dividends below 2^31 (2^63). Granlund & Montgomery, "Division by invariant integers using
// multiplication", 1994, figure 4.1.
struct Divider {
  uint64 divisor;
  uint64 multiplier;
  uint64 shift;

  template <class Index>
  JAX_ELEMENTWISE_DEVICE Index divide(Index n) const {
    using U = Unsigned<Index>;
    const U dividend = static_cast<U>(n);
    return static_cast<Index>((multiply_high(dividend, static_cast<U>(multiplier)) + dividend) >>
                              static_cast<uint32>(shift));
  }
};

// Rank: dimensions left after merging those that no operand tells apart; 0 without broadcasting.
// Broadcasts: operands that span some of those dimensions and not others.
template <int Rank, int Broadcasts>
struct Geometry {
  int64 size;         // elements of every output
  int64 shift;        // elements by which the first pack begins before element 0
  uint64 vectorized;  // bit k: whole packs of operand k are aligned; outputs first, then inputs
  Divider extents[Rank - 1];        // of dimensions 1, 2, ... Rank - 1
  int64 strides[Broadcasts][Rank];  // in elements; 0 where the operand is broadcast

  // Offset of output element `index` in a broadcast operand.
  template <class Index>
  JAX_ELEMENTWISE_DEVICE Index offset(int broadcast, Index index) const {
    Index result = 0;
#pragma unroll
    for (int d = Rank - 1; d > 0; --d) {
      const Index quotient = extents[d - 1].divide(index);
      const Index coordinate = index - quotient * static_cast<Index>(extents[d - 1].divisor);
      result += coordinate * static_cast<Index>(strides[broadcast][d]);
      index = quotient;
    }
    return result + index * static_cast<Index>(strides[broadcast][0]);
  }

  // Whether the `count` elements from `index` on lie in one row of the innermost dimension.
  template <class Index>
  JAX_ELEMENTWISE_DEVICE bool same_row(Index index, int count) const {
    const Index extent = static_cast<Index>(extents[Rank - 2].divisor);
    const Index column = index - extents[Rank - 2].divide(index) * extent;
    return column + count <= extent;
  }
};

template <>
struct Geometry<0, 0> {
  int64 size;
  int64 shift;
  uint64 vectorized;
};

static_assert(sizeof(Geometry<0, 0>) == 3 * 8 && sizeof(Geometry<3, 2>) == (3 + 2 * 3 + 2 * 3) * 8,
              "the launcher writes one 64-bit word per member");

}  // namespace jax_elementwise
