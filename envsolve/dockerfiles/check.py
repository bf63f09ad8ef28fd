"""Holding a Dockerfile against the machines that its image is meant for: every check in its order."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

from envsolve.catalogue.load import Catalogue
from envsolve.compat.facts import Facts
from envsolve.compat.settle import as_judged
from envsolve.dockerfiles import checks
from envsolve.dockerfiles.asked import Asked, in_container
from envsolve.dockerfiles.context import Context
from envsolve.dockerfiles.installs import installs
from envsolve.dockerfiles.model import Finding, Report, Stage, Unjudged
from envsolve.dockerfiles.offers import offers
from envsolve.dockerfiles.read import read_stages
from envsolve.dockerfiles.unjudged import unjudged
from envsolve.machine.model import Machine


def check_dockerfile(
    text: str, machines: Sequence[Machine], catalogue: Catalogue, context: Path | None = None
) -> Report:
    """Every finding, in the order of the file.

    Args:
        text: The Dockerfile.
        machines: That its image is meant for.
        context: The folder that COPY takes from; None where it is not known.

    Raises:
        UsageError: It is no Dockerfile.
    """
    stages = read_stages(text)
    judged = tuple(in_container(as_judged(machine, None, catalogue.drivers)) for machine in machines)
    known = cache(lambda name: offers(name, judged, catalogue))
    files = Context(context)
    read = {id(command): tuple(installs((command,), files)) for stage in stages for command in stage.commands}
    asked = Asked(judged, catalogue, Facts.of(catalogue), stages[-1], files, read, known)
    found = dict.fromkeys(f for check in _checks() for stage in stages for f in check(stage, asked))
    left = dict.fromkeys(one for stage in stages for one in unjudged(stage, asked))
    if not any(machine.gpus or machine.driver for machine in judged):
        text = "no machine with a GPU or a driver is known: name one, --target 'RTX 4090, driver 550.54'"
        left = {Unjudged(stages[0].line, text): None, **left}
    return Report(
        findings=tuple(sorted(found, key=lambda finding: finding.line)),
        unjudged=tuple(sorted(left, key=lambda one: one.line)),
    )


def _checks() -> Iterator[Callable[[Stage, Asked], Iterator[Finding]]]:
    for module in pkgutil.iter_modules(checks.__path__):
        yield importlib.import_module(f"{checks.__name__}.{module.name}").check
