"""``triton-ptxas-newer-than-driver``: the driver does not load what the ptxas of Triton writes (rule 6)."""

from __future__ import annotations

from collections.abc import Iterator

from envsolve.diagnose.causes._shared import (
    Cause,
    by_triton,
    driver_text,
    installed_fault,
    lines,
    reported_triton,
    torch_evidence,
    torch_that_compiles,
)
from envsolve.diagnose.causes.triton_ptxas_lacks_arch import machine_ptxas
from envsolve.diagnose.model import Finding, Fix, Grounds
from envsolve.diagnose.scene import Scene
from envsolve.diagnose.tool_fixes import driver_running, ptxas_remedy
from envsolve.environment.model import Environment
from envsolve.facts.hardware import Ptxas, TritonRelease
from envsolve.rules.nvidia.code import arch_asked, chosen_ptxas
from envsolve.values import ComputeCapability, CudaVersion, DriverVersion

CAUSE = Cause.of(__name__)


def from_report(scene: Scene) -> Iterator[Finding]:
    """Any kernel can fail with these words; the driver and the ptxas decide."""
    match, release = CAUSE.first(scene), reported_triton(scene)
    if match is None:
        return
    gpu = scene.gpus[0] if scene.gpus else None
    ptxas = chosen_ptxas(release, gpu.cc) if release and gpu and gpu.cc else (release.ptxas[0] if release else None)
    fit = scene.fit(ptxas.cuda) if ptxas else None
    below = fit is not None and fit.reason.ok is False
    if not below and not by_triton(scene):
        return
    known = CAUSE.words("known", triton=release.version, cuda=ptxas.cuda) if release and ptxas else None
    yield CAUSE.finding(
        "newer",
        Grounds.CONFIRMED if below else Grounds.SUGGESTED if fit and fit.reason.ok else Grounds.STATED,
        (*lines(match), *torch_evidence(scene), *scene.driver_evidence),
        _fixes(scene, ptxas),
        which=known or CAUSE.words("unknown"),
        driver=driver_text(scene),
    )


def _fixes(scene: Scene, ptxas: Ptxas | None) -> Iterator[Fix]:
    """A ptxas that this driver's family covers: the machine's own, one in a torch wheel, then another driver."""
    family = CudaVersion.parse(scene.driver.cuda).major if scene.driver and scene.driver.cuda else None
    variable = ptxas.override if ptxas else "TRITON_PTXAS_PATH"
    for toolkit in scene.machine.toolkits or ():
        cuda = toolkit.cuda_version
        if family and cuda and cuda.major <= family:
            yield CAUSE.fix("toolkit", cuda=cuda, variable=variable, home=toolkit.path or f"/usr/local/cuda-{cuda}")
    # A driver loads what any release of its own major writes.
    newest = next((t for t in reversed(scene.catalogue.toolkits) if t.cuda_version.major == family), None)
    if newest and ptxas and (wheel := ptxas_remedy(scene, str(newest.cuda_version), ptxas.override)):
        yield wheel
    driver = driver_running(scene, ptxas.cuda) if ptxas else None
    # Only inductor runs the ptxas of a torch wheel: kernels that a program writes itself are Triton's.
    inductor = scene.mentions("inductor", "torch.compile", "dynamo")
    yield from filter(None, () if inductor else (driver,))
    yield from _with_own_ptxas(scene)
    yield from torch_that_compiles(scene)
    yield from filter(None, (driver,) if inductor else ())
    yield CAUSE.fix("eager")


def _with_own_ptxas(scene: Scene) -> Iterator[Fix]:
    """Torch builds of this driver's CUDA family that have a ptxas of their own for inductor."""
    options = scene.family.options("torch")
    own = [o for o in options if o.build.own_ptxas and scene.fit(o.build.own_ptxas).reason.ok]
    at_hand = DriverVersion.parse(scene.torch.version) if scene.torch and scene.torch.version else ()
    same = [o for o in own if DriverVersion.parse(o.build.version)[:2] == at_hand[:2]]
    for build in {option.identity: option.build for option in (*same[:1], *own[:1])}.values():
        place = scene.catalogue.indexes.get(build.index)
        index = f" --index-url {place.url.format(variant=build.variant)}" if place else ""
        values = {"version": build.version, "variant": build.variant, "cuda": build.own_ptxas, "local": build.local}
        yield CAUSE.fix("torch", index=index, **values)


def from_environment(environment: Environment, scene: Scene) -> Iterator[Finding]:
    """Ask rule 6 about the Triton that is imported and every GPU."""
    return installed_fault(CAUSE, ("triton-driver",), environment, scene, _installed_fixes)


def _installed_fixes(scene: Scene, release: TritonRelease, cc: ComputeCapability, ptxas: Ptxas | None) -> Iterator[Fix]:
    if ptxas:
        yield from machine_ptxas(scene, ptxas.override, arch_asked(release, cc))
    yield from torch_that_compiles(scene)
    if ptxas and (driver := driver_running(scene, ptxas.cuda)):
        yield driver
