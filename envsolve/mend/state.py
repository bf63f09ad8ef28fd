"""The exact state of an environment's packages, saved before it is changed."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from envsolve.diagnose.environment.model import Distribution, Environment
from envsolve.errors import EnvsolveError, UsageError
from envsolve.files import read_regular, replace_file
from envsolve.jsontext import dump

SCHEMA: Literal["envsolve.state/1"] = "envsolve.state/1"
FOLDER = ".envsolve"
_NAME = re.compile(r"state-(\d+)\.json")
_LARGEST_RECORD = 64 << 20


@dataclass(frozen=True, slots=True)
class Package:
    """One distribution as it was.

    Attributes:
        name: Normalised name.
        version: With its local part.
        files: sha256 over the paths and hashes that RECORD lists, metadata and scripts left out: two builds of one
            version differ in it. None where there is no RECORD.
        source: What an installer takes it by where it came from no index: ``name @ address``, ``-e folder``.
    """

    name: str
    version: str | None
    files: str | None
    source: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What an environment held.

    Attributes:
        prefix: Its root folder.
        cause: What was to be mended.
        commands: What was then run.
        packages: Every distribution of its own, by name.
    """

    schema: Literal["envsolve.state/1"] = SCHEMA
    prefix: str
    cause: str
    commands: tuple[str, ...]
    packages: tuple[Package, ...]


class _Vcs(msgspec.Struct, frozen=True):
    vcs: str
    commit_id: str


class _Folder(msgspec.Struct, frozen=True):
    editable: bool = False


class _Origin(msgspec.Struct, frozen=True):
    """https://packaging.python.org/en/latest/specifications/direct-url-data-structure/"""

    url: str
    vcs_info: _Vcs | None = None
    dir_info: _Folder | None = None


def packages_of(environment: Environment) -> tuple[Package, ...]:
    """The distributions that lie in the environment itself, by name."""
    own = {site.path for site in environment.sites if site.origin == "environment"}
    found = (_package(d) for d in environment.distributions if d.site in own)
    return tuple(sorted(found, key=lambda package: package.name))


def save(state: State) -> Path:
    """Write a state into its environment, beside earlier ones.

    Raises:
        EnvsolveError: It cannot be written.
    """
    folder = Path(state.prefix) / FOLDER
    number = max((n for n, _ in _saved(folder)), default=0) + 1
    path = folder / f"state-{number}.json"
    try:
        folder.mkdir(exist_ok=True)
        replace_file(path, dump(state))
    except OSError as error:
        raise EnvsolveError(
            f"the state before the change cannot be saved at {path}: {error.strerror}", hint="nothing was changed"
        ) from error
    return path


def last(prefix: Path) -> tuple[Path, State]:
    """The state that was saved last.

    Raises:
        UsageError: There is none, or it cannot be read.
    """
    found = max(_saved(prefix / FOLDER), default=None)
    if found is None:
        raise UsageError(f"no earlier state of {prefix} is saved", hint="`envsolve diagnose --fix` saves one")
    path = found[1]
    try:
        return path, msgspec.json.decode(read_regular(path), type=State)
    except (OSError, msgspec.MsgspecError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error


def _saved(folder: Path) -> Iterator[tuple[int, Path]]:
    for path in folder.glob("state-*.json"):
        if match := _NAME.fullmatch(path.name):
            yield int(match[1]), path


def _package(distribution: Distribution) -> Package:
    return Package(distribution.name, distribution.version, _digest(distribution), _source(distribution))


def _digest(distribution: Distribution) -> str | None:
    try:
        text = read_regular(Path(distribution.info) / "RECORD", _LARGEST_RECORD).decode("utf-8", "replace")
    except OSError:
        return None
    rows = (line for line in text.splitlines() if line and "sha256=" in line)
    kept = sorted(row for row in rows if ".dist-info/" not in row and not row.startswith(("../", "/")))
    return hashlib.sha256("\n".join(kept).encode()).hexdigest()


def _source(distribution: Distribution) -> str | None:
    if distribution.direct_url is None:
        return None
    try:
        origin = msgspec.json.decode(read_regular(Path(distribution.info) / "direct_url.json"), type=_Origin)
    except (OSError, msgspec.MsgspecError):
        return None
    if origin.dir_info and origin.dir_info.editable:
        return f"-e {origin.url.removeprefix('file://')}"
    address = f"{origin.vcs_info.vcs}+{origin.url}@{origin.vcs_info.commit_id}" if origin.vcs_info else origin.url
    return f"{distribution.name} @ {address}"
