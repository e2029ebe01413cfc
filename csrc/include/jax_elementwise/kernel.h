// The packed grid-stride loop that every generated kernel calls.
#pragma once

#include <jax_elementwise/convert.h>
#include <jax_elementwise/operand.h>
#include <jax_elementwise/tuple.h>

namespace jax_elementwise {

constexpr int kBlockSize = 256;

namespace detail {

template <int N, class Functor, class Index, class Geometry, class... Outs, int... O, class... Ins,
          int... I>
JEW_DEVICE void process_pack(const Functor& functor, const Span<Index>& span,
                             const Geometry& geometry, const Tuple<Outs...>& outs, Indices<O...>,
                             const Tuple<Ins...>& ins, Indices<I...>) {
  const Tuple<Pack<typename Ins::Element, N>...> loaded =
      make_tuple(get<I>(ins).template load<N>(span, geometry)...);
  Tuple<Pack<typename Outs::Element, N>...> stored;
#pragma unroll
  for (int j = 0; j < N; ++j) {
    Tuple<Compute<typename Outs::Element>...> results;
    functor(Element<typename Ins::Element>::widen(get<I>(loaded).lane[j])..., get<O>(results)...);
    ((get<O>(stored).lane[j] = Element<typename Outs::Element>::narrow(get<O>(results))), ...);
  }
  (get<O>(outs).store(span, get<O>(stored)), ...);
}

}  // namespace detail

// Calls functor(in..., out&...) for every element. Packs begin `shift` elements before the arrays
// do, so that whole packs are aligned in as many arrays as possible; the first and the last pack
// may be partial. They run through the same code as the others, only their loads and stores differ,
// so the same value gives the same bits wherever it stands.
template <class Index, int N, class Functor, class Geometry, class... Outs, class... Ins>
JEW_DEVICE void elementwise(const Functor& functor, const Geometry& geometry,
                            const Tuple<Outs...>& outs, const Tuple<Ins...>& ins) {
  const Index size = static_cast<Index>(geometry.size);
  const Index shift = static_cast<Index>(geometry.shift);
  const Index packs = (size + shift + N - 1) / N;
  const Index stride = static_cast<Index>(gridDim.x) * kBlockSize;
  for (Index p = static_cast<Index>(blockIdx.x) * kBlockSize + threadIdx.x; p < packs;
       p += stride) {
    const Index start = p * N - shift;
    const Span<Index> span{start, size, start >= 0 && start <= size - N};
    detail::process_pack<N>(functor, span, geometry, outs, IndicesFor<Outs...>{}, ins,
                            IndicesFor<Ins...>{});
  }
}

// Bit k of the geometry's mask: outputs are counted first, then inputs.
template <class Geometry>
JEW_DEVICE bool vectorized(const Geometry& geometry, int operand) {
  return operand < 64 && ((geometry.vectorized >> operand) & 1);
}

}  // namespace jax_elementwise
