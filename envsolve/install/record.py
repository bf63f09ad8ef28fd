"""An install's record in its environment: each file as it was, to distinguish damage from a user's files.

The list of files lies beside the record. A file whose size and times are the same is taken as unchanged, as git does
it; only otherwise (a copy, a backup put back, damage) its content is hashed.
"""

from __future__ import annotations

import base64
import hashlib
import os
import stat
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from envsolve.environment.installed import record_rows
from envsolve.install.files import File, Wanted
from envsolve.install.interpreters import PROBE_SECONDS
from envsolve.planning.lock import Assumptions, Building
from envsolve.system.files import dump, from_json, open_regular, read_regular
from envsolve.system.processes import ask
from envsolve.values import PythonVersion

SCHEMA: Literal["envsolve.installed/1"] = "envsolve.installed/1"
FOLDER = ".envsolve"
_RECORD, _CONTENTS = "installed.json", "contents.json"
_LARGEST = 256 * 2**20  # bytes; the contents of an environment with a hundred thousand files have 20 MB
_PACKAGES = "lib/python3*/site-packages"
_DEPTH = 3  # directories of an environment above the metadata of a package
_SMALL = 1 << 20  # bytes up to which a file that was just written is hashed, too, and not only measured

# What ``envsolve guard --write`` leaves in an environment's pip configuration, told from what its user wrote there.

BEGIN, END = "# written by envsolve guard --write", "# end of what envsolve guard wrote"
CONFIG = "pip.ini" if sys.platform == "win32" else "pip.conf"
"""pip's configuration file in the root directory of an environment."""


def without_block(text: str) -> str:
    """A configuration without what guard wrote; unchanged if guard wrote nothing or its markers are damaged."""
    lines = text.splitlines()
    if BEGIN not in lines or END not in lines:
        return text
    begin, end = lines.index(BEGIN), lines.index(END)
    return "".join(f"{line}\n" for line in (*lines[:begin], *lines[end + 1 :]))


def is_guarded(environment: Path) -> bool:
    """Whether guard left constraints in an environment's pip configuration."""
    return BEGIN in _configuration(environment).splitlines()


def is_all_ours(environment: Path) -> bool:
    """Whether guard wrote all of an environment's pip configuration, so that nothing of its user's is in it."""
    text = _configuration(environment)
    return bool(text) and not without_block(text).strip()


def _configuration(environment: Path) -> str:
    try:
        return read_regular(environment / CONFIG).decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One file: bytes, times of change of content and of status (ns), and sha256 (base64) or the target of a link."""

    size: int
    modified: int
    changed: int
    digest: str


@dataclass(frozen=True, slots=True)
class Proof:
    """The result of verifying an environment.

    Attributes:
        machine: What it was verified on: the driver and the GPUs.
        proved: False if no check could prove anything there.
    """

    machine: str
    proved: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Everything that an install put into an environment.

    Attributes:
        python: Full version of its interpreter.
        manager: The package manager that made it, with its version.
        files: Every file that was installed, with URLs free of credentials.
        proof: What came of verifying it; None if it was not verified.
        pip: Whether it was given the pip of its Python, which its user may upgrade.
    """

    schema: Literal["envsolve.installed/1"] = SCHEMA
    python: str
    manager: str
    files: tuple[File, ...]
    pip: bool = False
    proof: Proof | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    assumptions: Assumptions | None = None


def write(environment: Path, *, python: str, manager: str, wanted: Wanted, pip: bool) -> None:
    """Leave the record, and the list of all files, in the finished environment."""
    (environment / FOLDER).mkdir()
    files = tuple(replace(file, url=file.public_url) for file in wanted.files)
    kept = Record(
        python=python,
        manager=manager,
        files=files,
        pip=pip,
        environment=wanted.environment,
        assumptions=wanted.assumptions,
    )
    (environment / FOLDER / _RECORD).write_text(dump(kept), encoding="utf-8")
    known = _recorded(environment)
    # Its user may upgrade the pip that it was given, so that is no damage.
    left_out = {
        os.path.relpath(os.path.normpath(str(dist.locate_file(path))), environment)
        for dist in installed(environment)
        if pip and _name(dist) == "pip"
        for path in dist.files or ()
    }
    entries = {
        name: _entry(environment / name, known.get(name)) for name in _files(environment) if name not in left_out
    }
    (environment / FOLDER / _CONTENTS).write_bytes(msgspec.json.encode(entries))


def write_proof(environment: Path, proof: Proof) -> None:
    """Add the result of verification to an environment's record."""
    kept = read(environment)
    if kept is not None and os.access(environment / FOLDER, os.W_OK):
        fresh = environment / FOLDER / f"{_RECORD}.new"
        fresh.write_text(dump(replace(kept, proof=proof)), encoding="utf-8")
        fresh.replace(environment / FOLDER / _RECORD)


def read(environment: Path) -> Record | None:
    """The record of an environment; None if envsolve did not make it or the record is damaged."""
    try:
        return from_json(read_regular(environment / FOLDER / _RECORD, _LARGEST), Record)
    except (OSError, msgspec.MsgspecError):
        return None


def _listed(environment: Path) -> dict[str, Entry] | None:
    """The list of files that an install left; None if it is missing or damaged."""
    try:
        return from_json(read_regular(environment / FOLDER / _CONTENTS, _LARGEST), dict[str, Entry])
    except (OSError, msgspec.MsgspecError):
        return None


def made_here(environment: Path) -> bool:
    """Whether an install of envsolve made this environment, and its list of files can be read."""
    return read(environment) is not None and _listed(environment) is not None


def unaccounted(environment: Path) -> list[str]:
    """Files in an environment, relative to it, that neither an install nor a guard put there: replacing it loses them.

    The directory of packages belongs to package managers: what is in it counts as theirs.
    """
    entries = _listed(environment) or {}
    roots = ("conda-meta/", *(f"{path.relative_to(environment)}/" for path in environment.glob(_PACKAGES)))
    found = {name for name in _files(environment) if name not in entries and not name.startswith(roots)}
    if is_all_ours(environment):
        found.discard(CONFIG)
    return sorted(found - _recorded(environment).keys()) if found else []


def holds(environment: Path, wanted: Wanted, python: str | None) -> bool:
    """Whether the environment was made for exactly ``wanted`` and is still whole.

    Whole means: its interpreter runs, every file is as the install left it, and the directory of packages holds nothing
    else but packages that were installed since. Any patch release of the wanted Python will do.

    Args:
        environment: The environment.
        wanted: What it should hold.
        python: The version of its Python; None for one without, which conda packages may make up.
    """
    kept, entries = read(environment), _listed(environment)
    start = [str(environment / "bin/python"), "-I", "-c", "print('runs')"]
    return (
        kept is not None
        and entries is not None
        and _identity(kept.files) == _identity(wanted.files)
        and dict(kept.environment) == dict(wanted.environment)
        and _building(kept.assumptions) == _building(wanted.assumptions)
        and PythonVersion.parse(kept.python) == PythonVersion.parse(python or "")
        and all(_is_same(f"{environment}/{name}", entry) for name, entry in entries.items())
        and not _holds_others(environment, entries)
        and not _absent(environment, [(f.name, f.version) for f in wanted.files if f.kind != "conda"])
        and not (kept.pip and _absent(environment, [("pip", None)], whole=True))
        and (python is None or ask(start, os.environ, limit=PROBE_SECONDS) is not None)
    )


def missing(environment: Path, wanted: Wanted) -> list[str]:
    """The packages that a package manager did not install completely, as ``name version``."""
    return _absent(environment, [(file.name, file.version) for file in wanted.files], whole=True)


def _absent(environment: Path, packages: list[tuple[str, str | None]], *, whole: bool = False) -> list[str]:
    present = {_name(dist): dist for dist in installed(environment)}
    return [
        f"{name} {version or ''}".strip()
        for name, version in packages
        if not _is_there(present.get(canonicalize_name(name)), version, whole=whole)
    ]


def _name(dist: Distribution) -> str:
    """The normalized name; empty for a leftover directory without readable metadata."""
    try:
        return canonicalize_name(dist.metadata["Name"] or "")
    except (OSError, UnicodeDecodeError, KeyError, TypeError):
        return ""


def site_packages(environment: Path) -> Path:
    """The one directory of installed packages of a virtual environment on Linux."""
    return next(environment.glob(_PACKAGES))


def installed(environment: Path) -> list[Distribution]:
    """The distributions installed in an environment, none of them from this process's own path."""
    return [dist for folder in environment.glob(_PACKAGES) for dist in distributions(path=[str(folder)])]


def _identity(files: tuple[File, ...]) -> frozenset[tuple[object, ...]]:
    return frozenset((canonicalize_name(f.name), f.version, f.filename, frozenset(f.hashes.items())) for f in files)


def _building(assumptions: Assumptions | None) -> Building | None:
    """How packages were compiled: for which GPUs, by which nvcc."""
    return assumptions.building if assumptions else None


def _is_there(dist: Distribution | None, version: str | None, *, whole: bool = False) -> bool:
    """Whether an installed package is the wanted one and, if requested, matches its RECORD."""
    if dist is None:
        return False
    try:
        if version is not None and Version(dist.version) != Version(version):
            return False
    except (InvalidVersion, TypeError, KeyError):
        return False
    return not whole or _is_whole(dist)


def _holds_others(environment: Path, entries: dict[str, Entry]) -> bool:
    """Whether the directory of packages has names from neither the install nor a package installed since."""
    for packages in environment.glob(_PACKAGES):
        base = f"{packages.relative_to(environment)}/"
        known = {name[len(base) :].partition("/")[0] for name in entries if name.startswith(base)}
        rest = {path.name for path in packages.iterdir()} - known - {"__pycache__"}
        since = [packages / name for name in rest if name.endswith(".dist-info")]
        if rest - {name.partition("/")[0] for info in since for name, _, _ in rows(info)}:
            return True
    return False


def _files(environment: Path) -> Iterator[str]:
    """Every file and link in an environment, relative to it, but what Python compiles and what is envsolve's own."""
    pending = [""]
    while pending:
        place = pending.pop()
        with os.scandir(environment / place) as entries:
            for entry in entries:
                name = f"{place}{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    if name != FOLDER:
                        pending.append(f"{name}/")
                elif not (place.endswith("__pycache__/") and name.endswith(".pyc")):
                    yield name


def _is_whole(dist: Distribution) -> bool:
    """Whether a package that was just installed is as its RECORD says, within the environment: sizes, small hashes."""
    info = info_of(dist)
    within = f"{info.parents[_DEPTH]}/"
    found = [(os.path.normpath(f"{info.parent}/{name}"), digest, size) for name, digest, size in rows(info)]
    own = [row for row in found if row[0].startswith(within)]
    return bool(own) and all(_matches(Path(path), digest, size) for path, digest, size in own)


def _matches(path: Path, digest: str, size: str) -> bool:
    if path.suffix == ".pyc":
        return True
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode) or (size and status.st_size != int(size)):
            return False
        return status.st_size > _SMALL or not digest.startswith("sha256=") or digest[7:] == _digest(path)
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

    ``conda-meta`` lists those of conda packages.
    """
    found: dict[str, str | None] = {}
    for meta in environment.glob("conda-meta/*.json"):
        found |= dict(_conda_paths(meta))
    for packages in environment.glob(_PACKAGES):
        base = packages.relative_to(environment)
        for info in packages.glob("*.dist-info"):
            for name, digest, _ in rows(info):
                path = os.path.normpath(f"{base}/{name}")
                found[path] = digest[7:] if digest.startswith("sha256=") else None
    return found


def info_of(dist: Distribution) -> Path:
    """The directory of a distribution's metadata; what its RECORD calls its own may be that of another one."""
    return Path(str(getattr(dist, "_path", dist.locate_file(""))))


def rows(info: Path) -> list[tuple[str, str, str]]:
    """The whole rows of a RECORD; none if it cannot be read."""
    return [(row[0], row[1], row[2]) for row in record_rows(info) or () if len(row) == 3]


_Sha256 = Annotated[str, msgspec.Meta(pattern="^[0-9a-fA-F]{64}$")]


class _CondaPath(msgspec.Struct, frozen=True):
    """A file of a conda package; its content differs from the package's where the prefix was written into it."""

    path: str = msgspec.field(name="_path")
    path_type: str = ""
    sha256: _Sha256 | None = None
    sha256_in_prefix: _Sha256 | None = None


class _CondaPaths(msgspec.Struct, frozen=True):
    paths: tuple[_CondaPath, ...] = ()


class _CondaMeta(msgspec.Struct, frozen=True):
    paths_data: _CondaPaths = _CondaPaths()


def _conda_paths(meta: Path) -> Iterator[tuple[str, str | None]]:
    """The files of one conda package with their sha256, in base64 as a RECORD has it."""
    try:
        listed = from_json(read_regular(meta, _LARGEST), _CondaMeta).paths_data.paths
    except (OSError, msgspec.MsgspecError):
        return
    for one in listed:
        digest = one.sha256_in_prefix or one.sha256
        known = base64.urlsafe_b64encode(bytes.fromhex(digest)).rstrip(b"=").decode() if digest else None
        yield one.path, known if one.path_type != "softlink" else None


def _digest(path: Path) -> str:
    with open_regular(path) as file:
        content = hashlib.sha256()
        while block := file.read(_SMALL):
            content.update(block)
    return base64.urlsafe_b64encode(content.digest()).rstrip(b"=").decode()
