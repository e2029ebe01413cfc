// The arithmetic that the launcher and the kernels share: division by multiplication, spans, grids.
// Includes the text of plan.cc, so that what it keeps to itself can be tested.
#include "plan.cc"

#include <cstdio>
#include <cstdlib>
#include <random>

#include "jax_elementwise/geometry.h"

namespace rt = jax_elementwise::runtime;

namespace {

int failures = 0;

void expect(bool holds, const char* what, unsigned long long x, unsigned long long y) {
  if (holds) return;
  if (++failures <= 20) std::printf("FAILED: %s (%llu, %llu)\n", what, x, y);
}

jax_elementwise::Divider make_divider(std::uint64_t divisor, int bits) {
  rt::Geometry geometry;
  int word = 0;
  rt::append_divider(geometry, word, divisor, bits);
  return {geometry.words[0], geometry.words[1], geometry.words[2]};
}

// Index is the kernels' index type; its largest value is the largest dividend.
template <class Index>
void test_division(std::uint64_t divisor, std::mt19937_64& random) {
  constexpr int bits = 8 * sizeof(Index);
  const std::uint64_t largest = (std::uint64_t{1} << (bits - 1)) - 1;
  const jax_elementwise::Divider divider = make_divider(divisor, bits);
  const auto test = [&](std::uint64_t dividend) {
    const Index quotient = divider.divide(static_cast<Index>(dividend));
    expect(static_cast<std::uint64_t>(quotient) == dividend / divisor, "dividend / divisor",
           dividend, divisor);
  };
  // Around every multiple that matters: the first few, the last ones, and random ones between.
  const std::uint64_t quotients = largest / divisor;
  for (int i = 0; i < 60; ++i) {
    const std::uint64_t quotient = i < 4   ? i
                                   : i < 8 ? quotients - (i - 4)
                                           : random() % (quotients + 1);
    if (quotient > quotients) continue;
    const std::uint64_t multiple = quotient * divisor;
    test(multiple);
    if (multiple > 0) test(multiple - 1);
    if (multiple < largest) test(multiple + 1);
  }
  test(largest);
  for (int i = 0; i < 20; ++i) test(random() & largest);
}

template <class Index>
void test_divider() {
  std::mt19937_64 random(1);
  constexpr int bits = 8 * sizeof(Index);
  const std::uint64_t largest = (std::uint64_t{1} << (bits - 1)) - 1;
  for (std::uint64_t divisor = 1; divisor <= 2000; ++divisor) test_division<Index>(divisor, random);
  for (int power = 0; power < bits - 1; ++power) {
    const std::uint64_t near = std::uint64_t{1} << power;
    for (const std::uint64_t divisor : {near - 1, near, near + 1}) {
      if (divisor != 0 && divisor <= largest) test_division<Index>(divisor, random);
    }
  }
  for (const std::uint64_t divisor :
       {largest, largest - 1, largest / 2, largest / 3, largest / 2 + 1}) {
    test_division<Index>(divisor, random);
  }
  for (int i = 0; i < 20000; ++i) {
    test_division<Index>((random() & largest) >> (random() % (bits - 1)) | 1, random);
  }
}

// Small enough to try everything.
void test_every_small_division() {
  for (std::uint64_t divisor = 1; divisor <= 300; ++divisor) {
    const jax_elementwise::Divider narrow = make_divider(divisor, 32),
                                   wide = make_divider(divisor, 64);
    for (std::uint64_t dividend = 0; dividend <= 3000; ++dividend) {
      expect(narrow.divide(static_cast<int>(dividend)) == static_cast<int>(dividend / divisor),
             "32 bits", dividend, divisor);
      expect(wide.divide(static_cast<long long>(dividend)) ==
                 static_cast<long long>(dividend / divisor),
             "64 bits", dividend, divisor);
    }
  }
}

void test_full_span() {
  rt::Call call;
  for (call.rank = 1; call.rank <= 64; ++call.rank) {
    const std::uint64_t span = rt::full_span(call);
    expect(__builtin_popcountll(span) == call.rank, "full_span of rank", call.rank, span);
    expect((span & 1) == 1, "full_span has dimension 0", call.rank, span);
  }
}

void test_spanned_elements() {
  constexpr std::int64_t huge = std::int64_t{1} << 40, most = ~std::uint64_t{0} >> 1;
  rt::Call call;
  call.extents = {huge, huge, 0, 3};
  call.rank = 4;
  const auto test = [&](std::uint64_t span, std::int64_t expected) {
    const std::int64_t elements = rt::spanned_elements(call, span);
    expect(elements == expected, "spanned_elements", span, elements);
  };
  test(0, 1);
  test(1, huge);
  test(0b1001, 3 * huge);
  test(0b0011, most);  // which is no number of elements of an array
  test(0b1011, most);
  test(0b0111, 0);
  test(0b1111, 0);
}

void test_max_blocks() {
  expect(jax_elementwise::max_blocks(132, 2048) == std::int64_t{132} * 8 * 1024,
         "max_blocks of an H200", 132, 2048);
  expect(jax_elementwise::max_blocks(1, 1024) == 4096, "max_blocks of one multiprocessor", 1, 1024);
  // The grid's x dimension goes to 2^31 - 1.
  expect(jax_elementwise::max_blocks(1 << 20, 1 << 20) == (std::int64_t{1} << 31) - 1,
         "max_blocks without end", 1 << 20, 1 << 20);
}

}  // namespace

int main() {
  test_divider<int>();
  test_divider<long long>();
  test_every_small_division();
  test_full_span();
  test_spanned_elements();
  test_max_blocks();
  std::printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
