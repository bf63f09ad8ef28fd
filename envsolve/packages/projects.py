"""A project's ``pyproject.toml``: dependencies, extras (PEP 621) and dependency groups (PEP 735)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from packaging.dependency_groups import DependencyGroupResolver
from packaging.errors import ExceptionGroup
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from envsolve.packages.requirements import COMMAND_LINE, Asked, Need, read_requirement, wrong
from envsolve.system.files import is_folder, read_regular


class ProjectTable(msgspec.Struct, frozen=True, rename="kebab"):
    """The part of ``[project]`` that a plan stands on."""

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


class Project(msgspec.Struct, frozen=True):
    """A ``pyproject.toml`` that was read.

    Attributes:
        path: As it was given, for messages.
        table: ``[project]``; empty where the file has only dependency groups.
        groups: ``[dependency-groups]``.
    """

    path: Path
    table: ProjectTable
    groups: dict[str, list[Any]]

    @property
    def extras(self) -> dict[str, tuple[str, ...]]:
        """The optional dependencies by normalised extra."""
        return {canonicalize_name(name): lines for name, lines in self.table.optional_dependencies.items()}

    @property
    def group_names(self) -> frozenset[str]:
        """The normalised names of its dependency groups."""
        return frozenset(canonicalize_name(name) for name in self.groups)


def load_project(path: Path, origin: str | None = None) -> Project:
    """Read a ``pyproject.toml``.

    Args:
        path: The file, or the project's folder.
        origin: Where the path was named, for messages.

    Raises:
        UsageError: There is no such file, or it says nothing of dependencies, or what it says has the wrong shape.
    """
    path = path / "pyproject.toml" if is_folder(path) else path
    try:
        file = msgspec.toml.decode(read_regular(path), type=_File)
    except OSError as error:
        where = f"{origin}: {path}" if origin else str(path)
        hint = "name a folder with a pyproject.toml, or that file; `NAME @ FOLDER` builds what is in a folder"
        raise wrong(where, f"the project cannot be read: {error.strerror}", hint) from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise wrong(str(path), str(error)) from None
    if file.project is None and not file.dependency_groups:
        raise wrong(
            str(path),
            "the file has neither a [project] table nor [dependency-groups]",
            "name its dependencies in a requirements file and give that with -r",
        )
    return Project(path, file.project or ProjectTable(), file.dependency_groups)


def ask_project(project: Project, extras: Sequence[str], groups: Sequence[str]) -> Asked:
    """What a project needs: its dependencies, and those of some extras and groups.

    The project itself is not part of it: a plan pins published files.

    Raises:
        UsageError: A requirement cannot be read, or the project has no such extra or group.
    """
    notes = [f"{project.path}: the plan holds what the project needs, not the project itself"]
    notes += [
        f"{project.path}: {field} is dynamic; only the project's own build knows it, and it was not run"
        for field in project.table.dynamic
        if field in ("dependencies", "optional-dependencies", "requires-python")
    ]
    needs = list(_expand(project, _read(project.table.dependencies, f"{project.path} [project]"), ()))
    for extra in extras:
        needs += _extra(project, canonicalize_name(extra), ())
    for group in groups:
        needs += _expand(project, _group(project, group), ())
    return Asked(
        needs=tuple(needs),
        requires_python=_requires_python(project),
        notes=tuple(notes),
    )


def ask_projects(
    named: Sequence[tuple[Path, tuple[str, ...], str | None]], extras: Sequence[str], groups: Sequence[str]
) -> Iterator[Asked]:
    """What several projects ask for.

    Args:
        named: The path of each, the extras that were written behind it, and where it was named if not as a project.
        extras: Extras that every project which has them shall have.
        groups: Likewise dependency groups.
    """
    loaded = [(load_project(path, place), own) for path, own, place in named]
    _check_names([project for project, _ in loaded], extras, groups)
    for project, own_extras in loaded:
        wanted = own_extras + tuple(extra for extra in extras if _has_extra(project, extra))
        yield ask_project(project, wanted, [g for g in groups if canonicalize_name(g) in project.group_names])


def _has_extra(project: Project, extra: str) -> bool:
    return canonicalize_name(extra) in project.extras or "optional-dependencies" in project.table.dynamic


def _check_names(projects: Sequence[Project], extras: Sequence[str], groups: Sequence[str]) -> None:
    """Every extra and group must be of at least one project; a misspelt one must not pass as an empty one."""
    for extra in extras:
        if not any(_has_extra(project, extra) for project in projects):
            there = frozenset(name for project in projects for name in project.extras)
            raise wrong(COMMAND_LINE, f"no project has an extra {extra!r}", _known("extras", there))
    for group in groups:
        if not any(canonicalize_name(group) in project.group_names for project in projects):
            there = frozenset(name for project in projects for name in project.group_names)
            raise wrong(COMMAND_LINE, f"no project has a dependency group {group!r}", _known("groups", there))


def _read(lines: Sequence[str], origin: str) -> Iterator[Need]:
    for line in lines:
        yield Need(read_requirement(line, origin), origin)


def _expand(project: Project, needs: Iterable[Need], trail: tuple[str, ...]) -> Iterator[Need]:
    """The needs, with ``project[extra]`` (the project itself) replaced by those of its extra."""
    for need in needs:
        if not _is_itself(project, need.requirement):
            yield need
            continue
        for extra in sorted(need.requirement.extras):
            for inner in _extra(project, canonicalize_name(extra), trail):
                yield Need(_under(inner.requirement, need.requirement.marker), inner.origin)


def _extra(project: Project, extra: str, trail: tuple[str, ...]) -> Iterator[Need]:
    if extra in trail:
        return  # an extra that includes itself adds nothing
    if extra not in project.extras:
        if "optional-dependencies" in project.table.dynamic:
            return  # the note about dynamic fields says it
        raise wrong(str(project.path), f"there is no extra {extra!r}", _known("extras", project.extras))
    origin = f"{project.path} [project.optional-dependencies] {extra}"
    yield from _expand(project, _read(project.extras[extra], origin), (*trail, extra))


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
    for requirement in found:
        yield Need(requirement, origin)


def _known(kind: str, names: Sequence[str] | frozenset[str] | dict[str, Any]) -> str:
    """The hint after an unknown name: those that there are."""
    return f"{kind} there: {', '.join(sorted(names))}" if names else f"it has no {kind}"


def _is_itself(project: Project, requirement: Requirement) -> bool:
    name = project.table.name
    return name is not None and canonicalize_name(requirement.name) == canonicalize_name(name)


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
