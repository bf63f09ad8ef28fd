"""A later pip command that can put another torch in the place of the one that was chosen."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from envsolve.dockerfiles.asked import Asked
from envsolve.dockerfiles.installs import Install, installs
from envsolve.dockerfiles.model import Finding, Stage


def check(stage: Stage, asked: Asked) -> Iterator[Finding]:
    """Follow the pip commands of a stage and of those that it is built on."""
    before = _torch_of_image(stage)
    for install in installs(list(stage.history())):
        own = [r for r in install.requirements if canonicalize_name(r.name) == "torch"]
        later = install.command in stage.commands
        if before and later and not own and install.dependencies and not install.constrained:
            yield from _found(before, install, asked)
        if own:
            before = f"{own[0]} of line {install.command.line}"


def _torch_of_image(stage: Stage) -> str | None:
    return f"the torch of {stage.root.image}" if stage.root.image.startswith("pytorch/pytorch:") else None


def _found(before: str, install: Install, asked: Asked) -> Iterator[Finding]:
    line = install.command.line
    remedy = "before it: RUN pip freeze | grep -E '^(torch|triton)' > /held.txt, and in it: -c /held.txt"
    for requirement in install.requirements:
        torch = _torch_needed(requirement, asked)
        if torch:
            text = (
                f"{requirement} needs {torch}: where that is not {before}, pip replaces it by the default index's build"
            )
            yield Finding(line, "torch-replaced", "warning", text, (remedy, "name torch and its index here, too"))
            return
    if install.files:
        text = f"nothing holds {before} while {', '.join(install.files)} is installed: a line in it can replace it"
        yield Finding(line, "torch-unheld", "warning", text, (remedy,))


def _torch_needed(requirement: Requirement, asked: Asked) -> str | None:
    """The torch that the newest build of a package needs by its metadata, where that is one version alone."""
    name = canonicalize_name(requirement.name)
    if name not in asked.catalogue.packages():
        return None
    builds = [b for b in asked.catalogue.builds(name) if requirement.specifier.contains(b.version)]
    for line in (builds[-1].requires or ()) if builds else ():
        needed = Requirement(line)
        if canonicalize_name(needed.name) == "torch" and any(s.operator == "==" for s in needed.specifier):
            return f"torch{needed.specifier}"
    return None
