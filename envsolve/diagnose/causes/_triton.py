"""What the causes about Triton share: which Triton it is, and what rule 6 says of the installed one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from envsolve.diagnose.causes._shared import Cause, installed_triton
from envsolve.diagnose.fixes import replacements
from envsolve.diagnose.model import Finding, Fix, Grounds
from envsolve.diagnose.scene import Scene, public
from envsolve.environment.model import Environment
from envsolve.facts.hardware import Ptxas, TritonRelease
from envsolve.rules.nvidia.code import chosen_ptxas, triton_pin, triton_runs
from envsolve.rules.verdict import Reason
from envsolve.values import ComputeCapability

Fixes = Callable[[Scene, TritonRelease, ComputeCapability, Ptxas | None], Iterable[Fix]]


def of_report(scene: Scene) -> TritonRelease | None:
    """The Triton of a report: the installed one, otherwise the one that its torch pins."""
    version = public(scene.report.installed, "triton") or public(scene.report.installed, "pytorch-triton")
    if version is None and scene.torch and scene.torch.build:
        version = triton_pin(scene.torch.build)
    return scene.facts.tritons.get(version) if version else None


def pin_of(scene: Scene) -> str | None:
    """The Triton of this torch: its own pin, otherwise that of its version for Linux, whose internals it shares."""
    torch = scene.torch
    if torch is None or torch.version is None:
        return None
    builds = (*((torch.build,) if torch.build else ()), *scene.catalogue.builds("torch"))
    # A torch from source, 2.4.0a0+git..., pins what its release pins.
    release = re.match(r"[\d.]+\d", torch.version.partition("a0")[0])
    pins = (triton_pin(build) for build in builds if release and build.version == release[0])
    return next((pin for pin in pins if pin), None)


def judged(release: TritonRelease, cc: ComputeCapability, scene: Scene) -> Reason:
    """What rule 6 says of a Triton and a GPU on the report's driver."""
    return triton_runs(release, cc, scene.driver, scene.os, scene.facts.toolkits, scene.facts.floors)


def installed_fault(
    cause: Cause, rules: tuple[str, ...], environment: Environment, scene: Scene, fixes: Fixes
) -> Iterator[Finding]:
    """The finding of a cause for the installed Triton, if one of its rules is the first that fails on a GPU."""
    found = installed_triton(environment, scene)
    for gpu in scene.gpus if found else ():
        assert found is not None and gpu.cc is not None
        triton, release = found
        ptxas = chosen_ptxas(release, gpu.cc)
        if ptxas is not None and ptxas.override in (scene.machine.environment or {}):
            continue
        reason = judged(release, gpu.cc, scene)
        if reason.ok is False:
            if reason.rule in rules:
                evidence = (f"{triton.info}: {triton.label}", *scene.gpu_evidence, *scene.driver_evidence)
                ways = (*fixes(scene, release, gpu.cc, ptxas), cause.fix("eager"))
                values = {"reason": reason.text, "gpu": gpu.label}
                yield cause.finding("installed", Grounds.READ, evidence, ways, explains=(), **values)
            return


def torch_that_compiles(scene: Scene) -> list[Fix]:
    """The torch whose Triton runs on this machine."""
    # Torch options of the first tier are those whose Triton runs here.
    best = next(iter(scene.family.options("torch")), None)
    return list(replacements(scene)[-1:]) if best is not None and best.verdict.triton else []
