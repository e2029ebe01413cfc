"""Where the headers for C++ and their CMake package are."""

from __future__ import annotations

import pathlib
import sys

_PACKAGE = pathlib.Path(__file__).parent
_HEADER = pathlib.Path("jax_elementwise", "elementwise.cuh")
_CONFIG = "jax_elementwiseConfig.cmake"


def _roots() -> list[pathlib.Path]:
    """Folders that may hold ``include`` and ``cmake``: the package's, then the source tree's.

    An editable install has its Python files in one folder and what was built in another.
    """
    folders = [pathlib.Path(path) for path in sys.modules["jax_elementwise"].__path__]
    return [*folders, _PACKAGE.parent / "csrc"]


def _find(folder: str, file: pathlib.Path | str) -> str:
    candidates = [root / folder for root in _roots()]
    for candidate in candidates:
        if (candidate / file).is_file():
            return str(candidate)
    looked = ", ".join(map(str, candidates))
    raise FileNotFoundError(
        f"jax_elementwise was installed without its files for C++: there is no {file} in any of "
        f"{looked}. Install the package again with pip, from a wheel or from its source tree."
    )


def include_dir() -> str:
    """The folder for a C++ compiler's ``-I``: ``#include <jax_elementwise/elementwise.cuh>``.

    ```sh
    headers=$(python -P -c 'import jax_elementwise as je; print(je.include_dir())')
    nvcc -std=c++17 -I "$headers" a.cu
    ```

    Raises:
      FileNotFoundError: the headers are not where the package is.

    Example:
      >>> import pathlib
      >>> import jax_elementwise as je
      >>> pathlib.Path(je.include_dir(), "jax_elementwise", "elementwise.cuh").is_file()
      True
    """
    return _find("include", _HEADER)


def cmake_dir() -> str:
    """The folder of the CMake package: ``find_package(jax_elementwise CONFIG)`` finds it there.

    ```sh
    package=$(python -P -c 'import jax_elementwise as je; print(je.cmake_dir())')
    cmake -S . -B build -Djax_elementwise_DIR="$package"
    ```

    Raises:
      FileNotFoundError: it is not where the package is.

    Example:
      >>> import pathlib
      >>> import jax_elementwise as je
      >>> pathlib.Path(je.cmake_dir(), "jax_elementwiseConfig.cmake").is_file()
      True
    """
    return _find("cmake", _CONFIG)
