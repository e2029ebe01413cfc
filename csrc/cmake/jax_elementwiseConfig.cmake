# find_package(jax_elementwise CONFIG): the headers for C++, as jax_elementwise::jax_elementwise.
#
# They lie in ../include, both in an installed package and in the source tree.
if(NOT TARGET jax_elementwise::jax_elementwise)
  get_filename_component(_jax_elementwise_include "${CMAKE_CURRENT_LIST_DIR}/../include" ABSOLUTE)
  if(NOT EXISTS "${_jax_elementwise_include}/jax_elementwise/elementwise.cuh")
    set(jax_elementwise_FOUND FALSE)
    set(jax_elementwise_NOT_FOUND_MESSAGE
        "${_jax_elementwise_include} does not hold the headers of jax_elementwise")
    unset(_jax_elementwise_include)
    return()
  endif()

  add_library(jax_elementwise::jax_elementwise INTERFACE IMPORTED)
  target_include_directories(jax_elementwise::jax_elementwise
                             INTERFACE "${_jax_elementwise_include}")
  target_compile_features(jax_elementwise::jax_elementwise INTERFACE cxx_std_17)
  # CMake refuses a feature of a language that it does not know of.
  if(CMAKE_CUDA_COMPILE_FEATURES)
    target_compile_features(jax_elementwise::jax_elementwise INTERFACE cuda_std_17)
  endif()
  unset(_jax_elementwise_include)
endif()
