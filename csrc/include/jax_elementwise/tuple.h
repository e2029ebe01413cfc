// The few lines of std::tuple and std::index_sequence that the kernels need.
#pragma once

#include <jax_elementwise/platform.h>

namespace jax_elementwise {

template <int... I>
struct Indices {};

namespace detail {

template <int N, int... I>
struct MakeIndices : MakeIndices<N - 1, N - 1, I...> {};
template <int... I>
struct MakeIndices<0, I...> {
  using type = Indices<I...>;
};

template <int I, class T>
struct Slot {
  T value;
};

template <class Seq, class... Ts>
struct Slots;
template <int... I, class... Ts>
struct Slots<Indices<I...>, Ts...> : Slot<I, Ts>... {};

}  // namespace detail

template <class... Ts>
using IndicesFor = typename detail::MakeIndices<sizeof...(Ts)>::type;

template <class... Ts>
struct Tuple : detail::Slots<IndicesFor<Ts...>, Ts...> {};

template <int I, class T>
JAX_ELEMENTWISE_DEVICE T& get(detail::Slot<I, T>& slot) {
  return slot.value;
}
template <int I, class T>
JAX_ELEMENTWISE_DEVICE const T& get(const detail::Slot<I, T>& slot) {
  return slot.value;
}

template <class... Ts>
JAX_ELEMENTWISE_DEVICE Tuple<Ts...> make_tuple(Ts... values) {
  return Tuple<Ts...>{{{values}...}};
}

}  // namespace jax_elementwise
