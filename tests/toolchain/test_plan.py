"""Plans with packages that are compiled."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from envsolve.facts.builds import Build
from envsolve.facts.catalogue import Catalogue
from envsolve.facts.evidence import Evidence
from envsolve.machine.model import Gpu, HostCompiler, Installer, Machine, Platform, Toolkit
from envsolve.solve.outcome import PlannedPackage
from envsolve.toolchain.model import about_other_sources, compiled_packages, compiled_when_used
from envsolve.toolchain.plan import build_needs, toolchain_for, where_it_runs
from tests.planning.worlds import chosen, codes
from tests.smallworld import World

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
    _, cautions = toolchain_for(compiled_packages([package], catalogue), build, machines, None, catalogue)
    return {caution.code: caution.message for caution in cautions}


def test_a_toolchain_for_several_machines(catalogue: Catalogue) -> None:
    machines = [H100, Machine(gpus=(Gpu(compute_capability="8.0"), Gpu(compute_capability="8.6")))]
    compiled = compiled_packages([sdist("flash-attn", "2.8.3")], catalogue)
    toolchain, _ = toolchain_for(compiled, torch("2.14.0", "13.0"), machines, "13.0", catalogue)
    assert (toolchain.nvcc, toolchain.TORCH_CUDA_ARCH_LIST) == ("13.0", "8.0;8.6;9.0")
    assert (toolchain.host_compiler, toolchain.host_compilers) == ("gcc 13", "gcc 11 to 15")
    assert toolchain.compiles == ("flash-attn",)
    assert "psutil" in toolchain.build_requires
    assert toolchain.nvcc_packages["pip"] == ("cuda-toolkit[nvcc,nvvm,crt,cudart,cccl]==13.0.*",)
    assert toolchain.nvcc_packages["apt"] == ("cuda-minimal-build-13-0",)


def test_pip_brings_no_whole_nvcc_of_cuda_12(catalogue: Catalogue) -> None:
    toolchain, _ = toolchain_for(compiled_packages([TREE], catalogue), torch("2.9.0", "12.8"), [H100], None, catalogue)
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
    toolchain, cautions = toolchain_for(compiled, torch("2.14.0", "13.0"), [machine], None, catalogue)
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
    toolchain, cautions = toolchain_for(compiled, torch("2.1.0", "12.1"), [Machine()], None, catalogue)
    assert toolchain.TORCH_CUDA_ARCH_LIST is None and not toolchain.environment
    assert any(c.code == "toolchain" and c.remedy for c in cautions)


def test_what_a_project_asks_for_and_does_not_get(catalogue: Catalogue) -> None:
    v100 = Machine(gpus=(Gpu("Tesla V100", "7.0"),))
    told = said(catalogue, sdist("flash-attn", "2.8.3"), torch("2.1.0", "11.8"), v100)
    assert "not for 7.0" in told["extension-gpu"]
    assert "requires CUDA >=12.0" in told["extension-cuda"]
    assert "requires torch >=2.2" in told["extension-torch"]
    assert "FLASH_ATTN_CUDA_ARCHS" in told["extension-archs"]
    blind = said(catalogue, sdist("minkowskiengine", "0.5.4"), torch("2.1.0", "11.8"), v100)
    assert "only for the CPU if no GPU is visible" in blind["extension-sees-gpu"]


@pytest.mark.parametrize(
    ("name", "version", "cards", "variable", "value"),
    [
        ("flash-attn", "2.8.3", ("8.6", "9.0", "8.9"), "FLASH_ATTN_CUDA_ARCHS", "80;90"),  # its list knows no 8.6
        ("tinycudann", "2.0", ("8.6", "9.0"), "TCNN_CUDA_ARCHITECTURES", "86,90"),
        ("natten", "0.21.6", ("9.0", "10.0"), "NATTEN_CUDA_ARCH", "9.0;10.0"),
        ("detectron2", "0.6", ("9.0",), "FORCE_CUDA", "1"),  # else it makes no CUDA code where no GPU is in sight
    ],
)
def test_the_variables_that_a_project_reads(
    catalogue: Catalogue, name: str, version: str, cards: tuple[str, ...], variable: str, value: str
) -> None:
    machine = Machine(gpus=tuple(Gpu(compute_capability=cc) for cc in cards))
    compiled = compiled_packages([sdist(name, version)], catalogue)
    toolchain, _ = toolchain_for(compiled, torch("2.15.0", "13.2"), [machine], "13.0", catalogue)
    assert toolchain.environment[variable] == value


@pytest.mark.parametrize(
    ("toolkits", "cuda", "origin", "home"),
    [
        ((), "13.0", "pip", "{site_packages}/nvidia/cu13"),
        ((Toolkit("13.0.2", "/usr/local/cuda-13.0", True),), "13.0", "machine", "/usr/local/cuda-13.0"),
        ((Toolkit("13.0.2", "/usr/local/cuda-13.0", False),), "13.0", "pip", "{site_packages}/nvidia/cu13"),
        ((Toolkit("13.0", "/opt/cuda", True), Toolkit("13.0", "/a-13.0", True)), "13.0", "machine", "/a-13.0"),
        ((Toolkit("12.6", "/usr/local/cuda", True),), "12.8", None, None),
        ((Toolkit("12.8.1", "/usr/local/cuda", True),), "12.8", "machine", "/usr/local/cuda"),
    ],
)  # fmt: skip
def test_which_nvcc_it_is(
    catalogue: Catalogue, toolkits: tuple[Toolkit, ...], cuda: str, origin: str | None, home: str | None
) -> None:
    machine = replace(H100, toolkits=toolkits)
    compiled = compiled_packages([TREE], catalogue)
    toolchain, cautions = toolchain_for(compiled, torch("2.11.0", cuda), [machine], "13.0", catalogue)
    assert (toolchain.nvcc, toolchain.nvcc_from, toolchain.CUDA_HOME) == (cuda, origin, home)
    asked_for = {need.requirement.name for need in build_needs(toolchain)}
    assert ("cuda-toolkit" in asked_for) is (origin == "pip") and "ninja" in asked_for
    assert ("nvcc" in {c.code for c in cautions}) is (origin is None)


def test_a_toolkit_that_one_of_several_machines_has_is_not_everyones(catalogue: Catalogue) -> None:
    having = replace(H100, toolkits=(Toolkit("13.0", "/usr/local/cuda", True),))
    compiled = compiled_packages([TREE], catalogue)
    toolchain, _ = toolchain_for(compiled, torch("2.11.0", "13.0"), [having, H100], None, catalogue)
    assert toolchain.nvcc_from == "pip"


@pytest.mark.parametrize(
    ("machine", "command"),
    [
        (H100, "micromamba create -y -p ~/cuda-12.8 -c conda-forge conda-forge::cuda-nvcc"),
        (replace(H100, installers=(Installer("mamba"),)), "mamba create -y -p ~/cuda-12.8 -c conda-forge"),
        (replace(H100, platform=Platform(distro="ubuntu 24.04")), "sudo apt-get install cuda-minimal-build-12-8"),
    ],
)  # fmt: skip
def test_the_shortest_way_to_a_toolchain(catalogue: Catalogue, machine: Machine, command: str) -> None:
    compiled = compiled_packages([TREE], catalogue)
    toolchain, cautions = toolchain_for(compiled, torch("2.9.0", "12.8"), [machine], "13.0", catalogue)
    assert toolchain.get_nvcc is not None and toolchain.get_nvcc.startswith(command)
    assert "export CUDA_HOME=" in toolchain.get_nvcc
    (told,) = [c for c in cautions if c.code == "nvcc"]
    assert told.remedy is not None and told.remedy.startswith(toolchain.get_nvcc)


@pytest.mark.parametrize(
    ("cc", "driver_cuda", "toolkits", "nvcc", "origin"),
    [
        ("9.0", "13.0", (), "13.0", "pip"),
        ("9.0", "13.2", (), "13.2", "pip"),
        ("9.0", "12.4", (), "12.4", None),
        ("7.0", "13.0", (), "12.9", None),  # nvcc 13 dropped Volta
        ("9.0", "13.2", (Toolkit("12.6", "/usr/local/cuda", True),), "12.6", "machine"),
        ("12.0", "13.2", (Toolkit("12.6", "/usr/local/cuda", True),), "13.2", "pip"),  # 12.6 does not know the GPU
        ("9.0", "13.0", (Toolkit("13.2", "/usr/local/cuda", True),), "13.0", "pip"),  # newer than the driver
        ("9.0", None, (), None, None),
        ("12.0", "12.4", (), None, None),
    ],
)
def test_without_torch_the_driver_decides(
    catalogue: Catalogue,
    cc: str,
    driver_cuda: str | None,
    toolkits: tuple[Toolkit, ...],
    nvcc: str | None,
    origin: str | None,
) -> None:
    machine = Machine(gpus=(Gpu(compute_capability=cc),), toolkits=toolkits)
    compiled = compiled_packages([sdist("pycuda", "2026.1")], catalogue)
    toolchain, cautions = toolchain_for(compiled, None, [machine], driver_cuda, catalogue)
    assert (toolchain.nvcc, toolchain.nvcc_from) == (nvcc, origin)
    assert toolchain.TORCH_CUDA_ARCH_LIST is None
    assert ("toolchain" in {c.code for c in cautions}) is (nvcc is None)


def test_what_compiles_where_it_runs_finds_its_nvcc_there(catalogue: Catalogue) -> None:
    packages = [sdist("pycuda", "2026.1"), replace(sdist("gsplat", "1.5.3"), kind="wheel")]
    assert not compiled_when_used(packages, ["pycuda"], catalogue)  # gsplat came along with something
    used = compiled_when_used(packages, ["gsplat"], catalogue)
    toolchain, cautions = toolchain_for(used, torch("2.15.0", "13.2"), [H100], "13.0", catalogue)
    assert (toolchain.compiles, toolchain.compiles_at_use) == ((), ("gsplat",))
    home = "{site_packages}/nvidia/cu13"
    assert where_it_runs(toolchain) == {"CUDA_HOME": home, "PATH": f"{home}/bin:$PATH"}
    assert "compiles-at-use" in {c.code for c in cautions}
    both, _ = toolchain_for(compiled_packages(packages, catalogue), None, [H100], "13.0", catalogue)
    assert both.compiles == both.compiles_at_use == ("pycuda",)
    assert "cuda-toolkit[curand]==13.0.*" in both.nvcc_packages["pip"]


def test_no_ptx_is_left_to_an_older_driver(catalogue: Catalogue) -> None:
    compiled = compiled_packages([TREE], catalogue)
    older, _ = toolchain_for(compiled, torch("2.15.0", "13.2"), [H100], "13.0", catalogue)
    assert "the build generates no PTX, because the driver cannot compile PTX newer than CUDA 13.0" in older.checks
    same, _ = toolchain_for(compiled, torch("2.15.0", "13.2"), [H100], "13.2", catalogue)
    assert "the driver fully supports CUDA 13.2, so it also compiles PTX of nvcc 13.2" in same.checks
    assert all("+PTX" not in (one.TORCH_CUDA_ARCH_LIST or "+PTX") for one in (older, same))


def test_a_project_in_a_newer_cxx_takes_a_newer_gcc(catalogue: Catalogue) -> None:
    compiled = compiled_packages([sdist("pyg-lib", "0.8.0")], catalogue)
    toolchain, _ = toolchain_for(compiled, torch("2.1.0", "12.1"), [H100], None, catalogue)
    assert toolchain.gcc_min == 11 and toolchain.gcc_max == 12


def test_what_is_compiled_against_torch_gets_one(torch_world: World) -> None:
    torch_world.default.sdist("torch-scatter", "2.1.2", upload_time="2024-01-01T00:00:00Z")  # and does not say so
    torch_world.default.wheel("setuptools", "80.0", upload_time="2024-01-01T00:00:00Z")
    plan = torch_world.plan("torch-scatter")
    assert "torch" in chosen(plan) and plan.toolchain is not None
    assert plan.toolchain.compiles == ("torch-scatter",)
    assert "setuptools" in chosen(plan)  # the build is not isolated
    assert "cuda-toolkit" in next(w.message for w in plan.warnings if w.code == "build-requires")
    assert "not-judged" not in codes(plan)


def test_what_the_build_needs_and_the_index_lacks_is_told(torch_world: World) -> None:
    torch_world.default.sdist("torch-scatter", "2.1.2", upload_time="2024-01-01T00:00:00Z")
    plan = torch_world.plan("torch-scatter")
    (told,) = [w.message for w in plan.warnings if w.code == "build-requires"]
    assert "setuptools" in told


def test_wheels_of_the_same_project_are_named(catalogue: Catalogue) -> None:
    compiled = compiled_packages([sdist("cupy", "14.2.0")], catalogue)
    toolchain, cautions = toolchain_for(compiled, None, [H100], "13.0", catalogue)
    assert "request cupy-cuda13x to compile nothing" in {c.remedy for c in cautions}
    assert "cuda-toolkit[cublas]==13.0.*" in toolchain.nvcc_packages["pip"]


def test_an_extension_that_is_on_no_index_is_asked_for_by_its_repository(torch_world: World) -> None:
    plan = torch_world.plan("tinycudann")
    assert plan.status == "impossible"
    address = "git+https://github.com/NVlabs/tiny-cuda-nn@v2.0#subdirectory=bindings/torch"
    assert plan.remedies[0].text == f"request 'tinycudann @ {address}'"
    assert torch_world.plan(f"tinycudann @ {address}").toolchain is not None


def test_a_variant_for_the_nvcc_that_is_there_is_the_shorter_way(catalogue: Catalogue) -> None:
    machine = replace(H100, toolkits=(Toolkit("12.8.1", "/usr/local/cuda", True),))
    build = next(b for b in catalogue.builds("torch") if (b.version, b.variant) == ("2.9.0", "cu126"))
    remedies = []
    for driver_cuda in ("12.8", "13.0"):
        _, cautions = toolchain_for(compiled_packages([TREE], catalogue), build, [machine], driver_cuda, catalogue)
        remedies += [c.remedy or "" for c in cautions if c.code == "nvcc"]
    assert remedies[0].startswith("--cuda cu128, for which the machine has an nvcc; or: micromamba")
    assert "--cuda cu130, for which the default index has an nvcc; or: " in remedies[1]


def test_without_a_driver_nobody_knows_which_nvcc_fits(torch_world: World) -> None:
    torch_world.default.sdist("pycuda", "2026.1", upload_time="2024-01-01T00:00:00Z")
    assert torch_world.plan("pycuda", target="H100").status == "unknown"
    assert torch_world.plan("pycuda", target="H100, driver 580.95").status == "ok"
