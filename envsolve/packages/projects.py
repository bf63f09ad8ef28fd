"""Projects: the dependencies, extras (PEP 621) and groups (PEP 735) of a ``pyproject.toml``, and what its tool adds."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import structs
from packaging.dependency_groups import DependencyGroupResolver
from packaging.errors import ExceptionGroup
from packaging.markers import InvalidMarker, Marker
from packaging.requirements import Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from envsolve.errors import UsageError
from envsolve.packages.links import places_of
from envsolve.packages.project_files import Project, load_project, misshapen
from envsolve.packages.project_tools import beside
from envsolve.packages.requirements import (
    COMMAND_LINE,
    Asked,
    Need,
    Source,
    combine,
    date_of,
    read_requirement,
    wrong,
)
from envsolve.packages.urls import VARIANT_INDEX
from envsolve.system.files import is_file, is_folder, read_regular, real_path


def ask_project(project: Project, extras: Sequence[str], groups: Sequence[str]) -> Asked:
    """The dependencies of a project, and those of some extras and groups, without the project itself.

    Raises:
        UsageError: A requirement cannot be read, or the project has no such extra or group.
    """
    notes = [f"{project.path}: the plan contains the dependencies of the project, not the project itself"]
    of_groups = (note for group in groups for note in project.group_notes.get(canonicalize_name(group), ()))
    notes += [f"{project.path}: {note}" for note in (*project.notes, *of_groups)]
    notes += [
        f"{project.path}: {field} is dynamic, so only a build of the project determines it; envsolve does not build it"
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
        sourced = _with_sources(project, needs, chosen)
        return combine((structs.replace(own, needs=()), sourced, *_of_tools(project, chosen)))
    except (AttributeError, KeyError, TypeError) as error:
        raise misshapen(project.path, error) from None


def ask_projects(
    named: Sequence[tuple[Path, tuple[str, ...], str | None]],
    extras: Sequence[str],
    groups: Sequence[str],
    of_trees: Collection[str] = (),
) -> Iterator[Asked]:
    """Requirements of several projects, with the extras and groups that each of them has.

    Args:
        named: The path of each, the extras that were written behind it, and where it was named if not as a project.
        extras: Each must be of one of them, or among ``of_trees``, the extras of the source trees beside them.
    """
    loaded = [(load_project(path, place), own) for path, own, place in named]
    # Every extra and group must be of at least one project: a misspelt one must not pass as an empty one.
    for extra in extras:
        if extra not in of_trees and not any(_has_extra(project, extra) for project, _ in loaded):
            there = {name for project, _ in loaded for name in project.extras}.union(of_trees)
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
        raise wrong(str(project.path), f"it has no dependency group {group!r}", _known("groups", project.group_names))
    try:
        found = DependencyGroupResolver(project.groups).resolve(group)
    except (ExceptionGroup, ValueError, LookupError, TypeError) as error:
        # Which of them come in a group differs between releases of packaging.
        reasons = error.exceptions if isinstance(error, ExceptionGroup) else [error]
        raise wrong(origin, "; ".join(str(reason).splitlines()[0] for reason in reasons)) from None
    yield from _expand(project, map(str, found), origin)


def _known(kind: str, names: Collection[str]) -> str:
    """The hint after an unknown name: those that there are."""
    return f"{kind} there: {', '.join(sorted(names))}" if names else f"the project has no {kind}"


def _under(requirement: Requirement, marker: Marker | None) -> Requirement:
    """The requirement, restricted by the marker of what includes it."""
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
    "exclude-newer-package": "plan with --exclude-newer to leave out later files of all packages",
    "resolution": "the plan uses the newest versions that fit",
    "no-binary-package": "the plan uses a wheel if one fits",
    "required-environments": "a plan is for the machines given with --target",
}


def _of_tools(project: Project, chosen: _Chosen) -> Iterator[Asked]:
    tool = project.tool
    if "uv" in tool:
        yield _of_uv(project, tool["uv"], chosen)
    overrides = tool.get("pdm", {}).get("resolution", {}).get("overrides", {})
    yield Asked(overrides=tuple(_pdm_override(project, name, text) for name, text in overrides.items()))
    for name in ("poetry", "pdm"):
        listed = tool.get(name, {}).get("source", ())
        if listed:
            yield combine(_of_source(project, f"[tool.{name}] source", entry) for entry in listed)
    unread = {
        "pixi": "conda packages and features are read only with --manager conda; pip and uv do not install them",
        "conda-lock": "envsolve does not read settings of conda-lock",
    }
    for name in (name for name in unread if name in tool):
        yield Asked(notes=(f"{project.path} [tool.{name}]: {unread[name]}",))


def _of_uv(project: Project, table: Mapping[str, Any], chosen: _Chosen) -> Asked:
    place = f"{project.path} [tool.uv]"
    origin = f"{place} constraint-dependencies"
    _refuse_conflicts(place, table.get("conflicts", ()), chosen)
    settings = {**table.get("pip", {}), **table}
    notes = [f"{place} {key} is ignored: {why}" for key, why in _UV_UNREAD.items() if settings.get(key)]
    listed = table.get("index", ())
    default = [settings["index-url"]] if "index-url" in settings else []
    default += [entry["url"] for entry in listed if entry.get("default")]
    extra = [entry["url"] for entry in listed if not (entry.get("explicit") or entry.get("default"))]
    extra += settings.get("extra-index-url", ())
    # What torch is taken from is settled by the machines; the index of a variant would only repeat its packages.
    of_variants = [Source("torch", url, _line(project, url)) for url in (*default, *extra) if VARIANT_INDEX.search(url)]
    early = settings.get("prerelease")
    if early == "disallow":
        notes.append(f"{place} prerelease is ignored: a pre-release is used only if a specifier names one")
    newer = _date(place, settings, notes)
    links, missing = places_of(settings.get("find-links", ()), project.path.parent)
    notes += [f"{place} find-links: {what}" for what in missing]
    override = f"{place} override-dependencies"
    return Asked(
        constraints=tuple(Need(read_requirement(line, origin), origin) for line in table.get(origin.split()[-1], ())),
        overrides=tuple(
            Need(read_requirement(line, override), override) for line in table.get("override-dependencies", ())
        ),
        prereleases=early == "allow",
        exclude_newer=newer,
        environments=tuple(_markers(f"{place} environments", table.get("environments", ()))),
        index_urls=tuple(url for url in default if not VARIANT_INDEX.search(url)),
        extra_index_urls=tuple(url for url in extra if not VARIANT_INDEX.search(url)),
        find_links=links,
        no_index=settings.get("no-index") is True,
        notes=tuple(notes),
        sources=tuple(of_variants),
    )


def _date(place: str, settings: Mapping[str, Any], notes: list[str]) -> str | None:
    """uv's ``exclude-newer`` as ``--exclude-newer`` takes it: without fractions of a second."""
    newer = settings.get("exclude-newer")
    if newer is None:
        return None
    if (found := date_of(str(newer))) is None:
        notes.append(f"{place} exclude-newer is ignored: {newer!r} is not a date; plan with --exclude-newer DATE")
    return found


def _markers(place: str, listed: str | Sequence[str]) -> Iterator[tuple[Marker, str]]:
    for text in [listed] if isinstance(listed, str) else listed:
        try:
            yield Marker(text), place
        except InvalidMarker:
            raise wrong(place, f"{text!r} is not a marker") from None


def _refuse_conflicts(place: str, conflicts: Sequence[Sequence[Mapping[str, str]]], chosen: _Chosen) -> None:
    for conflict in conflicts:
        named = [(kind, name) for one in conflict for kind, name in one.items() if kind != "package"]
        both = [f"{kind} {name}" for kind, name in named if (kind, canonicalize_name(name)) in chosen]
        if len(both) > 1:
            raise wrong(place, f"{' and '.join(both)} are declared as conflicts", "plan for one of them at a time")


def _with_sources(project: Project, needs: Sequence[Need], chosen: _Chosen, seen: tuple[Path, ...] = ()) -> Asked:
    """The requirements of a project, each with its source in ``[tool.uv.sources]`` for the chosen extras and groups.

    Args:
        project: The project whose needs they are.
        needs: Its requirements.
        chosen: The extras and groups.
        seen: Projects of sources that led here: what these take from a directory must not come from an index.
    """
    root = _workspace_of(project)
    tables = {one.path: one.tool.get("uv", {}) for one in (root, project)}
    sources = {canonicalize_name(k): (path, v) for path, t in tables.items() for k, v in t.get("sources", {}).items()}
    indexes = {entry["name"]: entry["url"] for t in tables.values() for entry in t.get("index", ()) if "name" in entry}
    found: list[Asked] = []
    for need in needs:
        name = canonicalize_name(need.requirement.name)
        path, listed = sources.get(name, (project.path, []))
        entries, whole = listed if isinstance(listed, list) else [listed], False
        for entry in entries:
            named = [(kind, canonicalize_name(entry[kind])) for kind in ("extra", "group") if kind in entry]
            if need.requirement.url or (named and not any(one in chosen for one in named)):
                continue
            if "index" in entry:
                source = _from_index(project, name, entry, indexes)
                found.append(structs.replace(source, sources=beside(source.sources, entries, indexes)))
                continue
            whole = whole or "marker" not in entry
            found += _from_place(path, entry, root, need, seen)
        found += [] if whole else [Asked(needs=(need,))]
    together = combine(found)
    return structs.replace(together, sources=tuple(dict.fromkeys(together.sources)))


def _from_place(
    path: Path, entry: Mapping[str, Any], root: Project, need: Need, seen: tuple[Path, ...]
) -> Iterator[Asked]:
    """A requirement with the URL of its source, and the other sources that a project there uses."""
    url, directory = _source_url(path.parent, entry, root, need, f"{path} [tool.uv.sources] {need.requirement.name}")
    extras = f"[{','.join(sorted(need.requirement.extras))}]" if need.requirement.extras else ""
    taken = _under(Requirement(f"{need.requirement.name}{extras} @ {url}"), need.requirement.marker)
    marker = Marker(entry["marker"]) if "marker" in entry else None
    yield Asked(needs=(Need(_under(taken, marker), need.origin),))
    if directory is not None and directory not in seen:
        yield _of_member(directory, need.requirement.extras, (*seen, directory))


def _of_member(directory: Path, extras: Collection[str], seen: tuple[Path, ...]) -> Asked:
    """The directories, repositories and URLs that a project in a directory depends on."""
    try:
        member = load_project(directory)
    except UsageError:
        return Asked()  # a project without [project]; its build knows what it needs
    lines = [*member.table.dependencies, *(line for extra in extras for line in member.extras.get(extra, ()))]
    asked = _with_sources(member, list(_expand(member, lines, str(member.path))), (), seen)
    return structs.replace(asked, needs=tuple(need for need in asked.needs if need.requirement.url))


def _from_index(project: Project, name: str, entry: Mapping[str, Any], indexes: Mapping[str, str]) -> Asked:
    if (url := indexes.get(entry["index"])) is None:
        hint = "add its [[tool.uv.index]] with name and url"
        raise wrong(str(project.path), f"[tool.uv.sources] {name}: unknown index {entry['index']}", hint)
    if VARIANT_INDEX.search(url):
        marker = Marker(entry["marker"]) if "marker" in entry else None
        return Asked(sources=(Source(name, url, _line(project, url), marker),))
    return Asked(indexes=((name, url),))


def _source_url(
    base: Path, entry: Mapping[str, Any], root: Project, need: Need, origin: str
) -> tuple[str, Path | None]:
    """The URL of a source, and its directory if it is one.

    Raises:
        UsageError: There is nothing at its path, no member of that name, or it is of an unknown kind.
    """
    if entry.get("workspace"):
        wanted = canonicalize_name(need.requirement.name)
        member = next((one for one in _members(root) if canonicalize_name(one.table.name or "") == wanted), None)
        if member is None:
            raise wrong(
                origin, f"no member of the workspace is named {wanted}", f"members: {root.path} [tool.uv.workspace]"
            )
        directory = member.path.parent.resolve()
        return directory.as_uri(), directory
    if "path" in entry:
        path = (base / entry["path"]).resolve()
        if not (is_folder(path) or is_file(path)):
            raise wrong(origin, f"file or directory {path} does not exist", "correct the path, or get the submodule")
        return path.as_uri(), path if is_folder(path) else None
    inside = f"#subdirectory={entry['subdirectory']}" if "subdirectory" in entry else ""
    if "git" in entry:
        revision = next((entry[key] for key in ("rev", "tag", "branch") if key in entry), None)
        return f"git+{entry['git']}{f'@{revision}' if revision else ''}{inside}", None
    if "url" in entry:
        return entry["url"] + inside, None
    raise wrong(origin, f"a source with {', '.join(entry)} is not known", "use git, url, path, workspace or index")


def _workspace_of(project: Project) -> Project:
    """The root of the workspace that a project is in; the project itself if it is in none."""
    directory = real_path(project.path).parent
    for parent in (directory, *directory.parents):
        if is_file(parent / "pyproject.toml") and "[tool.uv.workspace]" in _text_of(parent / "pyproject.toml"):
            root = project if parent == directory else load_project(parent)
            if parent == directory or any(real_path(one.path).parent == directory for one in _members(root)):
                return root
    return project


def _text_of(path: Path) -> str:
    try:
        return read_regular(path).decode("utf-8-sig", "replace")
    except OSError:
        return ""


def _members(root: Project) -> Iterator[Project]:
    """The projects of a workspace, its root included."""
    yield root
    table = root.tool.get("uv", {}).get("workspace", {})
    left_out = {path for pattern in table.get("exclude", ()) for path in root.path.parent.glob(pattern)}
    for pattern in table.get("members", ()):
        for path in sorted(root.path.parent.glob(pattern)):
            if path not in left_out and is_file(path / "pyproject.toml"):
                yield load_project(path)


def _pdm_override(project: Project, name: str, text: str) -> Need:
    origin = f"{project.path} [tool.pdm.resolution.overrides]"
    if "://" in text:
        return Need(read_requirement(f"{name} @ {text}", origin), origin)
    plain = text[:1].isdigit()  # PDM writes a bare version for ==
    return Need(read_requirement(f"{name}{'==' if plain else ''}{text}", origin), origin)


def _of_source(project: Project, place: str, entry: Mapping[str, Any]) -> Asked:
    """One source of Poetry's or PDM's."""
    url, name = entry.get("url"), entry.get("name", "")
    if not url:
        return Asked()  # Poetry names its default index without a URL
    if VARIANT_INDEX.search(url):
        named = project.tool.get("poetry", {}).get("dependencies", {})
        of_source = [key for key, one in named.items() if name and isinstance(one, dict) and one.get("source") == name]
        packages = entry.get("include_packages") or of_source or ("torch",)
        return Asked(sources=tuple(Source(canonicalize_name(one), url, _line(project, url)) for one in packages))
    if name.lower() == "pypi" or entry.get("priority") in ("primary", "default"):
        return Asked(index_urls=(url,))
    if entry.get("priority") == "explicit":
        return Asked(notes=(f"{project.path} {place}: {name} is ignored; add --extra-index-url {url}",))
    return Asked(extra_index_urls=(url,))


def _line(project: Project, url: str) -> str:
    lines = project.text.splitlines()
    number = next((number for number, line in enumerate(lines, 1) if url in line), None)
    return f"{project.path} line {number}" if number else str(project.path)
