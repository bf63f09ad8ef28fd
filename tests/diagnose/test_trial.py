"""Fixes are tried in the model before they are printed: what installers would do, and that nothing else goes wrong."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import envsolve
from envsolve.diagnose.cause_files import causes, signatures
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
#: Every torch of PyTorch's index, with each Python that it is built for.
TORCHES = sorted(
    {
        (build.version, build.variant, f"{tag[2]}.{tag[3:]}")
        for build in CATALOGUE.builds("torch")
        if build.index == "pytorch"
        for tag in build.pythons
        if re.fullmatch(r"cp3\d+", tag)
    }
)
#: Versions of packages that must agree with torch.
BESIDE = {
    name: sorted({build.version for build in CATALOGUE.builds(name) or CATALOGUE.builds_outside(name)})
    for name in ("torchvision", "torchaudio", "triton", "xformers", "flash-attn", "vllm")
}
#: The words of every known error, and none: the packages alone then give the cause.
EXAMPLES = ("", *sorted(signature.example for signature in signatures()))


@st.composite
def environments(draw: st.DrawFn, examples: st.SearchStrategy[str]) -> ReportFacts:
    """A report of an error, on any machine, with any torch and what may stand beside it."""
    target = f"{draw(st.sampled_from(GPUS))}, driver {draw(st.sampled_from(DRIVERS))}"
    version, variant, python = draw(st.sampled_from(TORCHES))
    machine = envsolve.describe_target(f"{target}, python {python}")
    listed = {"torch": f"{version}+{variant}"}
    for name in draw(st.sets(st.sampled_from(sorted(BESIDE)), max_size=2)):
        beside = draw(st.sampled_from(BESIDE[name]))
        listed[name] = f"{beside}+{variant}" if name in ("torchvision", "torchaudio") else beside
    installed = read_installed(json.dumps(listed))
    return read_report(draw(examples), CATALOGUE, machine=machine, installed=installed)


def assert_fixes_lead_out(report: ReportFacts) -> None:
    """Whoever follows the first fix each time meets no cause twice."""
    assert_fixes_work(report)
    met: list[str] = []
    while found := diagnose(report, (), CATALOGUE).diagnoses:
        assert found[0].cause not in met, met
        met.append(found[0].cause)
        command = found[0].remedies[0].command
        then = carried_out(scene_of(report, (), CATALOGUE), command) if command else None
        if then is None:
            break
        report = then.report


# Each example is diagnosed once for every fix and once more after it: half of the usual number.
@settings(max_examples=settings().max_examples // 2)
@given(environments(st.sampled_from(EXAMPLES)))
def test_fixes_lead_to_an_environment_without_fault(report: ReportFacts) -> None:
    assert_fixes_lead_out(report)


@pytest.mark.slow
@pytest.mark.parametrize("code", sorted(causes().files))
def test_the_fixes_of_every_cause_work(code: str) -> None:
    """Every known wording of every cause, in environments that are drawn anew for each."""
    examples = sorted(one.example for one in signatures() if code in one.causes)

    @settings(max_examples=2 * len(examples), database=None)
    @given(environments(st.sampled_from(examples)))
    def holds(report: ReportFacts) -> None:
        assert_fixes_lead_out(report)

    holds()
