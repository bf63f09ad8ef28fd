"""Measure a random sample of the catalogue again and compare it field by field.

A release is measured as ``envsolve index update`` measures it; of records that are kept by hand, what the index lists
and METADATA says is compared, and GPU code that was measured. Releases missing from the catalogue are not
disagreements: `index update` adds them.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
from msgspec.structs import replace
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from envsolve.errors import UsageError
from envsolve.facts import files
from envsolve.facts.builds import Build, FileFact, KnownMetadata
from envsolve.facts.catalogue import Catalogue
from envsolve.facts.evidence import Evidence
from envsolve.facts.files import Kind
from envsolve.facts.maintain.lookup import word_of
from envsolve.facts.maintain.refresh import Index, canonical_requirement
from envsolve.facts.maintain.steps import Step, listed, listing, steps

# How a fact is known is not measured; what tells records apart, and their files, are compared by themselves.
_NOT_COMPARED = ("cited", "disputed", "evidence", "files", "libc", "pythons", "sha256", "source", "variant")
# Specifiers, which may be written in several ways.
_SPECIFIERS = ("requires_python", "torch", "torch_cuda")


@dataclass(frozen=True, slots=True)
class Disagreement:
    """One field whose value in the catalogue differs from the artefact.

    Attributes:
        file: Of the catalogue, ``builds/default/torch.json``.
        record: In words, ``torch 2.9.1 cu128 manylinux_2_28_x86_64``.
        catalogue: Its value; ``measured`` is what the index or the artefact says.
    """

    file: str
    record: str
    field: str
    catalogue: Any
    measured: Any


@dataclass(frozen=True, slots=True)
class Checked:
    """What a check covered.

    Attributes:
        seed: Draws the same sample again from the same catalogue.
        checked: Records, in words.
    """

    seed: int
    checked: tuple[str, ...]
    disagreements: tuple[Disagreement, ...]
    schema: Literal["envsolve.facts-check/1"] = "envsolve.facts-check/1"


def check(
    index: Index,
    catalogue: Catalogue,
    packages: Sequence[str],
    sample: int,
    seed: int,
    progress: Callable[[str], None] = lambda _: None,
) -> Checked:
    """Measure a sample of the records again.

    Args:
        index: The default package index.
        packages: Names of packages, ``toolkit`` and ``torch-extension``; every one where empty.
        sample: Releases to check; all if there are fewer.
        seed: Of the draw.
        progress: Called with the name of the file that is checked.

    Raises:
        UsageError: The catalogue holds nothing that can be measured of such a package; or a file cannot be read.
        IndexUnavailableError: The index fails.
    """
    found = [*steps(catalogue), *listed(catalogue)]
    asked = {canonicalize_name(name) for name in packages}
    known = {_subject(step) for step in found}
    if unknown := sorted(asked - known):
        hint = f"what can be: {', '.join(sorted(known))}"
        raise UsageError(f"nothing of {', '.join(unknown)} can be checked", hint=hint)
    chosen = [step for step in found if not asked or _subject(step) in asked]
    drawn = _drawn([(step, _groups(step, catalogue)) for step in chosen], sample, random.Random(seed))
    checked: list[str] = []
    wrong: list[Disagreement] = []
    for step in found:
        groups = [group for of, group in drawn if of is step]
        if groups:
            progress(f"{step.file}.json: {len(groups)} of {len(_groups(step, catalogue))} releases")
            checked += (in_words(step.kind, record) for group in groups for record in group)
            wrong += _measured_again(index, step, groups)
    return Checked(seed, tuple(checked), tuple(wrong))


def _drawn(
    pools: list[tuple[Step, list[list[Any]]]], sample: int, chance: random.Random
) -> list[tuple[Step, list[Any]]]:
    """Draw a release from every file in turn until there are enough, so that large files do not dominate."""
    chance.shuffle(pools)
    shuffled = [(step, chance.sample(groups, len(groups))) for step, groups in pools]
    most = max((len(groups) for _, groups in shuffled), default=0)
    rounds = [(step, groups[turn]) for turn in range(most) for step, groups in shuffled if turn < len(groups)]
    return rounds[:sample]


def in_words(kind: Kind[Any], record: Any) -> str:
    """``torch 2.9.1 cu128 manylinux_2_28_x86_64``, ``triton 3.6.0``, ``toolkit 12.8``, ``torch-extension 2.9.1``."""
    if isinstance(record, Build):
        return f"{record.package} {record.version} {record.variant} {record.platform}"
    if isinstance(record, KnownMetadata):
        return f"METADATA of {record.package} {record.version}"
    return f"{word_of(kind)} {record.version}"


def _subject(step: Step) -> str:
    return step.file.rsplit("/", 1)[-1] if step.kind is files.BUILDS else word_of(step.kind)


def _release(record: Any) -> tuple[str, str, str]:
    return getattr(record, "package", ""), record.version, getattr(record, "platform", "")


def _groups(step: Step, catalogue: Catalogue) -> list[list[Any]]:
    """The records of a file that can be measured, by release."""
    groups: dict[tuple[str, str, str], list[Any]] = {}
    for record in catalogue.file(step.file):
        if step.kind is files.BUILDS or record.evidence is Evidence.MEASURED:
            groups.setdefault(_release(record), []).append(record)
    return list(groups.values())


def _measured_again(index: Index, step: Step, groups: Sequence[list[Any]]) -> Iterator[Disagreement]:
    fresh = step.measure(index, step.holding([record for group in groups for record in group]))
    measured = set(map(_release, fresh))
    left_out = [group for group in groups if _release(group[0]) not in measured]
    for group in groups:
        if group not in left_out:
            same = [record for record in fresh if _release(record) == _release(group[0])]
            yield from _compare(step, group, same)
    # Of what measuring tells too little to make a record, and somebody made one by hand, the listing tells something.
    if left_out and step.kind is files.BUILDS and step.source:
        known = [record for group in left_out for record in group]
        yield from _measured_again(index, listing(step.file, known), left_out)
    else:
        for group in left_out:
            yield from _compare(step, group, ())


def _compare(step: Step, known: Sequence[Any], fresh: Sequence[Any]) -> Iterator[Disagreement]:
    for record in known:
        for field, said, found in _differences(step, record, fresh):
            yield Disagreement(f"{step.file}.json", in_words(step.kind, record), field, said, found)


def _differences(step: Step, record: Any, fresh: Sequence[Any]) -> Iterator[tuple[str, object, object]]:
    if not fresh:
        yield "version", record.version, None
    elif isinstance(record, KnownMetadata):
        same = [other for other in fresh if not {*record.sha256}.isdisjoint(other.sha256)]
        yield from _fields(step, record, same[0]) if same else [("sha256", record.sha256, None)]
    elif isinstance(record, Build):
        yield from _differences_of_build(step, record, fresh)
    else:
        yield from _fields(step, record, fresh[0])


def _differences_of_build(step: Step, record: Build, fresh: Sequence[Build]) -> Iterator[tuple[str, object, object]]:
    of_variant = [build for build in fresh if _one_variant(record, build)]
    if not of_variant:
        yield "variant", record.variant, sorted({build.variant for build in fresh})
        return
    by_python = {python: build for build in of_variant for python in build.pythons}
    present = [python for python in record.pythons if python in by_python]
    if len(present) < len(record.pythons):
        yield "pythons", list(record.pythons), sorted(by_python)
    for python in present:
        yield from _files(python, record.files.get(python), by_python[python].files[python])
    if present:
        yield from _fields(step, record, by_python[present[0]])


def _one_variant(record: Build, fresh: Build) -> bool:
    """Whether two records may have the same variant. A record made only from the listing has no variant.

    If no library stated the variant, its minor is that of a matching torch, and may differ on another day.
    """
    return fresh.variant in ("", record.variant) or _one_major(record, fresh)


def _one_major(record: Build, fresh: Build) -> bool:
    if record.evidence is Evidence.MEASURED or record.cuda is None or fresh.cuda is None:
        return False
    return record.cuda.partition(".")[0] == fresh.cuda.partition(".")[0]


def _files(python: str, known: FileFact | None, found: FileFact) -> Iterator[tuple[str, object, object]]:
    for name in ("sha256", "size"):
        said = getattr(known, name, None)
        if said is not None and said != getattr(found, name):
            yield f"files.{python}.{name}", said, getattr(found, name)


def _fields(step: Step, record: Any, fresh: Any) -> Iterator[tuple[str, object, object]]:
    for name in record.__struct_fields__:
        if name in _NOT_COMPARED or _known_otherwise(step, record, name):
            continue
        said = getattr(record, name)
        found = getattr(fresh, name)
        if name == "cuda" and isinstance(record, Build) and _one_major(record, fresh):
            continue
        if name == "requires" and said:
            said = tuple(map(canonical_requirement, said))
        elif name in _SPECIFIERS and said and found and SpecifierSet(said) == SpecifierSet(found):
            continue
        found = _comparable(found, said)
        silent = any(value is None or value in ((), "") for value in (said, found))
        if said != found and (name in step.tells or not silent):
            yield name, said, found


def _known_otherwise(step: Step, record: Any, field: str) -> bool:
    """Whether the field has another source than what this step measures."""
    citation = record.cited.get(field)
    return citation is not None and citation.source.rsplit(":", 1)[-1] != step.source


def _comparable(found: Any, said: Any) -> Any:
    """Return the findings that this host can make again: ptxas may not run here, to print its PTX version."""
    if isinstance(found, tuple) and isinstance(said, tuple) and len(found) == len(said):
        return tuple(
            replace(new, ptx_isa=old.ptx_isa) if getattr(new, "ptx_isa", None) == "" else new
            for new, old in zip(found, said, strict=True)
        )
    return found


def describe_check(found: Checked) -> str:
    """Return what was checked, and each disagreement with both sides."""
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


def _json(value: Any) -> str:
    return json.dumps(msgspec.to_builtins(value), ensure_ascii=False)
