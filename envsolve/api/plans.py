"""What to install on machines: ``plan``, ``builds``."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from envsolve.api.machines import detect, machines_given
from envsolve.arguments import StrPath, items, paths, python_version
from envsolve.errors import UsageError

if TYPE_CHECKING:
    from envsolve.builds import BuildList
    from envsolve.machine.model import Machine
    from envsolve.plan import Plan


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
    """Resolve requirements for machines.

    Args:
        requirements: PEP 508 requirements, projects or addresses.
        machines: One plan that is good on all of them; this host where None.
        files: Requirement files (``-r``).
        constraints: Constraint files (``-c``).
        projects: Projects with a ``pyproject.toml``, with the ``extras`` and dependency ``groups`` wanted of them.
        python: ``3.12``; the machine's own where None.
        cuda: A flavour (``cu126``, ``cpu``); the best where None.
        exclude_newer: ISO 8601 date or time; nothing published later is considered.
        prereleases: Consider pre-releases where no specifier names one.
        index_url: Default package index; the pip or uv configuration decides where None.
        extra_index_urls: Further indexes, asked only for names that the default one lacks.
        offline: Answer from the cache and the catalogue alone.

    Returns:
        A plan; its ``status`` says whether there is an answer.

    Raises:
        UsageError: A requirement or a file cannot be read, an argument is of another type, or nothing is asked for.
        IndexUnavailableError: An index that only it can answer for failed.
    """
    from envsolve.catalogue.load import Catalogue
    from envsolve.index.client import IndexClient
    from envsolve.index.settings import read_settings
    from envsolve.planner.make import Choices, make_plan
    from envsolve.resolve.requirements import read_requirements

    asked = read_requirements(
        items(requirements, str, "requirements"),
        paths(files, "files"),
        paths(constraints, "constraints"),
        projects=paths(projects, "projects"),
        extras=items(extras, str, "extras"),
        groups=items(groups, str, "groups"),
    )
    if not (requirements or files or projects):
        raise UsageError("nothing to plan", hint="name packages, requirement files or projects")
    python = python_version(python)
    chosen = machines_given(machines)
    settings = read_settings(
        environ,
        index_url=index_url or next(iter(asked.index_urls), None),
        extra_index_urls=(*items(extra_index_urls, str, "extra_index_urls"), *asked.extra_index_urls),
    )
    choices = Choices(python, cuda, exclude_newer, prereleases or asked.prereleases)
    with IndexClient(settings, offline=offline) as client:
        return make_plan(asked, chosen or (detect(),), choices, Catalogue(), client)


def builds(package: str, machines: Sequence[Machine] | None = None, *, python: str | None = None) -> BuildList:
    """Every published build of a torch-family package, with its verdict on each of the machines' GPUs."""
    from envsolve.builds import list_builds
    from envsolve.catalogue.load import Catalogue

    return list_builds(package, machines_given(machines) or (detect(),), python_version(python), Catalogue())
