"""What a plan says of the packages that it compiles."""

from __future__ import annotations

from dataclasses import replace

import pytest

from envsolve.catalogue.load import Catalogue
from envsolve.catalogue.model import Build, Evidence
from envsolve.machine.model import Gpu, HostCompiler, Machine, Toolkit
from envsolve.plan import PlannedPackage
from envsolve.planner.toolchain import about_other_sources, compiled_packages, toolchain_for

H100 = Machine(gpus=(Gpu("NVIDIA H100", "9.0"),))


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return Catalogue()


def torch(version: str, cuda: str) -> Build:
    variant = "cu" + cuda.replace(".", "")
    return Build("torch", version, variant, "linux_x86_64", ("cp311",), "default", Evidence.MEASURED, "s", cuda=cuda)


def sdist(name: str, version: str) -> PlannedPackage:
    return PlannedPackage(name, version, None, None, f"{name}-{version}.tar.gz", None, {}, "sdist")


TREE = replace(sdist("my-kernels", "0+unread"), filename=None, url="git+https://example.org/kernels")


@pytest.mark.parametrize(
    ("package", "compiled"),
    [
        (sdist("flash-attn", "2.8.3"), True),
        (sdist("mmcv", "2.2.0"), True),
        (sdist("deepspeed", "0.17.0"), False),  # compiles its operators when they are first used
        (sdist("docopt", "0.6.2"), False),
        (TREE, True),  # what is in a source tree is not known, so that it is prepared for
        (replace(sdist("flash-attn", "2.8.3"), kind="wheel"), False),
    ],
)
def test_what_is_compiled(catalogue: Catalogue, package: PlannedPackage, compiled: bool) -> None:
    found = compiled_packages([package], catalogue)
    assert [one.name for one in found] == ([package.name] if compiled else [])
    others = [c.code for c in about_other_sources([package], found)]
    assert others == (["source-build"] if package.kind == "sdist" and not compiled else [])


def said(catalogue: Catalogue, package: PlannedPackage, build: Build, *machines: Machine) -> dict[str, str]:
    _, cautions = toolchain_for(compiled_packages([package], catalogue), build, machines, catalogue)
    return {caution.code: caution.message for caution in cautions}


def test_a_toolchain_for_several_machines(catalogue: Catalogue) -> None:
    machines = [H100, Machine(gpus=(Gpu(compute_capability="8.0"), Gpu(compute_capability="8.6")))]
    compiled = compiled_packages([sdist("flash-attn", "2.8.3")], catalogue)
    toolchain, _ = toolchain_for(compiled, torch("2.14.0", "13.0"), machines, catalogue)
    assert (toolchain.nvcc, toolchain.TORCH_CUDA_ARCH_LIST) == ("13.0", "8.0;8.6;9.0")
    assert (toolchain.host_compiler, toolchain.host_compilers) == ("gcc 13", "gcc 11 to 15")
    assert toolchain.compiles == ("flash-attn",)
    assert "psutil" in toolchain.build_requires
    assert toolchain.nvcc_packages["pip"] == ("cuda-toolkit[nvcc,nvvm,crt,cudart,cccl]==13.0.*",)
    assert toolchain.nvcc_packages["apt"] == ("cuda-minimal-build-13-0",)


def test_pip_brings_no_whole_nvcc_of_cuda_12(catalogue: Catalogue) -> None:
    toolchain, _ = toolchain_for(compiled_packages([TREE], catalogue), torch("2.9.0", "12.8"), [H100], catalogue)
    assert "pip" not in toolchain.nvcc_packages
    assert "conda-forge::cuda-version=12.8" in toolchain.nvcc_packages["conda"]


@pytest.mark.parametrize(
    ("version", "chosen", "warned"),
    [("12.3.0", "gcc 12", False), ("14.2.0", "gcc 14", False), ("9.4.0", "gcc 13", True), ("16.1.0", "gcc 13", True)],
)
def test_the_machines_own_compiler_is_taken_where_it_serves(
    catalogue: Catalogue, version: str, chosen: str, warned: bool
) -> None:
    machine = replace(H100, host_compilers=(HostCompiler("gcc", version),))
    compiled = compiled_packages([TREE], catalogue)
    toolchain, cautions = toolchain_for(compiled, torch("2.14.0", "13.0"), [machine], catalogue)
    assert toolchain.host_compiler == chosen
    assert ("host-compiler" in {c.code for c in cautions}) is warned


def test_another_nvcc_on_the_machine_is_told(catalogue: Catalogue) -> None:
    machine = replace(H100, toolkits=(Toolkit("12.3", "/usr/local/cuda", True),))
    told = said(catalogue, TREE, torch("2.1.0", "12.1"), machine)
    assert "nvcc 12.3 in /usr/local/cuda" in told["nvcc"] and "CUDA 12.1" in told["nvcc"]
    same = replace(H100, toolkits=(Toolkit("12.1.1", "/usr/local/cuda", True),))
    assert "nvcc" not in said(catalogue, TREE, torch("2.1.0", "12.1"), same)


def test_cards_that_are_not_known_leave_the_arch_list_open(catalogue: Catalogue) -> None:
    compiled = compiled_packages([TREE], catalogue)
    toolchain, cautions = toolchain_for(compiled, torch("2.1.0", "12.1"), [Machine()], catalogue)
    assert toolchain.TORCH_CUDA_ARCH_LIST is None
    assert any(c.code == "toolchain" and c.remedy for c in cautions)


def test_what_a_project_asks_for_and_does_not_get(catalogue: Catalogue) -> None:
    v100 = Machine(gpus=(Gpu("Tesla V100", "7.0"),))
    told = said(catalogue, sdist("flash-attn", "2.8.3"), torch("2.1.0", "11.8"), v100)
    assert "7.0 is not served" in told["extension-gpu"]
    assert "takes CUDA >=12.0" in told["extension-cuda"]
    assert "takes torch >=2.2" in told["extension-torch"]
    assert "FLASH_ATTN_CUDA_ARCHS" in told["extension-archs"]
