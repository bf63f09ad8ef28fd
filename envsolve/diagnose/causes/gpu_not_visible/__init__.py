"""``gpu-not-visible``: the program uses a GPU that CUDA does not show it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envsolve.diagnose.causes._shared import Cause, hip_version, lines, shown_variable
from envsolve.diagnose.model import Finding, Fix, Grounds
from envsolve.diagnose.scene import Scene
from envsolve.diagnose.signatures import Match

CAUSE = Cause.of(__name__)
_UUID = re.compile(r"MIG-(?:GPU-)?[0-9a-f]{6,12}(?:-[0-9a-f]{3,12}){1,4}(?:/\d{1,2}/\d{1,2})?")
#: Before driver 470 an instance was named by its GPU: MIG-GPU-.../1/0.
_FIRST_INSTANCE = "$(nvidia-smi -L | grep -o 'MIG-[0-9A-Za-z/-]*' | head -n 1)"


#: An instance by its profile, as nvidia-smi -L lists it: ``MIG 1g.10gb``.
_PROFILE = re.compile(r"\bMIG[- ]\dg\.\d{1,3}gb", re.IGNORECASE)


def from_report(scene: Scene) -> Iterator[Finding]:
    """MIG mode explains a wrong number; otherwise the mask does, or the number of GPUs."""
    if hip := CAUSE.first(scene, "hip"):
        other = Cause("no-kernel-for-gpu").fix("hip-override", version=hip_version(scene))
        ways = (CAUSE.fix("hip-groups"), other, CAUSE.fix("hip-look"))
        yield CAUSE.finding("hip", Grounds.STATED, lines(hip), ways, ("no-driver", "cpu-build"))
        return
    # Without its plug-in JAX says the same.
    if (jax := CAUSE.first(scene, "jax-platforms")) and scene.mentions("jax_platform"):
        evidence = (*lines(jax), *shown_variable(scene, "JAX_PLATFORMS"))
        yield CAUSE.finding("jax-platforms", Grounds.STATED, evidence, [CAUSE.fix("jax-platforms")], ("cpu-build",))
    match = CAUSE.first(scene, "uuid")
    if match and len(set(_UUID.findall(scene.visible_devices or ""))) > 1:
        yield _in_mig_mode(scene, match)
    elif match:
        yield CAUSE.finding("names", Grounds.STATED, lines(match), [CAUSE.fix("by-number")])
    elif match := CAUSE.first(scene, "processes", "parallel"):
        yield _processes(scene, match)
    elif match := CAUSE.first(scene):
        yield _in_mig_mode(scene, match) if is_mig(scene) else _number(scene, match)


def is_mig(scene: Scene) -> bool:
    """Whether the report shows a GPU in MIG mode."""
    return (
        any(gpu.mig for gpu in scene.machine.gpus or ())
        or _PROFILE.search(scene.report.text) is not None
        or scene.mentions("mig devices:", "mig-gpu-", "multi-instance gpu")
    )


def _in_mig_mode(scene: Scene, match: Match) -> Finding:
    listed = _UUID.search(scene.report.text)
    fixes = (CAUSE.fix("one-instance", uuid=listed[0] if listed else _FIRST_INSTANCE), CAUSE.fix("no-mig"))
    evidence = (*lines(match), *scene.gpu_evidence, *shown_variable(scene, "CUDA_VISIBLE_DEVICES"))
    return CAUSE.finding("mig", Grounds.CONFIRMED, evidence, fixes)


def _number(scene: Scene, match: Match) -> Finding:
    visible = [word for word in re.split(r"[ ,]+", scene.visible_devices or "") if word]
    told = match.group("count")
    count = int(told) if told else len(visible) or scene.gpu_count
    fixes = _numbers(match, count)
    evidence = (*lines(match), *shown_variable(scene, "CUDA_VISIBLE_DEVICES"), *scene.gpu_evidence)
    if visible and count:
        fixes += [CAUSE.fix("unset")]
        what, value = _what(match), ",".join(visible)
        return CAUSE.finding(
            "mask", Grounds.CONFIRMED, evidence, fixes, what=what, value=value, count=count, highest=count - 1
        )
    last = CAUSE.words("last-known", highest=count - 1) if count else CAUSE.words("last-unknown")
    ranks = [CAUSE.fix("one-each", count="N")] if not count and scene.mentions("local_rank", "srun", "torchrun") else []
    ways = [*fixes, *ranks, CAUSE.fix("list")]
    return CAUSE.finding("number", Grounds.STATED, evidence, ways, what=_what(match), last=last)


def _numbers(match: Match, count: int) -> list[Fix]:
    if match.signature.id == "device-of-file":
        return [CAUSE.fix("map")]
    return [CAUSE.fix("first") if count == 1 else CAUSE.fix("renumber", highest=count - 1)] if count else []


def _what(match: Match) -> str:
    if match.group("device"):
        return CAUSE.words("saved" if match.signature.id == "device-of-file" else "asserted", **match.groups)
    return CAUSE.words("ordinal")


def _processes(scene: Scene, match: Match) -> Finding:
    count = match.group("count") or scene.gpu_count or "N"
    if match.signature.role == "parallel":
        fixes: list[Fix] = [CAUSE.fix("parallel", count=count), CAUSE.fix("list")]
        what = CAUSE.words("parallel", **match.groups)
    else:
        fixes = [CAUSE.fix("local-rank")]
        # If there is a GPU for the highest rank, the processes do not take their own.
        if max(int(match.groups["one"]), int(match.groups["other"])) >= scene.gpu_count:
            fixes.insert(0, CAUSE.fix("one-each", count=count))
        what = CAUSE.words("ranks")
    evidence = (*lines(match), *shown_variable(scene, "CUDA_VISIBLE_DEVICES"), *scene.gpu_evidence)
    return CAUSE.finding("processes", Grounds.STATED, evidence, fixes, what=what)
