"""What an environment would be after changes, as a report that the rules weigh, and the verdict on its torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Literal

from envsolve.catalogue.load import Catalogue
from envsolve.catalogue.model import Build, CondaBuild
from envsolve.compat.judge import Judge, worst
from envsolve.compat.verdict import Level
from envsolve.diagnose.model import Report, Seen
from envsolve.diagnose.scene import Scene
from envsolve.guard.family import TORCH
from envsolve.guard.model import Change
from envsolve.machine.model import Machine

_WHERE = "the installer's dry run"


def report_after(before: Report, changes: Sequence[Change], catalogue: Catalogue) -> Report:
    """A report of an environment after changes; what was read of a torch's own files goes with that torch."""
    installed = dict(before.installed)
    for change in changes:
        if change.name in TORCH:
            for name in TORCH:
                installed.pop(name, None)
        installed.pop(change.name, None)
        if change.after is not None:
            installed[change.name] = Seen(change.after, _WHERE, change.text)
    torch = next((c for c in changes if c.name in TORCH), None)
    if torch is None:
        return replace(before, installed=installed)
    found = _conda_build(torch, catalogue)
    return replace(
        before,
        installed=installed,
        cuda=Seen(found.cuda or "none", _WHERE, torch.text) if found else None,
        arch_list=Seen(found.code, _WHERE, torch.text) if found and found.code else None,
    )


def verdict_on(scene: Scene, torch: Change, machine: Machine) -> tuple[Literal["yes", "no", "unknown"], str]:
    """Whether the torch that comes runs on the machine's GPUs (on its CPU, where it has none), and what decides it."""
    build = _build(scene, torch)
    if build is None:
        return "unknown", f"the catalogue does not know {torch.name} {torch.after}: what it carries is not known"
    if build.cuda and machine.gpus == ():
        return "yes", "on the CPU alone: the machine has no NVIDIA GPU"
    verdict = worst(Judge(scene.machine, scene.facts).verdicts(build, None))
    if verdict.level is Level.NONE:
        failed = "; ".join(reason.text for reason in verdict.failures if not reason.rule.startswith("triton"))
        return "no", failed
    if verdict.level is Level.UNKNOWN:
        return "unknown", "; ".join(reason.text for reason in verdict.reasons if reason.ok is None)
    return "yes", f"{verdict.code} runs on the GPU" if verdict.code else "nothing of it needs a GPU"


def _build(scene: Scene, torch: Change) -> Build | None:
    """The catalogue's build of the torch that comes; conda's, written as one of a package index."""
    found = _conda_build(torch, scene.catalogue)
    if found is None:
        return scene.torch.build if scene.torch and torch.build is None else None
    return Build(
        package="torch",
        version=found.version,
        variant="cu" + found.cuda.replace(".", "") if found.cuda else "cpu",
        platform="any",
        pythons=(),
        index=found.channel,
        evidence=found.evidence,
        source=found.source,
        code=found.code,
        requires=(f"triton=={found.triton}",) if found.triton else (),
        cuda=found.cuda,
    )


def _conda_build(torch: Change, catalogue: Catalogue) -> CondaBuild | None:
    """The catalogue's record of a conda build that comes."""
    if torch.build is None:
        return None
    matching = (
        b
        for b in catalogue.conda
        if (b.package, b.version) == (torch.name, torch.after)
        and fnmatchcase(torch.build, b.build)
        and torch.subdir in (None, b.subdir)
    )
    return next(matching, None)
