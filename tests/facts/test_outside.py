"""Wheels that stand on no package index, and projects that are compiled: what the shipped catalogue says of them."""

from __future__ import annotations

from itertools import pairwise

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from envsolve.facts.builds import Build
from envsolve.facts.catalogue import Catalogue
from envsolve.facts.maintain.lookup import find_facts
from envsolve.machine.completed import machine_from_target
from envsolve.machine.target import parse_target
from envsolve.planning.builds import list_builds
from envsolve.values import ComputeCapability

RELEASES = ("flash-attn", "causal-conv1d", "mamba-ssm", "natten")
PYG = ("torch-scatter", "torch-sparse", "torch-cluster", "torch-spline-conv", "pyg-lib")


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return Catalogue()


def wheels(catalogue: Catalogue, package: str, version: str, local: str) -> list[Build]:
    return [b for b in catalogue.builds_outside(package) if (b.version, b.local) == (version, local)]


def address(catalogue: Catalogue, build: Build, python: str) -> str:
    place = catalogue.indexes[build.index]
    filled = {
        "variant": build.variant,
        "torch": (build.torch or "").removeprefix("==").removesuffix(".*"),
        "tag": place.tags.get(build.version, f"v{build.version}"),
        "filename": build.filename(python),
    }
    return place.url.format(**filled)


def test_a_plan_is_not_offered_what_only_an_address_leads_to(catalogue: Catalogue) -> None:
    for package in (*RELEASES, *PYG):
        assert catalogue.builds(package) == ()
        assert catalogue.builds_outside(package)
    assert {"flash-attn", "torch"} <= set(catalogue.packages())


@pytest.mark.parametrize(
    ("package", "version", "local", "python", "expected"),
    [
        (
            "flash-attn",
            "2.8.3",
            "+cu12torch2.8cxx11abiTRUE",
            "cp312",
            "https://github.com/Dao-AILab/flash-attention/releases/download/v2.8.3/"
            "flash_attn-2.8.3+cu12torch2.8cxx11abiTRUE-cp312-cp312-linux_x86_64.whl",
        ),
        (
            "causal-conv1d",
            "1.6.1",
            "+cu13torch2.10cxx11abiTRUE",
            "cp313",
            "https://github.com/Dao-AILab/causal-conv1d/releases/download/v1.6.1.post4/"
            "causal_conv1d-1.6.1+cu13torch2.10cxx11abiTRUE-cp313-cp313-linux_x86_64.whl",
        ),
        (
            "mamba-ssm",
            "2.2.6.post3",
            "+cu12torch2.7cxx11abiTRUE",
            "cp311",
            "https://github.com/state-spaces/mamba/releases/download/v2.2.6.post3/"
            "mamba_ssm-2.2.6.post3+cu12torch2.7cxx11abiTRUE-cp311-cp311-linux_x86_64.whl",
        ),
        ("torch-scatter", "2.1.2", "+pt28cu128", "cp312", "https://data.pyg.org/whl/torch-2.8.0+cu128.html"),
        (
            "natten",
            "0.21.0",
            "+torch270cu128",
            "cp311",
            "https://github.com/SHI-Labs/NATTEN/releases/download/v0.21.0/"
            "natten-0.21.0+torch270cu128-cp311-cp311-linux_x86_64.whl",
        ),
        (
            "vllm",
            "0.25.1",
            "+cu129",
            "cp38-abi3",
            "https://github.com/vllm-project/vllm/releases/download/v0.25.1/"
            "vllm-0.25.1+cu129-cp38-abi3-manylinux_2_28_x86_64.whl",
        ),
    ],
)
def test_the_address_of_a_wheel_follows_from_its_place(
    catalogue: Catalogue, package: str, version: str, local: str, python: str, expected: str
) -> None:
    found = [b for b in wheels(catalogue, package, version, local) if b.platform.endswith("x86_64")]
    assert [address(catalogue, build, python) for build in found] == [expected]


def test_every_place_gives_an_address_for_every_build(catalogue: Catalogue) -> None:
    for package in catalogue.packages():
        for build in catalogue.builds_outside(package):
            assert address(catalogue, build, build.pythons[0]).startswith("https://")


@pytest.mark.parametrize(
    ("package", "version", "local", "abi"),
    [
        ("flash-attn", "2.7.4.post1", "+cu12torch2.6cxx11abiFALSE", False),
        # Compiled beside torch 2.6+cu126, which has the new ABI: flash-attention issue 1783.
        ("flash-attn", "2.8.2", "+cu12torch2.6cxx11abiFALSE", True),
        ("flash-attn", "2.8.3", "+cu12torch2.8cxx11abiFALSE", True),
        ("flash-attn", "2.8.3", "+cu12torch2.5cxx11abiFALSE", False),
        ("flash-attn", "2.8.3", "+cu12torch2.5cxx11abiTRUE", True),
    ],
)
def test_the_abi_is_that_of_the_compiler_whatever_the_name_says(
    catalogue: Catalogue, package: str, version: str, local: str, abi: bool
) -> None:
    (build,) = wheels(catalogue, package, version, local)
    assert build.cxx11_abi is abi
    assert bool(build.disputed) is (local.endswith("FALSE") and abi)


def test_release_wheels_carry_only_code_that_their_toolkit_compiles(catalogue: Catalogue) -> None:
    known = {toolkit.version: set(toolkit.archs) for toolkit in catalogue.toolkits}
    for package in (*RELEASES, *PYG):
        for build in catalogue.builds_outside(package):
            sass = {code for code in build.code or () if code.startswith("sm_")}
            assert build.cuda is None or sass <= known[build.cuda], (package, build.version, build.cuda)
            assert sass or package not in RELEASES


@pytest.mark.parametrize(
    ("target", "version", "verdict"),
    [
        ("H100, driver 580, python 3.12, linux-x86_64, glibc 2.35", "2.8.3", {"native"}),
        ("RTX 4090, driver 550.54, python 3.12, linux-x86_64, glibc 2.35", "2.7.4.post1", {"family"}),
        ("RTX 5090, driver 580, python 3.12, linux-x86_64, glibc 2.35", "2.8.3", {"native"}),
        ("RTX 5090, driver 580, python 3.12, linux-x86_64, glibc 2.35", "2.6.3", {"none"}),
        ("V100, driver 550.54, python 3.12, linux-x86_64, glibc 2.35", "2.8.3", {"none"}),
        ("H100, driver 580, python 3.12, linux-x86_64, glibc 2.31", "2.8.3", {"none"}),
    ],
)
def test_flash_attention_is_judged_like_any_other_build(
    catalogue: Catalogue, target: str, version: str, verdict: set[str]
) -> None:
    named = machine_from_target(parse_target(target), catalogue)
    found = list_builds("flash-attn", [named], "3.12", catalogue)
    here = [b for b in found.builds if b.version == version and b.platform == "linux_x86_64" and b.variant != "cu130"]
    assert {b.verdict for b in here if "cp312" in b.pythons} == verdict
    assert all(b.torch for b in here)


def test_vllm_has_a_wheel_of_the_other_cuda_major_beside_that_of_the_default_index(catalogue: Catalogue) -> None:
    majors = {b.version: b.variant[:4] for b in catalogue.builds("vllm")}
    recent = [b for b in catalogue.builds_outside("vllm") if Version(b.version) >= Version("0.12")]
    assert recent and all(b.variant[:4] != majors[b.version] for b in recent)
    assert all(b.torch for b in recent)


@pytest.mark.parametrize(
    ("package", "local", "code"),
    [
        # The CUDA 12.8 wheels were compiled for the cards of 12.6; a GPU that is younger compiles their oldest code.
        ("torch-scatter", "+pt28cu128", ("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90", "compute_50")),
        (
            "torch-scatter",
            "+pt28cu129",
            ("sm_70", "sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120", "compute_120"),
        ),
    ],
)
def test_pyg_extensions_carry_what_their_build_settings_ask_for(
    catalogue: Catalogue, package: str, local: str, code: tuple[str, ...]
) -> None:
    found = [b for b in wheels(catalogue, package, "2.1.2", local) if b.platform == "linux_x86_64"]
    assert [b.code for b in found] == [code]


def test_what_is_shown_names_the_sources_of_single_fields(catalogue: Catalogue) -> None:
    shown = find_facts(catalogue, "flash_attn", ["2.8.3", "cu129"])
    cited = {c.source for build in shown.builds for c in build.cited.values()}
    assert cited and cited <= set(shown.sources)


def test_one_record_of_a_compiled_project_answers_for_a_version(catalogue: Catalogue) -> None:
    """Ranges of one project stand in order and never meet, so that the last is the newest."""
    ranges: dict[str, list[SpecifierSet]] = {}
    for project in catalogue.source_projects:
        ranges.setdefault(project.package, []).append(SpecifierSet(project.versions))
        assert project.package == canonicalize_name(project.package)
        for text in (project.torch, project.cuda):
            assert text is None or SpecifierSet(text)
        for line in project.build_requires:
            Requirement(line)
        assert project.min_cc is None or ComputeCapability.parse(project.min_cc)
        assert set(project.tools) <= {"nvcc", "c++", "cmake", "ninja"}
    for own in ranges.values():
        for older, newer in pairwise(own):
            (last,) = [part.version for part in older if part.operator == "<"]
            (first,) = [part.version for part in newer if part.operator == ">="]
            assert Version(last) <= Version(first)


def test_an_extension_of_torch_is_built_beside_it(catalogue: Catalogue) -> None:
    built = [p for p in catalogue.source_projects if p.compiles == "install" and p.package != "cupy"]
    assert all(any(Requirement(line).name == "torch" for line in p.build_requires) for p in built)


@pytest.mark.parametrize(
    ("package", "version", "expected"),
    [
        ("flash-attn", "2.8.3.post2", {"cuda": ">=12.0", "min_cc": "8.0", "arch_variable": "FLASH_ATTN_CUDA_ARCHS"}),
        ("flash-attn", "2.7.2.post1", {"cuda": ">=11.7", "arch_variable": None}),
        ("pycuda", "2026.1", {"compiles": "both", "torch": None, "tools": ("nvcc", "c++")}),
        ("deepspeed", "0.19.8", {"compiles": "use", "arch_variable": "TORCH_CUDA_ARCH_LIST"}),
        ("nvdiffrast", "0.3.5", {"compiles": "use"}),
        ("nvdiffrast", "0.4.0", {"compiles": "install"}),
        ("tinycudann", "2.0", {"arch_variable": "TCNN_CUDA_ARCHITECTURES"}),
        ("natten", "0.21.6", {"arch_variable": "NATTEN_CUDA_ARCH", "torch": ">=2.5"}),
        ("mamba-ssm", "2.3.2.post1", {"min_cc": "7.5"}),
        ("xformers", "0.0.29.post3", {"torch": ">=2.4"}),
    ],
)
def test_what_compiling_takes(catalogue: Catalogue, package: str, version: str, expected: dict[str, object]) -> None:
    (found,) = [
        p for p in catalogue.source_projects if p.package == package and SpecifierSet(p.versions).contains(version)
    ]
    assert {name: getattr(found, name) for name in expected} == expected


def test_the_apex_of_the_package_index_is_another_project(catalogue: Catalogue) -> None:
    (apex,) = [p for p in catalogue.source_projects if p.package == "apex"]
    assert not SpecifierSet(apex.versions).contains("0.9.10.dev0", prereleases=True)
