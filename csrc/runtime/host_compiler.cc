#include "host_compiler.h"

#include <memory>
#include <mutex>

#include "error.h"

namespace jax_elementwise::runtime {
namespace {

std::mutex mutex;
std::shared_ptr<const HostCompiler> current;

// Called without the lock: it runs for long, and Python may wait for another thread.
std::shared_ptr<const HostCompiler> host_compiler() {
  const std::lock_guard<std::mutex> lock(mutex);
  if (!current) throw Unavailable("nothing can call a C++ compiler: jax_elementwise is not loaded");
  return current;
}

}  // namespace

void set_host_compiler(HostCompiler compiler) {
  const std::lock_guard<std::mutex> lock(mutex);
  current = std::make_shared<const HostCompiler>(std::move(compiler));
}

std::string host_compiler_identity(const CompileRequest& request) {
  return host_compiler()->identity(request);
}

CompiledImage host_compile(const CompileRequest& request) {
  return {host_compiler()->compile(request), false};
}

}  // namespace jax_elementwise::runtime
