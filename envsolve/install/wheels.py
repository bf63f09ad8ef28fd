"""An environment of wheels and source distributions: a virtual environment, filled by pip or uv."""

from __future__ import annotations

import os
import resource
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import Distribution
from pathlib import Path
from types import MappingProxyType

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from envsolve.errors import EnvsolveError, ImpossibleError, IndexUnavailableError
from envsolve.install import interpreters, managers, record, relocate
from envsolve.install.errors import DamagedFilesError, InstallError, Progress, Step, explained
from envsolve.install.fetch import check_sizes
from envsolve.install.files import File, Lock, Wanted, wanted
from envsolve.install.interpreters import Target
from envsolve.install.managers import Manager
from envsolve.install.sources import Sources, copies, in_words, logged, unmet
from envsolve.install.staging import Staging
from envsolve.machine.model import Machine
from envsolve.planning.plan import Plan
from envsolve.system.limits import count_of
from envsolve.system.progress import format_size
from envsolve.system.streaming import stream

_LEAST_ROOM = 1_000_000
"""Free bytes that any download needs; used if the size of the files is not known."""


@dataclass(frozen=True, slots=True)
class WheelWork:
    """Everything needed to install a plan of wheels, or a pylock.toml.

    Attributes:
        aim: Everything that the environment should contain.
        target: The interpreter that it is made from.
        manager: ``uv`` or ``pip``; None takes the preferred one that is present.
        machine: This machine, for what is compiled on it.
    """

    aim: Wanted
    target: Target
    manager: str | None
    machine: Machine | None = None

    @classmethod
    def of(cls, origin: Plan | Lock, python: str | None, machine: Machine | None, manager: str | None) -> WheelWork:
        """Find the interpreter, and the files for it.

        Raises:
            ImpossibleError: The plan is impossible, or the lock has no files for any interpreter here.
            UsageError: No Python of the right version is found.
        """
        target, aim = _aim(origin, python, machine)
        return cls(aim, target, manager, machine)

    def holds(self, environment: Path) -> bool:
        """Whether an environment was made for exactly this, and is whole."""
        return record.holds(environment, self.aim, self.target.version)

    def make(self, stage: Staging, progress: Progress) -> tuple[str, ...]:
        """Make the whole environment in the working directory; returns warnings.

        Raises:
            EnvsolveError: What the manager's words mean.
        """
        sources = Sources.of(self.aim, self.machine)
        return _make(stage, self.aim, sources, self.target, self.manager, progress)


def _aim(origin: Plan | Lock, python: str | None, machine: Machine | None) -> tuple[Target, Wanted]:
    """The interpreter that the environment is made from, and the files for it."""
    # A plan has chosen its Python; only a lock of another tool leaves the choice to us.
    requires = origin.pylock.requires_python if isinstance(origin, Lock) else None
    known = [found.path for found in (machine.pythons or ())] if machine else []
    stated = python or origin.python
    if stated is not None:
        # Without `requires`: where the two contradict each other, the lock's own words say it.
        target = interpreters.find(stated, None, known)
        return target, wanted(origin, target)
    return _first_served(origin, requires, known)


def _first_served(origin: Plan | Lock, requires: SpecifierSet | None, known: Sequence[str]) -> tuple[Target, Wanted]:
    """The first interpreter that a lock has files for: the running one, then the newest."""
    # The running one first: a person who starts envsolve with python3.12 means that one.
    running = interpreters.find(None, requires, [sys.executable])
    try:
        return running, wanted(origin, running)
    except ImpossibleError as error:
        refused = error
    others = {target.version: target for target in interpreters.fitting(None, requires, known)}
    for version in sorted(others, key=Version, reverse=True):
        try:
            return others[version], wanted(origin, others[version])
        except ImpossibleError:
            continue
    tried = ", ".join(sorted(others, key=Version, reverse=True))
    raise ImpossibleError(f"{refused.message} (tried: Python {tried})", hint=refused.hint)


def _make(
    stage: Staging, aim: Wanted, sources: Sources | None, target: Target, manager: str | None, progress: Progress
) -> tuple[str, ...]:
    """Make the whole environment in the working directory; returns warnings."""
    environment = stage.environment
    progress(Step("prepare", f"creating an environment with Python {target.version}"))
    interpreters.make_environment(target, environment, stage.prefix)
    made = {**interpreters.made_of(environment), environment / record.FOLDER: None}
    # pip comes from the interpreter's own bundled wheel, which no index is needed for.
    pip = managers.bundled_pip(target)
    chosen, program = managers.choose(manager, environment / "bin" / "python", target, pip)
    title = chosen.title(program)
    planned = {file.name for file in aim.files}
    extra = [pip] if pip is not None and "pip" not in planned else []

    # Before the first download: a wrong size means a replaced file, and torch has 3 GB with its libraries.
    check_sizes(aim.files)
    rest = sources.others(aim) if sources else aim
    ready = replace(rest, files=_held_to_all_hashes([one for one in rest.files if one.kind != "tree"], stage))
    what = f"installing {count_of(len(ready.files))}{_size(aim.size)} with {title}"
    progress(Step("packages", what, aim.size))
    _fill(stage, chosen, program, title, ready, extra, made, progress)
    # Apart from the files with hashes: no hash can be demanded of a directory or a repository.
    trees = [file for file in rest.files if file.kind == "tree"]
    if trees:
        progress(Step("packages", f"building {', '.join(file.name for file in trees)}"))
        _build(stage, chosen, program, title, trees, progress)
    if sources is not None:
        sources.complete(stage, progress)
        if sources.files:
            told = sources.told(stage, managers.child_environment(chosen, stage.folder, stage.temporary))
            progress(Step("packages", in_words(sources, told)))
            compiled = _held_to_all_hashes(sources.files, stage)
            _build(stage, chosen, program, title, compiled, progress, chosen.unisolated, told)
    _refuse_replaced(made, environment)
    # A tree states its requirements only when it is built, so the plan may have missed one; a warning names it.
    absent = unmet(environment, _names(aim, "tree"), target)
    cited = [file.name for file in aim.files if "git" in file.hashes]
    # Scripts and records contain the path of the working directory, under which everything was installed.
    relocate.relocate(environment, stage.prefix, _names(aim, "sdist", "tree"), cited)
    relocate.write(record.site_packages(environment), {**(sources.variables() if sources else {}), **aim.environment})
    record.write(environment, python=target.version, manager=title, wanted=aim, pip=bool(extra))
    if pip is None and "pip" not in planned:
        return (*absent, f"{target.executable} has no pip, so the new environment has no pip")
    return absent


def _refuse_replaced(made: Mapping[Path, os.stat_result | None], environment: Path) -> None:
    """Refuse an environment if a package replaced its interpreter, scripts or settings.

    Raises:
        InstallError: It did; the message names the file, and the package if its RECORD lists the file.
    """
    for path in interpreters.replaced(made):
        owner = next((dist.name for dist in record.installed(environment) if _brings(dist, path)), "a package")
        raise InstallError(
            f"{owner} would overwrite {path.relative_to(environment)}, a file of the environment itself",
            hint="leave the package out, and report the fault to its project",
        )


def _brings(dist: Distribution, path: Path) -> bool:
    """Whether the RECORD of a package lists a file, or one in a directory."""
    info = record.info_of(dist)
    listed = (os.path.normpath(f"{info.parent}/{name}") for name, _, _ in record.rows(info))
    return any(name == str(path) or name.startswith(f"{path}/") for name in listed)


def _held_to_all_hashes(files: Sequence[File], stage: Staging) -> tuple[File, ...]:
    """The files; those with several hashes as verified local copies, since pip and uv check only one of the hashes.

    Raises:
        IndexUnavailableError: A file is not the one that was planned, or cannot be had.
    """
    if not any(len(file.hashes) > 1 for file in files):
        return tuple(files)
    from envsolve.packages.client import IndexClient
    from envsolve.packages.model import IndexFile, checked_copy
    from envsolve.packages.settings import read_settings

    folder = stage.folder / "checked"
    made: list[File] = []
    with IndexClient(read_settings(), use_cache=False) as client:
        for file in files:
            if len(file.hashes) > 1:
                place = folder / file.name / file.filename
                place.parent.mkdir(parents=True)
                known = IndexFile(file.filename, client.without_login(file.url), "")
                try:
                    with client.open(known) as source, place.open("wb") as target:
                        checked_copy(source, target, file.hashes, file.filename)
                except ValueError as error:
                    hint = "the index or the lock has changed; plan again"
                    raise IndexUnavailableError(f"a file differs from the planned one: {error}", hint=hint) from None
                file = replace(file, url=place.as_uri())
            made.append(file)
    return tuple(made)


def _names(aim: Wanted, *kinds: str) -> list[str]:
    return [file.name for file in aim.files if file.kind in kinds]


def _fill(
    stage: Staging,
    manager: Manager,
    program: Sequence[str],
    title: str,
    aim: Wanted,
    extra: Sequence[File],
    made: Mapping[Path, os.stat_result | None],
    progress: Progress,
) -> None:
    """Let the manager install everything; if files from its cache are damaged, try again without the cache."""
    requirements = stage.folder / "requirements.txt"
    # In a file: pip and uv accept hashes only there, not on the command line.
    requirements.write_text("".join(f"{file.requirement}\n" for file in (*aim.files, *extra)), encoding="utf-8")
    command = [*program, *manager.arguments(stage.environment / "bin" / "python", requirements), *manager.hashed]
    failure = _attempt(stage, manager, command, title, aim, progress)
    # A damaged copy in the cache would be installed again and again: hashes are checked at the download only.
    if isinstance(failure, DamagedFilesError):
        _refuse_replaced(made, stage.environment)  # pip itself may run in the interpreter
        progress(Step("packages", f"a file in the cache of {manager.name} is damaged; installing without the cache"))
        failure = _attempt(stage, manager, [*command, *manager.uncached], title, aim, progress)
    if failure is not None:
        raise failure


def _build(
    stage: Staging,
    manager: Manager,
    program: Sequence[str],
    title: str,
    files: Sequence[File],
    progress: Progress,
    options: Sequence[str] = (),
    told: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Let the manager build sources, the source trees last, since those have no hashes.

    Args:
        options: Of the manager. A package that is compiled against installed ones is built here and never taken from
            the manager's cache: that knows a built wheel only by its source, so it may be one for other GPUs or another
            torch.
        told: Variables of the build.
    """
    python = stage.environment / "bin" / "python"
    archives = [file for file in files if file.kind != "tree"]
    trees = [file for file in files if file.kind == "tree"]
    with logged(stage, progress) as kept:
        for some, checks in ((archives, manager.hashed), (copies(trees, stage), ())):
            if not some:
                continue
            requirements = stage.folder / "sources.txt"
            requirements.write_text("".join(f"{file.requirement}\n" for file in some), encoding="utf-8")
            command = [*program, *manager.arguments(python, requirements), *checks, *options]
            failure = _attempt(stage, manager, command, title, Wanted(tuple(some)), kept, told)
            if failure is not None:
                raise failure


def _attempt(
    stage: Staging,
    manager: Manager,
    command: Sequence[str],
    title: str,
    aim: Wanted,
    progress: Progress,
    told: Mapping[str, str] = MappingProxyType({}),
) -> EnvsolveError | None:
    """One run of the manager; what went wrong, or None if every package is there whole.

    Args:
        told: Variables in addition to those that the manager has.
    """
    ended = stream(
        command,
        environ={**managers.child_environment(manager, stage.folder, stage.temporary), **told},
        on_line=lambda line: progress(Step("output", line)),
        on_redraw=lambda line: progress(Step("download", line)),
    )
    if ended.returncode != 0:
        failure = explained(manager.name, ended.returncode, ended.stderr.splitlines())
        # A full disk looks like a broken connection to pip and uv: both report only that the download ended early.
        return _no_room(stage, aim) or failure if isinstance(failure, IndexUnavailableError) else failure
    absent = record.missing(stage.environment, aim)
    if not absent:
        return None
    return DamagedFilesError(
        f"{title} reported success, but files of these packages are missing: {', '.join(absent)}",
        hint=f"the downloaded files may be incomplete, or a setting of {manager.name} installs files in another place",
    )


def _no_room(stage: Staging, aim: Wanted) -> InstallError | None:
    """The real cause if a download failed because the disk is full or the shell limits the size of files."""
    needed = aim.size or _LEAST_ROOM
    free = shutil.disk_usage(stage.folder).free
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    if free < needed:
        return InstallError(
            f"the disk is full: the downloads require {needed / 1e6:.0f} MB, and {free / 1e6:.0f} MB are free",
            hint=f"free some space on the disk of {stage.prefix.parent}",
        )
    if limit != resource.RLIM_INFINITY and limit < needed:
        return InstallError(
            f"a download is larger than the limit of this shell on the size of files, {limit / 1e6:.0f} MB",
            hint="raise the limit with: ulimit -f unlimited",
        )
    return None


def _size(size: int | None) -> str:
    """The most that there is to download: files that the manager has cached are not fetched again."""
    if size is None:
        return ""
    return f" ({format_size(size)})"
