"""The catalogue's facts, and what checking them found, as text for people. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from packaging.requirements import InvalidRequirement, Requirement

from envsolve.facts.builds import Build
from envsolve.facts.evidence import Source
from envsolve.facts.files import BUILDS, Kind
from envsolve.facts.maintain.lookup import Facts, Summary, heading, word_of

if TYPE_CHECKING:
    from envsolve.facts.maintain.check import Checked


# More records than this are a list, fewer are shown in full.
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
            blocks.append("\n".join(_table(_build_rows(records))))
        if len(records) <= _IN_FULL:
            blocks += ("\n".join(_in_full(found.kinds[name], record, numbers, requires)) for record in records)
        elif name != BUILDS.name:
            blocks.append("\n".join(f"{_title(found.kinds[name], r)}  ({r.evidence.value})" for r in records))
    blocks.append("\n".join(_source_lines(found.sources, numbers)))
    return "\n\n".join(blocks) + "\n"


def describe_summary(found: Summary) -> str:
    """How much there is of each kind, how it is known and how old it is."""
    rows = [("facts", "records", *found.rows[0].evidence, "newest source")]
    for row in found.rows:
        counts = (str(count or "") for count in row.evidence.values())
        rows.append((row.name, str(row.records), *counts, row.newest or ""))
    lines = [*_table(rows), "", f"Facts on torch are of {found.date}."]
    if found.own_date:
        lines.append(f"Your own catalogue brings some of {found.own_date}.")
    return "\n".join([*lines, "More on any of them: envsolve index show torch 2.9.1, ... show driver 580"]) + "\n"


def describe_check(found: Checked) -> str:
    """What was checked, and each disagreement with both sides."""
    lines = []
    for wrong in found.disagreements:
        lines += [
            f"{wrong.file}: {wrong.record}: {wrong.field}",
            f"  catalogue  {_json(wrong.catalogue)}",
            f"  measured   {_json(wrong.measured)}",
        ]
    records = {wrong.record for wrong in found.disagreements}
    agree = f"{len(records)} disagree" if records else "all agree"
    return "\n".join([*lines, f"{len(found.checked)} records checked, {agree} (seed {found.seed})"]) + "\n"


def _build_rows(builds: Sequence[Build]) -> Iterator[tuple[str, ...]]:
    yield "build", "flavour", "index", "platform", "Pythons", "cuDNN", "NCCL", "C++11 ABI", "triton", "sha256", "known"
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
        yield f"    the value above stands: {dispute.wins}"


def _title(kind: Kind[Any], record: Any) -> str:
    if isinstance(record, Build):
        version = f"{record.version}{record.local}"
        return f"{record.package} {version}, {record.variant}, {record.platform}, {record.index} index"
    return f"{word_of(kind)} {heading(kind, record)}"


def _aligned(rows: Sequence[tuple[str, str, str]]) -> Iterator[str]:
    """Name and value in columns, how it is known behind; values that are too long keep to themselves."""
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
    """``3.10-3.14`` where they follow on one another, else each."""
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


def _table(rows: Any) -> Iterator[str]:
    """Columns as wide as they must be; those that are empty in every row are left out."""
    table = list(rows)
    columns = [column for column in zip(*table, strict=True) if any(column[1:]) or len(table) == 1]
    widths = [max(map(len, column)) for column in columns]
    for row in zip(*columns, strict=True):
        yield "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()


def _json(value: Any) -> str:
    return json.dumps(msgspec.to_builtins(value), ensure_ascii=False)
