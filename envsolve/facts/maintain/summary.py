"""Statistics of the catalogue: the number of facts, their evidence and their age.

``python -m envsolve.facts.maintain.summary docs`` writes its tables and JSON Schema into the documentation.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from envsolve.facts import files as kinds
from envsolve.facts.builds import Build
from envsolve.facts.catalogue import Catalogue
from envsolve.facts.evidence import Evidence
from envsolve.facts.files import KINDS, CatalogueFile, data_folder, sources_of
from envsolve.facts.maintain.lookup import table


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
    """Count the files of a package's builds.

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
    """Statistics of the whole catalogue.

    Attributes:
        date: ISO date of the newest fact on torch; ``own_date`` that of the newest from the user's own directory.
    """

    date: str | None
    own_date: str | None
    rows: tuple[Row, ...]
    hashes: tuple[Hashes, ...]
    schema: Literal["envsolve.facts-summary/1"] = "envsolve.facts-summary/1"


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
    yield "| package | files of builds | with sha256 | of these, listed by one source only |"
    yield "|---|---:|---:|---:|"
    for hashes in summary.hashes:
        yield f"| {hashes.package} | {hashes.files} | {hashes.hashed or ''} | {hashes.one_source or ''} |"


# The pages generated from the catalogue: the tables of ``catalogue.md`` and the JSON Schema ``catalogue.schema.json``.
#
# They are committed, so that readers need no checkout; a test fails if they are out of date.


BEGIN, END = "<!-- begin: make catalogue-docs -->", "<!-- end -->"
PAGE, SCHEMA = "catalogue.md", "catalogue.schema.json"


def with_tables(page: str) -> str:
    """The page with today's tables between its markers.

    Raises:
        ValueError: It has no markers.
    """
    before, rest = page.split(BEGIN)
    _, after = rest.split(END, 1)
    lines = markdown(summarize(Catalogue(data_folder())))
    return "\n".join([before + BEGIN, "", *lines, "", END]) + after


def schema_text() -> str:
    """A JSON Schema with a definition for each kind of file, under the file's name: ``#/$defs/gpus``.

    Made from the types that the files are decoded into; what they do not name is not allowed.
    """
    files = {name: CatalogueFile[kind.record] for name, kind in KINDS.items()}  # type: ignore[name-defined]
    references, components = msgspec.json.schema_components(files.values())
    definitions = dict(zip(files, references, strict=True))
    definitions |= {name: _closed(component) for name, component in components.items()}
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$defs": definitions}
    return json.dumps(schema, indent=1, ensure_ascii=False) + "\n"


def _closed(component: dict[str, Any]) -> dict[str, Any]:
    shut = {**component, "description": component.get("description", "").partition("\n")[0]}
    return {**shut, "additionalProperties": False} if "properties" in component else shut


def main(folder: Path) -> None:
    """Write both into the documentation's directory."""
    page = folder / PAGE
    page.write_text(with_tables(page.read_text("utf-8")), "utf-8")
    (folder / SCHEMA).write_text(schema_text(), "utf-8")


def describe_summary(found: Summary) -> str:
    """The number of facts of each kind, with their evidence and age."""
    rows = [("facts", "records", *found.rows[0].evidence, "newest source")]
    for row in found.rows:
        counts = (str(count or "") for count in row.evidence.values())
        rows.append((row.name, str(row.records), *counts, row.newest or ""))
    lines = [*table(rows), "", f"The newest fact about torch is dated {found.date}."]
    if found.own_date:
        lines.append(f"The newest fact in your own catalogue is dated {found.own_date}.")
    return "\n".join([*lines, "More on any of them: envsolve index show torch 2.9.1, ... show driver 580"]) + "\n"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
