"""The torch at hand: what the report says of it, and what the catalogue knows of that build."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from envsolve.catalogue.load import Catalogue
from envsolve.catalogue.model import Build
from envsolve.compat.platform import same_system
from envsolve.diagnose.model import Report, Seen
from envsolve.machine.model import Machine, Platform
from envsolve.resolve.family import DEFAULT

#: Names under which torch is installed, the most telling first; ``libtorch`` is its C++ distribution.
_NAMES = ("torch", "pytorch", "pytorch-gpu", "libtorch", "pytorch-cpu")
_VARIANT = re.compile(r"cpu|cu\d{2,3}")
_MINOR = re.compile(r"\d+\.\d+")


@dataclass(frozen=True, slots=True)
class Torch:
    """The torch of a report.

    Attributes:
        version: Public version; None where only its CUDA or its code is known.
        variant: ``cu126`` or ``cpu``; None where unknown.
        cuda: The toolkit inside, ``12.6``.
        code: GPU code that it carries.
        code_from: Where ``code`` was learnt.
        build: The catalogue's record of it.
        evidence: Where the report shows it.
    """

    version: str | None
    variant: str | None
    cuda: str | None
    code: tuple[str, ...] | None
    code_from: str | None
    build: Build | None
    evidence: tuple[str, ...]

    @property
    def label(self) -> str:
        """``torch 2.8.0 [cu128]``."""
        return f"torch {self.version or ''}".rstrip() + (f" [{self.variant}]" if self.variant else "")


def torch_of(report: Report, machine: Machine, catalogue: Catalogue) -> Torch | None:
    """The torch that a report speaks of; None where it speaks of none."""
    name = next((n for n in _NAMES if n in report.installed), None)
    seen = report.installed[name] if name else None
    if seen is None and report.cuda is None and report.arch_list is None:
        return None
    version, _, local = seen.value.partition("+") if seen else (None, "", "")
    stated = _VARIANT.match(local)
    variant = stated[0] if stated else _variant_of(report, name)
    build = _build(version, variant, bool(local), machine, catalogue) if version and name != "libtorch" else None
    variant = variant or (build.variant if build else None)
    code, code_from = _code(report, build)
    if code is None and version is None and variant is not None:
        code, code_from = _code_of_flavour(variant, machine, catalogue)
    cuda = _MINOR.match(report.cuda.value) if report.cuda else None
    return Torch(
        version,
        variant,
        cuda[0] if cuda else (build.cuda if build else _cuda_of(variant)),
        code,
        code_from,
        build,
        tuple(shown(s) for s in (seen, report.cuda, report.arch_list) if s is not None),
    )


def shown(seen: Seen[str] | Seen[tuple[str, ...]]) -> str:
    """A fact as evidence: ``line 12: torch==2.8.0+cu128``."""
    return f"{seen.where}: {seen.quote}" if seen.quote else seen.where


def public(installed: Mapping[str, Seen[str]], package: str) -> str | None:
    """The public version of an installed package, without its local part."""
    seen = installed.get(package)
    return seen.value.partition("+")[0] if seen else None


def _variant_of(report: Report, name: str | None) -> str | None:
    toolkit = report.cuda or (report.installed.get("pytorch-cuda") if name != "torch" else None)
    match = _MINOR.match(toolkit.value) if toolkit else None
    if match:
        return "cu" + match[0].replace(".", "")
    return "cpu" if name == "pytorch-cpu" or (toolkit is not None and toolkit.value == "none") else None


def _cuda_of(variant: str | None) -> str | None:
    return f"{variant[2:-1]}.{variant[-1]}" if variant and variant.startswith("cu") else None


def _build(version: str, variant: str | None, local: bool, machine: Machine, catalogue: Catalogue) -> Build | None:
    """The catalogue's build; a version without a local part that names no variant is the default index's."""
    platform = machine.platform or Platform()
    builds = [b for b in catalogue.builds("torch") if b.version == version and same_system(b.platform, platform)]
    if variant is None:
        builds = [b for b in builds if b.index == DEFAULT]
    else:
        builds = [b for b in builds if b.variant == variant]
        builds.sort(key=lambda b: (b.index == DEFAULT) is local)
    return builds[0] if builds else None


def _code_of_flavour(variant: str, machine: Machine, catalogue: Catalogue) -> tuple[tuple[str, ...] | None, str | None]:
    """All code that builds of a flavour carry: what is not among it, no version of the flavour has."""
    platform = machine.platform or Platform()
    builds = [b for b in catalogue.builds("torch") if b.variant == variant and same_system(b.platform, platform)]
    if not builds or any(not build.code for build in builds):
        return None, None
    every = tuple(dict.fromkeys(code for build in builds for code in build.code or ()))
    return every, f"the catalogue: no torch build of {variant} carries more than {' '.join(every)}"


def _code(report: Report, build: Build | None) -> tuple[tuple[str, ...] | None, str | None]:
    if report.arch_list is not None:
        return report.arch_list.value, shown(report.arch_list)
    if build is not None and build.code is not None:
        return build.code, f"the catalogue: torch {build.version} [{build.variant}] carries {' '.join(build.code)}"
    return None, None
