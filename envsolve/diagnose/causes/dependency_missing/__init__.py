"""``dependency-missing``: an installed package requires one that is not installed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from envsolve.binaries.names import is_runtime_package
from envsolve.diagnose.causes._shared import Cause, lines, listed, may_be_built
from envsolve.diagnose.causes.mixed_flavours.linker import published_wheel
from envsolve.diagnose.fixes import companions_for_torch, pair_with, replacements
from envsolve.diagnose.model import Finding, Fix, Grounds, public
from envsolve.diagnose.scene import Scene
from envsolve.diagnose.signatures import Match
from envsolve.environment.model import Distribution, Environment, needs, pinned, torch_distribution
from envsolve.facts.catalogue import Catalogue
from envsolve.system.files import is_file, is_folder
from envsolve.toolchain.model import source_project

CAUSE = Cause.of(__name__)
#: These change the requirements of what they package, and keep their own.
_OTHER_RULES = ("conda", "debian")


def from_report(scene: Scene) -> Iterator[Finding]:
    """A module that torch or a program requires cannot be imported; builds are a different cause."""
    if scene.mentions(*_BUILDING):
        return
    if match := CAUSE.first(scene):
        package = match.groups["module"].lower().replace("_", "-")
        grounds = Grounds.STATED if scene.mentions("torch") else Grounds.SUGGESTED
        yield CAUSE.finding("absent", grounds, lines(match), [CAUSE.fix("install", packages=package)], package=package)
    else:
        yield from _not_installed(scene)


_BUILDING = ("getting requirements to build", "build dependencies", "build wheel")


def _not_installed(scene: Scene) -> Iterator[Finding]:
    """A package that a program imports and its interpreter lacks, unless another cause explains the message better."""
    if compiled := CAUSE.first(scene, "compiled"):
        yield _without_library(scene, compiled)
        return
    match = CAUSE.first(scene, "named", "module")
    same = (CAUSE.code, "build-isolation")
    if match is None or any(m.signature.causes and m.signature.causes[0] not in same for m in scene.matches):
        return
    module = match.group("module") or ""
    if module == "torch" and not may_be_built(scene):
        # "pip" by itself may be that of another Python.
        own = (Fix(fix.text, re.sub(r"^pip ", "python -m pip ", fix.command or "")) for fix in replacements(scene)[-1:])
        ways = (CAUSE.fix("which"), *own)
        yield CAUSE.finding("torch-absent", Grounds.STATED, lines(match), ways)
        return
    package = _package_of(module) if module else (match.group("package", "absent", "named") or "").replace("_", "-")
    if package and public(scene.report.installed, package) is None:
        values = {"module": module or package, "package": package}
        yield CAUSE.finding("not-installed", Grounds.STATED, lines(match), _install(scene, package), **values)


_INIT = re.compile(r'File "(?P<place>[^"\n]{1,200})[\\/](?P<package>\w+)[\\/]__init__\.py"')


def _without_library(scene: Scene, match: Match) -> Finding:
    """A package that is imported without its compiled part: from its sources, or from a wheel that lacks it."""
    named = match.group("module", "package")
    found = [m for m in _INIT.finditer(scene.report.text) if named in (None, m["package"])]
    package = named or (found[-1]["package"] if found else f"{match.groups['library']}_cpp")
    place = found[-1]["place"] if found else "its directory"
    in_tree = bool(found) and "-packages" not in place
    values = {"package": package, "distribution": _package_of(package) or package.replace("_", "-")}
    why = CAUSE.words("in-tree" if in_tree else "not-built")
    ways = [CAUSE.fix("elsewhere", **values)] if in_tree else []
    return CAUSE.finding(
        "compiled-missing",
        Grounds.STATED,
        lines(match),
        [*ways, CAUSE.fix("again", **values)],
        package=package,
        place=place,
        why=why,
    )


def _package_of(module: str) -> str | None:
    """The package that has a module, if the package is common in GPU programs; a program's own modules are not."""
    known = dict(pair.split(" ") for pair in CAUSE.words("packages").split("; "))
    return known.get(module) or (module.replace("_", "-") if module in CAUSE.words("same").split() else None)


def _install(scene: Scene, package: str) -> Iterator[Fix]:
    """The package for the installed torch, which stays."""
    found = None
    if scene.family.follows_torch(package):
        pair = {"torch": SpecifierSet(), package: SpecifierSet()}
        found = companions_for_torch(scene, [package]) if scene.torch else pair_with(scene, pair)
    if found:
        yield found
    elif wheel := published_wheel(scene, package):
        yield wheel
    elif source_project(package, None, scene.catalogue.source_projects):
        yield CAUSE.fix("own-build", package=package)
    else:
        yield CAUSE.fix("install", packages=f'"{package}"' if set(package) & set("[<>=") else package)


def from_environment(environment: Environment, scene: Scene) -> Iterator[Finding]:
    """Compare the requirements of every distribution with the installed ones, those of torch first."""
    gaps = list(_gaps(environment, scene.catalogue))
    reached = _reached(environment)
    of_torch = [gap for gap in gaps if gap[0].name in reached]
    if chosen := of_torch or gaps:
        who, what = [d.label for d, _ in chosen], dict.fromkeys(pinned(r) for _, r in chosen)
        evidence = (f"{d.info}: requires {pinned(r)}, which is not installed" for d, r in chosen)
        packages = " ".join(f'"{name}"' if set(name) & set("<>!~;") else name for name in what)
        fix = CAUSE.fix("install", packages=packages)
        values = {"who": listed(list(dict.fromkeys(who))), "what": listed([r.name for _, r in chosen])}
        grounds = Grounds.READ if of_torch else Grounds.NOTICED
        found = CAUSE.finding("unmet", grounds, evidence, [fix], **values)
        yield replace(found, beside_torch=not of_torch)


def _gaps(environment: Environment, catalogue: Catalogue) -> Iterator[tuple[Distribution, Requirement]]:
    """Requirements of which nothing is installed, under that name or another that has the same files."""
    there = {d.name for d in environment.distributions} | {p.name for p in environment.conda}
    twins = {s.package: s.owner for s in catalogue.shared_files}
    owners = {twins.get(name, name) for name in there}
    seen: set[str] = set()
    for distribution in environment.distributions:
        if distribution.name in seen or distribution.installer in _OTHER_RULES:
            continue
        seen.add(distribution.name)
        for name, requirement in needs(environment, distribution).items():
            # The vendor's libraries may come from the system; `lock-incomplete` looks for the files themselves.
            if name in there or twins.get(name, name) in owners or is_runtime_package(name):
                continue
            if not _importable(environment, name):
                yield distribution, requirement


def _importable(environment: Environment, name: str) -> bool:
    """Whether a module of that name is on the path, as of packages that were copied there without metadata."""
    module = name.replace("-", "_")
    places = (Path(site.path) / module for site in environment.sites)
    return any(is_folder(place) or is_file(place.with_suffix(".py")) for place in places)


def _reached(environment: Environment) -> set[str]:
    """The names of torch and of all that it requires, directly or not."""
    own = torch_distribution(environment)
    found: set[str] = set()
    ahead = [own] if own else []
    while ahead:
        distribution = ahead.pop()
        found.add(distribution.name)
        names = (name for name in needs(environment, distribution) if name not in found)
        ahead += [d for name in names if (d := environment.distribution(name))]
    return found
