"""The name of a project in a source tree, for requirements that do not say it; nothing of the tree is run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec
from packaging.utils import canonicalize_name

from envsolve.errors import UsageError
from envsolve.packages.setup_files import dependency_files, setup_fields
from envsolve.packages.source_trees import GitError, fetched
from envsolve.packages.urls import read_address
from envsolve.system.files import is_file, read_regular, reader, real_path

Read = Callable[[str], str | None]


def named(text: str) -> str:
    """A requirement with the name of its project in front, if it is only the URL of a repository."""
    url = re.split(r"\s+;", text.strip(), maxsplit=1)[0]
    if re.match(r"(?:git|hg|svn|bzr)\+[a-z]+:", url) and "egg=" not in url.partition("#")[2] and " " not in url:
        return f"{name_of_repository(url)} @ {text.strip()}"
    return text


def name_of_repository(url: str) -> str:
    """The name of the project in a repository: as its files say it, otherwise the repository's own name."""
    tree = read_address(url)
    repository = tree.repository or url.partition("+")[2]
    base = f"{tree.subdirectory}/" if tree.subdirectory else ""
    found: str | None = None
    try:
        if tree.repository:
            with fetched(tree.repository, tree.revision) as commit:
                found = stated_name(lambda path: _text(commit.read(base + path)))
    except GitError:
        pass  # whoever installs the plan learns the name, or that there is no such repository
    try:
        path = urlsplit(repository).path.rstrip("/").removesuffix(".git").partition("@")[0]
    except ValueError:
        raise UsageError(f"{url!r} is not the URL of a repository: its host cannot be read") from None
    # A subdirectory alone may have the name of another project: bindings/torch of tiny-cuda-nn is not torch.
    parts = [path.rpartition("/")[2], *(tree.subdirectory or "").strip("/").rpartition("/")[2:]]
    return found or _as_name("-".join(filter(None, parts)))


def tree_instead(path: Path, extras: Sequence[str], more: Sequence[str] = ()) -> str | None:
    """``name @ file:///directory`` for a project whose ``setup.py`` or build says what it requires; None for others.

    Args:
        path: Its ``pyproject.toml``, which may be missing or have no ``[project]``.
        extras: Those that are requested.
        more: Those that are requested of any project; the tree takes those that its files name.
    """
    try:
        table = msgspec.toml.decode(read_regular(path), type=dict[str, Any])
    except OSError:
        table = {}
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    described = _is_described(table, path.parent) or bool(table.get("dependency-groups"))
    name = None if described else name_of_directory(path.parent)
    if more and name:
        own = {str(canonicalize_name(one)) for one in setup_fields(reader(path.parent)).extras}
        extras = (*extras, *(extra for extra in more if canonicalize_name(extra) in own))
    bracket = f"[{','.join(extras)}]" if extras else ""
    return f"{name}{bracket} @ {real_path(path.parent).as_uri()}" if name else None


def _is_described(table: dict[str, Any], directory: Path) -> bool:
    """Whether ``[project]``, or the files from which its build takes them, list the dependencies."""
    project = table.get("project")
    if not isinstance(project, dict) or "dependencies" not in (project.get("dynamic") or ()):
        return "project" in table
    return dependency_files(table.get("tool", {}), reader(directory))[0] is not None


def name_of_directory(directory: Path) -> str | None:
    """The name of a project without a ``[project]`` table in a directory; None if nothing in it can be built."""

    def read(path: str) -> str | None:
        return _text(read_regular(directory / path)) if is_file(directory / path) else None

    if not any(is_file(directory / name) for name in ("setup.py", "setup.cfg")):
        return None
    return stated_name(read) or _as_name(directory.resolve().name)


def stated_name(read: Read) -> str | None:
    """The name in ``pyproject.toml``, ``setup.cfg`` or the call of ``setup`` in ``setup.py``; None if none has it."""
    named = setup_fields(lambda path: (read(path) or "").encode())
    names = (*_in_pyproject(read), named.name)
    return next((str(canonicalize_name(name)) for name in names if isinstance(name, str) and name), None)


def _as_name(text: str) -> str:
    """A project name made of the name of a directory or repository, which may have characters that no name has."""
    return str(canonicalize_name(re.sub(r"[^A-Za-z0-9]+", "-", unquote(text)).strip("-"))) or "project"


def _text(content: bytes | None) -> str | None:
    return None if content is None else content.decode("utf-8", "replace")


def _in_pyproject(read: Read) -> Iterator[Any]:
    try:
        table = msgspec.toml.decode(read("pyproject.toml") or "", type=dict[str, Any])
        yield table.get("project", {}).get("name")
        yield table.get("tool", {}).get("poetry", {}).get("name")
    except (msgspec.MsgspecError, ValueError, RecursionError, AttributeError):
        return
