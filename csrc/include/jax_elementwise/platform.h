// What differs between the compilers that read these headers: NVRTC, nvcc and a host C++ compiler.
//
// No toolkit or standard header is included anywhere below this directory: a traced kernel must
// compile under NVRTC with nothing on its include path, and standard headers cost more of NVRTC's
// time than everything else (cuda/std/complex alone: 0.74 s).
#pragma once

#if defined(__CUDACC__)
#define JEW_DEVICE __device__ __forceinline__
#else
#define JEW_DEVICE inline __attribute__((always_inline))
#endif

namespace jax_elementwise {

using uint8 = unsigned char;
using uint16 = unsigned short;
using uint32 = unsigned int;
using int64 = long long;
using uint64 = unsigned long long;

static_assert(sizeof(uint16) == 2 && sizeof(uint32) == 4 && sizeof(int64) == 8,
              "the storage types of dtypes.h assume these widths");

// The unsigned type of the same width.
template <class T>
struct MakeUnsigned {
  using type = T;
};
template <>
struct MakeUnsigned<int> {
  using type = uint32;
};
template <>
struct MakeUnsigned<int64> {
  using type = uint64;
};
template <class T>
using Unsigned = typename MakeUnsigned<T>::type;

// Reinterprets the bytes of a value; the compilers reduce the loop to a register move.
template <class To, class From>
JEW_DEVICE To bit_cast(const From& from) {
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
