"""What a source tree is, and what is known of it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from envsolve.index.model import CoreMetadata


class Tree(msgspec.Struct, frozen=True):
    """The source tree that a package is built from.

    Attributes:
        repository: Address of its git repository, ``https://github.com/NVIDIA/apex``; None for a folder, and for
            another kind of repository.
        revision: What was asked for of it, a branch, a tag or a commit; None for its default branch.
        commit: The commit that this was; None where the repository was not read.
        folder: Absolute path of the folder; None for a repository.
        subdirectory: The folder of the project in it; None for its top.
        exact: Whether what it depends on was read; False where only its build knows it.
        needs_torch: Whether its build imports torch; None where it was not read.
        build_requires: What its pyproject.toml says of its build.
        unread: Why it was not read; None where it was.
    """

    repository: str | None = None
    revision: str | None = None
    commit: str | None = None
    folder: str | None = None
    subdirectory: str | None = None
    exact: bool = False
    needs_torch: bool | None = None
    build_requires: tuple[str, ...] = ()
    unread: str | None = None

    @property
    def address(self) -> str | None:
        """Its address as pip and uv take it, with the commit that was read; None for other kinds of repositories."""
        if self.folder is not None:
            return Path(self.folder).as_uri() + self._fragment
        if self.repository is None:
            return None
        revision = self.commit or self.revision
        return f"git+{self.repository}{f'@{revision}' if revision else ''}{self._fragment}"

    @property
    def _fragment(self) -> str:
        return f"#subdirectory={self.subdirectory}" if self.subdirectory else ""


class Read(msgspec.Struct, frozen=True):
    """A tree with its metadata, of which the version is empty where only its build knows it."""

    tree: Tree
    metadata: CoreMetadata
