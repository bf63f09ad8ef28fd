"""Work on nodes, with results as files: what a killed run has finished is not done again."""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from envsolve.errors import UsageError
from envsolve.fleet.engines import Engine, Outcome, Work
from envsolve.fleet.model import is_node
from envsolve.system.files import read_regular
from envsolve.system.limits import NODE_BYTES
from envsolve.system.progress import advance, phase, say


def run_on(engine: Engine, work: Work, what: str, *, fresh: float) -> Mapping[str, Outcome]:
    """Run commands on nodes and return the outcome of each; every node is in the result.

    Args:
        engine: Runs them.
        work: The commands. Nodes with a result in its directory are not run again.
        what: What is done, for a person: ``probing``.
        fresh: Seconds for which a result is good: somebody may have changed the node since.
    """
    _own(work.directory)
    outcomes = {node: Outcome(failure="this is not a valid node name") for node in work.commands if not is_node(node)}
    asked = work.commands.keys() - outcomes.keys()
    outcomes |= {node: Outcome(text=text) for node in asked if (text := _result(work.directory, node, fresh))}
    left = {node: command for node, command in work.commands.items() if node not in outcomes}
    if outcomes and left:
        say(f"{len(outcomes)} of {len(work.commands)} nodes have a result from an interrupted run")
    if left:
        phase(f"{what} {len(work.commands)} nodes", len(work.commands))
        advance(len(outcomes))
        engine.run(Work(left, work.stdin, work.directory, work.name), _Counted(work.directory, outcomes))
        phase("")
    missing = {node: Outcome(failure="there is no result for this node") for node in left if node not in outcomes}
    return {node: (outcomes | missing)[node] for node in work.commands}


def _own(directory: Path) -> None:
    """Make the directory of the results, in which nobody else may write: jobs run a script there, and reports count.

    Raises:
        UsageError: It is a link, or another user's.
    """
    directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    status = directory.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        what = "is another user's" if stat.S_ISDIR(status.st_mode) else "is not a directory"
        raise UsageError(f"{directory} {what}", hint="delete it, or choose another directory with --fleet")
    if status.st_mode & 0o022:
        directory.chmod(status.st_mode & 0o755)


def refuse_links_of_others(fleet: Path) -> None:
    """Refuse a fleet's directory with another user's link in it; the user's own links are allowed.

    Raises:
        UsageError: There is one. What is written, or made anew, would be so wherever it leads.
    """
    for entry in os.scandir(fleet) if fleet.is_dir() else ():
        if entry.is_symlink() and entry.stat(follow_symlinks=False).st_uid not in (os.geteuid(), 0):
            raise UsageError(f"{entry.path} is another user's link", hint="delete it, or choose another directory")


class _Counted:
    """Keeps the outcomes of nodes, and shows how many have ended, failed and run."""

    def __init__(self, directory: Path, outcomes: dict[str, Outcome]) -> None:
        self._directory, self._outcomes = directory, outcomes
        self._running: set[str] = set()
        self._failed = 0

    def started(self, node: str) -> None:
        self._running.add(node)
        self._show(0)

    def ended(self, node: str, outcome: Outcome) -> None:
        self._outcomes[node] = outcome
        self._running.discard(node)
        self._failed += outcome.failure is not None
        if outcome.text is not None and not (self._directory / f"{node}.json").exists():
            _keep(self._directory, node, outcome.text)
        self._show(1)

    def _show(self, count: int) -> None:
        advance(count, f"{self._failed} failed, {len(self._running)} running")


def _result(directory: Path, node: str, fresh: float) -> bytes | None:
    path = directory / f"{node}.json"
    try:
        status = path.lstat()
        if time.time() - status.st_mtime > fresh or status.st_uid != os.geteuid() or path.is_symlink():
            path.unlink()
            return None
        return read_regular(path, NODE_BYTES) or None
    except OSError:
        return None


def _keep(directory: Path, node: str, text: bytes) -> None:
    scratch = directory / f".{node}.{os.getpid()}"
    scratch.write_bytes(text)
    scratch.replace(directory / f"{node}.json")


@contextmanager
def only_one(fleet: Path) -> Iterator[None]:
    """Hold a fleet's directory for one command at a time, and make it if it is missing.

    Raises:
        UsageError: Another command works in it, or it cannot be made.
    """
    try:
        fleet.mkdir(parents=True, exist_ok=True)
        refuse_links_of_others(fleet)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(fleet / ".lock", flags, 0o600)
    except OSError as error:
        raise UsageError(f"{fleet}: {error.strerror or error}", hint="choose another directory with --fleet") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"another fleet command is running in {fleet}", hint="wait until it ends") from None
        yield
    finally:
        os.close(descriptor)
