"""The shipped catalogue: every file decodes, and the facts in it agree with one another."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.tags import parse_tag
from packaging.utils import parse_wheel_filename
from packaging.version import Version

from envsolve.facts.builds import Build
from envsolve.facts.catalogue import Catalogue
from envsolve.facts.evidence import Dispute, Evidence
from envsolve.facts.files import CatalogueFile, data_folder, kind_of
from envsolve.values import ComputeCapability

FOLDER = data_folder()
FILES = sorted(path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*.json"))
BUILD_FILES = [name for name in FILES if name.startswith("builds/")]
CODE = re.compile(r"(sm|compute)_\d{2,3}[af]?")


@cache
def read(name: str) -> CatalogueFile[Any]:
    record = kind_of(name).record
    file: CatalogueFile[Any] = msgspec.json.decode(
        (FOLDER / name).read_bytes(),
        type=CatalogueFile[record],  # type: ignore[valid-type]
    )
    return file


def builds() -> Iterator[Build]:
    for name in BUILD_FILES:
        yield from read(name).records


def dotted(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


def increasing(values: list[tuple[int, ...]]) -> bool:
    return all(a <= b for a, b in pairwise(values))


def sources_of(record: Any) -> Iterator[str]:
    """Every source id that a record names."""
    yield record.source
    yield from (citation.source for citation in getattr(record, "cited", {}).values())
    yield from (dispute.source for dispute in getattr(record, "disputed", ()))
    yield from (source for fact in getattr(record, "files", {}).values() for source in fact.sources)


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return Catalogue()


# All files in one test: a test of its own for each of the 100 takes longer than what it checks.


def test_a_file_decodes_and_names_its_sources() -> None:
    for name in FILES:
        file = read(name)
        cited = {source for record in file.records for source in sources_of(record)}
        assert cited == set(file.sources), f"{name}: every cited source is there, and none is idle"
        for source in file.sources.values():
            assert re.fullmatch(r"\d{4}-\d{2}-\d{2}", source.date), name
            assert source.url is None or source.url.startswith("https://"), name


def test_citations_and_disputes_are_about_fields_and_the_better_evidence_wins() -> None:
    for record in (record for name in FILES for record in read(name).records):
        for field, citation in getattr(record, "cited", {}).items():
            value = getattr(record, field)
            assert value or value is False or (field, value) == ("code", ()), f"{field} is cited and not there"
            assert (citation.evidence, citation.source) != (record.evidence, record.source), record
        disputed: tuple[Dispute, ...] = getattr(record, "disputed", ())
        for dispute in disputed:
            known = getattr(record, "cited", {}).get(dispute.field, record)
            assert hasattr(record, dispute.field), record
            assert known.evidence.rank <= dispute.evidence.rank, f"what is known better wins: {record}"


def test_a_file_has_one_record_a_line() -> None:
    for name in FILES:
        text = (FOLDER / name).read_text()
        lines = [line for line in text.partition('"records": [')[2].splitlines() if line.startswith("  {")]
        assert len(lines) == len(read(name).records), name


def test_builds_belong_to_their_file_and_are_unique(catalogue: Catalogue) -> None:
    for name in BUILD_FILES:
        _, index, package = Path(name).with_suffix("").parts
        found = read(name).records
        keys = Counter((b.version, b.local, b.variant, b.platform, python) for b in found for python in b.pythons)
        assert [key for key, count in keys.items() if count > 1] == [], name
        assert {(b.package, b.index) for b in found} == {(package, index)}
        assert index == "default" or index in catalogue.indexes


def test_a_build_gives_file_names_that_installers_can_read() -> None:
    for build in builds():
        assert build.pythons, build
        for python in build.pythons:
            project, version, build_tag, tags = parse_wheel_filename(build.filename(python))
            assert project == build.package
            assert version == Version(build.version + build.local), build
            assert "".join(map(str, build_tag)) == build.build_tag, build
            assert tags == parse_tag("-".join(build.filename(python)[:-4].split("-")[-3:])), build
        assert set(build.files) <= set(build.pythons), build
        assert build.local in ("", f"+{build.variant}") or _names_its_keys(build), build


def _names_its_keys(build: Build) -> bool:
    """Whether a local version says what the record does: ``+cu12torch2.8cxx11abiTRUE``, ``+pt28cu128``."""
    named = re.search(r"(cpu|cu\d+)", build.local)
    torch = re.search(r"torch(\d+\.\d+)|pt(\d)(\d+)|torch(\d)(\d+)0cu", build.local)
    if named is None or torch is None:
        return False
    minor = ".".join(part for part in torch.groups() if part)
    return build.variant.startswith(named[1]) and build.torch == f"=={minor}.*"


def test_a_build_states_its_variant_consistently() -> None:
    for build in builds():
        if build.variant in ("cpu", "any") and build.cuda is None:
            assert not build.code, build
        elif build.variant == "any":
            assert build.code, f"its CUDA is that of kernels: {build}"
        else:
            assert build.cuda is not None and re.fullmatch(r"\d+\.\d+", build.cuda), build
            assert build.variant == "cu" + build.cuda.replace(".", ""), build
        for code in build.code or ():
            assert CODE.fullmatch(code), build
        if build.torch is not None:
            assert SpecifierSet(build.torch), build
        if build.torch_cuda is not None:
            assert build.cuda and SpecifierSet(build.torch_cuda), build
        if build.requires_python is not None:
            assert SpecifierSet(build.requires_python), build
        for fact in build.files.values():
            assert fact.sha256 is None or re.fullmatch(r"[0-9a-f]{64}", fact.sha256), build


def test_requirements_are_grouped_and_parse() -> None:
    for name in BUILD_FILES:
        file = read(name)
        used = {group for build in file.records for group in build.requires or ()}
        assert used == set(file.requires), name
        for line in {line for lines in file.requires.values() for line in lines}:
            Requirement(line)


def test_every_torch_build_pins_a_known_triton(catalogue: Catalogue) -> None:
    if not catalogue.tritons:
        pytest.skip("no Triton releases in this catalogue")
    releases = [Version(release.version) for release in catalogue.tritons]
    for build in catalogue.builds("torch"):
        for requirement in map(Requirement, build.requires or ()):
            if requirement.name == "triton":
                assert any(v.release[:2] in _minors(requirement.specifier) for v in releases), requirement


def _minors(specifier: SpecifierSet) -> set[tuple[int, ...]]:
    return {Version(part.version.removesuffix(".*")).release[:2] for part in specifier}


def test_a_cuda_torch_for_linux_pins_its_own_cuda_libraries_and_no_others(catalogue: Catalogue) -> None:
    """The suffix of the nvidia-* names gives the CUDA major; a build never asks for two."""
    for build in catalogue.builds("torch"):
        if build.cuda is None or build.requires is None or not build.platform.endswith("x86_64"):
            continue
        majors = set(re.findall(r"nvidia-[a-z-]+-cu(\d+)\b", " ".join(build.requires)))
        assert majors <= {build.cuda.split(".")[0]}, (build.version, build.variant)


def test_a_cpu_torch_of_the_pytorch_index_asks_for_no_cuda(catalogue: Catalogue) -> None:
    for build in catalogue.builds("torch"):
        if build.index == "pytorch" and build.variant == "cpu" and build.requires is not None:
            names = {Requirement(line).name for line in build.requires}
            assert not {n for n in names if n.startswith(("nvidia-", "cuda-")) or n == "triton"}


def test_companions_pair_with_a_torch_that_exists_in_their_variant(catalogue: Catalogue) -> None:
    torches = {(b.index, b.variant, b.version) for b in catalogue.builds("torch")}
    for package in ("torchvision", "torchaudio"):
        for build in catalogue.builds(package):
            if build.index != "pytorch":
                continue
            assert build.torch is not None
            pairs = [v for index, variant, v in torches if (index, variant) == (build.index, build.variant)]
            assert list(SpecifierSet(build.torch).filter(pairs)), (package, build.version, build.variant)


@pytest.mark.parametrize(
    ("version", "variant", "runs", "does_not"),
    [
        ("2.7.1", "cu128", "sm_120", "sm_70"),
        ("2.9.1", "cu128", "sm_70", "sm_60"),
        ("2.11.0", "cu128", "sm_75", "sm_70"),
        ("2.14.1", "cu126", "sm_50", "sm_100"),
        ("2.6.0", "cu118", "sm_37", "sm_100"),
        ("2.13.0", "cu130", "sm_120", "sm_70"),
    ],
)
def test_the_same_tag_changes_its_cards_between_versions(
    catalogue: Catalogue, version: str, variant: str, runs: str, does_not: str
) -> None:
    found = [
        b
        for b in catalogue.builds("torch")
        if (b.version, b.variant, b.index) == (version, variant, "pytorch") and b.platform.endswith("x86_64")
    ]
    assert len(found) == 1
    assert found[0].code is not None
    assert runs in found[0].code
    assert does_not not in found[0].code


def test_drivers_never_go_back(catalogue: Catalogue) -> None:
    drivers = catalogue.drivers
    assert increasing([(int(d.branch),) for d in drivers])
    assert increasing([dotted(d.cuda) for d in drivers])
    assert increasing([dotted(d.ptx_isa) for d in drivers])
    assert all(d.first.split(".")[0] == d.branch for d in drivers)
    assert len({d.branch for d in drivers}) == len(drivers)


def test_floors_cover_every_cuda_that_a_driver_or_a_torch_build_has(catalogue: Catalogue) -> None:
    needed = {d.cuda for d in catalogue.drivers} | {b.cuda for b in catalogue.builds("torch") if b.cuda}
    for cuda in needed:
        covering = [
            floor
            for floor in catalogue.floors
            if dotted(floor.first) <= dotted(cuda)
            and (dotted(cuda) <= dotted(floor.last) if floor.last else dotted(floor.first)[0] == dotted(cuda)[0])
        ]
        assert len(covering) == 1, cuda
    assert increasing([dotted(floor.linux) for floor in catalogue.floors])


def test_architectures_live_between_known_branches(catalogue: Catalogue) -> None:
    branches = {d.branch for d in catalogue.drivers}
    for cc, architecture in catalogue.architectures.items():
        assert str(ComputeCapability.parse(cc)) == cc
        assert architecture.last_branch is None or architecture.last_branch in branches
        assert architecture.alias_of is None or architecture.alias_of in catalogue.architectures
        if architecture.first_driver is not None and architecture.last_branch is not None:
            assert dotted(architecture.first_driver)[0] <= int(architecture.last_branch)


def test_gpus_have_one_meaning_for_every_name(catalogue: Catalogue) -> None:
    names = Counter(name.casefold() for gpu in catalogue.gpus for name in {gpu.name, *gpu.aliases})
    assert [name for name, count in names.items() if count > 1] == []
    assert {gpu.compute_capability for gpu in catalogue.gpus} <= set(catalogue.architectures)


@pytest.mark.parametrize(
    ("name", "cc"),
    [
        ("4090", "8.9"),
        ("RTX 4090", "8.9"),
        ("NVIDIA H100 80GB HBM3", "9.0"),
        ("A100-SXM4-40GB", "8.0"),
        ("GTX 1080 Ti", "6.1"),
        ("GB10", "12.1"),
        ("RTX 5090", "12.0"),
        ("B300", "10.3"),
        ("Tesla T4", "7.5"),
        ("K80", "3.7"),
        ("Jetson AGX Orin", "8.7"),
    ],
)
def test_gpus_are_found_as_people_write_them(catalogue: Catalogue, name: str, cc: str) -> None:
    found = {g.compute_capability for g in catalogue.gpus if name in (g.name, *g.aliases)}
    assert found == {cc}


def test_family_members_that_come_in_variants_have_an_index(catalogue: Catalogue) -> None:
    for member in catalogue.family.values():
        assert member.index == "default" or member.index in catalogue.indexes
        assert (member.agrees_on == "variant") is (member.index != "default")


def test_nothing_says_measured_without_a_measured_source() -> None:
    """A record that claims to be read out of an artefact cites a source that says so."""
    for file in map(read, FILES):
        for record in file.records:
            if getattr(record, "evidence", None) is Evidence.MEASURED:
                assert re.search(r"measure|read|envsolve", file.sources[record.source].title, re.IGNORECASE), record


def test_what_a_companion_needs_of_torch_is_in_its_metadata_or_measured_or_published(catalogue: Catalogue) -> None:
    """Otherwise it is at most a warning; a build of PyTorch's own index may follow the same release elsewhere."""
    for package in catalogue.family:
        builds = [build for build in catalogue.builds(package) if build.torch and build.needs_its_torch]
        known = {(b.version, b.torch) for b in builds if b.known("torch").evidence is not Evidence.INFERRED}
        stated = {(b.version, b.torch) for b in builds if any(Requirement(r).name == "torch" for r in b.requires or ())}
        unfounded = {(b.version, b.torch) for b in builds} - known - stated
        assert package == "torch" or not unfounded, (package, unfounded)
