"""What an environment's files say without a run: code for a card, and libraries that are found."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from envsolve.errors import UsageError
from envsolve.values import ComputeCapability
from envsolve.verify.report import Check
from envsolve.verify.static import Code, check_without_gpu, coverage, static_checks
from tests.binaries.elves import library

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
        ("12.1", "pass", "only as PTX, which the driver must be new enough for: nvidia-cublas (compute_120)"),
    ],
)
def test_code_is_judged_by_the_rules(gpu: str, status: str, words: str) -> None:
    check = coverage(CODES, ComputeCapability.parse(gpu), 0.5)
    assert (check.name, check.gpu, check.status) == ("arch-coverage", gpu, status)
    assert check.cause == ("no-kernel-for-gpu" if status == "fail" else None)
    assert words in check.detail


def test_without_any_code_nothing_is_shown() -> None:
    assert coverage((), ComputeCapability(9, 0), 0.0).status == "skip"


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    """A virtual environment with a torch of three libraries."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").write_bytes(library(gives=["PyLong_AsLong"]))
    (tmp_path / "pyvenv.cfg").write_text(f"home = {tmp_path / 'bin'}\nversion = 3.12.1\n")
    install(tmp_path, "nvidia-cublas", {"nvidia/cu13/lib/libcublas.so.13": library(soname="libcublas.so.13")})
    files = {
        "torch/version.py": b"__version__ = '2.11.0+cu130'\ncuda = '13.0'\n",
        "torch/lib/libc10.so": library(soname="libc10.so", gives=["c10_error"]),
        "torch/lib/libtorch_cuda.so": library(
            soname="libtorch_cuda.so", needed=["libc10.so", "libcublas.so.13"], takes=["c10_error"], runpath="$ORIGIN"
        ),
    }
    install(tmp_path, "torch", files)
    return tmp_path


def install(prefix: Path, name: str, files: Mapping[str, bytes]) -> None:
    """Put files into an environment, with the metadata of a distribution."""
    site = prefix / "lib" / "python3.12" / "site-packages"
    info = site / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "RECORD").write_text("".join(f"{path},,{len(content)}\n" for path, content in files.items()))
    for path, content in files.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_bytes(content)


def loader(prefix: Path, **environ: str) -> Check:
    (check,) = static_checks(prefix / "bin" / "python", [], ["loader"], environ)
    return check


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "libcublas.so.13 of nvidia-cublas 1.0 is missing"),
        (b"version https://git-lfs.github.com/spec/v1\n", "libcublas.so.13 of nvidia-cublas 1.0 is not a library"),
        ("a folder", "libcublas.so.13 of nvidia-cublas 1.0 is not a library"),
        ("a pipe", "libcublas.so.13 of nvidia-cublas 1.0 is not a library"),
        (b"", "libcublas.so.13 is cut off"),
    ],
)
def test_a_library_that_is_only_loaded_by_name_is_missed_all_the_same(
    prefix: Path, content: bytes | str | None, words: str
) -> None:
    path = prefix / "lib/python3.12/site-packages/nvidia/cu13/lib/libcublas.so.13"
    torch = path.parents[3] / "torch" / "lib" / "libtorch_cuda.so"
    torch.unlink()  # nothing needs it
    (path.parents[3] / "torch-1.0.dist-info" / "RECORD").write_text("torch/version.py,,\ntorch/lib/libc10.so,,\n")
    assert loader(prefix).status == "pass"
    path.unlink()
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content == "a folder":
        path.mkdir()
    elif content == "a pipe":
        os.mkfifo(path)
    check = loader(prefix)
    assert (check.status, words in check.detail) == ("fail", True)


def test_libraries_that_find_all_that_they_need(prefix: Path) -> None:
    plugin = library(needed=["libucp.so.0", "libucs.so.0", "libmlx5.so.1", "libfabric.so.1"])
    install(prefix, "nvidia-nvshmem", {"nvidia/nvshmem/lib/transport.so.3": plugin})
    check = loader(prefix)
    assert (check.status, check.cause) == ("pass", None)
    assert check.detail == (
        "4 libraries find all libraries and 1 symbols that they need; "
        "some load only if more is installed: nvidia-nvshmem (libucp.so.0, libucs.so.0, libmlx5.so.1, ...)"
    )


@pytest.mark.parametrize(
    ("files", "words", "cause"),
    [
        (
            {"ext/_C.so": library(needed=["libtorch_cuda.so"], takes=["c10_old"])},
            "_C.so uses symbols that no library provides: c10_old",
            "mixed-flavours",
        ),
        ({"ext/_C.so": library(needed=["libcudart.so.12"])}, "_C.so needs libcudart.so.12", "library-mismatch"),
        ({"ext/libtorch_x.so": library()[:-40]}, "libtorch_x.so is cut off", None),
    ],
)
def test_libraries_that_do_not(prefix: Path, files: Mapping[str, bytes], words: str, cause: str | None) -> None:
    install(prefix, "ext", files)
    check = loader(prefix)
    assert (check.name, check.status, check.cause) == ("loader", "fail", cause)
    assert words in check.detail


def test_a_library_of_the_system_before_the_environments_own(prefix: Path, tmp_path: Path) -> None:
    outside = tmp_path / "cuda"
    outside.mkdir()
    (outside / "libcublas.so.13").write_bytes(library(soname="libcublas.so.13"))
    check = loader(prefix, LD_LIBRARY_PATH=str(outside))
    assert (check.status, check.cause) == ("fail", "library-shadowed")
    assert str(outside / "libcublas.so.13") in check.detail


def test_symbols_are_looked_up_within_a_time(prefix: Path) -> None:
    (check,) = static_checks(prefix / "bin" / "python", [], ["loader"], {}, -1.0)
    assert check.status == "fail"
    assert "were not looked up within" in check.detail


def test_an_environment_without_libraries(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").write_text("")
    (tmp_path / "pyvenv.cfg").write_text("home = /usr/bin\n")
    assert loader(tmp_path).status == "skip"


def test_a_name_that_no_check_has() -> None:
    with pytest.raises(UsageError, match="there is no check bogus") as caught:
        check_without_gpu("python", [ComputeCapability(9, 0)], only=["bogus"])
    assert "arch-coverage, nvrtc" in str(caught.value.hint)
