// What the handlers of all platforms share: the attributes of the custom call, and what they make
// of it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/compilation.h"
#include "runtime/error.h"
#include "runtime/plan.h"
#include "xla/ffi/api/ffi.h"

namespace jax_elementwise {

namespace ffi = xla::ffi;

using IntegerList = ffi::Span<const std::int64_t>;

struct Attributes {
  std::int64_t format;
  std::string_view digest;   // names the kernel in every process
  std::string_view source;   // CUDA C++
  std::string_view name;     // of the entry point
  std::string_view options;  // of the compiler, separated by spaces
  IntegerList groups;        // how many dimensions of the results each merged dimension stands for
  IntegerList spans;         // per operand, the merged dimensions it has, as bits; their
                             // complement for one that is not given: the index of the element
  std::int64_t pack;         // elements per access
  std::int64_t index_bits;   // 32 or 64
};

template <class Binding>
auto with_attributes(Binding binding) {
  return std::move(binding)
      .template Attr<std::int64_t>("format")
      .template Attr<std::string_view>("digest")
      .template Attr<std::string_view>("source")
      .template Attr<std::string_view>("name")
      .template Attr<std::string_view>("options")
      .template Attr<IntegerList>("groups")
      .template Attr<IntegerList>("spans")
      .template Attr<std::int64_t>("pack")
      .template Attr<std::int64_t>("index_bits");
}

// Throws Error{kInvalidArgument} where the program was made for another format of the attributes.
void check_format(const Attributes& attributes);

// The kernel's text and options; the architecture is left to whoever compiles it.
runtime::CompileRequest compile_request(const Attributes& attributes);

// How a call of a program uses its kernel: what its executions need of the attributes.
//
// On a GPU it is made once, when the program is loaded: decoding the attributes took a good part of
// the host's time for a launch.
struct KernelCall {
  explicit KernelCall(const Attributes& attributes);

  std::vector<std::int64_t> groups;
  std::vector<std::int64_t> spans;
  size_t operands;  // of the spans, those that are given
  int pack;
  int index_bits;
};

// Throws Error{kInvalidArgument} where the arrays are not those the kernel takes.
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
