"""From a plan or a lock to a working environment at a prefix, whole or not at all."""

from __future__ import annotations

import errno
import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from envsolve.errors import ImpossibleError, UsageError
from envsolve.install import record, staging
from envsolve.install.conda import SUFFIXES, CondaLock, read_conda_lock
from envsolve.install.errors import InstallError, Progress, Step, silent
from envsolve.install.files import Lock, Wanted, read_lock
from envsolve.install.lock_classes import for_machine
from envsolve.install.staging import Staging
from envsolve.install.wheels import WheelWork
from envsolve.machine.model import Machine
from envsolve.planning.lock import Assumptions, mismatches, unknowns
from envsolve.planning.plan import Plan
from envsolve.system.files import real_path
from envsolve.system.limits import count_of
from envsolve.system.processes import signals_raised

# What stands at a prefix, and whether an install may put an environment there.


_INTERRUPTED = "unless the install had already finished, nothing was changed; run the same command again"
_NAME_MAX = 255
# The separator of PATH, which venv refuses, and what the activation scripts of Python before 3.12.8 do not quote.
_UNUSABLE = ':"$`\\'


def resolved(prefix: Path) -> Path:
    """The prefix with every directory above it resolved; the last part is kept, so that a link there is seen.

    Raises:
        UsageError: It is the root directory, the current one (also as an empty text) or one above it,
            or no virtual environment can have its name.
    """
    absolute = Path(os.path.abspath(prefix))  # noqa: PTH100  (resolve() would follow a link at the prefix itself)
    path = real_path(absolute.parent) / absolute.name
    if not absolute.name:
        raise UsageError(f"{prefix} cannot hold an environment")
    if any(not character.isprintable() for character in str(path)):
        raise UsageError(f"the path {str(path)!r} has characters that cannot be printed")
    unusable = sorted(set(str(path)) & set(_UNUSABLE))
    if unusable:
        raise UsageError(
            f"the path {path} contains {' and '.join(unusable)}, which the scripts of an environment do not support",
            hint="choose another directory name with --prefix",
        )
    if any(len(os.fsencode(part)) > _NAME_MAX for part in absolute.parts):
        raise UsageError(
            f"a directory name in the path is longer than {_NAME_MAX} bytes", hint="choose a shorter name with --prefix"
        )
    if path in (here := Path.cwd(), *here.parents):
        raise UsageError(
            f"{str(prefix)!r} is the current directory or a parent of it, so an install cannot replace it",
            hint="choose another directory, for example --prefix env",
        )
    return path


def make_parent(prefix: Path) -> None:
    """Make the directory around the prefix.

    Raises:
        UsageError: It cannot be made, or is not a directory.
    """
    try:
        prefix.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError, PermissionError) as error:
        raise UsageError(f"cannot create a directory at {prefix.parent}: {error}") from error


def claim(prefix: Path) -> None:
    """Check that ``prefix`` can take an environment: nothing, an empty directory or an older environment is there.

    Raises:
        UsageError: Anything else is there, or the directory around it cannot be written.
    """
    reason = next((text for stands, text in _REFUSALS if stands(prefix)), None)
    if reason is not None:
        raise UsageError(
            f"{prefix} {reason}", hint="choose a new directory with --prefix, or remove the existing one yourself"
        )
    outer = next((folder for folder in prefix.parents if _is_environment(folder)), None)
    if outer is not None:
        raise UsageError(
            f"{prefix} lies inside the environment {outer}, whose next update would delete it",
            hint="choose a directory outside that environment with --prefix",
        )
    if not os.access(prefix.parent, os.W_OK | os.X_OK):
        raise UsageError(
            f"the directory {prefix.parent} is not writable, and envsolve builds the environment there before it "
            "moves it into place"
        )


def check_replaceable(prefix: Path) -> None:
    """Check that replacing the environment at ``prefix``, if there is one, deletes nothing of its user's.

    Raises:
        UsageError: It holds files that no install put there.
    """
    own = record.unaccounted(prefix) if _entries(prefix) else []
    if own:
        more = f" and {len(own) - 3} more" if len(own) > 3 else ""
        raise UsageError(
            f"{prefix} is an environment that also contains other files ({', '.join(own[:3])}{more}); replacing the "
            "environment would delete them",
            hint="move these files elsewhere, or choose a new directory with --prefix",
        )


def _entries(prefix: Path) -> frozenset[str]:
    return frozenset(path.name for path in prefix.iterdir()) if prefix.is_dir() else frozenset()


def _is_conda(prefix: Path) -> bool:
    return (prefix / "conda-meta").is_dir()


def _is_environment(folder: Path) -> bool:
    """Whether it is a virtual environment, or a conda environment of ours; other conda environments hold homes."""
    return (folder / "pyvenv.cfg").is_file() or (_is_conda(folder) and record.made_here(folder))


_REFUSALS: tuple[tuple[Callable[[Path], bool], str], ...] = (
    (Path.is_symlink, "is a symbolic link"),
    (lambda prefix: prefix.exists() and not prefix.is_dir(), "is a file"),
    (lambda prefix: prefix.is_dir() and not os.access(prefix, os.R_OK | os.W_OK | os.X_OK), "cannot be written"),
    (Path.is_mount, "is a mount point, which cannot be replaced in one step"),
    (
        lambda prefix: _is_conda(prefix) and not record.made_here(prefix),
        "is a conda environment that envsolve did not create (or its record in the environment is damaged)",
    ),
    (
        lambda prefix: bool(_entries(prefix)) and not (prefix / "pyvenv.cfg").is_file() and not _is_conda(prefix),
        "contains other files and is not an environment",
    ),
    (
        lambda prefix: bool(_entries(prefix)) and not record.made_here(prefix),
        "is a virtual environment that envsolve did not create (or its record in the environment is damaged)",
    ),
    (lambda prefix: Path(sys.prefix).resolve() == prefix, "is the environment in which envsolve itself runs"),
)


#: How long to wait for another install into the same prefix; a build from source may take most of it.
WAIT_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Installed:
    """An environment that is there and whole.

    Attributes:
        prefix: Its directory.
        python: Its interpreter.
        python_version: ``3.12.1``.
        manager: What filled it, ``uv 0.13.9``.
        packages: ``(name, version)`` of everything that was requested.
        changed: False if it already was as planned and nothing was done.
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
) -> Installed:
    """Make the environment of a plan or of a lock at ``prefix``.

    The environment is made beside the prefix, verified there, and put in place in one step. Until that step the prefix
    is untouched; a call that fails or is killed leaves it so, and the next call cleans up.

    Args:
        source: A plan, or the path of a pylock.toml or of an explicit lock of conda packages (``.lock``, ``.txt``).
        prefix: Directory of the environment: missing, empty, or an older environment to replace.
        manager: ``uv`` or ``pip``; None takes uv if it is installed, otherwise pip.
        python: ``3.12``, for a lock that serves several; None takes what the plan or the lock was made for, and for a
            lock that does not say, the first that it has files for: the running one, then the newest.
        groups: Dependency groups of a lock; of one that envsolve made for several classes of machines, the class. None
            takes the class that this machine is of, and of other locks the default groups.
        machine: This machine; if given, the assumptions of ``source`` are checked against it.
        verify: Called with the environment's directory before it is put in place; an exception fails the install,
            False says that nothing could be proved here.
        progress: Called with every step.

    Raises:
        ImpossibleError: The plan is impossible, or the lock does not fit this machine or interpreter.
        IndexUnavailableError: A file could not be had, or is not the file that was planned.
        UsageError: The prefix is something else, the lock is malformed, or no Python of the right version is found.
        InstallError: Disk full, or a source distribution that does not build.
        InterruptedBySignalError: SIGINT, SIGTERM or SIGHUP came.
    """
    place = resolved(prefix)
    origin = source if isinstance(source, Plan) else _read(source, machine, python, groups)
    with signals_raised(signal.SIGINT, hint=_INTERRUPTED), _disk_errors_explained(place):
        work = _work(origin, python, machine, manager)
        aim = work.aim
        warnings = (*_notes(origin), *_held_against(aim.assumptions, machine))
        make_parent(place)
        with staging.opened(place, wait=WAIT_SECONDS, progress=progress) as stage:
            claim(place)
            changed = not work.holds(place)
            if changed:
                check_replaceable(place)
                warnings += work.make(stage, progress)
            if verify is not None:
                environment = stage.environment if changed else place
                if not _proved(environment, verify, machine, progress):
                    warnings += (_unproved(place, aim.assumptions),)
            if not changed:
                progress(Step("done", f"{place} already matches the plan"))
                return _installed(place, aim, changed=False, warnings=warnings)
            progress(Step("swap", f"moving the environment to {place}"))
            stage.swap()
        progress(Step("done", f"{count_of(len(aim.files))} installed at {place}"))
        return _installed(place, aim, changed=True, warnings=warnings)


class Work(Protocol):
    """Everything needed to install wheels or conda packages."""

    @property
    def aim(self) -> Wanted:
        """Everything that the environment should contain."""

    def holds(self, environment: Path) -> bool:
        """Whether an environment was made for exactly this, and is whole."""

    def make(self, stage: Staging, progress: Progress) -> tuple[str, ...]:
        """Make the whole environment in the working directory; returns warnings."""


def _read(path: Path, machine: Machine | None, python: str | None, groups: Sequence[str]) -> Lock | CondaLock:
    """A lock of either kind: of wheels the part that is for the machine."""
    if path.suffix in SUFFIXES:
        return read_conda_lock(path, python, groups)
    return for_machine(read_lock(path), machine, python, groups)


def _work(origin: Plan | Lock | CondaLock, python: str | None, machine: Machine | None, manager: str | None) -> Work:
    """Prepare the install of a plan or a lock.

    Raises:
        UsageError: The manager does not install what is planned.
    """
    if isinstance(origin, Lock) or (isinstance(origin, Plan) and origin.conda is None):
        return WheelWork.of(origin, python, machine, manager)
    from envsolve.install.conda import MANAGER, conda_work

    if manager not in (None, MANAGER):
        raise UsageError(f"{manager} does not install conda packages", hint="leave --manager out")
    return conda_work(origin)


def _proved(environment: Path, verify: Callable[[Path], bool], machine: Machine | None, progress: Progress) -> bool:
    """Verify an environment unless that was done with the same driver and GPUs; returns whether it was checked."""
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
    return f"nothing could be verified, because this machine has no GPU; to verify without a GPU: {command}"


def _notes(origin: Plan | Lock | CondaLock) -> tuple[str, ...]:
    return origin.notes if isinstance(origin, Lock) else ()


def _held_against(assumptions: Assumptions | None, machine: Machine | None) -> tuple[str, ...]:
    """Refuse a machine that the lock does not fit; returns warnings about what could not be judged.

    The Python is left out: the interpreter that was found has settled it.
    """
    if assumptions is None or machine is None:
        return ()
    judged = replace(assumptions, python=None)
    failed = mismatches(judged, machine)
    if failed:
        raise ImpossibleError(
            "the lock does not fit this machine: " + "; ".join(failed), hint="make a new plan for this machine"
        )
    return unknowns(judged, machine)


def _installed(prefix: Path, aim: Wanted, *, changed: bool, warnings: tuple[str, ...]) -> Installed:
    kept = record.read(prefix)
    assert kept is not None  # written by this install, or just compared with the plan
    packages = tuple((file.name, file.version) for file in aim.files)
    return Installed(prefix, prefix / "bin" / "python", kept.python, kept.manager, packages, changed, warnings)


@contextmanager
def _disk_errors_explained(prefix: Path) -> Iterator[None]:
    """Turn errors of the operating system (disk full, quota, read-only) into a failure with a hint."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        what = (
            "the disk is full, or a limit on file sizes was reached" if full else "the environment could not be written"
        )
        raise InstallError(
            f"{what}: {error}",
            hint=f"free some space on the disk of {prefix.parent}"
            if full
            else f"check the permissions of {prefix.parent}",
        ) from error
