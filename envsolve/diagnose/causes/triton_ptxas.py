"""``triton-ptxas-*``: the assembler that Triton runs does not fit the card, the driver, or Triton itself (rule 6)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packaging.version import Version

from envsolve.diagnose.causes._shared import by_triton, driver_text, lines
from envsolve.diagnose.model import Finding, Grounds, Remedy, RuledOut
from envsolve.diagnose.remedies.tools import driver_running, ptxas_remedy
from envsolve.diagnose.remedies.torch import led_by, replacements
from envsolve.diagnose.scene import Scene, public
from envsolve.diagnose.signatures import Match
from envsolve.facts.hardware import Ptxas, TritonRelease
from envsolve.rules.nvidia.code import chosen_ptxas, triton_pin
from envsolve.rules.nvidia.driver import driver_runs
from envsolve.values import ComputeCapability, CudaVersion, DriverVersion

_REPRO = re.compile(r"Repro command: ?(\S{1,200}ptxas\S{0,20})")

_LACKS = (
    "Triton compiles its kernels itself: it writes PTX for the very GPU and runs a ptxas that its own wheel brings. "
    "The one in use{which} does not know {arch}, since it is older than the card; torch's own kernels are not "
    "concerned. A newer Triton brings a newer ptxas, and an environment variable can point Triton to another one."
)
_NEWER = (
    "Triton's kernels are assembled by the ptxas in its wheel, and what it writes needs a driver of that ptxas's "
    "CUDA family, whatever flavour torch is. {which}, and {driver} does not load that, hence 'device kernel image is "
    "invalid'. Either a ptxas of an older CUDA, or a newer driver, is needed; torch's own kernels are not concerned."
)
_TOO_OLD = (
    "Triton writes PTX of the version that its own ptxas reads, and here another, older or unknown, ptxas is run: "
    "{detail}. "
    "TRITON_PTXAS_PATH, or a system toolkit that is found first, put it there. "
    "Triton should use the ptxas of its own wheel again, or one at least as new."
)


def weigh(scene: Scene) -> Iterator[Finding | RuledOut]:
    """Who ran the ptxas, and what the catalogue knows of it."""
    if (match := scene.first("ptxas-no-arch", "llvm-no-arch")) and _is_triton(scene, match):
        yield _lacks(scene, match)
    if match := scene.first("cubin-invalid"):
        yield from _newer(scene, match)
    old = scene.first("triton-cuda-table", "ptxas-old") if scene.first("jit-version") is None else None
    if old and (old.signature.id == "triton-cuda-table" or _is_triton(scene, old)):
        yield _too_old(scene, old)


def _is_triton(scene: Scene, match: Match) -> bool:
    return by_triton(scene) or match.quote.startswith("ptxas-blackwell")


def _release(scene: Scene) -> TritonRelease | None:
    """The Triton at hand: installed, else the one that torch pins."""
    version = public(scene.report.installed, "triton") or public(scene.report.installed, "pytorch-triton")
    if version is None and scene.torch and scene.torch.build:
        version = triton_pin(scene.torch.build)
    return scene.facts.tritons.get(version) if version else None


def _lacks(scene: Scene, match: Match) -> Finding:
    arch = match.groups["arch"]
    release, cc = _release(scene), ComputeCapability.parse(arch)
    ptxas = chosen_ptxas(release, cc) if release else None
    confirmed = ptxas is not None and arch not in ptxas.archs
    which = f" (that of Triton {release.version}, from CUDA {ptxas.cuda})" if release and ptxas else ""
    evidence = (*lines(match), *scene.gpu_evidence, *(scene.torch.evidence if scene.torch else ()))
    return Finding(
        "triton-ptxas-lacks-arch",
        Grounds.CONFIRMED if confirmed else Grounds.STATED,
        _LACKS.format(which=which, arch=arch),
        evidence,
        tuple(_knowing(scene, arch, cc, release, ptxas)),
        explains=frozenset({"nvcc-arch-unknown"}),
    )


def _knowing(
    scene: Scene, arch: str, cc: ComputeCapability, release: TritonRelease | None, ptxas: Ptxas | None
) -> Iterator[Remedy]:
    """Its own ptxas where another was put in its place, then another by variable: neither changes a package."""
    ran = _REPRO.search(scene.report.text)
    if ran and "triton" not in ran[1]:
        text = f"Let Triton use the ptxas of its own wheel again: {ran[1]} was put in its place."
        yield Remedy(text, "unset TRITON_PTXAS_PATH TRITON_PTXAS_BLACKWELL_PATH")
    toolkit = next((t for t in scene.catalogue.toolkits if arch in t.archs), None)
    if toolkit is not None:
        wanted = str(CudaVersion.parse(toolkit.version))
        variable = _variable(scene, cc, release, ptxas)
        at = _toolkit_path(scene, wanted) or f"/usr/local/cuda-{wanted}"
        text = (
            f"Point Triton to a ptxas of CUDA {wanted} or newer, which knows {arch}, if the machine has such a toolkit."
        )
        if _toolkit_path(scene, wanted):
            yield Remedy(text, f"export {variable}={at}/bin/ptxas")
        if wheel := ptxas_remedy(scene, wanted, variable):
            yield wheel
        if not _toolkit_path(scene, wanted):
            yield Remedy(text, f"export {variable}={at}/bin/ptxas")
    known = [r for r in scene.catalogue.tritons if (p := chosen_ptxas(r, cc)) is not None and arch in p.archs]
    first = min((Version(r.version) for r in known), default=None)
    if first is not None:
        for remedy in replacements(scene):
            yield led_by(f"Triton knows {arch} from {first} on, and comes with its torch", remedy)
        yield Remedy(f"Triton {first} is the first whose ptxas knows {arch}: use a torch that pins it or a newer one.")


def _variable(scene: Scene, cc: ComputeCapability, release: TritonRelease | None, ptxas: Ptxas | None) -> str:
    if ptxas is not None:
        return ptxas.override
    if release is None and scene.mentions("ptxas-blackwell"):
        newest = chosen_ptxas(scene.catalogue.tritons[-1], cc)
        return newest.override if newest else "TRITON_PTXAS_PATH"
    return "TRITON_PTXAS_PATH"


def _toolkit_path(scene: Scene, at_least: str) -> str | None:
    """A toolkit of the machine that is new enough, where one is told with its path."""
    for toolkit in scene.machine.toolkits or ():
        if toolkit.cuda_version and toolkit.cuda_version >= CudaVersion.parse(at_least):
            return toolkit.path or f"/usr/local/cuda-{toolkit.cuda_version}"
    return None


def _newer(scene: Scene, match: Match) -> Iterator[Finding]:
    release = _release(scene)
    gpu = scene.gpus[0] if scene.gpus else None
    ptxas = chosen_ptxas(release, gpu.cc) if release and gpu and gpu.cc else (release.ptxas[0] if release else None)
    facts = scene.facts
    fit = driver_runs(ptxas.cuda, scene.driver, scene.os, facts.toolkits, facts.floors) if ptxas else None
    below = fit is not None and fit.reason.ok is False
    if not below and not by_triton(scene):
        return
    which = (
        f"Triton {release.version} brings a ptxas of CUDA {ptxas.cuda}"
        if release and ptxas
        else "Its ptxas is of a newer CUDA"
    )
    yield Finding(
        "triton-ptxas-newer-than-driver",
        Grounds.CONFIRMED if below else Grounds.SUGGESTED if fit and fit.reason.ok else Grounds.STATED,
        _NEWER.format(which=which, driver=driver_text(scene)),
        (*lines(match), *(scene.torch.evidence if scene.torch else ()), *scene.driver_evidence),
        tuple(_loading(scene, ptxas)),
    )


def _loading(scene: Scene, ptxas: Ptxas | None) -> Iterator[Remedy]:
    """A ptxas that this driver's family covers: the machine's own, one inside a torch wheel, then another driver."""
    family = CudaVersion.parse(scene.driver.cuda).major if scene.driver and scene.driver.cuda else None
    for toolkit in scene.machine.toolkits or ():
        if family and toolkit.version and CudaVersion.parse(toolkit.version).major <= family:
            version = str(CudaVersion.parse(toolkit.version))
            at = toolkit.path or f"/usr/local/cuda-{version}"
            variable = ptxas.override if ptxas else "TRITON_PTXAS_PATH"
            text = (
                f"Let Triton use the ptxas of the toolkit that is there, CUDA {version}: this driver loads what "
                f"it writes."
            )
            yield Remedy(text, f"export {variable}={at}/bin/ptxas")
    newest = next(
        (t for t in reversed(scene.catalogue.toolkits) if family and CudaVersion.parse(t.version).major == family), None
    )
    if newest and ptxas and (wheel := ptxas_remedy(scene, str(CudaVersion.parse(newest.version)), ptxas.override)):
        yield wheel
    yield from _with_own_ptxas(scene)
    # Torch options of the first tier are those whose Triton runs here.
    best = next(iter(scene.family.options("torch")), None)
    if best is not None and best.verdict.triton:
        yield from replacements(scene)[-1:]
    if ptxas and (driver := driver_running(scene, ptxas.cuda)):
        yield driver
    yield Remedy("Without either, run without compiling: torch's own kernels work.", "export TORCHDYNAMO_DISABLE=1")


def _with_own_ptxas(scene: Scene) -> Iterator[Remedy]:
    """Torch builds of this driver's CUDA family that bring a ptxas of their own for inductor."""
    facts = scene.facts
    own = [
        option
        for option in scene.family.options("torch")
        if option.build.own_ptxas
        and driver_runs(option.build.own_ptxas, scene.driver, scene.os, facts.toolkits, facts.floors).reason.ok
    ]
    if not own:
        return
    at_hand = DriverVersion.parse(scene.torch.version) if scene.torch and scene.torch.version else ()
    same = [o for o in own if DriverVersion.parse(o.build.version)[:2] == at_hand[:2]]
    for build in {option.identity: option.build for option in (*same[:1], own[0])}.values():
        text = (
            f"Install torch {build.version} [{build.variant}], whose wheel brings a ptxas of CUDA "
            f"{build.own_ptxas} that inductor uses."
        )
        place = scene.catalogue.indexes.get(build.index)
        where = f" --index-url {place.url.format(variant=build.variant)}" if place else ""
        yield Remedy(text, f"pip install torch=={build.version}{build.local}{where}")


def _too_old(scene: Scene, match: Match) -> Finding:
    if "asked" in match.groups:
        detail = f"Triton wrote PTX {match.groups['asked']}, and that ptxas reads up to {match.groups['known']}"
    else:
        detail = (
            f"it is of CUDA {match.groups['cuda']}, which this Triton's table does not have"
            if "cuda" in match.groups
            else "its version is not in Triton's table"
        )
    path = scene.report.variables.get("TRITON_PTXAS_PATH")
    evidence = (*lines(match), *((f"{path.where}: {path.quote}",) if path else ()))
    remedies = [
        Remedy(
            "Let Triton use the ptxas of its own wheel again.", "unset TRITON_PTXAS_PATH TRITON_PTXAS_BLACKWELL_PATH"
        )
    ]
    asked = match.groups.get("asked")
    newer = next(
        (t for t in scene.catalogue.toolkits if asked and DriverVersion.parse(t.ptx_isa) >= DriverVersion.parse(asked)),
        None,
    )
    if newer:
        version = str(CudaVersion.parse(newer.version))
        remedies.append(
            Remedy(
                f"Or point it to a ptxas of CUDA {version} or newer.",
                f"export TRITON_PTXAS_PATH=/usr/local/cuda-{version}/bin/ptxas",
            )
        )
    else:
        remedies += [
            led_by("Or use a newer Triton, with its torch, that knows this CUDA", r) for r in replacements(scene)[:2]
        ]
    grounds = Grounds.CONFIRMED if path else Grounds.STATED
    return Finding("triton-ptxas-too-old", grounds, _TOO_OLD.format(detail=detail), evidence, tuple(remedies))
