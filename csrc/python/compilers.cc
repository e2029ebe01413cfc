// Compilers for Python, and Python's compilers for the runtime.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "python/bindings.h"
#include "runtime/driver.h"
#include "runtime/error.h"
#include "runtime/headers.h"
#include "runtime/host_compiler.h"
#include "runtime/kernel_cache.h"
#include "runtime/nvrtc.h"

namespace jax_elementwise::python {
namespace {

// ---- Calling Python -----------------------------------------------------------------------------

// The exceptions of this module, which a function of Python's may raise.
PyObject* unavailable = nullptr;
PyObject* compilation_failure = nullptr;

// Whether this thread is in compile(), and so may raise what Python raised.
thread_local bool is_called_by_python = false;

// The text of an object, with '?' where there is no character, as in a path that is not UTF-8.
std::string text_of(nb::handle object) {
  const nb::object bytes =
      nb::steal(PyUnicode_AsEncodedString(nb::str(object).ptr(), "utf-8", "replace"));
  if (!bytes.is_valid()) throw nb::python_error();
  return PyBytes_AsString(bytes.ptr());
}

// Runs what calls Python, in any thread. Interrupts are raised where the user called; where XLA
// did, which knows none, its call fails, and Python is interrupted again when it is back.
template <class Body>
auto with_python(const Body& body) {
  if (!Py_IsInitialized()) throw runtime::Unavailable("Python has ended");
  const nb::gil_scoped_acquire acquired;
  try {
    return body();
  } catch (const nb::python_error& error) {
    if (error.matches(unavailable)) throw runtime::Unavailable(text_of(error.value()));
    if (error.matches(compilation_failure)) throw runtime::CompileError(text_of(error.value()));
    if (error.matches(PyExc_Exception) || is_called_by_python) throw;
    PyErr_SetInterrupt();
    throw runtime::Interrupted();
  }
}

// Functions are kept for the life of the process, since a thread may call them late.
const nb::callable& keep(nb::callable function) { return *new nb::callable(std::move(function)); }

void set_nvrtc_locator(nb::callable locator) {
  runtime::set_nvrtc_locator([&kept = keep(std::move(locator))] {
    return with_python([&] {
      try {
        return nb::cast<std::string>(kept());
      } catch (const nb::python_error& error) {
        if (!error.matches(PyExc_Exception)) throw;  // an interrupt says nothing of the compiler
        throw runtime::Unavailable(text_of(error.value()));
      }
    });
  });
}

std::string string_of(const nb::object& bytes) {
  const auto result = nb::cast<nb::bytes>(bytes);
  return {result.c_str(), result.size()};
}

void set_host_compiler(nb::callable identity, nb::callable compile) {
  runtime::set_host_compiler(
      {[&kept = keep(std::move(identity))](const runtime::CompileRequest& request) {
         return with_python([&] { return string_of(kept(nb::cast(request.options))); });
       },
       [&kept = keep(std::move(compile))](const runtime::CompileRequest& request) {
         return with_python([&] {
           const nb::bytes source(request.source.data(), request.source.size());
           return string_of(kept(source, request.name, nb::cast(request.options)));
         });
       }});
}

// Only the main thread is interrupted.
void check_interrupts() {
  static const auto main_thread = nb::cast<unsigned long>(
      nb::module_::import_("threading").attr("main_thread")().attr("ident"));
  runtime::set_interrupt_check([] {
    if (PyThread_get_thread_ident() != main_thread) return;
    with_python([] {
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
    });
  });
}

// ---- Called by Python ---------------------------------------------------------------------------

nb::bytes compile(const std::string& source, const std::string& name, int arch,
                  const std::vector<std::string>& options) {
  struct Called {
    Called() { is_called_by_python = true; }
    ~Called() { is_called_by_python = false; }
  };
  std::shared_ptr<const runtime::CompiledImage> image;
  {
    const Called called;
    const nb::gil_scoped_release released;
    image = runtime::get_image({source, name, arch, options});
  }
  return nb::bytes(image->bytes.data(), image->bytes.size());
}

std::vector<int> compute_capabilities() {
  std::vector<int> result;
  for (int device = 0; device < runtime::device_count(); ++device)
    result.push_back(runtime::compute_capability(device));
  return result;
}

void require_architecture(int arch) {
  std::string refusal;
  {
    const nb::gil_scoped_release released;  // the first call asks Python for the compiler
    refusal = runtime::refusal_of(arch);
  }
  if (!refusal.empty()) throw nb::value_error(refusal.c_str());
}

nb::dict headers() {
  nb::dict result;
  for (const runtime::Header& header : runtime::headers()) result[header.name] = header.text;
  return result;
}

}  // namespace

void bind_compilers(nb::module_& m) {
  nb::exception<runtime::Error>(m, "RuntimeFailure", PyExc_RuntimeError);
  unavailable =
      nb::exception<runtime::Unavailable>(m, "Unavailable", PyExc_RuntimeError).release().ptr();
  compilation_failure =
      nb::exception<runtime::CompileError>(m, "CompilationFailure", PyExc_RuntimeError)
          .release()
          .ptr();
  check_interrupts();
  m.def("compile", &compile, nb::arg("source"), nb::arg("name"), nb::arg("arch"),
        nb::arg("options"),
        "Machine code of a kernel for compute capability arch / 10, or, for HOST_CPU, of a shared "
        "library for this machine, from the cache or the compiler.");
  m.attr("HOST_CPU") = runtime::kHostCpu;
  m.attr("FAST_MATH") = runtime::kFastMath;
  m.attr("DEVICE_BY_DEFAULT") = runtime::kDeviceByDefault;
  m.def("compute_capabilities", &compute_capabilities,
        "Of every GPU the driver shows, as 10 * major + minor.");
  m.def("require_architecture", &require_architecture, nb::arg("arch"),
        "Raises ValueError unless the compiler knows the compute capability arch / 10.");
  m.def("set_nvrtc_locator", &set_nvrtc_locator, nb::arg("locator"),
        nb::sig("def set_nvrtc_locator(locator: collections.abc.Callable[[], str]) -> None"),
        "A function that returns the path of libnvrtc, called at the first compilation.");
  m.def("set_host_compiler", &set_host_compiler, nb::arg("identity"), nb::arg("compile"),
        nb::sig("def set_host_compiler(identity: collections.abc.Callable[[list[str]], bytes], "
                "compile: collections.abc.Callable[[bytes, str, list[str]], bytes]) -> None"),
        "The functions that identify and call this machine's C++ compiler, from any thread.");
  m.def("headers", &headers, nb::sig("def headers() -> dict[str, str]"),
        "The kernel headers, by the name that includes them.");
}

}  // namespace jax_elementwise::python
