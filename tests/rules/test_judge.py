"""The verdict: rules are looked up by the accelerators' vendor, and vendors without rules get no yes."""

from __future__ import annotations

import pytest

from envsolve.facts.builds import Build
from envsolve.facts.catalogue import Catalogue
from envsolve.facts.evidence import Evidence
from envsolve.machine.model import Accelerator, Driver, Gpu, Machine, Platform
from envsolve.rules.judge import Judge, as_judged, vendor_of
from envsolve.rules.nvidia import Facts
from envsolve.rules.verdict import Level, Verdict

CATALOGUE = Catalogue()
FACTS = Facts.of(CATALOGUE)
LINUX = Platform("linux", "x86_64", "glibc 2.35")
RADEON = Accelerator("amd", "Radeon RX 7900 XTX", "gfx1100")
L4 = Gpu("NVIDIA L4", "8.9")


def build(variant: str, package: str = "torch", cuda: str | None = None) -> Build:
    return Build(
        package,
        "2.10.0",
        variant,
        "manylinux_2_28_x86_64",
        ("cp312",),
        "default",
        Evidence.MEASURED,
        "",
        code=("sm_80", "sm_90") if cuda else (),
        cuda=cuda,
    )


def judged(machine: Machine, one: Build) -> Verdict:
    (verdict,) = Judge(machine, FACTS).verdicts(one, "3.12")
    return verdict


@pytest.mark.parametrize(
    ("one", "level"),
    [
        (build("cu126", cuda="12.6"), Level.NONE),
        (build("xpu"), Level.NONE),
        (build("rocm6.4"), Level.UNKNOWN),
        (build("cpu"), Level.UNKNOWN),
        (build("any", "triton"), Level.UNKNOWN),
    ],
    ids=lambda value: value.variant if isinstance(value, Build) else "",
)
def test_a_vendor_without_rules_gets_no_yes(one: Build, level: Level) -> None:
    verdict = judged(Machine(platform=LINUX, gpus=(), accelerators=(RADEON,)), one)
    assert verdict.level is level
    assert "Radeon RX 7900 XTX" in verdict.reasons[-1].text


def test_a_machine_of_two_vendors_is_judged_by_the_one_with_rules() -> None:
    """A desktop processor's own GPU stands beside the card that torch uses."""
    machine = Machine(platform=LINUX, driver=Driver("560.35.03", "12.6"), gpus=(L4,), accelerators=(RADEON,))
    assert judged(machine, build("cu126", cuda="12.6")).level is Level.FAMILY
    assert judged(machine, build("cpu")).level is Level.NONE


def test_the_other_rules_hold_for_every_vendor() -> None:
    machine = Machine(platform=Platform("windows", "x86_64"), gpus=(), accelerators=(RADEON,))
    assert judged(machine, build("rocm6.4")).level is Level.NONE


def test_a_cpu_environment_needs_no_judgement_of_a_gpu() -> None:
    machine = Machine(platform=LINUX, gpus=(), accelerators=(RADEON,))
    assert judged(as_judged(machine, "cpu", CATALOGUE.drivers), build("cpu")).level is Level.NATIVE


@pytest.mark.parametrize(
    ("one", "vendor"),
    [
        (build("cu126", cuda="12.6"), "nvidia"),
        (build("cuda", cuda="12.6"), "nvidia"),
        (build("rocm6.4"), "amd"),
        (build("xpu"), "intel"),
        (build("cpu"), None),
        (build("any", "triton"), None),
    ],
)
def test_vendor_of_a_build(one: Build, vendor: str | None) -> None:
    assert vendor_of(one) == vendor
