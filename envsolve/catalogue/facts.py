"""The catalogue's word on the builds of a package, together with the sources that it rests on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from packaging.utils import canonicalize_name

from envsolve.catalogue.load import Catalogue
from envsolve.catalogue.model import Build, Source
from envsolve.errors import UsageError


@dataclass(frozen=True, slots=True)
class BuildFacts:
    """Builds, and the sources that their ``source`` fields name."""

    builds: tuple[Build, ...]
    sources: Mapping[str, Source]


def build_facts(catalogue: Catalogue, package: str, version: str | None, variant: str | None) -> BuildFacts:
    """The builds of a package, of one version and variant where given.

    Raises:
        UsageError: The catalogue describes none; the hint names what it does describe.
    """
    every = catalogue.builds(canonicalize_name(package))
    if not every:
        known = ", ".join(sorted(name for name in catalogue.family if catalogue.builds(name)))
        raise UsageError(f"the catalogue describes no builds of {package}", hint=f"it describes {known}")
    found = tuple(b for b in every if version in (None, b.version) and variant in (None, b.variant))
    if not found:
        of_version = sorted({b.variant for b in every if b.version == version})
        versions = ", ".join(dict.fromkeys(b.version for b in every))
        hint = f"{version} exists as {', '.join(of_version)}" if of_version else f"it describes {versions}"
        raise UsageError(f"the catalogue describes no {package} {version} {variant or ''}".rstrip(), hint=hint)
    sources = {b.source: source for b in found if (source := catalogue.source(b.source))}
    return BuildFacts(found, sources)
