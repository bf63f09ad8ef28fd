"""Rule 8: where a cuda-compat ``libcuda`` serves, and what that changes."""

from __future__ import annotations

import pytest

from envsolve.facts.catalogue import Catalogue
from envsolve.machine.model import Driver, Gpu, Machine, Platform
from envsolve.planning.builds import list_builds
from envsolve.rules.judge import Judge
from envsolve.rules.nvidia import Facts
from envsolve.rules.nvidia.driver import compat_releases, compat_serves

CATALOGUE = Catalogue()
FACTS = Facts.of(CATALOGUE)
LINUX = Platform("linux", "x86_64", "glibc 2.35")
H100, RTX = Gpu("NVIDIA H100 80GB HBM3", "9.0"), Gpu("NVIDIA GeForce RTX 4090", "8.9")
V100, ORIN = Gpu("Tesla V100-SXM2-16GB", "7.0"), Gpu("Jetson AGX Orin", "8.7")


def machine(gpus: tuple[Gpu, ...] | None, version: str | None, cuda: str | None, compat: str | None) -> Machine:
    return Machine(platform=LINUX, driver=Driver(version, cuda, compat), gpus=gpus)


@pytest.mark.parametrize(
    ("gpus", "version", "cuda", "compat", "ok", "words"),
    [
        ((H100,), "535.104.05", "12.2", "13.0", True, "R535"),
        ((V100, H100), "535", "12.2", "12.8", True, "R535"),
        # Data-centre cards alone, and every card that is in sight.
        ((RTX,), "550.54.15", "12.4", "12.8", False, "804"),
        ((H100, RTX), "550.54.15", "12.4", "12.8", False, "804"),
        ((Gpu(None, "9.0"),), "535.104.05", "12.2", "13.0", None, "is one is not known"),
        ((Gpu("a card of tomorrow", "9.0"), RTX), "535.104.05", "12.2", "13.0", False, "804"),
        # Newer than the driver.
        ((H100,), "580.159.03", "13.0", "13.0", False, "803"),
        ((H100,), "580.159.03", "13.0", "12.4", False, "803"),
        # Built from a branch that still knows the card: R580 is Volta's last.
        ((V100,), "535.104.05", "12.2", "13.1", False, "R590"),
        # A driver branch that NVIDIA lists for it.
        ((H100,), "545.23.08", "12.3", "12.8", None, "R470, R535, R550, R560, R565"),
        ((H100,), "580.95.05", "13.0", "13.2", True, "R535, R570, R580, R590"),
        ((H100,), "575.57.08", "12.9", "13.2", None, "575.57.08"),
        ((H100,), "580.95.05", "13.0", "13.5", None, "does not record"),
        ((ORIN,), "540.4.0", "12.6", "13.0", None, "540.4.0"),
        # What decides is not known.
        ((H100,), None, "12.2", "13.0", None, "because the driver is not"),
        (None, "535.104.05", "12.2", "13.0", None, "because the GPUs are not"),
    ],
)
def test_where_a_compat_libcuda_serves(
    gpus: tuple[Gpu, ...] | None, version: str | None, cuda: str | None, compat: str, ok: bool | None, words: str
) -> None:
    reason = compat_serves(machine(gpus, version, cuda, compat), FACTS.forward)
    assert reason is not None
    assert reason.ok is ok
    assert words in reason.text


@pytest.mark.parametrize(("gpus", "compat"), [((H100,), None), ((), "13.0")])
def test_without_a_compat_libcuda_or_a_card_there_is_nothing_to_say(gpus: tuple[Gpu, ...], compat: str | None) -> None:
    assert compat_serves(machine(gpus, "535.104.05", "12.2", compat), FACTS.forward) is None


def test_it_is_for_linux_alone() -> None:
    windows = Machine(platform=Platform("windows", "x86_64"), driver=Driver("538.15", "12.2", "13.0"), gpus=(H100,))
    reason = compat_serves(windows, FACTS.forward)
    assert reason is not None and reason.ok is False


def torch(variant: str, machine: Machine) -> list[tuple[str, bool | None, str | None]]:
    """Level, Triton and mode of torch 2.14.1 of a variant on the default index."""
    build = next(
        b
        for b in CATALOGUE.builds("torch")
        if (b.version, b.variant, b.platform) == ("2.14.1", variant, "manylinux_2_28_x86_64")
    )
    return [(v.level.value, v.triton, v.driver_mode) for v in Judge(machine, FACTS).verdicts(build, None)]


@pytest.mark.parametrize(
    ("card", "variant", "compat", "expected"),
    [
        (H100, "cu130", "13.0", ("native", True, "forward-compat")),
        (H100, "cu126", "13.0", ("native", True, "forward-compat")),
        (H100, "cu126", None, ("native", True, "minor-version")),
        (H100, "cu130", None, ("none", True, None)),
        (H100, "cu130", "12.8", ("none", True, None)),  # up to the library's own CUDA, no further
        (H100, "cu132", "13.0", ("none", True, None)),
        (RTX, "cu130", "13.0", ("none", True, None)),
    ],
)
def test_builds_up_to_the_cuda_of_the_library_run(
    card: Gpu, variant: str, compat: str | None, expected: tuple[str, bool, str | None]
) -> None:
    assert torch(variant, machine((card,), "535.104.05", "12.2", compat)) == [expected]


@pytest.mark.parametrize(("compat", "runs"), [(None, False), ("13.0", False), ("13.1", True)])
def test_triton_s_cubins_load_through_it_too(compat: str | None, runs: bool) -> None:
    """Triton 3.7.1 runs ptxas-blackwell 13.1 for a B200."""
    build = next(b for b in CATALOGUE.builds("torch") if (b.version, b.variant) == ("2.13.0", "cu130"))
    b200 = machine((Gpu("NVIDIA B200", "10.0"),), "570.86.15", "12.8", compat)
    assert Judge(b200, FACTS).verdicts(build, None)[0].triton is runs


def test_releases_are_in_order() -> None:
    releases = compat_releases(FACTS.forward)
    assert releases.index("10.0") < releases.index("12.9") < releases.index("13.0")


def test_ordinary_machines_cost_no_reading_of_its_facts() -> None:
    catalogue = Catalogue()
    list_builds("torch", [machine((H100,), "535.104.05", "12.2", None)], None, catalogue)
    assert "gpus" not in vars(catalogue) and "image_requirements" not in vars(catalogue)
