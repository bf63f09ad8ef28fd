"""The catalogue's word on the builds of a package, together with the sources that it rests on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
    name = canonicalize_name(package)
    every = (*catalogue.builds(name), *catalogue.builds_outside(name))
    if not every:
        known = ", ".join(catalogue.packages())
        raise UsageError(f"the catalogue describes no builds of {package}", hint=f"it describes {known}")
    found = tuple(b for b in every if version in (None, b.version) and variant in (None, b.variant))
    if not found:
        of_version = sorted({b.variant for b in every if b.version == version})
        versions = ", ".join(dict.fromkeys(b.version for b in every))
        hint = f"{version} exists as {', '.join(of_version)}" if of_version else f"it describes {versions}"
        raise UsageError(f"the catalogue describes no {package} {version} {variant or ''}".rstrip(), hint=hint)
    sources = {key: source for build in found for key in _cited(build) if (source := catalogue.source(key))}
    return BuildFacts(found, sources)


def _cited(build: Build) -> Iterator[str]:
    """Every source that a build names."""
    yield build.source
    yield from (citation.source for citation in build.cited.values())
    yield from (dispute.source for dispute in build.disputed)
    yield from (source for fact in build.files.values() for source in fact.sources)
