from __future__ import annotations

import io
from collections.abc import Mapping

import pytest

from envsolve.binaries.files import WheelFile
from envsolve.binaries.measure import bundled_cudnn, bundled_nccl, pinned, torch_libraries
from envsolve.errors import UsageError
from tests.binaries.artefacts import wheel

LINUX = 'platform_system == "Linux"'
X86 = f'{LINUX} and platform_machine == "x86_64"'


@pytest.mark.parametrize(
    ("line", "library", "platform", "version"),
    [
        ("nvidia-cudnn-cu12==9.1.0.70", "cudnn", "manylinux1_x86_64", "9.1.0"),
        ("nvidia-cudnn-cu13==9.26.0.14; " + LINUX, "cudnn", "manylinux_2_28_aarch64", "9.26.0"),
        ("nvidia-nccl-cu12==2.27.5; " + X86, "nccl", "manylinux_2_28_x86_64", "2.27.5"),
        ("nvidia-nccl-cu12==2.27.5; " + X86, "nccl", "manylinux2014_aarch64", None),
        ("nvidia-nccl-cu12==2.27.5; " + X86, "nccl", "win_amd64", None),
        ("nvidia-cudnn-cu12==9.1.0.70", "nccl", "manylinux1_x86_64", None),
        ("nvidia-cudnn-frontend==1.2.3", "cudnn", "manylinux1_x86_64", None),
        ("nvidia-cudnn-cu12>=9.1", "cudnn", "manylinux1_x86_64", None),
        ('nvidia-cudnn-cu12==9.1.0.70; extra == "cudnn"', "cudnn", "manylinux1_x86_64", None),
        ("not valid !!", "cudnn", "manylinux1_x86_64", None),
    ],
)
def test_pins(line: str, library: str, platform: str, version: str | None) -> None:
    assert pinned([line], library, platform) == version


def made(members: Mapping[str, bytes | str]) -> WheelFile:
    return WheelFile(io.BytesIO(wheel("torch", "1.12.1", members)), "torch.whl")


HEADER = "torch/include/caffe2/core/macros.h"
CUDA = "torch/lib/libtorch_cuda.so"


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('  {"CUDA_VERSION", "10.2"}, \\\n  {"CUDNN_VERSION", "7.6.5"}, \\\n', "7.6.5"),
        ('  {"CUDNN_VERSION", ""}, \\\n', None),
        ("", None),
    ],
)
def test_cudnn_in_the_build_settings(text: str, version: str | None) -> None:
    assert bundled_cudnn(made({HEADER: text})) == version


def test_a_wheel_without_build_settings_shows_no_cudnn() -> None:
    assert bundled_cudnn(made({})) is None


@pytest.mark.parametrize(
    "members",
    [
        {CUDA: b"\0NCCL version 2.10.3+cuda10.2\0"},
        {CUDA: b"\0", "torch/lib/libtorch_cuda_cpp.so": b"\1" * 99 + b"NCCL version 2.10.3+cuda11.7\0"},
    ],
)
def test_nccl_in_libtorch_cuda(members: Mapping[str, bytes]) -> None:
    assert bundled_nccl(made(members)) == "2.10.3"


@pytest.mark.parametrize("before", [(1 << 20) - n for n in range(0, 30, 3)])
def test_the_text_may_straddle_the_pieces_it_is_read_in(before: int) -> None:
    assert bundled_nccl(made({CUDA: b"\1" * before + b"NCCL version 2.7.8+cuda10.2\0"})) == "2.7.8"


def test_a_build_that_links_nccl_from_elsewhere_shows_none() -> None:
    assert bundled_nccl(made({CUDA: b"NCCL version too old", "torch/lib/libtorch_cpu.so": b""})) is None


def test_nothing_is_read_past_the_answer() -> None:
    data = wheel("torch", "1.12.1", {CUDA: b"NCCL version 2.10.3+cuda10.2\0" + bytes(5 << 20)})
    damaged = bytearray(data)
    start = damaged.find(CUDA.encode()) + len(CUDA)
    # zlib needs the stream's start alone for the first piece.
    damaged[start + 4000 : start + 4100] = b"\xff" * 100
    found = WheelFile(io.BytesIO(bytes(damaged)), "torch.whl")
    assert bundled_nccl(found) == "2.10.3"
    with pytest.raises(UsageError, match="libtorch_cuda"):
        list(found.chunks(CUDA))


def test_pins_go_before_what_is_bundled() -> None:
    members: dict[str, bytes | str] = {HEADER: '{"CUDNN_VERSION", "8.5.0"}', CUDA: b"NCCL version 2.14.3+cuda11.7\0"}
    pins = ["nvidia-cudnn-cu11==8.6.0.96"]
    assert torch_libraries(made(members), pins, "manylinux1_x86_64") == ("8.6.0", "2.14.3")
