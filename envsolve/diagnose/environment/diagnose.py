"""From an environment to its diagnoses: its facts as a report, weighed by the same rules, and its own checks."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace

from envsolve.catalogue.load import Catalogue
from envsolve.diagnose.environment.checks import compiling_checks, running_checks
from envsolve.diagnose.environment.commands import addressed
from envsolve.diagnose.environment.model import Environment
from envsolve.diagnose.environment.needs import torch_distribution
from envsolve.diagnose.finding import Finding, Grounds, RuledOut
from envsolve.diagnose.model import Diagnoses, Probe, Remedy, Report, Seen
from envsolve.diagnose.probed import held_against
from envsolve.diagnose.reason import concluded, weighed
from envsolve.diagnose.scene import Scene, scene_of
from envsolve.machine.model import Machine


def diagnose_environment(
    environment: Environment,
    report: Report,
    others: Sequence[Machine],
    catalogue: Catalogue,
    probes: Sequence[Probe] = (),
) -> Diagnoses:
    """What is wrong in an environment on a machine, and what to do about it.

    Args:
        environment: As read from its files.
        report: The machine, and what an error text told; what the environment's files say wins over it.
        others: Further machines that the remedies must serve.
        catalogue: The facts.
        probes: What was tried in it; the report's text holds what they said.

    Returns:
        The diagnoses, likeliest first, their commands addressed to this environment.
    """
    scene = scene_of(report_of(environment, report), others, catalogue)
    answers = held_against(environment, probes, examined(environment, scene))
    found = addressed(concluded(scene, answers), environment)
    return replace(found, probes=tuple(probes), next_steps=(*_without_python(environment), *found.next_steps))


def _without_python(environment: Environment) -> tuple[Remedy, ...]:
    """What to do first where nothing can be run: files alone may be in order all the same."""
    if environment.program is not None:
        return ()
    text = f"There is no Python in it: {environment.prefix}/bin/python is gone, or leads to one that is. Make it again."
    made = environment.kind in ("conda", "pixi")
    return (Remedy(text, None if made else f"python3 -m venv --upgrade {shlex.quote(environment.prefix)}"),)


def examined(environment: Environment, scene: Scene) -> list[Finding | RuledOut]:
    """What the checks of an environment and the weighings of its report say.

    Of equal grounds the earlier is told first: what keeps torch from running, by files, then by the rules alone.
    """
    return [
        *(finding for check in running_checks() for finding in check(environment, scene)),
        *(_by_files(answer) for answer in weighed(scene)),
        *(finding for check in compiling_checks() for finding in check(environment, scene)),
    ]


def _by_files(answer: Finding | RuledOut) -> Finding | RuledOut:
    """What follows from facts alone stands, here, on the files that they were read in."""
    if isinstance(answer, Finding) and answer.grounds is Grounds.DERIVED:
        return replace(answer, grounds=Grounds.READ)
    return answer


def report_of(environment: Environment, report: Report) -> Report:
    """A report completed with what the environment's files say, which wins over what was read of a text."""
    torch = environment.torch
    place = f"{torch.site}/torch" if torch else ""
    return replace(
        report,
        installed={**report.installed, **_installed(environment)},
        python=_seen(environment.python, environment.prefix, "Python") or report.python,
        cuda=_seen(torch.cuda if torch else None, f"{place}/version.py", "CUDA") or report.cuda,
        arch_list=Seen(torch.code, f"{place}/lib", " ".join(torch.code)) if torch and torch.code else report.arch_list,
    )


def _installed(environment: Environment) -> dict[str, Seen[str]]:
    """Version by name of what is imported, with the flavour where a package's own files tell it."""
    stated = {e.package: e.stated for e in environment.extensions or () if e.stated}
    found: dict[str, Seen[str]] = {}
    for distribution in environment.distributions:
        version = stated.get(distribution.name) or distribution.version
        if version and distribution.name not in found:
            found[distribution.name] = Seen(version, distribution.info, f"{distribution.name} {version}")
    torch = environment.torch
    if torch and torch.version:
        # A build without CUDA may come without a word of it in its version.
        flavour = "" if torch.cuda or torch.local or torch.code is None else "+cpu"
        version = torch.version + flavour
        name = "pytorch" if _is_condas(environment) else "torch"
        found.pop("torch", None)
        found[name] = Seen(version, f"{torch.site}/torch/version.py", f"{name} {version}")
    return found


def _is_condas(environment: Environment) -> bool:
    """Whether the torch that is imported came from a conda channel: reports know it by another name then."""
    own = torch_distribution(environment)
    return own is not None and own.installer == "conda" and any(p.name == "pytorch" for p in environment.conda)


def _seen(value: str | None, where: str, what: str) -> Seen[str] | None:
    return Seen(value, where, f"{what} {value}") if value else None
