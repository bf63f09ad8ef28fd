"""What a program asks to be planned, in plain values: read, checked, and handed to a planner with facts and indexes."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import structs

from envsolve.errors import UsageError

if TYPE_CHECKING:
    from envsolve.facts.catalogue import Catalogue
    from envsolve.machine.model import Machine
    from envsolve.packages.client import IndexClient
    from envsolve.packages.requirements import Asked
    from envsolve.planning.make import Choices
    from envsolve.planning.plan import Plan


# Checks of what a program passes to :mod:`envsolve.api`, where Python's types alone would let a mistake through.


StrPath = str | os.PathLike[str]
Item = TypeVar("Item")

_PYTHON = r"(?a)3\.\d{1,2}(?:\.\d+)?"


def path_of(value: StrPath, name: str) -> Path:
    """A path that was given as text or as a path.

    Raises:
        UsageError: It is neither.
    """
    try:
        return Path(value)
    except TypeError:
        raise UsageError(f"{name}: {value!r} is not a path", hint="give a str or a pathlib.Path") from None


def program_of(value: StrPath, name: str) -> Path:
    """The path of a program; text that is a bare name may be found along PATH, ``./name`` and a path may not.

    Raises:
        UsageError: It is neither text nor a path, or empty.
    """
    path = path_of(value, name)
    if value == "":
        raise UsageError(f"{name}: the path is empty", hint="name the program")
    # A Path no longer tells ./name from name.
    return path if isinstance(value, str) and not os.path.dirname(value) else path.absolute()  # noqa: PTH120


def items(values: Iterable[Item] | None, kinds: type | tuple[type, ...], name: str) -> tuple[Item, ...]:
    """The members of a list; None is an empty one.

    Raises:
        UsageError: It is a single value (a str is a sequence of letters, and is never meant so), or a member is of
            another kind.
    """
    if values is None:
        return ()
    if isinstance(values, (str, bytes, os.PathLike)) or not isinstance(values, Iterable):
        shown = repr(values) if isinstance(values, str) else f"a {type(values).__name__}"
        raise UsageError(f"{name}: {shown} is not a list", hint="give a list, also of one")
    members = tuple(values)
    for member in members:
        if not isinstance(member, kinds):
            wanted = " or ".join(kind.__name__ for kind in (kinds if isinstance(kinds, tuple) else (kinds,)))
            raise UsageError(f"{name}: {member!r} is not of type {wanted}", hint=f"give a list of {wanted}")
    return members


def paths(values: Iterable[StrPath] | None, name: str) -> tuple[Path, ...]:
    """The paths of a list.

    Raises:
        UsageError: As :func:`items`.
    """
    return tuple(Path(value) for value in items(values, (str, os.PathLike), name))


def python_version(value: Any) -> str | None:
    """A Python version as text, ``3.12``, or None.

    Raises:
        UsageError: It is none; a float is refused, since 3.1 and 3.10 are the same one.
    """
    if value is None or (isinstance(value, str) and re.fullmatch(_PYTHON, value)):
        return value
    raise UsageError(f"python: {value!r} is not a Python version", hint='write it as text, "3.12"')


Answer = TypeVar("Answer")
_CHANNELS = ("conda-forge",)
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
    from envsolve.facts.catalogue import Catalogue
    from envsolve.packages.client import IndexClient
    from envsolve.packages.model import KnownFiles
    from envsolve.packages.requirement_files import read_requirements
    from envsolve.packages.settings import read_settings
    from envsolve.planning.make import Choices
    from envsolve.solve.preferences import versions_kept

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
    from envsolve.facts.catalogue import check_flavour, check_python

    if request.cuda is not None:
        check_flavour(request.cuda, catalogue)
    python = None if request.python is None else check_python(request.python, catalogue)
    return structs.replace(request, python=python)


def conda_planned(request: Request, machines: Sequence[Machine]) -> Plan:
    """Have a request planned with conda packages; the errors are those of :func:`envsolve.api.plan`.

    Args:
        machines: At least one.
    """
    from envsolve.facts.catalogue import Catalogue
    from envsolve.packages.client import IndexClient
    from envsolve.packages.conda_inputs import read_asked
    from envsolve.packages.model import KnownFiles
    from envsolve.packages.settings import read_settings
    from envsolve.planning.conda import channel_address, make_conda_plan
    from envsolve.planning.conda_pip import with_pip_part
    from envsolve.planning.make import Choices
    from envsolve.rules.platform import Environment, admits_python, assumed
    from envsolve.solve.conda_channels import Channels
    from envsolve.solve.preferences import cutoff_of

    request.check_not_empty("name packages, an environment.yml, requirement files or projects")
    catalogue = Catalogue()
    request = _checked(request, catalogue)
    first = structs.replace(machines[0], platform=assumed(machines[0].platform))

    def markers_python(requires_python: str | None) -> str:
        """A Python that the projects allow, for markers: the solve has yet to choose the plan's."""
        known = (*filter(None, [first.python]), *catalogue.pythons)
        return next((python for python in known if admits_python(requires_python, python)), known[0])

    asked = read_asked(
        request.requirements,
        request.files,
        request.constraints,
        catalogue.conda_names,
        lambda requires: Environment.of(first, request.python or markers_python(requires)),
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
