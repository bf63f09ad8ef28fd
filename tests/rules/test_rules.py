"""Each rule against a table of cases; the facts are the catalogue's own."""

from __future__ import annotations

import pytest

from envsolve.facts.builds import Build
from envsolve.facts.catalogue import Catalogue
from envsolve.facts.evidence import Evidence
from envsolve.machine.model import Driver, Gpu, Machine, Platform
from envsolve.rules.judge import Judge, worst
from envsolve.rules.nvidia import Facts
from envsolve.rules.nvidia.code import agrees, best_code, libraries_serve, ptx_level, sass_level, triton_runs
from envsolve.rules.nvidia.driver import can_exist, driver_runs, ptx_loads
from envsolve.rules.platform import libc_fits, libc_needed, platform_fits, platform_tags, wheel_tags
from envsolve.rules.verdict import Level
from envsolve.values import Arch, ComputeCapability, DriverVersion


@pytest.fixture(scope="module")
def facts() -> Facts:
    return Facts.of(Catalogue())


@pytest.mark.parametrize(
    ("have", "need", "expected"),
    [
        ("550.54.15", "525.60.13", True),
        ("525.60.13", "525.60.13", True),
        ("525.60.11", "525.60.13", False),
        ("525.60", "525.60.13", None),
        ("580", "580.65.06", None),
        ("590", "580.65.06", True),
        ("470", "525.60.13", False),
        ("580", "580", True),
        ("580.0.0", "580", True),
        ("garbage", "580", None),
    ],
)
def test_a_version_reaches_another(have: str, need: str, expected: bool | None) -> None:
    assert DriverVersion.parse(have).reaches(need) is expected


@pytest.mark.parametrize(
    ("cuda", "version", "driver_cuda", "os", "ok", "mode"),
    [
        # Rule 1: the floor of a family runs all of it; a driver that knows the CUDA runs it in full.
        ("12.6", "560.28.03", "12.6", "linux", True, "full"),
        ("12.6", "535.104.05", "12.2", "linux", True, "minor-version"),
        ("12.6", "525.60.13", "12.0", "linux", True, "minor-version"),
        ("12.6", "525.60.11", None, "linux", False, None),
        ("12.6", "470.256.02", "11.4", "linux", False, None),
        ("13.0", "570.86.10", "12.8", "linux", False, None),
        ("13.2", "580.65.06", "13.0", "linux", True, "minor-version"),
        ("13.0", "580", None, "linux", None, None),
        ("13.0", "580", "13.0", "linux", True, "full"),
        ("11.8", "450.80.02", "11.0", "linux", True, "minor-version"),
        ("11.8", "450.51.06", "11.0", "linux", False, None),
        ("11.0", "450.36.06", "11.0", "linux", True, "full"),
        # Before 11.1 there is no minor-version compatibility: the toolkit's own driver is needed.
        ("10.2", "418.39", "10.1", "linux", False, None),
        ("10.2", "440.33", "10.2", "linux", True, "full"),
        # Newer drivers run all older runtimes.
        ("10.2", "580.65.06", "13.0", "linux", True, "full"),
        ("11.8", "610.43.02", "13.3", "linux", True, "full"),
        # Only the driver's CUDA is known.
        ("12.8", None, "12.2", "linux", True, "minor-version"),
        ("13.0", None, "12.9", "linux", False, None),
        ("11.7", None, "11.2", "linux", True, "minor-version"),
        ("11.7", None, "11.0", "linux", None, None),
        ("12.8", None, None, "linux", None, None),
        ("12.4", "528.33", None, "windows", True, "minor-version"),
        ("12.4", "527.41", None, "windows", False, None),
        ("13.0", "591.44", "13.1", "windows", True, "full"),
        ("13.2", "591.44", "13.1", "windows", True, "minor-version"),
    ],
)
def test_rule_1_driver_floor(
    facts: Facts, cuda: str, version: str | None, driver_cuda: str | None, os: str, ok: bool | None, mode: str | None
) -> None:
    fit = driver_runs(cuda, Driver(version, driver_cuda), os, facts.toolkits, facts.floors)
    assert (fit.reason.ok, fit.mode) == (ok, mode)
    assert fit.reason.source is not None


@pytest.mark.parametrize(
    ("ptx_cuda", "driver_cuda", "ok"),
    [
        ("12.8", "12.8", True),
        ("12.8", "13.0", True),
        ("12.8", "12.4", False),
        ("13.1", "13.0", False),
        ("12.8", None, None),
    ],
)
def test_rule_2_driver_ptx(ptx_cuda: str, driver_cuda: str | None, ok: bool | None) -> None:
    assert ptx_loads(ptx_cuda, Driver(None, driver_cuda)).ok is ok


@pytest.mark.parametrize(
    ("code", "card", "level"),
    [
        ("sm_90", "9.0", Level.NATIVE),
        ("sm_86", "8.9", Level.FAMILY),
        ("sm_80", "8.6", Level.FAMILY),
        ("sm_89", "8.6", Level.NONE),
        ("sm_80", "9.0", Level.NONE),
        ("sm_120", "12.1", Level.FAMILY),
        ("sm_100", "10.3", Level.FAMILY),
        ("sm_100", "12.0", Level.NONE),
        ("sm_90a", "9.0", Level.NATIVE),
        ("sm_100a", "10.3", Level.NONE),
        ("sm_120a", "12.1", Level.NONE),
        ("sm_100f", "10.3", Level.FAMILY),
        ("sm_120f", "12.1", Level.FAMILY),
        ("sm_100f", "12.0", Level.NONE),
        # Islands: Tegra code serves no desktop part, and none serves it.
        ("sm_86", "8.7", Level.NONE),
        ("sm_80", "8.7", Level.NONE),
        ("sm_87", "8.9", Level.NONE),
        ("sm_70", "7.2", Level.NONE),
        ("sm_72", "7.5", Level.NONE),
        ("sm_60", "6.2", Level.NONE),
        ("sm_52", "5.3", Level.NONE),
        ("sm_87", "8.7", Level.NATIVE),
        # Thor changed its name from 10.1 to 11.0 with CUDA 13.
        ("sm_101", "11.0", Level.NATIVE),
        ("sm_110", "10.1", Level.NATIVE),
        ("sm_100", "11.0", Level.NONE),
        ("sm_100", "10.1", Level.NONE),
    ],
)
def test_rule_3_sass(facts: Facts, code: str, card: str, level: Level) -> None:
    assert sass_level(Arch.parse(code), ComputeCapability.parse(card), facts.architectures) is level


@pytest.mark.parametrize(
    ("code", "card", "level"),
    [
        ("compute_90", "12.0", Level.PTX),
        ("compute_90", "9.0", Level.PTX),
        ("compute_90", "8.9", Level.NONE),
        ("compute_90a", "10.0", Level.NONE),
        ("compute_90a", "9.0", Level.PTX),
        ("compute_100f", "10.3", Level.PTX),
        ("compute_100f", "12.0", Level.NONE),
        ("compute_50", "8.7", Level.PTX),
    ],
)
def test_rule_4_ptx(facts: Facts, code: str, card: str, level: Level) -> None:
    assert ptx_level(Arch.parse(code), ComputeCapability.parse(card), facts.architectures) is level


def test_native_code_is_preferred_to_family_and_family_to_ptx(facts: Facts) -> None:
    names = ("compute_120", "sm_80", "sm_86", "sm_120")
    best = {
        card: best_code(names, ComputeCapability.parse(card), facts.architectures) for card in ("8.6", "8.9", "12.1")
    }
    assert {card: (level, arch and arch.name) for card, (level, arch) in best.items()} == {
        "8.6": (Level.NATIVE, "sm_86"),
        "8.9": (Level.FAMILY, "sm_86"),
        "12.1": (Level.FAMILY, "sm_120"),
    }


@pytest.mark.parametrize(
    ("cuda", "card", "ok"),
    [
        ("10.1", "8.0", False),  # torch 1.7 + CUDA 10.1 on an A100
        ("11.7", "8.9", True),  # sm_86 serves it
        ("11.7", "9.0", False),
        ("11.8", "9.0", True),
        ("12.6", "12.0", False),
        ("12.8", "12.0", True),
        ("12.8", "12.1", True),
        ("12.8", "10.3", True),
        ("12.9", "7.0", True),
        ("13.0", "7.0", False),
        ("13.0", "6.1", False),
        ("13.0", "7.5", True),
        ("13.0", "11.0", True),
        ("11.8", "3.5", True),
        ("12.1", "3.5", False),
    ],
)
def test_rule_5_libraries(facts: Facts, cuda: str, card: str, ok: bool) -> None:
    if cuda == "10.1":
        assert libraries_serve(cuda, ComputeCapability.parse(card), facts.toolkits, facts.architectures).ok is not True
    else:
        assert libraries_serve(cuda, ComputeCapability.parse(card), facts.toolkits, facts.architectures).ok is ok


@pytest.mark.parametrize(
    ("triton", "card", "driver", "cuda", "ok"),
    [
        ("3.5.1", "9.0", "580.95.05", "13.0", True),
        ("3.5.1", "12.1", "580.95.05", "13.0", False),  # ptxas 12.8 does not know sm_121a
        ("3.6.0", "12.1", "580.95.05", "13.0", True),
        ("3.6.0", "12.0", "570.144", "12.8", True),
        ("3.3.0", "12.0", "580.95.05", "13.0", False),  # its ptxas knows sm_120a, its compiler no matrix product
        ("3.3.0", "10.0", "580.95.05", "13.0", True),
        ("3.3.1", "12.0", "580.95.05", "13.0", True),
        ("3.5.0", "10.3", "580.95.05", "13.0", False),
        ("3.7.1", "12.0", "570.144", "12.8", False),  # ptxas-blackwell 13.1: its cubins need R580
        ("3.7.1", "9.0", "535.104.05", "12.2", True),  # Hopper still uses the 12.8 one
        ("3.9.0", "9.0", "570.144", "12.8", False),  # from 3.9 Hopper uses ptxas-blackwell 13.4
        ("3.9.0", "9.0", "580.159.04", "13.0", True),
        ("3.0.0", "8.0", "470.256.02", "11.4", False),
        ("3.8.0", "6.1", "580.95.05", "13.0", False),
        ("3.6.0", "9.0", None, None, None),
    ],
)
def test_rule_6_triton(
    facts: Facts, triton: str, card: str, driver: str | None, cuda: str | None, ok: bool | None
) -> None:
    release = facts.tritons[triton]
    cc = ComputeCapability.parse(card)
    assert triton_runs(release, cc, Driver(driver, cuda), "linux", facts.toolkits, facts.floors).ok is ok


def test_rule_6_says_what_triton_still_compiles(facts: Facts) -> None:
    cc = ComputeCapability.parse("12.0")
    reason = triton_runs(facts.tritons["3.3.0"], cc, Driver("580.95.05", "13.0"), "linux", facts.toolkits, facts.floors)
    assert (reason.rule, reason.text) == (
        "triton-matrix",
        "Triton 3.3.0 compiles only simpler kernels for cc 12.0, no matrix products",
    )


@pytest.mark.parametrize(
    ("card", "driver", "ok"),
    [
        ("12.0", "560.35.03", False),
        ("12.0", "570.86.10", True),
        ("6.1", "580.95.05", True),
        ("6.1", "590.44.01", False),
        ("7.0", "610.43.02", False),
        ("7.5", "610.43.02", True),
        ("3.5", "470.256.02", True),
        ("3.5", "510.39.01", False),
        ("9.0", "470.57.02", False),
        ("9.0", None, None),
    ],
)
def test_rule_7_life(facts: Facts, card: str, driver: str | None, ok: bool | None) -> None:
    assert can_exist(Gpu("a card", card), Driver(driver), facts.architectures, facts.drivers).ok is ok


@pytest.mark.parametrize(
    ("card", "cuda", "ok"),
    [
        ("12.0", "12.4", False),
        ("12.0", "12.8", True),
        ("6.1", "13.0", True),
        ("6.1", "13.1", False),
        ("9.0", "12.2", True),
    ],
)
def test_rule_7_life_by_the_cuda_of_the_driver(facts: Facts, card: str, cuda: str, ok: bool) -> None:
    assert can_exist(Gpu("a card", card), Driver(None, cuda), facts.architectures, facts.drivers).ok is ok


def _build(package: str, version: str, variant: str, torch: str | None = None) -> Build:
    cuda = f"{variant[2:4]}.{variant[4:]}" if variant.startswith("cu") else None
    pythons = ("py3-none",)
    return Build(
        package, version, variant, "any", pythons, "default", Evidence.INFERRED, "here", torch=torch, cuda=cuda
    )


@pytest.mark.parametrize(
    ("companion", "torch", "ok"),
    [
        (_build("torchvision", "0.24.1", "cu128", "==2.9.1"), _build("torch", "2.9.1", "cu128"), True),
        (_build("torchvision", "0.24.1", "cu126", "==2.9.1"), _build("torch", "2.9.1", "cu128"), False),
        (_build("torchvision", "0.24.1", "cu128", "==2.9.1"), _build("torch", "2.9.0", "cu128"), False),
        (_build("triton", "3.5.1", "any"), _build("torch", "2.9.1", "cu126"), True),
        (_build("torchaudio", "2.9.1", "cpu", "==2.9.1"), _build("torch", "2.9.1", "cu126"), False),
        (_build("torchaudio", "2.11.0", "cu130", ">=2.11"), _build("torch", "2.14.1", "cu130"), True),
        (_build("vllm", "0.33.0", "cu130", "==2.14.0"), _build("torch", "2.14.0", "cu132"), True),
        (_build("vllm", "0.33.0", "cu130", "==2.14.0"), _build("torch", "2.14.0", "cu126"), False),
    ],
)
def test_rule_9_variant(companion: Build, torch: Build, ok: bool) -> None:
    agrees_on = Catalogue().family[companion.package].agrees_on
    assert agrees(companion, torch, agrees_on).ok is ok


@pytest.mark.parametrize(
    ("tag", "platform", "ok"),
    [
        ("manylinux_2_28_x86_64", Platform("linux", "x86_64", "glibc 2.35"), True),
        ("manylinux_2_28_x86_64", Platform("linux", "x86_64", "glibc 2.28"), True),
        ("manylinux_2_28_x86_64", Platform("linux", "x86_64", "glibc 2.17"), False),
        ("manylinux_2_28_x86_64", Platform("linux", "aarch64", "glibc 2.35"), False),
        ("manylinux_2_28_x86_64", Platform("linux", "x86_64", "musl 1.2"), False),
        ("manylinux_2_28_x86_64", Platform("linux", "x86_64", None), True),
        ("musllinux_1_2_x86_64", Platform("linux", "x86_64", "musl 1.2"), True),
        ("musllinux_1_2_x86_64", Platform("linux", "x86_64", "glibc 2.35"), False),
        ("manylinux_2_28_x86_64", Platform("windows", "x86_64"), False),
        ("manylinux1_x86_64", Platform("linux", "x86_64", "glibc 2.17"), True),
        ("manylinux_2_27_x86_64.manylinux_2_28_x86_64", Platform("linux", "x86_64", "glibc 2.27"), True),
        ("linux_x86_64", Platform("linux", "x86_64", "glibc 2.17"), True),
        ("win_amd64", Platform("windows", "x86_64"), True),
        ("win_amd64", Platform("linux", "x86_64", "glibc 2.35"), False),
        ("any", Platform("linux", "aarch64", "musl 1.2"), True),
    ],
)
def test_rule_11_platform(tag: str, platform: Platform, ok: bool) -> None:
    assert platform_fits(tag, platform).ok is ok


@pytest.mark.parametrize(
    ("libc", "ok"), [("glibc 2.12", False), ("glibc 2.17", True), ("musl 1.2", False), (None, True)]
)
def test_rule_11_files_that_need_more_than_their_tag_says(libc: str | None, ok: bool) -> None:
    assert libc_fits("glibc 2.17", Platform("linux", "x86_64", libc)).ok is ok


def test_rule_11_no_torch_runs_on_a_libc_older_than_all_of_them(facts: Facts) -> None:
    judge = Judge(Machine(platform=Platform("linux", "x86_64", "glibc 2.12"), gpus=()), facts)
    builds = [build for build in Catalogue().builds("torch") if build.platform.endswith("x86_64")]
    assert {worst(judge.verdicts(build, None)).level for build in builds} == {Level.NONE}


@pytest.mark.parametrize(
    ("tag", "libc"),
    [
        ("manylinux_2_28_x86_64", ("glibc", (2, 28))),
        ("manylinux2014_aarch64", ("glibc", (2, 17))),
        ("manylinux_2_17_x86_64.manylinux2014_x86_64", ("glibc", (2, 17))),
        ("manylinux_2_27_x86_64.manylinux_2_28_x86_64", ("glibc", (2, 27))),
        ("musllinux_1_2_x86_64", ("musl", (1, 2))),
        ("linux_x86_64", None),
        ("any", None),
        ("win_amd64", None),
    ],
)
def test_rule_11_libc_of_a_tag(tag: str, libc: tuple[str, tuple[int, int]] | None) -> None:
    assert libc_needed(tag) == libc


def test_rule_11_tags_are_those_of_the_target_and_not_of_this_host() -> None:
    aarch64 = list(platform_tags(Platform("linux", "aarch64", "glibc 2.31")))
    assert aarch64[0] == "manylinux_2_31_aarch64"
    assert aarch64[-1] == "linux_aarch64"
    assert "manylinux2014_aarch64" in aarch64
    assert not any("x86_64" in tag for tag in aarch64)
    assert "manylinux1_x86_64" in list(platform_tags(Platform("linux", "x86_64", "glibc 2.35")))
    assert list(platform_tags(Platform("windows", "x86_64"))) == ["win_amd64"]
    assert str(wheel_tags("3.12", Platform("linux", "x86_64", "glibc 2.35"))[0]) == "cp312-cp312-manylinux_2_35_x86_64"
    assert any(str(tag) == "cp37-cp37m-linux_x86_64" for tag in wheel_tags("3.7", Platform("linux", "x86_64")))
