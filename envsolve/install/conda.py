"""An environment of conda packages, made by rattler beside the prefix and named for it from the start."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import msgspec

from envsolve.errors import ImpossibleError, IndexUnavailableError, UsageError
from envsolve.install import conda_fill, managers, record, relocate, staging
from envsolve.install.errors import Progress, Step, explained
from envsolve.install.files import File, Wanted, total_size
from envsolve.install.staging import Staging
from envsolve.planning.lock import EXPLICIT_NOTE, Assumptions, assumptions_of
from envsolve.planning.plan import Plan
from envsolve.solve.outcome import PlannedPackage
from envsolve.system.files import read_regular
from envsolve.system.limits import count_of
from envsolve.system.streaming import stream
from envsolve.values import PythonVersion

# Reading an explicit lock (CEP 23): conda packages by URL and hash, by envsolve or by another tool.


SUFFIXES = (".lock", ".txt")
_MARK = "@EXPLICIT"
# Sources: CEP 23 for the line, CEP 26 for the names of channels, subdirs and files.
_LINE = re.compile(
    r"(?P<url>[a-z]+://\S+/(?P<subdir>[a-z]+-[a-z0-9_]+|noarch)/"
    r"(?P<file>(?P<name>[^/\s#]+)-(?P<version>[^-/\s#]+)-(?P<build>[^-/\s#]+)\.(?:conda|tar\.bz2)))"
    r"(?:#(?:(?:sha256:)?(?P<sha256>[0-9a-f]{64})|(?P<md5>[0-9a-f]{32})))?"
)
_SYSTEMS = {"linux-64": ("linux", "x86_64"), "linux-aarch64": ("linux", "aarch64"), "win-64": ("windows", "x86_64")}


@dataclass(frozen=True, slots=True)
class CondaLock:
    """An explicit lock, read.

    Attributes:
        subdir: ``linux-64``.
        assumptions: Of the machine; of a lock that another tool made, no more than its system and its Python.
    """

    files: tuple[File, ...]
    subdir: str
    assumptions: Assumptions

    @property
    def python(self) -> str | None:
        """The Python that is in it, ``3.12``."""
        return self.assumptions.python


def read_conda_lock(path: Path, python: str | None = None, groups: Sequence[str] = ()) -> CondaLock:
    """Read an explicit lock.

    Args:
        path: The file.
        python: The Python that is requested; None for that of the lock.
        groups: Dependency groups, of which such a lock has none.

    Raises:
        ImpossibleError: It is for another Python.
        UsageError: It cannot be read, is not such a lock, or names a package without a hash.
    """
    lines = _lines(path)
    if _MARK not in lines:
        hint = (
            f"an explicit lock has a line {_MARK}; make one with: envsolve plan REQ... -o conda-linux-64.lock. For a "
            "file of requirements use -r FILE"
        )
        raise UsageError(f"{path} is not an explicit lock of conda packages", hint=hint)
    if groups:
        raise UsageError(f"{path} has no groups: {', '.join(groups)}", hint="leave --group out")
    files: list[File] = []
    subdirs: set[str] = set()
    for number, line in enumerate(lines, start=1):
        if line and line != _MARK and not line.startswith("#"):
            file, subdir = _conda_lock_file(line, f"{path} line {number}")
            files.append(file)
            subdirs |= {subdir} - {"noarch"}
    _check(files, subdirs, path)
    subdir = next(iter(subdirs), _said_platform(lines) or "linux-64")
    lock = CondaLock(tuple(files), subdir, _assumptions(lines, files, subdir, path))
    if python is not None and lock.python not in (None, python):
        hint = "leave --python out, or plan again with that Python"
        raise ImpossibleError(f"{path} is for Python {lock.python}, not {python}", hint=hint)
    return lock


def _lines(path: Path) -> list[str]:
    try:
        text = read_regular(path).decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"{path}: the lock cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: the lock is not a text file") from None
    return [line.strip() for line in text.splitlines()]


def _conda_lock_file(line: str, where: str) -> tuple[File, str]:
    match = _LINE.fullmatch(line)
    if match is None:
        _refuse(line, where)
    hashes = {name: digest for name in ("sha256", "md5") if (digest := match[name])}
    if not hashes:
        hint = "make a lock with hashes: conda list --explicit --sha256, or envsolve plan -o conda-linux-64.lock"
        raise UsageError(f"{where}: {match['file']} has no hash", hint=hint)
    return File(match["name"], match["version"], "conda", match["file"], match["url"], hashes), match["subdir"]


def _refuse(line: str, where: str) -> NoReturn:
    shown = re.sub(r"//[^/@\s]*@", "//", line)[:200]  # never a password
    hint = "write each line as CHANNEL/SUBDIR/NAME-VERSION-BUILD.conda#sha256:DIGEST, or with #MD5"
    raise UsageError(f"{where}: {shown!r} is not the URL of a conda package with a hash", hint=hint)


def _check(files: Sequence[File], subdirs: set[str], path: Path) -> None:
    if not files:
        raise UsageError(f"{path} names no packages", hint="plan again")
    names = [file.name for file in files]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(f"{path} names a package more than once: {', '.join(twice)}", hint="plan again")
    if len(subdirs) > 1 or not subdirs <= _SYSTEMS.keys():
        hint = f"use a lock for one of {', '.join(_SYSTEMS)}"
        raise UsageError(f"{path} has packages for {', '.join(sorted(subdirs))}", hint=hint)


def _said_platform(lines: Sequence[str]) -> str | None:
    found = (re.fullmatch(r"#\s*platform:\s*(\S+)", line) for line in lines)
    return next((match[1] for match in found if match and match[1] in _SYSTEMS), None)


def _assumptions(lines: Sequence[str], files: Sequence[File], subdir: str, path: Path) -> Assumptions:
    """The assumptions that envsolve noted in the lock; otherwise the packages' system and Python."""
    note = next((line for line in lines if line.startswith(EXPLICIT_NOTE)), None)
    if note is not None:
        return _noted(note.removeprefix(EXPLICIT_NOTE), path)
    os, arch = _SYSTEMS[subdir]
    version = next((file.version for file in files if file.name == "python"), None)
    return Assumptions(python=str(PythonVersion.parse(version)) if version else None, os=os, arch=arch)


def _noted(text: str, path: Path) -> Assumptions:
    try:
        table = json.loads(text)
    except (ValueError, RecursionError):
        table = None
    assumptions = Assumptions.from_table(table) if isinstance(table, dict) else None
    if assumptions is None:
        hint = "make the lock again with envsolve plan, or remove the line that envsolve wrote"
        raise UsageError(f"{path}: the line that envsolve wrote into the lock cannot be read", hint=hint)
    return assumptions


MANAGER = "conda"


@dataclass(frozen=True, slots=True)
class CondaWork:
    """Everything needed to install conda packages.

    Attributes:
        aim: Everything that the environment should contain.
        subdir: The packages' subdir, ``linux-64``.
        python: The environment's Python, ``3.12``; None for one without.
    """

    aim: Wanted
    subdir: str
    python: str | None

    def holds(self, environment: Path) -> bool:
        """Whether an environment was made for exactly this plan, and is whole."""
        return record.holds(environment, self.aim, self.python)

    def make(self, stage: Staging, progress: Progress) -> tuple[str, ...]:
        """Make the whole environment in the working directory; returns warnings.

        Raises:
            EnvsolveError: What rattler's words mean.
        """
        title = conda_fill.title()
        count = len(self.aim.files)
        progress(Step("packages", f"installing {count_of(count, 'conda package')} with {title}"))
        carry_out(self._order(stage), stage, progress)
        if self.aim.environment:
            relocate.write(record.site_packages(stage.environment), self.aim.environment)
        record.write(stage.environment, python=self.python or "", manager=title, wanted=self.aim, pip=False)
        return ()

    def _order(self, stage: Staging) -> conda_fill.Order:
        packages = tuple(
            conda_fill.Package(f"{one.name} =={one.version}", one.url, one.hashes, one.size) for one in self.aim.files
        )
        # A URL is CHANNEL/SUBDIR/FILE.
        channels = tuple(dict.fromkeys(one.url.rsplit("/", 2)[0] for one in self.aim.files))
        return conda_fill.Order(packages, channels, self.subdir, str(stage.environment), str(stage.prefix))


def carry_out(order: conda_fill.Order, stage: Staging, progress: Progress) -> None:
    """Have conda packages installed, in a process of its own.

    Raises:
        EnvsolveError: What rattler's words mean.
    """
    path = stage.folder / "order.json"
    path.write_bytes(msgspec.json.encode(order))
    ended = stream(
        [sys.executable, "-m", conda_fill.__name__, str(path)],
        environ={
            "TMPDIR": str(stage.temporary),
            **managers.kept_variables(os.environ),
            staging.MARK: str(stage.folder),
        },
        on_line=lambda line: progress(Step("output", line)),
    )
    if ended.returncode != 0:
        raise explained("rattler", ended.returncode, ended.stderr.splitlines())


def conda_work(origin: Plan | CondaLock) -> CondaWork:
    """Prepare the install of a plan of conda packages or an explicit lock.

    Raises:
        IndexUnavailableError: A channel gives no hash of a package.
        UsageError: pip has to install a part of it.
    """
    if isinstance(origin, CondaLock):
        aim = Wanted(origin.files, dict(origin.assumptions.environment), origin.assumptions, None)
        return CondaWork(aim, origin.subdir, origin.python)
    terms = origin.conda
    assert terms is not None  # the caller has looked
    if terms.pip:
        hint = "write the plan with --format environment-yml, and install it with: conda env create --file"
        raise UsageError(
            f"`envsolve install` does not install pip packages into a conda environment: {', '.join(terms.pip)}",
            hint=hint,
        )
    size = total_size([package.size for package in origin.packages])
    aim = Wanted(tuple(map(_file, origin.packages)), dict(origin.environment), assumptions_of(origin), size)
    return CondaWork(aim, terms.subdir, origin.python)


def _file(package: PlannedPackage) -> File:
    if package.url is None or package.filename is None or not package.hashes:
        hint = "ask the owner of the channel for hashes"
        raise IndexUnavailableError(f"{package.index} publishes no hash of {package.filename}", hint=hint)
    # The one that an explicit lock names, so that an environment of the plan is one of its lock.
    best = "sha256" if "sha256" in package.hashes else "md5"
    hashes = {best: package.hashes[best]}
    return File(package.name, package.version, "conda", package.filename, package.url, hashes, package.size)
