// The handlers, as JAX registers them, and the constants of a custom call that Python needs.
#include "ffi/handlers.h"

#include <jax_elementwise/pack.h>
#include <jax_elementwise/platform.h>
#include <nanobind/stl/string.h>

#include "ffi/attributes.h"
#include "python/bindings.h"
#include "runtime/plan.h"

namespace jax_elementwise::python {
namespace {

template <class Function>
nb::capsule handler(Function* function) {
  return nb::capsule(reinterpret_cast<void*>(function));
}

nb::dict registrations(const std::string& platform) {
  nb::dict stages;
  if (platform == "cpu") {
    stages["instantiate"] = handler(EwCpuInstantiate);
    stages["execute"] = handler(EwCpuExecute);
    return stages;
  }
  stages["instantiate"] = handler(EwInstantiate);
  stages["execute"] = handler(EwExecute);
  return stages;
}

nb::dict gpu_state_type() {
  const StateType type = jax_elementwise::gpu_state_type();
  nb::dict registration;
  registration["type_id"] = nb::capsule(type.id);
  registration["type_info"] = nb::capsule(type.info);
  return registration;
}

nb::dict dtype_codes() {
  nb::dict result;
  for (const Dtype& dtype : kDtypes) result[dtype.name] = static_cast<int>(dtype.code);
  return result;
}

}  // namespace

void bind_handlers(nb::module_& m) {
  m.def("registrations", &registrations, nb::arg("platform"),
        nb::sig("def registrations(platform: str) -> dict[str, object]"),
        "The FFI handlers of a platform, by stage, for jax.ffi.register_ffi_target.");
  m.def("gpu_state_type", &gpu_state_type, nb::sig("def gpu_state_type() -> typing.Any"),
        "The type of the state of the handlers for CUDA, for jax.ffi.register_ffi_type.");
  m.attr("FORMAT") = kFormat;
  m.def("dtype_codes", &dtype_codes, nb::sig("def dtype_codes() -> dict[str, int]"),
        "The numbers of the dtypes that kernels have, by NumPy's names.");
  m.attr("MAX_ARRAYS") = runtime::kMaxArrays;
  m.attr("ACCESS_BYTES") = kAccessBytes;
  m.attr("MAX_SIZE_32") = kMaxSize32;
}

}  // namespace jax_elementwise::python
