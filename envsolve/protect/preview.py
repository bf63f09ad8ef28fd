"""What a command would do to the torch of its environment: rehearsed by its installer, judged by the rules."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

from envsolve.diagnose.environment import report_of
from envsolve.diagnose.environment_advice import in_environment
from envsolve.diagnose.model import Diagnosis, Finding, Remedy, ReportFacts, Seen
from envsolve.diagnose.reason import concluded, weighed
from envsolve.diagnose.scene import Scene, scene_of
from envsolve.environment.model import Environment
from envsolve.environment.read import read_outline
from envsolve.errors import EnvsolveError, UsageError
from envsolve.facts.builds import Build
from envsolve.facts.catalogue import Catalogue
from envsolve.facts.channels import CondaBuild
from envsolve.machine.model import Machine
from envsolve.protect.installers import installer, read_command, rehearse
from envsolve.protect.model import SCHEMA, TORCH, Change, Command, Forecast, family_of, version_of
from envsolve.rules.conda import CondaJudge, as_build
from envsolve.rules.judge import Judge, worst
from envsolve.rules.verdict import Level

# What an environment would be after changes, as a report that the rules weigh, and the verdict on its torch.


_WHERE = "the installer's dry run"


def report_after(before: ReportFacts, changes: Sequence[Change], catalogue: Catalogue) -> ReportFacts:
    """A report of an environment after changes; what was read of a torch's own files goes with that torch."""
    installed = dict(before.installed)
    for change in changes:
        if change.name in TORCH:
            for name in TORCH:
                installed.pop(name, None)
        installed.pop(change.name, None)
        if change.after is not None:
            installed[change.name] = Seen(change.after, _WHERE, change.text)
    torch = next((c for c in changes if c.name in TORCH), None)
    if torch is None:
        return replace(before, installed=installed)
    found = _conda_build(torch, catalogue)
    return replace(
        before,
        installed=installed,
        cuda=Seen(found.cuda or "none", _WHERE, torch.text) if found else None,
        arch_list=Seen(found.code, _WHERE, torch.text) if found and found.code else None,
    )


def verdict_on(scene: Scene, torch: Change, machine: Machine) -> tuple[Literal["yes", "no", "unknown"], str]:
    """Whether the torch that comes runs on the machine's GPUs (on its CPU, where it has none), and what decides it."""
    record = _conda_build(torch, scene.catalogue)
    if record is not None:
        build: Build | None = as_build(record)
    else:
        build = scene.torch.build if scene.torch and torch.build is None else None
    if build is None:
        return "unknown", f"the catalogue does not know {torch.name} {torch.after}: what it carries is not known"
    if build.cuda and machine.gpus == ():
        return "yes", "on the CPU alone: the machine has no NVIDIA GPU"
    verdict = (
        CondaJudge((scene.machine,), scene.facts, ()).verdict(build)
        if record is not None
        else worst(Judge(scene.machine, scene.facts).verdicts(build, None))
    )
    if verdict.level is Level.NONE:
        failed = "; ".join(reason.text for reason in verdict.failures if not reason.rule.startswith("triton"))
        return "no", failed
    if verdict.level is Level.UNKNOWN:
        return "unknown", "; ".join(reason.text for reason in verdict.reasons if reason.ok is None)
    return "yes", f"{verdict.code} runs on the GPU" if verdict.code else "nothing of it needs a GPU"


def _conda_build(torch: Change, catalogue: Catalogue) -> CondaBuild | None:
    """The catalogue's record of a conda build that comes."""
    if torch.build is None:
        return None
    matching = (
        b
        for b in catalogue.conda
        if (b.package, b.version) == (torch.name, torch.after)
        and fnmatchcase(torch.build, b.build)
        and torch.subdir in (None, b.subdir)
    )
    return next(matching, None)


def forecast(
    words: Sequence[str], machine: Machine, catalogue: Catalogue, environ: Mapping[str, str]
) -> Forecast | None:
    """What a command of pip, uv or conda would do to the torch family of its environment.

    Args:
        words: The command line.
        machine: What the torch that comes is judged on.
        catalogue: The facts.
        environ: The environment variables that the command will see.

    Returns:
        The forecast; None where the command changes no environment.

    Raises:
        UsageError: It is no command of a known installer, has no dry run, or its environment is not found.
        EnvsolveError: The installer itself refuses, or its answer is not understood.
    """
    command = read_command(words, environ)
    if command.rehearsal is None:
        return None
    environment, changes = _rehearsed(command, environ)
    told = _of_family(changes, environment, catalogue)
    if not told:
        return Forecast(SCHEMA, shlex.join(words), environment.prefix)
    torch = next((c for c in told if c.name in TORCH), None)
    unasked = tuple(c.name for c in told if _is_unasked(c, command, torch, environment, catalogue))
    before = report_of(environment, ReportFacts("", machine))
    scene = scene_of(report_after(before, told, catalogue), (), catalogue)
    works, why = verdict_on(scene, torch, machine) if torch and torch.after else (None, None)
    if torch and torch.after and scene.torch:
        told = tuple(replace(c, flavour=scene.torch.variant) if c is torch else c for c in told)
    causes = _new_causes(scene_of(before, (), catalogue), scene, environment)
    return Forecast(
        schema=SCHEMA,
        command=shlex.join(words),
        prefix=environment.prefix,
        changes=told,
        unasked=unasked,
        works=works,
        why=why,
        causes=causes,
        keeps=_keeping(command, unasked, environment, catalogue, environ) if unasked else None,
        refused=bool(unasked or causes or works == "no"),
    )


def _rehearsed(command: Command, environ: Mapping[str, str]) -> tuple[Environment, tuple[Change, ...]]:
    """The environment of a command, and its changes with what is there before."""
    answer = rehearse(command, environ)
    prefix = answer.prefix or command.prefix
    if prefix is None:
        raise UsageError("which environment the command acts on cannot be told", hint="name it, or activate it")
    environment = read_outline(Path(prefix), environ)
    known = (replace(c, before=c.before or version_of(environment, c.name, command.installer)) for c in answer.changes)
    return environment, tuple(known)


def _of_family(changes: Sequence[Change], environment: Environment, catalogue: Catalogue) -> tuple[Change, ...]:
    members = family_of(environment, catalogue)
    return tuple(c for c in changes if c.name in TORCH or (c.name in members and c.is_another))


def _is_unasked(
    change: Change, command: Command, torch: Change | None, environment: Environment, catalogue: Catalogue
) -> bool:
    """Whether a package that is there changes, though neither it nor the torch that needs it is asked for."""
    if command.asked is None or change.before is None or not change.is_another or change.name in command.asked:
        return False
    asks_torch = torch is not None and torch.name in command.asked
    return not (asks_torch and (change.name == "triton" or change.name not in catalogue.family))


def _new_causes(before: Scene, after: Scene, environment: Environment) -> tuple[Diagnosis, ...]:
    """What the rules find wrong afterwards and not today, its commands addressed to the environment."""
    today = {answer.cause for answer in weighed(before) if isinstance(answer, Finding)}
    if not after.gpus:
        today.add("cpu-build")  # Where no GPU is known to be there, such a build may be just right.
    new = [answer for answer in weighed(after) if isinstance(answer, Finding) and answer.cause not in today]
    return tuple(
        replace(
            diagnosis,
            remedies=tuple(
                Remedy(r.text, in_environment(r.command, environment) if r.command else None)
                for r in diagnosis.remedies
            ),
        )
        for diagnosis in concluded(after, new).diagnoses
    )


def _keeping(
    command: Command,
    unasked: Sequence[str],
    environment: Environment,
    catalogue: Catalogue,
    environ: Mapping[str, str],
) -> str | None:
    """The same command with pins on what it would replace, where the installer finds a way to keep them."""
    versions = {n: v for n in unasked if (v := version_of(environment, n, command.installer, exact=True))}
    words = installer(command.installer).keeping(command, versions)
    pinned = read_command(words, environ)
    try:
        environment, changes = _rehearsed(pinned, environ)
    except EnvsolveError:
        return None
    told = _of_family(changes, environment, catalogue)
    return None if any(c.before is not None and c.is_another for c in told) else shlex.join(words)
