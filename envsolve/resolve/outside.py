"""Wheels of extensions that are on no package index: on release pages and on pages of links.

Each is made for one torch minor, one CUDA and one C++ ABI. Which is the right one is therefore a question that has an
answer once torch is chosen; torch is never bent to them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from envsolve.catalogue.model import Build
from envsolve.compat.verdict import Level
from envsolve.compat.versions import minor
from envsolve.resolve.family import Family, Option

Ready = Mapping[str, Sequence[Option]]
"""By package, its wheels, best first."""


def ready(package: str, torch: Option, family: Family) -> tuple[Option, ...]:
    """The wheels of a package that go with a torch and serve the machines, best first.

    Args:
        package: A package that is compiled otherwise.
        torch: The torch of the plan.
        family: What is published, and the machines.
    """
    fitting = [option for option in _usable(package, family) if goes_with(option.build, torch.build)]
    # What a public list names is there; a workflow that should have made a wheel may have failed.
    fitting.sort(key=lambda option: option.build.evidence.rank)
    fitting.sort(key=lambda option: Version(option.version.public), reverse=True)
    return tuple(fitting)


def still_there(wheels: Ready, family: Family) -> Ready:
    """Wheels less those that turned out not to exist any more."""
    return {
        name: [o for o in options if not any(o.build.filename(p) in family.gone for p in o.build.pythons)]
        for name, options in wheels.items()
    }


def torches_served(package: str, family: Family) -> tuple[str, ...]:
    """The torch minors for which a package has wheels that serve the machines, oldest first."""
    found = {
        minor(torch.build.version)
        for option in _usable(package, family)
        for torch in family.options("torch")
        if goes_with(option.build, torch.build)
    }
    return tuple(f"{major}.{lesser}" for major, lesser in sorted(found))


def goes_with(build: Build, torch: Build) -> bool:
    """Rule 9: the torch minor, the CUDA and the C++ ABI that a wheel was made for.

    A wheel whose name states a whole flavour (``+pt28cu129``) was made for that one, others for every CUDA of a major.
    """
    if build.cuda is None or torch.cuda is None or build.torch is None:
        return False
    if build.variant in build.local:
        same = build.variant == torch.variant
    else:
        same = minor(build.cuda)[0] == minor(torch.cuda)[0]
    abi = build.cxx11_abi is None or build.cxx11_abi == torch.cxx11_abi
    return same and abi and SpecifierSet(build.torch).contains(torch.version, prereleases=True)


def _usable(package: str, family: Family) -> Iterator[Option]:
    for option in family.judged_outside(package):
        known = option.build.code is not None and option.verdict.level is not Level.NONE
        if known and not option.version.is_prerelease:
            yield option
