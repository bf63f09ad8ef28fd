"""Packages whose one wheel is bound to a CUDA family, by the project's own catalogue: the pairs a solve may make."""

from __future__ import annotations

from functools import cache

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from envsolve.facts.builds import Build
from envsolve.facts.catalogue import Catalogue
from envsolve.machine.completed import machine_from_target
from envsolve.machine.target import parse_target
from envsolve.rules.nvidia import Facts
from envsolve.rules.nvidia.code import agrees
from envsolve.rules.platform import python_fits
from envsolve.solve.family import Family

CATALOGUE = Catalogue()
FACTS = Facts.of(CATALOGUE)
BOUND = sorted(name for name, member in CATALOGUE.family.items() if member.agrees_on == "major")


@cache
def family(target: str) -> Family:
    text = f"{target}, python 3.12, linux-x86_64, glibc 2.35"
    return Family(CATALOGUE, FACTS, (machine_from_target(parse_target(text), CATALOGUE),), "3.12")


def pairs(target: str, package: str) -> list[tuple[Build, Build]]:
    """What goes together on a machine, best first: a build of the package, and a torch in a variant that it accepts."""
    known = family(target)
    return [
        (option.build, torch.build)
        for option in known.options(package)
        for torch in known.options("torch")
        if torch.build.variant in (known.variants_with(option.build) or ())
        and SpecifierSet(option.build.torch or "").contains(torch.build.version)
    ]


@pytest.mark.parametrize(
    ("target", "cuda", "newest"),
    [
        ("H100, driver 535.104.05", "12", "0.19.1"),
        ("H100, driver 550.54.15", "12", "0.19.1"),
        ("RTX 4090, driver 550.54.15", "12", "0.19.1"),
        ("RTX 5090, driver 570.86.10", "12", "0.19.1"),
        ("V100, driver 580.95.05", "12", "0.19.1"),
        ("H100, driver 580.95.05", "13", "0.33.0"),
        ("RTX 4090, driver 590.48.01", "13", "0.33.0"),
    ],
)
def test_the_newest_vllm_whose_cuda_the_driver_and_the_card_run(target: str, cuda: str, newest: str) -> None:
    vllm, torch = pairs(target, "vllm")[0]
    assert Version(vllm.version) >= Version(newest)
    assert cuda == "13" or vllm.version == newest
    assert (vllm.cuda or "").split(".")[0] == (torch.cuda or "").split(".")[0] == cuda


def _has_wheel(package: str) -> bool:
    """Whether a package has a wheel for the Python of these tests, 3.12."""
    return any(python_fits(build.pythons, "3.12").ok for build in CATALOGUE.builds(package))


@pytest.mark.parametrize("package", BOUND)
def test_an_old_driver_never_gets_a_wheel_of_a_newer_cuda_family(package: str) -> None:
    assert CATALOGUE.builds(package)
    found = pairs("H100, driver 535.104.05", package)
    assert {(b.cuda or "").split(".")[0] for b, _ in found} <= {"11", "12"}
    assert all(agrees(build, torch, "major").ok for build, torch in found)
    assert package == "transformer-engine-cu13" or found or not _has_wheel(package)


@pytest.mark.parametrize("package", BOUND)
def test_every_pair_keeps_to_one_variant(package: str) -> None:
    found = pairs("H100, driver 580.95.05", package)
    assert found or not _has_wheel(package)
    assert all(agrees(build, torch, "major").ok for build, torch in found)


def test_a_vllm_that_is_asked_for_by_version_does_not_fit_an_old_driver() -> None:
    assert not [b for b, _ in pairs("H100, driver 535.104.05", "vllm") if b.version == "0.33.0"]
