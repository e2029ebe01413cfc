#include "ffi_handlers.h"

#include <exception>
#include <string>
#include <string_view>

#include "runtime/error.h"
#include "runtime/kernel_cache.h"
#include "runtime/launch.h"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace jax_elementwise {
namespace {

using IntegerList = ffi::Span<const std::int64_t>;

// The layout of the attributes, which travel with exported and cached programs. A program of
// another format is refused when it is loaded, before anything of it runs.
constexpr std::int64_t kFormat = 1;

// Every stage decodes every attribute: the FFI refuses a handler that asks for some of them only.
struct Attributes {
  std::int64_t format;
  std::string_view digest;   // names the kernel in every process
  std::string_view source;   // CUDA C++
  std::string_view name;     // of the entry point
  std::string_view options;  // of the compiler, separated by spaces
  IntegerList groups;        // how many dimensions of the results each merged dimension stands for
  IntegerList spans;         // per operand, the merged dimensions it has, as bits
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

std::vector<std::string> split_options(std::string_view options) {
  std::vector<std::string> result;
  while (!options.empty()) {
    const size_t end = std::min(options.find(' '), options.size());
    result.emplace_back(options.substr(0, end));
    options.remove_prefix(std::min(end + 1, options.size()));
  }
  return result;
}

ffi::Error instantiate(const Attributes& attributes) {
  if (attributes.format == kFormat) return ffi::Error::Success();
  return ffi::Error::InvalidArgument(
      "jax_elementwise: the program was made for format " + std::to_string(attributes.format) +
      " of this custom call; the installed package reads format " + std::to_string(kFormat));
}

// XLA calls this before every execution: after the first time it is a look-up.
ffi::Error initialize(std::int32_t device, const Attributes& attributes) {
  return guarded([&] {
    if (runtime::find_kernel(attributes.digest, device) != nullptr) return;
    runtime::CompileRequest request;
    request.source = attributes.source;
    request.name = attributes.name;
    request.options = split_options(attributes.options);
    runtime::load_kernel(attributes.digest, device, request);
  });
}

void append_array(runtime::Call& call, const ffi::AnyBuffer& buffer, std::uint64_t span) {
  if (call.count == runtime::kMaxArrays) {
    throw runtime::Error(
        runtime::Fault::kInvalidArgument,
        "more than " + std::to_string(runtime::kMaxArrays) + " operands and results");
  }
  const auto elements = static_cast<std::int64_t>(buffer.element_count());
  const auto itemsize =
      static_cast<std::int64_t>(elements == 0 ? 1 : buffer.size_bytes() / buffer.element_count());
  call.arrays[call.count++] = runtime::Array{buffer.untyped_data(), elements, itemsize, span};
}

// Merges the dimensions of the results: groups[d] of them become dimension d.
void merge_dimensions(runtime::Call& call, const ffi::AnyBuffer::Dimensions& dimensions,
                      const IntegerList& groups) {
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

runtime::Call make_call(ffi::RemainingArgs inputs, ffi::RemainingRets outputs,
                        const Attributes& attributes) {
  runtime::Call call;
  call.pack = static_cast<int>(attributes.pack);
  call.index_bits = static_cast<int>(attributes.index_bits);
  call.results = static_cast<int>(outputs.size());
  merge_dimensions(call, (*outputs.get<ffi::AnyBuffer>(0).value()).dimensions(), attributes.groups);
  for (size_t i = 0; i < outputs.size(); ++i) {
    append_array(call, *outputs.get<ffi::AnyBuffer>(i).value(), runtime::full_span(call));
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    append_array(call, inputs.get<ffi::AnyBuffer>(i).value(),
                 static_cast<std::uint64_t>(attributes.spans[i]));
  }
  return call;
}

ffi::Error execute(runtime::CUstream stream, std::int32_t device, ffi::RemainingArgs inputs,
                   ffi::RemainingRets outputs, const Attributes& attributes) {
  return guarded([&] {
    const runtime::LoadedKernel* kernel = runtime::find_kernel(attributes.digest, device);
    if (kernel == nullptr) {
      throw runtime::Error(runtime::Fault::kInternal,
                           "the kernel was not loaded before its execution");
    }
    if (inputs.size() != attributes.spans.size()) {
      throw runtime::Error(runtime::Fault::kInvalidArgument,
                           std::to_string(inputs.size()) + " operands where the kernel has " +
                               std::to_string(attributes.spans.size()));
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

XLA_FFI_DEFINE_HANDLER_SYMBOL(JewInstantiate, jax_elementwise::InstantiateImpl,
                              jax_elementwise::with_attributes(ffi::Ffi::BindInstantiate()));

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    JewInitialize, jax_elementwise::InitializeImpl,
    jax_elementwise::with_attributes(ffi::Ffi::BindInitialize().Ctx<ffi::DeviceOrdinal>()));

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    JewExecute, jax_elementwise::ExecuteImpl,
    jax_elementwise::with_attributes(
        ffi::Ffi::Bind()
            .Ctx<ffi::PlatformStream<jax_elementwise::runtime::CUstream>>()
            .Ctx<ffi::DeviceOrdinal>()
            .RemainingArgs()
            .RemainingRets()),
    {ffi::Traits::kCmdBufferCompatible});
