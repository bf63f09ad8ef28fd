"""``mixed-flavours`` by the catalogue: a companion that was built for another torch or CUDA (rule 9)."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.specifiers import SpecifierSet

from envsolve.diagnose.causes._shared import lines
from envsolve.diagnose.model import Finding, Grounds, Remedy, RuledOut
from envsolve.diagnose.remedies.torch import pair_with
from envsolve.diagnose.scene import Scene, Torch, shown
from envsolve.facts.builds import Build
from envsolve.machine.model import Platform
from envsolve.rules.nvidia.code import agrees
from envsolve.rules.platform import same_system
from envsolve.solve.family import DEFAULT

_ERRORS = (
    "vision-cuda",
    "vision-nms",
    "vision-ops",
    "xformers-built",
    "torch-symbol",
    "torch-procedure",
    "cudart-missing",
    "torch-library-missing",
)
#: Warnings that are printed and survived.
_WARNINGS = ("pip-incompatible", "xformers-ops", "torchao-extensions")

_EXPLANATION = (
    "{package} {version} is compiled against one torch and one CUDA, and works beside no other: {reason}. Installers "
    "check versions alone, and not even those where a wheel names no torch, so such a pair installs without a "
    "complaint. One of the two must move: either {package} to the release for this torch, or torch to the one for "
    "{package}."
)


def weigh(scene: Scene) -> Iterator[Finding | RuledOut]:
    """Hold every companion against the torch at hand."""
    torch = scene.torch
    if torch is None or torch.version is None:
        return
    error, warning = scene.first(*_ERRORS), scene.first(*_WARNINGS)
    for name in scene.report.installed:
        if not scene.family.follows_torch(name):
            continue
        if reason := _disagreement(scene, torch, name):
            seen = scene.report.installed[name]
            text = _EXPLANATION.format(package=name, version=seen.value, reason=reason)
            grounds = Grounds.CONFIRMED if error else Grounds.STATED if warning else Grounds.DERIVED
            evidence = (*lines(error or warning), shown(seen), *torch.evidence)
            remedies = tuple(_remedies(scene, torch, name))
            yield Finding("mixed-flavours", grounds, text, evidence, remedies, frozenset({"lock-incomplete"}))
        else:
            yield RuledOut(f"{name} {scene.report.installed[name].value} goes with {torch.label}")


def _disagreement(scene: Scene, torch: Torch, name: str) -> str | None:
    """Why no published build of the companion's version goes with this torch; None where one may."""
    version, _, local = scene.report.installed[name].value.partition("+")
    platform = scene.machine.platform or Platform()
    builds = [b for b in scene.catalogue.builds(name) if b.version == version and same_system(b.platform, platform)]
    if local:
        builds = [b for b in builds if b.variant == local] or builds
    elif scene.first("vision-cuda", "vision-nms", "vision-ops"):
        # A version without a local part is the default index's, and the error says that it is another than torch's.
        builds = [b for b in builds if b.index == DEFAULT] or builds
    if not builds or torch.version is None or ".dev" in torch.version:
        return None
    stand_in = torch.build or _stand_in(torch)
    how = scene.catalogue.family[name].agrees_on if torch.variant or torch.build else "nothing"
    reasons = [agrees(build, stand_in, how) for build in builds]
    return None if any(reason.ok for reason in reasons) else reasons[0].text.partition(": ")[2]


def _stand_in(torch: Torch) -> Build:
    """A torch that the catalogue does not describe, as far as agreement needs it."""
    from envsolve.facts.evidence import Evidence

    return Build(
        "torch",
        torch.version or "0",
        torch.variant or "cpu",
        "any",
        (),
        "default",
        Evidence.INFERRED,
        "",
        cuda=torch.cuda,
    )


def _remedies(scene: Scene, torch: Torch, name: str) -> Iterator[Remedy]:
    """The companion for this torch, the torch for this companion, then the nearest pair."""
    exact = SpecifierSet(f"=={torch.version}" + (f"+{torch.variant}" if torch.variant else ""))
    companion = SpecifierSet(f"=={scene.report.installed[name].value.partition('+')[0]}")
    found = [pair_with(scene, {"torch": exact, name: SpecifierSet()}), pair_with(scene, {name: companion})]
    if found[0] is None:
        # No release of the companion goes with this build: the nearest older pair keeps its CUDA major where it can.
        found.append(pair_with(scene, {"torch": SpecifierSet(f"<{torch.version}"), name: SpecifierSet()}))
    yield from {remedy.command: remedy for remedy in found if remedy}.values()
