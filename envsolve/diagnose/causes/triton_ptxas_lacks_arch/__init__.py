"""``triton-ptxas-lacks-arch``: the ptxas that Triton runs does not know the GPU (rule 6)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packaging.version import Version

from envsolve.diagnose.causes._shared import (
    Cause,
    by_triton,
    installed_fault,
    lines,
    reported_triton,
    torch_evidence,
    torch_that_compiles,
)
from envsolve.diagnose.fixes import led_by, replacements
from envsolve.diagnose.model import Finding, Fix, Grounds
from envsolve.diagnose.scene import Scene
from envsolve.diagnose.tool_fixes import ptxas_remedy
from envsolve.environment.model import Environment
from envsolve.facts.hardware import Ptxas, TritonRelease
from envsolve.rules.nvidia.code import arch_asked, chosen_ptxas
from envsolve.values import ComputeCapability, CudaVersion

CAUSE = Cause.of(__name__)
_REPRO = re.compile(r"Repro command: ?(\S{1,200}ptxas\S{0,20})")


def from_report(scene: Scene) -> Iterator[Finding]:
    """Who ran the ptxas, and what the catalogue knows of it."""
    match = CAUSE.first(scene)
    if match is None or not (by_triton(scene) or match.quote.startswith("ptxas-blackwell")):
        return
    arch, release = match.groups["arch"], reported_triton(scene)
    cc = ComputeCapability.parse(arch)
    ptxas = chosen_ptxas(release, cc) if release else None
    confirmed = ptxas is not None and arch not in ptxas.archs
    yield CAUSE.finding(
        "lacks",
        Grounds.CONFIRMED if confirmed else Grounds.STATED,
        (*lines(match), *scene.gpu_evidence, *torch_evidence(scene)),
        _fixes(scene, arch, cc, _variable(scene, cc, release, ptxas)),
        which=CAUSE.words("which", triton=release.version, cuda=ptxas.cuda) if release and ptxas else "",
        arch=arch,
    )


def _fixes(scene: Scene, arch: str, cc: ComputeCapability, variable: str) -> Iterator[Fix]:
    """Its own ptxas if another replaced it, then another by variable: neither changes a package."""
    ran = _REPRO.search(scene.report.text)
    if ran and "triton" not in ran[1]:
        yield CAUSE.fix("own", ptxas=ran[1])
    toolkit = next((t for t in scene.catalogue.toolkits if arch in t.archs), None)
    if toolkit is not None:
        cuda = str(toolkit.cuda_version)
        home = _toolkit_path(scene, toolkit.cuda_version)
        named = CAUSE.fix("toolkit", cuda=cuda, arch=arch, variable=variable, home=home or f"/usr/local/cuda-{cuda}")
        wheel = ptxas_remedy(scene, cuda, variable)
        # Without a toolkit that the report shows, the wheel is the surer way.
        yield from (fix for fix in ((named, wheel) if home else (wheel, named)) if fix)
    known = [r for r in scene.catalogue.tritons if (p := chosen_ptxas(r, cc)) is not None and arch in p.archs]
    first = min((Version(release.version) for release in known), default=None)
    if first is not None:
        words = CAUSE.words("comes-with-torch", arch=arch, first=first)
        yield from (led_by(words, fix) for fix in replacements(scene))
        yield CAUSE.fix("triton", first=first, arch=arch)


def _variable(scene: Scene, cc: ComputeCapability, release: TritonRelease | None, ptxas: Ptxas | None) -> str:
    # Only newer Tritons have that second ptxas, and its own variable names another.
    if ptxas is None and release is None and scene.mentions("ptxas-blackwell"):
        ptxas = chosen_ptxas(scene.catalogue.tritons[-1], cc)
    return ptxas.override if ptxas else "TRITON_PTXAS_PATH"


def _toolkit_path(scene: Scene, at_least: CudaVersion) -> str | None:
    """A toolkit of the machine that is new enough."""
    known = (t for t in scene.machine.toolkits or () if t.cuda_version and t.cuda_version >= at_least)
    toolkit = next(known, None)
    return (toolkit.path or f"/usr/local/cuda-{toolkit.cuda_version}") if toolkit else None


def from_environment(environment: Environment, scene: Scene) -> Iterator[Finding]:
    """Ask rule 6 about the Triton that is imported and every GPU."""
    return installed_fault(CAUSE, ("triton",), environment, scene, _installed_fixes)


def _installed_fixes(scene: Scene, release: TritonRelease, cc: ComputeCapability, ptxas: Ptxas | None) -> Iterator[Fix]:
    if ptxas:
        yield from machine_ptxas(scene, ptxas.override, arch_asked(release, cc))
    yield from torch_that_compiles(scene)


def machine_ptxas(scene: Scene, variable: str, arch: str) -> Iterator[Fix]:
    """The ptxas of a toolkit on the machine that knows the GPU and whose output the driver loads."""
    for toolkit in scene.machine.toolkits or ():
        known = scene.toolkit_known(toolkit.version)
        if known is None or toolkit.path is None or not toolkit.nvcc or arch not in known.archs:
            continue
        if scene.fit(known.version).reason.ok:
            values = {"cuda": toolkit.version, "arch": arch, "variable": variable, "home": toolkit.path}
            yield CAUSE.fix("machine-toolkit", **values)
            return
