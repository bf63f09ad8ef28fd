"""Reading the tree that an address names, as far as it can be reached from here."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from envsolve.errors import UsageError
from envsolve.files import is_folder, read_regular
from envsolve.index.address import redact
from envsolve.index.model import CoreMetadata
from envsolve.trees.address import is_of_another_kind, read_address
from envsolve.trees.git import GitError, NoGitError, RevisionError, fetched
from envsolve.trees.model import Read, Tree
from envsolve.trees.static import described

_FORMS = "write git+https://host/repository@revision#subdirectory=folder, or file:///folder"


def read_tree(name: str, url: str, *, offline: bool) -> Read:
    """A tree and its metadata; where it cannot be reached from here, ``tree.unread`` says why.

    Args:
        name: The package that was asked for.
        url: Its address, ``git+https://...`` or ``file:///folder``.
        offline: Whether to ask nothing beyond this machine.

    Raises:
        UsageError: There is no such tree, wherever it is asked for: the address is none, the folder or the revision is
            not there, or nothing that could be built is in it.
    """
    tree = read_address(url)
    unknown = CoreMetadata(name, "", exact=False)
    if tree.unread is not None and not is_of_another_kind(url):
        raise UsageError(f"{redact(url)} is no address of a source tree: {tree.unread}", hint=_FORMS)
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
    except RevisionError as error:
        hint = (
            f"it has {', '.join(error.near)}, ..." if error.near else "ask for its default branch: leave @REVISION out"
        )
        raise UsageError(str(error), hint=hint) from None
    except GitError as error:
        if repository.startswith("file:") and not isinstance(error, NoGitError):
            raise UsageError(f"{repository} cannot be read: {error}", hint="check the path") from None
        return Read(replace(tree, unread=str(error)), unknown)


def _from_folder(name: str, tree: Tree) -> Read:
    project = Path(tree.folder or "", tree.subdirectory or "")
    if not is_folder(project):
        raise UsageError(f"there is no folder {project} to build {name} from", hint="check the path")
    return described(name, tree, lambda path: _content(project / path))


def _content(path: Path) -> bytes | None:
    try:
        return read_regular(path)
    except OSError:
        return None
