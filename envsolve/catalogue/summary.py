"""How much the catalogue holds, how it is known, and how old it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from envsolve.catalogue import kinds
from envsolve.catalogue.file import sources_of
from envsolve.catalogue.kinds import KINDS
from envsolve.catalogue.load import Catalogue
from envsolve.catalogue.model import Build, Evidence


@dataclass(frozen=True, slots=True)
class Row:
    """The records of one kind; builds by package.

    Attributes:
        name: ``builds of torch``, ``drivers``.
        evidence: Number of records by evidence level, best first; every level is there.
        disputed: Records of which another source says otherwise.
        newest: ISO date of the newest source.
    """

    name: str
    records: int
    evidence: dict[str, int]
    disputed: int
    newest: str | None


@dataclass(frozen=True, slots=True)
class Hashes:
    """What is known of the files of a package's builds.

    Attributes:
        files: File names that the builds give; ``hashed`` of them have a known sha256.
        one_source: Those of ``hashed`` that a single public file lists, and no index.
    """

    package: str
    files: int
    hashed: int
    one_source: int


@dataclass(frozen=True, slots=True)
class Summary:
    """The whole catalogue in numbers.

    Attributes:
        date: ISO date of the newest fact on torch; ``own_date`` that of the newest from the user's own folder.
    """

    date: str | None
    own_date: str | None
    rows: tuple[Row, ...]
    hashes: tuple[Hashes, ...]
    schema: Literal["envsolve.catalogue-summary/1"] = "envsolve.catalogue-summary/1"


def summarize(catalogue: Catalogue) -> Summary:
    """Count everything."""
    builds = catalogue.records(kinds.BUILDS)
    packages = sorted({build.package for build in builds}, key=lambda name: (name != "torch", name != "triton", name))
    by_package = {name: [build for build in builds if build.package == name] for name in packages}
    rows = [_row(catalogue, f"builds of {name}", records) for name, records in by_package.items()]
    rows += [
        _row(catalogue, kind.name.replace("_", " "), catalogue.records(kind))
        for kind in KINDS.values()
        if kind is not kinds.BUILDS and catalogue.has(kind)
    ]
    hashes = tuple(_hashes(name, records) for name, records in by_package.items())
    return Summary(catalogue.date, catalogue.own_date, tuple(rows), hashes)


def _row(catalogue: Catalogue, name: str, records: list[Any] | tuple[Any, ...]) -> Row:
    levels = Counter(record.evidence for record in records)
    dates = {source.date for record in records for key in sources_of(record) if (source := catalogue.source(key))}
    return Row(
        name,
        len(records),
        {level.value: levels[level] for level in Evidence},
        sum(bool(getattr(record, "disputed", ())) for record in records),
        max(dates, default=None),
    )


def _hashes(package: str, builds: list[Build]) -> Hashes:
    known = [fact for build in builds for fact in build.files.values() if fact.sha256]
    return Hashes(
        package, sum(len(build.pythons) for build in builds), len(known), sum(len(fact.sources) == 1 for fact in known)
    )


def markdown(summary: Summary) -> Iterator[str]:
    """The lines of the table in ``docs/catalogue.md``."""
    levels = [level.value for level in Evidence]
    yield f"| facts | records | {' | '.join(levels)} | disputed | newest source |"
    yield "|---|" + "---:|" * (len(levels) + 2) + "---|"
    for row in summary.rows:
        counts = " | ".join(str(row.evidence[level] or "") for level in levels)
        yield f"| {row.name} | {row.records} | {counts} | {row.disputed or ''} | {row.newest or ''} |"
    yield ""
    yield "| package | files of builds | with sha256 | of these, listed by one source alone |"
    yield "|---|---:|---:|---:|"
    for hashes in summary.hashes:
        yield f"| {hashes.package} | {hashes.files} | {hashes.hashed or ''} | {hashes.one_source or ''} |"
