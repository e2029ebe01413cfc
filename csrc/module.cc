// The extension module: hands the FFI handlers to JAX and the compiler to Python.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdlib>

#include "ffi_handlers.h"
#include "runtime/disk_cache.h"
#include "runtime/driver.h"
#include "runtime/error.h"
#include "runtime/host_compiler.h"
#include "runtime/kernel_cache.h"
#include "runtime/nvrtc.h"

namespace nb = nanobind;
namespace rt = jax_elementwise::runtime;

namespace {

template <class Function>
nb::capsule handler(Function* function) {
  return nb::capsule(reinterpret_cast<void*>(function));
}

nb::dict registrations(const std::string& platform) {
  nb::dict stages;
  if (platform == "cpu") {
    stages["instantiate"] = handler(JewCpuInstantiate);
    stages["execute"] = handler(JewCpuExecute);
    return stages;
  }
  stages["instantiate"] = handler(JewInstantiate);
  stages["execute"] = handler(JewExecute);
  return stages;
}

nb::dict gpu_state_type() {
  const jax_elementwise::StateType type = jax_elementwise::gpu_state_type();
  nb::dict registration;
  registration["type_id"] = nb::capsule(type.id);
  registration["type_info"] = nb::capsule(type.info);
  return registration;
}

nb::bytes compile(const std::string& source, const std::string& name, int arch,
                  const std::vector<std::string>& options) {
  std::shared_ptr<const rt::CompiledImage> image;
  {
    const nb::gil_scoped_release released;
    image = rt::get_image({source, name, arch, options});
  }
  return nb::bytes(image->bytes.data(), image->bytes.size());
}

std::vector<int> compute_capabilities() {
  std::vector<int> result;
  for (int device = 0; device < rt::device_count(); ++device)
    result.push_back(rt::compute_capability(device));
  return result;
}

void require_architecture(int arch) {
  std::string refusal;
  {
    const nb::gil_scoped_release released;  // the first call asks Python for the compiler
    refusal = rt::refusal_of(arch);
  }
  if (!refusal.empty()) throw nb::value_error(refusal.c_str());
}

// As os.fsdecode has it: a path need not be UTF-8.
nb::object cache_directory() {
  const std::string path = rt::cache_directory();
  return nb::steal(PyUnicode_DecodeFSDefaultAndSize(path.data(), path.size()));
}

void clear_cache() {
  const nb::gil_scoped_release released;
  rt::clear_cache();
}

nb::dict counters() {
  const rt::CacheCounters now = rt::cache_counters();
  nb::dict result;
  result["compilations"] = now.compilations;
  result["disk_hits"] = now.disk_hits;
  result["memory_hits"] = now.memory_hits;
  result["loads"] = now.loads;
  return result;
}

void set_nvrtc_locator(nb::callable locator) {
  // Kept for the life of the process, since a thread may ask for it after Python has shut down.
  auto* kept = new nb::callable(std::move(locator));
  rt::set_nvrtc_locator([kept]() -> std::string {
    const nb::gil_scoped_acquire acquired;
    try {
      return nb::cast<std::string>((*kept)());
    } catch (const nb::python_error& error) {
      if (!error.matches(PyExc_Exception)) throw;  // an interrupt says nothing of the compiler
      throw rt::Unavailable(nb::str(error.value()).c_str());
    }
  });
}

// os.environ.get takes 0.9 us where a variable is not set, a sixth of a whole eager call.
nb::object environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? nb::none() : nb::object(nb::str(value));
}

}  // namespace

NB_MODULE(_runtime, m) {
  m.doc() = "Compiler, kernel cache and FFI handlers of jax_elementwise.";
  nb::exception<rt::Error>(m, "RuntimeFailure", PyExc_RuntimeError);
  nb::exception<rt::Unavailable>(m, "Unavailable", PyExc_RuntimeError);
  nb::exception<rt::CompileError>(m, "CompilationFailure", PyExc_RuntimeError);
  m.def("registrations", &registrations, nb::arg("platform"),
        nb::sig("def registrations(platform: str) -> dict[str, object]"),
        "The FFI handlers of a platform, by stage, for jax.ffi.register_ffi_target.");
  m.def("gpu_state_type", &gpu_state_type, nb::sig("def gpu_state_type() -> typing.Any"),
        "The type of the state of the handlers for CUDA, for jax.ffi.register_ffi_type.");
  m.def("compile", &compile, nb::arg("source"), nb::arg("name"), nb::arg("arch"),
        nb::arg("options"),
        "Machine code of a kernel for compute capability arch / 10, or, for HOST_CPU, of a shared "
        "library for this machine, from the cache or the compiler.");
  m.attr("HOST_CPU") = rt::kHostCpu;
  m.def("compute_capabilities", &compute_capabilities,
        "Of every GPU the driver shows, as 10 * major + minor.");
  m.def("cache_directory", &cache_directory, nb::sig("def cache_directory() -> str"),
        "Where compiled kernels are kept; empty for nowhere.");
  m.def("clear_cache", &clear_cache,
        "Removes compiled kernels from memory and from the directory, and resets the counters.");
  m.def("counters", &counters, nb::sig("def counters() -> dict[str, int]"),
        "Compilations, cache hits and loads since the last reset.");
  m.def("environment", &environment, nb::arg("name"),
        nb::sig("def environment(name: str) -> str | None"), "An environment variable, or None.");
  m.def("require_architecture", &require_architecture, nb::arg("arch"),
        "Raises ValueError unless the compiler knows the compute capability arch / 10.");
  m.def("reset_counters", &rt::reset_cache_counters);
  m.def("set_nvrtc_locator", &set_nvrtc_locator, nb::arg("locator"),
        nb::sig("def set_nvrtc_locator(locator: collections.abc.Callable[[], str]) -> None"),
        "A function that returns the path of libnvrtc, called at the first compilation.");
}
