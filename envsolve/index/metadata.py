"""METADATA, PKG-INFO and requires.txt texts into ``CoreMetadata``. Pure."""

from __future__ import annotations

import re

from envsolve.index.lenient import requirement_text, specifier_text
from envsolve.index.model import CoreMetadata

_BLANK_LINE = re.compile(rb"\r?\n\r?\n")
_SECTION = re.compile(r"\[(?P<extra>[^:\]]*)(?::(?P<marker>[^\]]*))?\]$")


def parse_metadata(text: bytes, *, sdist: bool = False) -> CoreMetadata:
    """The resolver's part of a core-metadata text.

    A wheel's METADATA is exact. An sdist's PKG-INFO is exact from Metadata-Version 2.2 on unless it lists
    ``Requires-Dist`` (or what gates it) as ``Dynamic`` (PEP 643); before 2.2 it is only the best guess.

    Raises:
        ValueError: It has no name or no version.
    """
    from packaging.metadata import parse_email  # imports the email package: not for a run that the cache answers

    # The description that follows the headers is long and says nothing to a resolver.
    raw, unparsed = parse_email(_BLANK_LINE.split(text, maxsplit=1)[0] + b"\n\n")
    name, version = raw.get("name"), raw.get("version")
    if not name or not version:
        raise ValueError("it names no project or no version")
    # A line in another encoding than UTF-8 puts the whole field among the unparsed.
    lines = raw.get("requires_dist") or unparsed.get("requires-dist", [])
    requires_python = raw.get("requires_python") or next(iter(unparsed.get("requires-python", [])), None)
    return CoreMetadata(
        name=name.strip(),
        version=version.strip(),
        requires_dist=tuple(r for r in map(requirement_text, lines) if r is not None),
        requires_python=specifier_text(requires_python),
        provides_extra=tuple(e.strip() for e in raw.get("provides_extra", [])),
        exact=not sdist or _is_static(raw.get("metadata_version", "1.0"), raw.get("dynamic", [])),
    )


def _is_static(version: str, dynamic: list[str]) -> bool:
    numbers = tuple(int(n) for n in re.findall(r"\d+", version)[:2])
    return numbers >= (2, 2) and "requires-dist" not in {d.strip().lower() for d in dynamic}


def parse_requires_txt(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Setuptools' ``requires.txt`` (its own format of sections) as ``Requires-Dist`` lines, and the extras it names."""
    lines: list[str] = []
    extras: list[str] = []
    condition = ""
    for line in (raw.strip() for raw in text.splitlines()):
        if section := _SECTION.match(line):
            extra, marker = section["extra"].strip(), (section["marker"] or "").strip()
            if extra and extra not in extras:
                extras.append(extra)
            parts = [f"({marker})"] * bool(marker) + [f"extra == '{extra}'"] * bool(extra)
            condition = " and ".join(parts)
        elif line and not line.startswith("#"):
            requirement = requirement_text(f"{line} ; {condition}" if condition else line)
            if requirement is not None:
                lines.append(requirement)
    return tuple(lines), tuple(extras)
