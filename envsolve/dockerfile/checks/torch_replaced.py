"""A later install that can put another torch in the place of the one that was chosen."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envsolve.dockerfile.installs import Install, Wanted, other_installer
from envsolve.dockerfile.model import Command, Finding, Stage
from envsolve.dockerfile.offers import Name
from envsolve.dockerfile.packages import Asked, pinned

_HOLD = (
    "before it: RUN pip list --format=freeze | grep -E '^(torch|triton)' > /held.txt, and in it: -c /held.txt",
    "name torch and its index here, too",
)


def check(stage: Stage, asked: Asked) -> Iterator[Finding]:
    """Follow the installs of a stage and of those that it is built on."""
    before = f"the torch of {stage.root.image}" if Name.of(stage.root.image).repository == "pytorch/pytorch" else None
    brought = asked.image_torch(stage)
    version, within = brought[0].build.version if brought else None, asked.within(stage)
    mine = set(map(id, stage.commands))
    for command in stage.history():
        if _conda_torch(command):
            before, version = f"the torch of line {command.line}", None
        for install in asked.installs((command,)):
            own = [wanted for wanted in install.wanted if wanted.name == "torch"]
            chosen = [wanted for wanted in own if not wanted.file]
            later = id(command) in mine
            if before and later and not chosen and install.dependencies and not install.constrained:
                yield from _found(before, version, install, asked)
            if own:
                taken = asked.taken(install, "torch", within)
                before = f"{own[0].requirement} of line {command.line}"
                version = taken.build.version if taken else pinned(own[0].requirement.specifier)


def _conda_torch(command: Command) -> bool:
    """Whether conda, or a program like it, installs PyTorch: ``pytorch=2.5``, ``conda-forge::pytorch``."""
    names = {re.split(r"[=<>!~ ]", word.rpartition("::")[2], maxsplit=1)[0] for word in command.words}
    return (other_installer(command) or "").endswith(("conda install", "mamba install")) and "pytorch" in names


def _found(before: str, version: str | None, install: Install, asked: Asked) -> Iterator[Finding]:
    line = install.command.line
    for wanted in install.wanted:
        text = _replaces(wanted, before, version, asked)
        if text:
            yield Finding(line, "torch-replaced", "warning", wanted.place + text, _HOLD)
            return
    if install.files:
        text = f"nothing holds {before} while {', '.join(install.files)} is installed: a line in it can replace it"
        yield Finding(line, "torch-unheld", "warning", text, _HOLD[:1])


def _replaces(wanted: Wanted, before: str, version: str | None, asked: Asked) -> str | None:
    """In which way one requirement puts another torch in the place of a version, where it does or may."""
    if wanted.name == "torch":
        asks = pinned(wanted.requirement.specifier)
        other = asks is not None and version is not None and asks.partition("+")[0] != version
        return f"{wanted.requirement} is asked for, and {before} goes" if other else None
    allowed = [o for o in asked.offers(wanted.name) if wanted.requirement.specifier.contains(o.build.version)]
    newest = max(allowed, key=lambda offer: offer.version, default=None)
    needed = newest.needs("torch") if newest else None
    if newest is None or needed is None or (version is not None and needed.contains(version, prereleases=True)):
        return None
    if version is None and not any(s.operator == "==" for s in needed):
        return None
    return (
        f"{wanted.requirement} ({newest.build.version}) needs torch{needed}: where that is not {before}, pip replaces "
        "it by the default index's build"
    )
