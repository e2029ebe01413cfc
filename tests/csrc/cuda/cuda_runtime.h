// A CUDA runtime that launches on the host, in place of the toolkit's header of this name: enough
// for elementwise.cuh. Compile with -D__CUDACC__.
#pragma once

#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))

#include <cstdlib>
#include <cstring>

#include "../simt.h"

using std::memcpy;

struct [[gnu::may_alias]] alignas(8) uint2 {
  unsigned x, y;
};
struct [[gnu::may_alias]] alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct float3 {
  float x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  explicit dim3(unsigned x) : x(x), y(1), z(1) {}
};

inline long long __mul64hi(long long x, long long y) {
  __extension__ using int128 = __int128;
  return static_cast<long long>(int128{x} * y >> 64);
}
inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
  __extension__ using uint128 = unsigned __int128;
  return static_cast<unsigned long long>(uint128{x} * y >> 64);
}

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorNoDevice = 100
};
enum cudaDeviceAttr {
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrMaxThreadsPerMultiProcessor = 39
};
enum cudaMemcpyKind { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2 };
using cudaStream_t = struct CUstream_st*;

namespace stand_in {

// What a test reads and sets.
inline int device = 0, multiprocessors = 2, attribute_calls = 0;
inline cudaError_t device_error = cudaSuccess, launch_error = cudaSuccess;
inline bool runs = true;  // or only takes notes
struct Launch {
  int count = 0;
  unsigned blocks = 0, threads = 0;
  cudaStream_t stream = nullptr;
  const void* kernel = nullptr;
};
inline Launch last;

}  // namespace stand_in

inline const char* cudaGetErrorString(cudaError_t) { return "an error of the stand-in"; }

inline cudaError_t cudaGetDevice(int* device) {
  *device = stand_in::device;
  return stand_in::device_error;
}

inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  ++stand_in::attribute_calls;
  *value = attribute == cudaDevAttrMultiProcessorCount ? stand_in::multiprocessors : 512;
  return cudaSuccess;
}

inline cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  return posix_memalign(memory, 256, bytes) == 0 ? cudaSuccess : cudaErrorInvalidValue;
}
template <class T>
cudaError_t cudaMalloc(T** memory, std::size_t bytes) {
  return cudaMalloc(reinterpret_cast<void**>(memory), bytes);
}
inline cudaError_t cudaFree(void* memory) { return std::free(memory), cudaSuccess; }
inline cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  if (bytes != 0) std::memcpy(to, from, bytes);
  return cudaSuccess;
}

template <class... Parameters>
cudaError_t cudaLaunchKernel(void (*kernel)(Parameters...), dim3 grid, dim3 block,
                             void** parameters, std::size_t, cudaStream_t stream) {
  if (stand_in::launch_error != cudaSuccess) return stand_in::launch_error;
  if (grid.x == 0 || grid.x > 0x7fffffffu || block.x == 0) return cudaErrorInvalidConfiguration;
  stand_in::last = {stand_in::last.count + 1, grid.x, block.x, stream,
                    reinterpret_cast<const void*>(kernel)};
  if (!stand_in::runs) return cudaSuccess;
  gridDim = {grid.x, 1, 1};
  blockDim = {block.x, 1, 1};
  for (unsigned index = 0; index < grid.x; ++index) {
    for (unsigned thread = 0; thread < block.x; ++thread) {
      blockIdx = {index, 0, 0};
      threadIdx = {thread, 0, 0};
      simt::call_with(kernel, parameters, std::index_sequence_for<Parameters...>{});
    }
  }
  return cudaSuccess;
}
