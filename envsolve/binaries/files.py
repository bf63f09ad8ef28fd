"""The files of a wheel or of an installed distribution, behind one small interface."""

from __future__ import annotations

import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from shutil import copyfileobj
from typing import IO, Protocol, cast

from envsolve.errors import UsageError
from envsolve.system.files import open_regular

_IN_MEMORY = 32 << 20
_LARGEST_TEXT = 16 << 20
# Libraries with GPU code shrink to a half or a tenth; what shrinks to less is small, or made to fill disks.
_MOST_COMPRESSED = 100
_LARGEST_MEMBER = 64 << 20
# All members that are opened together; the largest wheels hold 4 GiB.
_LARGEST_WHOLE = 32 << 30
# What zipfile and its decompressors raise for files that are cut off, damaged or made up.
_ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, OverflowError, OSError)
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


class Artefact(Protocol):
    """A named set of files."""

    @property
    def name(self) -> str:
        """For messages."""
        ...

    def files(self) -> Sequence[str]:
        """Paths, ``/``-separated."""
        ...

    def open(self, path: str) -> IO[bytes]:
        """One file, seekable; the caller closes it.

        Raises:
            UsageError: It cannot be read.
        """
        ...


class WheelFile:
    """The members of a wheel, decompressed one at a time.

    Args:
        file: Seekable; only the directory and the members that are opened are read from it.
        name: File name, for messages.

    Raises:
        UsageError: Not a zip archive.
    """

    def __init__(self, file: IO[bytes], name: str) -> None:
        self.name = name
        self._opened = 0
        try:
            self._zip = zipfile.ZipFile(file)
        except _ZIP_ERRORS as error:
            raise UsageError(
                f"{name} is not a readable wheel: {error}", hint="is the download complete? compare its sha256"
            ) from error

    def files(self) -> Sequence[str]:
        """Paths of all members, directories left out."""
        return [path for path in self._zip.namelist() if not path.endswith("/")]

    def compressed_size(self, path: str) -> int:
        """Bytes that reading a member takes."""
        return self._zip.getinfo(path).compress_size

    def open(self, path: str) -> IO[bytes]:
        """A decompressed copy: in memory when small, otherwise in a temporary file; bounded memory either way."""
        try:
            info = self._zip.getinfo(path)
        except KeyError:
            raise UsageError(f"{self.name} has no {path}") from None
        if info.compress_type not in _COMPRESSIONS:
            raise UsageError(f"{path} in {self.name} is compressed by a method that wheels do not use")
        if info.file_size > max(_LARGEST_MEMBER, _MOST_COMPRESSED * info.compress_size):
            raise UsageError(f"{path} in {self.name} claims to hold {info.file_size} bytes, too many for a library")
        self._opened += info.file_size
        if self._opened > _LARGEST_WHOLE:
            raise UsageError(f"{self.name} holds more than {_LARGEST_WHOLE >> 30} GiB, too much for a wheel")
        copy = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115
        try:
            with self._zip.open(info) as member:
                copyfileobj(member, copy, 1 << 20)
        except _ZIP_ERRORS as error:
            raise UsageError(f"{path} in {self.name} is damaged: {error}") from error
        copy.seek(0)
        return cast(IO[bytes], copy)

    def chunks(self, path: str) -> Iterator[bytes]:
        """A member from its start, piece by piece: what is not asked for is not read.

        Raises:
            UsageError: It is damaged, as far as it was read.
        """
        try:
            with self._zip.open(path) as member:
                while chunk := member.read(1 << 20):
                    yield chunk
        except (KeyError, *_ZIP_ERRORS) as error:
            raise UsageError(f"{path} in {self.name} is damaged: {error}") from error


class FolderFiles:
    """Files under a directory: all of them, or those of one installed distribution.

    Args:
        directory: Root of the paths.
        name: For messages.
        only: Paths to show; None for every file.
    """

    def __init__(self, folder: Path, name: str, only: Sequence[str] | None = None) -> None:
        self.name = name
        self._folder = folder
        self._only = only

    def files(self) -> Sequence[str]:
        """Paths relative to the directory, of the files that exist."""
        if self._only is not None:
            return [path for path in self._only if (self._folder / path).is_file()]
        return sorted(path.relative_to(self._folder).as_posix() for path in self._folder.rglob("*") if path.is_file())

    def open(self, path: str) -> IO[bytes]:
        """The file itself."""
        try:
            return open_regular(self._folder / path)
        except OSError as error:
            raise UsageError(f"{path} in {self.name} cannot be read: {error.strerror}") from error


def read_text(artefact: Artefact, path: str, limit: int = _LARGEST_TEXT) -> str:
    """A text member, UTF-8; at most ``limit`` bytes of it.

    Raises:
        UsageError: It is missing or unreadable.
    """
    with artefact.open(path) as file:
        return file.read(limit).decode("utf-8", "replace")
