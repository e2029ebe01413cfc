#include "driver.h"

#include "dynamic_library.h"
#include "error.h"

namespace jax_elementwise::runtime {
namespace {

Driver load_driver() {
  const DynamicLibrary library("libcuda.so.1");
  Driver d;
#define EW_RESOLVE(name, symbol) library.resolve(d.name, symbol)
  EW_RESOLVE(cuInit, "cuInit");
  EW_RESOLVE(cuGetErrorString, "cuGetErrorString");
  EW_RESOLVE(cuDeviceGet, "cuDeviceGet");
  EW_RESOLVE(cuDeviceGetCount, "cuDeviceGetCount");
  EW_RESOLVE(cuDeviceGetAttribute, "cuDeviceGetAttribute");
  EW_RESOLVE(cuDevicePrimaryCtxGetState, "cuDevicePrimaryCtxGetState");
  EW_RESOLVE(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain");
  EW_RESOLVE(cuCtxPushCurrent, "cuCtxPushCurrent_v2");
  EW_RESOLVE(cuCtxPopCurrent, "cuCtxPopCurrent_v2");
  EW_RESOLVE(cuLibraryLoadData, "cuLibraryLoadData");
  EW_RESOLVE(cuLibraryGetKernel, "cuLibraryGetKernel");
  EW_RESOLVE(cuKernelGetFunction, "cuKernelGetFunction");
  EW_RESOLVE(cuLaunchKernel, "cuLaunchKernel");
#undef EW_RESOLVE
  library.resolve_if_present(d.cuFuncLoad, "cuFuncLoad");
  const CUresult result = d.cuInit(0);
  if (result != 0) {
    throw Unavailable("cuInit failed with code " + std::to_string(result) +
                      ": no usable CUDA device");
  }
  return d;
}

}  // namespace

const Driver& driver() {
  static const Driver instance = load_driver();  // tried again at the next call if this one throws
  return instance;
}

void check(CUresult result, const char* call) {
  if (result == 0) return;
  const char* reason = nullptr;
  driver().cuGetErrorString(result, &reason);
  throw Error(Fault::kInternal, std::string(call) + " failed with code " + std::to_string(result) +
                                    ": " + (reason ? reason : "unknown reason"));
}

int Driver::attribute(DeviceAttribute attribute, CUdevice device) const {
  int value = 0;
  check(cuDeviceGetAttribute(&value, attribute, device), "cuDeviceGetAttribute");
  return value;
}

int device_count() {
  try {
    int count = 0;
    EW_CUDA(cuDeviceGetCount, &count);
    return count;
  } catch (const Error&) {
    return 0;
  }
}

bool is_active(int ordinal) {
  CUdevice device = 0;
  unsigned flags = 0;
  int active = 0;
  EW_CUDA(cuDeviceGet, &device, ordinal);
  EW_CUDA(cuDevicePrimaryCtxGetState, device, &flags, &active);
  return active != 0;
}

int compute_capability(CUdevice device) {
  return 10 * driver().attribute(kComputeCapabilityMajor, device) +
         driver().attribute(kComputeCapabilityMinor, device);
}

ScopedContext::ScopedContext(int ordinal) {
  EW_CUDA(cuDeviceGet, &device_, ordinal);
  CUcontext context = nullptr;
  // Retained for the life of the process, as XLA does: releasing it would destroy loaded kernels.
  EW_CUDA(cuDevicePrimaryCtxRetain, &context, device_);
  EW_CUDA(cuCtxPushCurrent, context);
}

ScopedContext::~ScopedContext() {
  CUcontext previous = nullptr;
  driver().cuCtxPopCurrent(&previous);
}

}  // namespace jax_elementwise::runtime
