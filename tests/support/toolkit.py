"""Programs of a CUDA toolkit, and CMake."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sysconfig

import pytest


def find(name: str) -> str | None:
    """The path of a program of a CUDA toolkit."""
    toolkits = [os.environ.get("CUDA_HOME", ""), "/usr/local/cuda"]
    places = [os.path.join(toolkit, "bin") for toolkit in toolkits if toolkit]
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), *places]))


def require_nvcc() -> str:
    """The path of nvcc; skips the test where there is none."""
    nvcc = find("nvcc")
    if nvcc is None:
        pytest.skip("nvcc is not installed (it comes with the CUDA toolkit)")
    return nvcc


def require_cmake() -> str:
    """The path of a CMake that is new enough; skips the test where there is none."""
    places = [sysconfig.get_path("scripts"), os.environ.get("PATH", "")]
    cmake = shutil.which("cmake", path=os.pathsep.join(places))
    if cmake is None:
        pytest.skip("CMake is not installed")
    text = subprocess.run([cmake, "--version"], capture_output=True, text=True, check=True).stdout
    if tuple(map(int, re.search(r"(\d+)\.(\d+)", text).groups())) < (3, 24):
        pytest.skip(f"CMake is too old: {text.splitlines()[0]}")
    return cmake


def oldest_architecture(nvcc: str) -> int:
    """The oldest compute capability that nvcc compiles for, from 75 on."""
    listed = subprocess.run([nvcc, "--list-gpu-arch"], capture_output=True, text=True, check=True)
    return max(75, min(int(arch) for arch in re.findall(r"compute_(\d+)", listed.stdout)))


def run(*command, **options) -> str:
    """What a program printed; it must have succeeded, and a failure shows what it wrote."""
    arguments = [str(part) for part in command]
    done = subprocess.run(arguments, capture_output=True, text=True, **options)
    shown = f"{done.stdout[-4000:]}{done.stderr[:4000]}"  # compilers begin with what is wrong
    assert done.returncode == 0, f"exit status {done.returncode} of {arguments[0]}\n{shown}"
    return done.stdout
