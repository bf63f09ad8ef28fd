"""The code that nvcc, cmake and torch's extensions are told to make."""

from __future__ import annotations

import pytest

from envsolve.dockerfile.compiling import EVERY, NATIVE, cmake_code, nvcc_code, torch_code
from envsolve.dockerfile.model import Command
from envsolve.facts.catalogue import Catalogue


def command(words: str, **variables: str) -> Command:
    return Command(1, tuple(words.split()), variables)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("nvcc -arch=sm_75 a.cu", ("sm_75", "compute_75")),
        ("/usr/local/cuda/bin/nvcc -gencode arch=compute_80,code=sm_80 a.cu", ("sm_80",)),
        ("nvcc --generate-code=arch=compute_90,code=[sm_90,compute_90] a.cu", ("sm_90", "compute_90")),
        ("nvcc -arch compute_80 -code sm_86,compute_80 a.cu", ("sm_86", "compute_80")),
        ("nvcc a.cu", ()),
        ("nvcc -arch=native a.cu", (NATIVE,)),
        ("nvcc -arch=all-major a.cu", (EVERY,)),
        ("nvcc --version", None),
        ("nvcc a.o b.o -o c", None),
        ("gcc a.c", None),
    ],
)
def test_the_code_that_nvcc_makes(words: str, code: tuple[str, ...] | None) -> None:
    assert nvcc_code(command(words)) == code


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("cmake .. -DCMAKE_CUDA_ARCHITECTURES=80;86-real;90-virtual", ("sm_80", "compute_80", "sm_86", "compute_90")),
        ("cmake -D CMAKE_CUDA_ARCHITECTURES=native ..", (NATIVE,)),
        ("cmake -DCMAKE_CUDA_ARCHITECTURES=${ARCHS} ..", None),
        ("cmake ..", None),
    ],
)
def test_the_code_that_cmake_makes(words: str, code: tuple[str, ...] | None) -> None:
    assert cmake_code(command(words)) == code


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("8.0;9.0a+PTX", ("sm_80", "sm_90a", "compute_90a")),
        ("8.0 8.6", ("sm_80", "sm_86")),
        ("Volta;Turing", ("sm_70", "compute_70", "sm_75", "compute_75")),
        ("Kepler+Tesla;Ampere+Tegra", ("sm_37", "sm_87")),
        ("Fermi", None),
        ("${LIST}", None),
        ("", None),
    ],
)
def test_the_code_of_torchs_list(value: str, code: tuple[str, ...] | None) -> None:
    assert torch_code(value, Catalogue().arch_names) == code
