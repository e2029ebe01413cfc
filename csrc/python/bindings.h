// What the extension module consists of: each adds its functions and constants to the module.
#pragma once

#include <nanobind/nanobind.h>

namespace jax_elementwise::python {

namespace nb = nanobind;

// The handlers of XLA's foreign function interface, and what is known of the attributes.
void bind_handlers(nb::module_& m);

// Compilers: those that Python calls, and those of Python's that the runtime calls.
void bind_compilers(nb::module_& m);

// The cache of compiled kernels, the environment, and which programs are trusted.
void bind_cache(nb::module_& m);

}  // namespace jax_elementwise::python
