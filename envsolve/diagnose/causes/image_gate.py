"""``image-requires-newer-driver``: the gate of ``NVIDIA_REQUIRE_CUDA``, and what NVIDIA's images say at their start."""

from __future__ import annotations

from collections.abc import Iterator

from envsolve.diagnose.causes._shared import driver_text, lines
from envsolve.diagnose.model import Finding, Grounds, Remedy, RuledOut
from envsolve.diagnose.remedies.tools import driver_knowing
from envsolve.diagnose.scene import Scene
from envsolve.diagnose.signatures import Match
from envsolve.machine.target import driver_branch
from envsolve.rules.driver import driver_runs
from envsolve.values import CudaVersion

_EXPLANATION = (
    "An image states in NVIDIA_REQUIRE_CUDA which driver it wants, and the container runtime refuses to start it on "
    "another: "
    "this one asks for {what} {relation} {version}, and {driver} does not meet that. "
    "The gate compares CUDA versions alone; it does not know that within one CUDA major machine code runs on older "
    "drivers."
)

_NGC = (
    "NVIDIA's framework images say at their start which driver they are built for, here {version} or newer; the host "
    "has {have}, and the compat libcuda inside the image does not make up for it on this card or driver branch. "
    "The container starts all the same, and its CUDA code fails where it needs more than the driver has."
)


def weigh(scene: Scene) -> Iterator[Finding | RuledOut]:
    """The gate names its own condition; whether it may be lifted, rule 1 says."""
    if check := scene.first("ngc-driver"):
        yield _built_for(scene, check)
    gate = scene.first("image-gate")
    if gate is None:
        return
    wanted = gate.groups["version"]
    remedies: list[Remedy] = []
    have = scene.driver.cuda if scene.driver else None
    if gate.groups["what"].lower() == "cuda":
        if have is None or CudaVersion.parse(have).major >= CudaVersion.parse(wanted).major:
            fit = driver_runs(wanted, scene.driver, scene.os, scene.facts.toolkits, scene.facts.floors)
            if fit.reason.ok is not False:
                remedies.append(_lifted(wanted))
        remedies.append(
            Remedy(
                f"Use the image of an older CUDA base: {have} is the newest that this driver knows."
                if have
                else "Use the image of an older CUDA base, of the CUDA version that nvidia-smi shows or below."
            )
        )
        if driver := driver_knowing(scene, wanted):
            remedies.append(driver)
    else:
        remedies.append(Remedy("Use an image whose requirement this host meets."))
    text = _EXPLANATION.format(driver=driver_text(scene), **gate.groups)
    evidence = (*lines(gate), *scene.driver_evidence)
    grounds = Grounds.CONFIRMED if have and CudaVersion.parse(have) < CudaVersion.parse(wanted) else Grounds.STATED
    yield Finding(
        "image-requires-newer-driver", grounds, text, evidence, tuple(remedies), frozenset({"driver-too-old"})
    )


def _built_for(scene: Scene, check: Match) -> Finding:
    wanted, have = check.groups["version"], check.groups["have"]
    branch, older = driver_branch(wanted, scene.catalogue), driver_branch(have, scene.catalogue)
    within = f", of CUDA {older.cuda} or older" if older else ""
    remedies = [Remedy(f"Use an older release of the image{within}: its notes name the driver that it wants.")]
    if branch and (driver := driver_knowing(scene, branch.cuda)):
        remedies.append(driver)
    explained = frozenset({"driver-too-old", "compat-libcuda", "driver-needs-reload"})
    text = _NGC.format(version=wanted, have=have)
    evidence = (*lines(check), *scene.gpu_evidence)
    return Finding("image-requires-newer-driver", Grounds.STATED, text, evidence, tuple(remedies), explained)


def _lifted(wanted: str) -> Remedy:
    text = (
        f"Lift the gate: the driver is of CUDA {CudaVersion.parse(wanted).major}'s family, so the image's machine code "
        "runs on it "
        "(what it compiles from PTX at run time does not)."
    )
    return Remedy(text, "docker run --gpus all -e NVIDIA_DISABLE_REQUIRE=1 ...")
