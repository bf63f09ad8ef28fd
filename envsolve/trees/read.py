"""Reading the tree that an address names, as far as it can be reached from here."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from envsolve.files import is_folder, read_regular
from envsolve.index.model import CoreMetadata
from envsolve.trees.address import read_address
from envsolve.trees.git import GitError, fetched
from envsolve.trees.model import Read, Tree
from envsolve.trees.static import described


def read_tree(name: str, url: str, *, offline: bool) -> Read:
    """A tree and its metadata; where it cannot be read, ``tree.unread`` says why.

    Args:
        name: The package that was asked for.
        url: Its address, ``git+https://...`` or ``file:///folder``.
        offline: Whether to ask nothing beyond this machine.
    """
    tree = read_address(url)
    unknown = CoreMetadata(name, "", exact=False)
    if tree.unread is not None:
        return Read(tree, unknown)
    if tree.folder is not None:
        return _from_folder(name, tree)
    repository = tree.repository or ""
    if offline and not repository.startswith("file:"):
        return Read(replace(tree, unread="its repository is asked for nothing offline"), unknown)
    try:
        with fetched(repository, tree.revision) as commit:
            base = f"{tree.subdirectory}/" if tree.subdirectory else ""
            found = replace(tree, commit=commit.identity)
            return described(name, found, lambda path: commit.read(base + path))
    except GitError as error:
        return Read(replace(tree, unread=str(error)), unknown)


def _from_folder(name: str, tree: Tree) -> Read:
    project = Path(tree.folder or "", tree.subdirectory or "")
    if not is_folder(project):
        return Read(replace(tree, unread=f"there is no folder {project}"), CoreMetadata(name, "", exact=False))
    return described(name, tree, lambda path: _content(project / path))


def _content(path: Path) -> bytes | None:
    try:
        return read_regular(path)
    except OSError:
        return None
