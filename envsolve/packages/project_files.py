"""A ``pyproject.toml`` as it lies on disk: its ``[project]``, groups and tables of tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from packaging.utils import canonicalize_name

from envsolve.packages.requirements import wrong
from envsolve.system.files import is_folder, read_regular


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
