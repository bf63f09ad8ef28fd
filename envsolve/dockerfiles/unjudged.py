"""What decides about CUDA in a Dockerfile and is not judged: to be silent about it would be a yes."""

from __future__ import annotations

from collections.abc import Iterator

from envsolve.dockerfiles.asked import Asked
from envsolve.dockerfiles.installs import Install, other_installer
from envsolve.dockerfiles.model import Stage, Unjudged


def unjudged(stage: Stage, asked: Asked) -> Iterator[Unjudged]:
    """Installers that are not read, files that are not there, versions and indexes that are not known."""
    for command in stage.commands:
        other = other_installer(command)
        if other:
            yield Unjudged(command.line, f"{other}: {_instead(other)}")
    for install in asked.installs(stage.commands):
        yield from _of(install, asked)


def _of(install: Install, asked: Asked) -> Iterator[Unjudged]:
    line = install.command.line
    for file in install.files:
        if "$" in file:
            yield Unjudged(line, "a requirement file that is named as the image is built")
        elif file.endswith(".toml"):
            yield Unjudged(line, f"{file}: what it asks for is not read")
        else:
            yield Unjudged(line, f"{file} is not in the build context that was read (--context DIR)")
    for name in sorted(install.unread):
        if asked.offers(name):
            yield Unjudged(line, f"{name}: its version is given as the image is built")
    for wanted in install.wanted:
        known = asked.offers(wanted.name) and not wanted.requirement.url and install.backend != "auto"
        if known and asked.looks(install, wanted.name).unknown:
            yield Unjudged(line, f"{wanted.name}: it is looked for where the catalogue has no facts of")


def _instead(other: str) -> str:
    if other.startswith(("conda", "mamba", "micromamba")):
        return "conda packages are chosen with envsolve plan --manager conda"
    return "what it installs stands in its lock file, which is not read"
