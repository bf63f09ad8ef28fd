"""What a program asks to be planned, in plain values: read, checked, and handed to a planner with facts and indexes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import structs

from envsolve.arguments import items, paths, python_version
from envsolve.errors import UsageError

if TYPE_CHECKING:
    from envsolve.catalogue.load import Catalogue
    from envsolve.index.client import IndexClient
    from envsolve.machine.model import Machine
    from envsolve.plan import Plan
    from envsolve.planner.make import Choices
    from envsolve.resolve.requirements import Asked

Answer = TypeVar("Answer")
_CHANNELS = ("conda-forge",)
# What markers are weighed with in a conda plan for which no Python is named: the solve has yet to choose it.
_MARKERS_PYTHON = "3.12"
_TEXTS = ("requirements", "extras", "groups", "extra_index_urls", "channels")
_PATHS = ("files", "constraints", "projects")


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """All that is asked of a plan, bar the machines; its parts are those of :func:`envsolve.api.plan`."""

    requirements: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()
    constraints: tuple[Path, ...] = ()
    projects: tuple[Path, ...] = ()
    extras: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    python: str | None = None
    cuda: str | None = None
    exclude_newer: str | None = None
    prereleases: bool = False
    keep: tuple[tuple[str, str], ...] = ()
    index_url: str | None = None
    extra_index_urls: tuple[str, ...] = ()
    offline: bool = False
    channels: tuple[str, ...] = ()
    environ: Mapping[str, str] = msgspec.field(default_factory=lambda: os.environ)

    @classmethod
    def of(cls, requirements: Sequence[str], **given: Any) -> Request:
        """A request as a program passes it.

        Raises:
            UsageError: A part is of another type.
            TypeError: There is no such part.
        """
        given = {"requirements": requirements, **given}
        lists = {name: items(given[name], str, name) for name in _TEXTS if name in given}
        places = {name: paths(given[name], name) for name in _PATHS if name in given}
        python_version(given.get("python"))
        return cls(**{**given, **lists, **places, "keep": tuple(given.get("keep", ()))})

    def check_not_empty(self, hint: str) -> None:
        """Refuse a request for nothing.

        Raises:
            UsageError: It is one.
        """
        if not (self.requirements or self.files or self.projects):
            raise UsageError("nothing to plan", hint=hint)


def planned(
    planner: Callable[[Asked, Sequence[Machine], Choices, Catalogue, IndexClient], Answer],
    request: Request,
    machines: Sequence[Machine],
) -> Answer:
    """Have a request planned; the errors are those of :func:`envsolve.api.plan`.

    Args:
        planner: Makes one plan, or several.
        machines: At least one.
    """
    from envsolve.catalogue.load import Catalogue
    from envsolve.index.client import IndexClient
    from envsolve.index.known import KnownFiles
    from envsolve.index.settings import read_settings
    from envsolve.planner.make import Choices
    from envsolve.resolve.kept import versions_kept
    from envsolve.resolve.requirements import read_requirements

    asked = read_requirements(
        request.requirements,
        request.files,
        request.constraints,
        projects=request.projects,
        extras=request.extras,
        groups=request.groups,
    )
    request.check_not_empty("name packages, requirement files or projects")
    settings = read_settings(
        request.environ,
        index_url=request.index_url or next(iter(asked.index_urls), None),
        extra_index_urls=(*request.extra_index_urls, *asked.extra_index_urls),
    )
    catalogue = Catalogue()
    request = _checked(request, catalogue)
    early = request.prereleases or asked.prereleases
    choices = Choices(request.python, request.cuda, request.exclude_newer, early, versions_kept(request.keep))
    known = KnownFiles(lambda: catalogue.known_metadata)
    with IndexClient(settings, offline=request.offline, known=known) as client:
        return planner(asked, machines, choices, catalogue, client)


def _checked(request: Request, catalogue: Catalogue) -> Request:
    """The request with its Python as major and minor, if there were ever builds for that and for its flavour.

    Raises:
        UsageError: There were none.
    """
    from envsolve.catalogue.published import check_flavour, check_python

    if request.cuda is not None:
        check_flavour(request.cuda, catalogue)
    python = None if request.python is None else check_python(request.python, catalogue)
    return structs.replace(request, python=python)


def conda_planned(request: Request, machines: Sequence[Machine]) -> Plan:
    """Have a request planned with conda packages; the errors are those of :func:`envsolve.api.plan`.

    Args:
        machines: At least one.
    """
    from envsolve.catalogue.load import Catalogue
    from envsolve.compat.platform import assumed
    from envsolve.conda.asked import read_asked
    from envsolve.conda.cautions import channel_address
    from envsolve.conda.client import Channels
    from envsolve.conda.make import make_conda_plan
    from envsolve.conda.pip_part import with_pip_part
    from envsolve.index.client import IndexClient
    from envsolve.index.known import KnownFiles
    from envsolve.index.settings import read_settings
    from envsolve.planner.make import Choices
    from envsolve.resolve.cutoff import cutoff_of
    from envsolve.resolve.environment import Environment

    request.check_not_empty("name packages, an environment.yml, requirement files or projects")
    catalogue = Catalogue()
    request = _checked(request, catalogue)
    first = structs.replace(machines[0], platform=assumed(machines[0].platform))
    asked = read_asked(
        request.requirements,
        request.files,
        request.constraints,
        catalogue.conda_names,
        Environment.of(first, request.python or first.python or _MARKERS_PYTHON),
        projects=request.projects,
        extras=request.extras,
        groups=request.groups,
    )
    names = request.channels or asked.channels or _CHANNELS
    cutoff = cutoff_of(request.exclude_newer) if request.exclude_newer else None
    addresses = [channel_address(name, catalogue) for name in names]
    source = Channels(addresses, offline=request.offline, exclude_newer=cutoff)
    choices = Choices(request.python, request.cuda, request.exclude_newer)
    plan = make_conda_plan(asked, machines, choices, catalogue, source, names)
    if not asked.pip:
        return plan
    known = KnownFiles(lambda: catalogue.known_metadata)
    with IndexClient(read_settings(request.environ), offline=request.offline, known=known) as client:
        return with_pip_part(plan, asked.pip, machines, catalogue, client)
