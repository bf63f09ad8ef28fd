"""Reading what is asked for, from every kind of input, into one value.

The kinds live in :mod:`envsolve.resolve.inputs`: one argument, a requirement file, a project.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from envsolve.resolve.inputs.argument import project_path, read_requirement
from envsolve.resolve.inputs.model import Asked, Need, combine, wrong

if TYPE_CHECKING:
    from envsolve.resolve.inputs.project import Project

__all__ = ["Asked", "Need", "read_requirements"]

_COMMAND_LINE = "command line"


def read_requirements(
    arguments: Sequence[str],
    files: Sequence[Path] = (),
    constraints: Sequence[Path] = (),
    *,
    projects: Sequence[Path] = (),
    extras: Sequence[str] = (),
    groups: Sequence[str] = (),
) -> Asked:
    """Read what is asked for.

    Args:
        arguments: PEP 508 requirements, ``name @ address``, addresses or paths of wheels and sdists,
            ``git+https://...#egg=name``, project folders (``.[extra]``) or paths of a ``pyproject.toml``.
        files: Requirement files (``-r``).
        constraints: Constraint files (``-c``).
        projects: Project folders or ``pyproject.toml`` files.
        extras: Extras of the projects, those among ``arguments`` included.
        groups: Dependency groups of the projects.

    Raises:
        UsageError: Something cannot be read; the message says where it stands and what is wrong.
    """
    parts: list[Asked] = []
    named: list[tuple[Path, tuple[str, ...], str | None]] = [(path, (), None) for path in projects]
    for argument in arguments:
        if found := project_path(argument):
            named.append((*found, _COMMAND_LINE))
        else:
            parts.append(Asked(needs=(Need(read_requirement(argument, _COMMAND_LINE), _COMMAND_LINE),)))
    if named or extras or groups:
        parts += _of_projects(named, extras, groups)
    if files or constraints:
        from envsolve.resolve.inputs.file import read_file

        parts += [read_file(path) for path in files]
        parts += [read_file(path, "constraints") for path in constraints]
    return combine(parts)


def _of_projects(
    named: Sequence[tuple[Path, tuple[str, ...], str | None]], extras: Sequence[str], groups: Sequence[str]
) -> Iterator[Asked]:
    """What projects ask for.

    Args:
        named: The path of each, the extras that were written behind it, and where it was named if not as a project.
        extras: Extras that every project which has them shall have.
        groups: Likewise dependency groups.
    """
    from envsolve.resolve.inputs.project import ask_project, load_project

    loaded = [(load_project(path, place), own) for path, own, place in named]
    _check_names([project for project, _ in loaded], extras, groups)
    for project, own_extras in loaded:
        wanted = own_extras + tuple(extra for extra in extras if _has_extra(project, extra))
        yield ask_project(project, wanted, [g for g in groups if canonicalize_name(g) in project.group_names])


def _has_extra(project: Project, extra: str) -> bool:
    return canonicalize_name(extra) in project.extras or "optional-dependencies" in project.table.dynamic


def _check_names(projects: Sequence[Project], extras: Sequence[str], groups: Sequence[str]) -> None:
    """Every extra and group must be of at least one project; a misspelt one must not pass as an empty one."""
    from envsolve.resolve.inputs.project import known

    for extra in extras:
        if not any(_has_extra(project, extra) for project in projects):
            there = frozenset(name for project in projects for name in project.extras)
            raise wrong(_COMMAND_LINE, f"no project has an extra {extra!r}", known("extras", there))
    for group in groups:
        if not any(canonicalize_name(group) in project.group_names for project in projects):
            there = frozenset(name for project in projects for name in project.group_names)
            raise wrong(_COMMAND_LINE, f"no project has a dependency group {group!r}", known("groups", there))
