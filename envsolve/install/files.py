"""The files to install: exact ones, read from a plan or from a pylock.toml."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from packaging.pylock import (
    Package,
    PackageArchive,
    PackageDirectory,
    PackageSdist,
    PackageVcs,
    PackageWheel,
    Pylock,
    PylockSelectError,
    PylockUnsupportedVersionError,
    PylockValidationError,
)
from packaging.specifiers import SpecifierSet
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import Version

from envsolve.errors import ImpossibleError, IndexUnavailableError, UsageError
from envsolve.install.building import copy_sources, source_digest
from envsolve.packages.urls import UNREAD, Tree, is_commit, is_inside, read_address, without_secrets
from envsolve.planning.lock import Assumptions, Classes, assumptions_of, classes_from_table
from envsolve.planning.plan import Plan
from envsolve.solve.outcome import PlannedPackage
from envsolve.system.files import is_folder, parse_toml, read_regular, real_path

if TYPE_CHECKING:
    from envsolve.install.interpreters import Target


# Source trees of a plan or a lock: what pins them, and the copy of a directory that is built.


def of_lock(lock: Path, name: str, source: PackageVcs | PackageDirectory) -> Tree:
    """The tree that a lock names.

    Raises:
        UsageError: It is neither a commit of a git repository nor a directory.
    """
    again = "make the lock again with envsolve plan"
    subdirectory = source.subdirectory
    if not is_inside(subdirectory):
        raise UsageError(f"the subdirectory {subdirectory} of {name} in the lock lies outside of its tree", hint=again)
    if isinstance(source, PackageDirectory):
        return Tree(folder=str(real_path(real_path(lock).parent / source.path)), subdirectory=subdirectory)
    if source.type != "git":
        raise UsageError(
            f"the lock names a {source.type} repository for {name}; envsolve installs only from git repositories",
            hint="request a git repository or an archive instead",
        )
    url = source.url or real_path(real_path(lock).parent / (source.path or "")).as_uri()
    read = read_address(f"git+{url}")
    if read.repository is None or read.unread or not is_commit(source.commit_id):
        raise UsageError(f"the lock has no URL and commit that git could fetch for {name}: {url}", hint=again)
    return Tree(repository=url, commit=source.commit_id, subdirectory=subdirectory)


def reference(name: str, tree: Tree) -> tuple[str, Mapping[str, str]]:
    """The URL that a tree is built from, and the identity of its content.

    Raises:
        UsageError: The directory is not there.
    """
    address = tree.address or ""
    if tree.folder is None:
        return quote(address, safe="%/:=&?~+!,;'@()*[]#"), {"git": tree.commit or ""}
    if not is_folder(Path(tree.folder)):
        raise UsageError(f"{name} is built from the directory {tree.folder}, which does not exist", hint="plan again")
    return address, {"sha256": source_digest(Path(tree.folder))}


def staged(name: str, url: str, place: Path) -> str:
    """The URL to build a tree from: of a directory, that of a copy, so that no build leaves anything in it."""
    parts = urlsplit(url)
    if parts.scheme != "file":
        return url
    copy = place / name
    copy_sources(Path(unquote(parts.path)), copy)
    return copy.as_uri() + (f"#{parts.fragment}" if parts.fragment else "")


# Hash algorithms that pip and uv check, with the hexadecimal digits of each.
_DIGITS = {"sha256": 64, "sha384": 96, "sha512": 128}


@dataclass(frozen=True, slots=True)
class File:
    """One file to install.

    Attributes:
        version: None for an archive or a source tree whose version the lock does not say.
        kind: ``tree`` for a commit of a repository or a directory, which is built like an ``sdist``.
        filename: Empty for a source tree.
        url: Where it is; ``file:`` for one that lies beside the lock.
        hashes: Algorithm (sha256 or stronger) to hex digest; of a commit, its id by ``git``. Never empty.
        size: Bytes that the plan or the lock states.
    """

    name: str
    version: str | None
    kind: Literal["wheel", "sdist", "tree", "conda"]
    filename: str
    url: str
    hashes: Mapping[str, str]
    size: int | None = None

    @property
    def requirement(self) -> str:
        """A requirements line with a hash that only this file satisfies, for pip and uv.

        A direct reference is fetched from its URL and nowhere else: no index, mirror or look-alike is asked.
        """
        if self.kind == "tree":  # pip and uv check no hash of one: git has checked the commit
            return f"{self.name} @ {self.url}"
        checks = " ".join(f"--hash={algorithm}:{self.hashes[algorithm]}" for algorithm in sorted(self.hashes))
        return f"{self.name} @ {_as_reference(self.url)} {checks}"

    @property
    def public_url(self) -> str:
        """The URL without what may be secret: user name, password, a channel's token, and a signed query."""
        parts = urlsplit(without_secrets(self.url) if self.kind == "conda" else self.url)
        return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment=""))


@dataclass(frozen=True, slots=True)
class Lock:
    """A validated pylock.toml.

    Attributes:
        path: Where it lies.
        assumptions: Of the machine; None if it has none, or where it has those of several ``classes``.
        notes: What is to be said of it.
        classes: The classes of machines that it has parts for (:func:`envsolve.install.lock_classes.for_machine`).
        groups: Its dependency groups that are to be installed; None for its default ones.
    """

    pylock: Pylock
    path: Path
    assumptions: Assumptions | None
    notes: tuple[str, ...] = ()
    classes: Classes = field(default_factory=dict)
    groups: tuple[str, ...] | None = None

    @property
    def python(self) -> str | None:
        """The Python that envsolve locked for; None in a lock made by another tool."""
        return self.assumptions.python if self.assumptions else None


@dataclass(frozen=True, slots=True)
class Wanted:
    """Everything that an environment should contain.

    Attributes:
        size: Bytes of all files together; None if that of one is not known.
    """

    files: tuple[File, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    assumptions: Assumptions | None = None
    size: int | None = None


def read_lock(path: Path) -> Lock:
    """Read and validate a pylock.toml (PEP 751).

    Raises:
        UsageError: It cannot be read, is not TOML, or is not a lock.
    """
    hint = "make a lock file with: envsolve plan REQUIREMENTS --format pylock -o pylock.toml"
    if path.is_dir():
        raise UsageError(f"{path} is a directory, not a lock file", hint=hint)
    # The warning of the library about a newer lock is said in the notes instead.
    logging.getLogger("packaging.pylock").setLevel(logging.ERROR)
    try:
        pylock = Pylock.from_dict(parse_toml(read_regular(path).decode("utf-8"), path, hint))
    except OSError as error:
        raise UsageError(f"the lock {path} cannot be read: {error.strerror or error}", hint=hint) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"the lock {path} is not text in UTF-8", hint=hint) from error
    except (PylockValidationError, PylockUnsupportedVersionError) as error:
        raise UsageError(f"{path} is not a valid pylock.toml: {error}", hint=hint) from error
    own = (pylock.tool or {}).get("envsolve")
    classes = classes_from_table(own)
    assumptions = None if classes else Assumptions.from_table(own)
    for python in {one.python for one in (*classes.values(), *filter(None, [assumptions])) if one.python}:
        if pylock.requires_python and not _admits(pylock.requires_python, python):
            raise UsageError(
                f"the lock {path} contradicts itself: requires-python is {pylock.requires_python}, "
                f"and python in [tool.envsolve] is {python}",
                hint="make the make the lock again with envsolve plan",
            )
    newer = f"the lock's version {pylock.lock_version} is newer than 1.0: its new fields are ignored"
    return Lock(pylock, path, assumptions, (newer,) if pylock.lock_version > Version("1.0") else (), classes)


def _admits(requires: SpecifierSet, minor: str) -> bool:
    """Whether any release of a Python such as ``3.12`` satisfies ``requires``."""
    return any(requires.contains(f"{minor}.{patch}", prereleases=True) for patch in range(100))


def wanted(source: Plan | Lock, target: Target) -> Wanted:
    """The files of ``source`` for the interpreter ``target``.

    Raises:
        ImpossibleError: The plan is impossible, or a file does not run on this interpreter.
        IndexUnavailableError: The plan names files whose URL or hash no index has confirmed.
        UsageError: The plan or the lock asks for something that carries no hash.
    """
    if isinstance(source, Lock):
        assumptions = source.assumptions
        files = _from_lock(source, target)
        environment = assumptions.environment if assumptions else {}
        return Wanted(files, environment, assumptions, total_size([file.size for file in files]))
    if source.status == "impossible":
        facts = "; ".join(fact.fact for fact in source.conflict)
        raise ImpossibleError(f"the plan is impossible, so there is nothing to install: {facts}")
    files = tuple(_from_plan(package) for package in source.packages)
    _refuse_foreign(files, target)
    sizes = [package.size for package in source.packages]
    return Wanted(files, dict(source.environment), assumptions_of(source), total_size(sizes))


def total_size(sizes: Sequence[int | None]) -> int | None:
    """The sum; None if one is not known."""
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None


def _from_plan(package: PlannedPackage) -> File:
    hashes = _strong(package.hashes, package.name)
    version = package.version if package.version != str(UNREAD) else None
    if package.tree is not None and package.tree.unread is None:
        return _tree(package.name, version, package.tree)
    if package.kind == "sdist" and package.url is not None and package.filename is None:
        why = f": {package.tree.unread}" if package.tree is not None else ""
        raise IndexUnavailableError(
            f"{package.name} is built from {package.url}, which was not read{why}",
            hint="plan again on a machine that can reach it, then install",
        )
    if package.url is not None and not package.index and package.evidence is None and not hashes:
        raise UsageError(
            f"{package.name} is requested by URL ({without_secrets(package.url)}) without a hash",
            hint="append #sha256=DIGEST to the URL, with the digest from: curl -sL URL | sha256sum",
        )
    if package.url is None or package.filename is None or not hashes:
        raise IndexUnavailableError(
            f"the plan knows {package.name} {package.version} only from the catalogue, without a URL or a hash",
            hint="plan again on a machine that can reach the package index, then install",
        )
    return File(package.name, version, package.kind, package.filename, package.url, hashes, package.size)


def _from_lock(lock: Lock, target: Target) -> tuple[File, ...]:
    """The files that the lock has for an interpreter."""
    try:
        # The target's own marker values are complete: nothing is filled in from the Python that runs envsolve.
        selected = list(lock.pylock.select(environment=target.markers, tags=target.tags, dependency_groups=lock.groups))
    except PylockSelectError as error:
        raise ImpossibleError(
            f"the lock {lock.path} does not fit Python {target.version} here: {error}",
            hint="make a lock for this machine with: envsolve plan",
        ) from error
    return tuple(_locked_file(lock.path, package, source) for package, source in selected)


def _locked_file(lock: Path, package: Package, source: object) -> File:
    if isinstance(source, (PackageVcs, PackageDirectory)):
        version = str(package.version) if package.version else None
        return _tree(package.name, version, of_lock(lock, package.name, source))
    assert isinstance(source, (PackageWheel, PackageSdist, PackageArchive))  # there are no other kinds
    url = source.url or real_path(real_path(lock).parent / (source.path or "")).as_uri()
    filename = urlsplit(url).path.rpartition("/")[2] if isinstance(source, PackageArchive) else source.filename
    kind: Literal["wheel", "sdist"] = "wheel" if filename.endswith(".whl") else "sdist"
    hashes = _strong(source.hashes, filename)
    if urlsplit(url).scheme not in ("https", "http", "file"):
        raise UsageError(
            f"the URL of {filename} in the lock does not begin with http:, https: or file:",
            hint="make the lock again with envsolve plan",
        )
    if not hashes:
        raise UsageError(
            f"the lock has no sha256 (or stronger) hash of {filename}", hint="make the lock again with envsolve plan"
        )
    version = str(package.version) if package.version else None
    return File(package.name, version, kind, filename, url, hashes, source.size)


def _tree(name: str, version: str | None, tree: Tree) -> File:
    url, hashes = reference(name, tree)
    return File(name, version, "tree", "", url, hashes)


def _strong(hashes: Mapping[str, str], what: str) -> dict[str, str]:
    """The hashes that pip and uv check; md5 and sha1 prove nothing.

    Raises:
        UsageError: One of them is not a hexadecimal number of the right length.
    """
    strong = {name.lower(): digest for name, digest in hashes.items() if name.lower() in _DIGITS}
    for name, digest in strong.items():
        if not re.fullmatch(rf"[0-9a-fA-F]{{{_DIGITS[name]}}}", digest):
            raise UsageError(f"the {name} hash of {what} is not one: {digest!r}", hint="make the lock or plan again")
    return {name: digest.lower() for name, digest in strong.items()}


def _refuse_foreign(files: Sequence[File], target: Target) -> None:
    """Refuse wheels that this interpreter cannot load: a plan may have been made for another machine."""
    runs = frozenset(target.tags)
    for file in files:
        if file.kind != "wheel":
            continue
        try:
            tags = parse_wheel_filename(file.filename)[-1]
        except InvalidWheelFilename as error:
            raise UsageError(f"the plan names a file that is not a wheel: {error}") from error
        if runs.isdisjoint(tags):
            raise ImpossibleError(
                f"{file.filename} does not run on Python {target.version} of this machine",
                hint="make a plan for this machine, or install on the machine that the plan was made for",
            )


def _as_reference(url: str) -> str:
    """The URL as a requirements file can hold it: no fragment, nothing that pip would expand (``${NAME}``)."""
    return quote(urlsplit(url)._replace(fragment="").geturl(), safe="%/:=&?~+!,;'@()*[]")
