#include "ffi/call.h"

#include <exception>
#include <string>

namespace jax_elementwise {
namespace {

[[noreturn]] void invalid(const std::string& message) {
  throw runtime::Error(runtime::Fault::kInvalidArgument, message);
}

[[noreturn]] void refuse_count(size_t count, size_t expected, const char* what) {
  invalid(std::to_string(count) + " " + what + " where the kernel has " + std::to_string(expected));
}

// Merges the dimensions of the results: groups[d] of them become dimension d.
void merge_dimensions(runtime::Call& call, const ffi::AnyBuffer::Dimensions& dimensions,
                      const KernelCall& kernel_call) {
  if (dimensions.size() != kernel_call.dimensions) {
    refuse_count(dimensions.size(), kernel_call.dimensions, "dimensions of the results");
  }
  const std::int64_t* dimension = dimensions.begin();
  for (const std::int64_t group : kernel_call.groups) {
    std::int64_t extent = 1;
    for (std::int64_t i = 0; i < group; ++i) {
      if (__builtin_mul_overflow(extent, *dimension++, &extent)) invalid("too many elements");
    }
    call.extents[call.rank++] = extent;
  }
}

[[noreturn]] void refuse_dtype(const ffi::AnyBuffer& buffer, ffi::DataType expected,
                               const char* what, size_t position) {
  // Not by a stream: where libstdc++ is linked into this module and another is in the process, its
  // locales are shared, and writing a number into one crashed.
  const auto name = [](ffi::DataType dtype) { return name_of(static_cast<std::int64_t>(dtype)); };
  invalid(std::string(what) + " " + std::to_string(position) + " is of dtype " +
          name(buffer.element_type()) + " where the kernel has " + name(expected));
}

void append_buffer(runtime::Call& call, const ffi::AnyBuffer& buffer,
                   const KernelCall::Parameter& parameter, const char* what, size_t position) {
  if (buffer.element_type() != parameter.dtype) {
    refuse_dtype(buffer, parameter.dtype, what, position);
  }
  call.arrays[call.count++] = {buffer.untyped_data(),
                               static_cast<std::int64_t>(buffer.element_count()),
                               parameter.itemsize, parameter.span, false};
}

void append_index(runtime::Call& call, std::uint64_t span) {
  call.arrays[call.count++] = {nullptr, runtime::spanned_elements(call, span), 1, span, true};
}

ffi::ErrorCode code_of(runtime::Fault fault) {
  switch (fault) {
    case runtime::Fault::kInvalidArgument:
      return ffi::ErrorCode::kInvalidArgument;
    case runtime::Fault::kUnavailable:
      return ffi::ErrorCode::kUnavailable;
    case runtime::Fault::kUntrusted:
      return ffi::ErrorCode::kPermissionDenied;
    default:
      return ffi::ErrorCode::kInternal;
  }
}

KernelCall::Parameter parameter(std::int64_t dtype, std::int64_t span) {
  return {static_cast<ffi::DataType>(dtype), itemsize_of(dtype), static_cast<std::uint64_t>(span),
          false};
}

}  // namespace

KernelCall::KernelCall(const Attributes& attributes)
    : groups(attributes.groups.begin(), attributes.groups.end()),
      dimensions(0),
      given(attributes.operand_dtypes.size()),
      pack(static_cast<int>(attributes.pack)),
      index_bits(static_cast<int>(attributes.index_bits)) {
  for (const std::int64_t group : groups) dimensions += static_cast<size_t>(group);
  const std::int64_t every_dimension = (std::int64_t{1} << groups.size()) - 1;
  for (const std::int64_t dtype : attributes.result_dtypes) {
    results.push_back(parameter(dtype, every_dimension));
  }
  const std::int64_t* dtype = attributes.operand_dtypes.begin();
  for (const std::int64_t span : attributes.spans) {
    if (span < 0) {
      operands.push_back({ffi::DataType::S64, 1, static_cast<std::uint64_t>(~span), true});
    } else {
      operands.push_back(parameter(*dtype++, span));
    }
  }
}

runtime::Call make_call(ffi::RemainingArgs inputs, ffi::RemainingRets outputs,
                        const KernelCall& kernel_call) {
  if (inputs.size() != kernel_call.given) {
    refuse_count(inputs.size(), kernel_call.given, "operands");
  }
  if (outputs.size() != kernel_call.results.size()) {
    refuse_count(outputs.size(), kernel_call.results.size(), "results");
  }
  runtime::Call call;
  call.pack = kernel_call.pack;
  call.index_bits = kernel_call.index_bits;
  call.results = static_cast<int>(outputs.size());
  merge_dimensions(call, (*outputs.get<ffi::AnyBuffer>(0).value()).dimensions(), kernel_call);
  for (size_t i = 0; i < outputs.size(); ++i) {
    append_buffer(call, *outputs.get<ffi::AnyBuffer>(i).value(), kernel_call.results[i], "result",
                  i);
  }
  size_t i = 0;
  for (const KernelCall::Parameter& operand : kernel_call.operands) {
    if (operand.is_index) {
      append_index(call, operand.span);
    } else {
      append_buffer(call, inputs.get<ffi::AnyBuffer>(i).value(), operand, "operand", i);
      ++i;
    }
  }
  return call;
}

ffi::Error current_error() {
  constexpr const char* kPrefix = "jax_elementwise: ";
  try {
    throw;
  } catch (const runtime::Error& error) {
    return ffi::Error(code_of(error.fault()), std::string(kPrefix) + error.what());
  } catch (const runtime::Interrupted& error) {
    return ffi::Error(ffi::ErrorCode::kCancelled, std::string(kPrefix) + error.what());
  } catch (const std::exception& error) {
    return ffi::Error(ffi::ErrorCode::kInternal,
                      kPrefix + runtime::printable(std::string(error.what())));
  } catch (...) {
    return ffi::Error(ffi::ErrorCode::kInternal, std::string(kPrefix) + "an unknown exception");
  }
}

}  // namespace jax_elementwise
