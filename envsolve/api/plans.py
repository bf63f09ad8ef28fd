"""What to install on machines: ``plan``, ``plan_groups``, ``what_if``, ``standing``, ``builds``."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from envsolve.api.machines import detect, machines_given
from envsolve.errors import UsageError
from envsolve.planning.request import StrPath, items, path_of, python_version

if TYPE_CHECKING:
    from envsolve.machine.model import Machine
    from envsolve.planning.builds import BuildList
    from envsolve.planning.groups import Plans, WhatIf
    from envsolve.planning.plan import Plan
    from envsolve.planning.request import Request


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
    keep: Sequence[tuple[str, str]] = (),
    index_url: str | None = None,
    extra_index_urls: Sequence[str] = (),
    offline: bool = False,
    manager: str | None = None,
    channels: Sequence[str] = (),
    environ: Mapping[str, str] = os.environ,
) -> Plan:
    """Resolve requirements for machines; the ``status`` of the plan says whether there is an answer.

    Args:
        requirements: PEP 508 requirements, projects or addresses.
        machines: One plan that is good on all of them; this host where None.
        files: Requirement files (``-r``), and for conda an ``environment.yml``; ``constraints`` are those of ``-c``.
        projects: Projects with a ``pyproject.toml``, with the ``extras`` and dependency ``groups`` wanted of them.
        python: ``3.12``; the machine's own where None.
        cuda: A flavour (``cu126``, ``cpu``); the best where None.
        exclude_newer: ISO 8601 date or time; nothing published later is considered.
        prereleases: Consider pre-releases where no specifier names one.
        keep: Names and versions to stay with where they still fit: :func:`standing`.
        index_url: Default package index; the pip or uv configuration decides where None.
        extra_index_urls: Further indexes, asked only for names that the default one lacks.
        offline: Answer from the cache and the catalogue alone.
        manager: ``conda`` for a plan of conda packages; all others install the same wheels.
        channels: conda channels, the preferred first: names or addresses; for ``conda`` alone.

    Raises:
        UsageError: A requirement or a file cannot be read, an argument is of another type or goes with another manager,
            nothing is asked for, or there were never builds for the Python or the flavour.
        IndexUnavailableError: An index that only it can answer for failed.
    """
    from envsolve.planning.make import make_plan
    from envsolve.planning.request import Request, planned

    request = Request.of(
        requirements,
        files=files,
        constraints=constraints,
        projects=projects,
        extras=extras,
        groups=groups,
        python=python,
        cuda=cuda,
        exclude_newer=exclude_newer,
        prereleases=prereleases,
        keep=keep,
        index_url=index_url,
        extra_index_urls=extra_index_urls,
        offline=offline,
        channels=channels,
        environ=environ,
    )
    if manager == "conda":
        return _conda_plan(request, machines)
    if request.channels:
        raise UsageError("channels are conda's", hint="plan with the manager conda")
    return planned(make_plan, request, machines_given(machines) or (detect(),))


def _conda_plan(request: Request, machines: Sequence[Machine] | None) -> Plan:
    from envsolve.planning.request import conda_planned

    others = [name for name in ("keep", "index_url", "extra_index_urls", "prereleases") if getattr(request, name)]
    if others:
        raise UsageError(f"{', '.join(others)}: not for conda packages", hint="leave it out, or plan with pip or uv")
    return conda_planned(request, machines_given(machines) or (detect(),))


def plan_groups(requirements: Sequence[str], machines: Sequence[Machine], **options: Any) -> Plans:
    """The fewest plans that together serve all machines; requirements, options and errors are those of :func:`plan`."""
    from envsolve.planning.groups import make_plans
    from envsolve.planning.request import Request, planned

    return planned(make_plans, Request.of(requirements, **options), machines_given(machines))


def what_if(change: str, requirements: Sequence[str], machines: Sequence[Machine] | None, **options: Any) -> WhatIf:
    """What a change to the machines would give, against the plan for them as they are.

    Args:
        change: In the words of a target: ``driver 580``, ``RTX 5090, python 3.12``.
        requirements: Like ``machines``, options and errors those of :func:`plan`.
    """
    from envsolve.planning.groups import make_what_if
    from envsolve.planning.request import Request, planned

    request = Request.of(requirements, **options)
    return planned(partial(make_what_if, change), request, machines_given(machines) or (detect(),))


def standing(
    lock: StrPath | None = None,
    *,
    prefix: StrPath | None = None,
    installed: str | None = None,
    upgrade: Sequence[str] = (),
) -> tuple[tuple[str, str], ...]:
    """Names and versions of what stands already, for :func:`plan` to keep.

    Args:
        lock: A pylock.toml; its versions go before the others.
        prefix: An environment.
        installed: Text of ``pip freeze``, ``pip list`` or ``conda list``, or JSON.
        upgrade: Packages that may move.

    Raises:
        UsageError: There is no such lock or environment, or the text holds no package with a version.
    """
    if lock is None and prefix is None and installed is None:
        return ()
    from packaging.utils import canonicalize_name

    from envsolve.diagnose.report import read_installed
    from envsolve.install import lock_classes as stands

    found: list[tuple[str, str]] = []
    if lock is not None:
        found += stands.locked(path_of(lock, "lock"))
    if prefix is not None:
        found += stands.installed(path_of(prefix, "prefix"))
    if installed is not None:
        found += ((name, seen.value) for name, seen in read_installed(installed).items())
    moving = {canonicalize_name(name) for name in items(upgrade, str, "upgrade")}
    return tuple((name, version) for name, version in found if canonicalize_name(name) not in moving)


def builds(package: str, machines: Sequence[Machine] | None = None, *, python: str | None = None) -> BuildList:
    """Every published build of a torch-family package, with its verdict on each of the machines' GPUs.

    Args:
        package: Its name.
        machines: This machine where None.
        python: ``3.12``; the machine's own where None.
    """
    from envsolve.facts.catalogue import Catalogue, check_python
    from envsolve.planning.builds import list_builds
    from envsolve.rules.judge import python_of

    here, catalogue = machines_given(machines) or (detect(),), Catalogue()
    named = python_version(python)
    return list_builds(package, here, check_python(named, catalogue) if named else python_of(here), catalogue)
