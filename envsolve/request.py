"""What a program asks to be planned, in plain values: read, checked, and handed to a planner with facts and indexes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from msgspec.structs import replace

from envsolve.arguments import StrPath, items, paths, python_version
from envsolve.catalogue.load import Catalogue
from envsolve.compat.platform import assumed
from envsolve.errors import UsageError
from envsolve.index.client import IndexClient
from envsolve.index.settings import read_settings
from envsolve.machine.model import Machine
from envsolve.plan import Plan
from envsolve.planner.make import Choices
from envsolve.resolve.kept import versions_kept
from envsolve.resolve.requirements import Asked, read_requirements

Answer = TypeVar("Answer")
_CHANNELS = ("conda-forge",)
# What markers are weighed with in a conda plan for which no Python is named: the solve has yet to choose it.
_MARKERS_PYTHON = "3.12"


def planned(
    planner: Callable[[Asked, Sequence[Machine], Choices, Catalogue, IndexClient], Answer],
    requirements: Sequence[str],
    machines: Sequence[Machine],
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
    keep: Sequence[tuple[str, str]] = (),
    index_url: str | None = None,
    extra_index_urls: Sequence[str] = (),
    offline: bool = False,
    environ: Mapping[str, str] = os.environ,
) -> Answer:
    """Have a request planned; its parts are those of :func:`envsolve.api.plan`, and so are the errors.

    Args:
        planner: Makes one plan, or several.
        machines: At least one.
    """
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
    settings = read_settings(
        environ,
        index_url=index_url or next(iter(asked.index_urls), None),
        extra_index_urls=(*items(extra_index_urls, str, "extra_index_urls"), *asked.extra_index_urls),
    )
    early = prereleases or asked.prereleases
    choices = Choices(python_version(python), cuda, exclude_newer, early, versions_kept(keep))
    with IndexClient(settings, offline=offline) as client:
        return planner(asked, machines, choices, Catalogue(), client)


def conda_planned(
    requirements: Sequence[str],
    machines: Sequence[Machine],
    *,
    channels: Sequence[str] = (),
    files: Sequence[StrPath] = (),
    constraints: Sequence[StrPath] = (),
    projects: Sequence[StrPath] = (),
    extras: Sequence[str] = (),
    groups: Sequence[str] = (),
    python: str | None = None,
    cuda: str | None = None,
    exclude_newer: str | None = None,
    offline: bool = False,
    environ: Mapping[str, str] = os.environ,
) -> Plan:
    """Have a request planned with conda packages; its parts are those of :func:`envsolve.api.plan`, and so the errors.

    Args:
        machines: At least one.
        channels: Names or addresses, the preferred first; those that the files name where empty, else conda-forge.
    """
    from envsolve.conda.asked import read_asked
    from envsolve.conda.cautions import channel_address
    from envsolve.conda.client import Channels
    from envsolve.conda.make import make_conda_plan
    from envsolve.conda.pip_part import with_pip_part
    from envsolve.resolve.cutoff import cutoff_of
    from envsolve.resolve.environment import Environment

    if not (requirements or files or projects):
        raise UsageError("nothing to plan", hint="name packages, an environment.yml, requirement files or projects")
    catalogue = Catalogue()
    version = python_version(python)
    first = replace(machines[0], platform=assumed(machines[0].platform))
    asked = read_asked(
        items(requirements, str, "requirements"),
        paths(files, "files"),
        paths(constraints, "constraints"),
        catalogue.conda_names,
        Environment.of(first, version or first.python or _MARKERS_PYTHON),
        projects=paths(projects, "projects"),
        extras=items(extras, str, "extras"),
        groups=items(groups, str, "groups"),
    )
    names = items(channels, str, "channels") or asked.channels or _CHANNELS
    cutoff = cutoff_of(exclude_newer) if exclude_newer else None
    addresses = [channel_address(name, catalogue) for name in names]
    source = Channels(addresses, offline=offline, exclude_newer=cutoff)
    plan = make_conda_plan(asked, machines, Choices(version, cuda, exclude_newer), catalogue, source, names)
    if not asked.pip:
        return plan
    with IndexClient(read_settings(environ), offline=offline) as client:
        return with_pip_part(plan, asked.pip, machines, catalogue, client)
