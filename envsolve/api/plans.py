"""What to install on machines: ``plan``, ``plan_groups``, ``builds``."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from envsolve.api.machines import detect, machines_given
from envsolve.arguments import StrPath, python_version

if TYPE_CHECKING:
    from envsolve.builds import BuildList
    from envsolve.machine.model import Machine
    from envsolve.plan import Plan
    from envsolve.planner.groups import Plans


def plan(
    requirements: Sequence[str],
    machines: Sequence[Machine] | None = None,
    *,
    files: Sequence[StrPath] = (),
    constraints: Sequence[StrPath] = (),
    projects: Sequence[StrPath] = (),
    extras: Sequence[str] = (),
    groups: Sequence[str] = (),
    python: str | None = None,
    cuda: str | None = None,
    exclude_newer: str | None = None,
    prereleases: bool = False,
    index_url: str | None = None,
    extra_index_urls: Sequence[str] = (),
    offline: bool = False,
    environ: Mapping[str, str] = os.environ,
) -> Plan:
    """Resolve requirements for machines; the ``status`` of the plan says whether there is an answer.

    Args:
        requirements: PEP 508 requirements, projects or addresses.
        machines: One plan that is good on all of them; this host where None.
        files: Requirement files (``-r``); ``constraints`` are those of ``-c``.
        projects: Projects with a ``pyproject.toml``, with the ``extras`` and dependency ``groups`` wanted of them.
        python: ``3.12``; the machine's own where None.
        cuda: A flavour (``cu126``, ``cpu``); the best where None.
        exclude_newer: ISO 8601 date or time; nothing published later is considered.
        prereleases: Consider pre-releases where no specifier names one.
        index_url: Default package index; the pip or uv configuration decides where None.
        extra_index_urls: Further indexes, asked only for names that the default one lacks.
        offline: Answer from the cache and the catalogue alone.

    Raises:
        UsageError: A requirement or a file cannot be read, an argument is of another type, or nothing is asked for.
        IndexUnavailableError: An index that only it can answer for failed.
    """
    from envsolve.planner.make import make_plan
    from envsolve.request import planned

    return planned(
        make_plan,
        requirements,
        machines_given(machines) or (detect(),),
        files=files,
        constraints=constraints,
        projects=projects,
        extras=extras,
        groups=groups,
        python=python,
        cuda=cuda,
        exclude_newer=exclude_newer,
        prereleases=prereleases,
        index_url=index_url,
        extra_index_urls=extra_index_urls,
        offline=offline,
        environ=environ,
    )


def plan_groups(requirements: Sequence[str], machines: Sequence[Machine], **options: Any) -> Plans:
    """The fewest plans that together serve all machines; requirements, options and errors are those of :func:`plan`."""
    from envsolve.planner.groups import make_plans
    from envsolve.request import planned

    return planned(make_plans, requirements, machines_given(machines), **options)


def builds(package: str, machines: Sequence[Machine] | None = None, *, python: str | None = None) -> BuildList:
    """Every published build of a torch-family package, with its verdict on each of the machines' GPUs."""
    from envsolve.builds import list_builds
    from envsolve.catalogue.load import Catalogue

    return list_builds(package, machines_given(machines) or (detect(),), python_version(python), Catalogue())
