"""``mixed-flavours``: parts disagree on torch's version, the CUDA major or the C++ ABI (rule 9)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from packaging.specifiers import SpecifierSet

from envsolve.diagnose.causes._asked import Demand, all_of, disputed
from envsolve.diagnose.causes._shared import Cause, lines, listed
from envsolve.diagnose.causes.mixed_flavours.linker import from_linker
from envsolve.diagnose.causes.mixed_flavours.packages import (
    builds_of,
    is_of_default_index,
    of_other_vendor,
    of_packages,
)
from envsolve.diagnose.fixes import (
    companions_for_torch,
    installer,
    jetson_remedies,
    pair_with,
    release_for,
    replacements,
)
from envsolve.diagnose.model import Finding, Fix, Grounds, RuledOut, public, shown
from envsolve.diagnose.rebuilding import rebuild_package, source_tree
from envsolve.diagnose.scene import Scene
from envsolve.diagnose.torch_build import Torch
from envsolve.environment.model import Distribution, Environment, ExtensionFiles, TorchFiles, needs, satisfies
from envsolve.facts.builds import Build
from envsolve.facts.evidence import Evidence
from envsolve.rules.nvidia.code import agrees
from envsolve.values import CudaVersion

CAUSE = Cause.of(__name__)
#: Companions that are released with each torch.
_CLOSE = ("torchvision", "torchaudio")


def from_report(scene: Scene) -> Iterator[Finding | RuledOut]:
    """Companions that the catalogue knows to disagree with torch, then what the linker and installers say."""
    if scene.torch is not None and scene.torch.version is not None:
        yield from _companions(scene, scene.torch)
    yield from of_packages(scene)
    yield from from_linker(scene)
    yield from _from_resolver(scene)


def from_environment(environment: Environment, scene: Scene) -> Iterator[Finding]:
    """Compare every package whose libraries need torch's with the torch that is imported."""
    return disagreeing_extensions(environment, scene)


def _from_resolver(scene: Scene) -> Iterator[Finding]:
    """The package on which the printed requirements disagree; what is not published at all is another cause."""
    match = CAUSE.first(scene, "conflict")
    if match is None or scene.first("conflict-unavailable", "uv-none", "pip-none", "poetry-none"):
        return
    if found := disputed(scene):
        demands = ", and ".join(dict.fromkeys(_in_words(one) for one in found))
        yield CAUSE.finding("conflict", Grounds.STATED, lines(match), _ways_out(scene, found), (), demands=demands)


def _in_words(demand: Demand) -> str:
    values = {"what": demand.what, "specifier": str(demand.wanted)}
    who = f"{demand.who} {demand.version or ''}".rstrip()
    return CAUSE.words("demand", who=who, **values) if demand.who else CAUSE.words("requested", **values)


def _ways_out(scene: Scene, found: Sequence[Demand]) -> Iterator[Fix]:
    """A fix without the user's requirement if the packages agree; otherwise releases of the packages that agree."""
    packages = {one.who: one.version for one in found if one.who}
    own = next((one for one in found if one.who is None), None)
    agreed = all_of([one for one in found if one.who])
    if own and packages and _exists(scene, own.what, agreed):
        yield _relaxed(scene, own, packages, agreed)
    yield _free(scene, [*packages, found[0].what])
    if len(packages) > 1:
        name, version = next(iter(packages.items()))
        yield CAUSE.fix("conflict-apart", names=" and ".join(packages), environment=name, package=_pin(name, version))


def _relaxed(scene: Scene, own: Demand, packages: Mapping[str, str | None], agreed: SpecifierSet) -> Fix:
    """The installed versions of the packages, with the requirement that they share instead of the user's."""
    family = {n: SpecifierSet(f"=={v}" if v else "") for n, v in packages.items() if scene.family.follows_torch(n)}
    pair = pair_with(scene, {own.what: agreed, **family}) if _of_torch(scene, own.what) else None
    others = [_pin(name, version) for name, version in packages.items() if not pair or name not in family]
    values = {"package": " and ".join(packages), "what": own.what, "specifier": own.wanted}
    fix = CAUSE.fix("conflict-relax", pip=installer(scene), packages=" ".join(others), **values)
    if pair is None:
        return fix
    return Fix(f"{fix.text} {pair.text}", f"{pair.command} && {fix.command}" if others else pair.command)


def _free(scene: Scene, names: Sequence[str]) -> Fix:
    """The packages in whatever releases agree."""
    fix = CAUSE.fix("conflict-free", names=", ".join(names), pip=installer(scene), packages=" ".join(names))
    every = {name: SpecifierSet() for name in ("torch", *names)}
    found = pair_with(scene, every) if all(_of_torch(scene, name) for name in names) else None
    return Fix(f"{fix.text} {found.text}", found.command) if found else fix


def _pin(name: str, version: str | None) -> str:
    return f"{name}=={version}" if version else name


def _of_torch(scene: Scene, name: str) -> bool:
    return name == "torch" or scene.family.follows_torch(name)


def _exists(scene: Scene, what: str, wanted: SpecifierSet) -> bool:
    known = scene.catalogue.builds(what)
    return not known or any(wanted.contains(build.version, prereleases=True) for build in known)


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
    """Why no published build of the companion's version is compatible with this torch; None if one may."""
    builds = builds_of(scene, name)
    # Nightly builds go with companions of the same date, which the catalogue does not follow.
    if not builds or torch.version is None or ".dev" in torch.version:
        return None
    own = torch.build or _stand_in(torch)
    how = scene.catalogue.family[name].agrees_on if torch.variant or torch.build else "nothing"
    if is_of_default_index(scene, name):
        # Libraries without GPU code load beside any torch, and those of one CUDA major beside all torches of it.
        plain = all(build.variant == "cpu" for build in builds)
        how = "nothing" if plain else "major" if own.cuda else how
    reasons = [agrees(build, own, how) for build in builds]
    return None if any(reason.ok is not False for reason in reasons) else reasons[0].text.partition(": ")[2]


def _stand_in(torch: Torch) -> Build:
    """A torch that the catalogue does not describe, as far as agreement needs it."""
    version, variant = torch.version or "0", torch.variant or "cpu"
    return Build("torch", version, variant, "any", (), "default", Evidence.INFERRED, "", cuda=torch.cuda)


def _fixes(scene: Scene, torch: Torch, name: str) -> Iterator[Fix]:
    """The companion for this torch, the torch for this companion, then the nearest pair."""
    symbol = CAUSE.first(scene, "symbol")
    if symbol and (tree := source_tree(scene, symbol.quote)):
        yield CAUSE.fix("compile-tree", torch=torch.label, tree=tree)
        return
    if other := of_other_vendor(scene, name):
        yield other
        return
    if scene.is_jetson:
        yield from jetson_remedies(scene)
        return
    own = release_for(scene, name, torch=torch.version) if scene.on_mac and name in _CLOSE else None
    if own:
        yield CAUSE.fix("of-mac", package=name, version=own.version, torch=torch.version)
        return
    exact = SpecifierSet(f"=={torch.version}" + (f"+{torch.variant}" if torch.variant else ""))
    version = public(scene.report.installed, name)
    companion = SpecifierSet(f"=={version}" if version else "")
    every = {other: SpecifierSet() for other in scene.report.installed if scene.family.follows_torch(other)}
    wrong = {other: SpecifierSet() for other in every if _disagreement(scene, torch, other)}
    found = [pair_with(scene, {"torch": exact, **wrong}), pair_with(scene, {**every, name: companion})]
    if found[0] is None:
        # No release of the companion goes with this build: the nearest older pair keeps its CUDA major if it can.
        found.append(pair_with(scene, {"torch": SpecifierSet(f"<{torch.version}"), **every}))
    yield from {remedy.command: remedy for remedy in found if remedy}.values()


# Extensions whose binaries show another CUDA, another C++ ABI, or another torch than the one that is imported.

_RUNTIME = re.compile(r"libcudart\.so\.(\d+)(?:\.\d+)*")
_CUDA_PARTS = ("libtorch_cuda.so", "libc10_cuda.so")


def disagreeing_extensions(environment: Environment, scene: Scene) -> Iterator[Finding]:
    """Packages whose libraries need torch's and were made for another one than the torch that is imported."""
    torch = environment.torch
    found: dict[str, tuple[Distribution, list[tuple[str, str]]]] = {}
    for extension in (environment.extensions or ()) if torch else ():
        distribution = environment.distribution(extension.package)
        if torch and distribution and (reasons := list(_reasons(environment, torch, distribution, extension))):
            found[distribution.name] = distribution, reasons
    if torch and found:
        every = [reason for _, reasons in found.values() for reason in reasons]
        evidence = (*(shown for _, shown in every), f"{torch.site}/torch/version.py: {torch.label}")
        values = {"package": listed([d.label for d, _ in found.values()]), "reason": every[0][0]}
        fixes = _installed_fixes(environment, scene, list(found))
        yield CAUSE.finding("installed", Grounds.READ, evidence, fixes, (), **values)


def _reasons(
    environment: Environment, torch: TorchFiles, distribution: Distribution, extension: ExtensionFiles
) -> Iterator[tuple[str, str]]:
    """The disagreements, in words, each with the file that shows it."""
    public = (torch.version or "").partition("+")[0]
    requirement = needs(environment, distribution).get("torch")
    if requirement and public and not satisfies(public, requirement.specifier):
        text = CAUSE.words("requires", specifier=requirement.specifier, torch=torch.label)
        yield text, f"{distribution.info}/METADATA: Requires-Dist: {requirement}"
    yield from _cuda_reasons(environment, torch, distribution)
    if torch.toolkit and extension.stated and extension.stated.endswith("+cpu"):
        yield CAUSE.words("without-kernels"), f"{distribution.info}: {extension.stated}"
    if None not in (torch.cxx11_abi, extension.cxx11_abi) and torch.cxx11_abi != extension.cxx11_abi:
        old, new = "the C++ ABI from before C++11", "the C++11 ABI"
        has, wants = (new, old) if torch.cxx11_abi else (old, new)
        shown = f"{distribution.site}/{extension.libraries[0]}: calls torch by {wants}, which torch does not have"
        yield CAUSE.words("abi", wants=wants, has=has), shown


def _cuda_reasons(environment: Environment, torch: TorchFiles, distribution: Distribution) -> Iterator[tuple[str, str]]:
    """The CUDA runtimes that its libraries need; a package that has one library for each CUDA loads the right one."""
    own = [library for library in environment.libraries if library.owner == distribution.name]
    majors = {int(m[1]): lib.path for lib in own for name in lib.needed if (m := _RUNTIME.fullmatch(name))}
    if torch.toolkit and majors and CudaVersion.parse(torch.toolkit).major not in majors:
        major, path = max(majors.items())
        yield (CAUSE.words("runtime", major=major, cuda=torch.toolkit), f"{path}: needs libcudart.so.{major}")
    part = next(((lib.path, name) for lib in own for name in lib.needed if name in _CUDA_PARTS), None)
    if torch.toolkit is None and torch.version and part:
        yield CAUSE.words("no-part", torch=torch.label), f"{part[0]}: needs {part[1]}"


def _installed_fixes(environment: Environment, scene: Scene, packages: Sequence[str]) -> Iterator[Fix]:
    torch = environment.distribution("torch")
    # Wheels of the variants' own indexes have the variant in METADATA, those of the default index do not.
    from_default = torch is not None and "+" not in (torch.version or "+")
    if found := companions_for_torch(scene, packages, from_default=from_default):
        yield found
        return
    for package in packages:
        if package not in scene.catalogue.family or not scene.catalogue.builds(package):
            yield from rebuild_package(environment, scene, package)
    yield from replacements(scene)[:1]
