"""The request: what the user asked for, as one value from the command line to the solver."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

import msgspec
from msgspec import structs
from packaging.utils import canonicalize_name

from envsolve.errors import UsageError
from envsolve.system.files import StrPath, items, paths

if TYPE_CHECKING:
    from envsolve.facts.catalogue import Catalogue
    from envsolve.facts.evidence import PackageNames
    from envsolve.machine.model import Machine
    from envsolve.packages.client import IndexClient
    from envsolve.packages.requirements import Asked, Need
    from envsolve.packages.sdists import MetadataBuilds
    from envsolve.solve.outcome import PlanWarning

# trch and torch are alike by 0.89, torchvisoin and torchvision by 0.91; tomlkit and toolkit, both real, by 0.71.
_NEAR = 0.86
#: Names in a project are installed each day; of 1,105 real ones two were nearly the name of a better known package.
_IN_PROJECT = re.compile(r"(?:pyproject\.toml|setup\.cfg) \[")
_PYTHON = r"(?a)3\.\d{1,2}(?:\.\d+)?"
_TEXTS = ("requirements", "extras", "groups", "extra_index_urls", "find_links", "channels")
_PATHS = ("files", "constraints", "projects")
# As in envsolve.packages.settings, which a request does not load.
_STRATEGIES = ("first-index", "unsafe-best-match")
_NOT_FOR_CONDA = ("keep", "requires_python", "index_url", "extra_index_urls", "find_links", "no_index", "prereleases")


class Request(msgspec.Struct, frozen=True):
    """The contents of a plan and how to choose it; the machines are separate.

    Attributes:
        requirements: PEP 508 requirements, projects or URLs.
        files: Requirement files (``-r``); for conda also an ``environment.yml``.
        constraints: Constraint files (``-c``).
        projects: Projects with a ``pyproject.toml``.
        extras: Extras of the projects.
        groups: Dependency groups of the projects.
        python: ``3.12``; the machine's own if None.
        requires_python: What an earlier lock requires of Python, ``==3.11.*``; not used if a Python is given, or if no
            known Python satisfies it together with the projects.
        cuda: An accelerator variant (``cu126``, ``cpu``); the best one if None.
        exclude_newer: ISO 8601 date or time; files uploaded later are ignored.
        prereleases: Whether to consider pre-releases if no specifier names one.
        keep: Names and versions to prefer, as :func:`envsolve.installed_versions` returns them.
        index_url: The default package index; the configuration of pip or uv decides if None.
        extra_index_urls: More indexes, used only for names that the default one lacks.
        index_strategy: ``first-index``, or ``unsafe-best-match`` to merge all indexes as pip does; uv's configuration
            decides if None.
        find_links: Directories, pages and archives, by path or URL, whose files count besides those of the indexes.
        no_index: Whether to ask no index, and take only what ``find_links`` has.
        offline: Whether to use only the cache and the catalogue.
        manager: ``conda`` for a plan of conda packages; every other manager installs the same wheels.
        channels: conda channels, the preferred first: names or URLs.
        allow_unknown_names: Whether to plan names that look like a mistake, such as ``pytorch`` or ``trch``.
        build_metadata: Whether pip may build the metadata that source archives do not state, which runs their code.
        environ: Environment variables, for the configuration of the indexes.

    Raises:
        UsageError: A field has the wrong type, or two fields contradict each other.
    """

    requirements: Sequence[str] = ()
    files: Sequence[StrPath] = ()
    constraints: Sequence[StrPath] = ()
    projects: Sequence[StrPath] = ()
    extras: Sequence[str] = ()
    groups: Sequence[str] = ()
    python: str | None = None
    requires_python: str | None = None
    cuda: str | None = None
    exclude_newer: str | None = None
    prereleases: bool = False
    keep: Sequence[tuple[str, str]] = ()
    index_url: str | None = None
    extra_index_urls: Sequence[str] = ()
    index_strategy: str | None = None
    find_links: Sequence[str] = ()
    no_index: bool = False
    offline: bool = False
    manager: str | None = None
    channels: Sequence[str] = ()
    allow_unknown_names: bool = False
    build_metadata: bool = False
    environ: Mapping[str, str] = msgspec.field(default_factory=lambda: os.environ)

    def __post_init__(self) -> None:
        for name in _TEXTS:
            structs.force_setattr(self, name, items(getattr(self, name), str, name))
        for name in _PATHS:
            structs.force_setattr(self, name, paths(getattr(self, name), name))
        structs.force_setattr(self, "keep", tuple(self.keep))
        check_python_text(self.python)
        if self.index_strategy not in (None, *_STRATEGIES):
            hint = f"choose {' or '.join(_STRATEGIES)}"
            raise UsageError(f"index strategy: {self.index_strategy!r} is not known", hint=hint)
        if self.manager == "conda":
            if others := [name for name in _NOT_FOR_CONDA if getattr(self, name)]:
                hint = "leave them out, or plan with pip or uv"
                raise UsageError(f"{', '.join(others)}: conda plans do not support these settings", hint=hint)
        elif self.channels:
            raise UsageError("channels apply only to conda packages", hint="set the manager to conda")

    def metadata_builds(self, client: IndexClient, python: str) -> MetadataBuilds | None:
        """The builder of metadata of source archives for a Python; None if that is not allowed."""
        if not self.build_metadata:
            return None
        from envsolve.packages.sdists import MetadataBuilds

        return MetadataBuilds(client, python, self.environ)

    def expect_something(self) -> None:
        """Raise a UsageError if the request names nothing to plan."""
        if not (self.requirements or self.files or self.projects):
            raise UsageError("nothing to plan", hint="give packages, requirements files or projects")


def with_hidden_gpus(
    machines: Sequence[Machine], asked: Asked, request: Request, catalogue: Catalogue
) -> tuple[tuple[Machine, ...], tuple[PlanWarning, ...]]:
    """The machines, with unknown GPUs where none is in sight although something says that one is meant.

    A login node, a container without GPU access and a CI runner show no GPU; a CPU plan for them would be a wrong yes.
    """
    from envsolve.solve.outcome import PlanWarning  # a request is made before anything of the solve is imported

    needing = sorted(
        {
            name
            for name in (canonicalize_name(need.requirement.name) for need in asked.needs)
            if any(project.gpu_only for project in catalogue.source_projects if project.package == name)
            or ((builds := catalogue.builds(name)) and all((b.variant or "cpu").startswith("cu") for b in builds))
        }
    )
    found: list[Machine] = []
    warnings: list[PlanWarning] = []
    for machine in machines:
        bare = machine.gpus == () and not machine.accelerators and request.cuda is None
        if bare and (machine.driver is not None or needing):
            what = f"{' and '.join(needing)} only runs on a GPU" if needing else "the machine has a GPU driver"
            hint = "give the GPU: --target 'H100, driver 580'; or plan for the CPU: --cuda cpu"
            warnings.append(PlanWarning("gpu-hidden", f"{what}, but no GPU was found", hint))
            machine = structs.replace(machine, gpus=None, accelerators=None)
        found.append(machine)
    return tuple(found), tuple(dict.fromkeys(warnings))


def check_names(needs: Sequence[Need], catalogue: Catalogue) -> None:
    """Refuse names that are known mistakes, or, outside of projects, nearly the name of a known package.

    A project with nearly the same name often exists on the index, by chance or to catch such mistakes.

    Raises:
        UsageError: There is such a name; the message suggests the right one.
    """
    published = {*catalogue.packages(), *catalogue.family}
    built = published | {project.package for project in catalogue.source_projects}
    by_name = {canonicalize_name(need.requirement.name): need for need in needs if need.requirement.url is None}
    # Of what is compiled from a repository, the index may have another project of the same name. Who asks for a
    # name that was given up (tensorflow-gpu) names a version that was published under it.
    mistakes = _mistakes(catalogue)
    published -= {name for name, need in by_name.items() if name in mistakes and not need.requirement.specifier}
    asked = {name: need for name, need in by_name.items() if name not in published}
    if not asked:
        return
    popular = {name for group in catalogue.package_names if not (group.means or group.note) for name in group.names}
    for name, need in asked.items():
        if mistake := mistakes.get(name):
            _refuse_name(need, mistake.means, mistake.note)
        elif name not in popular and not _IN_PROJECT.search(need.origin) and (near := _near(name, catalogue, built)):
            _refuse_name(need, near, None)


def _mistakes(catalogue: Catalogue) -> dict[str, PackageNames]:
    return {name: group for group in catalogue.package_names if group.means or group.note for name in group.names}


def _near(name: str, catalogue: Catalogue, built: set[str]) -> str | None:
    """Return the known package that a name nearly is; None if it is one itself, or only its number differs."""
    from difflib import get_close_matches

    known = built | {record.package for record in catalogue.known_metadata}
    if name in known:
        return None
    # nvidia-cublas-cu11 is not a mistake for nvidia-cublas-cu12, and transformer-engine-jax is not transformer-engine.
    near = (one for one in get_close_matches(name, known, 5, _NEAR) if _letters(one) != _letters(name))
    return next((one for one in near if not _has_more_words(name, one)), None)


def _has_more_words(name: str, other: str) -> bool:
    """Whether a name has all the words of another, and more: a project beside it rather than a mistake for it."""
    return {*other.split("-")} < {*name.split("-")}


def _letters(name: str) -> str:
    return re.sub(r"\d", "", name)


def _refuse_name(need: Need, means: str | None, note: str | None) -> NoReturn:
    question = f"did you mean {means}?" if means else "the package is not installed under this name"
    place = "" if need.origin == "command line" else f"{need.origin}: "
    hint = f"{note or f'write {means}'}; to use the name as it is, add --allow-unknown-names"
    raise UsageError(f"{place}{need.requirement.name}: {question}", hint=hint)


def check_python_text(value: object) -> str | None:
    """Return a Python version, ``3.12``, or None.

    Raises:
        UsageError: It is anything else; a float is refused, since 3.1 and 3.10 are the same float.
    """
    if value is None or (isinstance(value, str) and re.fullmatch(_PYTHON, value)):
        return value
    raise UsageError(f"python: {value!r} is not a Python version", hint='write it as a string: "3.12"')
