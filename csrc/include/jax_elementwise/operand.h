// How a kernel reaches each of its arrays. The kind of an operand is fixed when the kernel is
// compiled; whether its packs are aligned is known only at the call, since XLA may pass a pointer
// into the middle of a buffer.
#pragma once

#include <jax_elementwise/geometry.h>
#include <jax_elementwise/pack.h>

namespace jax_elementwise {

// The elements start, start + 1, ... start + N - 1 of the output; at the two ends of the array some
// of them lie outside [0, size).
template <class Index>
struct Span {
  Index start;
  Index size;
  bool whole;  // all of them lie inside

  JAX_ELEMENTWISE_DEVICE bool contains(int lane) const {
    return start + lane >= 0 && start + lane < size;
  }

  // An element to read for a lane: its own, or for a lane outside the nearest one inside. What is
  // computed there is never stored, but a loop over it must end.
  JAX_ELEMENTWISE_DEVICE Index readable(int lane) const {
    const Index index = start + lane;
    return index < 0 ? 0 : index < size ? index : size - 1;
  }
};

// An input with the shape of the output.
template <class T>
struct Contiguous {
  using Element = T;
  const T* data;
  bool vectorized;

  template <int N, class Index, class Geometry>
  JAX_ELEMENTWISE_DEVICE Pack<T, N> load(const Span<Index>& span, const Geometry&) const {
    typename Pack<T, N>::Bits bits;
    if (span.whole && vectorized) {
      bits = Pack<T, N>::load_bits(data + span.start);
    } else {
      Pack<T, N> pack;
#pragma unroll
      for (int j = 0; j < N; ++j) pack.lane[j] = data[span.readable(j)];
      bits = pack.bits();
    }
    return Pack<T, N>::from_bits(bits);
  }
};

// An input of one element, read once per thread.
template <class T>
struct Scalar {
  using Element = T;
  T value;

  template <int N, class Index, class Geometry>
  JAX_ELEMENTWISE_DEVICE Pack<T, N> load(const Span<Index>&, const Geometry&) const {
    Pack<T, N> pack;
#pragma unroll
    for (int j = 0; j < N; ++j) pack.lane[j] = value;
    return pack;
  }
};

// An input that spans the innermost dimension and only some of the others: a row, repeated.
template <class T, int Slot>
struct Rows {
  using Element = T;
  const T* data;

  template <int N, class Index, class Geometry>
  JAX_ELEMENTWISE_DEVICE Pack<T, N> load(const Span<Index>& span, const Geometry& geometry) const {
    const bool whole = span.whole && geometry.same_row(span.start, N);
    const T* first = data + (whole ? geometry.offset(Slot, span.start) : 0);
    typename Pack<T, N>::Bits bits;
    if (whole && is_aligned<N>(first)) {
      bits = Pack<T, N>::load_bits(first);
    } else {
      Pack<T, N> pack;
#pragma unroll
      for (int j = 0; j < N; ++j) {
        pack.lane[j] = whole ? first[j] : data[geometry.offset(Slot, span.readable(j))];
      }
      bits = pack.bits();
    }
    return Pack<T, N>::from_bits(bits);
  }
};

// An input that does not span the innermost dimension: one element for a whole row of the output.
template <class T, int Slot>
struct Columns {
  using Element = T;
  const T* data;

  template <int N, class Index, class Geometry>
  JAX_ELEMENTWISE_DEVICE Pack<T, N> load(const Span<Index>& span, const Geometry& geometry) const {
    Pack<T, N> pack;
    if (span.whole && geometry.same_row(span.start, N)) {
      const T value = data[geometry.offset(Slot, span.start)];
#pragma unroll
      for (int j = 0; j < N; ++j) pack.lane[j] = value;
    } else {
#pragma unroll
      for (int j = 0; j < N; ++j) pack.lane[j] = data[geometry.offset(Slot, span.readable(j))];
    }
    return pack;
  }
};

// An input that is in no memory: the index of the element.
struct ElementIndex {
  using Element = int64;

  template <int N, class Index, class Geometry>
  JAX_ELEMENTWISE_DEVICE Pack<int64, N> load(const Span<Index>& span, const Geometry&) const {
    Pack<int64, N> pack;
#pragma unroll
    for (int j = 0; j < N; ++j) pack.lane[j] = span.readable(j);
    return pack;
  }
};

// The index that the element has in an array of fewer dimensions, whose strides are those of Slot.
template <int Slot>
struct BroadcastIndex {
  using Element = int64;

  template <int N, class Index, class Geometry>
  JAX_ELEMENTWISE_DEVICE Pack<int64, N> load(const Span<Index>& span,
                                             const Geometry& geometry) const {
    Pack<int64, N> pack;
#pragma unroll
    for (int j = 0; j < N; ++j) pack.lane[j] = geometry.offset(Slot, span.readable(j));
    return pack;
  }
};

template <class T>
struct Output {
  using Element = T;
  T* data;
  bool vectorized;

  template <int N, class Index>
  JAX_ELEMENTWISE_DEVICE void store(const Span<Index>& span, const Pack<T, N>& pack) const {
    if (span.whole && vectorized) {
      pack.store(data + span.start);
      return;
    }
#pragma unroll
    for (int j = 0; j < N; ++j) {
      if (span.contains(j)) data[span.start + j] = pack.lane[j];
    }
  }
};

// An output that may lie where a Contiguous input of the same type does. An element is then read by
// the thread that writes it and by no other: packs do not overlap, and what a partial pack reads in
// place of elements outside belongs to the same pack. It is read before it is written, provided
// that the compiler keeps the loads of a pack before its stores. The stores of pack.h do not tell
// it to, so the fence does.
template <class T>
struct InPlace : Output<T> {
  template <int N, class Index>
  JAX_ELEMENTWISE_DEVICE void store(const Span<Index>& span, const Pack<T, N>& pack) const {
    compiler_fence();
    Output<T>::store(span, pack);
  }
};

}  // namespace jax_elementwise
