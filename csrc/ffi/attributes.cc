#include "ffi/attributes.h"

#include <algorithm>
#include <string>
#include <type_traits>
#include <vector>

#include "runtime/error.h"
#include "runtime/plan.h"
#include "runtime/sha256.h"
#include "runtime/utf8.h"

namespace jax_elementwise {
namespace {

// Null for a dtype that kernels do not have.
const Dtype* find_dtype(std::int64_t code) {
  for (const Dtype& dtype : kDtypes) {
    if (static_cast<std::int64_t>(dtype.code) == code) return &dtype;
  }
  return nullptr;
}

constexpr std::string_view kOptions[] = {runtime::kFastMath, runtime::kDeviceByDefault};
constexpr size_t kMaxName = 128;
constexpr std::int64_t kMaxRank = 1 << 16;  // of the results: no array has as many dimensions

[[noreturn]] void invalid(const std::string& message) {
  throw runtime::Error(runtime::Fault::kInvalidArgument, message);
}

void require(bool holds, const std::string& message) {
  if (!holds) invalid(message);
}

// ---- Reading ------------------------------------------------------------------------------------

template <class T>
T get(const ffi::Dictionary& dictionary, const char* name) {
  ffi::ErrorOr<T> value = dictionary.get<T>(name);
  if (!value.has_value()) {
    invalid("the program has no attribute '" + std::string(name) +
            "' of the right type: " + value.error().message());
  }
  return value.value();
}

void check_format(const ffi::Dictionary& dictionary) {
  const auto format = get<std::int64_t>(dictionary, "format");
  require(format == kFormat, "the program was made for format " + std::to_string(format) +
                                 " of this custom call; the installed package reads format " +
                                 std::to_string(kFormat) +
                                 ". Make it again with the version that is installed");
}

// ---- The digest ---------------------------------------------------------------------------------

// The canonical form of the attributes, line by line, as attributes.py says.
class Digest {
 public:
  void add(const char* name, std::string_view text) {
    line(name, std::to_string(text.size()) + ":" + std::string(text));
  }
  void add(const char* name, std::int64_t number) { line(name, std::to_string(number)); }
  void add(const char* name, IntegerList numbers) {
    std::string text;
    for (const std::int64_t number : numbers) {
      text += (text.empty() ? "" : ",") + std::to_string(number);
    }
    line(name, text);
  }
  std::string hex() { return sha_.hex_digest(); }

 private:
  void line(const char* name, const std::string& value) {
    sha_.update(name);
    sha_.update(":");
    sha_.update(value);
    sha_.update("\n");
  }
  runtime::Sha256 sha_;
};

void check_digest(const Attributes& attributes) {
  Digest digest;
  Attributes::for_each(attributes,
                       [&](const char* name, const auto& value) { digest.add(name, value); });
  require(attributes.digest == digest.hex(),
          "the program's digest is not that of its kernel: the program was changed or damaged "
          "after it was made. Make it again");
}

// ---- What a kernel can be called with -----------------------------------------------------------

bool is_letter(char c) { return (c | 32) >= 'a' && (c | 32) <= 'z'; }

// Messages, files and generated code have the name in them.
void check_name(std::string_view name) {
  const bool is_identifier =
      !name.empty() && name.size() <= kMaxName && !(name[0] >= '0' && name[0] <= '9') &&
      std::all_of(name.begin(), name.end(),
                  [](char c) { return is_letter(c) || (c >= '0' && c <= '9') || c == '_'; });
  require(is_identifier, "'" + std::string(name.substr(0, kMaxName)) +
                             "' is no name of a kernel, which is an identifier of C++");
}

void check_source(std::string_view source) {
  require(source.find('\0') == std::string_view::npos, "the kernel's C++ must not contain NUL");
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

// A compiler has options that write files or run programs, so only those that this package uses.
void check_options(std::string_view options) {
  for (const std::string& option : split_options(options)) {
    if (std::find(std::begin(kOptions), std::end(kOptions), option) != std::end(kOptions)) continue;
    std::string accepted;
    for (const std::string_view known : kOptions) accepted += " " + std::string(known);
    invalid("the program asks for the compiler's option '" + option +
            "'; a program may ask for these only:" + accepted);
  }
}

void check_dimensions(const Attributes& attributes) {
  const size_t rank = attributes.groups.size();
  // One less than a span has bits: the last one says that an operand is an index.
  require(rank >= 1 && rank < runtime::kMaxDimensions,
          "the program's kernel has " + std::to_string(rank) + " dimensions; it must have 1 to " +
              std::to_string(runtime::kMaxDimensions - 1));
  std::int64_t dimensions = 0;
  for (const std::int64_t group : attributes.groups) {
    require(group >= 0 && group <= kMaxRank && (dimensions += group) <= kMaxRank,
            "the program merges " + std::to_string(group) +
                " dimensions of its results into one, which is no number of dimensions");
  }
  for (const std::int64_t span : attributes.spans) {
    require((span < 0 ? ~span : span) >> rank == 0, "the program has an operand that spans " +
                                                        std::to_string(span) + ", but its kernel " +
                                                        std::to_string(rank) + " dimensions");
  }
}

void check_dtypes(IntegerList dtypes, const char* what) {
  for (const std::int64_t dtype : dtypes) {
    require(itemsize_of(dtype) != 0, "the program has a kernel with " + std::string(what) +
                                         " of dtype " + std::to_string(dtype) +
                                         ", which kernels do not know");
  }
}

void check_arrays(const Attributes& attributes) {
  const auto given =
      static_cast<size_t>(std::count_if(attributes.spans.begin(), attributes.spans.end(),
                                        [](std::int64_t span) { return span >= 0; }));
  require(attributes.operand_dtypes.size() == given,
          "the program has dtypes of " + std::to_string(attributes.operand_dtypes.size()) +
              " operands for a kernel of " + std::to_string(given));
  const size_t count = attributes.spans.size() + attributes.result_dtypes.size();
  require(attributes.result_dtypes.size() >= 1 && count <= runtime::kMaxArrays,
          "the program has a kernel of " + std::to_string(attributes.spans.size()) +
              " operands and " + std::to_string(attributes.result_dtypes.size()) +
              " results; it must have a result, and " + std::to_string(runtime::kMaxArrays) +
              " of both at most");
  check_dtypes(attributes.operand_dtypes, "an operand");
  check_dtypes(attributes.result_dtypes, "a result");
}

void check_numbers(const Attributes& attributes) {
  const std::int64_t pack = attributes.pack, bits = attributes.index_bits;
  require(pack >= 1 && pack <= 16 && (pack & (pack - 1)) == 0,
          "the program has a kernel for packs of " + std::to_string(pack) +
              " elements; packs are of 1, 2, 4, 8 or 16");
  require(bits == 32 || bits == 64, "the program has a kernel with indices of " +
                                        std::to_string(bits) + " bits; they have 32 or 64");
}

}  // namespace

Attributes read_attributes(const ffi::Dictionary& dictionary) {
  check_format(dictionary);
  Attributes attributes;
  size_t count = 1;
  Attributes::for_each(attributes, [&](const char*, const auto&) { ++count; });
  require(dictionary.size() == count, "the program has " + std::to_string(dictionary.size()) +
                                          " attributes; its format has " + std::to_string(count));
  attributes.digest = get<std::string_view>(dictionary, "digest");
  Attributes::for_each(attributes, [&](const char* name, auto& value) {
    value = get<std::decay_t<decltype(value)>>(dictionary, name);
  });
  check_digest(attributes);
  check_source(attributes.source);
  check_name(attributes.name);
  check_options(attributes.options);
  check_dimensions(attributes);
  check_arrays(attributes);
  check_numbers(attributes);
  return attributes;
}

runtime::CompileRequest compile_request(const Attributes& attributes) {
  runtime::CompileRequest request;
  request.source = attributes.source;
  request.name = attributes.name;
  request.options = split_options(attributes.options);
  return request;
}

std::int64_t itemsize_of(std::int64_t dtype) {
  const Dtype* known = find_dtype(dtype);
  return known == nullptr ? 0 : static_cast<std::int64_t>(ffi::ByteWidth(known->code));
}

std::string name_of(std::int64_t dtype) {
  const Dtype* known = find_dtype(dtype);
  return known == nullptr ? "of number " + std::to_string(dtype) : known->name;
}

}  // namespace jax_elementwise
