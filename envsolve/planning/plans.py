"""The plans for a request: for wheels or conda packages, for all machines together, in groups, or after a change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec import structs

from envsolve.errors import UsageError
from envsolve.machine.known import machines_given, machines_or_host
from envsolve.planning.request import Request, check_names
from envsolve.system.files import paths
from envsolve.system.progress import phase

if TYPE_CHECKING:
    from envsolve.facts.catalogue import Catalogue
    from envsolve.machine.model import Machine
    from envsolve.packages.client import IndexClient
    from envsolve.packages.conda_inputs import CondaAsked
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
        UsageError: A requirement or file cannot be read, the request is empty, a name is a known mistake, or there were
            never builds for its Python or variant.
        IndexUnavailableError: An index that is needed failed.
    """
    given = machines_or_host(machines)
    if request.manager == "conda":
        return _conda_plan(request, given)
    from envsolve.planning.assumptions import plan_assuming

    with _ready(request) as (checked, asked, catalogue, client):
        return plan_assuming(asked, given, checked, catalogue, client)


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
    from envsolve.packages.settings import about_indexes_of

    # conda solves for the virtual packages of one machine; an environment for several has no meaning there.
    if request.manager == "conda":
        raise UsageError("what-if and groups of machines do not support conda packages", hint="make one plan at a time")
    asked = read_requirements(
        request.requirements,
        paths(request.files, "files"),
        paths(request.constraints, "constraints"),
        projects=paths(request.projects, "projects"),
        extras=request.extras,
        groups=request.groups,
    )
    # After the files were read, so that a fault in one of them is reported first.
    request.expect_something()
    settings = _settings(request, asked)
    # One that names the default index again is none of the extras.
    extras = [url for url in asked.extra_index_urls if url in settings.extras]
    about = about_indexes_of(asked.index_urls, extras, settings.strategy)
    asked = structs.replace(asked, notes=(*asked.notes, *about))
    catalogue = Catalogue()
    checked = _checked(request, catalogue)
    # Before any index is asked, so that a misspelt name never reaches somebody who registered it on purpose.
    if not request.allow_unknown_names:
        check_names(asked.needs, catalogue)
    with _client(settings, catalogue, offline=request.offline) as client:
        checked = structs.replace(
            checked,
            prereleases=request.prereleases or asked.prereleases,
            exclude_newer=request.exclude_newer or asked.exclude_newer,
        )
        # The client closes its connections and writes its cache only after the caller has made the plan.
        phase("choosing versions")
        yield *for_python_of_lock(checked, asked, catalogue), catalogue, client


def for_python_of_lock(request: Request, asked: Asked, catalogue: Catalogue) -> tuple[Request, Asked]:
    """Limit the requirements to the Pythons of an earlier lock, or set its ``requires-python`` aside with a note."""
    from envsolve.rules.platform import admits_python

    if request.python is not None or request.requires_python is None:
        return request, asked
    both = ",".join(filter(None, (asked.requires_python, request.requires_python)))
    # Both together may admit nothing although each admits something: ">=3.13" of a project beside a lock for 3.12.
    if any(admits_python(both, python) for python in catalogue.pythons):
        return request, structs.replace(asked, requires_python=both)
    note = f"no Python satisfies the lock's requires-python, {request.requires_python}"
    note += f", and {asked.requires_python} of the projects" if asked.requires_python else ""
    notes = (*asked.notes, f"{note}; the plan may be for a different Python than the lock")
    return structs.replace(request, requires_python=None), structs.replace(asked, notes=notes)


def _settings(request: Request, asked: Asked) -> IndexSettings:
    """The index settings, those of the inputs among them."""
    from envsolve.packages.settings import read_settings

    settings = read_settings(
        request.environ,
        # The last --index-url of requirement files wins, as in pip.
        index_url=request.index_url or next(reversed(asked.index_urls), None),
        extra_index_urls=(*request.extra_index_urls, *asked.extra_index_urls),
        find_links=(*request.find_links, *asked.find_links),
    )
    no_index = request.no_index or asked.no_index or settings.no_index
    strategy = request.index_strategy or settings.strategy
    return structs.replace(settings, pinned=dict(asked.indexes), no_index=no_index, strategy=strategy)


def _client(settings: IndexSettings, catalogue: Catalogue, *, offline: bool) -> IndexClient:
    from envsolve.facts.files import PLACEHOLDERS
    from envsolve.packages.cache import KnownFiles
    from envsolve.packages.client import IndexClient

    # Behind functions: these are the largest tables of the catalogue, and many plans never look at them.
    known = KnownFiles(catalogue.late_metadata, lambda: catalogue.records(PLACEHOLDERS))
    return IndexClient(settings, offline=offline, known=known)


def _checked(request: Request, catalogue: Catalogue) -> Request:
    """Return the request with its Python as major and minor version.

    Raises:
        UsageError: There were never builds for the Python or the variant.
    """
    from envsolve.facts.choices import check_python, check_variant

    if request.cuda is not None:
        check_variant(request.cuda, catalogue)
    python = None if request.python is None else check_python(request.python, catalogue)
    return structs.replace(request, python=python)


def _conda_plan(request: Request, machines: Sequence[Machine]) -> Plan:
    from envsolve.facts.catalogue import Catalogue
    from envsolve.packages.conda_inputs import read_asked
    from envsolve.planning.conda import channel_address, make_conda_plan
    from envsolve.rules.platform import Environment, assumed
    from envsolve.solve.conda_channels import Channels
    from envsolve.solve.preferences import parse_exclude_newer

    request.expect_something()
    catalogue = Catalogue()
    request = _checked(request, catalogue)
    first = structs.replace(machines[0], platform=assumed(machines[0].platform))

    def read(python: str) -> CondaAsked:
        return read_asked(
            request.requirements,
            paths(request.files, "files"),
            paths(request.constraints, "constraints"),
            catalogue.conda_names,
            Environment.of(first, python),
            projects=paths(request.projects, "projects"),
            extras=request.extras,
            groups=request.groups,
        )

    # Markers need a Python, and the solve chooses it only later: the first that the request allows is tried first.
    known = (*filter(None, [request.python or first.python]), *catalogue.pythons)
    asked = read(known[0])
    python = next((one for one in known if request.python or asked.admits_python(one)), known[0])
    if python != known[0]:
        asked = read(python)
    names = tuple(request.channels) or asked.channels or _CHANNELS
    request = structs.replace(request, exclude_newer=request.exclude_newer or asked.exclude_newer)
    exclude_newer = parse_exclude_newer(request.exclude_newer) if request.exclude_newer else None
    urls = [channel_address(name, catalogue) for name in names]
    phase("reading conda channels and choosing versions")
    source = Channels(urls, offline=request.offline, exclude_newer=exclude_newer)

    def solved(asked: CondaAsked, python: str | None) -> Plan:
        return make_conda_plan(asked, machines, structs.replace(request, python=python), catalogue, source, names)

    made = solved(asked, request.python)
    if made.python not in (None, python) and (again := read(str(made.python))) != asked:
        other = solved(again, made.python)
        asked, made = (asked, solved(asked, python)) if other.status == "impossible" else (again, other)
    if not asked.pip.needs:
        return made
    from envsolve.planning.conda_pip import with_pip_part

    settings = _settings(request, asked.pip)
    with _client(settings, catalogue, offline=request.offline) as client:
        return with_pip_part(made, asked.pip, request, catalogue, client, client.without_login(settings.default))
