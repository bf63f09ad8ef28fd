"""The build context: which of its files a command of a Dockerfile sees under a path. Reads files, writes none."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from envsolve.dockerfiles.model import Command, Copied
from envsolve.files import is_folder, read_regular, real_path


@dataclass(frozen=True, slots=True)
class Context:
    """The folder that COPY takes from; None where it is not known."""

    root: Path | None

    def text(self, path: str, command: Command) -> str | None:
        """The text of a file as a command sees it; None where it comes from elsewhere or is not there."""
        wanted = posixpath.normpath(posixpath.join(command.folder, path))
        for copied in reversed(command.copied):
            if copied.document is not None:
                if _absolute(copied) == wanted:
                    return copied.document
                continue
            for source in self._sources(copied, wanted):
                text = self._read(source)
                if text is not None:
                    return text
        return None

    def _sources(self, copied: Copied, wanted: str) -> Iterator[str]:
        """Where in the context it would come from, were it copied so."""
        target = _absolute(copied)
        inside = posixpath.relpath(wanted, target)
        for source in copied.sources:
            whole = source.lstrip("/") or "."
            if self.root is not None and is_folder(self.root / whole):
                if not inside.startswith(".."):
                    yield posixpath.join(whole, inside)
            elif wanted == target or inside == posixpath.basename(whole):
                yield whole

    def _read(self, source: str) -> str | None:
        if self.root is None:
            return None
        path = real_path(self.root / source)
        if not path.is_relative_to(real_path(self.root)):
            return None
        try:
            return read_regular(path).decode("utf-8", "replace")
        except OSError:
            return None


def _absolute(copied: Copied) -> str:
    return posixpath.normpath(posixpath.join(copied.folder, copied.target))
