#include "ffi_call.h"

#include <algorithm>
#include <exception>

namespace jax_elementwise {
namespace {

// The layout of the attributes, which travel with exported and cached programs. A program of
// another format is refused when it is loaded, before anything of it runs.
constexpr std::int64_t kFormat = 1;

std::vector<std::string> split_options(std::string_view options) {
  std::vector<std::string> result;
  while (!options.empty()) {
    const size_t end = std::min(options.find(' '), options.size());
    result.emplace_back(options.substr(0, end));
    options.remove_prefix(std::min(end + 1, options.size()));
  }
  return result;
}

void append(runtime::Call& call, const runtime::Array& array) {
  if (call.count == runtime::kMaxArrays) {
    throw runtime::Error(
        runtime::Fault::kInvalidArgument,
        "more than " + std::to_string(runtime::kMaxArrays) + " operands and results");
  }
  call.arrays[call.count++] = array;
}

void append_buffer(runtime::Call& call, const ffi::AnyBuffer& buffer, std::uint64_t span) {
  const auto elements = static_cast<std::int64_t>(buffer.element_count());
  const auto itemsize =
      static_cast<std::int64_t>(elements == 0 ? 1 : buffer.size_bytes() / buffer.element_count());
  append(call, {buffer.untyped_data(), elements, itemsize, span, false});
}

void append_index(runtime::Call& call, std::uint64_t span) {
  append(call, {nullptr, runtime::spanned_elements(call, span), 1, span, true});
}

// Merges the dimensions of the results: groups[d] of them become dimension d.
void merge_dimensions(runtime::Call& call, const ffi::AnyBuffer::Dimensions& dimensions,
                      const std::vector<std::int64_t>& groups) {
  size_t axis = 0;
  for (const std::int64_t group : groups) {
    std::int64_t extent = 1;
    for (std::int64_t i = 0; i < group && axis < dimensions.size(); ++i)
      extent *= dimensions[axis++];
    if (call.rank == runtime::kMaxDimensions) {
      throw runtime::Error(runtime::Fault::kInvalidArgument, "too many dimensions");
    }
    call.extents[call.rank++] = extent;
  }
  if (axis != dimensions.size()) {
    throw runtime::Error(runtime::Fault::kInternal,
                         "the dimension groups do not cover the results");
  }
}

ffi::ErrorCode code_of(runtime::Fault fault) {
  switch (fault) {
    case runtime::Fault::kInvalidArgument:
      return ffi::ErrorCode::kInvalidArgument;
    case runtime::Fault::kUnavailable:
      return ffi::ErrorCode::kUnavailable;
    default:
      return ffi::ErrorCode::kInternal;
  }
}

}  // namespace

void check_format(const Attributes& attributes) {
  if (attributes.format == kFormat) return;
  throw runtime::Error(runtime::Fault::kInvalidArgument,
                       "the program was made for format " + std::to_string(attributes.format) +
                           " of this custom call; the installed package reads format " +
                           std::to_string(kFormat));
}

runtime::CompileRequest compile_request(const Attributes& attributes) {
  runtime::CompileRequest request;
  request.source = attributes.source;
  request.name = attributes.name;
  request.options = split_options(attributes.options);
  return request;
}

KernelCall::KernelCall(const Attributes& attributes)
    : groups(attributes.groups.begin(), attributes.groups.end()),
      spans(attributes.spans.begin(), attributes.spans.end()),
      operands(static_cast<size_t>(
          std::count_if(spans.begin(), spans.end(), [](std::int64_t span) { return span >= 0; }))),
      pack(static_cast<int>(attributes.pack)),
      index_bits(static_cast<int>(attributes.index_bits)) {}

runtime::Call make_call(ffi::RemainingArgs inputs, ffi::RemainingRets outputs,
                        const KernelCall& kernel_call) {
  if (inputs.size() != kernel_call.operands) {
    throw runtime::Error(runtime::Fault::kInvalidArgument,
                         std::to_string(inputs.size()) + " operands where the kernel has " +
                             std::to_string(kernel_call.operands));
  }
  runtime::Call call;
  call.pack = kernel_call.pack;
  call.index_bits = kernel_call.index_bits;
  call.results = static_cast<int>(outputs.size());
  merge_dimensions(call, (*outputs.get<ffi::AnyBuffer>(0).value()).dimensions(),
                   kernel_call.groups);
  for (size_t i = 0; i < outputs.size(); ++i) {
    append_buffer(call, *outputs.get<ffi::AnyBuffer>(i).value(), runtime::full_span(call));
  }
  size_t i = 0;
  for (const std::int64_t span : kernel_call.spans) {
    if (span < 0) {
      append_index(call, static_cast<std::uint64_t>(~span));
    } else {
      append_buffer(call, inputs.get<ffi::AnyBuffer>(i++).value(),
                    static_cast<std::uint64_t>(span));
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
  } catch (const std::exception& error) {
    return ffi::Error(ffi::ErrorCode::kInternal, std::string(kPrefix) + error.what());
  } catch (...) {
    return ffi::Error(ffi::ErrorCode::kInternal, std::string(kPrefix) + "an unknown exception");
  }
}

}  // namespace jax_elementwise
