// The handlers for CPUs. They have no state: JAX 0.12 and before register the handlers of CPUs
// before the types of states, which XLA refuses. So what a program's calls need is in a table, by
// digest.
#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>

#include "ffi/call.h"
#include "ffi/handlers.h"
#include "runtime/host_kernel.h"
#include "runtime/trust.h"

namespace jax_elementwise {
namespace {

struct CpuCall {
  KernelCall call;
  runtime::HostFunction* function;
};

// Calls that were checked; they stay. Their digest is of all attributes, so that whoever executes
// one need not read the others.
std::shared_mutex table_mutex;
std::map<std::string, const CpuCall, std::less<>> table;

const CpuCall* find(std::string_view digest) {
  const std::shared_lock<std::shared_mutex> lock(table_mutex);
  const auto found = table.find(digest);
  return found == table.end() ? nullptr : &found->second;
}

// What a kernel says of itself (host/description.h) if the attributes are true.
std::vector<long long> describe(const KernelCall& call) {
  const size_t rank = call.groups.size();
  const std::uint64_t everything = (std::uint64_t{1} << rank) - 1;
  std::vector<long long> operands;
  long long broadcasts = 0;
  for (const KernelCall::Parameter& operand : call.operands) {
    const bool is_broadcast = operand.span != everything && operand.span != 0;
    const bool is_row = operand.span >> (rank - 1) & 1;
    const int kind = operand.span == everything ? (operand.is_index ? 4 : 0)
                     : operand.span == 0        ? 1
                     : operand.is_index         ? 5
                                                : (is_row ? 2 : 3);
    operands.insert(operands.end(),
                    {kind, is_broadcast ? broadcasts : 0, operand.is_index ? 8 : operand.itemsize});
    broadcasts += is_broadcast;
  }
  const auto dimensions = static_cast<long long>(rank);
  const long long strides = 3 * (dimensions - 1) + broadcasts * dimensions;
  std::vector<long long> words = {static_cast<long long>(1 + call.results.size() + call.given),
                                  call.index_bits, call.pack, 3 + (broadcasts == 0 ? 0 : strides),
                                  static_cast<long long>(call.results.size())};
  for (const KernelCall::Parameter& result : call.results) words.push_back(result.itemsize);
  words.insert(words.end(), operands.begin(), operands.end());
  return words;
}

ffi::Error instantiate(const ffi::Dictionary& dictionary) {
  return guarded([&] {
    const Attributes attributes = read_attributes(dictionary);
    runtime::require_trust(attributes.digest, attributes.name);
    if (find(attributes.digest) != nullptr) return;
    KernelCall call(attributes);
    const runtime::HostKernel& kernel = runtime::load_host_kernel(compile_request(attributes));
    if (kernel.description != describe(call)) {
      throw runtime::Error(runtime::Fault::kInvalidArgument,
                           "the kernel " + std::string(attributes.name) +
                               " was made for other arrays than the program says. Make the "
                               "program again");
    }
    const std::unique_lock<std::shared_mutex> lock(table_mutex);
    table.try_emplace(std::string(attributes.digest), CpuCall{std::move(call), kernel.function});
  });
}

ffi::Error execute(ffi::ThreadPool pool, ffi::RemainingArgs inputs, ffi::RemainingRets outputs,
                   const ffi::Dictionary& dictionary) {
  return guarded([&] {
    const ffi::ErrorOr<std::string_view> digest = dictionary.get<std::string_view>("digest");
    const CpuCall* call = digest.has_value() ? find(digest.value()) : nullptr;
    if (call == nullptr) {
      throw runtime::Error(runtime::Fault::kInternal,
                           "the kernel was not loaded before its execution");
    }
    const auto schedule = [&pool](std::function<void()> task) { pool.Schedule(std::move(task)); };
    // The calling thread is one of the pool's, or waits while they work.
    runtime::run_on_host(call->function, make_call(inputs, outputs, call->call),
                         {std::max<std::int64_t>(pool.num_threads() - 1, 0), schedule});
  });
}

}  // namespace
}  // namespace jax_elementwise

XLA_FFI_DEFINE_HANDLER_SYMBOL(EwCpuInstantiate, jax_elementwise::instantiate,
                              jax_elementwise::ffi::Ffi::BindInstantiate().Attrs());

XLA_FFI_DEFINE_HANDLER_SYMBOL(EwCpuExecute, jax_elementwise::execute,
                              jax_elementwise::ffi::Ffi::Bind()
                                  .Ctx<jax_elementwise::ffi::ThreadPool>()
                                  .RemainingArgs()
                                  .RemainingRets()
                                  .Attrs());
