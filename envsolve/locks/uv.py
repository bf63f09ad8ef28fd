"""``uv.lock``: a graph, followed from the project's own packages along edges whose markers hold."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

from packaging.markers import Marker

from envsolve.locks.model import Locked, LockFile
from envsolve.locks.read import LOCK_AGAIN, Table, filename, files_of, lines_of, marker_of, sdist_of
from envsolve.rules.platform import Environment
from envsolve.system.files import parse_toml

#: The group that uv, Poetry and PDM install unless they are told otherwise.
DEV = "--group dev"
# uv writes one file on each line. To parse these lists as TOML takes half the time of a whole check.
_WHEELS = re.compile(r'^wheels = \[\n((?:    \{ (?:url|path|filename) = "[^"\\\n]*"[^\n]*\},\n)+)\]$', re.MULTILINE)
_WHEEL = re.compile(r'^    \{ (url|path|filename) = "([^"]*)"(?:, hash = "(sha256:[0-9a-f]+)")?', re.MULTILINE)


class UvLock(LockFile):
    """``uv.lock``."""

    kind = "uv.lock"

    def __init__(self, path: Path, text: str) -> None:
        blocks: list[str] = []

        def kept(match: re.Match[str]) -> str:
            blocks.append(match[1])
            return f"wheels = {len(blocks) - 1}"

        table = parse_toml(_WHEELS.sub(kept, text), path, LOCK_AGAIN)
        self._blocks = blocks
        self._path, self._lines = path, lines_of(text)
        self.requires_python = table.get("requires-python")
        self._packages: dict[str, list[Table]] = {}
        for package in table.get("package", ()):
            self._packages.setdefault(package["name"], []).append(package)
        manifest = table.get("manifest", {})
        members = manifest.get("members") or [
            name for name, (package, *_) in self._packages.items() if {"virtual", "editable"} & {*package["source"]}
        ]
        self._roots = [package for name in members for package in self._packages.get(name, ())]
        self._supported: Sequence[str] = table.get("supported-markers", ())
        self._asked: Sequence[Table] = manifest.get("requirements", ())
        self.choices = tuple(
            dict.fromkeys(
                f"--{option} {name}"
                for root in self._roots
                for option, key in (("extra", "optional-dependencies"), ("group", "dev-dependencies"))
                for name in root.get(key, ())
                if f"--{option} {name}" != DEV
            )
        )
        self._markers: dict[str, Marker | None] = {}

    def select(self, environment: Environment, chosen: Sequence[str]) -> list[Locked] | None:
        """See :class:`LockFile`."""
        if self._supported and not any(self._holds(marker, environment, set()) for marker in self._supported):
            return None
        names = {DEV, *chosen}
        active = {
            f"{kind}-{len(root['name'])}-{root['name']}-{name}"
            for root in self._roots
            for kind, name in (choice.removeprefix("--").split(" ", 1) for choice in names)
        }
        roots = [(root, part) for root in self._roots for part in ("", *sorted(names))]
        roots += [(package, "") for edge in self._asked for package in self._targets(edge, environment, active)]
        done = self._reached(roots, environment, active)
        own = {id(root) for root in self._roots}
        packages = {id(package): package for package in done if id(package) not in own}
        return [self._locked(package) for package in packages.values()]

    def _reached(
        self, roots: Sequence[tuple[Table, str]], environment: Environment, active: set[str]
    ) -> Sequence[Table]:
        """The packages that packages lead to, each given with the extra or group of it that is meant."""
        waiting = deque(roots)
        done: dict[tuple[int, str], Table] = {}
        while waiting:
            package, part = waiting.popleft()
            if (id(package), part) in done:
                continue
            done[id(package), part] = package
            for edge in _edges(package, part):
                for target in self._targets(edge, environment, active):
                    waiting.extend((target, key) for key in ("", *(f"--extra {one}" for one in edge.get("extra", ()))))
        return tuple(done.values())

    def _targets(self, edge: Table, environment: Environment, active: set[str]) -> Iterator[Table]:
        if not self._holds(edge.get("marker"), environment, active):
            return
        found = [
            package
            for package in self._packages.get(edge["name"], ())
            if edge.get("version") in (None, package.get("version")) and edge.get("source") in (None, package["source"])
        ]
        for package in found:
            forks = package.get("resolution-markers", ()) if len(found) > 1 else ()
            if not forks or any(self._holds(marker, environment, active) for marker in forks):
                yield package

    def _holds(self, text: str | None, environment: Environment, active: set[str]) -> bool:
        if not text:
            return True
        # uv writes a chosen extra or group as the value of `extra`, and several can be chosen at once.
        if "extra" in text:
            text = re.sub(r"extra (==|!=) '([^']*)'", lambda m: _truth((m[2] in active) is (m[1] == "==")), text)
        if text not in self._markers:
            self._markers[text] = marker_of(text, self._path)
        return environment.wants(self._markers[text])

    def _wheels(self, package: Table) -> Sequence[Table]:
        wheels = package.get("wheels", ())
        if isinstance(wheels, int):
            return [{key: place, "hash": digest} for key, place, digest in _WHEEL.findall(self._blocks[wheels])]
        return wheels  # type: ignore[no-any-return]

    def _locked(self, package: Table) -> Locked:
        source = package["source"]
        wheels, digests, other = files_of([*self._wheels(package), *sdist_of(package)], "filename", "url", "path")
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


def _edges(package: Table, part: str) -> Sequence[Table]:
    if not part:
        return package.get("dependencies", ())  # type: ignore[no-any-return]
    option, name = part.split(" ", 1)
    key = "optional-dependencies" if option == "--extra" else "dev-dependencies"
    return package.get(key, {}).get(name, ())  # type: ignore[no-any-return]


def _truth(holds: bool) -> str:
    return "python_version >= '0'" if holds else "python_version < '0'"
