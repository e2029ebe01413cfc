"""Per-element computations in JAX.

A function of one element becomes one packed GPU kernel and one JAX primitive.
"""

from jax_elementwise._cuda_functor.api import CudaFunctor as CudaFunctor
from jax_elementwise._cuda_functor.api import cuda_functor as cuda_functor
from jax_elementwise._elementwise import ElementwiseFunction as ElementwiseFunction
from jax_elementwise._elementwise import elementwise as elementwise
from jax_elementwise._extension import CacheInfo as CacheInfo
from jax_elementwise._extension import CompileError as CompileError
from jax_elementwise._extension import cache_info as cache_info
from jax_elementwise._extension import clear_cache as clear_cache
from jax_elementwise._extension import trust_programs as trust_programs
from jax_elementwise._paths import cmake_dir as cmake_dir
from jax_elementwise._paths import include_dir as include_dir
