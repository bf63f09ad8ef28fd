"""What an environment's files say without a run: code for a card, and libraries that are found."""

from __future__ import annotations

from dataclasses import replace

import pytest

from envsolve.diagnose.environment.model import Environment, LoaderFolder, SharedLibrary
from envsolve.errors import UsageError
from envsolve.machine.cc import ComputeCapability
from envsolve.verify.static import Code, coverage, loader_problems
from envsolve.verify.without_gpu import check_without_gpu

CODES = (
    Code("nvidia-cublas", ("sm_75", "sm_80", "sm_90", "sm_100f", "compute_120")),
    Code("torch", ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120")),
)


@pytest.mark.parametrize(
    ("gpu", "status", "words"),
    [
        ("7.0", "fail", "torch carries no code for 7.0: it has sm_75"),
        ("7.5", "pass", "2 distributions carry code for it, torch sm_75"),
        ("8.9", "pass", "torch sm_86"),
        ("10.3", "pass", "torch sm_100"),
        ("11.0", "fail", "nvidia-cublas carries no code for 11.0"),
        ("12.1", "pass", "as PTX alone, which the driver must be new enough for: nvidia-cublas (compute_120)"),
    ],
)
def test_code_is_judged_by_the_rules(gpu: str, status: str, words: str) -> None:
    check = coverage(CODES, ComputeCapability.parse(gpu), 0.5)
    assert (check.name, check.gpu, check.status) == ("arch-coverage", gpu, status)
    assert check.cause == ("no-kernel-for-gpu" if status == "fail" else None)
    assert words in check.detail


def test_without_any_code_nothing_is_shown() -> None:
    assert coverage((), ComputeCapability(9, 0), 0.0).status == "skip"


TORCH = SharedLibrary("/e/torch/lib/libtorch_cuda.so", "torch", "libtorch_cuda.so", ("libcublas.so.13", "libc.so.6"))
CUBLAS = SharedLibrary("/e/nvidia/cu13/lib/libcublas.so.13", "nvidia-cublas", "libcublas.so.13", real="/e/cublas")
VISION = SharedLibrary("/e/torchvision/_C.so", "torchvision", "_C.so", ("libtorch_cuda.so", "libcudart.so.12"))
BARE = Environment("/e", "venv", "/e/bin/python", "3.12", "x86_64", "/usr", (), ())


@pytest.mark.parametrize(
    ("libraries", "outside", "expected"),
    [
        ((TORCH, CUBLAS), {}, []),
        ((TORCH,), {}, [("libtorch_cuda.so needs libcublas.so.13", "library-mismatch")]),
        ((TORCH,), {"libcublas.so.13": "/usr/lib/libcublas.so.13"}, []),
        ((TORCH, CUBLAS, VISION), {}, [("_C.so needs libcudart.so.12", "library-mismatch")]),
        ((CUBLAS, replace(VISION, needed=("libtorch_cuda.so",))), {}, [("needs libtorch_cuda.so", "mixed-flavours")]),
        ((replace(CUBLAS, cut_off=True),), {}, [("libcublas.so.13 is cut off", None)]),
    ],
)
def test_what_is_needed_is_found(
    libraries: tuple[SharedLibrary, ...], outside: dict[str, str], expected: list[tuple[str, str | None]]
) -> None:
    folder = LoaderFolder("/usr/lib", "ld.so.conf", outside)
    problems = list(loader_problems(replace(BARE, libraries=libraries, loader=(folder,))))
    assert [cause for _, cause in problems] == [cause for _, cause in expected]
    for (text, _), (words, _) in zip(problems, expected, strict=True):
        assert words in text


def test_a_library_of_the_system_before_the_environments_own() -> None:
    first = LoaderFolder("/opt", "LD_LIBRARY_PATH", {"libcublas.so.13": "/opt/libcublas.so.13"})
    ((text, cause),) = loader_problems(replace(BARE, libraries=(TORCH, CUBLAS), loader=(first,)))
    assert cause == "library-shadowed"
    assert "/opt/libcublas.so.13" in text


def test_a_name_that_no_check_has() -> None:
    with pytest.raises(UsageError, match="there is no check bogus") as caught:
        check_without_gpu("python", [ComputeCapability(9, 0)], only=["bogus"])
    assert "arch-coverage, nvrtc" in str(caught.value.hint)
