// What the handlers of all platforms share: the attributes of the custom call, and what they make
// of it.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/error.h"
#include "runtime/launch.h"
#include "runtime/nvrtc.h"
#include "xla/ffi/api/ffi.h"

namespace jax_elementwise {

namespace ffi = xla::ffi;

using IntegerList = ffi::Span<const std::int64_t>;

// Every stage decodes every attribute: the FFI refuses a handler that asks for some of them only.
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

// Throws Error{kInvalidArgument} where the arrays are not those the kernel takes.
runtime::Call make_call(ffi::RemainingArgs inputs, ffi::RemainingRets outputs,
                        const Attributes& attributes);

ffi::ErrorCode code_of(runtime::Fault fault);

// No exception may cross into XLA.
template <class Body>
ffi::Error guarded(const Body& body) {
  try {
    body();
    return ffi::Error::Success();
  } catch (const runtime::Error& error) {
    return ffi::Error(code_of(error.fault()), std::string("jax_elementwise: ") + error.what());
  } catch (const std::exception& error) {
    return ffi::Error::Internal(std::string("jax_elementwise: ") + error.what());
  }
}

}  // namespace jax_elementwise
