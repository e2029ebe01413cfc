#include "driver.h"

#include "dynamic_library.h"
#include "error.h"

namespace jax_elementwise::runtime {
namespace {

Driver load_driver() {
  const DynamicLibrary library("libcuda.so.1");
  Driver d;
#define JEW_RESOLVE(name, symbol) library.resolve(d.name, symbol)
  JEW_RESOLVE(cuInit, "cuInit");
  JEW_RESOLVE(cuGetErrorString, "cuGetErrorString");
  JEW_RESOLVE(cuDeviceGet, "cuDeviceGet");
  JEW_RESOLVE(cuDeviceGetCount, "cuDeviceGetCount");
  JEW_RESOLVE(cuDeviceGetAttribute, "cuDeviceGetAttribute");
  JEW_RESOLVE(cuDevicePrimaryCtxGetState, "cuDevicePrimaryCtxGetState");
  JEW_RESOLVE(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain");
  JEW_RESOLVE(cuCtxPushCurrent, "cuCtxPushCurrent_v2");
  JEW_RESOLVE(cuCtxPopCurrent, "cuCtxPopCurrent_v2");
  JEW_RESOLVE(cuLibraryLoadData, "cuLibraryLoadData");
  JEW_RESOLVE(cuLibraryGetKernel, "cuLibraryGetKernel");
  JEW_RESOLVE(cuKernelGetFunction, "cuKernelGetFunction");
  JEW_RESOLVE(cuLaunchKernel, "cuLaunchKernel");
#undef JEW_RESOLVE
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
    JEW_CUDA(cuDeviceGetCount, &count);
    return count;
  } catch (const Error&) {
    return 0;
  }
}

bool is_active(int ordinal) {
  CUdevice device = 0;
  unsigned flags = 0;
  int active = 0;
  JEW_CUDA(cuDeviceGet, &device, ordinal);
  JEW_CUDA(cuDevicePrimaryCtxGetState, device, &flags, &active);
  return active != 0;
}

int compute_capability(CUdevice device) {
  return 10 * driver().attribute(kComputeCapabilityMajor, device) +
         driver().attribute(kComputeCapabilityMinor, device);
}

ScopedContext::ScopedContext(int ordinal) {
  JEW_CUDA(cuDeviceGet, &device_, ordinal);
  CUcontext context = nullptr;
  // Retained for the life of the process, as XLA does: releasing it would destroy loaded kernels.
  JEW_CUDA(cuDevicePrimaryCtxRetain, &context, device_);
  JEW_CUDA(cuCtxPushCurrent, context);
}

ScopedContext::~ScopedContext() {
  CUcontext previous = nullptr;
  driver().cuCtxPopCurrent(&previous);
}

}  // namespace jax_elementwise::runtime
