"""The builds of torch and its family that a pip command takes: whether they were published, and run on the machines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from envsolve.dockerfiles.asked import Asked
from envsolve.dockerfiles.installs import Install, installs
from envsolve.dockerfiles.model import Finding, Stage
from envsolve.dockerfiles.offers import Offer, found_by_pip, running


def check(stage: Stage, asked: Asked) -> Iterator[Finding]:
    """Judge what each pip command would take."""
    python = asked.python(stage)
    for install in installs(stage.commands):
        for requirement in install.requirements:
            if requirement.url is None and asked.offers(canonicalize_name(requirement.name)):
                yield from _judged(requirement, install, python, asked)


def _judged(requirement: Requirement, install: Install, python: str | None, asked: Asked) -> Iterator[Finding]:
    known = asked.offers(canonicalize_name(requirement.name))
    found = list(found_by_pip(known, requirement.specifier, install.variant, python))
    if not found:
        yield _unpublished(requirement, known, install, python, asked)
        return
    newest = max(offer.version for offer in found)
    taken = [offer for offer in found if offer.version == newest]
    if all(offer.refused for offer in taken):
        yield _refused(taken[0], known, install, python, asked)


def _unpublished(
    requirement: Requirement, known: tuple[Offer, ...], install: Install, python: str | None, asked: Asked
) -> Finding:
    """No index that the command looks at has it; say where the version is, and in which variants."""
    pinned = [
        offer
        for offer in known
        for one in requirement.specifier
        if one.operator in ("==", "===") and Version(offer.build.version).public == one.version.partition("+")[0]
    ]
    place = f"the index of {install.variant}" if install.variant else "the default index"
    text = f"{place} has no {requirement}{f' for Python {python}' if python else ''}"
    variants = sorted({offer.build.variant for offer in pinned}, key=lambda name: (len(name), name))
    if variants:
        text += f"; that version was published as {', '.join(variants)} alone"
    return Finding(install.command.line, "unpublished-build", "error", text, _remedies(pinned, known, python, asked))


def _refused(taken: Offer, known: tuple[Offer, ...], install: Install, python: str | None, asked: Asked) -> Finding:
    line = taken.refused or taken.build
    reasons = [reason for reason in line.reasons if reason.ok is False]
    gpu = line.gpu or "the machine"
    text = f"pip takes {line.package} {taken.version} [{line.variant}], which does not run on {gpu}: "
    text += "; ".join(reason.text for reason in reasons)
    same = [offer for offer in known if offer.build.version == line.version]
    source = next((reason.source for reason in reasons if reason.source), None)
    return Finding(
        install.command.line, "build-does-not-run", "error", text, _remedies(same, known, python, asked), source
    )


def _remedies(near: Iterable[Offer], known: tuple[Offer, ...], python: str | None, asked: Asked) -> tuple[str, ...]:
    """The best of the near ones that run, then the newest that does."""
    best = [next(running(some, python), None) for some in (near, known)]
    return tuple(dict.fromkeys(offer.command(asked.catalogue.indexes) for offer in best if offer))
