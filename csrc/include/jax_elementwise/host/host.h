// Makes a kernel's text host C++: included before it where a kernel is compiled for a CPU.
//
// The words of CUDA that the text uses mean nothing here, and what NVRTC declares without any
// header comes from the C library. There is no standard header of C++: those cost more time than
// everything else.
#pragma once

#define JAX_ELEMENTWISE_HOST

#include <jax_elementwise/tuple.h>
#include <math.h>

#define __global__
#define __launch_bounds__(...)
#define __grid_constant__

// ---- Functions that the C library lacks ---------------------------------------------------------

namespace jax_elementwise::host {

// The inverse of erf by Halley's method.
inline double inverse_erf(double x) {
  const double magnitude = fabs(x);
  if (!(magnitude < 1)) return magnitude == 1 ? x * HUGE_VAL : NAN;
  const double half_root_pi = 0.88622692545275801365;
  // Winitzki's approximation, within 1%; a straight line where the series begins with one.
  const double a = 0.147, log_term = log((1 - magnitude) * (1 + magnitude));
  const double b = 2 / (3.14159265358979323846 * a) + log_term / 2;
  double y = magnitude < 1e-3 ? half_root_pi * magnitude : sqrt(sqrt(b * b - log_term / a) - b);
  for (int step = 0; step < 3; ++step) {
    // 1 - magnitude is exact where erfc is what keeps its digits.
    const double error = magnitude < 0.5 ? erf(y) - magnitude : (1 - magnitude) - erfc(y);
    const double newton = error * half_root_pi * exp(y * y);
    y -= newton / (1 + y * newton);
  }
  return copysign(y, x);
}

}  // namespace jax_elementwise::host

inline float erfinvf(float x) { return static_cast<float>(jax_elementwise::host::inverse_erf(x)); }
inline double erfinv(double x) { return jax_elementwise::host::inverse_erf(x); }

// glibc's cbrt is off by as much as 4 units in the last place, where CUDA's is within 1.
namespace jax_elementwise {
inline float cbrtf(float x) { return static_cast<float>(::cbrt(x)); }
inline double cbrt(double x) { return static_cast<double>(::cbrtl(x)); }
}  // namespace jax_elementwise

// ---- Calling a kernel ---------------------------------------------------------------------------

namespace jax_elementwise::host {

// What a call of the kernel goes through (kernel.h). As blockIdx on a GPU it is no parameter, so
// that the text is the same.
struct Packs {
  int64 begin;
  int64 end;
};
static thread_local Packs packs;
// Where the kernel is to write its description (description.h) instead of computing.
static thread_local int64* description;

// Calls a kernel whose parameters are given by address, as the driver of a GPU takes them.
template <class... Parameters, int... I>
void call(void (*kernel)(Parameters...), void* const* parameters, Indices<I...>) {
  kernel(*static_cast<Parameters*>(parameters[I])...);
}
template <class... Parameters>
void call(void (*kernel)(Parameters...), void* const* parameters) {
  call(kernel, parameters, IndicesFor<Parameters...>{});
}

template <class... Parameters>
int64 parameter_count(void (*)(Parameters...)) {
  return sizeof...(Parameters);
}

}  // namespace jax_elementwise::host

// The symbols of a kernel's library, after its text: HostFunction and HostDescription of
// host_kernel.h.
#define JAX_ELEMENTWISE_HOST_ENTRY(kernel)                                                   \
  extern "C" __attribute__((visibility("default"))) void ew_host_entry(                      \
      void* const* parameters, jax_elementwise::int64 begin, jax_elementwise::int64 end) {   \
    jax_elementwise::host::packs = {begin, end};                                             \
    jax_elementwise::host::call(&jax_elementwise::kernel, parameters);                       \
  }                                                                                          \
  extern "C" __attribute__((visibility("default"))) jax_elementwise::int64 ew_host_describe( \
      void* const* parameters, jax_elementwise::int64* words) {                              \
    using namespace jax_elementwise;                                                         \
    *words = host::parameter_count(&jax_elementwise::kernel);                                \
    host::description = words + 1;                                                           \
    host::call(&jax_elementwise::kernel, parameters);                                        \
    const int64 count = host::description - words;                                           \
    host::description = nullptr;                                                             \
    return count;                                                                            \
  }
