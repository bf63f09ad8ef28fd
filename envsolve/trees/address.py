"""Addresses of source trees: ``git+https://host/repository@revision#subdirectory=folder``, ``file:///folder``. Pure."""

from __future__ import annotations

import re
from urllib.parse import parse_qs, unquote, urlsplit, urlunsplit

from envsolve.trees.model import Tree

_OTHER_KINDS = ("hg+", "svn+", "bzr+")
# What git fetches without running a program that an address names (`ext::`).
_SCHEMES = ("https", "http", "ssh", "git", "file")
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


def read_address(url: str) -> Tree:
    """The tree that an address names, not read yet; ``unread`` says why it cannot be."""
    if is_of_another_kind(url):
        return Tree(unread=f"only git repositories are read, not {url.partition('+')[0]}")
    try:
        parts = urlsplit(url.removeprefix("git+"))
    except ValueError as error:
        return Tree(unread=f"it is no address: {error}")
    subdirectory = next(iter(parse_qs(parts.fragment).get("subdirectory", ())), None)
    if not is_inside(subdirectory):
        return Tree(unread=f"its subdirectory {subdirectory} is not in it")
    if not url.startswith("git+"):
        return Tree(folder=unquote(parts.path), subdirectory=subdirectory)
    path, _, revision = parts.path.rpartition("@") if "@" in parts.path else (parts.path, "", "")
    repository = urlunsplit((parts.scheme, parts.netloc, path, "", ""))
    if parts.scheme not in _SCHEMES or revision.startswith("-"):
        return Tree(unread="git has no such addresses")
    return Tree(repository=repository, revision=revision or None, subdirectory=subdirectory)


def is_of_another_kind(url: str) -> bool:
    """Whether an address is that of a repository which is not git's."""
    return url.startswith(_OTHER_KINDS)


def is_commit(text: str) -> bool:
    """Whether a text is a whole commit id, SHA-1 or SHA-256."""
    return _COMMIT.fullmatch(text) is not None


def is_inside(subdirectory: str | None) -> bool:
    """Whether a subdirectory, where there is one, stays within its tree."""
    return subdirectory is None or not (subdirectory.startswith("/") or ".." in subdirectory.split("/"))
