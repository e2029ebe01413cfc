// The XLA FFI handlers of the custom call, one per platform and stage.
#pragma once

#include "xla/ffi/api/c_api.h"

extern "C" {
XLA_FFI_Error* JewInstantiate(XLA_FFI_CallFrame* call_frame);
XLA_FFI_Error* JewInitialize(XLA_FFI_CallFrame* call_frame);
XLA_FFI_Error* JewExecute(XLA_FFI_CallFrame* call_frame);
XLA_FFI_Error* JewCpuInstantiate(XLA_FFI_CallFrame* call_frame);
XLA_FFI_Error* JewCpuExecute(XLA_FFI_CallFrame* call_frame);
}
