"""Which builds of a companion are for any variant of torch, and where the file of one stands."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from envsolve.facts.builds import Build
from envsolve.facts.catalogue import Catalogue
from envsolve.facts.evidence import Evidence
from envsolve.machine.known import describe_target
from envsolve.machine.model import Machine, Platform
from envsolve.rules.nvidia import Facts
from envsolve.solve.family import Family
from envsolve.solve.files import FamilyFiles


@pytest.mark.parametrize(
    ("index", "variant", "address"),
    [
        ("pytorch", "cu126", "https://download.pytorch.org/whl/cu126"),
        ("pytorch", "cpu", "https://download.pytorch.org/whl/cpu"),
        ("pytorch", "any", "https://download.pytorch.org/whl/cpu"),
        ("default", "any", None),
    ],
)
def test_a_build_for_any_variant_stands_with_the_cpu_builds(index: str, variant: str, address: str | None) -> None:
    build = Build("torchvision", "0.15.2", variant, "linux_aarch64", ("cp311",), index, Evidence.DOCUMENTED, "s")
    files = FamilyFiles(SimpleNamespace(), Catalogue(), "3.11")  # type: ignore[arg-type]  # no index is asked
    assert files.index_of(build) == address


@pytest.mark.parametrize(
    ("arch", "python", "version", "variants"),
    [
        # Its CUDA builds are of no use without a GPU, and are there all the same.
        ("x86_64", "3.12", "0.29.1", {"cpu"}),
        # For aarch64 this version was published for the CPU alone.
        ("aarch64", "3.11", "0.16.0", {"any"}),
    ],
)
def test_a_cpu_build_is_for_any_variant_where_its_version_has_no_other(
    arch: str, python: str, version: str, variants: set[str]
) -> None:
    catalogue = Catalogue()
    machine = Machine(platform=Platform("linux", arch, "glibc 2.35"), gpus=())
    options = Family(catalogue, Facts.of(catalogue), (machine,), python).options("torchvision")
    assert {option.build.variant for option in options if option.version.public == version} == variants


@pytest.mark.parametrize("platform", ["win-amd64", "linux-aarch64"])
def test_companions_with_gpu_code_go_before_newer_ones_without(platform: str) -> None:
    catalogue = Catalogue()
    machine = describe_target(f"H100, driver 580, {platform}", catalogue)
    family = Family(catalogue, Facts.of(catalogue), (machine,), "3.12")
    lone = [option.build.variant == "any" for option in family.options("torchvision")]
    assert lone == sorted(lone)
    assert not lone[0]
