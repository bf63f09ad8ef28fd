"""Locks of conda packages (``pixi.lock``, ``conda-lock.yml``), and requirement files with hashes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from msgspec.structs import replace
from packaging.utils import canonicalize_name

from envsolve.locks.model import Locked, LockFile
from envsolve.locks.read import Entry, FlatLock, filename
from envsolve.packages.conda_inputs import yaml_table
from envsolve.packages.requirement_files import read_lines
from envsolve.packages.requirements import read_requirement, wrong
from envsolve.rules.conda import Candidate, subdir_of
from envsolve.rules.platform import Environment
from envsolve.system.files import is_file, read_regular

Table = Mapping[str, Any]
_ARCHIVE = re.compile(r"\.(?:conda|tar\.bz2)$")


class CondaLock(LockFile):
    """A lock that lists packages by subdir (``linux-64``), for each of its environments or categories.

    Attributes:
        packages: By subdir; each with the environment or category that installs it, "" if all do.
    """

    def __init__(self, kind: str, packages: Mapping[str, Sequence[tuple[str, Locked]]], default: str) -> None:
        self.kind = kind
        self._packages = packages
        self._default = default
        listed = [entry for entries in packages.values() for entry in entries]
        names = {name for name, _ in listed}
        self.choices = tuple(f"--environment {name}" for name in sorted(names - {default, ""}))
        pythons = {
            package.version for entries in packages.values() for _, package in entries if package.name == "python"
        }
        #: The Python of its packages, if they have one.
        self.python = ".".join(str(pythons.pop()).split(".")[:2]) if len(pythons) == 1 else None
        # An environment of pixi's is whole; a category of conda-lock's is added to `main`.
        self._whole = kind == "pixi.lock"

    def select(self, environment: Environment, chosen: Sequence[str]) -> list[Locked] | None:
        """See :class:`LockFile`."""
        try:
            entries = self._packages[subdir_of(environment.platform)]
        except KeyError:
            return None
        names = {choice.rpartition(" ")[2] for choice in chosen}
        if not names or not self._whole:
            names |= {self._default}
        return [package for name, package in entries if name in names]


def conda_candidate(package: Locked) -> Candidate:
    """A conda package as the rules take it, read from its URL: ``.../linux-64/pytorch-2.9.0-cuda129_py312_0.conda``."""
    channel, _, name = (package.conda or "").rpartition("/")
    channel, _, subdir = channel.rpartition("/")
    stem, version, build = _ARCHIVE.sub("", name).rsplit("-", 2)
    number = re.search(r"_(\d+)$", build)
    return Candidate(stem, version, build, int(number[1]) if number else 0, subdir, channel, package.conda or "", name)


def _conda_package(url: str, line: int) -> Locked:
    stem = _ARCHIVE.sub("", filename(url))
    parts = stem.rsplit("-", 2)
    if len(parts) < 3:  # a source package, or a directory
        return Locked(stem, None, line, source=True)
    return Locked(parts[0], parts[1], line, conda=url)


def _pypi_package(name: str, version: str | None, url: str, digest: str | None, line: int) -> Locked:
    file = filename(url)
    wheels = (file,) if file.endswith(".whl") else ()
    digests = frozenset({digest}) if digest else frozenset[str]()
    return Locked(canonicalize_name(name), version, line, wheels, digests, not wheels, url)


def read_conda_lock_file(path: Path, kind: str, text: str) -> LockFile:
    """Read a ``pixi.lock`` or ``conda-lock.yml``.

    Raises:
        UsageError: It cannot be read.
    """
    table = yaml_table(path, kind)
    at: dict[str, int] = {}
    for number, content in enumerate(text.splitlines(), 1):
        # The last mention of a file is its own entry; pixi lists it under its environments before.
        if "://" in content:
            at[content.rpartition(": ")[2].strip().strip("'\"")] = number
    found: dict[str, list[tuple[str, Locked]]] = {}
    entries = _pixi(table, at) if kind == "pixi.lock" else _conda_lock(table, at)
    for subdir, name, package in entries:
        found.setdefault(subdir, []).append((name, package))
    return CondaLock(kind, found, "default" if kind == "pixi.lock" else "main")


def _pixi(table: Table, at: Mapping[str, int]) -> Iterator[tuple[str, str, Locked]]:
    known = {str(entry.get("pypi") or entry.get("url")): entry for entry in table["packages"]}
    for name, environment in table["environments"].items():
        for subdir, packages in environment["packages"].items():
            for package in packages:
                url = str(package.get("conda") or package.get("pypi"))
                line = at.get(url, 1)
                if "conda" in package:
                    yield subdir, name, _conda_package(url, line)
                    continue
                entry = known.get(url, {})
                version = entry.get("version")
                title = entry.get("name") or filename(url).partition("-")[0]
                yield subdir, name, _pypi_package(title, version and str(version), url, entry.get("sha256"), line)


def _conda_lock(table: Table, at: Mapping[str, int]) -> Iterator[tuple[str, str, Locked]]:
    for entry in table["package"]:
        url = str(entry["url"])
        line = at.get(url, 1)
        if entry.get("manager") == "pip":
            digest = entry.get("hash", {}).get("sha256")
            package = _pypi_package(entry["name"], str(entry["version"]), url, digest, line)
        else:
            package = _conda_package(url, line)
        yield entry["platform"], entry.get("category", "main"), package


# Requirement files that pin every package.


def read_hashed(path: Path, text: str) -> LockFile:
    """Read a requirement file in which every package is pinned, as ``pip-compile`` and ``uv export`` write them.

    Raises:
        UsageError: It cannot be read, or a requirement is not pinned.
    """

    def read(place: PurePath) -> str | None:
        if place == path:
            return text
        return read_regular(Path(place)).decode("utf-8-sig", "replace") if is_file(Path(place)) else None

    entries: list[Entry] = []
    indexes: list[str] = []
    for line in read_lines(path, read):
        if line.problem:
            raise line.problem
        indexes += line.options.values("index_urls", "extra_index_urls")
        if not line.requirement or line.role != "needs":
            continue
        requirement = read_requirement(line.requirement, line.origin)
        pins = [one.version for one in requirement.specifier if one.operator in ("==", "===")]
        if not pins and not requirement.url:
            what = f"{requirement} is not pinned, so the file is not a lock"
            raise wrong(line.origin, what, "pin it, or plan the file: envsolve plan -r FILE")
        file = filename(requirement.url) if requirement.url else ""
        wheels = (file,) if file.endswith(".whl") else ()
        digests = frozenset(value.rpartition(":")[2] for value in line.options.values("hashes"))
        version = pins[0] if pins else file.split("-")[1] if wheels else None
        # A file without names of wheels may have a source: that a wheel is missing cannot be told from it.
        locked = Locked(
            canonicalize_name(requirement.name), version, line.number, wheels, digests, not wheels, requirement.url
        )
        entries.append(Entry(locked, requirement.marker))
    if not entries:
        raise wrong(str(path), "the file contains no package", "give a lock file")
    return FlatLock("requirements", [_with_index(entry, indexes) for entry in entries], None)


def _with_index(entry: Entry, indexes: Sequence[str]) -> Entry:
    """The package with the index that the file adds, which has its variant if its version does not say."""
    if len(indexes) != 1 or entry.package.index:
        return entry
    return replace(entry, package=replace(entry.package, index=indexes[0]))
