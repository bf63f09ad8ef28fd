"""The record that an install leaves in an environment, and whether the environment still matches it."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Literal

import msgspec
from packaging.utils import canonicalize_name
from packaging.version import Version

from envsolve.install.files import File, Wanted
from envsolve.install.interpreters import PROBE_SECONDS, Target
from envsolve.jsontext import dump
from envsolve.lock import Assumptions
from envsolve.processes import ask

SCHEMA: Literal["envsolve.installed/1"] = "envsolve.installed/1"
FOLDER = ".envsolve"
_NAME = "installed.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What an install put into an environment.

    Attributes:
        python: Full version of its interpreter.
        manager: The package manager that made it, with its version.
        files: Every file that was installed, with addresses free of credentials.
        entries: Names at the top of the prefix when it was made.
    """

    schema: Literal["envsolve.installed/1"] = SCHEMA
    python: str
    manager: str
    files: tuple[File, ...]
    entries: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    assumptions: Assumptions | None = None


def write(environment: Path, *, python: str, manager: str, wanted: Wanted) -> None:
    """Leave the record in the environment."""
    files = tuple(replace(file, url=file.public_url) for file in wanted.files)
    folder = environment / FOLDER
    folder.mkdir()
    names = tuple(sorted(path.name for path in environment.iterdir()))
    kept = Record(
        python=python,
        manager=manager,
        files=files,
        entries=names,
        environment=wanted.environment,
        assumptions=wanted.assumptions,
    )
    (folder / _NAME).write_text(dump(kept), encoding="utf-8")


def read(environment: Path) -> Record | None:
    """The record of an environment; None where envsolve did not make it or the record is damaged."""
    try:
        return msgspec.json.decode((environment / FOLDER / _NAME).read_bytes(), type=Record)
    except (OSError, msgspec.MsgspecError):
        return None


def entries(environment: Path) -> frozenset[str]:
    """Names that an install put at the top of this environment, as its record has them."""
    kept = read(environment)
    return frozenset(kept.entries) if kept else frozenset()


def holds(environment: Path, wanted: Wanted, target: Target) -> bool:
    """Whether the environment was made for exactly ``wanted`` and is still whole.

    Whole means: its interpreter runs, and every file that an installed package's RECORD lists is there in its size. Any
    patch release of the wanted Python will do.
    """
    kept = read(environment)
    return (
        kept is not None
        and _identity(kept.files) == _identity(wanted.files)
        and dict(kept.environment) == dict(wanted.environment)
        and kept.python.split(".")[:2] == target.version.split(".")[:2]
        and not missing(environment, wanted)
        and _runs(environment / "bin" / "python")
    )


def missing(environment: Path, wanted: Wanted) -> list[str]:
    """The wanted packages that are not there whole, as ``name version``."""
    present = {canonicalize_name(dist.name): dist for dist in installed(environment)}
    return [
        f"{file.name} {file.version or ''}".strip()
        for file in wanted.files
        if not _is_there(present.get(canonicalize_name(file.name)), file.version)
    ]


def site_packages(environment: Path) -> Path:
    """The one folder of installed packages of a virtual environment on Linux."""
    return next(environment.glob("lib/python3*/site-packages"))


def installed(environment: Path) -> list[Distribution]:
    """The distributions installed in an environment, none of them from this process's own path."""
    return [
        dist for folder in environment.glob("lib/python3*/site-packages") for dist in distributions(path=[str(folder)])
    ]


def _identity(files: tuple[File, ...]) -> frozenset[tuple[object, ...]]:
    return frozenset((canonicalize_name(f.name), f.version, f.filename, frozenset(f.hashes.items())) for f in files)


def _is_there(dist: Distribution | None, version: str | None) -> bool:
    if dist is None or (version is not None and Version(dist.version) != Version(version)):
        return False
    return _is_whole(dist)


def _is_whole(dist: Distribution) -> bool:
    listing = dist.read_text("RECORD")
    if listing is None:
        return False
    rows = [row for row in csv.reader(listing.splitlines()) if len(row) == 3 and not row[0].endswith(".pyc")]
    return all(_has_size(Path(str(dist.locate_file(path))), size) for path, _, size in rows)


def _has_size(path: Path, size: str) -> bool:
    try:
        found = path.stat().st_size
        return not size or found == int(size)
    except (OSError, ValueError):
        return False


def _runs(python: Path) -> bool:
    return ask([str(python), "-I", "-c", "print('runs')"], os.environ, limit=PROBE_SECONDS) is not None
