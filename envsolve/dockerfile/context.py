"""The build context: the files that a command of a Dockerfile sees because COPY or ADD brought them."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from envsolve.dockerfile.model import Command, Copied
from envsolve.system.files import is_file, is_folder, read_regular, real_path


@dataclass(frozen=True, slots=True)
class Context:
    """The directory that COPY takes from; None if it is not known."""

    root: Path | None
    _texts: dict[tuple[Copied, str], str | None] = field(default_factory=dict, compare=False, repr=False)

    def text(self, path: str, command: Command) -> str | None:
        """The text of a file as a command sees it; None if it does not come from the context."""
        wanted = posixpath.normpath(posixpath.join(command.directory, path))
        for copied in reversed(command.copied):
            # Each command asks for the same files, and all that was copied before it may hold them.
            if (copied, wanted) not in self._texts:
                self._texts[copied, wanted] = self._copied_text(copied, wanted)
            text = self._texts[copied, wanted]
            if text is not None:
                return text
        return None

    def _copied_text(self, copied: Copied, wanted: str) -> str | None:
        """The text of a file that one COPY brings, or that a command writes; None if that is another file."""
        target = posixpath.normpath(posixpath.join(copied.directory, copied.target))
        if copied.document is not None:
            return copied.document if target == wanted else None
        texts = map(self._read, self._sources(copied, target, wanted))
        return next((text for text in texts if text is not None), None)

    def file(self, path: str, command: Command) -> Path | None:
        """The path in the context of a file that a command sees; None if it does not come from the context."""
        wanted = posixpath.normpath(posixpath.join(command.directory, path))
        for copied in reversed(command.copied):
            target = posixpath.normpath(posixpath.join(copied.directory, copied.target))
            for source in self._sources(copied, target, wanted) if self.root else ():
                found = real_path(self.root / source) if self.root else None
                if found and self.root and is_file(found) and found.is_relative_to(real_path(self.root)):
                    return found
        return None

    def _sources(self, copied: Copied, target: str, wanted: str) -> Iterator[str]:
        """The path in the context that a file would come from."""
        inside = _inside(wanted, target)
        if inside is None:
            return
        for source in copied.sources:
            whole = source.lstrip("/") or "."
            if self.root is not None and is_folder(self.root / whole):
                yield posixpath.join(whole, inside)
            elif inside in (".", posixpath.basename(whole)):
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


def _inside(path: str, directory: str) -> str | None:
    """A path relative to a directory that contains it, ``.`` for the directory itself; both are normalised."""
    if path == directory:
        return "."
    if directory == ".":
        return None if path.startswith(("/", "../")) else path
    start = directory.rstrip("/") + "/"
    return path[len(start) :] if path.startswith(start) else None
