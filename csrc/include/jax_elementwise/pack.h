// A pack: the consecutive elements of one array that a thread loads or stores in one access.
#pragma once

#include <jax_elementwise/dtypes.h>

namespace jax_elementwise {

constexpr int kAccessBytes = 16;  // the widest load and store of a GPU thread

JAX_ELEMENTWISE_DEVICE constexpr int min_of(int x, int y) { return x < y ? x : y; }

// Elements per pack of a kernel over arrays of Ts: the widest type fills one access.
template <class... Ts>
JAX_ELEMENTWISE_DEVICE constexpr int pack_size() {
  int size = kAccessBytes;
  ((size = min_of(size, kAccessBytes / static_cast<int>(sizeof(Ts)))), ...);
  return size;
}

// The register type whose load and store is one access of that many bytes.
#if defined(__CUDACC__)
template <int Bytes>
struct Access;
template <>
struct Access<1> {
  using type = uint8;
};
template <>
struct Access<2> {
  using type = uint16;
};
template <>
struct Access<4> {
  using type = uint32;
};
template <>
struct Access<8> {
  using type = uint2;
};
template <>
struct Access<16> {
  using type = uint4;
};
#else
template <int Bytes>
struct alignas(Bytes) [[gnu::may_alias]] Access {
  using type = Access;
  uint8 bytes[Bytes];
};
#endif

// One access, whatever the optimiser would rather do: NVRTC 13.5 split the plain assignment of a
// vector into 32-bit stores wherever a store by elements stood in the other branch. No kernel reads
// what it has stored, so the compiler need not be told that memory changes; one that stores where
// it has read puts a fence in between.
template <class Bits>
JAX_ELEMENTWISE_DEVICE void store_bits(Bits* to, const Bits& bits) {
  *to = bits;
}
#if defined(__CUDA_ARCH__)
JAX_ELEMENTWISE_DEVICE void store_bits(uint2* to, const uint2& bits) {
  asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(__cvta_generic_to_global(to)), "r"(bits.x),
               "r"(bits.y));
}
JAX_ELEMENTWISE_DEVICE void store_bits(uint4* to, const uint4& bits) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)),
               "r"(bits.x), "r"(bits.y), "r"(bits.z), "r"(bits.w));
}
#endif

// Keeps the compiler from moving loads and stores to the other side.
JAX_ELEMENTWISE_DEVICE void compiler_fence() { asm volatile("" ::: "memory"); }

template <class T, int N>
struct alignas(min_of(sizeof(T) * N, kAccessBytes)) Pack {
  T lane[N];

  // The registers of the access. Where a pack comes from one of two branches, it must be registers
  // that come together, and elements only afterwards: if elements did, each branch would take its
  // registers apart, and so wait for its load before the next operand's is begun (int8 add on an
  // H200: 3695 GB/s).
  using Bits = typename Access<min_of(sizeof(T) * N, kAccessBytes)>::type;

  static JAX_ELEMENTWISE_DEVICE Pack from_bits(const Bits& bits) {
    Pack pack;
    *reinterpret_cast<Bits*>(&pack) = bits;
    return pack;
  }
  JAX_ELEMENTWISE_DEVICE Bits bits() const { return *reinterpret_cast<const Bits*>(this); }

  // By reinterpretation: a copy of the struct (int8 add on an H200: 2694 instead of 4381 GB/s) or a
  // memcpy lets the compilers split the access into elements.
  static JAX_ELEMENTWISE_DEVICE Bits load_bits(const T* from) {
    return *reinterpret_cast<const Bits*>(from);
  }
  JAX_ELEMENTWISE_DEVICE void store(T* to) const {
    store_bits(reinterpret_cast<Bits*>(to), bits());
  }
};

template <int N, class T>
JAX_ELEMENTWISE_DEVICE bool is_aligned(const T* pointer) {
  return reinterpret_cast<uint64>(pointer) % (sizeof(T) * N) == 0;
}

}  // namespace jax_elementwise
