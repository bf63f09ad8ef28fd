"""Value types: what they read, how they compare and what they print."""

import pytest

from envsolve.values import Arch, ComputeCapability, CudaVersion, DriverVersion, PythonVersion, Variant, processor


@pytest.mark.parametrize(
    ("text", "expected"), [("12.8", (12, 8)), ("12.8.1", (12, 8)), ("13", (13, 0)), ("", (0, 0)), ("none", (0, 0))]
)
def test_cuda_version(text: str, expected: tuple[int, int]) -> None:
    assert CudaVersion.parse(text) == expected


def test_cuda_versions_compare_as_numbers() -> None:
    assert CudaVersion.parse("12.10") > CudaVersion.parse("12.9")
    assert str(CudaVersion.parse("12.8.93")) == "12.8"
    assert CudaVersion.parse("11.8").variant == "cu118"


@pytest.mark.parametrize(("text", "tag"), [("3.12", "cp312"), ("3.9.21", "cp39"), ("3.14.0rc2", "cp314")])
def test_python_version(text: str, tag: str) -> None:
    assert PythonVersion.parse(text).tag == tag


@pytest.mark.parametrize(
    ("have", "need", "expected"),
    [
        ("550.54.15", "525.60.13", True),
        ("525.60", "525.60.13", None),
        ("580", "580.65.06", None),
        ("580", "580.0", True),
        ("470.82.01", "525.60.13", False),
        ("unknown", "525.60.13", None),
    ],
)
def test_driver_reaches(have: str, need: str, expected: bool | None) -> None:
    assert DriverVersion.parse(have).reaches(need) is expected


@pytest.mark.parametrize(("text", "branch"), [("550.54.15", 550), ("550", 550), ("unknown", 0), ("", 0)])
def test_driver_branch(text: str, branch: int) -> None:
    assert DriverVersion.parse(text).branch == branch


@pytest.mark.parametrize(
    ("text", "kind", "version"),
    [
        ("cu126", "cuda", "12.6"),
        ("cu92", "cuda", "9.2"),
        ("rocm6.4", "rocm", "6.4"),
        ("xpu", "xpu", None),
        ("cpu", "cpu", None),
    ],
)
def test_variant(text: str, kind: str, version: str | None) -> None:
    variant = Variant.parse(text)
    assert variant is not None
    assert (variant.kind, variant.version, str(variant)) == (kind, version, text)


@pytest.mark.parametrize("text", ["any", "cuda", "cu1", "rocm", "cpu2", ""])
def test_no_variant(text: str) -> None:
    assert Variant.parse(text) is None


def test_only_cuda_variants_have_a_cuda_version() -> None:
    assert Variant("cuda", "12.6").cuda == CudaVersion(12, 6)
    assert Variant("rocm", "6.4").cuda is None


@pytest.mark.parametrize("text", ["8.9", "89", "sm_89", "compute_89", "SM_89"])
def test_compute_capability(text: str) -> None:
    cc = ComputeCapability.parse(text)
    assert (str(cc), cc.sm) == ("8.9", "sm_89")


def test_not_a_compute_capability() -> None:
    with pytest.raises(ValueError, match="H100"):
        ComputeCapability.parse("H100")


@pytest.mark.parametrize(
    ("name", "kind", "cc", "suffix"),
    [
        ("sm_90a", "sass", (9, 0), "a"),
        ("compute_90", "ptx", (9, 0), ""),
        ("sm_100f", "sass", (10, 0), "f"),
        ("sm_120", "sass", (12, 0), ""),
    ],
)
def test_arch(name: str, kind: str, cc: tuple[int, int], suffix: str) -> None:
    assert Arch.parse(name)[:3] == (kind, cc, suffix)


def test_not_an_arch() -> None:
    with pytest.raises(ValueError, match="gfx1100"):
        Arch.parse("gfx1100")


@pytest.mark.parametrize(("name", "expected"), [("AMD64", "x86_64"), ("arm64", "aarch64"), ("riscv64", "riscv64")])
def test_processor(name: str, expected: str) -> None:
    assert processor(name) == expected


def test_a_number_that_python_does_not_convert_is_none() -> None:
    digits = "9" * 5000
    assert PythonVersion.parse(digits) == (0, 0)
    assert CudaVersion.parse(f"12.{digits}") == (12, 0)
    assert DriverVersion.parse(f"{digits}.1") < DriverVersion.parse("1")
