// Users' functors in kernels: pairs of elements, and the index of an element.
#include "simt.h"
// The kernels' words of CUDA come first.
#include <cstdio>
#include <vector>

#include "jax_elementwise/functor.h"

namespace ew = jax_elementwise;

namespace {

int failures = 0;
int singles = 0, pairs = 0;  // calls of the functors below

void expect(bool holds, const char* what, long long x, long long y) {
  if (holds) return;
  if (++failures <= 20) std::printf("FAILED: %s (%lld, %lld)\n", what, x, y);
}

// ---- Functors -----------------------------------------------------------------------------------

// What a pair gives differs from what single elements give, so it shows which one was called.
struct Marked {
  float operator()(float x, float y) const { return ++singles, x + y; }
  void Apply2(float* r, const float* x, const float* y) const {
    ++pairs;
    for (int j = 0; j < 2; ++j) r[j] = x[j] + y[j] + 1000;
  }
};
struct MarkedDouble {
  double operator()(double x) const { return ++singles, x; }
  void Apply2(double* r, const double* x) const { ++pairs, r[0] = x[0] + 1000, r[1] = x[1] + 1000; }
};
struct Complex128 {
  double re, im;
};
struct MarkedComplex {
  Complex128 operator()(Complex128 x) const { return ++singles, x; }
  void Apply2(Complex128*, const Complex128*) const { ++pairs; }
};
// For other elements than those of the arrays.
struct Other {
  float operator()(float x) const { return ++singles, x; }
  void Apply2(double*, const double*) const { ++pairs; }
};
struct Sum {
  float operator()(float x, float y) const { return x + y; }
};
struct WithIndex {
  double operator()(float x, ew::int64 index) const { return x + 1000.0 * double(index); }
};
struct OnlyIndex {
  std::size_t operator()(std::size_t index) const { return 3 * index; }
};
struct WithIndexReference {
  long operator()(float, const long& index) const { return index; }
};
struct WithNarrowIndex {
  float operator()(float x, int index) const { return x + float(index); }
};
struct OfStored {
  float operator()(float x) const { return 2 * x; }
};

// ---- What is found at compile time --------------------------------------------------------------

template <class F, class R, class... In>
constexpr bool has_apply2 = ew::detail::HasApply2<ew::OneResult<F, R, In...>, ew::detail::Types<R>,
                                                  ew::detail::Types<In...>>::value;
template <class F, class R, class... In>
constexpr bool has_apply2_beside_index =
    ew::detail::HasApply2<ew::OneResult<F, R, In...>, ew::detail::Types<R>,
                          ew::detail::Types<In..., ew::int64>>::value;
static_assert(has_apply2<Marked, float, float, float>);
static_assert(has_apply2_beside_index<Marked, float, float, float>);
static_assert(!has_apply2<Marked, float, float>);
static_assert(!has_apply2<Other, float, float>);
static_assert(!has_apply2<Sum, float, float, float>);
static_assert(!has_apply2_beside_index<Sum, float, float, float>);

template <class F, class... In>
constexpr bool takes_index = ew::OneResult<F, float, In...>::takes_index;
template <class F, class... In>
constexpr bool takes_elements = ew::OneResult<F, float, In...>::takes_elements;
static_assert(takes_elements<Sum, float, float> && !takes_index<Sum, float, float>);
// An index converts to a float, but is not taken for one.
static_assert(!takes_elements<Sum, float> && !takes_index<Sum, float>);
static_assert(!takes_index<WithNarrowIndex, float>);
static_assert(takes_elements<WithNarrowIndex, float, int>);
static_assert(!takes_elements<WithIndex, float> && takes_index<WithIndex, float>);
static_assert(takes_index<OnlyIndex> && takes_index<WithIndexReference, float>);
static_assert(takes_elements<OnlyIndex, int>);
static_assert(takes_elements<OfStored, ew::float16> && !takes_index<OfStored, ew::float16>);

// ---- Running ------------------------------------------------------------------------------------

template <class Index, int N, class F, class R, class... In>
void kernel(ew::Geometry<0, 0> geometry, R* out, const In*... in) {
  ew::elementwise<Index, N>(ew::OneResult<F, R, In...>{}, geometry,
                            ew::make_tuple(ew::Output<R>{out, false}),
                            ew::make_tuple(ew::Contiguous<In>{in, false}..., ew::ElementIndex{}));
}

// The results of a functor on n elements whose packs begin `shift` before them.
template <class Index, int N, class F, class R, class... In>
std::vector<R> run(int n, int shift, std::vector<In>... in) {
  std::vector<R> result(n);
  const ew::Geometry<0, 0> geometry{n, shift, 0};
  singles = pairs = 0;
  gridDim = {2, 1, 1};
  for (unsigned block = 0; block < 2; ++block) {
    for (unsigned thread = 0; thread < ew::kBlockSize; ++thread) {
      blockIdx = {block, 0, 0};
      threadIdx = {thread, 0, 0};
      kernel<Index, N, F, R, In...>(geometry, result.data(), in.data()...);
    }
  }
  return result;
}

template <class T>
std::vector<T> numbers(int n) {
  std::vector<T> result(n);
  for (int i = 0; i < n; ++i) result[i] = static_cast<T>(i % 50);
  return result;
}

template <class Index>
void test_even_packs_go_by_pairs() {
  for (int n = 1; n < 40; ++n) {
    for (int shift = 0; shift < 4; ++shift) {
      const auto x = numbers<float>(n), y = numbers<float>(n);
      const auto result = run<Index, 4, Marked, float, float, float>(n, shift, x, y);
      for (int i = 0; i < n; ++i) {
        expect(result[i] == x[i] + y[i] + 1000, "a pair, wherever it stands", n, i);
      }
      expect(singles == 0 && pairs == (n + shift + 3) / 4 * 2, "two pairs per pack", n, shift);
    }
    for (int shift = 0; shift < 2; ++shift) {
      const auto x = numbers<double>(n);
      const auto result = run<Index, 2, MarkedDouble, double, double>(n, shift, x);
      for (int i = 0; i < n; ++i) expect(result[i] == x[i] + 1000, "a pair of doubles", n, i);
      expect(singles == 0 && pairs == (n + shift + 1) / 2, "one pair per pack", n, shift);
    }
  }
}

void test_other_packs_do_not() {
  run<int, 1, MarkedComplex, Complex128, Complex128>(7, 0, std::vector<Complex128>(7));
  expect(singles == 7 && pairs == 0, "packs of one element", singles, pairs);
  const auto result = run<int, 4, Other, float, float>(7, 0, numbers<float>(7));
  expect(pairs == 0 && result[6] == 6, "Apply2 for other elements", singles, pairs);
}

template <class Index>
void test_indices() {
  for (int n = 1; n < 40; ++n) {
    for (int shift = 0; shift < 4; ++shift) {
      const auto x = numbers<float>(n);
      const auto result = run<Index, 4, WithIndex, double, float>(n, shift, x);
      const auto alone = run<Index, 4, OnlyIndex, ew::int64>(n, shift);
      const auto reference = run<Index, 4, WithIndexReference, long, float>(n, shift, x);
      for (int i = 0; i < n; ++i) {
        expect(result[i] == x[i] + 1000.0 * i, "element and index", n, i);
        expect(alone[i] == 3 * i, "index alone", n, i);
        expect(reference[i] == i, "index by reference", n, i);
      }
    }
  }
}

// Beyond the array lanes have the nearest index inside, as they have its elements.
template <class Index>
void test_lanes_outside() {
  const auto check = [](Index start, Index size, ew::int64 first, ew::int64 last) {
    const ew::Span<Index> span{start, size, false};
    const auto pack = ew::ElementIndex{}.load<4>(span, 0);
    expect(pack.lane[0] == first && pack.lane[3] == last, "lanes outside", start, size);
  };
  check(-2, 10, 0, 1);
  check(8, 10, 8, 9);
  check(-3, 1, 0, 0);
  const Index large = Index(1) << (8 * sizeof(Index) - 2);
  check(large - 4, large, ew::int64(large) - 4, ew::int64(large) - 1);
}

// In [5, 7], an operand of shape [5, 1], and one of shape [7].
void test_broadcast_indices() {
  const ew::Geometry<2, 2> geometry{35, 0, 0, {{7, 613566757, 3}}, {{1, 0}, {0, 1}}};
  for (int start = -3; start < 36; ++start) {
    const ew::Span<int> span{start, 35, start >= 0 && start <= 31};
    const auto rows = ew::BroadcastIndex<0>{}.load<4>(span, geometry);
    const auto columns = ew::BroadcastIndex<1>{}.load<4>(span, geometry);
    for (int j = 0; j < 4; ++j) {
      const int index = span.readable(j);
      expect(rows.lane[j] == index / 7, "index of a row", start, j);
      expect(columns.lane[j] == index % 7, "index in a row", start, j);
    }
  }
}

void test_elements_are_widened() {
  std::vector<ew::float16> x(5);
  for (int i = 0; i < 5; ++i) x[i] = ew::Element<ew::float16>::narrow(float(i));
  const auto result = run<int, 4, OfStored, float, ew::float16>(5, 0, x);
  for (int i = 0; i < 5; ++i) expect(result[i] == 2 * i, "float16", i, 0);
}

}  // namespace

int main() {
  test_even_packs_go_by_pairs<int>();
  test_even_packs_go_by_pairs<long long>();
  test_other_packs_do_not();
  test_indices<int>();
  test_indices<long long>();
  test_lanes_outside<int>();
  test_lanes_outside<long long>();
  test_broadcast_indices();
  test_elements_are_widened();
  std::printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
