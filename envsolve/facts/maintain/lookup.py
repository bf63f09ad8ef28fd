"""The catalogue's word on a package, a driver, a card or anything else it describes, and the sources of that."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

import msgspec
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion

from envsolve.errors import UsageError
from envsolve.facts import files
from envsolve.facts import files as kinds
from envsolve.facts.builds import Build, SourceProject
from envsolve.facts.catalogue import Catalogue
from envsolve.facts.evidence import Evidence, Source
from envsolve.facts.files import KINDS, CatalogueFile, Kind, data_folder, sources_of
from envsolve.facts.hardware import Architecture

_MOST_NAMES = 40


@dataclass(frozen=True, slots=True)
class Facts:
    """Records by the name of their kind, and the sources that they name."""

    records: Mapping[str, tuple[Any, ...]]
    sources: Mapping[str, Source]
    kinds: Mapping[str, Kind[Any]] = field(default_factory=lambda: KINDS)

    @property
    def builds(self) -> tuple[Build, ...]:
        """The builds among them."""
        return self.records.get(files.BUILDS.name, ())


def find_facts(catalogue: Catalogue, what: str, which: Sequence[str]) -> Facts:
    """What is known of one thing.

    Args:
        what: A package (``torch``), or a kind of fact (``driver``, ``gpu``, ``toolkit``). ``triton`` is both. Of a
            package without builds (``deepspeed``), what compiling it takes.
        which: What narrows it: a version, a flavour, an index; a driver branch; the name of a card.

    Raises:
        UsageError: Nothing such is known; the hint names what is.
    """
    name = canonicalize_name(what)
    kind = _kind_named(what)
    found: dict[str, tuple[Any, ...]] = {}
    if name in catalogue.packages():
        found[files.BUILDS.name] = _builds(catalogue, name, which)
    if kind is not None:
        found[kind.name] = _matching(kind, catalogue.records(kind), which)
    if not found and (compiled := tuple(p for p in catalogue.source_projects if p.package == name)):
        found[files.SOURCE_PROJECTS.name] = _compiled(compiled, which)
    if not found:
        raise _unknown(catalogue, what, name)
    named = {key for records in found.values() for record in records for key in sources_of(record)}
    return Facts(found, {key: source for key in sorted(named) if (source := catalogue.source(key))})


def find_records(kind: Kind[Any], records: Sequence[Any], sources: Mapping[str, Source], which: Sequence[str]) -> Facts:
    """What is known of one thing that is not in the catalogue's files, such as the signatures of the causes.

    Raises:
        UsageError: Nothing such is known; the hint names what is.
    """
    found = _matching(kind, records, which)
    named = {key for record in found for key in sources_of(record)}
    return Facts({kind.name: found}, {key: sources[key] for key in sorted(named)}, {kind.name: kind})


def _compiled(projects: Sequence[SourceProject], which: Sequence[str]) -> tuple[SourceProject, ...]:
    """What compiling a package takes, of the versions named."""
    found = tuple(p for p in projects if all(_takes(p.versions, word) for word in which))
    if not found:
        said = f"the catalogue describes no {projects[0].package} {' '.join(which)}"
        raise UsageError(said, hint=f"it describes {'; '.join(f'{p.package} {p.versions}' for p in projects)}")
    return found


def _takes(versions: str, version: str) -> bool:
    try:
        return SpecifierSet(versions).contains(version, prereleases=True)
    except InvalidVersion:
        return False


def _unknown(catalogue: Catalogue, what: str, name: str) -> UsageError:
    words = sorted(word_of(kind) for kind in KINDS.values() if kind is not files.BUILDS)
    things = sorted({*catalogue.packages(), *(project.package for project in catalogue.source_projects), *words})
    close = [thing for thing in things if name and thing.startswith(f"{name}-")] or get_close_matches(name, things, n=5)
    known = f"did you mean {', '.join(close)}" if close else f"it describes {', '.join(things)}"
    return UsageError(f"the catalogue describes no {what or 'such thing'}", hint=known)


def _builds(catalogue: Catalogue, package: str, which: Sequence[str]) -> tuple[Build, ...]:
    every = (*catalogue.builds(package), *catalogue.builds_outside(package))
    found = _selected(files.BUILDS, every, which)
    if found:
        return found
    # The hint is about the first word that nothing answers to any more.
    fitting = every
    for word in which:
        narrowed = _selected(files.BUILDS, fitting, [word])
        if not narrowed:
            break
        fitting = narrowed
    versions = list(dict.fromkeys(build.version for build in fitting))
    if len(versions) == 1:
        hint = f"{versions[0]} exists as {', '.join(sorted({build.variant for build in fitting}))}"
    else:
        hint = f"it describes {', '.join(versions)}"
    raise UsageError(f"the catalogue describes no {package} {' '.join(which)}", hint=hint)


def _matching(kind: Kind[Any], records: Sequence[Any], which: Sequence[str]) -> tuple[Any, ...]:
    found = _selected(kind, records, which)
    if not found:
        names = list(dict.fromkeys(heading(kind, record) for record in records))
        called = dict.fromkeys(name for record in records for name in _names(kind, record))
        close = get_close_matches(" ".join(which), called, n=5)
        known = close or names[:_MOST_NAMES]
        more = " and more" if not close and len(names) > _MOST_NAMES else ""
        said = "did you mean" if close else "it describes"
        raise UsageError(
            f"the catalogue describes no {word_of(kind)} {' '.join(which)}", hint=f"{said} {', '.join(known)}{more}"
        )
    return found


def heading(kind: Kind[Any], record: Any) -> str:
    """What tells a record from the others of its kind, in words: ``torch default 2.9.1 cu128 win_amd64``."""
    return " ".join(str(part) for part in kind.identity(record) if isinstance(part, (str, int)) and part != "")


def _selected(kind: Kind[Any], records: Sequence[Any], which: Sequence[str]) -> tuple[Any, ...]:
    """The records that the words name: by a name, else a release of it (``580.95`` for 580), else a part in letters."""
    words = list(map(_plain, which))
    phrase = "".join(words)
    names = [(record, [_plain(name) for name in _names(kind, record)]) for record in records]
    whole = [record for record, known in names if phrase in known or all(word in known for word in words)]
    if whole:
        return tuple(whole)
    release = [r for r, known in names if all(any(n and word.startswith(f"{n}.") for n in known) for word in words)]
    if release:
        return tuple(release)
    if any(word.replace(".", "").isdigit() for word in words):
        return ()
    return tuple(r for r, known in names if all(any(word in name for name in known) for word in words))


def _names(kind: Kind[Any], record: Any) -> Iterator[str]:
    """What people call a record by."""
    if isinstance(record, Build):
        yield f"{record.version}{record.local}"
    if isinstance(record, Architecture):
        yield f"sm_{record.compute_capability.replace('.', '')}"
    for part in (*kind.identity(record), getattr(record, "aliases", ()), getattr(record, "tags", ())):
        if isinstance(part, (tuple, list)):
            yield from map(str, part)
        else:
            yield str(part)


def _plain(text: str) -> str:
    return re.sub(r"[\s_-]+", "", text.casefold())


def _kind_named(word: str) -> Kind[Any] | None:
    name = re.sub(r"[\s-]+", "_", word.casefold())
    for kind in KINDS.values():
        if kind is not files.BUILDS and name in (kind.name, kind.name.removesuffix("s"), kind.name.removesuffix("es")):
            return kind
    return None


def word_of(kind: Kind[Any]) -> str:
    """How a kind is asked for."""
    name = kind.name.removesuffix("es") if kind.name.endswith("xes") else kind.name.removesuffix("s")
    return name.replace("_", "-")


# How much the catalogue holds, how it is known, and how old it is.


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
    yield "| package | files of builds | with sha256 | of these, listed by one source alone |"
    yield "|---|---:|---:|---:|"
    for hashes in summary.hashes:
        yield f"| {hashes.package} | {hashes.files} | {hashes.hashed or ''} | {hashes.one_source or ''} |"


# What the documentation holds of the catalogue, generated from it: ``python -m envsolve.facts.maintain.lookup docs``.
#
# That is the tables of ``catalogue.md``, and ``catalogue.schema.json``, the JSON Schema of every file.


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
    """Write both into the documentation's folder."""
    page = folder / PAGE
    page.write_text(with_tables(page.read_text("utf-8")), "utf-8")
    (folder / SCHEMA).write_text(schema_text(), "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
