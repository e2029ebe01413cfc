// The XLA FFI handlers of the custom call, one per platform and stage.
#pragma once

#include "xla/ffi/api/c_api.h"

extern "C" {
XLA_FFI_Error* EwInstantiate(XLA_FFI_CallFrame* call_frame);
XLA_FFI_Error* EwExecute(XLA_FFI_CallFrame* call_frame);
XLA_FFI_Error* EwCpuInstantiate(XLA_FFI_CallFrame* call_frame);
XLA_FFI_Error* EwCpuExecute(XLA_FFI_CallFrame* call_frame);
}

namespace jax_elementwise {

// The type of what EwInstantiate makes of a call, which must be registered before the handlers.
struct StateType {
  XLA_FFI_TypeId* id;  // written by the registration
  const XLA_FFI_TypeInfo* info;
};
StateType gpu_state_type();

}  // namespace jax_elementwise
