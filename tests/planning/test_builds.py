"""The list of builds in words."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest

from envsolve.facts.catalogue import Catalogue
from envsolve.facts.files import data_folder
from envsolve.machine.completed import machine_from_target
from envsolve.machine.target import parse_target
from envsolve.planning.builds import BuildLine, BuildList, ReasonLine, describe, list_builds

Verdict = Literal["native", "family", "ptx", "none", "unknown"]

FLOOR = ReasonLine("driver-floor", False, "CUDA 13.2 needs driver 580.65.06 or newer", "documented", None)
LIFE = ReasonLine("life", False, "the card needs driver 570 or newer", "documented", None)
NO_CODE = ReasonLine("sass", None, "the GPU code in the build is not known", None, None)
TRITON = ReasonLine("triton", None, "whether its Triton runs is not known", None, None)
H100 = "NVIDIA H100 (cc 9.0)"


def build(
    verdict: Verdict,
    *reasons: ReasonLine,
    version: str = "2.9.0",
    index: str = "default",
    platform: str = "manylinux_2_28_x86_64",
    triton: bool | None = True,
) -> BuildLine:
    return BuildLine(
        "torch", version, "cu126", platform, ("cp312",), index, H100, verdict, ("sm_90",), "525", triton, reasons
    )


def text(*builds: BuildLine, every: bool = False, reasons: bool = False) -> list[str]:
    return describe(BuildList("envsolve.builds/1", builds), every=every, reasons=reasons).splitlines()


def test_one_version_on_two_indexes_is_told_apart() -> None:
    assert text(build("native"), build("native", index="pytorch", triton=False)) == [
        f"torch 2.9.0    cu126  native    on {H100}  (default)",
        f"torch 2.9.0    cu126  native    on {H100}  without Triton  (pytorch)",
    ]


def test_a_screenful_is_shown_of_whole_versions_and_how_many_more_there_are() -> None:
    newest = [replace(build("native", version="2.9.0"), local=f"+a{number}") for number in range(39)]
    next_one = [replace(build("native", version="2.8.0"), local=f"+b{number}") for number in range(5)]
    old = [build("native", version="2.7.0"), build("none", version="2.6.0")]
    lines = text(*newest, *next_one, *old)
    assert len(lines) == 45
    assert lines[-1] == "and 1 more of 1 version: --all lists every build"
    assert len(text(*newest, *next_one)) == 44
    assert len(text(*newest, *next_one, *old, every=True)) == 46


def test_builds_for_the_newest_torch_come_first() -> None:
    catalogue = Catalogue(data_folder())
    machine = machine_from_target(parse_target("H100, driver 580.95, linux-x86_64, glibc 2.35"), catalogue)
    found = list_builds("flash-attn", [machine], "3.12", catalogue).builds
    named = [build.torch for build in found if build.version == "2.8.3" and build.variant == "cu130"]
    assert named == ["==2.10.*", "==2.9.*"]


def test_one_version_for_two_platforms_is_told_apart() -> None:
    lines = text(build("native"), build("native", platform="manylinux_2_28_aarch64"))
    assert [line.rpartition("  ")[2] for line in lines] == [
        "(default, manylinux_2_28_x86_64)",
        "(default, manylinux_2_28_aarch64)",
    ]


def test_release_wheels_for_several_torches_are_told_apart() -> None:
    for_torch = [replace(build("native", index="forge"), local=f"+cu12torch2.{minor}") for minor in (7, 8)]
    lines = text(*for_torch, replace(build("native"), local="+cu126"))
    assert [line.split()[1] for line in lines] == ["2.9.0+cu12torch2.7", "2.9.0+cu12torch2.8", "2.9.0"]
    assert not any("manylinux" in line for line in lines)


def test_why_verdicts_are_unknown_is_said_once() -> None:
    lines = text(build("unknown", NO_CODE, TRITON), build("unknown", NO_CODE, TRITON, version="2.8.0"), build("native"))
    assert len(lines) == 4
    assert lines[-1] == "unknown: the GPU code in the build is not known"


def test_reasons_that_differ_by_version_are_counted() -> None:
    floors = [ReasonLine("driver-floor", None, f"CUDA {cuda} needs a driver", None, None) for cuda in ("13.0", "12.6")]
    lines = text(build("unknown", floors[0]), build("unknown", floors[1], version="2.8.0"))
    assert lines[-1] == "unknown: CUDA 13.0 needs a driver (and 1 similar reasons; --verbose shows all)"


@pytest.mark.parametrize(
    ("reasons", "line"),
    [
        (
            (FLOOR,),
            "no published build of torch runs on the machine; --all shows why, and `envsolve plan torch` shows what "
            "would help",
        ),
        ((FLOOR, LIFE), "this machine cannot exist: the card needs driver 570 or newer"),
    ],
)
def test_why_nothing_is_listed(reasons: tuple[ReasonLine, ...], line: str) -> None:
    assert text(build("none", *reasons), build("none", *reasons, version="2.8.0")) == [line]


def test_all_tells_what_forbids_and_verbose_every_reason() -> None:
    denied, fine = build("none", FLOOR, TRITON), build("native", ReasonLine("sass", True, "sm_90 runs", None, None))
    assert "    - CUDA 13.2 needs driver 580.65.06 or newer [documented]" in text(denied, every=True)
    assert not any("Triton runs" in line for line in text(denied, every=True))
    assert text(denied, fine, reasons=True)[1:] == ["    + sm_90 runs"]
    assert "    ? whether its Triton runs is not known" in text(denied, every=True, reasons=True)
