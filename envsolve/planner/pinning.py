"""From the solver's choice to packages pinned to one file each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec
from msgspec.structs import replace

from envsolve.catalogue.model import Evidence
from envsolve.compat.flavour import ANY
from envsolve.errors import IndexUnavailableError, UsageError
from envsolve.index.model import IndexFile
from envsolve.plan import PlannedPackage
from envsolve.resolve.direct import DirectReferences
from envsolve.resolve.familyfiles import FamilyFiles
from envsolve.resolve.pool import taken
from envsolve.resolve.solve import Chosen, Solution


class Pinned(msgspec.Struct, frozen=True):
    """The packages, and the failures of indexes for which the catalogue stood in."""

    packages: tuple[PlannedPackage, ...]
    unreached: tuple[IndexUnavailableError, ...]


def pin(
    solution: Solution, files: FamilyFiles, direct: DirectReferences, digests: Mapping[str, frozenset[str]]
) -> Pinned:
    """Find the file of every chosen package.

    Args:
        solution: The packages.
        files: The files of the torch family.
        direct: What is asked for by address; of a repository, the commit that was read.
        digests: Per package, the only files that may be taken; the ordinary packages were chosen by them already.

    Raises:
        BuildGoneError: An index no longer lists a file that the catalogue knows.
        UsageError: A torch-family file is none of those that were listed by hash.
    """
    packages: list[PlannedPackage] = []
    failures: dict[str, IndexUnavailableError] = {}
    for chosen in solution.chosen.values():
        option, url = chosen.candidate.option, chosen.candidate.url
        if option is None:
            tree = direct.tree(chosen.candidate.name, url) if url else None
            package = _package(chosen, chosen.candidate.file or (direct.file(url) if url else None))
            packages.append(replace(package, url=tree.address or url, tree=tree) if tree else package)
            continue
        file, failure = files.known(option.build)
        if not taken(file, digests.get(chosen.candidate.name)):
            hint = (
                "take the --hash lines of that package out of the requirements file, or plan on the machine it is for"
            )
            raise UsageError(f"{file.filename} has none of the hashes that the requirements list", hint=hint)
        package = _package(chosen, file)
        # A listed file is no longer inferred, whatever the catalogue knew.
        listed = failure is None and option.build.evidence is Evidence.INFERRED
        packages.append(replace(package, evidence=Evidence.PUBLISHED.value) if listed else package)
        if failure is not None:
            failures.setdefault(failure.message, failure)
    return Pinned(tuple(packages), tuple(failures.values()))


def _package(chosen: Chosen, file: IndexFile | None) -> PlannedPackage:
    candidate, build = chosen.candidate, chosen.candidate.option.build if chosen.candidate.option else None
    kind: Literal["wheel", "sdist"] = "wheel" if file and file.filename.endswith(".whl") else "sdist"
    return PlannedPackage(
        name=candidate.name,
        version=str(candidate.version),
        variant=build.variant if build and build.variant != ANY else None,
        index=(file.index or None) if file else None,
        filename=file.filename if file else None,
        url=candidate.url or (file.url or None if file else None),
        hashes=dict(file.hashes) if file else {},
        kind=kind,
        requires=chosen.requires,
        why=chosen.why,
        size=file.size if file else None,
        requires_python=file.requires_python if file else None,
        evidence=build.evidence.value if build else None,
        libc=build.libc if build else None,
    )
