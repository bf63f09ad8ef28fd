"""The plans for a request: for wheels or conda packages, for all machines together, in groups, or after a change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec import structs

from envsolve.errors import UsageError
from envsolve.machine.known import machines_given, machines_or_host
from envsolve.planning.request import Request
from envsolve.system.files import paths

if TYPE_CHECKING:
    from envsolve.facts.catalogue import Catalogue
    from envsolve.machine.model import Machine
    from envsolve.packages.client import IndexClient
    from envsolve.packages.requirements import Asked
    from envsolve.packages.settings import IndexSettings
    from envsolve.planning.groups import Plans, WhatIf
    from envsolve.planning.plan import Plan

_CHANNELS = ("conda-forge",)


def plan(request: Request, machines: Sequence[Machine] | None = None) -> Plan:
    """Resolve a request; the ``status`` of the plan says whether there is an answer.

    Args:
        request: What the plan is to contain.
        machines: The plan works on all of them; this host if None.

    Raises:
        UsageError: A requirement or file cannot be read, the request is empty, or there were never builds for its
            Python or variant.
        IndexUnavailableError: An index that is needed failed.
    """
    given = machines_or_host(machines)
    if request.manager == "conda":
        return _conda_plan(request, given)
    from envsolve.planning.make import make_plan

    with _ready(request) as (checked, asked, catalogue, client):
        return make_plan(asked, given, checked, catalogue, client)


def plan_groups(request: Request, machines: Sequence[Machine]) -> Plans:
    """Return the fewest plans that together work on all machines.

    Raises:
        UsageError: As :func:`plan`, or the request is for conda packages.
        IndexUnavailableError: As :func:`plan`.
    """
    from envsolve.planning.groups import make_plans

    given = machines_given(machines)
    with _ready(request) as (checked, asked, catalogue, client):
        return make_plans(asked, given, checked, catalogue, client)


def what_if(change: str, request: Request, machines: Sequence[Machine] | None = None) -> WhatIf:
    """Compare the plan for the machines with the plan for the machines after a change.

    Args:
        change: In the words of a target: ``driver 580``, ``RTX 5090, python 3.12``.
        request: What both plans are to contain.
        machines: The machines as they are; this host if None.

    Raises:
        UsageError: As :func:`plan_groups`, or the change cannot be read.
        IndexUnavailableError: As :func:`plan`.
    """
    from envsolve.planning.groups import make_what_if

    given = machines_or_host(machines)
    with _ready(request) as (checked, asked, catalogue, client):
        return make_what_if(change, asked, given, checked, catalogue, client)


@contextmanager
def _ready(request: Request) -> Iterator[tuple[Request, Asked, Catalogue, IndexClient]]:
    """Read a request's inputs and open its indexes.

    Raises:
        UsageError: As :func:`plan`.
    """
    from envsolve.facts.catalogue import Catalogue
    from envsolve.packages.requirement_files import read_requirements
    from envsolve.packages.settings import read_settings

    if request.manager == "conda":
        raise UsageError("only single plans can be of conda packages", hint="plan one by one")
    asked = read_requirements(
        request.requirements,
        paths(request.files, "files"),
        paths(request.constraints, "constraints"),
        projects=paths(request.projects, "projects"),
        extras=request.extras,
        groups=request.groups,
    )
    request.expect_something()
    settings = read_settings(
        request.environ,
        index_url=request.index_url or next(iter(asked.index_urls), None),
        extra_index_urls=(*request.extra_index_urls, *asked.extra_index_urls),
    )
    catalogue = Catalogue()
    checked = _checked(request, catalogue)
    with _client(settings, catalogue, offline=request.offline) as client:
        yield structs.replace(checked, prereleases=request.prereleases or asked.prereleases), asked, catalogue, client


def _client(settings: IndexSettings, catalogue: Catalogue, *, offline: bool) -> IndexClient:
    from envsolve.packages.client import IndexClient
    from envsolve.packages.model import KnownFiles

    return IndexClient(settings, offline=offline, known=KnownFiles(lambda: catalogue.known_metadata))


def _checked(request: Request, catalogue: Catalogue) -> Request:
    """Return the request with its Python as major and minor version.

    Raises:
        UsageError: There were never builds for the Python or the variant.
    """
    from envsolve.facts.catalogue import check_flavour, check_python

    if request.cuda is not None:
        check_flavour(request.cuda, catalogue)
    python = None if request.python is None else check_python(request.python, catalogue)
    return structs.replace(request, python=python)


def _conda_plan(request: Request, machines: Sequence[Machine]) -> Plan:
    from envsolve.facts.catalogue import Catalogue
    from envsolve.packages.conda_inputs import read_asked
    from envsolve.packages.settings import read_settings
    from envsolve.planning.conda import channel_address, make_conda_plan
    from envsolve.planning.conda_pip import with_pip_part
    from envsolve.rules.platform import Environment, admits_python, assumed
    from envsolve.solve.conda_channels import Channels
    from envsolve.solve.preferences import parse_exclude_newer

    request.expect_something()
    catalogue = Catalogue()
    request = _checked(request, catalogue)
    first = structs.replace(machines[0], platform=assumed(machines[0].platform))

    def markers_python(requires_python: str | None) -> str:
        # Markers need a Python that the projects allow, and the conda solve chooses the plan's only later.
        known = (*filter(None, [first.python]), *catalogue.pythons)
        return next((python for python in known if admits_python(requires_python, python)), known[0])

    asked = read_asked(
        request.requirements,
        paths(request.files, "files"),
        paths(request.constraints, "constraints"),
        catalogue.conda_names,
        lambda requires: Environment.of(first, request.python or markers_python(requires)),
        projects=paths(request.projects, "projects"),
        extras=request.extras,
        groups=request.groups,
    )
    names = tuple(request.channels) or asked.channels or _CHANNELS
    exclude_newer = parse_exclude_newer(request.exclude_newer) if request.exclude_newer else None
    urls = [channel_address(name, catalogue) for name in names]
    source = Channels(urls, offline=request.offline, exclude_newer=exclude_newer)
    made = make_conda_plan(asked, machines, request, catalogue, source, names)
    if not asked.pip:
        return made
    with _client(read_settings(request.environ), catalogue, offline=request.offline) as client:
        return with_pip_part(made, asked.pip, machines, catalogue, client)
