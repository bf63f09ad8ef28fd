"""Small worlds of packages in memory, solved as a plan solves them; what the solve looks at is counted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from packaging.requirements import Requirement

from envsolve.facts.catalogue import Catalogue
from envsolve.machine.model import Machine, Platform
from envsolve.packages.client import IndexClient
from envsolve.packages.model import CoreMetadata, IndexFile
from envsolve.packages.pages import Entry, Listing, listing
from envsolve.packages.requirements import Need
from envsolve.rules.nvidia import Facts
from envsolve.rules.platform import Environment
from envsolve.solve.candidate_selector import CandidateSelector
from envsolve.solve.family import Family
from envsolve.solve.files import DirectReferences, FamilyFiles
from envsolve.solve.provider import Provider
from envsolve.solve.resolver import Solution, solve

World = Mapping[str, Mapping[str, Sequence[str]]]
"""Names to versions to requirement lines."""

MACHINE = Machine(platform=Platform("linux", "x86_64", "glibc 2.35"), gpus=())
_URL = "https://index.test/"


@dataclass
class WorldClient:
    """Answers like an index client, out of a world.

    Attributes:
        extras: The extras of each package; all its versions have them.
        pages: Projects that were looked up.
        read: Files whose metadata was read.
    """

    world: World
    extras: Mapping[str, Sequence[str]] = field(default_factory=dict)
    pages: list[str] = field(default_factory=list)
    read: set[str] = field(default_factory=set)

    def listing(self, name: str, index: str | None = None) -> Listing:
        self.pages.append(name)
        stem = name.replace("-", "_")
        entries = [Entry(f"{stem}-{version}-py3-none-any.whl", _URL) for version in self.world.get(name, {})]
        return listing(entries, _URL, _URL, name)

    def metadata(self, file: IndexFile) -> CoreMetadata:
        self.read.add(file.filename)
        stem, version, *_ = file.filename.split("-")
        name = stem.replace("_", "-")
        extras = tuple(self.extras.get(name, ()))
        return CoreMetadata(name, version, tuple(self.world[name][version]), provides_extra=extras)

    def prefetch(self, names: Iterable[str]) -> None: ...

    def prefetch_metadata(self, files: Iterable[IndexFile]) -> None: ...


@dataclass(frozen=True)
class Work:
    """What a solve took.

    Attributes:
        pages: Project pages.
        metadata: Files whose metadata was read.
        visited: Versions looked at for a file.
        rounds: Rounds of the solver.
    """

    pages: int
    metadata: int
    visited: int
    rounds: int


def solved(
    world: World,
    asked: Sequence[str],
    catalogue: Catalogue,
    facts: Facts,
    *,
    extras: Mapping[str, Sequence[str]] | None = None,
) -> tuple[Solution, Work]:
    """The solution of a world for Python 3.12 on Linux without a GPU, and what it took.

    Raises:
        UnsolvableError: There is none.
    """
    counting = WorldClient(world, extras or {})
    client = cast(IndexClient, counting)
    environment = Environment.of(MACHINE, "3.12")
    selector = CandidateSelector(client, environment, {})
    files = FamilyFiles(client, catalogue, "3.12")
    family = Family(catalogue, facts, (MACHINE,), "3.12")
    provider = Provider(environment, family, selector, files, DirectReferences(client), client, {}, {})
    solution = solve(provider, [Need(Requirement(line), "a test") for line in asked], None)
    return solution, Work(len(counting.pages), len(counting.read), selector.visited, solution.rounds)
