"""The form that a fact's text must have, by the name of its field: versions, dates, hashes, names of architectures.

Decoding checks types alone. The bundled files are held to these forms by the tests, the user's own when they are read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from functools import cache
from typing import Any

import msgspec
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from envsolve.facts.builds import Build, KnownMetadata, SourceProject
from envsolve.facts.hardware import Toolkit, TritonRelease


def _matches(pattern: str) -> Callable[[str], object]:
    return re.compile(pattern).fullmatch


def _iso_date(text: str) -> bool:
    """A date, or a month where the day is not known."""
    date.fromisoformat(text if len(text) > len("2026-01") else f"{text}-01")
    return True


_RELEASE = _matches(r"\d+(\.\d+)+")
_DRIVER = _matches(r"\d{3}(\.\d+)*")
_CC = _matches(r"\d{1,2}\.\d")
_ARCH = _matches(r"(sm|compute)_\d{2,3}[af]?")

FORMS: Mapping[str, Callable[[str], object]] = {
    "archs": _matches(r"(sm|compute)_\d{2,3}[af]?|\d{1,2}\.\d[af]?"),
    "code": _ARCH,
    "compute_capability": _CC,
    "cuda": _matches(r"\d+\.\d+|"),
    "cudnn": _RELEASE,
    "date": _iso_date,
    "driver_linux": _DRIVER,
    "driver_windows": _DRIVER,
    "end_of_life": _iso_date,
    "first_driver": _DRIVER,
    "libc": _matches(r"(glibc|musl) \d+\.\d+"),
    "listed_in": _DRIVER,
    "max_cc": _CC,
    "min_cc": _CC,
    "nccl": _RELEASE,
    "no_matrix_product": _CC,
    "own_ptxas": _RELEASE,
    "pci_ids": _matches(r"[0-9a-f]{4}"),
    "ptx_isa": _matches(r"\d+\.\d+"),
    "ptxas_first": _matches(r"\d+\.\d+"),
    "ptxas_last": _matches(r"\d+\.\d+"),
    "pythons": _matches(r"(cp|py|pp)\d[\w.]*(-\w+)?|\d\.\d+t?"),
    "released": _iso_date,
    "requires": cache(Requirement),  # releases share most of their lines
    "requires_python": SpecifierSet,
    "sha256": _matches(r"[0-9a-f]{64}"),
    "targets": _CC,
    "torch": SpecifierSet,
    "torch_cuda": SpecifierSet,
    "variant": _matches(r"cpu|any|cu\d{2,3}"),
}
#: Fields whose form is another than that of their name, or that only one record has.
_OWN: Mapping[tuple[type, str], Callable[[str], object]] = {
    (SourceProject, "build_requires"): Requirement,
    (SourceProject, "cuda"): SpecifierSet,
    (SourceProject, "versions"): SpecifierSet,
}
_VERSIONED = (Build, KnownMetadata, Toolkit, TritonRelease)


def misshapen(value: Any) -> Iterator[str]:
    """The fields of a record, and of what it holds, whose text has another form: ``cuda: 'twelve'``.

    Args:
        value: A record of the catalogue, its requirement lines in place of the groups.
    """
    if isinstance(value, _VERSIONED) and not _holds(Version, value.version):
        yield f"version: {value.version!r}"
    for name in value.__struct_fields__:
        form = _OWN.get((type(value), name)) or FORMS.get(name)
        found = getattr(value, name)
        parts = found if isinstance(found, tuple) else found.values() if isinstance(found, Mapping) else (found,)
        for part in parts:
            if isinstance(part, msgspec.Struct):
                yield from misshapen(part)
            elif isinstance(part, str) and form is not None and not _holds(form, part):
                yield f"{name}: {part!r}"


def misplaced(record: Any, place: str, package: str) -> Iterator[str]:
    """What of a build is not what the path of its file says, ``builds/<place>/<package>.json``."""
    if isinstance(record, Build):
        if record.index != place:
            yield f"index: {record.index!r}"
        if record.package != package:
            yield f"package: {record.package!r}"


def _holds(form: Callable[[str], object], text: str) -> bool:
    try:
        return form(text) is not None
    except (InvalidRequirement, InvalidSpecifier, InvalidVersion, ValueError):
        return False
