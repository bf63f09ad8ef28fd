"""Projects: the dependencies, extras (PEP 621) and groups (PEP 735) of a ``pyproject.toml``, and what its tool adds."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from packaging.dependency_groups import DependencyGroupResolver
from packaging.errors import ExceptionGroup
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from envsolve.packages.requirements import COMMAND_LINE, Asked, Need, Source, combine, read_requirement, wrong
from envsolve.system.files import is_folder, read_regular

# The index of a variant, as PyTorch and its mirrors lay them out.
_VARIANT = re.compile(r"/(?:cu\d{2,3}|cpu|xpu|rocm[\d.]+)/?$")


class ProjectTable(msgspec.Struct, frozen=True, rename="kebab"):
    """The part of ``[project]`` that decides a plan."""

    name: str | None = None
    version: str | None = None
    requires_python: str | None = None
    dependencies: tuple[str, ...] = ()
    optional_dependencies: dict[str, tuple[str, ...]] = {}
    dynamic: tuple[str, ...] = ()


class _File(msgspec.Struct, frozen=True, rename="kebab"):
    project: ProjectTable | None = None
    # Its members are checked by packaging, whose messages name the group.
    dependency_groups: dict[str, list[Any]] = {}
    tool: dict[str, Any] = {}


class Project(msgspec.Struct, frozen=True):
    """A ``pyproject.toml`` that was read, with the path as it was given; each table may be empty.

    Attributes:
        tool: Its ``[tool]`` table.
        text: The whole file.
    """

    path: Path
    table: ProjectTable
    groups: dict[str, list[Any]]
    tool: dict[str, Any] = {}
    text: str = ""

    @property
    def extras(self) -> dict[str, tuple[str, ...]]:
        """The optional dependencies by normalised extra."""
        return {canonicalize_name(name): lines for name, lines in self.table.optional_dependencies.items()}

    @property
    def group_names(self) -> frozenset[str]:
        """The normalised names of its dependency groups."""
        return frozenset(canonicalize_name(name) for name in self.groups)


def load_project(path: Path, origin: str | None = None) -> Project:
    """Read a ``pyproject.toml``, or that of a directory.

    Args:
        path: The file or the directory.
        origin: Where the path was named, for messages.

    Raises:
        UsageError: There is no such file, or it does not describe dependencies.
    """
    path = path / "pyproject.toml" if is_folder(path) else path
    try:
        text = read_regular(path).decode("utf-8-sig")
        file = msgspec.toml.decode(text, type=_File)
    except OSError as error:
        hint = "name a folder with a pyproject.toml, or that file; `NAME @ FOLDER` builds what is in a folder"
        what = f"the project cannot be read: {error.strerror}"
        raise wrong(f"{origin}: {path}" if origin else str(path), what, hint) from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise wrong(str(path), str(error)) from None
    groups = dict(file.dependency_groups)
    if isinstance(old := file.tool.get("uv", {}).get("dev-dependencies"), list):
        groups["dev"] = [*groups.get("dev", []), *old]
    if file.project is None and not groups:
        what = "the file has neither a [project] table nor [dependency-groups]"
        raise wrong(str(path), what, "name its dependencies in a requirements file and give that with -r")
    return Project(path, file.project or ProjectTable(), groups, file.tool, text)


def ask_project(project: Project, extras: Sequence[str], groups: Sequence[str]) -> Asked:
    """The dependencies of a project, and those of some extras and groups, without the project itself.

    Raises:
        UsageError: A requirement cannot be read, or the project has no such extra or group.
    """
    notes = [f"{project.path}: the plan holds what the project needs, not the project itself"]
    notes += [
        f"{project.path}: {field} is dynamic; only the project's own build knows it, and it was not run"
        for field in project.table.dynamic
        if field in ("dependencies", "optional-dependencies", "requires-python")
    ]
    needs = list(_expand(project, project.table.dependencies, f"{project.path} [project]"))
    for extra in extras:
        needs += _extra(project, canonicalize_name(extra), ())
    for group in groups:
        needs += _group(project, group)
    own = Asked(needs=tuple(needs), requires_python=_requires_python(project), notes=tuple(notes))
    chosen = {("extra", canonicalize_name(name)) for name in extras} | {("group", canonicalize_name(n)) for n in groups}
    try:
        return combine((own, *_of_tools(project, chosen)))
    except (AttributeError, KeyError, TypeError) as error:
        what = f"a [tool] table is not as its tool takes it ({type(error).__name__}: {error})"
        raise wrong(str(project.path), what, "let the tool check it: uv lock, pdm lock, poetry check") from None


def ask_projects(
    named: Sequence[tuple[Path, tuple[str, ...], str | None]], extras: Sequence[str], groups: Sequence[str]
) -> Iterator[Asked]:
    """What several projects ask for, with the extras and groups that each of them has.

    Args:
        named: The path of each, the extras that were written behind it, and where it was named if not as a project.
    """
    loaded = [(load_project(path, place), own) for path, own, place in named]
    # Every extra and group must be of at least one project: a misspelt one must not pass as an empty one.
    for extra in extras:
        if not any(_has_extra(project, extra) for project, _ in loaded):
            there = {name for project, _ in loaded for name in project.extras}
            raise wrong(COMMAND_LINE, f"no project has an extra {extra!r}", _known("extras", there))
    for group in groups:
        there = {name for project, _ in loaded for name in project.group_names}
        if canonicalize_name(group) not in there:
            raise wrong(COMMAND_LINE, f"no project has a dependency group {group!r}", _known("groups", there))
    for project, own_extras in loaded:
        wanted = own_extras + tuple(extra for extra in extras if _has_extra(project, extra))
        yield ask_project(project, wanted, [g for g in groups if canonicalize_name(g) in project.group_names])


def _has_extra(project: Project, extra: str) -> bool:
    return canonicalize_name(extra) in project.extras or "optional-dependencies" in project.table.dynamic


def _expand(project: Project, lines: Iterable[str], origin: str, trail: tuple[str, ...] = ()) -> Iterator[Need]:
    """The requirements of some lines, with ``project[extra]`` (the project itself) replaced by those of its extra."""
    own = canonicalize_name(project.table.name or "")
    for line in lines:
        requirement = read_requirement(line, origin)
        if canonicalize_name(requirement.name) != own:
            yield Need(requirement, origin)
            continue
        for extra in sorted(requirement.extras):
            for inner in _extra(project, canonicalize_name(extra), trail):
                yield Need(_under(inner.requirement, requirement.marker), inner.origin)


def _extra(project: Project, extra: str, trail: tuple[str, ...]) -> Iterator[Need]:
    if extra in trail:
        return  # an extra that includes itself adds nothing
    if extra not in project.extras:
        if "optional-dependencies" in project.table.dynamic:
            return  # the note about dynamic fields says it
        raise wrong(str(project.path), f"there is no extra {extra!r}", _known("extras", project.extras))
    origin = f"{project.path} [project.optional-dependencies] {extra}"
    yield from _expand(project, project.extras[extra], origin, (*trail, extra))


def _group(project: Project, group: str) -> Iterator[Need]:
    origin = f"{project.path} [dependency-groups] {group}"
    if canonicalize_name(group) not in project.group_names:
        raise wrong(str(project.path), f"there is no dependency group {group!r}", _known("groups", project.group_names))
    try:
        found = DependencyGroupResolver(project.groups).resolve(group)
    except (ExceptionGroup, ValueError, LookupError, TypeError) as error:
        # Which of them come in a group differs between releases of packaging.
        reasons = error.exceptions if isinstance(error, ExceptionGroup) else [error]
        raise wrong(origin, "; ".join(str(reason).splitlines()[0] for reason in reasons)) from None
    yield from _expand(project, map(str, found), origin)


def _known(kind: str, names: Collection[str]) -> str:
    """The hint after an unknown name: those that there are."""
    return f"{kind} there: {', '.join(sorted(names))}" if names else f"it has no {kind}"


def _under(requirement: Requirement, marker: Marker | None) -> Requirement:
    """The requirement, asked for only where the marker of what includes it holds too."""
    if marker is None:
        return requirement
    narrowed = Requirement(str(requirement))
    narrowed.marker = marker if narrowed.marker is None else narrowed.marker & marker
    return narrowed


def _requires_python(project: Project) -> str | None:
    text = project.table.requires_python
    try:
        return str(SpecifierSet(text)) if text else None
    except InvalidSpecifier:
        raise wrong(f"{project.path} [project] requires-python", f"{text!r} is not a version specifier") from None


# What the tables of uv, Poetry, PDM, hatch and pixi add. Whatever changes an answer and is not followed gets a note.

_Chosen = Collection[tuple[str, str]]
_UV_UNREAD = {
    "override-dependencies": "overrides are not applied; uv installs them whatever packages require",
    "environments": "the plan is for the machines, whatever systems uv locks for",
    "required-environments": "the plan is for the machines, whatever systems uv locks for",
    "find-links": "plans are made from package indexes alone",
    "no-index": "plans are made from package indexes; use --offline to plan without the network",
    "exclude-newer": "plan with --exclude-newer to leave out what uv leaves out",
    "prerelease": "plan with --pre to take pre-releases",
    "resolution": "the plan takes the newest versions that fit",
    "no-binary-package": "the plan takes a wheel wherever one fits",
}


def _of_tools(project: Project, chosen: _Chosen) -> Iterator[Asked]:
    tool = project.tool
    if "uv" in tool:
        yield _of_uv(project, tool["uv"], chosen)
    for name in ("poetry", "pdm"):
        listed = tool.get(name, {}).get("source", ())
        if listed:
            yield combine(_of_source(project, f"[tool.{name}] source", entry) for entry in listed)
    unread = {
        "hatch": "environments of hatch",
        "pixi": "conda packages, features and system requirements of pixi",
        "conda-lock": "settings of conda-lock",
    }
    # hatch's table is mostly about builds; only its environments have dependencies.
    named = [name for name in unread if name in tool and (name != "hatch" or "envs" in tool[name])]
    for name in named:
        yield Asked(notes=(f"{project.path} [tool.{name}]: {unread[name]} are not read",))


def _of_uv(project: Project, table: Mapping[str, Any], chosen: _Chosen) -> Asked:
    place = f"{project.path} [tool.uv]"
    origin = f"{place} constraint-dependencies"
    _refuse_conflicts(place, table.get("conflicts", ()), chosen)
    settings = {**table.get("pip", {}), **table}
    notes = [f"{place} {key} is set aside: {why}" for key, why in _UV_UNREAD.items() if settings.get(key)]
    listed = table.get("index", ())
    default = [entry["url"] for entry in listed if entry.get("default")]
    default += [settings["index-url"]] if "index-url" in settings else []
    extra = [entry["url"] for entry in listed if not (entry.get("explicit") or entry.get("default"))]
    extra += settings.get("extra-index-url", ())
    # What torch is taken from is settled by the machines; the index of a variant would only repeat its packages.
    of_variants = [Source("torch", url, _line(project, url)) for url in (*default, *extra) if _VARIANT.search(url)]
    own = Asked(
        constraints=tuple(Need(read_requirement(line, origin), origin) for line in table.get(origin.split()[-1], ())),
        index_urls=tuple(url for url in default if not _VARIANT.search(url)),
        extra_index_urls=tuple(url for url in extra if not _VARIANT.search(url)),
        notes=tuple(notes),
        sources=tuple(of_variants),
    )
    return combine((own, *_uv_sources(project, table, chosen)))


def _refuse_conflicts(place: str, conflicts: Sequence[Sequence[Mapping[str, str]]], chosen: _Chosen) -> None:
    for conflict in conflicts:
        named = [(kind, name) for one in conflict for kind, name in one.items() if kind != "package"]
        both = [f"{kind} {name}" for kind, name in named if (kind, canonicalize_name(name)) in chosen]
        if len(both) > 1:
            raise wrong(place, f"{' and '.join(both)} are declared as conflicts", "plan for one of them at a time")


def _uv_sources(project: Project, table: Mapping[str, Any], chosen: _Chosen) -> Iterator[Asked]:
    """What ``[tool.uv.sources]`` names for the extras and groups that are chosen."""
    indexes = {entry["name"]: entry for entry in table.get("index", ()) if "name" in entry}
    for name, entries in table.get("sources", {}).items():
        for entry in entries if isinstance(entries, list) else [entries]:
            named = [(kind, canonicalize_name(entry[kind])) for kind in ("extra", "group") if kind in entry]
            if named and not any(one in chosen for one in named):
                continue
            url = indexes.get(entry.get("index", ""), {}).get("url")
            if url and _VARIANT.search(url):
                yield Asked(sources=(Source(canonicalize_name(name), url, _line(project, url)),))
                continue
            where = url or next((f"{key} {entry[key]}" for key in ("git", "url", "path", "index") if key in entry), "")
            if where:
                text = f"{project.path} [tool.uv.sources]: {canonicalize_name(name)} is not taken from {where}"
                yield Asked(notes=(f"{text}; name it: '{name} @ URL', or its index with --extra-index-url",))


def _of_source(project: Project, place: str, entry: Mapping[str, Any]) -> Asked:
    """One source of Poetry's or PDM's."""
    url, name = entry.get("url"), entry.get("name", "")
    if not url:
        return Asked()  # Poetry names its default index without a URL
    if _VARIANT.search(url):
        packages = entry.get("include_packages") or ("torch",)
        return Asked(sources=tuple(Source(canonicalize_name(one), url, _line(project, url)) for one in packages))
    if name.lower() == "pypi" or entry.get("priority") in ("primary", "default"):
        return Asked(index_urls=(url,))
    if entry.get("priority") == "explicit":
        return Asked(notes=(f"{project.path} {place}: {name} is not read; name it with --extra-index-url {url}",))
    return Asked(extra_index_urls=(url,))


def _line(project: Project, url: str) -> str:
    lines = project.text.splitlines()
    number = next((number for number, line in enumerate(lines, 1) if url in line), None)
    return f"{project.path} line {number}" if number else str(project.path)
