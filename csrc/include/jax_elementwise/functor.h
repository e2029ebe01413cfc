// Functors as users write them, R operator()(In...) const, for kernels, which store results through
// references.
#pragma once

#include <jax_elementwise/kernel.h>

namespace jax_elementwise {

namespace detail {

template <class Functor, class Ins, class = void>
struct IsCallable {
  static constexpr bool value = false;
};
template <class Functor, class... Ins>
struct IsCallable<Functor, Types<Ins...>,
                  decltype(void(declval<const Functor&>()(declval<Ins>()...)))> {
  static constexpr bool value = true;
};

// Only these are taken for indices: were every type that an int64 converts to, a functor with one
// operand too many would compute with the index instead of being refused.
template <class T>
struct IsIndex {
  static constexpr bool value = false;
};
template <>
struct IsIndex<long> {
  static constexpr bool value = sizeof(long) == 8;
};
template <>
struct IsIndex<unsigned long> {
  static constexpr bool value = sizeof(long) == 8;
};
template <>
struct IsIndex<long long> {
  static constexpr bool value = true;
};
template <>
struct IsIndex<unsigned long long> {
  static constexpr bool value = true;
};

template <bool>
struct Enabled {};
template <>
struct Enabled<true> {
  using type = void;
};

// Stands for an index where it is asked whether a functor takes one.
struct AnyIndex {
  template <class T, class = typename Enabled<IsIndex<T>::value>::type>
  JAX_ELEMENTWISE_DEVICE operator T() const;
};

}  // namespace detail

// A functor with one result, R, and operands In, the types of elements in memory. It computes with
// Compute<R> and Compute<In>, which are the same types unless dtypes.h says otherwise.
//
// It can be called with the index of the element behind its operands. A functor that cannot do
// without gets it as its last argument, a 64-bit integer; others never see it, and compilers drop
// what would have computed it. So a kernel may give every functor an ElementIndex as last operand.
//
// functor.Apply2(R* out, const In*... in) const, if there is one, does two elements at once.
template <class Functor, class R, class... In>
struct OneResult {
  Functor functor;

  static constexpr bool takes_elements =
      detail::IsCallable<Functor, detail::Types<Compute<In>...>>::value;
  static constexpr bool takes_index =
      !takes_elements &&
      detail::IsCallable<Functor, detail::Types<Compute<In>..., detail::AnyIndex>>::value;

  JAX_ELEMENTWISE_DEVICE void operator()(Compute<In>... in, Compute<R>& out) const {
    static_assert(takes_elements,
                  "the functor has no R operator()(In...) const for elements of these types");
    out = static_cast<Compute<R>>(functor(in...));
  }
  JAX_ELEMENTWISE_DEVICE void operator()(Compute<In>... in, int64 index, Compute<R>& out) const {
    static_assert(takes_elements || takes_index,
                  "the functor has neither R operator()(In...) const nor "
                  "R operator()(In..., int64 index) const for elements of these types");
    if constexpr (takes_elements) {
      out = static_cast<Compute<R>>(functor(in...));
    } else if constexpr (takes_index) {
      out = static_cast<Compute<R>>(functor(in..., index));
    }
  }

  template <class F = Functor>
  JAX_ELEMENTWISE_DEVICE auto Apply2(R* out, const In*... in) const
      -> decltype(void(detail::declval<const F&>().Apply2(out, in...))) {
    functor.Apply2(out, in...);
  }
  template <class F = Functor>
  JAX_ELEMENTWISE_DEVICE auto Apply2(R* out, const In*... in, const int64*) const
      -> decltype(void(detail::declval<const F&>().Apply2(out, in...))) {
    functor.Apply2(out, in...);
  }
};

}  // namespace jax_elementwise
