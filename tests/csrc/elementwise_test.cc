// elementwise.cuh on the host: every size and alignment, in place, what is refused, and launches.
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <jax_elementwise/elementwise.cuh>
#include <vector>

namespace je = jax_elementwise;

namespace {

int failures = 0;

void expect(bool holds, const char* what, long long x = 0, long long y = 0) {
  if (holds) return;
  if (++failures <= 20) std::printf("FAILED: %s (%lld, %lld)\n", what, x, y);
}

// Elements in a heap block of exactly their size, `offset` elements behind an aligned address.
template <class T>
struct Array {
  explicit Array(std::int64_t n, int offset = 0) : size(n), offset(offset) {
    cudaMalloc(&memory, (n + offset) * sizeof(T));
    for (std::int64_t i = 0; i < n; ++i) data()[i] = static_cast<T>(i % 100 + offset);
  }
  ~Array() { cudaFree(memory); }
  Array(const Array&) = delete;
  T* data() const { return memory + offset; }
  T operator[](std::int64_t i) const { return data()[i]; }
  std::int64_t size;
  int offset;
  T* memory = nullptr;
};

struct Affine {
  template <class T>
  T operator()(T x) const {
    return static_cast<T>(2 * x + 1);
  }
};
struct Sum {
  template <class... T>
  double operator()(T... x) const {
    return (0.0 + ... + x);
  }
};
struct Difference {
  float operator()(float x, float y) const { return 2 * x - y; }
};
struct Index {
  std::int64_t operator()(std::int64_t i) const { return i; }
};
int factory_calls = 0;
struct Scale {
  float factor;
  float operator()(float x) const { return factor * x; }
};
struct ScaleFactory {
  const float* factor;
  Scale operator()() const { return ++factory_calls, Scale{*factor}; }
};

template <class T>
void test_every_alignment() {
  constexpr int pack = 16 / sizeof(T);
  for (const int n : {0, 1, pack - 1, pack, pack + 1, 5 * pack - 1, 3000}) {
    for (int to = 0; to < pack; ++to) {
      for (int from = 0; from < pack; ++from) {
        const Array<T> out(n, to), x(n, from);
        expect(je::Unary(Affine{}, n, out.data(), x.data(), nullptr) == cudaSuccess, "Unary");
        for (int i = 0; i < n; ++i) expect(out[i] == Affine{}(x[i]), "Unary", n, i);
      }
      const Array<T> array(n, to);
      je::Unary(Affine{}, n, array.data(), array.data(), nullptr);
      for (int i = 0; i < n; ++i) {
        expect(array[i] == Affine{}(static_cast<T>(i % 100 + to)), "in place", n, i);
      }
    }
  }
}

void test_mixed_types_and_many_inputs() {
  for (const int n : {1, 2, 3, 1001}) {
    const Array<double> out(n, n % 2), d(n);
    const Array<signed char> a(n, 3);
    const Array<float> b(n, 1), c(n);
    const auto check = [&](const char* what, auto expected) {
      for (int i = 0; i < n; ++i) expect(out[i] == expected(i), what, n, i);
    };
    je::Binary(Sum{}, n, out.data(), a.data(), b.data(), nullptr);
    check("Binary", [&](int i) { return a[i] + b[i]; });
    je::Ternary(Sum{}, n, out.data(), a.data(), b.data(), d.data(), nullptr);
    check("Ternary", [&](int i) { return a[i] + b[i] + d[i]; });
    je::Nary(Sum{}, n, out.data(), a.data(), b.data(), c.data(), d.data(), d.data(),
             cudaStream_t{});
    check("Nary", [&](int i) { return a[i] + b[i] + c[i] + 2 * d[i]; });
    // A result as wide as one of its operands, of another type, in its place.
    je::Ternary(Sum{}, n, d.data(), d.data(), a.data(), b.data(), nullptr);
    for (int i = 0; i < n; ++i) expect(d[i] == i % 100 + a[i] + b[i], "in place", n, i);
  }
  const Array<float> x(9), y(9, 1);
  je::Binary(Difference{}, 9, y.data(), x.data(), y.data(), nullptr);
  for (int i = 0; i < 9; ++i) expect(y[i] == 2 * i - (i + 1), "second operand in place", i);
}

void test_index_and_factories() {
  const Array<std::int64_t> index(1000, 1);
  expect(je::Nary(Index{}, 1000, index.data(), nullptr) == cudaSuccess, "no operands");
  for (int i = 0; i < 1000; ++i) expect(index[i] == i, "index", i, index[i]);

  const Array<float> out(5000), x(5000);
  float factor = 3;
  factory_calls = 0;
  je::UnaryWithFactory(ScaleFactory{&factor}, 5000, out.data(), x.data(), nullptr);
  for (int i = 0; i < 5000; ++i) expect(out[i] == 3 * x[i], "UnaryWithFactory", i);
  const unsigned threads = stand_in::last.blocks * stand_in::last.threads;
  expect(factory_calls == static_cast<int>(threads), "once per thread", factory_calls, threads);
  const auto sum = [] { return Sum{}; };
  je::BinaryWithFactory(sum, 5000, out.data(), x.data(), x.data(), nullptr);
  expect(out[7] == 14, "BinaryWithFactory");
  je::TernaryWithFactory(sum, 5000, out.data(), x.data(), x.data(), x.data(), nullptr);
  expect(out[7] == 21, "TernaryWithFactory");
  je::NaryWithFactory(sum, 5000, out.data(), x.data(), x.data(), x.data(), x.data(), nullptr);
  expect(out[7] == 28, "NaryWithFactory");
}

void test_what_is_refused() {
  const Array<float> x(64), y(64);
  const Array<double> wide(32);
  const int before = stand_in::last.count;
  const auto unary = [](std::int64_t n, auto* r, const auto* a) {
    return je::Unary(Affine{}, n, r, a, nullptr);
  };
  float* const misaligned = reinterpret_cast<float*>(reinterpret_cast<char*>(y.data()) + 2);
  float* const null = nullptr;
  expect(unary(-1, x.data(), y.data()) == cudaErrorInvalidValue, "n < 0");
  expect(unary(INT64_MAX, x.data(), y.data()) == cudaErrorInvalidValue, "n too large");
  expect(unary(4, null, y.data()) == cudaErrorInvalidValue, "no output");
  expect(unary(4, x.data(), null) == cudaErrorInvalidValue, "no input");
  expect(unary(4, misaligned, x.data()) == cudaErrorInvalidValue, "misaligned output");
  expect(unary(4, x.data(), misaligned) == cudaErrorInvalidValue, "misaligned input");
  expect(unary(8, x.data(), x.data() + 7) == cudaErrorInvalidValue, "the end of the output");
  expect(unary(8, x.data() + 7, x.data()) == cudaErrorInvalidValue, "the end of the input");
  const auto narrow = reinterpret_cast<float*>(wide.data());
  expect(unary(8, wide.data(), narrow) == cudaErrorInvalidValue, "another width");
  expect(unary(0, null, null) == cudaSuccess, "nothing to do");
  expect(stand_in::last.count == before, "nothing is launched");
  expect(unary(8, x.data(), x.data() + 8) == cudaSuccess, "side by side");
  expect(stand_in::last.count == before + 1, "launched");

  stand_in::launch_error = cudaErrorInvalidConfiguration;
  expect(unary(4, x.data(), y.data()) == cudaErrorInvalidConfiguration, "errors of the launch");
  stand_in::launch_error = cudaSuccess;
  stand_in::device_error = cudaErrorNoDevice;
  expect(unary(4, x.data(), y.data()) == cudaErrorNoDevice, "no device");
  stand_in::device_error = cudaSuccess;
}

void test_launches() {
  stand_in::runs = false;
  const auto memory = [](std::uint64_t address) { return reinterpret_cast<float*>(address); };
  const auto stream = reinterpret_cast<cudaStream_t>(64);
  const auto launch = [&](std::int64_t n) {
    expect(je::Unary(Affine{}, n, memory(1ull << 60), memory(1ull << 61), stream) == cudaSuccess,
           "a launch", n);
    return stand_in::last;
  };
  expect(launch(1).blocks == 1 && stand_in::last.stream == stream, "one block");
  expect(stand_in::last.threads == je::kBlockSize, "threads of a block");
  expect(launch(4 * 256).blocks == 1 && launch(4 * 256 + 1).blocks == 2, "a thread per pack");
  const std::int64_t most = je::max_blocks(stand_in::multiprocessors, 512);
  const auto narrow = launch(std::int64_t{1} << 30), wide = launch((std::int64_t{1} << 30) + 1);
  expect(narrow.blocks == most && wide.blocks == most, "the cap", narrow.blocks, most);
  expect(narrow.kernel == launch(1).kernel && narrow.kernel != wide.kernel, "64-bit indices");
  expect(launch(std::int64_t{5} << 31).kernel == wide.kernel, "64-bit indices");

  // Each device has its own cap, and it is asked for once.
  stand_in::device = 3;
  stand_in::multiprocessors = 1;
  expect(launch(1 << 30).blocks == je::max_blocks(1, 512), "the cap of another device");
  const int calls = stand_in::attribute_calls;
  stand_in::device = 0;
  expect(launch(1 << 30).blocks == most && stand_in::attribute_calls == calls, "the cache");
  stand_in::device = 1000;
  expect(launch(1 << 30).blocks == je::max_blocks(1, 512), "devices beyond the cache");
  stand_in::device = 0;
  stand_in::runs = true;
}

}  // namespace

int main() {
  test_every_alignment<unsigned char>();
  test_every_alignment<short>();
  test_every_alignment<float>();
  test_every_alignment<double>();
  test_mixed_types_and_many_inputs();
  test_index_and_factories();
  test_what_is_refused();
  test_launches();
  std::printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
