"""The checks that the scripts of a directory declare, read without importing them; and directories to run them in."""

from __future__ import annotations

import ast
import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from envsolve.errors import EnvsolveError, UsageError

RunsOn = Literal["host", "gpu", "gpus", "architecture"]
BUILT_IN = Path(__file__).parent / "checks"


@dataclass(frozen=True, slots=True)
class Script:
    """One check: a function of a script, as its decorator ``@check(NAME, ...)`` declares it.

    Attributes:
        path: The file.
        function: The function's name.
        name: The check's name in reports; one that runs on a GPU may share it with one that compiles for another.
        runs_on: ``host`` (once on the machine), ``gpu`` (once for each GPU present), ``gpus`` (once for all of them, if
            there are two or more) or ``architecture`` (once for each compute capability asked for, without a GPU).
        order: Checks run from low to high, so that the first failure is the most basic one.
        needs: Top-level modules without which it is skipped.
        variables: Environment variables that a failure may come from.
        quick: Whether it is one of the few that show the most in the least time.
        builds: Whether it requires a compiler of GPU code, which running an environment does not.
    """

    path: Path
    function: str
    name: str
    runs_on: RunsOn
    order: int
    needs: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    quick: bool = False
    builds: bool = False


def find_scripts(folder: Path = BUILT_IN) -> tuple[Script, ...]:
    """Read the declarations in every ``*.py`` of ``folder``, sorted by order, then name.

    Raises:
        ValueError: A script declares nothing or something wrong: a defect, as the scripts ship with envsolve.
    """
    found = [script for path in folder.glob("*.py") for script in _read(path)]
    return tuple(sorted(found, key=lambda script: (script.order, script.name)))


def chosen(scripts: Sequence[Script], names: Sequence[str], *, quick: bool) -> tuple[Script, ...]:
    """The scripts with the given names (all where none is given), of these only the quick ones if so.

    Raises:
        UsageError: A name is not a script's, or its script is not quick and only quick ones are wanted.
    """
    expect_known(names, [script.name for script in scripts], "--compile-only has others, for named GPUs")
    if slow := [script.name for script in scripts if quick and script.name in names and not script.quick]:
        raise UsageError(f"--quick leaves out {', '.join(slow)}", hint="leave out --quick")
    return tuple(s for s in scripts if (not names or s.name in names) and (s.quick or not quick))


def expect_known(names: Sequence[str], known: Sequence[str], others: str) -> None:
    """Make sure that names are those of checks; ``others`` says where there are more.

    Raises:
        UsageError: One is not.
    """
    if unknown := [name for name in names if name not in known]:
        raise UsageError(f"there is no check {', '.join(unknown)}", hint=f"the checks are {', '.join(known)}; {others}")


def _read(path: Path) -> list[Script]:
    functions = (node for node in ast.parse(path.read_text("utf-8")).body if isinstance(node, ast.FunctionDef))
    calls = ((f, d) for f in functions for d in f.decorator_list if isinstance(d, ast.Call))
    try:
        found = [
            msgspec.convert(
                {
                    "path": str(path),
                    "function": function.name,
                    "name": ast.literal_eval(call.args[0]),
                    **{str(word.arg): ast.literal_eval(word.value) for word in call.keywords},
                },
                Script,
                dec_hook=lambda kind, value: kind(value),
            )
            for function, call in calls
            if ast.unparse(call.func) == "check"
        ]
    except (msgspec.ValidationError, ValueError, IndexError) as error:
        raise ValueError(f"{path}: {error}") from error
    if not found:
        raise ValueError(f"{path}: no function is declared by @check(NAME, runs_on=..., order=...)")
    return found


# A directory for what one check writes, removed with it; what a killed run left behind is removed by the next run.
#
# A directory is locked as long as its run lives. A lock of the kernel's, unlike a process number, cannot outlive its
# process or be taken for another's, also where containers share a ``/tmp``.


PREFIX = "envsolve-verify-"
_HINT = "set TMPDIR to a directory that can be written to and has room"


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """Make a directory, hold it, and remove it with all that is in it.

    Raises:
        EnvsolveError: No directory can be written to.
    """
    path, lock = _made()
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def remove_abandoned() -> None:
    """Remove the directories of ended runs; those of other users, and of running ones, stay."""
    for path in _place().glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            if sys.platform == "win32" or path.lstat().st_uid != os.getuid():
                continue
            lock = _lock(path, wait=False)
            if lock is not None:
                shutil.rmtree(path, ignore_errors=True)
                os.close(lock)


def _place() -> Path:
    try:
        return Path(tempfile.gettempdir())
    except OSError as error:
        raise EnvsolveError("no directory for temporary files is writable", hint=_HINT) from error


def _made() -> tuple[Path, int | None]:
    """A new directory and its lock; made again where another run took it for abandoned before it was locked."""
    while True:
        try:
            path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=_place()))
        except OSError as error:
            reason = f"cannot create a directory in {_place()}: {error.strerror or error}"
            raise EnvsolveError(reason, hint=_HINT) from error
        lock = _lock(path, wait=True)
        if path.exists():
            return path, lock
        if lock is not None:
            os.close(lock)


def _lock(path: Path, *, wait: bool) -> int | None:
    """An open, locked descriptor of a directory; None if another holds it, or the system has no such locks."""
    if sys.platform == "win32":
        return None
    import fcntl

    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        os.close(descriptor)
        return None
    return descriptor
