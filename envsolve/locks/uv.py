"""``uv.lock``: a graph, followed from the project's own packages along edges whose markers hold."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from envsolve.errors import UsageError
from envsolve.locks.model import Locked, LockFile, plain
from envsolve.locks.read import LOCK_AGAIN, Table, filename, files_of, lines_of, marker_of, project_text
from envsolve.rules.platform import Environment
from envsolve.system.files import parse_toml

#: The group that uv, Poetry and PDM install unless they are told otherwise.
DEV = "--group dev"
_DEFAULT_GROUPS = re.compile(r"^\s*default-groups\s*=", re.MULTILINE)
# uv writes one key, file or requirement on each line. To parse a lock as TOML takes most of the time of a whole check.
_ITEM = re.compile(
    r'([\w-]+) = (?:"([^"\\\n]*)"|\[\n((?:    (?:"[^"\\\n]*"|\{ [^\n]* \}),\n)+)\]|(\{ [^\n]* \}|\[[^\n]+\]))\n'
    r"|\[package\.([\w.-]+)\]\n|\n"
)
_SOURCE = re.compile(r'\{ (\w+) = "([^"\\]*)" \}')
_STRING = re.compile(r'    "([^"\\]*)",\n')
_FILE = re.compile(r'^(?:    )?\{ (url|path|filename) = "([^"]*)"(?:, hash = "(sha256:[0-9a-f]+)")?', re.MULTILINE)
_EXTRA = re.compile(r"extra (==|!=) '([^']*)'")
_EDGE = re.compile(
    r' *\{ name = "([^"]*)"(?:, version = "([^"\\]*)")?(?:, source = \{ (\w+) = "([^"\\]*)" \})?'
    r'(?:, extra = \["([\w.-]+)"\])?(?:, marker = "([^"\\]*)")? \},'
)


class UvLock(LockFile):
    """``uv.lock``."""

    kind = "uv.lock"

    def __init__(self, path: Path, text: str) -> None:
        table = _table(text, path)
        self._parsed: dict[str, Sequence[Table]] = {}
        self._path, self._lines = path, lines_of(text)
        self.requires_python = plain(table.get("requires-python"))
        self._packages: dict[str, list[Table]] = {}
        for package in table.get("package", ()):
            self._packages.setdefault(package["name"], []).append(package)
        manifest = table.get("manifest", {})
        members = manifest.get("members") or [
            name for name, (package, *_) in self._packages.items() if {"virtual", "editable"} & {*package["source"]}
        ]
        self._roots = [package for name in members for package in self._packages.get(name, ())]
        groups = [f"--group {name}" for root in self._roots for name in root.get("dev-dependencies", ())]
        self._default = _default_groups(path.with_name("pyproject.toml"), groups)
        self._supported: Sequence[str] = table.get("supported-markers", ())
        self._asked = self._edges(manifest.get("requirements", ()))
        self.choices = tuple(
            dict.fromkeys(
                f"--{option} {name}"
                for root in self._roots
                for option, key in (("extra", "optional-dependencies"), ("group", "dev-dependencies"))
                for name in root.get(key, ())
                if f"--{option} {name}" not in self._default
            )
        )
        self._environment: Environment | None = None
        self._decided: dict[str, bool] = {}
        self._known: dict[int, Locked] = {}

    def select(self, environment: Environment, chosen: Sequence[str]) -> list[Locked] | None:
        """See :class:`LockFile`."""
        if environment is not self._environment:
            self._environment, self._decided = environment, {}
        if self._supported and not any(self._holds(marker, _Case(environment)) for marker in self._supported):
            return None
        names = {*self._default, *chosen}
        active = frozenset(
            f"{kind}-{len(root['name'])}-{root['name']}-{name}"
            for root in self._roots
            for kind, name in (choice.removeprefix("--").split(" ", 1) for choice in names)
        )
        case = _Case(environment, active)
        roots = [(root, part) for root in self._roots for part in ("", *sorted(names))]
        roots += [(package, "") for edge in self._asked for package in self._targets(edge, case)]
        done = self._reached(roots, case)
        own = {id(root) for root in self._roots}
        packages = {id(package): package for package in done if id(package) not in own}
        return [self._locked(package) for package in packages.values()]

    def _reached(self, roots: Sequence[tuple[Table, str]], case: _Case) -> Sequence[Table]:
        """The packages that the given ones require, each with its extra or group."""
        waiting = deque(roots)
        done: dict[tuple[int, str], Table] = {}
        while waiting:
            package, part = waiting.popleft()
            if (id(package), part) in done:
                continue
            done[id(package), part] = package
            for edge in self._edges(_listed(package, part)):
                for target in self._targets(edge, case):
                    waiting.extend((target, key) for key in ("", *(f"--extra {one}" for one in edge.get("extra", ()))))
        return tuple(done.values())

    def _edges(self, listed: Sequence[Table] | str) -> Sequence[Table]:
        """Requirements; most of them are kept as text."""
        if not isinstance(listed, str):
            return listed
        if listed not in self._parsed:
            self._parsed[listed] = [self._edge(line) for line in listed.splitlines()]
        return self._parsed[listed]

    def _edge(self, line: str) -> Table:
        if (match := _EDGE.fullmatch(line)) is None:
            return parse_toml(f"edge = [{line}]", self._path, LOCK_AGAIN)["edge"][0]  # type: ignore[no-any-return]
        name, version, kind, place, extra, marker = match.groups()
        edge = {"name": name, "version": version, "source": {kind: place} if kind else None, "marker": marker}
        return {**edge, "extra": (extra,)} if extra else edge

    def _targets(self, edge: Table, case: _Case) -> Iterator[Table]:
        if not self._holds(edge.get("marker"), case):
            return
        found = [
            package
            for package in self._packages.get(edge["name"], ())
            if edge.get("version") in (None, package.get("version")) and edge.get("source") in (None, package["source"])
        ]
        for package in found:
            forks = package.get("resolution-markers", ()) if len(found) > 1 else ()
            if not forks or any(self._holds(marker, case) for marker in forks):
                yield package

    def _holds(self, text: str | None, case: _Case) -> bool:
        if not text:
            return True
        if text not in case.held:
            plain = text
            # uv writes a chosen extra or group as the value of `extra`, and several can be chosen at once.
            if "extra" in text:
                plain = _EXTRA.sub(lambda m: _truth((m[2] in case.active) is (m[1] == "==")), text)
            if plain not in self._decided:
                self._decided[plain] = case.environment.wants(marker_of(plain, self._path))
            case.held[text] = self._decided[plain]
        return case.held[text]

    def _locked(self, package: Table) -> Locked:
        if id(package) not in self._known:
            self._known[id(package)] = self._read(package)
        return self._known[id(package)]

    def _read(self, package: Table) -> Locked:
        source = package["source"]
        sdist = package.get("sdist", ())
        files = [*_files(package.get("wheels", ())), *_files([sdist] if isinstance(sdist, dict) else sdist)]
        wheels, digests, other = files_of(files, "filename", "url", "path")
        place = source.get("url") or source.get("path")
        if place and not wheels and str(place).endswith(".whl"):
            wheels, other = (filename(place),), False
        version = package.get("version")
        return Locked(
            package["name"],
            version,
            self._lines.get((package["name"], version or ""), 1),
            wheels,
            digests,
            other or not ({"registry", "url", "path"} & {*source}),
            source.get("registry") or place,
        )


class _Case(msgspec.Struct):
    """A system, and the extras and groups that are installed on it.

    Attributes:
        active: Those, as the markers of a lock name them.
        held: Which markers hold, as far as it was asked.
    """

    environment: Environment
    active: frozenset[str] = frozenset()
    held: dict[str, bool] = {}


def _table(text: str, path: Path) -> Table:
    """A lock as TOML would read it, except that lists of files and requirements of packages are left as text."""
    head, *blocks = f"\n{text}".split("\n[[package]]\n")
    try:
        table = parse_toml(head, path, LOCK_AGAIN)
        return {**table, "package": [_package(f"{block}\n", path) for block in blocks]}
    except UsageError:
        return parse_toml(text, path, LOCK_AGAIN)  # its message has the right line


def _package(block: str, path: Path) -> Table:
    package: dict[str, Any] = {}
    target, end = package, 0
    # Not finditer: behind what does not fit it would search on, and take the square of a long line.
    while match := _ITEM.match(block, end):
        end = match.end()
        key, string, lines, table, header = match.groups()
        if header:
            target = package
            for part in header.split("."):
                target = target.setdefault(part, {})
        elif string is not None:
            target[key] = string
        elif table and key == "source" and (source := _SOURCE.fullmatch(table)):
            target[key] = {source[1]: source[2]}
        elif lines and lines.startswith('    "'):
            target[key] = _STRING.findall(lines)
        elif key:
            text = lines or (table if key == "sdist" else None)
            target[key] = text or parse_toml(f"{key} = {table}", path)[key]
    if end == len(block) and isinstance(package.get("source"), dict):
        return package
    return parse_toml(f"[[package]]\n{block}", path)["package"][0]  # type: ignore[no-any-return]


def _files(listed: Sequence[Table] | str) -> Sequence[Table]:
    if not isinstance(listed, str):
        return listed
    return [{key: place, "hash": digest} for key, place, digest in _FILE.findall(listed)]


def _listed(package: Table, part: str) -> Sequence[Table] | str:
    if not part:
        return package.get("dependencies", ())  # type: ignore[no-any-return]
    option, name = part.split(" ", 1)
    key = "optional-dependencies" if option == "--extra" else "dev-dependencies"
    return package.get(key, {}).get(name, ())  # type: ignore[no-any-return]


def _default_groups(project: Path, groups: Sequence[str]) -> Sequence[str]:
    """The groups that ``uv sync`` installs: the lock does not have ``default-groups`` of ``[tool.uv]``."""
    text = project_text(project)
    if not _DEFAULT_GROUPS.search(text):
        return (DEV,)
    chosen = parse_toml(text, project).get("tool", {}).get("uv", {}).get("default-groups", ["dev"])
    return groups if chosen == "all" else [f"--group {name}" for name in chosen]


def _truth(holds: bool) -> str:
    return "python_version >= '0'" if holds else "python_version < '0'"
