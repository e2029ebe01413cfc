// A shared library that is found at run time and stays loaded.
#pragma once

#include <dlfcn.h>

#include <string>

#include "error.h"

namespace jax_elementwise::runtime {

class DynamicLibrary {
 public:
  explicit DynamicLibrary(const std::string& path)
      : path_(path), handle_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) {
      const char* reason = dlerror();
      throw Unavailable("cannot load " + path + ": " + (reason ? reason : "unknown reason"));
    }
  }

  // Null where the library is too old to have the function.
  template <class Function>
  void resolve_if_present(Function*& function, const char* name) const {
    function = reinterpret_cast<Function*>(dlsym(handle_, name));
  }

  template <class Function>
  void resolve(Function*& function, const char* name) const {
    resolve_if_present(function, name);
    if (function == nullptr) throw Unavailable(path_ + " has no function " + name);
  }

 private:
  std::string path_;
  void* handle_;  // never closed: kernels loaded through it outlive every scope
};

}  // namespace jax_elementwise::runtime
