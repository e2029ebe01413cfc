// The handlers for CPUs. They have no state: JAX 0.12 and before register the handlers of CPUs
// before the types of states, which XLA refuses.
#include <algorithm>
#include <functional>

#include "ffi_call.h"
#include "ffi_handlers.h"
#include "runtime/host_kernel.h"

namespace jax_elementwise {
namespace {

ffi::Error instantiate(const Attributes& attributes) {
  return guarded([&] {
    check_format(attributes);
    runtime::load_host_kernel(attributes.digest, compile_request(attributes));
  });
}

ffi::Error execute(ffi::ThreadPool& pool, ffi::RemainingArgs inputs, ffi::RemainingRets outputs,
                   const Attributes& attributes) {
  return guarded([&] {
    runtime::HostFunction* kernel = runtime::find_host_kernel(attributes.digest);
    if (kernel == nullptr) {
      throw runtime::Error(runtime::Fault::kInternal,
                           "the kernel was not loaded before its execution");
    }
    const auto schedule = [&pool](std::function<void()> task) { pool.Schedule(std::move(task)); };
    // The calling thread is one of the pool's, or waits while they work.
    runtime::run_on_host(kernel, make_call(inputs, outputs, KernelCall(attributes)),
                         {std::max<std::int64_t>(pool.num_threads() - 1, 0), schedule});
  });
}

constexpr auto InstantiateImpl = [](auto... attributes) {
  return instantiate(Attributes{attributes...});
};

constexpr auto ExecuteImpl = [](ffi::ThreadPool pool, ffi::RemainingArgs inputs,
                                ffi::RemainingRets outputs, auto... attributes) {
  return execute(pool, inputs, outputs, Attributes{attributes...});
};

}  // namespace
}  // namespace jax_elementwise

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    JewCpuInstantiate, jax_elementwise::InstantiateImpl,
    jax_elementwise::with_attributes(jax_elementwise::ffi::Ffi::BindInstantiate()));

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    JewCpuExecute, jax_elementwise::ExecuteImpl,
    jax_elementwise::with_attributes(jax_elementwise::ffi::Ffi::Bind()
                                         .Ctx<jax_elementwise::ffi::ThreadPool>()
                                         .RemainingArgs()
                                         .RemainingRets()));
