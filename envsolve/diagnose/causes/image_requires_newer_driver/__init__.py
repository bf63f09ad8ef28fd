"""``image-requires-newer-driver``: the check of ``NVIDIA_REQUIRE_CUDA``, and the start-up check of framework images."""

from __future__ import annotations

from collections.abc import Iterator

from envsolve.diagnose.causes._shared import Cause, driver_text, lines
from envsolve.diagnose.model import Finding, Fix, Grounds
from envsolve.diagnose.scene import Scene
from envsolve.diagnose.signatures import Match
from envsolve.diagnose.tool_fixes import driver_knowing
from envsolve.machine.completed import driver_branch
from envsolve.values import CudaVersion

CAUSE = Cause.of(__name__)


def from_report(scene: Scene) -> Iterator[Finding]:
    """The check names its own condition; whether it may be disabled, rule 1 says."""
    if match := CAUSE.first(scene, "start-up"):
        yield _built_for(scene, match)
    if gate := CAUSE.first(scene, "gate"):
        have = scene.driver.cuda if scene.driver else None
        below = have and CudaVersion.parse(have) < CudaVersion.parse(gate.groups["version"])
        grounds = Grounds.CONFIRMED if below else Grounds.STATED
        evidence = (*lines(gate), *scene.driver_evidence)
        yield CAUSE.finding(
            "gate", grounds, evidence, _fixes(scene, gate, have), driver=driver_text(scene), **gate.groups
        )


def _fixes(scene: Scene, gate: Match, have: str | None) -> Iterator[Fix]:
    if gate.groups["what"].lower() != "cuda":
        # The fixes below are about the toolkit's version; other conditions are on the driver or the GPU itself.
        yield CAUSE.fix("other-image")
        return
    wanted = gate.groups["version"]
    major = CudaVersion.parse(wanted).major
    if (have is None or CudaVersion.parse(have).major >= major) and scene.fit(wanted).reason.ok is not False:
        yield CAUSE.fix("disable", major=major)
    newest = (
        f"{have} is the newest that this driver supports" if have else "the version that nvidia-smi shows, or below"
    )
    yield CAUSE.fix("older-base", newest=newest)
    if driver := driver_knowing(scene, wanted):
        yield driver


def _built_for(scene: Scene, match: Match) -> Finding:
    wanted, have = match.groups["version"], match.groups["have"]
    branch, older = driver_branch(wanted, scene.catalogue), driver_branch(have, scene.catalogue)
    fixes = [CAUSE.fix("older-release", within=f", of CUDA {older.cuda} or older" if older else "")]
    if branch and (driver := driver_knowing(scene, branch.cuda)):
        fixes.append(driver)
    explained = ("driver-too-old", "compat-libcuda", "driver-needs-reload")
    evidence = (*lines(match), *scene.gpu_evidence)
    return CAUSE.finding("start-up", Grounds.STATED, evidence, fixes, explained, version=wanted, have=have)
