"""The headers as C++ users have them: alone, by nvcc, by CMake, and on the host."""

from __future__ import annotations

import pathlib
import shutil

import pytest
from support import sass, simt, toolkit

import jax_elementwise as je
from jax_elementwise import _paths, _runtime

ROOT = pathlib.Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "examples" / "cpp"
INCLUDED = pathlib.Path(je.include_dir(), "jax_elementwise")
HEADERS = sorted(str(path.relative_to(INCLUDED)) for path in INCLUDED.rglob("*.h"))
STAND_IN = ROOT / "tests" / "csrc" / "cuda"

# They use functions of CUDA that host/host.h gives a meaning to.
FOR_KERNELS = {
    "cuda/bfloat16.h", "cuda/float8.h", "cuda/half.h", "cuda/names.h", "cuda/short_arithmetic.h",
    "math/complex.h", "math/complex_functions.h", "math/math.h", "math/special.h", "math/zeta.h",
    "convert.h", "functor.h", "kernel.h",
}  # fmt: skip
# Parts of cuda/names.h, and of cuda/half.h and cuda/bfloat16.h, which define what they use.
PARTS = {
    "cuda/math.h", "cuda/short_conversions.h", "cuda/short_float.h",
    "host/functions.h", "host/intrinsics.h", "host/vectors.h",
}  # fmt: skip


# ---- Where they are ------------------------------------------------------------------------------


def test_the_headers_and_the_cmake_package_are_there():
    assert {"kernel.h", "functor.h", "alignment.h", "math/math.h"} <= set(HEADERS)
    config = pathlib.Path(je.cmake_dir(), "jax_elementwiseConfig.cmake")
    # The package finds the headers from where it lies.
    assert config.parent.parent / "include" == pathlib.Path(je.include_dir())


@pytest.mark.parametrize("function", [je.include_dir, je.cmake_dir])
def test_what_is_not_there_is_said(function, monkeypatch, tmp_path):
    monkeypatch.setattr(_paths, "_roots", lambda: [tmp_path])
    with pytest.raises(FileNotFoundError, match=r"installed without .* Install the package again"):
        function()


# ---- Host compilers ------------------------------------------------------------------------------


@pytest.mark.sampled
@pytest.mark.parametrize("header", [header for header in HEADERS if header not in PARTS])
def test_every_header_compiles_alone(header, tmp_path):
    before = "#include <jax_elementwise/host/host.h>\n" if header in FOR_KERNELS else ""
    source = tmp_path / "alone.cc"
    source.write_text(f"{before}#include <jax_elementwise/{header}>\n")
    # host/host.h has a variable that kernel.h uses.
    flags = ["-c", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", "-Wno-unused-variable"]
    simt.compile_cpp([source], f"{header.replace('/', '-')}-alone.o", flags)


def _on_the_host(source, *flags):
    flags = ["-xc++", "-D__CUDACC__", f"-I{STAND_IN}", *flags]
    flags += ["-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas"]
    return simt.run_binary(simt.compile_cpp([source], source.stem, flags))


def test_entry_points_on_the_host():
    source = ROOT / "tests" / "csrc" / "elementwise_test.cc"
    assert _on_the_host(source, *simt.SANITIZERS) == "0 failures\n"


def test_the_example_on_the_host():
    lines = _on_the_host(EXAMPLE / "functors.cu", "-O2").splitlines()
    assert [line.split(maxsplit=1)[1] for line in lines] == [
        *["54 of 54 cases are right"] * 6,
        "has one mask at all alignments",
    ]


# ---- NVRTC ---------------------------------------------------------------------------------------

_KERNEL = """
#include <jax_elementwise/functor.h>
namespace jax_elementwise {
struct ScaledIndex {
  JAX_ELEMENTWISE_DEVICE float operator()(float x, int64 index) const { return x * index; }
};
extern "C" __global__ void kernel(const __grid_constant__ Geometry<0, 0> geometry, float* out,
                                  const float* in) {
  elementwise<int, 4>(OneResult<ScaledIndex, float, float>{}, geometry,
                      make_tuple(Output<float>{out, vectorized(geometry, 0)}),
                      make_tuple(Contiguous<float>{in, vectorized(geometry, 1)}, ElementIndex{}));
}
}
"""


def test_functors_compile_with_nvrtc(monkeypatch):
    monkeypatch.setenv("JAX_ELEMENTWISE_CACHE_DIR", "")
    for arch in (75, max(sass.require_nvrtc())):
        assert b"kernel" in _runtime.compile(_KERNEL, "kernel", arch, [])


# ---- nvcc ----------------------------------------------------------------------------------------


def _cubin(tmp_path, source, arch):
    path = tmp_path / "kernels.cubin"
    flags = ["-std=c++17", "-Werror", "all-warnings", "-Xcompiler", "-Wall,-Wextra"]
    command = [toolkit.require_nvcc(), *flags, "-cubin", f"-arch=sm_{arch}"]
    toolkit.run(*command, "-I", je.include_dir(), source, "-o", path)
    return path.read_bytes()


def _opcodes(kernels, functor):
    """Of the kernel of a functor with 32-bit indices."""
    (found,) = [codes for name, codes in kernels.items() if "kernelIi" in name and functor in name]
    return found


@pytest.mark.parametrize("position", ["oldest", "Hopper"])
def test_packs_of_the_example_are_one_access_each(tmp_path, position):
    nvcc = toolkit.require_nvcc()
    arch = toolkit.oldest_architecture(nvcc) if position == "oldest" else 90
    kernels = sass.opcodes_by_kernel(_cubin(tmp_path, EXAMPLE / "functors.cu", arch))
    for functor, operands in (("4Relu", 1), ("3Mul", 2), ("7HalfAdd", 2)):
        codes = _opcodes(kernels, functor)
        wide = [code for code in codes if sass.access_bits(code) == 128]
        assert sum(code.startswith("LDG") for code in wide) == operands, codes
        assert sum(code.startswith("STG") for code in wide) == 1, codes
        assert not [code for code in codes if code.startswith(("LDL", "STL"))], functor
    # Four pairs in a pack of eight.
    codes = _opcodes(kernels, "7HalfAdd")
    assert len([code for code in codes if code.startswith(("HADD2", "HFMA2"))]) == 4, codes


_USES = """
#include <jax_elementwise/elementwise.cuh>
namespace je = jax_elementwise;
struct Relu {
  __device__ float operator()(float x) const { return x > 0 ? x : 0; }
};
cudaError_t uses(float* x, double* y, je::int64 n, cudaStream_t stream) {
  const float k = 2;
  je::Nary([k] __device__(float a, double b) { return k * a + b; }, n, y, x, y, stream);
  je::Nary([] __device__(je::int64 index) { return 2.0 * index; }, n, y, stream);
  je::UnaryWithFactory([] __device__ { return Relu{}; }, n, x, x, stream);
  return %s;
}
"""


def _compile_use(tmp_path, compiler, statement):
    source = tmp_path / "uses.cu"
    source.write_text(_USES % statement)
    if compiler == "nvcc":
        command = [toolkit.require_nvcc(), "-std=c++17", "--extended-lambda", "-c", "-arch=sm_90"]
        flags = ["-Werror", "all-warnings", "-I", je.include_dir()]
        toolkit.run(*command, *flags, source, "-o", tmp_path / "uses.o")
    else:
        simt.check_cpp(source, ["-xc++", "-D__CUDACC__", f"-I{STAND_IN}", "-w"])


COMPILERS = pytest.mark.parametrize(
    "compiler", ["host", pytest.param("nvcc", marks=pytest.mark.exhaustive)]
)


@COMPILERS
def test_lambdas_are_functors_and_factories(tmp_path, compiler):
    _compile_use(tmp_path, compiler, "je::Unary(Relu{}, n, x, x, stream)")


@COMPILERS
@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("je::Nary(Relu{}, n, x, x)", "the last argument must be a cudaStream_t"),
        ("je::Nary(Relu{}, n, x)", "the last argument must be a cudaStream_t"),
        ("je::Nary(Relu{}, n, x, 1.0f, stream)", "between the output and the stream must be po"),
        ("je::Binary(Relu{}, n, x, x, x, stream)", "the functor has neither R operator"),
        ("je::Unary(Relu{}, n, (float3*)x, x, stream)", "of 1, 2, 4, 8 or 16 bytes"),
    ],
)
def test_mistakes_are_explained(tmp_path, compiler, statement, message):
    if compiler == "nvcc":
        toolkit.require_nvcc()
    with pytest.raises(AssertionError, match=message):
        _compile_use(tmp_path, compiler, statement)


# ---- CMake ---------------------------------------------------------------------------------------


@pytest.fixture
def installed(tmp_path):
    """A copy of what the package installs, elsewhere."""
    root = tmp_path / "some where" / "jax_elementwise"
    shutil.copytree(je.include_dir(), root / "include")
    shutil.copytree(je.cmake_dir(), root / "cmake")
    return root


def _configure(source, build, *settings):
    options = [f"-D{setting}" for setting in ("CMAKE_BUILD_TYPE=Release", *settings)]
    return toolkit.run(toolkit.require_cmake(), "-S", source, "-B", build, *options)


_PROJECT = """
cmake_minimum_required(VERSION 3.24)
project(user LANGUAGES CXX)
find_package(jax_elementwise CONFIG REQUIRED)
find_package(jax_elementwise CONFIG REQUIRED)  # as often as it is needed
add_executable(user user.cc)
target_link_libraries(user PRIVATE jax_elementwise::jax_elementwise)
"""


@pytest.mark.parametrize("way", ["jax_elementwise_DIR={}/cmake", "CMAKE_PREFIX_PATH={}"])
def test_cmake_finds_the_package_for_cxx(installed, tmp_path, way):
    (tmp_path / "CMakeLists.txt").write_text(_PROJECT)
    text = "#include <jax_elementwise/alignment.h>\n"
    text += "int main() { return jax_elementwise::block_count(1, 1) != 1; }\n"
    (tmp_path / "user.cc").write_text(text)
    build = tmp_path / "build"
    _configure(tmp_path, build, way.format(installed))
    toolkit.run(toolkit.require_cmake(), "--build", build)
    toolkit.run(build / "user")


def test_cmake_says_that_headers_are_missing(installed, tmp_path):
    (installed / "include" / "jax_elementwise" / "elementwise.cuh").unlink()
    (tmp_path / "CMakeLists.txt").write_text(_PROJECT)
    with pytest.raises(AssertionError, match=r"does\s+not hold the headers"):
        _configure(tmp_path, tmp_path / "build", f"jax_elementwise_DIR={installed}/cmake")


@pytest.mark.exhaustive
def test_cmake_builds_the_example(installed, tmp_path):
    nvcc = toolkit.require_nvcc()
    _configure(
        EXAMPLE,
        tmp_path / "build",
        f"jax_elementwise_DIR={installed}/cmake",
        f"CMAKE_CUDA_COMPILER={nvcc}",
        f"CMAKE_CUDA_ARCHITECTURES={toolkit.oldest_architecture(nvcc)};90",
        "CMAKE_CUDA_FLAGS=-Werror=all-warnings",
    )
    toolkit.run(toolkit.require_cmake(), "--build", tmp_path / "build")
    assert (tmp_path / "build" / "functors").stat().st_size > 10_000
