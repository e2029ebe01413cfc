// A libcuda.so.1 with one GPU, on which nothing runs. The first FAKE_CUDA_FAILURES calls of the
// function FAKE_CUDA_FAILING give FAKE_CUDA_RESULT.
#include <cstdlib>
#include <string>

namespace {

int result_of(const char* function) {
  static int left = std::atoi(std::getenv("FAKE_CUDA_FAILURES"));
  if (std::getenv("FAKE_CUDA_FAILING") != std::string(function) || left == 0) return 0;
  --left;
  return std::atoi(std::getenv("FAKE_CUDA_RESULT"));
}

int handle;  // whatever is asked for

}  // namespace

extern "C" {

int cuInit(unsigned) { return 0; }
int cuGetErrorString(int, const char** text) {
  *text = "a failure that a test asked for";
  return 0;
}
int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return 0;
}
int cuDeviceGetCount(int* count) {
  *count = 1;
  return 0;
}
int cuDeviceGetAttribute(int* value, int attribute, int) {
  *value = attribute == 75 ? 9 : attribute == 76 ? 0 : 2048;  // compute capability 9.0
  return 0;
}
int cuDevicePrimaryCtxGetState(int, unsigned* flags, int* active) {
  *flags = 0;
  *active = 1;
  return 0;
}
int cuDevicePrimaryCtxRetain(void** context, int) {
  *context = &handle;
  return 0;
}
int cuCtxPushCurrent_v2(void*) { return 0; }
int cuCtxPopCurrent_v2(void**) { return 0; }
int cuLibraryLoadData(void** library, const void*, void*, void*, unsigned, void*, void*, unsigned) {
  *library = &handle;
  return result_of("cuLibraryLoadData");
}
int cuLibraryGetKernel(void** kernel, void*, const char*) {
  *kernel = &handle;
  return result_of("cuLibraryGetKernel");
}
int cuKernelGetFunction(void** function, void*) {
  *function = &handle;
  return result_of("cuKernelGetFunction");
}
int cuFuncLoad(void*) { return result_of("cuFuncLoad"); }
int cuLaunchKernel() { return 0; }

}  // extern "C"
