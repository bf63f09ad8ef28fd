"""``mixed-flavours``: parts disagree on torch's version, the CUDA major or the C++ ABI (rule 9)."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.specifiers import SpecifierSet

from envsolve.diagnose.causes._shared import Cause, lines
from envsolve.diagnose.causes.mixed_flavours._installed import disagreeing_extensions
from envsolve.diagnose.causes.mixed_flavours._symbols import from_linker
from envsolve.diagnose.model import Finding, Fix, Grounds, RuledOut
from envsolve.diagnose.remedies.torch import pair_with
from envsolve.diagnose.scene import Scene, Torch, shown
from envsolve.environment.model import Environment
from envsolve.facts.builds import Build
from envsolve.facts.evidence import Evidence
from envsolve.machine.model import Platform
from envsolve.rules.nvidia.code import agrees
from envsolve.rules.platform import same_system
from envsolve.solve.family import DEFAULT

CAUSE = Cause.of(__name__)


def from_report(scene: Scene) -> Iterator[Finding | RuledOut]:
    """Companions that the catalogue knows to disagree with torch, then what the linker says."""
    if scene.torch is not None and scene.torch.version is not None:
        yield from _companions(scene, scene.torch)
    yield from from_linker(scene)


def from_environment(environment: Environment, scene: Scene) -> Iterator[Finding]:
    """Compare every package whose libraries need torch's with the torch that is imported."""
    return disagreeing_extensions(environment, scene)


def _companions(scene: Scene, torch: Torch) -> Iterator[Finding | RuledOut]:
    error = CAUSE.first(scene, "companion", "symbol", "runtime", "library")
    # Warnings are printed and survived.
    warning = scene.first("pip-incompatible") or CAUSE.first(scene, "warning")
    grounds = Grounds.CONFIRMED if error else Grounds.STATED if warning else Grounds.DERIVED
    for name in filter(scene.family.follows_torch, scene.report.installed):
        seen = scene.report.installed[name]
        if reason := _disagreement(scene, torch, name):
            evidence = (*lines(error or warning), shown(seen), *torch.evidence)
            values = {"package": name, "version": seen.value, "reason": reason}
            yield CAUSE.finding("companion", grounds, evidence, _fixes(scene, torch, name), **values)
        else:
            yield CAUSE.ruled_out("fits", package=name, version=seen.value, torch=torch.label)


def _disagreement(scene: Scene, torch: Torch, name: str) -> str | None:
    """Why no published build of the companion's version goes with this torch; None if one may."""
    builds = _builds(scene, name)
    if not builds or torch.version is None or ".dev" in torch.version:
        return None
    own = torch.build or _stand_in(torch)
    how = scene.catalogue.family[name].agrees_on if torch.variant or torch.build else "nothing"
    reasons = [agrees(build, own, how) for build in builds]
    return None if any(reason.ok for reason in reasons) else reasons[0].text.partition(": ")[2]


def _builds(scene: Scene, name: str) -> list[Build]:
    """The published builds that the installed companion may be."""
    version, _, local = scene.report.installed[name].value.partition("+")
    platform = scene.machine.platform or Platform()
    builds = [b for b in scene.catalogue.builds(name) if b.version == version and same_system(b.platform, platform)]
    if local:
        return [b for b in builds if b.variant == local] or builds
    if scene.first("vision-cuda", "vision-nms", "vision-ops"):
        # A version without a local part is the default index's, and the error says that it is another than torch's.
        return [b for b in builds if b.index == DEFAULT] or builds
    return builds


def _stand_in(torch: Torch) -> Build:
    """A torch that the catalogue does not describe, as far as agreement needs it."""
    version, variant = torch.version or "0", torch.variant or "cpu"
    return Build("torch", version, variant, "any", (), "default", Evidence.INFERRED, "", cuda=torch.cuda)


def _fixes(scene: Scene, torch: Torch, name: str) -> Iterator[Fix]:
    """The companion for this torch, the torch for this companion, then the nearest pair."""
    exact = SpecifierSet(f"=={torch.version}" + (f"+{torch.variant}" if torch.variant else ""))
    companion = SpecifierSet(f"=={scene.report.installed[name].value.partition('+')[0]}")
    found = [pair_with(scene, {"torch": exact, name: SpecifierSet()}), pair_with(scene, {name: companion})]
    if found[0] is None:
        # No release of the companion goes with this build: the nearest older pair keeps its CUDA major if it can.
        found.append(pair_with(scene, {"torch": SpecifierSet(f"<{torch.version}"), name: SpecifierSet()}))
    yield from {remedy.command: remedy for remedy in found if remedy}.values()
