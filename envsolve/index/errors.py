"""What can go wrong with an index, told apart where it matters who may answer instead."""

from __future__ import annotations

from envsolve.errors import IndexUnavailableError


class DeniedError(IndexUnavailableError):
    """The host answered 401 or 403.

    Attributes:
        may_mean_absent: It is the answer that object stores give for a missing file to a reader who may not list the
            bucket: it cannot be told from a real denial.
    """

    def __init__(self, message: str, *, hint: str | None, may_mean_absent: bool) -> None:
        super().__init__(message, hint=hint)
        self.may_mean_absent = may_mean_absent


class MetadataUnavailableError(IndexUnavailableError):
    """One file's metadata cannot be had: the file is damaged, gone, or not what its name says."""


class MissingFileError(MetadataUnavailableError):
    """The index lists a file that its host does not have."""
