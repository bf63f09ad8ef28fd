"""From a plan or a lock to a working environment at a prefix, whole or not at all."""

from __future__ import annotations

import errno
import os
import resource
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from envsolve.errors import EnvsolveError, ImpossibleError, IndexUnavailableError
from envsolve.install import interpreters, managers, record, relocate, staging, variables, venv
from envsolve.install import prefix as prefixes
from envsolve.install.classes import for_machine
from envsolve.install.errors import DamagedFilesError, InstallError, explained
from envsolve.install.files import File, Lock, Wanted, read_lock, wanted
from envsolve.install.interpreters import Target
from envsolve.install.managers import Manager
from envsolve.install.process import run, signals_raised
from envsolve.install.progress import Progress, Step, silent
from envsolve.install.staging import Staging
from envsolve.lock import Assumptions, mismatches, unknowns
from envsolve.machine.model import Machine
from envsolve.plan import Plan
from envsolve.processes import ask

_WAIT_SECONDS = 600.0
_LEAST_ROOM = 1_000_000
"""Bytes without which no download can work, where the size of the files is not known."""


@dataclass(frozen=True, slots=True)
class Installed:
    """An environment that is there and whole.

    Attributes:
        prefix: Its folder.
        python: Its interpreter.
        python_version: ``3.12.1``.
        manager: What filled it, ``uv 0.13.9``.
        packages: ``(name, version)`` of everything that was asked for.
        changed: False where it already was as planned and nothing was done.
        warnings: Plain sentences: assumptions of the lock that could not be judged, and the like.
    """

    prefix: Path
    python: Path
    python_version: str
    manager: str
    packages: tuple[tuple[str, str | None], ...]
    changed: bool
    warnings: tuple[str, ...] = ()


def install(
    source: Plan | Path,
    prefix: Path,
    *,
    manager: str | None = None,
    python: str | None = None,
    groups: Sequence[str] = (),
    machine: Machine | None = None,
    verify: Callable[[Path], bool] | None = None,
    progress: Progress = silent,
    wait: float = _WAIT_SECONDS,
) -> Installed:
    """Make the environment of a plan or of a pylock.toml at ``prefix``.

    The environment is made beside the prefix, verified there, and put in place in one step. Until that step the prefix
    is untouched; a call that fails or is killed leaves it so, and the next call cleans up.

    Args:
        source: A plan, or the path of a pylock.toml.
        prefix: Where the environment is to stand: nothing, an empty folder, or an older environment to replace.
        manager: ``uv`` or ``pip``; None takes uv where it is present, else pip.
        python: ``3.12``, for a lock that serves several; None takes what the plan or the lock was made for, and for a
            lock that does not say, the first that it has files for: the running one, then the newest.
        groups: Dependency groups of a lock; of one that envsolve made for several classes of machines, the class. None
            takes the class that this machine is of, and of other locks the default groups.
        machine: This machine; where given, what ``source`` assumes is held against it.
        verify: Called with the environment's folder before it is put in place; an exception from it fails the install,
            False says that nothing could be proved here.
        progress: Told of every step.
        wait: Seconds to wait for another install into the same prefix.

    Raises:
        ImpossibleError: The plan is impossible, or the lock does not fit this machine or interpreter.
        IndexUnavailableError: A file could not be had, or is not the file that was planned.
        UsageError: The prefix is something else, the lock is malformed, or no Python of the right version is found.
        InstallError: Disk full, or a source distribution that does not build.
        InstallInterruptedError: SIGINT, SIGTERM or SIGHUP came.
    """
    place = prefixes.resolved(prefix)
    origin = source if isinstance(source, Plan) else for_machine(read_lock(source), machine, python, groups)
    with signals_raised(), _disk_errors_explained(place):
        target, aim = _aim(origin, python, machine)
        warnings = (*_notes(origin), *_held_against(aim.assumptions, machine))
        prefixes.make_parent(place)
        with staging.opened(place, wait=wait, progress=progress) as stage:
            prefixes.claim(place)
            changed = not record.holds(place, aim, target)
            if changed:
                prefixes.check_replaceable(place)
                warnings += _make(stage, aim, target, manager, progress)
            if verify is not None:
                environment = stage.environment if changed else place
                if not _proved(environment, verify, machine, progress):
                    warnings += (_unproved(place, aim.assumptions),)
            if not changed:
                progress(Step("done", f"{place} is already as planned"))
                return _installed(place, aim, changed=False, warnings=warnings)
            progress(Step("swap", f"putting the environment at {place}"))
            stage.swap()
        progress(Step("done", f"{_packages(len(aim.files))} installed at {place}"))
        return _installed(place, aim, changed=True, warnings=warnings)


def _proved(environment: Path, verify: Callable[[Path], bool], machine: Machine | None, progress: Progress) -> bool:
    """Verify an environment unless that was done before on the same driver and GPUs; whether anything was proved."""
    here = _circumstances(machine)
    kept = record.read(environment)
    if kept is not None and kept.proof is not None and kept.proof.machine == here:
        return kept.proof.proved
    progress(Step("verify", "verifying the environment"))
    proved = verify(environment)
    record.write_proof(environment, record.Proof(here, proved))
    return proved


def _circumstances(machine: Machine | None) -> str:
    """The driver and the GPUs of a machine in one line."""
    if machine is None:
        return ""
    driver = machine.driver.version if machine.driver else None
    return ", ".join([f"driver {driver}", *sorted(gpu.label for gpu in machine.gpus or ())])


def _unproved(place: Path, assumptions: Assumptions | None) -> str:
    cards = " ".join(f"--gpu {cc}" for cc in (assumptions.gpus if assumptions else ()) or ("CC",))
    command = f"envsolve verify --prefix {shlex.quote(str(place))} --compile-only {cards}"
    return f"no check could prove anything on this machine; without a GPU: {command}"


def _aim(origin: Plan | Lock, python: str | None, machine: Machine | None) -> tuple[Target, Wanted]:
    """The interpreter that the environment is made from, and the files for it."""
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


def _notes(origin: Plan | Lock) -> tuple[str, ...]:
    return origin.notes if isinstance(origin, Lock) else ()


def _held_against(assumptions: Assumptions | None, machine: Machine | None) -> tuple[str, ...]:
    """Refuse a machine that the lock does not fit; what could not be judged comes back as warnings.

    The Python is left out: the interpreter that was found has settled it.
    """
    if assumptions is None or machine is None:
        return ()
    judged = replace(assumptions, python=None)
    failed = mismatches(judged, machine)
    if failed:
        raise ImpossibleError(
            "the lock does not fit this machine: " + "; ".join(failed), hint="plan again for this machine"
        )
    return unknowns(judged, machine)


def _make(stage: Staging, aim: Wanted, target: Target, manager: str | None, progress: Progress) -> tuple[str, ...]:
    """Make the whole environment in the working folder; returns warnings."""
    environment = stage.environment
    progress(Step("prepare", f"making an environment of Python {target.version}"))
    venv.make(target, environment, stage.prefix)
    pip = venv.bundled_pip(target)
    chosen, program = managers.choose(manager, environment / "bin" / "python", target, pip)
    title = _title(program)
    planned = {file.name for file in aim.files}
    extra = [pip] if pip is not None and "pip" not in planned else []

    progress(Step("packages", f"installing {_packages(len(aim.files))}{_size(aim.size)} with {title}"))
    _fill(stage, chosen, program, title, aim, extra, progress)
    relocate.relocate(environment, stage.prefix, (file.name for file in aim.files if file.kind == "sdist"))
    variables.write(record.site_packages(environment), aim.environment)
    record.write(environment, python=target.version, manager=title, wanted=aim, pip=bool(extra))
    if pip is None and "pip" not in planned:
        return (f"{target.executable} carries no pip, so the environment has none",)
    return ()


def _fill(
    stage: Staging,
    manager: Manager,
    program: Sequence[str],
    title: str,
    aim: Wanted,
    extra: Sequence[File],
    progress: Progress,
) -> None:
    """Have the manager install everything; once more without its cache, where what came from there is damaged."""
    requirements = stage.folder / "requirements.txt"
    requirements.write_text("".join(f"{file.requirement}\n" for file in (*aim.files, *extra)), encoding="utf-8")
    command = [*program, *manager.arguments(stage.environment / "bin" / "python", requirements)]
    failure = _attempt(stage, manager, command, title, aim, progress)
    if isinstance(failure, DamagedFilesError):
        progress(Step("packages", f"what came from the cache of {manager.name} is damaged; installing without it"))
        failure = _attempt(stage, manager, [*command, *manager.uncached], title, aim, progress)
    if failure is not None:
        raise failure


def _attempt(
    stage: Staging, manager: Manager, command: Sequence[str], title: str, aim: Wanted, progress: Progress
) -> EnvsolveError | None:
    """One run of the manager; what went wrong, or None where every package is there whole."""
    ended = run(
        command,
        environment=managers.child_environment(manager, stage.folder, stage.temporary),
        on_line=lambda line: progress(Step("output", line)),
    )
    if ended.code != 0:
        failure = explained(manager.name, ended.code, ended.output)
        return _no_room(stage, aim) or failure if isinstance(failure, IndexUnavailableError) else failure
    absent = record.missing(stage.environment, aim)
    if not absent:
        return None
    return DamagedFilesError(
        f"{title} ended well, yet these packages are not there as their files list them: {', '.join(absent)}",
        hint=f"their files may be damaged at their source; a setting of {manager.name} may have sent them elsewhere",
    )


def _no_room(stage: Staging, aim: Wanted) -> InstallError | None:
    """The real cause where a download fell short because the disk, or a limit on the size of files, did not take it."""
    needed = aim.size or _LEAST_ROOM
    free = shutil.disk_usage(stage.folder).free
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    if free < needed:
        return InstallError(
            f"a download fell short, and the disk is full: {free / 1e6:.0f} MB of {needed / 1e6:.0f} MB are free",
            hint=f"make room on the disk of {stage.prefix.parent}",
        )
    if limit != resource.RLIM_INFINITY and limit < needed:
        return InstallError(
            f"a download fell short, and no file may grow beyond {limit / 1e6:.0f} MB here (a limit of the shell)",
            hint="raise the limit with: ulimit -f unlimited",
        )
    return None


def _packages(count: int) -> str:
    return f"{count} package" if count == 1 else f"{count} packages"


def _size(size: int | None) -> str:
    """What there is to download, at most: what the manager has cached is not fetched again."""
    if size is None:
        return ""
    number, unit = (size / 1e9, "GB") if size >= 1e9 else (size / 1e6, "MB")
    return f" ({number:.1f} {unit})"


def _title(program: Sequence[str]) -> str:
    """Name and version, as the program says them: ``uv 0.13.9``."""
    answer = ask([*program, "--version"], os.environ, limit=interpreters.PROBE_SECONDS)
    return " ".join(answer.split()[:2]) if answer else program[0]


def _installed(prefix: Path, aim: Wanted, *, changed: bool, warnings: tuple[str, ...]) -> Installed:
    kept = record.read(prefix)
    assert kept is not None  # written by this install, or just compared with the plan
    packages = tuple((file.name, file.version) for file in aim.files)
    return Installed(prefix, prefix / "bin" / "python", kept.python, kept.manager, packages, changed, warnings)


@contextmanager
def _disk_errors_explained(prefix: Path) -> Iterator[None]:
    """Turn what the operating system refuses (disk full, quota, read-only) into a failure that says what to do."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        what = "the disk is full, or a limit on file sizes was met" if full else "the environment could not be written"
        raise InstallError(
            f"{what}: {error}",
            hint=f"make room on the disk of {prefix.parent}" if full else f"check the rights on {prefix.parent}",
        ) from error
