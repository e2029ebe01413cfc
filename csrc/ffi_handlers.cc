#include "ffi_handlers.h"

#include "ffi_call.h"
#include "runtime/kernel_cache.h"

namespace jax_elementwise {
namespace {

ffi::Error instantiate(const Attributes& attributes) {
  return guarded([&] { check_format(attributes); });
}

// XLA calls this before every execution: after the first time it is a look-up.
ffi::Error initialize(std::int32_t device, const Attributes& attributes) {
  return guarded([&] {
    if (runtime::find_kernel(attributes.digest, device) != nullptr) return;
    runtime::load_kernel(attributes.digest, device, compile_request(attributes));
  });
}

ffi::Error execute(runtime::CUstream stream, std::int32_t device, ffi::RemainingArgs inputs,
                   ffi::RemainingRets outputs, const Attributes& attributes) {
  return guarded([&] {
    const runtime::LoadedKernel* kernel = runtime::find_kernel(attributes.digest, device);
    if (kernel == nullptr) {
      throw runtime::Error(runtime::Fault::kInternal,
                           "the kernel was not loaded before its execution");
    }
    runtime::launch(*kernel, stream, make_call(inputs, outputs, attributes));
  });
}

constexpr auto InstantiateImpl = [](auto... attributes) {
  return instantiate(Attributes{attributes...});
};

constexpr auto InitializeImpl = [](std::int32_t device, auto... attributes) {
  return initialize(device, Attributes{attributes...});
};

constexpr auto ExecuteImpl = [](runtime::CUstream stream, std::int32_t device,
                                ffi::RemainingArgs inputs, ffi::RemainingRets outputs,
                                auto... attributes) {
  return execute(stream, device, inputs, outputs, Attributes{attributes...});
};

}  // namespace
}  // namespace jax_elementwise

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    JewInstantiate, jax_elementwise::InstantiateImpl,
    jax_elementwise::with_attributes(jax_elementwise::ffi::Ffi::BindInstantiate()));

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    JewInitialize, jax_elementwise::InitializeImpl,
    jax_elementwise::with_attributes(
        jax_elementwise::ffi::Ffi::BindInitialize().Ctx<jax_elementwise::ffi::DeviceOrdinal>()));

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    JewExecute, jax_elementwise::ExecuteImpl,
    jax_elementwise::with_attributes(
        jax_elementwise::ffi::Ffi::Bind()
            .Ctx<jax_elementwise::ffi::PlatformStream<jax_elementwise::runtime::CUstream>>()
            .Ctx<jax_elementwise::ffi::DeviceOrdinal>()
            .RemainingArgs()
            .RemainingRets()),
    {jax_elementwise::ffi::Traits::kCmdBufferCompatible});
