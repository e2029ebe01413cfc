// Elementwise kernels for users of CUDA C++, C++17 with nvcc or clang:
//
//   cudaError_t Unary(functor, n, out, a, stream)
//   cudaError_t Binary(functor, n, out, a, b, stream)
//   cudaError_t Ternary(functor, n, out, a, b, c, stream)
//   cudaError_t Nary(functor, n, out, in..., stream)       any number of inputs, none too
//   cudaError_t UnaryWithFactory(factory, n, ...)          and the same for the others
//
// out[i] = functor(a[i], ...) for i from 0 to n - 1, where the functor is an object with
//
//   __device__ R operator()(A a, ...) const;
//
// or, if its result depends on where the element stands, with one more 64-bit integer behind the
// others, the element's index. It may also have
//
//   __device__ void Apply2(R* out, const A* a, ...) const;
//
// for two consecutive elements at once, which is called instead wherever packs hold an even number
// of elements. A factory is an object whose `__device__ operator()() const` returns the functor;
// every thread calls it once, before its first element, so it is where to read parameters from
// device memory.
//
// Elements have 1, 2, 4, 8 or 16 bytes. Threads load and store packs of up to 128 bits. Pointers
// need no more alignment than their elements: packs begin where those of the output are aligned,
// and an input that is not aligned there is read element by element. `out` may be one of the inputs
// if its elements are as wide; arrays that overlap in any other way are refused.
//
// cudaErrorInvalidValue: n is negative, or an array is null, misaligned to its elements or overlaps
// the output. Otherwise the result is that of the launch, which runs asynchronously. Nothing is
// launched for n = 0. What cudaGetLastError() holds from before is neither returned nor cleared,
// but once a kernel has faulted, every call of the runtime returns that fault, and so do these.
#pragma once

#if !defined(__CUDACC__)
#error "jax_elementwise/elementwise.cuh must be compiled as CUDA, by nvcc or clang"
#endif

#include <cuda_runtime.h>
#include <jax_elementwise/alignment.h>
#include <jax_elementwise/functor.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

namespace jax_elementwise {

namespace detail {

// ---- The kernel ---------------------------------------------------------------------------------

template <class Functor>
struct ConstantFactory {
  Functor functor;
  JAX_ELEMENTWISE_DEVICE Functor operator()() const { return functor; }
};

template <class Index, int N, class Functor, class R, class... In, int... I>
JAX_ELEMENTWISE_DEVICE void run_functor(const Functor& functor, const Geometry<0, 0>& geometry,
                                        R* out, Indices<I...>, const In*... in) {
  // Arrays may be the same here, so nothing is __restrict__ and the output is InPlace.
  elementwise<Index, N>(
      OneResult<Functor, R, In...>{functor}, geometry,
      make_tuple(InPlace<R>{{out, vectorized(geometry, 0)}}),
      make_tuple(Contiguous<In>{in, vectorized(geometry, I + 1)}..., ElementIndex{}));
}

template <class Index, int N, class Factory, class R, class... In>
__global__ void __launch_bounds__(kBlockSize)
    elementwise_kernel(Factory factory, Geometry<0, 0> geometry, R* out, const In*... in) {
  run_functor<Index, N>(factory(), geometry, out, IndicesFor<In...>{}, in...);
}

// ---- The launch ---------------------------------------------------------------------------------

template <class T>
constexpr bool is_element =
    std::is_trivially_copyable_v<T> &&
    (sizeof(T) == 1 || sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16);

// More than any memory holds, and few enough that sizes in bytes do not overflow.
constexpr int64 kMaxElements = int64{1} << 56;

inline bool is_same_or_apart(const Placement& x, const Placement& y, int64 n) {
  const auto begin = reinterpret_cast<uint64>(x.data), other = reinterpret_cast<uint64>(y.data);
  if (begin == other && x.itemsize == y.itemsize) return true;
  return begin + static_cast<uint64>(n * x.itemsize) <= other ||
         other + static_cast<uint64>(n * y.itemsize) <= begin;
}

// arrays[0] is the output.
inline bool are_valid(const Placement* arrays, int count, int64 n) {
  for (int k = 0; k < count; ++k) {
    if (arrays[k].data == nullptr || !arrays[k].is_aligned(0, 1)) return false;
    if (!is_same_or_apart(arrays[0], arrays[k], n)) return false;
  }
  return true;
}

// The cap of grids on the current device. Attributes do not change, so threads that find none in
// the cache at the same time store the same.
inline cudaError_t max_blocks_of_device(int64* cap) {
  constexpr int kCachedDevices = 64;
  static std::atomic<int64> cache[kCachedDevices];  // 0: not known yet
  int device = 0, multiprocessors = 0, threads = 0;
  if (const cudaError_t error = cudaGetDevice(&device); error != cudaSuccess) return error;
  const bool is_cached = device < kCachedDevices;
  *cap = is_cached ? cache[device].load(std::memory_order_relaxed) : 0;
  if (*cap != 0) return cudaSuccess;
  cudaError_t error =
      cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  if (error != cudaSuccess) return error;
  error = cudaDeviceGetAttribute(&threads, cudaDevAttrMaxThreadsPerMultiProcessor, device);
  if (error != cudaSuccess) return error;
  *cap = max_blocks(multiprocessors, threads);
  if (is_cached) cache[device].store(*cap, std::memory_order_relaxed);
  return cudaSuccess;
}

template <class Factory, class R, class... In>
cudaError_t launch(Factory factory, int64 n, cudaStream_t stream, R* out, const In*... in) {
  static_assert((is_element<R> && ... && is_element<In>),
                "elements must be trivially copyable and of 1, 2, 4, 8 or 16 bytes");
  constexpr int pack = pack_size<R, In...>(), count = 1 + sizeof...(In);
  if (n < 0 || n > kMaxElements) return cudaErrorInvalidValue;
  if (n == 0) return cudaSuccess;
  const Placement arrays[] = {{out, sizeof(R), true}, {in, sizeof(In), true}...};
  if (!are_valid(arrays, count, n)) return cudaErrorInvalidValue;
  int64 cap = 0;
  if (const cudaError_t error = max_blocks_of_device(&cap); error != cudaSuccess) return error;

  const Alignment alignment = best_alignment(arrays, count, 1, pack);
  Geometry<0, 0> geometry{n, alignment.shift(pack), alignment.vectorized};
  const int64 blocks = block_count(pack_count(n, geometry.shift, pack), cap);
  void* parameters[] = {&factory, &geometry, &out, &in...};
  const auto kernel = n <= kMaxSize32 ? elementwise_kernel<int, pack, Factory, R, In...>
                                      : elementwise_kernel<int64, pack, Factory, R, In...>;
  // Returns the launch's own error. Asking cudaGetLastError() after <<<>>> would also return, and
  // clear, what an earlier call of somebody else has left.
  return cudaLaunchKernel(kernel, dim3(static_cast<unsigned>(blocks)), dim3(kBlockSize), parameters,
                          0, stream);
}

// The arguments behind the output: inputs, and the stream as the last.
template <class Factory, class R, class... Rest, std::size_t... I>
cudaError_t launch_before_stream(Factory factory, int64 n, R* out, const std::tuple<Rest...>& rest,
                                 std::index_sequence<I...>) {
  constexpr bool are_pointers =
      (... && std::is_pointer_v<std::tuple_element_t<I, std::tuple<Rest...>>>);
  static_assert(are_pointers, "the arguments between the output and the stream must be pointers");
  if constexpr (are_pointers) {
    return launch(
        factory, n, static_cast<cudaStream_t>(std::get<sizeof...(I)>(rest)), out,
        static_cast<const std::remove_pointer_t<std::tuple_element_t<I, std::tuple<Rest...>>>*>(
            std::get<I>(rest))...);
  }
  return cudaErrorInvalidValue;
}

}  // namespace detail

// ---- With a factory -----------------------------------------------------------------------------

template <class Factory, class R, class A>
cudaError_t UnaryWithFactory(Factory factory, std::int64_t n, R* r, const A* a,
                             cudaStream_t stream) {
  return detail::launch(factory, n, stream, r, a);
}

template <class Factory, class R, class A, class B>
cudaError_t BinaryWithFactory(Factory factory, std::int64_t n, R* r, const A* a, const B* b,
                              cudaStream_t stream) {
  return detail::launch(factory, n, stream, r, a, b);
}

template <class Factory, class R, class A, class B, class C>
cudaError_t TernaryWithFactory(Factory factory, std::int64_t n, R* r, const A* a, const B* b,
                               const C* c, cudaStream_t stream) {
  return detail::launch(factory, n, stream, r, a, b, c);
}

// NaryWithFactory(factory, n, out, in..., stream).
template <class Factory, class R, class... InputsThenStream>
cudaError_t NaryWithFactory(Factory factory, std::int64_t n, R* out, InputsThenStream... rest) {
  constexpr std::size_t count = sizeof...(InputsThenStream);
  using Last = std::tuple_element_t<count, std::tuple<void, InputsThenStream...>>;
  constexpr bool ends_with_stream = std::is_convertible_v<Last, cudaStream_t>;
  static_assert(ends_with_stream, "the last argument must be a cudaStream_t");
  if constexpr (ends_with_stream) {
    return detail::launch_before_stream(factory, n, out, std::make_tuple(rest...),
                                        std::make_index_sequence<count - 1>{});
  }
  return cudaErrorInvalidValue;
}

// ---- With a functor -----------------------------------------------------------------------------

template <class Functor, class R, class A>
cudaError_t Unary(Functor functor, std::int64_t n, R* r, const A* a, cudaStream_t stream) {
  return UnaryWithFactory(detail::ConstantFactory<Functor>{functor}, n, r, a, stream);
}

template <class Functor, class R, class A, class B>
cudaError_t Binary(Functor functor, std::int64_t n, R* r, const A* a, const B* b,
                   cudaStream_t stream) {
  return BinaryWithFactory(detail::ConstantFactory<Functor>{functor}, n, r, a, b, stream);
}

template <class Functor, class R, class A, class B, class C>
cudaError_t Ternary(Functor functor, std::int64_t n, R* r, const A* a, const B* b, const C* c,
                    cudaStream_t stream) {
  return TernaryWithFactory(detail::ConstantFactory<Functor>{functor}, n, r, a, b, c, stream);
}

// Nary(functor, n, out, in..., stream).
template <class Functor, class R, class... InputsThenStream>
cudaError_t Nary(Functor functor, std::int64_t n, R* out, InputsThenStream... rest) {
  return NaryWithFactory(detail::ConstantFactory<Functor>{functor}, n, out, rest...);
}

}  // namespace jax_elementwise
