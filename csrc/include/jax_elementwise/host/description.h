// What a kernel on a CPU says of itself, in numbers. A program says the same in its attributes, and
// the runtime compares (describe in csrc/ffi/cpu_handlers.cc) before it calls the kernel: with
// other packs, strides or types it would reach beyond its arrays.
#pragma once

#include <jax_elementwise/operand.h>
#include <jax_elementwise/tuple.h>

namespace jax_elementwise::host {

// How an input is reached, and which strides are its own.
template <class Operand>
struct Access;
template <class T>
struct Access<Contiguous<T>> {
  static constexpr int kind = 0, slot = 0;
};
template <class T>
struct Access<Scalar<T>> {
  static constexpr int kind = 1, slot = 0;
};
template <class T, int Slot>
struct Access<Rows<T, Slot>> {
  static constexpr int kind = 2, slot = Slot;
};
template <class T, int Slot>
struct Access<Columns<T, Slot>> {
  static constexpr int kind = 3, slot = Slot;
};
template <>
struct Access<ElementIndex> {
  static constexpr int kind = 4, slot = 0;
};
template <int Slot>
struct Access<BroadcastIndex<Slot>> {
  static constexpr int kind = 5, slot = Slot;
};

template <class Operand>
int64* describe_input(int64* word) {
  *word++ = Access<Operand>::kind;
  *word++ = Access<Operand>::slot;
  *word++ = sizeof(typename Operand::Element);
  return word;
}

// Writes the description; returns its end.
template <class Index, int N, class Geometry, class... Outs, class... Ins>
int64* describe(int64* word, const Tuple<Outs...>&, const Tuple<Ins...>&) {
  *word++ = 8 * sizeof(Index);
  *word++ = N;
  *word++ = sizeof(Geometry) / 8;
  *word++ = sizeof...(Outs);
  ((*word++ = sizeof(typename Outs::Element)), ...);
  ((word = describe_input<Ins>(word)), ...);
  return word;
}

}  // namespace jax_elementwise::host
