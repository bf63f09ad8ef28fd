"""Source trees of a plan or a lock: what pins them, and the copy of a folder that is built."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from packaging.pylock import PackageDirectory, PackageVcs

from envsolve.errors import UsageError
from envsolve.files import is_folder, real_path
from envsolve.trees import folder
from envsolve.trees.address import is_commit, is_inside, read_address
from envsolve.trees.model import Tree


def of_lock(lock: Path, name: str, source: PackageVcs | PackageDirectory) -> Tree:
    """The tree that a lock names.

    Raises:
        UsageError: It is no commit of a git repository and no folder.
    """
    again = "lock again with envsolve plan"
    subdirectory = source.subdirectory
    if not is_inside(subdirectory):
        raise UsageError(f"the subdirectory {subdirectory} of {name} in the lock is not in its tree", hint=again)
    if isinstance(source, PackageDirectory):
        return Tree(folder=str(real_path(real_path(lock).parent / source.path)), subdirectory=subdirectory)
    if source.type != "git":
        raise UsageError(
            f"the lock takes {name} from a repository of {source.type}, and only git's are installed",
            hint="ask for a git repository or an archive of it",
        )
    url = source.url or real_path(real_path(lock).parent / (source.path or "")).as_uri()
    read = read_address(f"git+{url}")
    if read.repository is None or read.unread or not is_commit(source.commit_id):
        raise UsageError(f"the lock has no address and commit of {name} that git could fetch: {url}", hint=again)
    return Tree(repository=url, commit=source.commit_id, subdirectory=subdirectory)


def reference(name: str, tree: Tree) -> tuple[str, Mapping[str, str]]:
    """The address that a tree is built from, and what tells its content from any other's.

    Raises:
        UsageError: The folder is not there.
    """
    address = tree.address or ""
    if tree.folder is None:
        return quote(address, safe="%/:=&?~+!,;'@()*[]#"), {"git": tree.commit or ""}
    if not is_folder(Path(tree.folder)):
        raise UsageError(f"{name} is built from the folder {tree.folder}, which is not there", hint="plan again")
    return address, {"sha256": folder.digest(Path(tree.folder))}


def staged(name: str, url: str, place: Path) -> str:
    """The address to build a tree from: of a folder, that of a copy, so that no build leaves anything in it."""
    parts = urlsplit(url)
    if parts.scheme != "file":
        return url
    copy = place / name
    folder.copied(Path(unquote(parts.path)), copy)
    return copy.as_uri() + (f"#{parts.fragment}" if parts.fragment else "")
