"""What physics demands of verdicts, over the whole grid of the catalogue's builds, cards and drivers."""

from __future__ import annotations

from itertools import pairwise

import pytest

from envsolve.catalogue.load import Catalogue
from envsolve.catalogue.model import Build
from envsolve.compat.facts import Facts
from envsolve.compat.judge import Judge, worst
from envsolve.compat.life import can_exist
from envsolve.compat.verdict import Level
from envsolve.machine.model import Driver, Gpu, Machine, Platform

CATALOGUE = Catalogue()
FACTS = Facts.of(CATALOGUE)
DRIVERS = [Driver(branch.first, branch.cuda) for branch in CATALOGUE.drivers]
PLATFORMS = {"x86_64": Platform("linux", "x86_64", "glibc 2.39"), "aarch64": Platform("linux", "aarch64", "glibc 2.39")}


def builds(arch: str) -> list[Build]:
    """Torch builds of one architecture, one for each kind of code, toolkit and Triton."""
    kinds: dict[object, Build] = {}
    for build in CATALOGUE.builds("torch"):
        if build.platform.endswith(arch) and build.cuda:
            triton = [line for line in build.requires or () if line.startswith("triton")]
            kinds.setdefault((build.code, build.cuda, str(triton)), build)
    return list(kinds.values())


def judge(gpu: Gpu, driver: Driver, platform: Platform) -> Judge:
    return Judge(Machine(platform=platform, driver=driver, gpus=(gpu,)), FACTS)


@pytest.mark.parametrize("arch", ["x86_64", "aarch64"])
def test_a_newer_driver_takes_nothing_away_but_the_cards_that_it_drops(arch: str) -> None:
    worse = []
    for cc in FACTS.architectures:
        gpu = Gpu("a card", cc)
        judges = [judge(gpu, driver, PLATFORMS[arch]) for driver in DRIVERS]
        for build in builds(arch):
            verdicts = [worst(one.verdicts(build, None)) for one in judges]
            for (older, before), (newer, after) in pairwise(zip(DRIVERS, verdicts, strict=True)):
                if can_exist(gpu, newer, FACTS.architectures, FACTS.drivers).ok is False:
                    continue
                lost = before.level.usable and not after.level.usable
                if lost or (before.triton and not after.triton):
                    worse.append((build.version, build.variant, cc, older.version, newer.version))
    assert worse == []


@pytest.mark.parametrize("arch", ["x86_64", "aarch64"])
def test_every_verdict_has_reasons_that_bear_it_out(arch: str) -> None:
    for cc in FACTS.architectures:
        for driver in (*DRIVERS[::6], Driver(), Driver("999.1")):
            one = judge(Gpu("a card", cc), driver, PLATFORMS[arch])
            for build in builds(arch):
                verdict = worst(one.verdicts(build, "3.12"))
                words = [r.ok for r in verdict.reasons if not r.rule.startswith("triton")]
                expected = Level.NONE if False in words else Level.UNKNOWN if None in words else None
                assert expected in (verdict.level, None)
                assert expected is not None or verdict.level.usable
                assert (verdict.code is None) or verdict.level is not Level.NONE
