"""A ``pyproject.toml`` as it lies on disk: its ``[project]``, groups and tables of tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace
from packaging.utils import canonicalize_name

from envsolve.errors import UsageError
from envsolve.packages.model import ProjectTable
from envsolve.packages.project_tools import declared
from envsolve.packages.requirements import wrong
from envsolve.packages.setup_files import of_setup_cfg, with_files
from envsolve.system.files import is_file, is_folder, read_regular, reader

#: A file that is read as a project, beside ``pyproject.toml``.
SETUP_CFG = "setup.cfg"


class _File(msgspec.Struct, frozen=True, rename="kebab"):
    project: ProjectTable | None = None
    # Its members are checked by packaging, whose messages name the group.
    dependency_groups: dict[str, list[Any]] = {}
    tool: dict[str, Any] = {}

    def described(self, directory: Path) -> ProjectTable | None:
        """``[project]``, with the dynamic dependencies that the build takes from files of the directory."""
        return with_files(self.project, self.tool, reader(directory)) if self.project else None


class Project(msgspec.Struct, frozen=True):
    """A ``pyproject.toml`` that was read, with the path as it was given; each table may be empty.

    Attributes:
        tool: Its ``[tool]`` table.
        text: The whole file.
        notes: What of its tool's tables is ignored.
        group_notes: The same of single groups, by their normalised names.
    """

    path: Path
    table: ProjectTable
    groups: dict[str, list[Any]]
    tool: dict[str, Any] = {}
    text: str = ""
    notes: tuple[str, ...] = ()
    group_notes: dict[str, tuple[str, ...]] = {}

    @property
    def extras(self) -> dict[str, tuple[str, ...]]:
        """The optional dependencies by normalised extra."""
        return {canonicalize_name(name): lines for name, lines in self.table.optional_dependencies.items()}

    @property
    def group_names(self) -> frozenset[str]:
        """The normalised names of its dependency groups."""
        return frozenset(canonicalize_name(name) for name in self.groups)


def load_project(path: Path, origin: str | None = None) -> Project:
    """Read a ``pyproject.toml``, or that of a directory, or a ``setup.cfg``.

    Args:
        path: The file or the directory.
        origin: Where the path was named, for messages.

    Raises:
        UsageError: The file is missing, or it does not describe dependencies.
    """
    path = path / "pyproject.toml" if is_folder(path) else path
    try:
        text = read_regular(path).decode("utf-8-sig")
        if path.name == SETUP_CFG:
            return _setup_cfg(path, text)
        file = msgspec.toml.decode(text, type=_File)
    except OSError as error:
        hint = _where_else(path, origin)
        what = f"the project cannot be read: {error.strerror}"
        raise wrong(f"{origin}: {path}" if origin else str(path), what, hint) from None
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:  # a number of 5,000 digits, 2,000 brackets
        raise wrong(str(path), str(error)) from None
    project = file.described(path.parent)
    groups = dict(file.dependency_groups)
    try:
        found = declared(file.tool, file.project.name or "" if file.project else "")
    except (AttributeError, KeyError, TypeError, ValueError, IndexError) as error:
        raise misshapen(path, error) from None
    groups = {**found.groups, **groups}
    if found.dependencies is not None and (project is None or not project.dependencies):
        # Poetry 2 reads [project] and takes only sources from its own table; before, there was only its own table.
        project = replace(
            project or ProjectTable(),
            dependencies=found.dependencies,
            requires_python=project.requires_python if project and project.requires_python else found.requires_python,
            optional_dependencies={**found.extras, **(project.optional_dependencies if project else {})},
            dynamic=(),
        )
    if isinstance(old := file.tool.get("uv", {}).get("dev-dependencies"), list):
        groups["dev"] = [*groups.get("dev", []), *old]
    if project is None and not groups:
        what = "the file has neither a [project] table nor [dependency-groups]"
        raise wrong(str(path), what, "list the dependencies in a requirements file, and use -r FILE")
    return Project(path, project or ProjectTable(), groups, file.tool, text, found.notes, found.group_notes)


def _where_else(path: Path, origin: str | None) -> str:
    """What to do about a project that is not there: there may be one at the same path from the file that names it."""
    base = Path((origin or "").rpartition(" line ")[0]).parent
    if path.is_absolute() or not any(is_file(base / path.parent / name) for name in ("pyproject.toml", "setup.py")):
        return "give a directory with a pyproject.toml, or that file; to build a directory, use `NAME @ DIRECTORY`"
    return f"paths in a requirements file are relative to the current directory, as in pip: run the command in {base}"


def _setup_cfg(path: Path, text: str) -> Project:
    """The declarative metadata of setuptools."""
    fields = of_setup_cfg(text, reader(path.parent))
    if fields.requires is None and not fields.extras and "install_requires" not in text:
        raise wrong(str(path), "the project has no install_requires", "build the project: 'NAME @ ./DIRECTORY'")
    table = ProjectTable(
        name=fields.name,
        requires_python=fields.requires_python,
        dependencies=fields.requires or (),
        optional_dependencies=dict(fields.extras),
        dynamic=("dependencies",) if fields.requires is None else (),
    )
    return Project(path, table, {}, text=text)


def misshapen(path: Path, error: Exception) -> UsageError:
    """The error for a table that its tool would refuse."""
    what = f"a [tool] table is not valid for its tool ({type(error).__name__}: {error})"
    return wrong(str(path), what, "let the tool check it: uv lock, pdm lock, poetry check")
