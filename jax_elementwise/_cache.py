"""The cache of compiled kernels, as users see it: what it did, and how to empty it."""

from __future__ import annotations

from typing import NamedTuple

from jax_elementwise import _runtime

__all__ = ["CacheInfo", "cache_info", "clear_cache"]


class CacheInfo(NamedTuple):
    """What the cache of compiled kernels did since the process began or ``clear_cache``.

    Attributes:
      compilations: kernels that NVRTC or the machine's C++ compiler compiled.
      disk_hits: kernels that were read from the directory.
      memory_hits: kernels that this process had already, or another of its threads was making.
      loads: kernels that were loaded on a GPU, counted per GPU, or into this process for its CPU.
      directory: where kernels are kept on disk; None for nowhere.
    """

    compilations: int
    disk_hits: int
    memory_hits: int
    loads: int
    directory: str | None


def cache_info() -> CacheInfo:
    """What the cache of compiled kernels did so far.

    The directory is what the environment says now. It need not exist: it is made when the first
    kernel is written, and where that fails, kernels are kept in memory only.

    Returns:
      the counts of this process and the directory.

    Example:
      >>> import jax_elementwise as je
      >>> je.clear_cache()
      >>> info = je.cache_info()
      >>> info.compilations, info.disk_hits, info.memory_hits, info.loads
      (0, 0, 0, 0)
    """
    return CacheInfo(**_runtime.counters(), directory=_runtime.cache_directory() or None)


def clear_cache() -> None:
    """Forgets compiled kernels, in memory and on disk, and sets the counts to 0.

    Of the directory, this removes this package's own files and nothing else. What cannot be
    removed stays, without an error. Kernels that are loaded stay loaded, since compiled
    programs use them. What other threads and processes are compiling goes on, and may be written
    afterwards.

    Example:
      >>> import jax_elementwise as je
      >>> je.clear_cache()
      >>> je.cache_info().compilations
      0
    """
    _runtime.clear_cache()
