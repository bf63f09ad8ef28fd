"""Packages bound to a CUDA family, measured from wheels made by hand."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence

import pytest

from envsolve.binaries.files import WheelFile
from envsolve.binaries.library import cuda_major
from envsolve.facts.builds import Build
from envsolve.facts.evidence import Evidence
from envsolve.facts.maintain.companions import bound_builds, torch_of
from tests.binaries.artefacts import elf, pe, wheel
from tests.facts.test_refresh import Memory, Published

LINUX = "manylinux_2_28_x86_64"


def torch(version: str, variant: str, cuda: str, index: str = "default") -> Build:
    return Build("torch", version, variant, LINUX, ("cp312",), index, Evidence.MEASURED, "s", cuda=cuda)


TORCHES = (
    torch("2.10.0", "cu128", "12.8"),
    torch("2.14.0", "cu130", "13.0"),
    torch("2.14.1", "cu130", "13.0"),
    torch("2.14.1", "cu132", "13.2", "pytorch"),
)


def major_of(members: Mapping[str, bytes | str]) -> int | None:
    return cuda_major(WheelFile(io.BytesIO(wheel("x", "1", members)), "x-1-py3-none-any.whl"))


@pytest.mark.parametrize(
    ("members", "major"),
    [
        ({"x/a.abi3.so": elf(["libtorch.so", "libcudart.so.13"])}, 13),
        ({"x/a.so": elf(["libcuda.so.1", "libnvrtc.so.12"])}, 12),
        ({"x/a.so": elf(["libcudart.so.11.0"])}, 11),
        ({"x/a.so": elf(["libcudart-d0da41ae.so.11.0"])}, 11),
        ({"x/a.so": elf(["libcudart.so.12"]), "x/tiny.so": elf(["libtorch.so"])}, 12),
        ({"x/a.so": elf(["libtorch_cuda.so", "libcusparse.so.12"])}, None),
        ({"x/a.dll": pe(["c10_cuda.dll", "cudart64_12.dll"])}, 12),
        ({"x/a.pyd": pe(["cudart64_110.dll"])}, 11),
        ({"x/a.dll": pe(["KERNEL32.dll"], ["cublas64_13.dll", "cublasLt64_13.dll"])}, 13),  # the runtime is linked in
        ({"x/a.dll": pe(["cublas64_13.dll"], tail=b"see cudart64_12.dll\0")}, 13),
        ({"x/a.dll": pe(["KERNEL32.dll"], tail=b"cudart64_12.dll\0")}, 12),
        ({"x/a.dll": pe(["cudnn64_9.dll"], tail=b"cudart64_12.dll\0..see cudart64_13.dll\0")}, None),
        ({"x/a.py": "cudart64_12.dll"}, None),
    ],
)
def test_the_major_is_that_of_the_runtime_needed(members: Mapping[str, bytes | str], major: int | None) -> None:
    assert major_of(members) == major


@pytest.mark.parametrize(
    ("lines", "torch"),
    [
        (["numpy", "torch==2.14.0", "torch==2.15.0; extra == 'all'"], "==2.14.0"),
        (["torch>=2.8; platform_machine != 'aarch64'", "torch >=2.8; platform_machine == 'aarch64'"], ">=2.8"),
        (["torch==2.8.0; sys_platform == 'linux'", "torch==2.9.0; sys_platform == 'win32'"], None),
        (["torch==2.8.0; extra == 'gpu'"], None),
        (["torch", "torchvision==0.29.0", "not a requirement"], None),
    ],
)
def test_the_torch_that_metadata_names(lines: Sequence[str], torch: str | None) -> None:
    assert torch_of(lines) == torch


def published(name: str, version: str, requires: Sequence[str], needed: Sequence[str]) -> Published:
    data = wheel(name, version, {"x/a.so": elf(needed)}, requires=requires)
    return Published(f"{name}-{version}-cp38-abi3-{LINUX}.whl", data)


@pytest.mark.parametrize(
    ("name", "requires", "needed", "variant", "evidence"),
    [
        ("vllm", ["torch==2.14.0"], ["libcudart.so.13"], "cu130", Evidence.MEASURED),
        ("vllm", ["torch>=2.14"], ["libcudart.so.13"], "cu130", Evidence.MEASURED),
        ("vllm", ["torch==2.10.0"], ["libcudart.so.12"], "cu128", Evidence.MEASURED),
        ("vllm", ["torch==2.10.0"], ["libcudart.so.13"], "cu130", Evidence.MEASURED),
        ("torch-tensorrt", ["torch==2.10.0", "tensorrt-cu12"], [], "cu128", Evidence.PUBLISHED),
        ("transformer-engine-cu12", ["numpy"], [], "cu120", Evidence.PUBLISHED),
    ],
)
def test_a_bound_build(
    name: str, requires: Sequence[str], needed: Sequence[str], variant: str, evidence: Evidence
) -> None:
    index = Memory([published(name.replace("-", "_"), "1.0", requires, needed)])
    (build,) = bound_builds(index, name, "0.1", "s", TORCHES)
    assert (build.variant, build.evidence, build.pythons) == (variant, evidence, ("cp38-abi3",))
    assert build.code is None


def test_a_library_tells_its_cuda_better_than_the_name_of_its_project() -> None:
    library = {"transformer_engine/libtransformer_engine.so": elf(["libcudart.so.13"])}
    data = wheel("transformer_engine_cu12", "2.6.0", library, requires=["numpy"])
    index = Memory([Published(f"transformer_engine_cu12-2.6.0-py3-none-{LINUX}.whl", data)])
    (build,) = bound_builds(index, "transformer-engine-cu12", "0.1", "s", TORCHES)
    assert (build.variant, build.cuda, build.evidence) == ("cu130", "13.0", Evidence.MEASURED)


@pytest.mark.parametrize(
    ("version", "requires", "needed"),
    [
        ("1.0", ["torch==2.14.0"], ["libtorch.so"]),  # not bound to a CUDA, as far as can be seen
        ("1.0", ["numpy"], ["libcudart.so.13"]),  # its torch is not known, so no record may claim one
        ("1.0rc1", ["torch==2.14.0"], ["libcudart.so.13"]),
    ],
)
def test_no_record_is_better_than_a_guess(version: str, requires: Sequence[str], needed: Sequence[str]) -> None:
    index = Memory([published("vllm", version, requires, needed)])
    assert bound_builds(index, "vllm", "0.1", "s", TORCHES) == []
