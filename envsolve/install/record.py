"""The record that an install leaves in an environment, and whether the environment still matches it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import Distribution, PackagePath, distributions
from pathlib import Path
from typing import Literal

import msgspec
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from envsolve.install import contents
from envsolve.install.files import File, Wanted
from envsolve.install.interpreters import PROBE_SECONDS
from envsolve.planning.lock import Assumptions, Building
from envsolve.system.files import dump
from envsolve.system.processes import ask
from envsolve.values import PythonVersion

# What ``envsolve guard --write`` leaves in an environment's pip configuration, told from what its user wrote there.


BEGIN, END = "# written by envsolve guard --write", "# end of what envsolve guard wrote"
CONFIG = "pip.ini" if sys.platform == "win32" else "pip.conf"
"""pip's configuration file in the root folder of an environment."""


def without_block(text: str) -> str:
    """A configuration without what guard wrote; as it is where it wrote nothing, or its marks are not whole."""
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
        return (environment / CONFIG).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


SCHEMA: Literal["envsolve.installed/1"] = "envsolve.installed/1"
FOLDER = ".envsolve"
_NAME = "installed.json"


@dataclass(frozen=True, slots=True)
class Proof:
    """What came of verifying an environment.

    Attributes:
        machine: What it was verified on: the driver and the GPUs.
        proved: False where no check could prove anything there.
    """

    machine: str
    proved: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What an install put into an environment.

    Attributes:
        python: Full version of its interpreter.
        manager: The package manager that made it, with its version.
        files: Every file that was installed, with addresses free of credentials.
        proof: What came of verifying it; None where it was not verified.
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
    (environment / FOLDER / _NAME).write_text(dump(kept), encoding="utf-8")
    carried = [dist for dist in installed(environment) if pip and _name(dist) == "pip"]
    replaceable = [_inside(environment, dist, path) for dist in carried for path in dist.files or ()]
    contents.write(environment, FOLDER, replaceable)


def write_proof(environment: Path, proof: Proof) -> None:
    """Add to an environment's record what came of verifying it."""
    kept = read(environment)
    if kept is not None and os.access(environment / FOLDER, os.W_OK):
        fresh = environment / FOLDER / f"{_NAME}.new"
        fresh.write_text(dump(replace(kept, proof=proof)), encoding="utf-8")
        fresh.replace(environment / FOLDER / _NAME)


def read(environment: Path) -> Record | None:
    """The record of an environment; None where envsolve did not make it or the record is damaged."""
    try:
        return msgspec.json.decode((environment / FOLDER / _NAME).read_bytes(), type=Record)
    except (OSError, msgspec.MsgspecError):
        return None


def made_here(environment: Path) -> bool:
    """Whether an install of envsolve made this environment, and its list of files can be read."""
    return read(environment) is not None and contents.read(environment, FOLDER) is not None


def unaccounted(environment: Path) -> list[str]:
    """Files in an environment of envsolve that neither an install nor a guard put there, relative to it."""
    found = contents.unaccounted(environment, FOLDER, contents.read(environment, FOLDER) or {})
    return [name for name in found if name != CONFIG or not is_all_ours(environment)]


def holds(environment: Path, wanted: Wanted, python: str | None) -> bool:
    """Whether the environment was made for exactly ``wanted`` and is still whole.

    Whole means: its interpreter runs, every file is as the install left it, and the folder of packages holds nothing
    else but packages that were installed since. Any patch release of the wanted Python will do.

    Args:
        environment: The environment.
        wanted: What it should hold.
        python: The version of its Python; None for one without, which conda packages may make up.
    """
    kept, entries = read(environment), contents.read(environment, FOLDER)
    return (
        kept is not None
        and entries is not None
        and _identity(kept.files) == _identity(wanted.files)
        and dict(kept.environment) == dict(wanted.environment)
        and _building(kept.assumptions) == _building(wanted.assumptions)
        and PythonVersion.parse(kept.python) == PythonVersion.parse(python or "")
        and contents.damaged(environment, entries) is None
        and contents.unexpected(environment, entries) is None
        and not _absent(environment, [(f.name, f.version) for f in wanted.files if f.kind != "conda"])
        and not (kept.pip and _absent(environment, [("pip", None)], whole=True))
        and (python is None or _runs(environment / "bin" / "python"))
    )


def missing(environment: Path, wanted: Wanted) -> list[str]:
    """The wanted packages that a package manager has just failed to put there whole, as ``name version``."""
    present = {_name(dist): dist for dist in installed(environment)}
    return [
        f"{file.name} {file.version or ''}".strip()
        for file in wanted.files
        if not _is_there(present.get(canonicalize_name(file.name)), file.version, whole=True)
    ]


def _absent(environment: Path, packages: list[tuple[str, str | None]], *, whole: bool = False) -> bool:
    present = {_name(dist): dist for dist in installed(environment)}
    return not all(_is_there(present.get(canonicalize_name(name)), version, whole=whole) for name, version in packages)


def _name(dist: Distribution) -> str:
    """The normalized name; empty for a leftover folder without readable metadata."""
    try:
        return canonicalize_name(dist.metadata["Name"] or "")
    except (OSError, UnicodeDecodeError, KeyError, TypeError):
        return ""


def _inside(environment: Path, dist: Distribution, path: PackagePath) -> str:
    return os.path.relpath(os.path.normpath(str(dist.locate_file(path))), environment)


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


def _building(assumptions: Assumptions | None) -> Building | None:
    """How what was compiled was: for which GPUs, by which nvcc."""
    return assumptions.building if assumptions else None


def _is_there(dist: Distribution | None, version: str | None, *, whole: bool = False) -> bool:
    """Whether an installed package is the wanted one and, where asked, as its RECORD says."""
    if dist is None:
        return False
    try:
        if version is not None and Version(dist.version) != Version(version):
            return False
    except (InvalidVersion, TypeError, KeyError):
        return False
    packages = Path(str(dist.locate_file("")))
    info = getattr(dist, "_path", None)
    return not whole or (info is not None and contents.whole(packages, Path(str(info)).name))


def _runs(python: Path) -> bool:
    return ask([str(python), "-I", "-c", "print('runs')"], os.environ, limit=PROBE_SECONDS) is not None
