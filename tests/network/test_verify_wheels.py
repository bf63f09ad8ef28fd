"""Real wheels compiled for cards that are not there: what comes out agrees with the catalogue, cell by cell."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from envsolve.facts.catalogue import Catalogue
from envsolve.rules.nvidia.code import best_code, triton_runs
from envsolve.rules.verdict import Level
from envsolve.values import ComputeCapability
from envsolve.verify.report import Check, Report
from envsolve.verify.static import check_without_gpu
from tests.network.tools import Tools, program

pytestmark = [
    pytest.mark.network,
    pytest.mark.skipif(sys.platform != "linux", reason="Triton has wheels for Linux alone"),
]
CARDS = tuple(map(ComputeCapability.parse, ["7.5", "8.0", "9.0", "10.0", "12.0", "12.1"]))
CATALOGUE = Catalogue()

# Triton, the toolkit whose NVRTC stands beside it, and the wheels that hold that NVRTC and, from 13 on, a whole nvcc.
SMALL = {
    "triton 3.2, CUDA 12.4": ("3.2.0", "12.4", ["nvidia-cuda-nvrtc-cu12==12.4.*"]),
    "triton 3.3.0, CUDA 12.8": ("3.3.0", "12.8", ["nvidia-cuda-nvrtc-cu12==12.8.*"]),
    "triton 3.3, CUDA 12.8": ("3.3.1", "12.8", ["nvidia-cuda-nvrtc-cu12==12.8.*"]),
    "triton 3.6, CUDA 12.9": ("3.6.0", "12.9", ["nvidia-cuda-nvrtc-cu12==12.9.*"]),
    "triton 3.9, CUDA 13.0": (
        "3.9.0",
        "13.0",
        [f"nvidia-{part}==13.0.*" for part in ("cuda-nvrtc", "cuda-nvcc", "cuda-crt", "nvvm", "cuda-runtime")],
    ),
}


def environment(tools: Tools, name: str, *requirements: str) -> Path:
    folder = tools.folder / name
    tools.run(program("uv"), "venv", "--quiet", "--python", sys.executable, str(folder))
    tools.uv("install", "--quiet", "--python", str(folder / "bin" / "python"), *requirements)
    return folder / "bin" / "python"


def cells(report: Report, name: str) -> dict[str | None, str]:
    return {check.gpu: check.status for check in report.checks if check.name == name}


def toolkit_knows(cuda: str) -> dict[str | None, str]:
    (toolkit,) = (toolkit for toolkit in CATALOGUE.toolkits if toolkit.version == cuda)
    return {str(card): "pass" if card.sm in toolkit.archs else "fail" for card in CARDS}


def triton_knows(version: str) -> dict[str | None, str]:
    (release,) = (release for release in CATALOGUE.tritons if release.version == version)
    # Without a driver the rule tells no more than whether the assembler knows the card: no, or not known to fail.
    reasons = {card: triton_runs(release, card, None, "linux", CATALOGUE.toolkits, CATALOGUE.floors) for card in CARDS}
    return {str(card): "fail" if reason.ok is False else "pass" for card, reason in reasons.items()}


@pytest.mark.parametrize(("triton", "cuda", "wheels"), SMALL.values(), ids=SMALL)
def test_what_compiles_is_what_the_catalogue_says(tools: Tools, triton: str, cuda: str, wheels: list[str]) -> None:
    python = environment(tools, f"small-{triton}", f"triton=={triton}", "setuptools", *wheels)
    report = check_without_gpu(python, CARDS, only=["nvrtc", "nvcc", "triton-compile"])
    assert cells(report, "nvrtc") == toolkit_knows(cuda)
    assert cells(report, "triton-compile") == triton_knows(triton)
    has_nvcc = any("nvcc" in wheel for wheel in wheels)
    assert cells(report, "nvcc") == (toolkit_knows(cuda) if has_nvcc else {str(card): "skip" for card in CARDS})


#: The newest torch, with the compilers of its own CUDA beside it: 3 GB.
TORCH, CUDA = "2.15.0", "13.2"
COMPILERS = [f"cuda-toolkit[nvcc,crt,nvvm,cudart]=={CUDA}.*"]


@pytest.fixture(scope="module")
def python(tools: Tools) -> Path:
    return environment(tools, "torch", f"torch=={TORCH}", *COMPILERS)


@pytest.fixture(scope="module")
def whole(python: Path) -> Report:
    """Everything that can be checked without a GPU."""
    return check_without_gpu(python, [*CARDS, ComputeCapability(7, 0)])


def of(report: Report, name: str) -> dict[str | None, Check]:
    return {check.gpu: check for check in report.checks if check.name == name}


def test_the_newest_torch_agrees_with_the_catalogue_in_every_cell(whole: Report) -> None:
    (build,) = (
        b
        for b in CATALOGUE.builds("torch")
        if b.version == TORCH and b.index == "default" and "x86_64" in b.platform and b.cuda
    )
    assert build.cuda == CUDA
    assert build.code
    (triton,) = (str(Requirement(line).specifier) for line in build.requires or () if line.startswith("triton"))
    known = max((r.version for r in CATALOGUE.tritons if r.version in SpecifierSet(triton)), key=Version)
    older: dict[str | None, str] = {"7.0": "fail"}
    assert cells(whole, "nvrtc") == {**toolkit_knows(CUDA), **older}
    assert cells(whole, "nvcc") == {**toolkit_knows(CUDA), **older}
    assert cells(whole, "triton-compile").items() >= triton_knows(known).items()
    coverage = of(whole, "arch-coverage")
    for card in CARDS:
        level, arch = best_code(build.code, card, CATALOGUE.architectures)
        assert level is not Level.NONE
        assert coverage[str(card)].status == "pass"
        assert arch is not None
        assert f"torch {arch.name}" in coverage[str(card)].detail
    assert coverage["7.0"].cause == "no-kernel-for-gpu"
    assert "torch carries no code for 7.0" in coverage["7.0"].detail


def test_the_libraries_of_a_real_torch_find_each_other_and_all_symbols(whole: Report) -> None:
    check = of(whole, "loader")[None]
    assert check.status == "pass", check.detail
    assert "symbols included" in check.detail


def test_an_extension_for_another_torch_is_told_by_its_symbols(tools: Tools, python: Path) -> None:
    """torchvision 0.26 is for torch 2.11; its nms is not there with any other."""
    other = environment(tools, "mismatched", "--no-deps", "torchvision==0.26.0")
    (site,), (theirs,) = ((exe.parent.parent).glob("lib/python3*/site-packages") for exe in (other, python))
    (site / "torch.pth").write_text(f"{theirs}\n")
    (check,) = check_without_gpu(other, [], only=["loader"]).checks
    assert (check.status, check.cause) == ("fail", "mixed-flavours")
    assert "torchvision/_C.so uses symbols that no library provides: _ZN" in check.detail
    load = "import ctypes, torch, sys; ctypes.CDLL(sys.argv[1])"
    library = site / "torchvision" / "_C.so"
    tried = subprocess.run([other, "-c", load, library], capture_output=True, text=True)
    assert "undefined symbol: _ZN" in tried.stderr
