"""Every file of an environment as its install left it: what tells damage, and what tells a user's own files.

The list is a file of its own beside the record. A file whose size and times are the same is taken as unchanged, as git
does it; only where they differ (a copy, a backup put back, damage) its content is hashed.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

_NAME = "contents.json"
_PACKAGES = "lib/python3*/site-packages"
_SMALL = 1 << 20
"""Bytes up to which a file that a package manager has just written is hashed, too, and not only measured."""


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One file: bytes, times of change of content and of status (ns), and sha256 (base64) or the target of a link."""

    size: int
    modified: int
    changed: int
    digest: str


def write(environment: Path, folder: str, replaceable: Iterable[str] = ()) -> None:
    """List what is in ``environment`` now, into its folder ``folder``.

    Args:
        environment: The environment; nothing in it changes afterwards but what Python compiles.
        folder: The name of envsolve's own folder in it.
        replaceable: Files, relative to the environment, that its user may change: they are not listed.
    """
    known = _recorded(environment)
    left_out = frozenset(replaceable)
    entries = {
        name: _entry(environment / name, known.get(name)) for name in files(environment, folder) if name not in left_out
    }
    (environment / folder / _NAME).write_bytes(msgspec.json.encode(entries))


def read(environment: Path, folder: str) -> dict[str, Entry] | None:
    """The list that an install left; None where there is none, or it is damaged."""
    try:
        return msgspec.json.decode((environment / folder / _NAME).read_bytes(), type=dict[str, Entry])
    except (OSError, msgspec.MsgspecError):
        return None


def files(environment: Path, folder: str) -> Iterator[str]:
    """Every file and link in an environment, relative to it, but what Python compiles and what lies in ``folder``."""
    pending = [""]
    while pending:
        place = pending.pop()
        with os.scandir(environment / place) as entries:
            for entry in entries:
                name = f"{place}{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    if name != folder:
                        pending.append(f"{name}/")
                elif not (place.endswith("__pycache__/") and name.endswith(".pyc")):
                    yield name


def damaged(environment: Path, entries: dict[str, Entry]) -> str | None:
    """The first file that is gone or has another content; None where all are as they were."""
    return next((name for name, entry in entries.items() if not _is_same(f"{environment}/{name}", entry)), None)


def unexpected(environment: Path, entries: dict[str, Entry]) -> str | None:
    """The first name in the folder of packages that neither the install nor a package installed since accounts for."""
    for packages in environment.glob(_PACKAGES):
        base = f"{packages.relative_to(environment)}/"
        known = {name[len(base) :].partition("/")[0] for name in entries if name.startswith(base)}
        rest = {path.name for path in packages.iterdir()} - known - {"__pycache__"}
        since = [packages / name for name in rest if name.endswith(".dist-info")]
        strange = rest - {name.partition("/")[0] for info in since for name, _, _ in _rows(info)}
        if strange:
            return base + min(strange)
    return None


def unaccounted(environment: Path, folder: str, entries: dict[str, Entry]) -> list[str]:
    """Files that replacing the environment would destroy and that no install put there.

    The folder of packages belongs to package managers: what is in it counts as theirs.
    """
    roots = ("conda-meta/", *(f"{path.relative_to(environment)}/" for path in environment.glob(_PACKAGES)))
    rest = [name for name in files(environment, folder) if name not in entries and not name.startswith(roots)]
    return sorted(set(rest) - _recorded(environment).keys()) if rest else []


def whole(packages: Path, info: str) -> bool:
    """Whether a package that was just installed is as its RECORD says: sizes, and the hashes of small files.

    Args:
        packages: The folder of packages.
        info: Name of the package's ``.dist-info`` folder.
    """
    rows = list(_rows(packages / info))
    return bool(rows) and all(_matches(packages / name, digest, size) for name, digest, size in rows)


def _matches(path: Path, digest: str, size: str) -> bool:
    if path.suffix == ".pyc":
        return True
    try:
        found = path.stat().st_size
        if size and found != int(size):
            return False
        return found > _SMALL or not digest.startswith("sha256=") or digest[7:] == _digest(path)
    except (OSError, ValueError):
        return False


def _entry(path: Path, digest: str | None) -> Entry:
    status = path.lstat()
    if path.is_symlink():
        digest = str(path.readlink())
    return Entry(status.st_size, status.st_mtime_ns, status.st_ctime_ns, digest or _digest(path))


def _is_same(path: str, entry: Entry) -> bool:
    try:
        status = os.lstat(path)
        if (status.st_size, status.st_mtime_ns, status.st_ctime_ns) == (entry.size, entry.modified, entry.changed):
            return True
        if status.st_size != entry.size:
            return False
        return (os.readlink(path) if os.path.islink(path) else _digest(Path(path))) == entry.digest  # noqa: PTH114,PTH115
    except OSError:
        return False


def _recorded(environment: Path) -> dict[str, str | None]:
    """Every file that the RECORD of an installed package lists, relative to the environment, with its sha256.

    Those of conda packages stand in ``conda-meta``.
    """
    found: dict[str, str | None] = {}
    for meta in environment.glob("conda-meta/*.json"):
        found |= dict(_conda_paths(meta))
    for packages in environment.glob(_PACKAGES):
        base = packages.relative_to(environment)
        for info in packages.glob("*.dist-info"):
            for name, digest, _ in _rows(info):
                path = os.path.normpath(f"{base}/{name}")
                found[path] = digest[7:] if digest.startswith("sha256=") else None
    return found


def _rows(info: Path) -> Iterator[tuple[str, str, str]]:
    try:
        text = (info / "RECORD").read_text(encoding="utf-8")
        for row in csv.reader(text.splitlines()):
            if len(row) == 3:
                yield row[0], row[1], row[2]
    except (OSError, UnicodeDecodeError, csv.Error):
        return


class _CondaPath(msgspec.Struct, frozen=True):
    """A file of a conda package; its content differs from the package's where the prefix was written into it."""

    path: str = msgspec.field(name="_path")
    path_type: str = ""
    sha256: str | None = None
    sha256_in_prefix: str | None = None


class _CondaPaths(msgspec.Struct, frozen=True):
    paths: tuple[_CondaPath, ...] = ()


class _CondaMeta(msgspec.Struct, frozen=True):
    paths_data: _CondaPaths = _CondaPaths()


def _conda_paths(meta: Path) -> Iterator[tuple[str, str | None]]:
    """The files of one conda package with their sha256, in base64 as a RECORD has it."""
    try:
        listed = msgspec.json.decode(meta.read_bytes(), type=_CondaMeta).paths_data.paths
    except (OSError, msgspec.MsgspecError):
        return
    for one in listed:
        digest = one.sha256_in_prefix or one.sha256
        known = base64.urlsafe_b64encode(bytes.fromhex(digest)).rstrip(b"=").decode() if digest else None
        yield one.path, known if one.path_type != "softlink" else None


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        content = hashlib.sha256()
        while block := file.read(_SMALL):
            content.update(block)
    return base64.urlsafe_b64encode(content.digest()).rstrip(b"=").decode()
