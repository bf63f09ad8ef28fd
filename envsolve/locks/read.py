"""Locks of pip's world, read: ``uv.lock``, ``poetry.lock``, ``pdm.lock``, ``pylock.toml``, hashed requirements."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec
from packaging.markers import InvalidMarker, Marker
from packaging.utils import canonicalize_name

from envsolve.locks.model import Locked, LockFile, plain
from envsolve.packages.requirements import wrong
from envsolve.rules.platform import Environment
from envsolve.system.files import is_file, parse_toml, read_regular

Table = Mapping[str, Any]
LOCK_AGAIN = "make the lock again with the tool that wrote it"
_NAMED = re.compile(r'^(?:[ \t]*)(?:name[ \t]*=[ \t]*"([^"]*)"|version[ \t]*=[ \t]*"([^"]*)")', re.MULTILINE)


def read_text(path: Path) -> str:
    """The text of a lock.

    Raises:
        UsageError: It cannot be read.
    """
    try:
        data = read_regular(path)
        # Byte order marks and "coding:" comments are rare, and what reads requirement files takes 50 ms to import.
        if data[:1] in (b"\xef", b"\xff", b"\xfe", b"\x00", b"#") or not data.isascii():
            from envsolve.packages.requirement_text import decode

            return decode(data, str(path))
        return data.decode("ascii")
    except OSError as error:
        raise wrong(str(path), f"the lock cannot be read: {error.strerror or error}", "give a lock file") from None


def project_text(path: Path) -> str:
    """The text of a ``pyproject.toml`` beside a lock; empty if there is none. TOML is always UTF-8."""
    return read_regular(path).decode("utf-8-sig", "replace") if is_file(path) else ""


def lines_of(text: str) -> dict[tuple[str, str], int]:
    """The line of each package of a TOML lock, by the name and version written there."""
    found: dict[tuple[str, str], int] = {}
    name, line, last = "", 1, 0
    for match in _NAMED.finditer(text):
        if match[1] is not None:
            line, last = line + text.count("\n", last, match.start()), match.start()
            name = match[1]
        elif name:
            found.setdefault((name, match[2]), line)
            name = ""
    return found


def sdist_of(package: Table) -> list[Table]:
    """The source distribution of a package, if the lock has one."""
    return [package["sdist"]] if package.get("sdist") else []


def marker_of(text: str | None, path: Path) -> Marker | None:
    """Parse a marker.

    Raises:
        UsageError: The value is invalid.
    """
    try:
        return Marker(text) if text else None
    except InvalidMarker as error:
        raise wrong(str(path), f"{text!r} is not a marker: {str(error).splitlines()[0]}") from None


def filename(place: str) -> str:
    """The file name in a URL or path."""
    name = place.partition("#")[0].partition("?")[0].rpartition("/")[2]
    return unquote(name) if "%" in name else name


def files_of(entries: Sequence[Table], *keys: str) -> tuple[tuple[str, ...], frozenset[str], bool]:
    """Wheels, digests, and whether there is a file that is not a wheel."""
    names = [filename(next((entry[key] for key in keys if entry.get(key)), "")) for entry in entries]
    digests = {
        str(entry.get("hash") or entry.get("hashes", {}).get("sha256", "")).rpartition(":")[2] for entry in entries
    }
    wheels = tuple(name for name in names if name.endswith(".whl"))
    return wheels, frozenset(digests - {""}), len(wheels) < len(names)


# These list packages, each with the marker and the groups under which it is installed.


class Entry(msgspec.Struct, frozen=True):
    """A package of a flat lock.

    Attributes:
        marker: Under which it is installed.
        choices: It is installed with any of these; always if empty.
    """

    package: Locked
    marker: Marker | None = None
    choices: frozenset[str] = frozenset()


class FlatLock(LockFile):
    """A lock that lists packages."""

    def __init__(self, kind: str, entries: Sequence[Entry], requires_python: str | None) -> None:
        self.kind = kind
        self.requires_python = plain(requires_python)
        self.entries = entries
        self.choices = tuple(sorted({choice for entry in entries for choice in entry.choices}))

    def select(self, environment: Environment, chosen: Sequence[str]) -> list[Locked] | None:
        """See :class:`LockFile`."""
        extras = {choice.removeprefix("--extra ") for choice in chosen if choice.startswith("--extra ")}
        groups = {choice.removeprefix("--group ") for choice in chosen if choice.startswith("--group ")}
        # A marker of Poetry's compares one extra, one of pylock.toml looks it up among all.
        known: list[dict[str, Any]] = [
            {**environment.markers, "extra": extra, "extras": extras, "dependency_groups": groups}
            for extra in sorted(extras) or [""]
        ]
        return [
            entry.package
            for entry in self.entries
            if (not entry.choices or not entry.choices.isdisjoint(chosen))
            and (entry.marker is None or any(entry.marker.evaluate(one, context="lock_file") for one in known))
        ]


def _poetry(path: Path, text: str) -> LockFile:
    table, lines = parse_toml(text, path, LOCK_AGAIN), lines_of(text)
    extras: dict[str, set[str]] = {}
    for extra, names in table.get("extras", {}).items():
        for name in names:
            extras.setdefault(canonicalize_name(name.split(" ")[0]), set()).add(f"--extra {extra}")
    entries = []
    named = [package["name"] for package in table.get("package", ())]
    of_sources = _markers_of_sources(path) if len(named) > len({*named}) else {}
    for package in table.get("package", ()):
        name, source = canonicalize_name(package["name"]), package.get("source", {})
        wheels, digests, other = files_of(package.get("files", ()), "file")
        groups = {*package.get("groups", ("main",))}
        # Poetry installs the groups main and dev by default, and of main what is optional with an extra.
        by_group = set() if groups & {"main", "dev"} else {f"--group {group}" for group in groups}
        by_extra = extras.get(name, set()) if package.get("optional") and "main" in groups else set()
        markers = package.get("markers")
        marker = markers.get("main") if isinstance(markers, Mapping) else markers
        if in_project := of_sources.get((name, source.get("reference"))):
            marker = f"({marker}) and ({in_project})" if marker else in_project
            by_extra = extras.get(name, set())
        direct = source.get("type") in ("git", "directory", "file", "url")
        line = lines.get((package["name"], package["version"]), 1)
        locked = Locked(name, package["version"], line, wheels, digests, other or direct, source.get("url"))
        entries.append(Entry(locked, marker_of(marker, path), frozenset(by_group | by_extra)))
    lock = FlatLock("poetry.lock", entries, _python_of(table))
    # A package that is in an extra and not optional has the extra in its marker.
    in_markers = {
        name for name in table.get("extras", {}) for entry in entries if f'extra == "{name}"' in str(entry.marker)
    }
    lock.choices = tuple(sorted({*lock.choices, *(f"--extra {name}" for name in in_markers)}))
    return lock


def _python_of(poetry: Table) -> str | None:
    python = poetry.get("metadata", {}).get("python-versions")
    # `^3.10` is Poetry's own; what it means for a lock is its lower bound.
    python = re.sub(r"\^\s*(\d+)\.(\d+)[\d.]*", r">=\1.\2", python) if python and "|" not in python else None
    return None if python == "*" else python


def _markers_of_sources(path: Path) -> Mapping[tuple[str, str], str]:
    """The markers of the project beside a lock, by package and source, as far as they name an extra.

    Poetry writes one entry for each source into the lock, without the extra that decides between them.
    """
    project = path.with_name("pyproject.toml")
    tables = parse_toml(project_text(project), project).get("tool", {}).get("poetry", {}).get("dependencies", {})
    found: dict[tuple[str, str], str] = {}
    for name, entries in tables.items():
        for entry in entries if isinstance(entries, list) else [entries]:
            if isinstance(entry, Mapping) and "extra" in entry.get("markers", "") and "source" in entry:
                key = canonicalize_name(name), entry["source"]
                found[key] = f"({found[key]}) or ({entry['markers']})" if key in found else entry["markers"]
    return found


def _pdm(path: Path, text: str) -> LockFile:
    table, lines = parse_toml(text, path, LOCK_AGAIN), lines_of(text)
    entries = []
    for package in table.get("package", ()):
        if package.get("extras"):
            continue  # the same package once more, for the extras of it that are asked for
        files = package.get("files", ())
        wheels, digests, other = files_of(files, "url", "file")
        groups = {*package.get("groups", ("default",))}
        choices = (
            frozenset(f"--group {group}" for group in groups) if not groups & {"default", "dev"} else frozenset[str]()
        )
        direct = bool({"git", "path", "url"} & {*package})
        place = package.get("url") or next((entry["url"] for entry in files if "url" in entry), None)
        locked = Locked(
            canonicalize_name(package["name"]),
            package.get("version"),
            lines.get((package["name"], package.get("version", "")), 1),
            wheels,
            digests,
            other or direct,
            place,
        )
        entries.append(Entry(locked, marker_of(package.get("marker"), path), choices))
    targets = table.get("metadata", {}).get("targets", ())
    pythons = {target.get("requires_python") for target in targets}
    return FlatLock("pdm.lock", entries, pythons.pop() if len(pythons) == 1 else None)


def _pylock(path: Path, text: str) -> LockFile:
    table, lines = parse_toml(text, path, LOCK_AGAIN), lines_of(text)
    entries = []
    for package in table.get("packages", ()):
        files = [
            *package.get("wheels", ()),
            *sdist_of(package),
            *([package["archive"]] if "archive" in package else []),
        ]
        wheels, digests, other = files_of(files, "name", "url", "path")
        version = package.get("version")
        locked = Locked(
            canonicalize_name(package["name"]),
            version,
            lines.get((package["name"], version or ""), 1),
            wheels,
            digests,
            other or bool({"vcs", "directory"} & {*package}),
            package.get("index") or next((entry["url"] for entry in files if "url" in entry), None),
        )
        entries.append(Entry(locked, marker_of(package.get("marker"), path)))
    lock = FlatLock("pylock.toml", entries, table.get("requires-python"))
    declared = (("extra", table.get("extras", ())), ("group", table.get("dependency-groups", ())))
    lock.choices = tuple(f"--{kind} {name}" for kind, names in declared for name in names)
    own = table.get("tool", {}).get("envsolve")
    if own is None:
        return lock
    # Only for envsolve's own locks: to import it takes as long as to check a lock of 200 packages.
    from envsolve.planning.lock import Assumptions, classes_from_table

    classes = classes_from_table(own)
    single = None if classes else Assumptions.from_table(own)
    lock.assumptions = classes or ({"": single} if single else {})
    pythons = {one.python for one in lock.assumptions.values()}
    lock.python = pythons.pop() if len(pythons) == 1 else None
    return lock


_TOML: Mapping[str, Callable[[Path, str], LockFile]] = {
    "poetry.lock": _poetry,
    "pdm.lock": _pdm,
    "pylock.toml": _pylock,
}


def kind_of(path: Path, text: str) -> str | None:
    """The kind of a lock, by its name or else by what only that kind contains."""
    name = path.name
    if name in ("uv.lock", *_TOML, "pixi.lock") or name.endswith("conda-lock.yml"):
        return "conda-lock.yml" if name.endswith("conda-lock.yml") else name
    if re.fullmatch(r"pylock\.[^.]+\.toml", name) or '\nlock-version = "1.0"' in f"\n{text[:2000]}":
        return "pylock.toml"
    if name.endswith((".txt", ".in")):
        return "requirements"
    marks = {"@generated by Poetry": "poetry.lock", "@generated by PDM": "pdm.lock", "\nresolution-markers": "uv.lock"}
    return next((kind for mark, kind in marks.items() if mark in text[:4000]), None)


@contextmanager
def as_its_tool_writes_it(path: Path, kind: str | None) -> Iterator[None]:
    """Report every error in the block as a malformed lock; parts of a lock are read only when they are selected.

    Raises:
        UsageError: There was one.
    """
    try:
        yield
    except (LookupError, TypeError, AttributeError, ValueError, RecursionError) as error:
        what = f"the file is not a valid {kind} ({type(error).__name__}: {error})"
        raise wrong(str(path), what, "make the lock again with the tool that wrote it") from None


def read_lock_file(path: Path) -> LockFile:
    """Read a lock.

    Raises:
        UsageError: It cannot be read, or is not a lock of a known kind.
    """
    # Each of these builds on what is above.
    from envsolve.locks.uv import UvLock

    text = read_text(path)
    kind = kind_of(path, text)
    with as_its_tool_writes_it(path, kind):
        if kind == "uv.lock":
            return UvLock(path, text)
        if kind in _TOML:
            return _TOML[kind or ""](path, text)
        from envsolve.locks.conda import read_conda_lock_file, read_hashed

        if kind == "requirements":
            return read_hashed(path, text)
        if kind is not None:
            return read_conda_lock_file(path, kind, text)
    hint = (
        "supported: uv.lock, poetry.lock, pdm.lock, pixi.lock, conda-lock.yml, pylock.toml and requirements with hashes"
    )
    raise wrong(str(path), "the file is not a known kind of lock", hint)
