"""Fixes are tried in the model before they are printed: what installers would do, and that nothing else goes wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import envsolve
from envsolve.diagnose.model import Fix, ReportFacts, Seen
from envsolve.diagnose.reason import diagnose, weighed
from envsolve.diagnose.report.packages import read_installed
from envsolve.diagnose.report.read import read_report
from envsolve.diagnose.scene import Scene, scene_of
from envsolve.diagnose.trial import Trial, carried_out
from envsolve.facts.catalogue import Catalogue
from tests.diagnose.reports import REPORTS

CATALOGUE = Catalogue()
PYTORCH = "https://download.pytorch.org/whl/cu129"
H100 = "H100, driver 580.95.05, python 3.12"


def scene(target: str, **installed: str) -> Scene:
    machine = envsolve.describe_target(target)
    found = {name.replace("_", "-"): Seen(version, "--installed", "") for name, version in installed.items()}
    return scene_of(ReportFacts("", machine, found), (), CATALOGUE)


def after(command: str, target: str = H100, **installed: str) -> dict[str, str]:
    then = carried_out(scene(target, **installed), command)
    assert then is not None
    return {name: seen.value for name, seen in then.report.installed.items()}


def test_what_is_installed_is_enough_unless_it_is_reinstalled() -> None:
    installed = {"torch": "2.9.1+cu129", "vllm": "0.15.0"}
    kept = after("pip install vllm==0.16.0", **installed)
    again = after("pip install --force-reinstall vllm==0.16.0", **installed)
    alone = after("pip install --force-reinstall --no-deps vllm==0.16.0", **installed)
    assert kept["torch"] == alone["torch"] == "2.9.1+cu129"
    assert again["torch"] == "2.9.1"  # of the default index


def test_pip_takes_the_highest_version_of_all_its_indexes_and_uv_the_first_index() -> None:
    assert after(f"pip install torch==2.9.1 --extra-index-url {PYTORCH}")["torch"] == "2.9.1+cu129"
    newest = after(f"pip install torch --extra-index-url {PYTORCH}")["torch"]
    assert "+" not in newest or newest.endswith("+cu129")
    assert after(f"uv pip install torch --index {PYTORCH}")["torch"].endswith("+cu129")


def test_torch_brings_the_triton_that_it_pins() -> None:
    installed = after(f"pip install torch==2.9.1+cu129 --index-url {PYTORCH}", triton="3.2.0")
    assert installed["triton"] == "3.5.1"


def test_conda_takes_over_what_it_installed_and_moves_what_goes_with_it() -> None:
    command = 'conda install -c conda-forge "pytorch=2.9.1=cuda129*" "cuda-version=12.9"'
    installed = after(command, pytorch="2.4.0+cpu", torchvision="0.19.0+cpu")
    assert installed["pytorch"] == "2.9.1+cu129"
    assert "torchvision" not in installed


@pytest.mark.parametrize(
    ("command", "works"),
    [
        (f"pip install torch==2.9.1+cu129 --index-url {PYTORCH}", True),
        (f"pip install torch==2.9.1+cu77 --index-url {PYTORCH}", False),  # the installer refuses it
        ("pip install torch==2.9.1+cpu --index-url https://download.pytorch.org/whl/cpu", False),  # the same fault
        ("nvidia-smi", True),  # the model does not show what it does
        ("pip install -r requirements.txt", True),
        ("pip install --index-url https://mirror.example/simple torch", True),
    ],
)
def test_a_fix_is_judged_by_what_it_leaves(command: str, works: bool) -> None:
    trial = Trial(scene("H100, driver 570.124.06, python 3.12", torch="2.9.1+cpu"), weighed)
    assert trial.holds("cpu-build", Fix("...", command)) is works


def test_what_breaks_something_else_is_no_fix() -> None:
    trial = Trial(scene(H100, torch="2.9.1+cpu", torchvision="0.24.1+cpu"), weighed)
    assert not trial.holds("cpu-build", Fix("...", f"pip install torch==2.9.1+cu129 --index-url {PYTORCH}"))
    both = f"pip install torch==2.9.1+cu129 torchvision==0.24.1+cu129 --index-url {PYTORCH}"
    assert trial.holds("cpu-build", Fix("...", both))


def assert_fixes_work(report: ReportFacts) -> None:
    """Every fix that is printed for a report, carried out in the model, leaves the cause nowhere."""
    known = scene_of(report, (), CATALOGUE)
    for diagnosis in diagnose(report, (), CATALOGUE).diagnoses:
        assert diagnosis.remedies, diagnosis.cause
        for fix in diagnosis.remedies:
            then = carried_out(known, fix.command) if fix.command else None
            if then is not None:
                left = [found.cause for found in diagnose(then.report, (), CATALOGUE).diagnoses]
                assert diagnosis.cause not in left, (diagnosis.cause, fix)


@pytest.mark.parametrize("report", REPORTS, ids=lambda r: r["name"])
def test_every_printed_fix_removes_its_cause(report: dict[str, Any]) -> None:
    machine = envsolve.describe_target(report["target"]) if "target" in report else None
    listed = report.get("installed")
    installed = (
        read_installed(json.dumps(listed)) if isinstance(listed, dict) else read_installed(listed) if listed else None
    )
    assert_fixes_work(read_report(report["log"], CATALOGUE, machine=machine, installed=installed))


GPUS = ("H100", "A100", "RTX 5090", "RTX 4090", "Tesla V100", "GTX 1080", "Tesla T4", "B200", "Tesla K80")
DRIVERS = ("470.199.02", "535.183.01", "550.54.15", "570.124.06", "580.95.05")
ERRORS = (
    "",
    "RuntimeError: CUDA error: no kernel image is available for execution on the device",
    "AssertionError: Torch not compiled with CUDA enabled",
    "RuntimeError: operator torchvision::nms does not exist",
    "RuntimeError: The NVIDIA driver on your system is too old (found version 12040).",
    "CUDA error: the provided PTX was compiled with an unsupported toolchain.",
    "ImportError: libcudart.so.12: cannot open shared object file: No such file or directory",
    "ptxas fatal   : Value 'sm_120' is not defined for option 'gpu-name'",
)
TORCHES = sorted({(b.version, b.variant) for b in CATALOGUE.builds("torch") if b.index == "pytorch"})
VISIONS = sorted({b.version for b in CATALOGUE.builds("torchvision")})


@given(
    st.sampled_from(GPUS),
    st.sampled_from(DRIVERS),
    st.sampled_from(ERRORS),
    st.sampled_from(TORCHES),
    st.none() | st.sampled_from(VISIONS),
    st.sampled_from(("3.10", "3.12", "3.13")),
)
def test_fixes_remove_the_cause_in_environments_nobody_thought_of(
    gpu: str, driver: str, error: str, torch: tuple[str, str], vision: str | None, python: str
) -> None:
    machine = envsolve.describe_target(f"{gpu}, driver {driver}, python {python}")
    listed = {"torch": f"{torch[0]}+{torch[1]}"} | ({"torchvision": f"{vision}+{torch[1]}"} if vision else {})
    assert_fixes_work(read_report(error, CATALOGUE, machine=machine, installed=read_installed(json.dumps(listed))))
