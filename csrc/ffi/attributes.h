// The attributes of the custom call, which travel with exported and cached programs. A stranger may
// have written them: they are read, and checked as a whole, when a program is loaded.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/compilation.h"
#include "xla/ffi/api/ffi.h"

namespace jax_elementwise {

namespace ffi = xla::ffi;

using IntegerList = ffi::Span<const std::int64_t>;

// What jax_elementwise/_lowering/attributes.py writes.
struct Attributes {
  std::int64_t format = 0;
  std::string_view digest;   // of all the others: names the call in every process
  std::string_view source;   // CUDA C++
  std::string_view name;     // of the entry point
  std::string_view options;  // of the compiler, separated by spaces
  IntegerList groups;        // how many dimensions of the results each merged dimension stands for
  IntegerList spans;         // per operand, the merged dimensions it has, as bits; their
                             // complement for one that is not given: the index of the element
  std::int64_t pack = 0;     // elements per access
  std::int64_t index_bits = 0;  // 32 or 64
  IntegerList operand_dtypes;   // of the operands that are given, as XLA_FFI_DataType
  IntegerList result_dtypes;

  // Calls visit(name, member) for all but the digest, in the order in which that takes them.
  template <class Self, class Visit>
  static void for_each(Self& self, const Visit& visit) {
    visit("format", self.format);
    visit("source", self.source);
    visit("name", self.name);
    visit("options", self.options);
    visit("groups", self.groups);
    visit("spans", self.spans);
    visit("pack", self.pack);
    visit("index_bits", self.index_bits);
    visit("operand_dtypes", self.operand_dtypes);
    visit("result_dtypes", self.result_dtypes);
  }
};

// Of the names and meanings of the attributes.
constexpr std::int64_t kFormat = 2;

// An element type that kernels have.
struct Dtype {
  ffi::DataType code;
  const char* name;  // NumPy's
};

constexpr Dtype kDtypes[] = {
    {ffi::DataType::PRED, "bool"},          {ffi::DataType::S8, "int8"},
    {ffi::DataType::S16, "int16"},          {ffi::DataType::S32, "int32"},
    {ffi::DataType::S64, "int64"},          {ffi::DataType::U8, "uint8"},
    {ffi::DataType::U16, "uint16"},         {ffi::DataType::U32, "uint32"},
    {ffi::DataType::U64, "uint64"},         {ffi::DataType::F8E4M3FN, "float8_e4m3fn"},
    {ffi::DataType::F8E5M2, "float8_e5m2"}, {ffi::DataType::F16, "float16"},
    {ffi::DataType::BF16, "bfloat16"},      {ffi::DataType::F32, "float32"},
    {ffi::DataType::F64, "float64"},        {ffi::DataType::C64, "complex64"},
    {ffi::DataType::C128, "complex128"},
};

// Reads the attributes and checks all of them: their format, their digest, and that a kernel could
// be called so. Throws Error{kInvalidArgument} with what is wrong.
Attributes read_attributes(const ffi::Dictionary& dictionary);

// The kernel's text and options; the architecture is left to whoever compiles it.
runtime::CompileRequest compile_request(const Attributes& attributes);

// Bytes of an element; 0 for a dtype that kernels do not have.
std::int64_t itemsize_of(std::int64_t dtype);

// The name of a dtype, for messages: JAX's, or its number.
std::string name_of(std::int64_t dtype);

}  // namespace jax_elementwise
