// Loads one kernel on GPU 0 with the compiler that is named, and prints what came of it.
#include <cstdio>

#include "error.h"
#include "headers.h"
#include "kernel_cache.h"
#include "nvrtc.h"

namespace jax_elementwise::runtime {

const std::vector<Header>& headers() {
  static const std::vector<Header> none;
  return none;
}
std::uint64_t headers_hash() { return 0; }

}  // namespace jax_elementwise::runtime

int main(int, char** arguments) {
  namespace rt = jax_elementwise::runtime;
  rt::set_nvrtc_locator([&] { return std::string(arguments[1]); });
  try {
    rt::kernel_of({"text", "k", 0, {}}).on(0);
    std::printf("loaded");
  } catch (const rt::Error& error) {
    std::printf("%s", error.what());
  }
  const rt::CacheCounters counters = rt::cache_counters();
  std::printf("; %d compilations, %d read, %d loads\n", static_cast<int>(counters.compilations),
              static_cast<int>(counters.disk_hits), static_cast<int>(counters.loads));
}
