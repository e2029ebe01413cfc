#include "trust.h"

#include <atomic>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <set>

#include "error.h"

namespace jax_elementwise::runtime {
namespace {

constexpr const char* kVariable = "JAX_ELEMENTWISE_TRUST_PROGRAMS";

std::atomic<bool> all_are_trusted{false};
std::mutex mutex;
std::set<std::string, std::less<>> made_here;

bool is_made_here(std::string_view digest) {
  const std::lock_guard<std::mutex> lock(mutex);
  return made_here.find(digest) != made_here.end();
}

}  // namespace

void trust_program(std::string digest) {
  const std::lock_guard<std::mutex> lock(mutex);
  made_here.insert(std::move(digest));
}

void trust_programs(bool all) { all_are_trusted = all; }

void require_trust(std::string_view digest, std::string_view name) {
  if (all_are_trusted || is_made_here(digest)) return;
  const char* setting = std::getenv(kVariable);
  const std::string value = setting == nullptr ? "" : setting;
  if (value == "1") return;
  throw Error(Fault::kUntrusted,
              "the kernel " + std::string(name) +
                  " comes with a program that this process did not make. Its C++ would be "
                  "compiled for this machine's CPU, where it could run any code. If you trust "
                  "whoever made the program, call jax_elementwise.trust_programs() before it is "
                  "loaded, or set " +
                  kVariable + "=1 in the environment" +
                  (value.empty() ? "" : " (it is '" + value + "')"));
}

}  // namespace jax_elementwise::runtime
