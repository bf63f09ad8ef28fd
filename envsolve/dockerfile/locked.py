"""Commands that install from a lock of the build context, ``uv sync`` or ``poetry install``, and what the lock does."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec.structs import replace

from envsolve.dockerfile.installs import Install
from envsolve.dockerfile.model import Command, Finding, Severity, Stage, Unjudged
from envsolve.dockerfile.offers import Asked
from envsolve.errors import UsageError
from envsolve.locks.judge import check_locks
from envsolve.locks.model import LockAnswer
from envsolve.machine.model import Platform
from envsolve.rules.platform import libc_of
from envsolve.system.files import is_file

_LOCKS: Mapping[str, tuple[str, frozenset[str]]] = {
    "uv": ("uv.lock", frozenset({"sync"})),
    "poetry": ("poetry.lock", frozenset({"install", "sync"})),
    "pdm": ("pdm.lock", frozenset({"install", "sync"})),
    "pixi": ("pixi.lock", frozenset({"install"})),
}
_CHOICES = {"--extra": "--extra", "--extras": "--extra", "-E": "--extra", "--group": "--group", "--with": "--group"}


def lock_of(command: Command) -> str | None:
    """The name of the lock that a command installs from; None for another command."""
    name, verbs = _LOCKS.get(command.program, ("", frozenset()))
    verb = next((word for word in command.words[1:] if not word.startswith("-")), "")
    return name if verb in verbs else None


def locked(stage: Stage, asked: Asked) -> Iterator[Finding]:
    """The result of each lock of the context on each machine, or that it is missing."""
    for command in stage.commands:
        answer = _answer(command, stage, asked)
        if answer is None:
            yield from _not_copied(command, asked)
        elif isinstance(answer, LockAnswer):
            for one in answer.machines:
                for found in one.findings:
                    if found.status in ("does not run", "incomplete"):
                        place = f"{posixpath.basename(answer.file)}:{found.line}: "
                        text = f"{place}{found.text}, on {one.machine}"
                        level: Severity = "warning" if found.code == "triton-does-not-run" else "error"
                        yield Finding(command.line, found.code, level, text, found.fixes, found.source)


def lock_unjudged(command: Command, stage: Stage, asked: Asked) -> Iterator[Unjudged]:
    """Locks that cannot be read, and what is not known about the others."""
    answer = _answer(command, stage, asked)
    if isinstance(answer, LockAnswer):
        for one in answer.machines:
            unknown = [found for found in one.findings if found.status == "unknown"]
            yield from (Unjudged(command.line, f"{lock_of(command)}:{found.line}: {found.text}") for found in unknown)
            if not one.builds and not one.findings:
                yield Unjudged(command.line, f"{lock_of(command)} has no package that the catalogue knows")
    else:
        why = answer or "the lock file is not in the build context (choose another one with --context DIR)"
        yield Unjudged(command.line, f"{' '.join(command.words[:2])}: {why}")


def _answer(command: Command, stage: Stage, asked: Asked) -> LockAnswer | str | None:
    """The judgement of the lock, or why there is none; None if the lock is not in the context."""
    name = lock_of(command)
    path = asked.context.file(name, command) if name else None
    if path is None:
        return None
    chosen = tuple(_chosen(command))
    if any("$" in choice for choice in chosen):
        return "an extra or group is set only at build time"
    named = command.variables.get("UV_PYTHON") or command.variables.get("PYTHON_VERSION") or ""
    python = ".".join(named.split(".")[:2]) if named[:2] == "3." else None
    return _checked(path, chosen, python, _libc(stage, asked), asked)


def _libc(stage: Stage, asked: Asked) -> str:
    """The libc of the image. For an unknown image the newest, so that no wheel is excluded."""
    own = asked.within(stage).libc
    known = [libc_of(Platform(libc=one.libc)) for one in asked.catalogue.distributions.values()]
    kind, version = own or max(one for one in known if one and one[0] == "glibc")
    return f"{kind} {version[0]}.{version[1]}"


def _checked(path: Path, chosen: tuple[str, ...], python: str | None, libc: str, asked: Asked) -> LockAnswer | str:
    # The Pythons and the libc of the machine are not those of the image.
    machines = [
        replace(machine, python=None, pythons=None, platform=replace(machine.platform or Platform(), libc=libc))
        for machine in asked.machines
    ]
    try:
        return check_locks((path,), machines, asked.catalogue, chosen, python).locks[0]
    except UsageError as error:
        return str(error).replace(str(path), path.name)


def _chosen(command: Command) -> Iterator[str]:
    words = command.words
    for number, word in enumerate(words):
        option, equals, value = word.partition("=")
        given = value if equals else words[number + 1] if number + 1 < len(words) else ""
        if option in _CHOICES:
            yield from (f"{_CHOICES[option]} {one}" for one in given.replace(",", " ").split())


def _not_copied(command: Command, asked: Asked) -> Iterator[Finding]:
    """``uv sync --frozen`` and ``--locked`` stop without a ``uv.lock``; without them uv resolves anew."""
    words = command.words
    if lock_of(command) != "uv.lock" or asked.context.root is None:
        return
    # Files of other stages may be anywhere, and a project in another directory may be meant.
    if any(not one.sources and one.document is None for one in command.copied) or "--project" in words:
        return
    # The context that was read may not be the one that is built from.
    if any(posixpath.basename(source) == "uv.lock" for one in command.copied for source in one.sources):
        return
    fails = bool({"--frozen", "--locked"} & {*words})
    level: Severity = "error" if fails else "warning"
    why = "so uv stops" if fails else "so uv resolves again and may install versions other than the locked ones"
    text = f"the uv.lock of the build context has not been copied to {command.directory} when uv sync runs, {why}"
    yield Finding(
        command.line, "lock-not-copied", level, text, ("add before this line: COPY pyproject.toml uv.lock ./",)
    )


# Requirement files, which an installer reads as the locks are read.


def requirement_files(stage: Stage, asked: Asked) -> Iterator[Finding]:
    """Lines that an installer does not take, and files that no COPY brings into the image before they are read."""
    for install in asked.installs(stage.commands):
        line, program = install.command.line, install.program
        for place, option in install.misplaced:
            by_uv = program == "uv"
            what = "uv refuses the line, and the build stops" if by_uv else "pip ignores the option there"
            text = f"{place}: {option} follows a requirement on the same line: {what}"
            level: Severity = "error" if by_uv else "warning"
            yield Finding(line, "requirement-line", level, text, (f"write {option} on a separate line",))
        for file in not_copied(install, stage, asked):
            text = f"{file} is in the build context, but no COPY copies it into the image before this line reads it"
            yield Finding(line, "file-not-copied", "error", text, (f"add before this line: COPY {file} ./",))


def not_copied(install: Install, stage: Stage, asked: Asked) -> Iterator[str]:
    """The requirement files of an install that only the build context has, if the image certainly does not."""
    command, root = install.command, asked.context.root
    if root is None or not asked.knows(stage) or any(other.program == "git" for other in stage.history()):
        return
    # Files of other stages may be anywhere; a directory without any file of the context may be of something else.
    targets = {posixpath.normpath(posixpath.join(one.directory, one.target)) for one in command.copied}
    beside = {command.directory, *(posixpath.dirname(target) for target in targets)} & {*targets, command.directory}
    if not targets or not beside or any(not one.sources and one.document is None for one in command.copied):
        return
    yield from (file for file in install.files if "$" not in file and is_file(root / file))


CHECKS = (locked, requirement_files)
