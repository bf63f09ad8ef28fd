"""An index's answers: files of a project, and the core metadata of one file, read from METADATA and PKG-INFO texts."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import IO

import msgspec
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import InvalidName, NormalizedName, canonicalize_name
from packaging.version import InvalidVersion, Version

from envsolve.errors import IndexUnavailableError, UsageError
from envsolve.system.limits import METADATA_BYTES, MIB, NAME_LENGTH, SUMMARY_LENGTH, LimitError, is_sane


class IndexFile(msgspec.Struct, frozen=True, gc=False):
    """One file on a project page (PEP 503 / 691 / 700).

    Attributes:
        filename: Percent-decoded file name.
        url: Absolute URL without fragment.
        hashes: Algorithm to hex digest, as the page gives them.
        requires_python: A specifier that packaging can read, or None.
        yanked: Reason (may be empty) if yanked, otherwise None.
        upload_time: ISO 8601, or None if the index does not say.
        size: Bytes, or None.
        metadata_hashes: Hashes of the ``.metadata`` sibling (PEP 658), possibly empty; None if it is not offered.
        index: URL of the index that listed it, without credentials.
    """

    filename: str
    url: str
    index: str
    hashes: Mapping[str, str] = {}
    requires_python: str | None = None
    yanked: str | None = None
    upload_time: str | None = None
    size: int | None = None
    metadata_hashes: Mapping[str, str] | None = None

    @property
    def key(self) -> tuple[str, ...]:
        """What its metadata is kept under while a client lives."""
        return ("metadata", self.url, self.filename)


class CoreMetadata(msgspec.Struct, frozen=True):
    """The part of METADATA that a resolver needs.

    Attributes:
        name: As the file spells it.
        version: As the file spells it.
        requires_dist: Requirement lines that packaging can read.
        requires_python: A specifier that packaging can read, or None.
        provides_extra: Extras as the file spells them.
        exact: False if an sdist's PKG-INFO marks its dependencies dynamic, so that they are only the best guess.
        summary: Of an sdist, its one-line description.
        backend: Of a small sdist, its build backend.
        wheels: Of such an sdist, the index that its build downloads a wheel from, if its pyproject.toml names it.
    """

    name: str
    version: str
    requires_dist: tuple[str, ...] = ()
    requires_python: str | None = None
    provides_extra: tuple[str, ...] = ()
    exact: bool = True
    summary: str = ""
    backend: str = ""
    wheels: str | None = None


# What can go wrong with an index, told apart where it matters who may answer instead.


class DeniedError(IndexUnavailableError):
    """The host answered 401 or 403.

    Attributes:
        may_mean_absent: It is the answer that object stores give for a missing file to a reader who may not list the
            bucket: it cannot be distinguished from a real denial.
    """

    def __init__(self, message: str, *, hint: str | None, may_mean_absent: bool) -> None:
        super().__init__(message, hint=hint)
        self.may_mean_absent = may_mean_absent


class ProjectTable(msgspec.Struct, frozen=True, rename="kebab"):
    """The part of ``[project]`` that decides a plan."""

    name: str | None = None
    version: str | None = None
    requires_python: str | None = None
    dependencies: tuple[str, ...] = ()
    optional_dependencies: dict[str, tuple[str, ...]] = {}
    dynamic: tuple[str, ...] = ()


class MetadataUnavailableError(IndexUnavailableError):
    """One file's metadata cannot be had: the file is damaged, gone, or not what its name says.

    Attributes:
        file: That file; None until the client says it.
    """

    file: IndexFile | None = None


class PlaceholderError(MetadataUnavailableError):
    """The file only holds its name on the index: its build installs nothing, or fails."""


class MissingFileError(MetadataUnavailableError):
    """The index lists a file that its host does not have."""


def normalised(name: str) -> NormalizedName:
    """A name as written in URLs; anything else (``../``) must not get there."""
    try:
        return canonicalize_name(name, validate=True)
    except InvalidName:
        raise UsageError(f"{name!r} is not the name of a project") from None


_ARCHIVES = (".whl", ".tar.gz", ".zip", ".tar.bz2", ".tgz", ".tar.xz")
_SDIST = re.compile(r"\.(?:tar\.gz|zip|tar\.bz2|tgz)$")


def version_in(filename: str, name: str | None = None) -> str | None:
    """The version part of a wheel's or sdist's file name; None if the name has neither form.

    Args:
        filename: With its suffix.
        name: The project, normalised: without it, that of an old sdist whose name holds dashes is not found.
    """
    if filename.endswith(".whl"):
        parts = filename.split("-", 2)
        return parts[1] if len(parts) == 3 else None
    stem = filename.removesuffix(".tar.gz")
    if stem == filename and (stem := _SDIST.sub("", filename)) == filename:
        return None
    if name is None:
        return stem.rpartition("-")[2]
    # The project's name may itself hold dashes in old sdists, so its length decides where the version starts.
    length = len(name)
    if stem[length : length + 1] == "-" and stem[:length].lower().replace("_", "-").replace(".", "-") == name:
        return stem[length + 1 :]
    # A normalised name is never longer than what it is of.
    for cut in (i for i, char in enumerate(stem) if char == "-"):
        if canonicalize_name(stem[:cut]) == name:
            return stem[cut + 1 :]
    return None


@lru_cache(maxsize=65536)
def read_version(text: str) -> Version | None:
    """The version that a text gives, or None."""
    if not is_sane(text):
        return None
    try:
        return Version(text)
    except InvalidVersion:
        return None


def is_file_of(filename: str, metadata: CoreMetadata) -> bool:
    """Whether a file of this name may have the metadata: installers refuse a wheel of another name or version."""
    project = canonicalize_name(metadata.name)
    if filename.endswith(".whl"):
        is_named = canonicalize_name(filename.partition("-")[0]) == project
    else:  # an sdist's name does not say where its version starts
        is_named = canonicalize_name(filename).startswith(f"{project}-")
    named, said = read_version(version_in(filename, project) or ""), read_version(metadata.version)
    # The file names of some old projects leave the local label out.
    return is_named and (named is None or named == said or (said is not None and named.public == said.public))


_CHECKED_DIGESTS = ("sha512", "sha384", "sha256", "sha224")
_BLOCK = 1 << 20


def check_hashes(text: bytes, hashes: Mapping[str, str]) -> None:
    """Raise a ValueError if a ``.metadata`` file is not what the index says."""
    for algorithm in _CHECKED_DIGESTS:
        expected = hashes.get(algorithm)
        if expected is not None and hashlib.new(algorithm, text).hexdigest() != expected.lower():
            raise ValueError(f"the {algorithm} of its .metadata file differs from the one on the index")


def checked_copy(source: IO[bytes], target: IO[bytes] | None, hashes: Mapping[str, str], filename: str) -> None:
    """Copy a file, and hold it to every strong hash that is stated: pip and uv are content with any one of them.

    Raises:
        ValueError: It has another one.
    """
    stated = {name: digest.lower() for name, digest in hashes.items() if name in _CHECKED_DIGESTS}
    found = {name: hashlib.new(name) for name in stated}
    while block := source.read(_BLOCK):
        for digest in found.values():
            digest.update(block)
        if target is not None:
            target.write(block)
    for name, digest in found.items():
        if digest.hexdigest() != stated[name]:
            raise ValueError(f"the {name} of {filename} differs from the one on the index or in the lock")


def is_archive(filename: str) -> bool:
    """Whether a name may be that of a wheel or a source archive; none has control characters or bytes outside UTF-8."""
    is_name = "/" not in filename and len(filename) <= NAME_LENGTH and filename.isprintable()
    return is_name and filename.lower().endswith(_ARCHIVES)


# Requirement and specifier texts of old packages, repaired where the meaning is plain, dropped where it is not.


# ">=3.6.*" was accepted before PEP 440 was enforced and was read as ">=3.6".
_STAR_AFTER_ORDER = re.compile(r"((?:>=|<=|~=|>|<)\s*[0-9][0-9A-Za-z.!]*?)\.\*")


@lru_cache(maxsize=4096)
def specifier_text(text: str | None) -> str | None:
    """A ``Requires-Python`` text that packaging accepts; None for one that says nothing usable (pip ignores those)."""
    if text is None or not text.strip() or not is_sane(text):
        return None
    for candidate in (text.strip(), _repair(text.strip())):
        try:
            SpecifierSet(candidate)
        except InvalidSpecifier:
            continue
        return candidate
    return None


def requirement_text(line: str) -> str | None:
    """A ``Requires-Dist`` line that packaging accepts, or None if it cannot be read."""
    if not is_sane(line):
        return None
    line = " ".join(line.split())
    for candidate in (line, _repair(line)):
        try:
            Requirement(candidate)
        except InvalidRequirement:
            continue
        return candidate
    return None


def _repair(text: str) -> str:
    requirement, semicolon, marker = text.partition(";")
    return _STAR_AFTER_ORDER.sub(r"\1", requirement) + semicolon + marker


_BLANK_LINE = re.compile(rb"\r?\n\r?\n")


def parse_metadata(text: bytes, *, sdist: bool = False) -> CoreMetadata:
    """The resolver's part of a core-metadata text.

    A wheel's METADATA is exact. An sdist's PKG-INFO is exact from Metadata-Version 2.2 on unless it lists
    ``Requires-Dist`` (or what gates it) as ``Dynamic`` (PEP 643); before 2.2 it is only the best guess.

    Raises:
        ValueError: It has no name or no version, or is too large.
    """
    if len(text) > METADATA_BYTES:
        raise LimitError(f"its metadata is larger than {METADATA_BYTES // MIB} MiB")
    from packaging.metadata import parse_email  # imports the email package: not for a run that the cache answers

    # The description that follows the headers is long and says nothing to a resolver.
    raw, unparsed = parse_email(_BLANK_LINE.split(text, maxsplit=1)[0] + b"\n\n")
    name, version = raw.get("name"), raw.get("version")
    if not name or not version:
        raise ValueError("the metadata has no project name or no version")
    # A line in another encoding than UTF-8 puts the whole field among the unparsed.
    lines = raw.get("requires_dist") or unparsed.get("requires-dist", [])
    requires_python = raw.get("requires_python") or next(iter(unparsed.get("requires-python", [])), None)
    return CoreMetadata(
        name=name.strip(),
        version=version.strip(),
        requires_dist=tuple(r for r in map(requirement_text, lines) if r is not None),
        requires_python=specifier_text(requires_python),
        provides_extra=tuple(e.strip() for e in raw.get("provides_extra", [])),
        exact=not sdist or _is_static(raw.get("metadata_version", "1.0"), raw.get("dynamic", [])),
        summary=raw.get("summary", "").strip()[:SUMMARY_LENGTH] if sdist else "",
    )


def _is_static(version: str, dynamic: list[str]) -> bool:
    numbers = tuple(int(n) for n in re.findall(r"\d+", version)[:2])
    return numbers >= (2, 2) and "requires-dist" not in {d.strip().lower() for d in dynamic}


def of_extra(line: str, extra: str) -> str:
    """A requirement line that holds only for an extra."""
    body, _, marker = line.partition(";")
    condition = f'extra == "{extra}"'
    return f"{body} ; ({marker.strip()}) and {condition}" if marker.strip() else f"{body} ; {condition}"
