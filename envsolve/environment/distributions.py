"""The distributions of a folder of packages: METADATA, RECORD, INSTALLER, direct_url.json; and conda's records.

Damage is an answer here, not an error: what cannot be read is None, what is not there is listed.
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterator, Sequence
from email.parser import BytesHeaderParser
from pathlib import Path

import msgspec
from packaging.utils import canonicalize_name

from envsolve.environment.model import CondaPackage, Distribution
from envsolve.system.files import is_file, read_regular

_INFO = re.compile(r"(?P<name>[^-]+)(?:-(?P<version>[^-]+))?(?:-py3[\d.]*)?\.(?:dist|egg)-info")
LIBRARY = re.compile(r"\.(?:so(?:\.\d+)*|dll|pyd)$")
_LARGEST_RECORD = 64 << 20


class _DirectUrl(msgspec.Struct, frozen=True):
    url: str


class _CondaRecord(msgspec.Struct, frozen=True):
    name: str
    version: str
    build: str = ""
    channel: str | None = None
    files: tuple[str, ...] = ()


def read_distributions(site: Path) -> Iterator[Distribution]:
    """Every distribution that has its metadata in a folder, by name of that."""
    for name in _names(site):
        if (match := _INFO.fullmatch(name)) and not name.startswith("~"):
            yield _distribution(site, name, match["name"], match["version"])


def leftovers(site: Path) -> Iterator[str]:
    """Folders that pip renamed before it was stopped: ``~orch``, ``~orch-2.8.0.dist-info``."""
    return (f"{site / name}: left by an uninstall that was stopped" for name in _names(site) if name.startswith("~"))


def read_conda(prefix: Path) -> tuple[tuple[CondaPackage, ...], tuple[str, ...]]:
    """The records of ``conda-meta``, and those that cannot be read, with the reason."""
    found, unreadable = [], []
    for path in sorted(prefix.glob("conda-meta/*.json")):
        try:
            record = msgspec.json.decode(read_regular(path, _LARGEST_RECORD), type=_CondaRecord)
        except (OSError, msgspec.MsgspecError) as error:
            unreadable.append(f"{path}: {error}")
            continue
        # Python sources and documentation are most of the files, and tell nothing that metadata does not.
        deciding = [f for f in record.files if LIBRARY.search(f) or f.endswith((".dist-info/METADATA", "version.py"))]
        missing = tuple(file for file in deciding if not os.path.lexists(prefix / file))
        found.append(
            CondaPackage(record.name, record.version, record.build, str(path), record.channel, missing=missing)
        )
    return tuple(found), tuple(unreadable)


def _distribution(site: Path, folder: str, name: str, version: str | None) -> Distribution:
    info = site / folder
    stated = _headers(info / "METADATA") or _headers(info / "PKG-INFO") or (_headers(info) if is_file(info) else {})
    files, missing, altered = _recorded(site, info / "RECORD")
    return Distribution(
        name=canonicalize_name(next(iter(stated.get("name", ())), name)),
        version=next(iter(stated.get("version", ())), None) or version,
        site=str(site),
        info=str(info),
        installer=_line(info / "INSTALLER"),
        direct_url=_direct_url(info / "direct_url.json"),
        requires=tuple(stated.get("requires-dist", ())),
        files=files,
        missing=missing,
        altered=altered,
    )


def _headers(path: Path) -> dict[str, list[str]]:
    """The header fields of a metadata file by lower-case name; none where it cannot be read."""
    try:
        message = BytesHeaderParser().parsebytes(read_regular(path))
    except (OSError, ValueError):
        return {}
    fields: dict[str, list[str]] = {}
    for key, value in message.items():
        fields.setdefault(key.lower(), []).append(" ".join(str(value).split()))
    return fields


def _recorded(site: Path, record: Path) -> tuple[tuple[str, ...] | None, tuple[str, ...], tuple[str, ...]]:
    """The files that RECORD names, those of them that are missing, and libraries of another size."""
    try:
        text = read_regular(record, _LARGEST_RECORD).decode("utf-8", "replace")
        rows = [row for row in csv.reader(text.splitlines()) if row and row[0]]
    except (OSError, csv.Error):
        return None, (), ()
    files, missing, altered = [], [], []
    for row in rows:
        path = row[0].replace("\\", "/")
        if path.startswith(("../", "/")) or path.endswith(".pyc") or "\0" in path:
            continue
        files.append(path)
        try:
            size = os.stat(site / path).st_size  # noqa: PTH116  thousands of files
        except OSError:
            missing.append(path)
            continue
        if len(row) > 2 and row[2].isdecimal() and size != int(row[2]) and LIBRARY.search(path):
            altered.append(path)
    return tuple(files), tuple(missing), tuple(altered)


def _line(path: Path) -> str | None:
    try:
        return read_regular(path, 4096).decode("utf-8", "replace").strip() or None
    except OSError:
        return None


def _direct_url(path: Path) -> str | None:
    try:
        return msgspec.json.decode(read_regular(path), type=_DirectUrl).url
    except (OSError, msgspec.MsgspecError):
        return None


def _names(folder: Path) -> Sequence[str]:
    try:
        return sorted(entry.name for entry in folder.iterdir())
    except OSError:
        return ()
