// What the handlers of all platforms share: what they make of the attributes of the custom call
// and of its buffers.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ffi/attributes.h"
#include "runtime/error.h"
#include "runtime/plan.h"
#include "xla/ffi/api/ffi.h"

namespace jax_elementwise {

// How a call of a program uses its kernel: what its executions need of the attributes.
//
// It is made once, when the program is loaded, of attributes that were checked: decoding them took
// a good part of the host's time for a launch.
struct KernelCall {
  // An operand or a result of the kernel.
  struct Parameter {
    ffi::DataType dtype;
    std::int64_t itemsize;
    std::uint64_t span;
    bool is_index;  // in no buffer
  };

  explicit KernelCall(const Attributes& attributes);

  std::vector<std::int64_t> groups;
  size_t dimensions;  // of the results: the sum of the groups
  std::vector<Parameter> results;
  std::vector<Parameter> operands;
  size_t given;  // of the operands, those in buffers
  int pack;
  int index_bits;
};

// Throws Error{kInvalidArgument} where the buffers are not those that the kernel takes, but for
// their numbers of elements and their alignment, which plan() checks.
runtime::Call make_call(ffi::RemainingArgs inputs, ffi::RemainingRets outputs,
                        const KernelCall& kernel_call);

// Of the exception that is being handled.
ffi::Error current_error();

// No exception may cross into XLA.
template <class Body>
ffi::Error guarded(const Body& body) {
  try {
    body();
    return ffi::Error::Success();
  } catch (...) {
    return current_error();
  }
}

// The state that `make` makes of a call.
template <class State, class Make>
ffi::ErrorOr<std::unique_ptr<State>> guarded_state(const Make& make) {
  try {
    return make();
  } catch (...) {
    return ffi::Unexpected(current_error());
  }
}

}  // namespace jax_elementwise
