"""Look up what the catalogue says about a package, a driver, a GPU or any other kind of fact, with its sources."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

import msgspec
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion

from envsolve.errors import UsageError
from envsolve.facts import files
from envsolve.facts.builds import Build, SourceProject
from envsolve.facts.catalogue import Catalogue
from envsolve.facts.evidence import Source
from envsolve.facts.files import BUILDS, KINDS, Kind, sources_of
from envsolve.facts.hardware import Architecture

_MOST_NAMES = 40


@dataclass(frozen=True, slots=True)
class Facts:
    """Records by the name of their kind, and the sources that they cite."""

    records: Mapping[str, tuple[Any, ...]]
    sources: Mapping[str, Source]
    kinds: Mapping[str, Kind[Any]] = field(default_factory=lambda: KINDS)

    @property
    def builds(self) -> tuple[Build, ...]:
        """The builds among them."""
        return self.records.get(files.BUILDS.name, ())


def find_facts(catalogue: Catalogue, what: str, which: Sequence[str]) -> Facts:
    """All facts about one thing.

    Args:
        what: A package (``torch``), or a kind of fact (``driver``, ``gpu``, ``toolkit``). ``triton`` is both. Of a
            package without builds (``deepspeed``), what compiling it takes.
        which: What narrows it: a version, a variant, an index; a driver branch; the name of a GPU.

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
    """Facts about something outside the catalogue's files, such as the signatures of the causes.

    Raises:
        UsageError: Nothing such is known; the hint names what is.
    """
    found = _matching(kind, records, which)
    named = {key for record in found for key in sources_of(record)}
    return Facts({kind.name: found}, {key: sources[key] for key in sorted(named)}, {kind.name: kind})


def _compiled(projects: Sequence[SourceProject], which: Sequence[str]) -> tuple[SourceProject, ...]:
    """Requirements for compiling a package, in the versions named."""
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
    """The key of a record, in words: ``torch default 2.9.1 cu128 win_amd64``."""
    return " ".join(str(part) for part in kind.identity(record) if isinstance(part, (str, int)) and part != "")


def _selected(kind: Kind[Any], records: Sequence[Any], which: Sequence[str]) -> tuple[Any, ...]:
    """The records that the words name: by name, by a release of it (``580.95`` for 580), or by a part in letters."""
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
    """Yield the names that people use for a record."""
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
    """Return the word for a kind in ``envsolve index show``: ``torch-extension``."""
    name = kind.name.removesuffix("es") if kind.name.endswith("xes") else kind.name.removesuffix("s")
    return name.replace("_", "-")


# Print records as text.

# More records than this are printed as a list, fewer in full.
_IN_FULL = 12
_NOT_SHOWN = ("evidence", "source", "cited", "disputed", "files", "requires")


def describe_facts(found: Facts, *, requires: bool = False) -> str:
    """Records with how each field is known, then the sources, numbered.

    Args:
        found: The records.
        requires: Also the requirements of builds, which are long.
    """
    numbers = {key: number for number, key in enumerate(found.sources, 1)}
    blocks: list[str] = []
    for name, records in found.records.items():
        if name == BUILDS.name:
            blocks.append("\n".join(table(_build_rows(records))))
        if len(records) <= _IN_FULL:
            blocks += ("\n".join(_in_full(found.kinds[name], record, numbers, requires)) for record in records)
        elif name != BUILDS.name:
            blocks.append("\n".join(f"{_title(found.kinds[name], r)}  ({r.evidence.value})" for r in records))
    blocks.append("\n".join(_source_lines(found.sources, numbers)))
    return "\n\n".join(blocks) + "\n"


def _build_rows(builds: Sequence[Build]) -> Iterator[tuple[str, ...]]:
    yield "build", "variant", "index", "platform", "Pythons", "cuDNN", "NCCL", "C++11 ABI", "triton", "sha256", "known"
    for build in builds:
        yield (
            f"{build.package} {build.version}{build.local}",
            build.variant,
            build.index,
            build.platform,
            _pythons(build),
            build.cudnn or "",
            build.nccl or "",
            "" if build.cxx11_abi is None else _text(build.cxx11_abi),
            _pin(build, "triton"),
            _hashes(build),
            build.evidence.value,
        )


def _in_full(kind: Kind[Any], record: Any, numbers: Mapping[str, int], requires: bool) -> Iterator[str]:
    yield _title(kind, record)
    rows = []
    for name in record.__struct_fields__:
        value = getattr(record, name)
        if name in (*_NOT_SHOWN, *kind.key) or value is None or value in ((), {}, "", False):
            continue
        known = getattr(record, "cited", {}).get(name, record)
        rows.append((f"  {name.replace('_', ' ')}", _text(value), _known(known, numbers)))
    yield from _aligned(rows)
    if not rows:
        yield f"  {_known(record, numbers)}"
    if requires and getattr(record, "requires", None):
        yield "  requires"
        yield from (f"    {line}" for line in record.requires)
    for python, fact in getattr(record, "files", {}).items():
        if fact.sha256:
            listed = ", ".join(f"[{numbers[source]}]" for source in fact.sources)
            mark = f"  listed by {listed}" + (" alone" if len(fact.sources) == 1 else "") if listed else ""
            yield f"  sha256 {python}  {fact.sha256}{mark}"
    for dispute in getattr(record, "disputed", ()):
        yield f"  disputed: {dispute.field}: {_known(dispute, numbers)} says {dispute.says}"
        yield f"    the value above is used: {dispute.wins}"


def _title(kind: Kind[Any], record: Any) -> str:
    if isinstance(record, Build):
        version = f"{record.version}{record.local}"
        return f"{record.package} {version}, {record.variant}, {record.platform}, {record.index} index"
    return f"{word_of(kind)} {heading(kind, record)}"


def _aligned(rows: Sequence[tuple[str, str, str]]) -> Iterator[str]:
    """Name, value and evidence in columns; a value that is too long gets its own line."""
    width = max((len(name) for name, _, _ in rows), default=0)
    for name, value, known in rows:
        lines = value.splitlines() or [""]
        yield f"{name:<{width}}  {lines[0]}" + (f"  {known}" if len(lines) == 1 else "")
        yield from (f"{'':<{width}}  {line}" for line in lines[1:-1])
        if len(lines) > 1:
            yield f"{'':<{width}}  {lines[-1]}  {known}"


def _source_lines(sources: Mapping[str, Source], numbers: Mapping[str, int]) -> Iterator[str]:
    yield "Sources"
    for key, source in sources.items():
        yield f"  [{numbers[key]}] {source.date}  {source.title}" + (f"  {source.url}" if source.url else "")


def _known(cited: Any, numbers: Mapping[str, int]) -> str:
    return f"({cited.evidence.value} [{numbers.get(cited.source, '?')}])"


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_text(part)}" for key, part in value.items())
    if isinstance(value, msgspec.Struct):
        parts = ((name, getattr(value, name)) for name in value.__struct_fields__)
        return ", ".join(f"{name.replace('_', ' ')} {_text(part)}" for name, part in parts if part not in (None, ()))
    if isinstance(value, tuple):
        return ("\n" if any(isinstance(part, msgspec.Struct) for part in value) else " ").join(map(_text, value))
    return str(value)


def _pythons(build: Build) -> str:
    """``3.10-3.14`` where they follow on one another, otherwise each."""
    plain = [python for python in build.pythons if python.startswith("cp3") and python[3:].isdigit()]
    minors = [int(python[3:]) for python in plain]
    others = [python for python in build.pythons if python not in plain]
    if len(minors) > 2 and minors == list(range(minors[0], minors[-1] + 1)):
        return " ".join([f"3.{minors[0]}-3.{minors[-1]}", *others])
    return " ".join([*(f"3.{minor}" for minor in minors), *others])


def _pin(build: Build, name: str) -> str:
    for line in build.requires or ():
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        if requirement.name == name and "extra" not in str(requirement.marker or ""):
            return str(requirement.specifier)
    return ""


def _hashes(build: Build) -> str:
    known = [fact for fact in build.files.values() if fact.sha256]
    alone = sum(len(fact.sources) == 1 for fact in known)
    told = f"{len(known)} of {len(build.pythons)}"
    return f"{told}, {alone} by one source" if alone else told


def table(rows: Any) -> Iterator[str]:
    """Columns with the least width; columns that are empty in every row are left out."""
    table = list(rows)
    columns = [column for column in zip(*table, strict=True) if any(column[1:]) or len(table) == 1]
    widths = [max(map(len, column)) for column in columns]
    for row in zip(*columns, strict=True):
        yield "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
