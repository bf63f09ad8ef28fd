"""Holding a Dockerfile against the machines that its image is meant for: every check in its order."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from functools import cache

from envsolve.catalogue.load import Catalogue
from envsolve.compat.facts import Facts
from envsolve.compat.settle import as_judged
from envsolve.dockerfiles import checks
from envsolve.dockerfiles.asked import Asked
from envsolve.dockerfiles.model import Finding, Report, Stage
from envsolve.dockerfiles.offers import offers
from envsolve.dockerfiles.read import read_stages
from envsolve.machine.model import Machine


def check_dockerfile(text: str, machines: Sequence[Machine], catalogue: Catalogue) -> Report:
    """Every finding, in the order of the file.

    Args:
        text: The Dockerfile.
        machines: That its image is meant for.

    Raises:
        UsageError: It is no Dockerfile.
    """
    stages = read_stages(text)
    judged = tuple(as_judged(machine, None, catalogue.drivers) for machine in machines)
    known = cache(lambda name: offers(name, judged, catalogue))
    asked = Asked(judged, catalogue, Facts.of(catalogue), stages[-1], known)
    found = dict.fromkeys(f for check in _checks() for stage in stages for f in check(stage, asked))
    return Report(findings=tuple(sorted(found, key=lambda finding: finding.line)))


def _checks() -> Iterator[Callable[[Stage, Asked], Iterator[Finding]]]:
    for module in pkgutil.iter_modules(checks.__path__):
        yield importlib.import_module(f"{checks.__name__}.{module.name}").check
