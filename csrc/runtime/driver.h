// The functions of the CUDA driver that the runtime calls, found at run time so that the package
// builds, and works, on machines without CUDA.
#pragma once

#include <cstddef>
#include <string>

namespace jax_elementwise::runtime {

// Opaque handles and codes of cuda.h; the ABI of these functions is stable since CUDA 12.0.
using CUresult = int;
using CUdevice = int;
using CUcontext = struct CUctx_st*;
using CUlibrary = struct CUlib_st*;
using CUkernel = struct CUkern_st*;
using CUfunction = struct CUfunc_st*;
using CUstream = struct CUstream_st*;

enum DeviceAttribute : int {
  kMaxThreadsPerMultiprocessor = 39,
  kMultiprocessorCount = 16,
  kComputeCapabilityMajor = 75,
  kComputeCapabilityMinor = 76,
};

struct Driver {
  CUresult (*cuInit)(unsigned flags);
  CUresult (*cuGetErrorString)(CUresult, const char**);
  CUresult (*cuDeviceGet)(CUdevice*, int ordinal);
  CUresult (*cuDeviceGetCount)(int*);
  CUresult (*cuDeviceGetAttribute)(int*, int attribute, CUdevice);
  CUresult (*cuDevicePrimaryCtxGetState)(CUdevice, unsigned* flags, int* active);
  CUresult (*cuDevicePrimaryCtxRetain)(CUcontext*, CUdevice);
  CUresult (*cuCtxPushCurrent)(CUcontext);
  CUresult (*cuCtxPopCurrent)(CUcontext*);
  CUresult (*cuLibraryLoadData)(CUlibrary*, const void* image, void* jit_options, void** jit_values,
                                unsigned jit_count, void* options, void** values, unsigned count);
  CUresult (*cuLibraryGetKernel)(CUkernel*, CUlibrary, const char* name);
  CUresult (*cuKernelGetFunction)(CUfunction*, CUkernel);
  CUresult (*cuFuncLoad)(CUfunction);  // CUDA 12.4; may be null
  CUresult (*cuLaunchKernel)(CUfunction, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                             unsigned block_x, unsigned block_y, unsigned block_z,
                             unsigned shared_bytes, CUstream, void** params, void** extra);

  int attribute(DeviceAttribute attribute, CUdevice device) const;
};

// The driver, initialised. Throws Unavailable where there is none.
const Driver& driver();

// Throws Error{kInternal} naming the call and the driver's reason unless the result is success.
void check(CUresult result, const char* call);

#define EW_CUDA(function, ...)                                                                  \
  ::jax_elementwise::runtime::check(::jax_elementwise::runtime::driver().function(__VA_ARGS__), \
                                    #function)

// GPUs that the driver shows; 0 where there is no driver.
int device_count();

// Whether this process uses the GPU: its primary context, the one of XLA, exists.
bool is_active(int ordinal);

// Compute capability as 10 * major + minor.
int compute_capability(CUdevice device);

// Makes a device's primary context, the one XLA uses, current while in scope.
class ScopedContext {
 public:
  explicit ScopedContext(int ordinal);
  ~ScopedContext();
  ScopedContext(const ScopedContext&) = delete;
  ScopedContext& operator=(const ScopedContext&) = delete;

  CUdevice device() const { return device_; }

 private:
  CUdevice device_;
};

}  // namespace jax_elementwise::runtime
