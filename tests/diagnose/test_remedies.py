"""What is advised: nothing that the rules refuse for the machine, and the least change first."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

import envsolve
from envsolve.diagnose.fixes import as_uv_takes_it
from envsolve.diagnose.model import Diagnoses, Fix
from envsolve.facts.builds import Build
from envsolve.facts.catalogue import Catalogue
from envsolve.machine.model import Driver, Machine
from envsolve.rules.judge import Judge
from envsolve.rules.nvidia import Facts
from envsolve.rules.nvidia.driver import can_exist
from envsolve.rules.platform import assumed, same_system
from envsolve.rules.verdict import Level
from tests.diagnose import reports

CATALOGUE = Catalogue()
FACTS = Facts.of(CATALOGUE)
KERNEL = "RuntimeError: CUDA error: no kernel image is available for execution on the device"
OLD = "The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver"
#: An error, a machine, the torch there, and the variant that must be offered first.
MACHINES = [
    (KERNEL, "GTX 1050, driver 550.163.01", "2.8.0+cu128", "2.8.0+cu126"),
    (KERNEL, "Tesla V100, driver 580.95.05", "2.11.0+cu128", "2.11.0+cu126"),
    (KERNEL, "RTX 5090, driver 570.144, python 3.12", "2.7.0+cu126", "2.7.0+cu128"),
    (KERNEL, "Tesla K80, driver 470.199.02, python 3.10", "2.1.0+cu121", "2.1.0+cu118"),
    (OLD, "A100, driver 470.82.01, python 3.9", "2.4.0+cu121", "2.4.0+cu118"),
    (KERNEL, "V100 + A100, driver 570.124.06", "2.11.0+cu128", "2.11.0+cu126"),
]


def diagnosed(log: str, target: str | None, installed: dict[str, str] | None) -> tuple[Diagnoses, Machine | None]:
    machine = envsolve.describe_target(target) if target else None
    return envsolve.diagnose(log, [machine] if machine else None, installed=installed), machine


def remedies(found: Diagnoses) -> Iterator[Fix]:
    return (remedy for diagnosis in found.diagnoses for remedy in diagnosis.remedies)


def torch_builds(command: str, machine: Machine) -> list[Build]:
    """The builds that a pip command may install; its exact local version is the variant."""
    match = re.search(r"\btorch==(\d[\w.]*)(?:\+(\w+))?", command)
    if match is None:
        return []
    return [
        build
        for build in CATALOGUE.builds("torch")
        if build.version == match[1]
        and build.local == (f"+{match[2]}" if match[2] else "")
        and same_system(build.platform, assumed(machine.platform))
    ]


@pytest.fixture(scope="module", params=[r for r in reports.REPORTS if "target" in r], ids=lambda r: r["name"])
def answered(request: pytest.FixtureRequest) -> tuple[Diagnoses, Machine]:
    found, machine = reports.diagnosed(request.param["name"])
    assert machine is not None
    return found, machine


def test_no_torch_is_advised_that_does_not_run_there(answered: tuple[Diagnoses, Machine]) -> None:
    found, machine = answered
    judge = Judge(machine, FACTS)
    # Where the meant remedy is to put back what was there, the card is not what is wrong.
    judged = [r for d in found.diagnoses if d.cause != "torch-replaced" for r in d.remedies]
    for remedy in judged:
        if remedy.command is None or "venv" in remedy.command or "constraints" in remedy.command:
            continue
        builds = torch_builds(remedy.command, machine)
        verdicts = [v for build in builds for v in judge.verdicts(build, machine.python)]
        assert not verdicts or any(v.level is not Level.NONE for v in verdicts), remedy


def test_no_driver_is_advised_that_dropped_the_card(answered: tuple[Diagnoses, Machine]) -> None:
    found, machine = answered
    for remedy in remedies(found):
        if match := re.search(r"Install NVIDIA driver ([\d.]+)", remedy.text):
            for gpu in machine.gpus or ():
                life = can_exist(gpu, Driver(match[1]), FACTS.architectures, FACTS.drivers)
                assert life.ok is not False, remedy


@pytest.mark.parametrize(("log", "target", "torch", "first"), MACHINES)
def test_the_least_change_comes_first(log: str, target: str, torch: str, first: str) -> None:
    found, _ = diagnosed(log, target, {"torch": torch})
    command = found.diagnoses[0].remedies[0].command
    assert command is not None and f"torch=={first} " in command
    assert command.endswith(f"/whl/{first.partition('+')[2]}")


def test_companions_move_with_torch() -> None:
    installed = {"torch": "2.8.0+cu128", "torchvision": "0.23.0+cu128", "torchaudio": "2.8.0+cu128"}
    found, _ = diagnosed(KERNEL, "GTX 1080, driver 560.35.03", installed)
    command = found.diagnoses[0].remedies[0].command
    assert command is not None
    for name in ("torch==2.8.0+cu126", "torchvision==0.23.0+cu126", "torchaudio==2.8.0+cu126"):
        assert name in command


def test_a_missing_kernel_is_not_mended_by_a_driver_or_a_toolkit() -> None:
    for log, target, torch, _ in MACHINES:
        if log is KERNEL:
            for remedy in remedies(diagnosed(log, target, {"torch": torch})[0]):
                assert "NVIDIA driver" not in remedy.text
                assert "TORCH_CUDA_ARCH_LIST" not in (remedy.command or "")


def test_what_is_not_about_torch_is_not_answered_with_torch() -> None:
    log = "jaxlib.xla_extension.XlaRuntimeError: INTERNAL: CUDA driver version is insufficient for CUDA runtime version"
    found, _ = diagnosed(log, "driver 470.57.02, A100", {"jax": "0.5.0"})
    assert found.diagnoses[0].cause == "driver-too-old"
    assert "torch" not in " ".join(remedy.command or "" for remedy in remedies(found))


@pytest.mark.parametrize(
    ("command", "taken"),
    [
        (
            "uv pip install --force-reinstall torch==2.7.1+cu126 --index-url https://example.org/whl/cu126",
            "uv pip install --force-reinstall torch==2.7.1+cu126 --index https://example.org/whl/cu126",
        ),
        (
            "pip install torch --index-url https://example.org/whl",
            "pip install torch --index-url https://example.org/whl",
        ),
    ],
)
def test_uv_is_told_an_index_that_no_variable_goes_before(command: str, taken: str) -> None:
    assert as_uv_takes_it(command) == taken
