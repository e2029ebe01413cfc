// The packed grid-stride loop that every generated kernel calls.
#pragma once

#include <jax_elementwise/convert.h>
#include <jax_elementwise/operand.h>
#include <jax_elementwise/tuple.h>
#if defined(JAX_ELEMENTWISE_HOST)
#include <jax_elementwise/host/description.h>
#endif

namespace jax_elementwise {

// The packs that one call of a kernel goes through: begin, begin + stride, ... below end.
template <class Index>
struct Walk {
  Index begin;
  Index end;
  Index stride;
};

namespace detail {

// Those of a thread, unless the caller said which (host/host.h).
#if !defined(JAX_ELEMENTWISE_HOST)
template <class Index>
JAX_ELEMENTWISE_DEVICE Walk<Index> walk(Index packs) {
  return {static_cast<Index>(static_cast<Index>(blockIdx.x) * kBlockSize + threadIdx.x), packs,
          static_cast<Index>(gridDim.x) * kBlockSize};
}
#else
template <class Index>
inline Walk<Index> walk(Index) {
  return {static_cast<Index>(host::packs.begin), static_cast<Index>(host::packs.end), 1};
}
#endif

template <class T>
JAX_ELEMENTWISE_DEVICE T&& declval();

template <class... Ts>
struct Types {};

// Whether a functor has Apply2 for arrays of these elements.
template <class Functor, class Outs, class Ins, class = void>
struct HasApply2 {
  static constexpr bool value = false;
};
template <class Functor, class... Outs, class... Ins>
struct HasApply2<Functor, Types<Outs...>, Types<Ins...>,
                 decltype(void(declval<const Functor&>().Apply2(declval<Outs*>()...,
                                                                declval<const Ins*>()...)))> {
  static constexpr bool value = true;
};

template <int N, class Functor, class Index, class Geometry, class... Outs, int... O, class... Ins,
          int... I>
JAX_ELEMENTWISE_DEVICE void process_pack(const Functor& functor, const Span<Index>& span,
                                         const Geometry& geometry, const Tuple<Outs...>& outs,
                                         Indices<O...>, const Tuple<Ins...>& ins, Indices<I...>) {
  const Tuple<Pack<typename Ins::Element, N>...> loaded =
      make_tuple(get<I>(ins).template load<N>(span, geometry)...);
  Tuple<Pack<typename Outs::Element, N>...> stored;
  constexpr bool has_apply2 =
      HasApply2<Functor, Types<typename Outs::Element...>, Types<typename Ins::Element...>>::value;
  if constexpr (has_apply2 && N % 2 == 0) {
#pragma unroll
    for (int j = 0; j < N; j += 2) {
      functor.Apply2(&get<O>(stored).lane[j]..., &get<I>(loaded).lane[j]...);
    }
  } else {
#pragma unroll
    for (int j = 0; j < N; ++j) {
      Tuple<Compute<typename Outs::Element>...> results;
      functor(Element<typename Ins::Element>::widen(get<I>(loaded).lane[j])..., get<O>(results)...);
      ((get<O>(stored).lane[j] = Element<typename Outs::Element>::narrow(get<O>(results))), ...);
    }
  }
  (get<O>(outs).store(span, get<O>(stored)), ...);
}

}  // namespace detail

// Calls functor(in..., out&...) for every element. Packs begin `shift` elements before the arrays
// do, so that whole packs are aligned in as many arrays as possible; the first and the last pack
// may be partial. They run through the same code as the others, only their loads and stores differ,
// so the same value gives the same bits wherever it stands.
//
// A functor may have Apply2(Out*..., const In*...), which does two consecutive elements at once, as
// they are stored. Where packs hold an even number of elements, it does all of them: also a last
// one by itself, whose neighbour is then some element of the array and is not stored.
template <class Index, int N, class Functor, class Geometry, class... Outs, class... Ins>
JAX_ELEMENTWISE_DEVICE void elementwise(const Functor& functor, const Geometry& geometry,
                                        const Tuple<Outs...>& outs, const Tuple<Ins...>& ins) {
#if defined(JAX_ELEMENTWISE_HOST)
  if (host::description != nullptr) {
    host::description = host::describe<Index, N, Geometry>(host::description, outs, ins);
    return;
  }
#endif
  const Index size = static_cast<Index>(geometry.size);
  const Index shift = static_cast<Index>(geometry.shift);
  const Index packs = (size + shift + N - 1) / N;
  const Walk<Index> walk = detail::walk<Index>(packs);
  for (Index p = walk.begin; p < walk.end; p += walk.stride) {
    const Index start = p * N - shift;
    const Span<Index> span{start, size, start >= 0 && start <= size - N};
    detail::process_pack<N>(functor, span, geometry, outs, IndicesFor<Outs...>{}, ins,
                            IndicesFor<Ins...>{});
  }
}

// Bit k of the geometry's mask: outputs are counted first, then inputs.
template <class Geometry>
JAX_ELEMENTWISE_DEVICE bool vectorized(const Geometry& geometry, int operand) {
  return operand < 64 && ((geometry.vectorized >> operand) & 1);
}

}  // namespace jax_elementwise
