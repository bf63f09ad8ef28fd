"""What physics demands of verdicts, over the grid of the catalogue's builds, cards and drivers.

By default for a part of the builds; `pytest -m grid` takes all.
"""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from envsolve.facts.builds import Build
from envsolve.facts.catalogue import Catalogue
from envsolve.machine.model import Driver, Gpu, Machine, Platform
from envsolve.rules.judge import Judge, as_judged, worst
from envsolve.rules.nvidia import Facts
from envsolve.rules.nvidia.code import triton_pin
from envsolve.rules.nvidia.driver import can_exist
from envsolve.rules.verdict import Level

CATALOGUE = Catalogue()
FACTS = Facts.of(CATALOGUE)
DRIVERS = [Driver(branch.first, branch.cuda) for branch in CATALOGUE.drivers]
PLATFORMS = {"x86_64": Platform("linux", "x86_64", "glibc 2.39"), "aarch64": Platform("linux", "aarch64", "glibc 2.39")}


CARDS = [Gpu(model.name, model.compute_capability) for model in CATALOGUE.gpus]
DECIDING = ("driver-floor", "driver-ptx", "sass", "libraries", "life", "platform")
ARCHES = [
    pytest.param(arch, every, id=f"{arch}-{name}", marks=marks)
    for arch in PLATFORMS
    for every, name, marks in ((7, "sample", ()), (1, "whole", pytest.mark.grid))
]


def builds(arch: str, every: int = 1) -> list[Build]:
    """Torch and Triton builds of one architecture, one for each kind of code, toolkit and Triton; or a part of them."""
    kinds: dict[object, Build] = {}
    for build in (*CATALOGUE.builds("torch"), *CATALOGUE.builds("triton")):
        if build.platform.endswith(arch) and (build.cuda or build.package == "triton"):
            own = build.version if build.package == "triton" else triton_pin(build)
            kinds.setdefault((build.package, build.code, build.cuda, own), build)
    return list(kinds.values())[::every]


def judge(gpu: Gpu, driver: Driver, platform: Platform) -> Judge:
    return Judge(Machine(platform=platform, driver=driver, gpus=(gpu,)), FACTS)


def test_every_model_of_a_card_is_one_of_the_cards_tried() -> None:
    assert {model.compute_capability for model in CATALOGUE.gpus} <= set(FACTS.architectures)


@pytest.mark.parametrize(("arch", "every"), ARCHES)
def test_a_newer_driver_takes_nothing_away_but_the_cards_that_it_drops(arch: str, every: int) -> None:
    worse = []
    for cc in FACTS.architectures:
        gpu = Gpu("a card", cc)
        judges = [judge(gpu, driver, PLATFORMS[arch]) for driver in DRIVERS]
        for build in builds(arch, every):
            verdicts = [worst(one.verdicts(build, None)) for one in judges]
            for (older, before), (newer, after) in pairwise(zip(DRIVERS, verdicts, strict=True)):
                if can_exist(gpu, newer, FACTS.architectures, FACTS.drivers).ok is False:
                    continue
                lost = before.level.usable and not after.level.usable
                if lost or (before.triton and not after.triton):
                    worse.append((build.version, build.variant, cc, older.version, newer.version))
    assert worse == []


@pytest.mark.parametrize(("arch", "every"), ARCHES)
def test_every_verdict_has_reasons_that_bear_it_out(arch: str, every: int) -> None:
    for cc in FACTS.architectures:
        for driver in (*DRIVERS[::6], Driver(), Driver("999.1")):
            one = judge(Gpu("a card", cc), driver, PLATFORMS[arch])
            for build in builds(arch, every):
                verdict = worst(one.verdicts(build, "3.12"))
                beside = build.package != "triton"  # what torch's Triton does is told beside torch's verdict
                words = [r.ok for r in verdict.reasons if not (beside and r.rule.startswith("triton"))]
                expected = Level.NONE if False in words else Level.UNKNOWN if None in words else None
                assert expected in (verdict.level, None)
                assert expected is not None or verdict.level.usable
                assert (verdict.code is None) or verdict.level is not Level.NONE


@settings(max_examples=2 * settings().max_examples)
@given(
    build=st.sampled_from([b for name in CATALOGUE.packages() for b in CATALOGUE.builds(name)]),
    gpus=st.none() | st.lists(st.sampled_from(CARDS), max_size=2),
    driver=st.none()
    | st.builds(
        Driver,
        st.none() | st.sampled_from([b.first for b in CATALOGUE.drivers] + [b.branch for b in CATALOGUE.drivers]),
        st.none() | st.sampled_from([b.cuda for b in CATALOGUE.drivers]),
        st.none() | st.sampled_from([b.cuda for b in CATALOGUE.drivers]),
    ),
    platform=st.none() | st.sampled_from([*PLATFORMS.values(), Platform("windows", "x86_64"), Platform()]),
    python=st.none() | st.sampled_from(["3.8", "3.12", "3.15"]),
)
def test_there_is_a_verdict_on_everything(
    build: Build, gpus: list[Gpu] | None, driver: Driver | None, platform: Platform | None, python: str | None
) -> None:
    cards = None if gpus is None else tuple(gpus)
    machine = as_judged(Machine(platform=platform, driver=driver, gpus=cards), None, CATALOGUE.drivers)
    verdicts = Judge(machine, FACTS).verdicts(build, python)
    assert len(verdicts) in (1, len(cards or ()))
    for verdict in verdicts:
        assert (verdict.level is Level.NONE) <= bool(verdict.failures)
        assert not (verdict.level.usable and any(r.ok is not True for r in verdict.reasons if r.rule in DECIDING))


@pytest.mark.parametrize("compat", ["12.8", "13.1"])
def test_a_compat_libcuda_takes_nothing_away(compat: str) -> None:
    """Where it does not serve, the driver is judged as if it were not there; where it does, more runs."""
    for model in CATALOGUE.gpus[::23]:
        gpu = Gpu(model.name, model.compute_capability)
        for driver in DRIVERS[::4]:
            plain = judge(gpu, driver, PLATFORMS["x86_64"])
            lifted = judge(gpu, replace(driver, compat_libcuda=compat), PLATFORMS["x86_64"])
            for build in builds("x86_64", 14):
                before, after = worst(plain.verdicts(build, None)), worst(lifted.verdicts(build, None))
                assert before.level.usable <= after.level.usable
                assert model.data_centre or before == after
