// A stand-in for CUDA's execution model: a kernel's text compiles as host C++, and its threads run
// one after another. Enough for kernels without shared memory and barriers.
//
// Include it before the kernel. What the kernel names of CUDA is a macro or a variable here, and
// the functions of CUDA's mathematics that libm lacks are defined.
#pragma once

#include <math.h>

#include <cstddef>
#include <type_traits>
#include <utility>

#define __global__
#define __launch_bounds__(...)
#define __grid_constant__

namespace simt {

struct Dim3 {
  unsigned x, y, z;
};

// The inverse of erf by Halley's method, in more precision than the result has.
inline long double inverse_erf(long double x) {
  if (!(fabsl(x) < 1)) return fabsl(x) == 1 ? x * HUGE_VALL : NAN;
  const long double magnitude = fabsl(x);
  const long double half_root_pi = 0.886226925452758013649083741670572591L;
  // Winitzki's approximation, within 1%; a straight line where the series begins with one.
  const long double a = 0.147L, log_term = logl((1 - magnitude) * (1 + magnitude));
  const long double b = 2 / (3.14159265358979323846L * a) + log_term / 2;
  long double y =
      magnitude < 1e-3L ? half_root_pi * magnitude : sqrtl(sqrtl(b * b - log_term / a) - b);
  for (int step = 0; step < 5; ++step) {
    // 1 - magnitude is exact where erfc is what keeps its digits.
    const long double error = magnitude < 0.5L ? erfl(y) - magnitude : (1 - magnitude) - erfcl(y);
    const long double newton = error * half_root_pi * expl(y * y);
    y -= newton / (1 + y * newton);
  }
  return copysignl(y, x);
}

}  // namespace simt

inline simt::Dim3 gridDim, blockDim, blockIdx, threadIdx;

inline float erfinvf(float x) { return static_cast<float>(simt::inverse_erf(x)); }
inline double erfinv(double x) { return static_cast<double>(simt::inverse_erf(x)); }

// glibc's is off by as much as 4 units in the last place, where CUDA's is within 1.
namespace jax_elementwise {
inline float cbrtf(float x) { return static_cast<float>(::cbrt(x)); }
inline double cbrt(double x) { return static_cast<double>(::cbrtl(x)); }
}  // namespace jax_elementwise

namespace simt {

// A kernel as the driver would hold it: its parameters are given by address.
struct Kernel {
  const char* name;
  void (*call)(void** parameters);
};

template <class... Parameters, std::size_t... I>
void call_with(void (*kernel)(Parameters...), void** parameters, std::index_sequence<I...>) {
  kernel(*static_cast<std::remove_const_t<Parameters>*>(parameters[I])...);
}

template <auto kernel>
struct Adapter;
template <class... Parameters, void (*kernel)(Parameters...)>
struct Adapter<kernel> {
  static void call(void** parameters) {
    call_with(kernel, parameters, std::index_sequence_for<Parameters...>{});
  }
};

// Every thread of every block, in order.
inline void run(const Kernel& kernel, unsigned blocks, unsigned threads, void** parameters) {
  gridDim = {blocks, 1, 1};
  blockDim = {threads, 1, 1};
  for (unsigned block = 0; block < blocks; ++block) {
    for (unsigned thread = 0; thread < threads; ++thread) {
      blockIdx = {block, 0, 0};
      threadIdx = {thread, 0, 0};
      kernel.call(parameters);
    }
  }
}

}  // namespace simt
