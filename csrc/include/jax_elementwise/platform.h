// What differs between the compilers that read these headers: NVRTC, nvcc and a host C++ compiler;
// and what all other headers need.
//
// No toolkit or standard header is included anywhere below this directory: a traced kernel must
// compile under NVRTC with nothing on its include path, and standard headers cost more of NVRTC's
// time than everything else (cuda/std/complex alone: 0.74 s).
#pragma once

#if defined(__CUDACC__)
#define JAX_ELEMENTWISE_DEVICE __device__ __forceinline__
#else
#define JAX_ELEMENTWISE_DEVICE inline __attribute__((always_inline))
#endif

namespace jax_elementwise {

using int8 = signed char;
using uint8 = unsigned char;
using int16 = short;
using uint16 = unsigned short;
using uint32 = unsigned int;
using int64 = long long;
using uint64 = unsigned long long;

static_assert(sizeof(uint16) == 2 && sizeof(uint32) == 4 && sizeof(int64) == 8,
              "the storage types of dtypes.h assume these widths");

// What kernels and launchers agree on.
constexpr int kBlockSize = 256;

// The most elements of a kernel with 32-bit indices: keeps index + stride below 2^31.
constexpr int64 kMaxSize32 = int64{1} << 30;

// The signed and the unsigned integer of a width.
template <int Bytes>
struct Integers;
template <>
struct Integers<1> {
  using Signed = int8;
  using Unsigned = uint8;
};
template <>
struct Integers<2> {
  using Signed = int16;
  using Unsigned = uint16;
};
template <>
struct Integers<4> {
  using Signed = int;
  using Unsigned = uint32;
};
template <>
struct Integers<8> {
  using Signed = int64;
  using Unsigned = uint64;
};
template <class T>
using Signed = typename Integers<sizeof(T)>::Signed;
template <class T>
using Unsigned = typename Integers<sizeof(T)>::Unsigned;

// The condition of a loop that some values may never leave, in a form that compilers see nothing
// in. C++ lets them assume that every loop ends, and NVRTC has no option against that. They would
// take the result of a loop from the condition under which it ends, and leave the loop out.
JAX_ELEMENTWISE_DEVICE bool goes_on(bool condition) {
  int word = condition;
  asm("" : "+r"(word));
  return word != 0;
}

// Reinterprets the bytes of a value; the compilers reduce the loop to a register move.
template <class To, class From>
JAX_ELEMENTWISE_DEVICE To bit_cast(const From& from) {
  static_assert(sizeof(To) == sizeof(From), "bit_cast keeps every bit");
  To to;
#if defined(__CUDACC__)
  memcpy(&to, &from, sizeof(To));
#else
  __builtin_memcpy(&to, &from, sizeof(To));
#endif
  return to;
}

}  // namespace jax_elementwise
