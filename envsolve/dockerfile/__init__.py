"""Check a Dockerfile for the machines that its image is for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from urllib.parse import unquote

from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import Version

from envsolve.dockerfile import compiling, conda, contents, images, locked, torch
from envsolve.dockerfile.base_image import with_one_image
from envsolve.dockerfile.compiling import nvcc_code
from envsolve.dockerfile.contents import parts_unjudged, with_dependencies
from envsolve.dockerfile.context import Context
from envsolve.dockerfile.installs import Install, Wanted, installs
from envsolve.dockerfile.locked import lock_of, lock_unjudged, not_copied
from envsolve.dockerfile.model import Command, Finding, Report, Stage, Unjudged, other_installer
from envsolve.dockerfile.offers import Asked, in_container, offers, pinned
from envsolve.dockerfile.read import read_stages
from envsolve.dockerfile.sources import compiled_in
from envsolve.facts.catalogue import Catalogue
from envsolve.machine.model import Machine
from envsolve.rules.judge import as_judged
from envsolve.rules.nvidia import Facts

CHECKS = (*conda.CHECKS, *contents.CHECKS, *images.CHECKS, *compiling.CHECKS, *locked.CHECKS, *torch.CHECKS)
"""Each takes a stage and what is asked, and yields findings. A new one goes into the CHECKS of its subject."""


def check_dockerfile(
    text: str, machines: Sequence[Machine], catalogue: Catalogue, context: Path | None = None
) -> Report:
    """Every finding, in the order of the file.

    Args:
        text: The Dockerfile.
        machines: The machines that its image is meant for.
        catalogue: The facts.
        context: The directory that COPY takes from; None if it is not known.

    Raises:
        UsageError: It is not a Dockerfile.
    """
    stages = read_stages(text)
    judged = tuple(in_container(as_judged(machine, None, catalogue.drivers)) for machine in machines)
    known = cache(lambda name: offers(name, judged, catalogue))
    files, facts = Context(context), Facts.of(catalogue)

    def ask(stages: Sequence[Stage]) -> Asked:
        read = {id(command): tuple(_read(command, files)) for stage in stages for command in stage.commands}
        asked = Asked(judged, catalogue, facts, stages[-1], files, read, known)
        return replace(asked, read=with_dependencies(stages, asked))

    asked = ask(stages)
    found = with_one_image(text, stages, asked, lambda changed: _findings(read := read_stages(changed), ask(read)))
    left = dict.fromkeys(one for stage in stages for one in unjudged(stage, asked))
    if not any(machine.gpus or machine.driver for machine in judged):
        text = "no machine with a GPU or a driver is known; describe one with --target 'RTX 4090, driver 550.54'"
        left = {Unjudged(stages[0].line, text): None, **left}
    return Report(
        findings=tuple(sorted(found, key=lambda finding: finding.line)),
        unjudged=tuple(sorted(left, key=lambda one: one.line)),
    )


def _findings(stages: Sequence[Stage], asked: Asked) -> dict[Finding, int]:
    """Every finding with the line of the FROM that its stage comes from.

    Stages that are built on one another lead to the same finding more than once.
    """
    return {f: stage.root.line for check in CHECKS for stage in stages for f in check(stage, asked)}


def _read(command: Command, files: Context) -> Iterator[Install]:
    """Yield the installs of a command; conda runs pip for a part of its files."""
    yield from installs((command,), files)
    by_conda = conda.conda_install(command, files)
    if by_conda and by_conda.pip_command:
        yield from installs((by_conda.pip_command,), files)


# What decides whether torch works and is not judged: to be silent about it would be a yes.


# Words of a command that installs or compiles, anywhere: in a document of another program, in a text that another
# program receives.
_DECIDES = re.compile(
    r"(?<![\w-])(?:pip[\d.]*|pipx|uv|conda|mamba|poetry)['\",]*\s(?:[^\n;&|]*\s)?['\"]?"
    r"(?:install|download|wheel|sync|add)(?![\w.-])|\beasy_install\s|\buvx\s|\btorch(?:vision|audio)?\s*[=<>~!]=|\bnvcc\s.*\.cu\b"
)


def unjudged(stage: Stage, asked: Asked) -> Iterator[Unjudged]:
    """Installers that are not read, missing files, and unknown versions and indexes."""
    if not stage.image:
        yield Unjudged(stage.line, "this FROM line has no image name")
    if stage.image and stage is asked.final.root and not asked.knows(stage):
        # A variable in the name, or an image that the catalogue does not describe: it may hold any torch.
        yield Unjudged(stage.line, f"{stage.image}: the contents of this image are not known")
    for command in stage.commands:
        script = _script(command)
        if script:
            yield Unjudged(command.line, f"{script}: envsolve does not read scripts")
        other = other_installer(command)
        if lock_of(command):
            yield from lock_unjudged(command, stage, asked)
        elif conda.conda_install(command, asked.context):
            yield from conda.unjudged(command, asked)
        elif other:
            yield Unjudged(command.line, f"{other} installs from its own lock file, which envsolve does not read")
    for install in asked.installs(stage.commands):
        yield from _of(install, stage, asked)
    for one in compiled_in(stage, asked):
        if one.own_list:
            yield Unjudged(one.command.line, f"{one.name}: its setup.py decides for which GPUs it is compiled")
        given = one.command.variables.get(one.variable or "", "")
        if not given and one.sure and contents.sets_variables(stage, asked):
            yield Unjudged(
                one.command.line, f"{one.name}: the image {stage.root.image} decides for which GPUs it is compiled"
            )
        if given and compiling.listed_code(one, given, asked) is None:
            why = "is set only at build time" if "$" in given else f"is {given}, which envsolve cannot read"
            yield Unjudged(one.command.line, f"{one.name}: {one.variable} {why}")
    yield from parts_unjudged(stage, asked)
    yield from compiling.builders_unjudged(stage, asked)
    yield from _unread(stage, asked)


_SHOWN = 4


# Scripts that install one program, and what it is for is known.
_INSTALLERS = re.compile(r"(?i)conda|forge|mamba|cmake|uv|rustup|node|poetry|get-docker")


def _script(command: Command) -> str | None:
    """The shell script that a command runs; None if it runs none, or one that installs a tool."""
    words = [word for word in command.words if not word.startswith("-")]
    is_shell = command.program in ("sh", "bash", "source", ".") and len(words) > 1
    name = words[1] if is_shell else command.words[0]
    return name if name.endswith(".sh") and not _INSTALLERS.search(name) else None


def _unread(stage: Stage, asked: Asked) -> Iterator[Unjudged]:
    """Instructions that install or compile something in a way that is not read."""
    installing = {install.command.line for install in asked.installs(stage.commands)}
    others = {c.line for c in stage.commands if other_installer(c) or nvcc_code(c) is not None}
    for text in stage.texts:
        if text.name == "ONBUILD":
            if _DECIDES.search(text.text):
                yield Unjudged(text.line, "ONBUILD: the effect on images that are built from this one")
        elif text.name != "RUN":
            yield Unjudged(text.line, f"{text.name[:40]!r} is not an instruction, so the build stops here")
            return
        elif _DECIDES.search(text.text) and text.line not in installing | others:
            yield Unjudged(text.line, "this line installs or compiles something in a way that envsolve does not read")


def _of(install: Install, stage: Stage, asked: Asked) -> Iterator[Unjudged]:
    line = install.command.line
    judged = frozenset(not_copied(install, stage, asked))
    for file in (file for file in install.files if file not in judged):
        if "$" in file:
            yield Unjudged(line, "a requirement file whose name is set only at build time")
        elif file.endswith(".toml"):
            yield Unjudged(line, f"{file}: envsolve does not read its requirements")
        else:
            yield Unjudged(line, f"{file} is not in the build context (choose another one with --context DIR)")
    yield from _of_versions(install, asked)
    if install.unknown:
        names = ", ".join(install.unknown[:_SHOWN]) + (
            f" and {more} more" if (more := len(install.unknown) - _SHOWN) > 0 else ""
        )
        yield Unjudged(line, f"the dependencies of {names} are not known")
    for word in install.strange:
        why = "is set only at build time" if "$" in word else "is not a requirement that pip reads"
        yield Unjudged(line, f"{word} {why}")
    for source in install.sources:
        yield from _of_source(source, install, asked)
    for wanted in install.wanted:
        known = asked.offers(wanted.name) and not wanted.requirement.url and install.backend != "auto"
        if known and asked.looks(install, wanted.name).unknown:
            yield Unjudged(line, f"{wanted.name}: the catalogue has no facts about its index")
        elif known and _is_unrecorded(wanted, asked):
            yield Unjudged(line, f"the catalogue has no facts about {wanted.requirement}")


def _of_versions(install: Install, asked: Asked) -> Iterator[Unjudged]:
    """Versions that are given at build time, and builds of packages that have no variants in the catalogue."""
    line = install.command.line
    for name in sorted(install.unread):
        if asked.offers(name):
            yield Unjudged(line, f"{name}: its version is set only at build time")
    for wanted in install.wanted:
        version = pinned(wanted.requirement.specifier) or ""
        if "+" in version and not asked.offers(wanted.name):
            yield Unjudged(line, f"{wanted.name} {version}: the catalogue has no facts about this build")


def _of_source(source: str, install: Install, asked: Asked) -> Iterator[Unjudged]:
    """A wheel that is named by its URL, and the dependencies of a source tree."""
    name = unquote(source.partition("#")[0].rpartition("/")[2])
    if name.endswith(".whl"):
        try:
            package = parse_wheel_filename(name)[0]
        except InvalidWheelFilename:
            return
        if asked.offers(package):
            yield Unjudged(install.command.line, f"{name}: the wheel is given by URL")
    elif install.dependencies and " @ " not in source and source not in install.described:
        yield Unjudged(install.command.line, f"{source}: envsolve does not read its dependencies")


def _is_unrecorded(wanted: Wanted, asked: Asked) -> bool:
    """Whether a version is pinned that the catalogue neither has nor knows to be missing."""
    pin, known = pinned(wanted.requirement.specifier), asked.offers(wanted.name)
    if pin is None:
        return False
    version, first, last = Version(Version(pin).public), Version(known[-1].build.version), known[0].version
    missing = wanted.name in torch.COMPLETE and first < version < last
    return not missing and all(Version(offer.build.version) != version for offer in known)
