// The extension module: hands the FFI handlers to JAX and the compilers to Python.
#include <nanobind/nanobind.h>

#include "python/bindings.h"

NB_MODULE(_runtime, m) {
  m.doc() = "Compiler, kernel cache and FFI handlers of jax_elementwise.";
  jax_elementwise::python::bind_compilers(m);
  jax_elementwise::python::bind_handlers(m);
  jax_elementwise::python::bind_cache(m);
}
