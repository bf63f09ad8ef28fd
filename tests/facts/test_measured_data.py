"""What the measured files of ``index_data/`` must hold, whoever refreshes them."""

from __future__ import annotations

import re

import pytest
from packaging.requirements import Requirement
from packaging.tags import parse_tag
from packaging.utils import parse_wheel_filename
from packaging.version import Version

from envsolve.facts.builds import Build
from envsolve.facts.catalogue import Catalogue
from envsolve.facts.evidence import Evidence
from envsolve.facts.files import data_folder, read_file
from envsolve.facts.maintain.update import build_order, dump_catalogue_file, group_requires

PACKAGES = ("torch", "triton")
CODE = re.compile(r"(sm|compute)_\d{2,3}[af]?")


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return Catalogue()


def measured(catalogue: Catalogue, package: str) -> list[Build]:
    return [build for build in catalogue.builds(package) if build.index == "default"]


def torch(catalogue: Catalogue, version: str, platform: str) -> Build:
    return next(b for b in measured(catalogue, "torch") if (b.version, b.platform) == (version, platform))


@pytest.mark.parametrize("package", PACKAGES)
def test_every_record_is_whole(catalogue: Catalogue, package: str) -> None:
    for build in measured(catalogue, package):
        assert build.evidence is Evidence.MEASURED
        assert catalogue.source(build.source) is not None
        assert set(build.files) == set(build.pythons)
        assert all(fact.sha256 and fact.size for fact in build.files.values())
        assert all(CODE.fullmatch(code) for code in build.code or ())
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", build.released or "")
        for line in build.requires or ():
            Requirement(line)
        for python in build.pythons:
            name, version, _, tags = parse_wheel_filename(build.filename(python))
            assert (name, version) == (package, Version(build.version))
            assert tags == parse_tag("-".join(build.filename(python)[:-4].split("-")[-3:]))


@pytest.mark.parametrize("package", PACKAGES)
def test_files_are_as_the_writer_writes_them(package: str) -> None:
    path = data_folder() / "builds" / "default" / f"{package}.json"
    file = read_file(path, Build)
    assert list(file.records) == sorted(file.records, key=build_order)
    assert path.read_text("utf-8") == dump_catalogue_file(file.sources, file.records, file.requires)
    used = {group for build in file.records for group in build.requires or ()}
    assert used == set(file.requires)


def test_group_names_are_stable_under_rewriting(catalogue: Catalogue) -> None:
    _, requires = group_requires(measured(catalogue, "torch"))
    assert requires == read_file(data_folder() / "builds" / "default" / "torch.json", Build).requires


@pytest.mark.parametrize(
    ("version", "platform", "variant", "code"),
    [
        ("1.13.1", "manylinux1_x86_64", "cu117", "37 50 60 70 75 80 86"),
        ("2.7.1", "manylinux_2_28_x86_64", "cu126", "50 60 70 75 80 86 90"),
        ("2.8.0", "manylinux_2_28_x86_64", "cu128", "70 75 80 86 90 100 120"),
        ("2.10.0", "manylinux_2_28_aarch64", "cpu", ""),
        ("2.11.0", "manylinux_2_28_aarch64", "cu130", "80 90 100 110 120"),
        ("2.15.0", "manylinux_2_28_x86_64", "cu132", "75 80 86 90 100 120"),
        ("2.15.0", "win_amd64", "cpu", ""),
    ],
)
def test_torch_as_independently_read(
    catalogue: Catalogue, version: str, platform: str, variant: str, code: str
) -> None:
    build = torch(catalogue, version, platform)
    assert (build.variant, build.code) == (variant, tuple(f"sm_{cc}" for cc in code.split()))


@pytest.mark.parametrize(
    ("version", "platform", "cudnn", "nccl", "cxx11_abi"),
    [
        ("1.7.1", "manylinux1_x86_64", "7.6.5", "2.7.8", False),
        ("1.12.1", "manylinux1_x86_64", "7.6.5", "2.10.3", False),
        ("1.13.1", "manylinux1_x86_64", "8.5.0", "2.14.3", False),
        ("2.6.0", "manylinux1_x86_64", "9.1.0", "2.21.5", False),
        ("2.7.1", "manylinux_2_28_x86_64", "9.5.1", "2.26.2", True),
        ("2.15.0", "manylinux_2_28_aarch64", "9.26.0", "2.30.7", True),
        ("2.1.2", "manylinux2014_aarch64", None, None, False),
        ("1.7.1", "win_amd64", None, None, None),
    ],
)
def test_libraries_and_abi_of_torch(
    catalogue: Catalogue, version: str, platform: str, cudnn: str | None, nccl: str | None, cxx11_abi: bool | None
) -> None:
    build = torch(catalogue, version, platform)
    assert (build.cudnn, build.nccl, build.cxx11_abi) == (cudnn, nccl, cxx11_abi)


def test_libraries_and_abi_are_known_of_every_torch_build(catalogue: Catalogue) -> None:
    for build in measured(catalogue, "torch"):
        assert bool(build.cudnn and build.nccl) == (build.variant != "cpu"), (build.version, build.platform)
        assert (build.cxx11_abi is None) == build.platform.startswith("win"), (build.version, build.platform)


def test_the_code_of_every_cuda_build_on_the_default_index_is_measured(catalogue: Catalogue) -> None:
    files = (file for file in catalogue.build_files if file.startswith("builds/default/"))
    builds = [build for file in files for build in catalogue.file(file) if build.variant not in ("cpu", "any")]
    unknown = [build for build in builds if build.code is None]
    assert [(b.package, b.version, b.platform) for b in unknown] == [("xformers", "0.0.31", "win_amd64")]
    documented = [b for b in builds if b not in unknown and b.known("code").evidence is not Evidence.MEASURED]
    assert [(b.package, b.version) for b in documented] == []


def test_a_library_for_another_cuda_than_its_project_names(catalogue: Catalogue) -> None:
    found = {(b.version, b.platform[-6:]): b.cuda for b in catalogue.builds("transformer-engine-cu12")}
    assert found["2.6.0", "x86_64"] == found["2.6.0.post1", "arch64"] == "13.0"
    assert found["2.6.0.post1", "x86_64"] == "12.9"


def test_a_rebuilt_wheel_has_its_build_tag(catalogue: Catalogue) -> None:
    name = torch(catalogue, "2.10.0", "manylinux_2_28_x86_64").filename("cp312")
    assert name == "torch-2.10.0-3-cp312-cp312-manylinux_2_28_x86_64.whl"


def test_what_compiling_against_torch_takes_is_measured_of_every_release(catalogue: Catalogue) -> None:
    linux = {b.version for b in catalogue.file("builds/default/torch") if b.platform.endswith("x86_64")}
    measured = {e.version for e in catalogue.torch_extensions.values() if e.evidence is Evidence.MEASURED}
    assert measured == linux


def test_every_triton_that_torch_pins_is_known(catalogue: Catalogue) -> None:
    tritons = {release.version for release in catalogue.tritons}
    pins = {
        Requirement(line).specifier
        for build in measured(catalogue, "torch")
        for line in build.requires or ()
        if Requirement(line).name == "triton"
    }
    assert pins
    for pin in pins:
        assert any(pin.contains(version) for version in tritons), pin
    assert tritons == {build.version for build in measured(catalogue, "triton")}


def test_the_assemblers_of_a_triton_share_out_all_cards(catalogue: Catalogue) -> None:
    for release in catalogue.tritons:
        first, *rest = release.ptxas
        assert Version(first.min_cc) <= Version(release.min_cc)
        for lower, upper in zip(release.ptxas, rest, strict=False):
            assert lower.max_cc == upper.min_cc
        assert release.ptxas[-1].max_cc is None


def test_newer_toolkits_read_newer_ptx(catalogue: Catalogue) -> None:
    toolkits = catalogue.toolkits
    assert [t.version for t in toolkits] == sorted((t.version for t in toolkits), key=Version)
    isas = [Version(t.ptx_isa) for t in toolkits]
    assert isas == sorted(isas)
    by_version = {t.version: t for t in toolkits}
    for release in catalogue.tritons:
        for ptxas in release.ptxas:
            assert by_version[ptxas.cuda].ptx_isa == ptxas.ptx_isa
            assert by_version[ptxas.cuda].archs == ptxas.archs
