"""Requirements as people write them, those of projects included, and the value that every input is read into."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta, timezone
from pathlib import Path, PurePath
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec
from msgspec.structs import replace
from packaging.markers import Marker
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name, parse_sdist_filename, parse_wheel_filename

from envsolve.errors import UsageError
from envsolve.packages.urls import VARIANT_INDEX, redact, without_logins
from envsolve.system.files import home_path, is_file, is_folder, real_path
from envsolve.system.limits import is_sane

COMMAND_LINE = "command line"  # the origin of what is written there
PROJECT_FILES = ("pyproject.toml", "setup.cfg")  # read as a project where a requirement file is named


class Need(msgspec.Struct, frozen=True):
    """One requirement and where it comes from.

    Attributes:
        requirement: Its marker is kept: only the resolver knows the target.
        origin: ``command line``, ``requirements.txt line 3``, ``pyproject.toml [project]``, ...
        hashes: ``--hash`` of the line, ``sha256:<digest>``; a file of the package must have one of them, if any.
    """

    requirement: Requirement
    origin: str
    hashes: tuple[str, ...] = ()


class Source(msgspec.Struct, frozen=True):
    """The index of a variant that a request takes a package from; a plan takes another variant if it does not run.

    Attributes:
        package: Normalised name.
        url: The index.
        origin: ``pyproject.toml line 12``.
        marker: Under which the project takes it from there.
        only: Whether the project takes it from nowhere else; False for one index among several, as pip merges them.
        others: The indexes from which it takes it for other extras and groups, each behind the option that chooses one.
    """

    package: str
    url: str
    origin: str
    marker: Marker | None = None
    only: bool = True
    others: tuple[tuple[str, str], ...] = ()

    @property
    def variant(self) -> str:
        """The variant that the index carries."""
        return variant_of(self.url)


def variant_of(url: str) -> str:
    """The variant that an index of torch's project carries, by its URL."""
    return url.rstrip("/").rpartition("/")[2]


def variant_sources(index_urls: Iterable[str], extra_index_urls: Iterable[str], origin: str) -> tuple[Source, ...]:
    """The indexes of a variant among those of a requirement file: all of them have torch."""
    only = (Source("torch", url, origin) for url in index_urls if VARIANT_INDEX.search(url))
    beside = (Source("torch", url, origin, only=False) for url in extra_index_urls if VARIANT_INDEX.search(url))
    return (*only, *beside)


class Asked(msgspec.Struct, frozen=True):
    """Everything that the inputs request.

    Attributes:
        needs: What must be in the plan, in the order of the inputs.
        constraints: Constraints on packages that other packages require.
        index_urls: ``--index-url`` lines in order; the last one is the default index, as in pip.
        find_links: URLs of directories, pages and archives whose files count besides those of the indexes.
        no_index: Whether a file says ``--no-index``.
        requires_python: The specifiers of all projects together (``>=3.10,<3.14``), or None.
        notes: Lines that were understood and ignored, in words.
        prereleases: Whether a file says ``--pre``.
        sources: Indexes that projects name for a package.
        overrides: Requirements that replace those of every package in the plan.
        indexes: Normalised names with the URL of the only index that serves each.
        exclude_newer: The earliest date or time of the inputs; files uploaded later are ignored.
        environments: Markers of the environments that projects are locked for, with their places; empty for no limit.
    """

    needs: tuple[Need, ...] = ()
    constraints: tuple[Need, ...] = ()
    index_urls: tuple[str, ...] = ()
    extra_index_urls: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    no_index: bool = False
    requires_python: str | None = None
    notes: tuple[str, ...] = ()
    prereleases: bool = False
    sources: tuple[Source, ...] = ()
    overrides: tuple[Need, ...] = ()
    indexes: tuple[tuple[str, str], ...] = ()
    exclude_newer: str | None = None
    environments: tuple[tuple[Marker, str], ...] = ()


def combine(parts: Iterable[Asked]) -> Asked:
    """Everything that several inputs request, in their order."""
    parts = tuple(parts)
    lists: dict[str, Any] = {
        field: tuple(one for part in parts for one in getattr(part, field))
        for field in (
            "needs",
            "constraints",
            "index_urls",
            "extra_index_urls",
            "find_links",
            "notes",
            "sources",
            "overrides",
            "indexes",
            "environments",
        )
    }
    pythons = ",".join(part.requires_python for part in parts if part.requires_python)
    together = str(SpecifierSet(pythons)) if pythons else None
    return Asked(
        **lists,
        requires_python=together,
        no_index=any(part.no_index for part in parts),
        prereleases=any(part.prereleases for part in parts),
        exclude_newer=min((part.exclude_newer for part in parts if part.exclude_newer), default=None),
    )


def overridden(asked: Asked) -> tuple[Asked, dict[str, list[Requirement]]]:
    """Requirements with the overrides applied, and the overrides by package; as in uv, dependencies obey them too."""
    overrides: dict[str, list[Requirement]] = {}
    for one in asked.overrides:
        overrides.setdefault(canonicalize_name(one.requirement.name), []).append(one.requirement)
    needs: list[Need] = []
    for need in asked.needs:
        for instead in overrides.get(canonicalize_name(need.requirement.name), [need.requirement]):
            own = Requirement(str(instead))
            own.extras = {*own.extras, *need.requirement.extras}
            own.marker = need.requirement.marker if instead.marker is None else instead.marker
            needs.append(replace(need, requirement=own))
    return (replace(asked, needs=tuple(needs)), overrides) if overrides else (asked, {})


def wrong(origin: str, what: str, hint: str | None = None) -> UsageError:
    """The error for a bad piece of input: its place, what is wrong, and what to write instead."""
    return UsageError(without_logins(f"{origin}: {what}"), hint=hint and without_logins(hint))


# Files of other tools that are named instead of a requirements file: what each is, and what reads it.

_OWN = "give a requirements file, a pyproject.toml or an environment.yml"


def other_file(path: PurePath, text: str = "") -> tuple[str, str] | None:
    """The kind of a file and what to do with it, if its name or one of its lines shows it; otherwise None."""
    installed = f"install it: envsolve install {path} --prefix DIR"
    if "\n@EXPLICIT" in f"\n{text}" or (path.name.startswith("conda-") and path.suffix == ".lock"):
        return "it is an explicit lock of conda packages, not a list of requirements", installed
    if "\n# $ conda create --name <env> --file" in f"\n{text}":
        what = "it is a list of conda packages, which `conda list --export` wrote"
        return what, f"use conda to create the environment: conda create --name NAME --file {path}; or {_OWN}"
    if path.suffix == ".toml" and path.name.startswith("pylock."):
        return "it is a lock, not a list of requirements", installed
    if tool := {"uv.lock": "uv", "poetry.lock": "Poetry"}.get(path.name):
        return f"it is {tool}'s lock, not a list of requirements", f"make one with `{tool.lower()} export`; or {_OWN}"
    if path.name == "pixi.toml":
        return "it lists conda packages", f"plan conda packages: envsolve plan -r {path} --manager conda"
    if path.suffix == ".toml":
        return "it is not a list of requirements", _OWN
    return None


# One requirement as people write it: PEP 508, a URL, a path; or a project whose dependencies are meant. As in pip,
# relative paths are relative to the working directory, wherever they are written.

_ADDRESS = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*://")
_REPOSITORY = r"^(?:git|hg|svn|bzr)\+"
_SCP = re.compile(r"git\+(?P<host>[\w.-]+@[\w.-]+):(?P<path>[^/\s][^\s]*)")
# No run of white space can match in two ways: a long one would be looked through once for every character of it.
_NAMED = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*\s*(?:\[[^\]]*\]\s*)?@")
_MARKER = re.compile(r"(?<!\s)\s+;\s*|;\s+")
_EXTRAS = r"^(?P<path>.*?)(?:\[(?P<extras>[^\[\]]*)\])?$"
_SINGLE_EQUALS = r"^(?P<name>[A-Za-z0-9._\[\],-]+?)\s*(?<![=<>!~])=(?!=)\s*(?P<version>[0-9][^\s=]*)"
_NAME_VERSION = r"^(?P<name>[A-Za-z0-9._\[\],-]+)\s+(?P<version>[0-9][^\s;]*)"


def read_requirement(text: str, origin: str) -> Requirement:
    """Read one requirement.

    Args:
        text: PEP 508, ``name @ URL``, the URL or path of a wheel or sdist, or ``git+https://...#egg=name``.
        origin: Its place, for messages.

    Raises:
        UsageError: It is in none of these forms, or a URL without the name of its package.
    """
    text = text.strip()
    if _ADDRESS.match(text):
        return _from_address(text, origin)
    return _from_path(text, origin) if _is_path(text) else _from_pep508(text, origin)


def project_path(text: str) -> tuple[Path, tuple[str, ...]] | None:
    """The ``pyproject.toml`` and the extras that ``./folder[extra]`` or ``pyproject.toml`` means; None for all else."""
    match = re.match(_EXTRAS, text.strip(), re.DOTALL)
    assert match is not None  # every part of the pattern may be empty
    path = home_path(match["path"])
    extras = tuple(extra.strip() for extra in (match["extras"] or "").split(",") if extra.strip())
    if path.name in PROJECT_FILES:
        return path, extras
    if _is_path(match["path"]) and is_folder(path):
        return path / "pyproject.toml", extras
    return None


def _is_path(text: str) -> bool:
    """Whether a text is meant as a path: a plain word never is, even where a directory has that name (as in pip)."""
    if _ADDRESS.match(text) or _NAMED.match(text):
        return False
    body = _MARKER.split(text, maxsplit=1)[0]
    return body.startswith((".", "~")) or "/" in body or os.sep in body or body.endswith(".whl")


def _from_pep508(text: str, origin: str) -> Requirement:
    try:
        requirement = Requirement(text if is_sane(" ".join(text.split())) else "")
    except InvalidRequirement as error:
        what = f"{text[:200]!r} is not a requirement: {str(error).splitlines()[0]}"
        raise wrong(origin, what, _spelling(text)) from None
    # Nobody pins a file, and ruamel.yaml is a package: of that ending, only a file that is there is meant as one.
    is_file_name = requirement.name.lower().endswith((".txt", ".in", ".yml", ".json"))
    is_file_name = is_file_name or (requirement.name.lower().endswith(".yaml") and is_file(Path(text)))
    if text == requirement.name and is_file_name:
        hint = (
            "give package names, or a file of requirements with -r FILE"
            if text.endswith(".json")
            else f"write -r {text}"
        )
        raise wrong(origin, f"{text!r} is the name of a file, not of a package", hint)
    if requirement.url is not None and (short := _SCP.fullmatch(requirement.url)):
        hint = f"write `{requirement.name} @ git+ssh://{short['host']}/{short['path']}`"
        raise wrong(origin, f"{requirement.url} is git's short URL form, which installers do not accept", hint)
    if requirement.url is not None and not _ADDRESS.match(re.sub(_REPOSITORY, "", requirement.url)):
        requirement.url = _existing(requirement.url.removeprefix("file:"), origin).as_uri()
    return requirement


def _spelling(text: str) -> str | None:
    """The likely intended text: conda's and everyday spelling (``torch=2.9``, ``torch 2.9``), or a path with blanks."""
    name, at, place = text.partition("@")
    if at and " " in place.strip() and (is_folder(path := home_path(place.strip())) or is_file(path)):
        return f"write '{name.strip()} @ {real_path(path).as_uri()}': a space ends a URL"
    match = re.match(_SINGLE_EQUALS, text) or re.match(_NAME_VERSION, text)
    return f"write {match['name']}=={match['version']}" if match else None


def _from_address(text: str, origin: str) -> Requirement:
    address, *marker = _MARKER.split(text, maxsplit=1)
    try:
        parts = urlsplit(address)
    except ValueError as error:
        raise wrong(origin, f"{address} is not a URL: {error}") from None
    fragment = parse_qsl(parts.fragment, keep_blank_values=True)
    name = next((value for key, value in fragment if key == "egg"), None)
    rest = "&".join(f"{key}={value}" for key, value in fragment if key != "egg")
    address = address.partition("#")[0] + (f"#{rest}" if rest else "")
    if name is None and re.match(_REPOSITORY, address):
        raise wrong(
            origin, f"{redact(address)} does not contain the name of the package", f"write `name @ {redact(address)}`"
        )
    name = name or _name_in(unquote(parts.path.rpartition("/")[2]))
    if name is None:
        what = f"the file name in {redact(address)} does not contain the package's name"
        raise wrong(origin, what, f"write `name @ {redact(address)}`")
    return _from_pep508(" ; ".join([f"{name} @ {address}", *marker]), origin)


def _from_path(text: str, origin: str) -> Requirement:
    location, *marker = _MARKER.split(text, maxsplit=1)
    match = re.match(_EXTRAS, location, re.DOTALL)
    assert match is not None  # every part of the pattern may be empty
    path = _existing(match["path"], origin)
    name = _name_in(path.name)
    if name is None:
        if other := other_file(Path(match["path"])):
            raise wrong(origin, f"{location}: {other[0]}", other[1])
        hint = f"write -r {location}" if path.suffix in (".txt", ".in") else None
        raise wrong(origin, f"{location} is not a wheel, sdist, pyproject.toml or project directory", hint)
    extras = f"[{match['extras']}]" if match["extras"] else ""
    return _from_pep508(" ; ".join([f"{name}{extras} @ {path.as_uri()}", *marker]), origin)


def _existing(text: str, origin: str) -> Path:
    path = home_path(text)
    if not (is_file(path) or is_folder(path)):
        hint = "check the path; paths are relative to the working directory"
        raise wrong(origin, f"file or directory {text} does not exist", hint)
    return real_path(path)


def _name_in(filename: str) -> str | None:
    """The package's name in a wheel's or sdist's file name."""
    read = parse_wheel_filename if filename.endswith(".whl") else parse_sdist_filename
    try:
        return read(filename)[0]
    except ValueError:
        return None


# Spans as uv reads them (uv reference, "exclude-newer"): friendly ones, and ISO 8601 without months and years.
_SPAN = re.compile(
    r"(?i)(?:(?P<weeks>\d+) ?(?:weeks?|w))?,? ?(?:(?P<days>\d+) ?(?:days?|d))?,? ?"
    r"(?:(?P<hours>\d+) ?(?:hours?|hrs?|h))?(?: ago)?"
)
_ISO_SPAN = re.compile(r"(?i)P(?:(?P<weeks>\d+)W)?(?:(?P<days>\d+)D)?(?:T(?P<hours>\d+)H)?")
_HOURS = {"weeks": 168, "days": 24, "hours": 1}


def date_of(text: str) -> str | None:
    """The date or time, without fractions of a second, that uv's ``exclude-newer`` means; None if it is not one."""
    span = _SPAN.fullmatch(text) or _ISO_SPAN.fullmatch(text)
    if span and any(span.groups()):
        hours = sum(int(span[name] or 0) * hours for name, hours in _HOURS.items())
        # To the day, so that a plan does not differ from hour to hour.
        return str((datetime.now(timezone.utc) - timedelta(hours=hours)).date())
    return re.sub(r"\.\d+", "", text) if re.match(r"\d{4}-\d{2}-\d{2}", text) else None


# The strong hashes of pip, with the hexadecimal digits of each.
_DIGESTS = {"sha256": 64, "sha384": 96, "sha512": 128}


def digest_of(text: str, origin: str) -> str:
    """``sha256:<digest>`` as pip takes it, in lower case."""
    name, _, digest = text.lower().partition(":")
    length = _DIGESTS.get(name)
    if length is None or not re.fullmatch(r"[0-9a-f]+", digest) or len(digest) != length:
        forms = ", ".join(f"{name}:<{length} hexadecimal digits>" for name, length in _DIGESTS.items())
        raise wrong(origin, f"--hash={text} is not a digest", f"use one of these forms: {forms}")
    return f"{name}:{digest}"


# The requirement lines of files that the build of a project reads.


Read = Callable[[str], bytes | None]
"""Gives the content of a file of the project by its path; None if it is not there."""


def text_of(content: bytes | None) -> str:
    """The text of a file; empty for one that is not there."""
    return (content or b"").decode("utf-8", "replace")


def lines_of_files(paths: object, read: Read) -> tuple[str, ...] | None:
    """The requirement lines of files of a project together; None if not all can be read."""
    listed = [paths] if isinstance(paths, str) else paths
    if not isinstance(listed, list) or not listed:
        return None
    found = [_of_file(path, read, ()) if isinstance(path, str) else None for path in listed]
    return None if None in found else tuple(line for lines in found for line in lines or ())


def _of_file(path: str, read: Read, trail: tuple[str, ...]) -> tuple[str, ...] | None:
    """The requirement lines of a file and of those that it includes; None if one of them is not there."""
    path = posixpath.normpath(path)
    content = None if path in trail or path.startswith(("/", "..")) else read(path)
    if content is None:
        return None
    lines: list[str] = []
    for line in text_of(content).replace("\\\n", " ").splitlines():
        text = line.partition(" #")[0].strip()
        if text.startswith(("-r", "--requirement")):
            included = text.replace("=", " ").removeprefix("--requirement").removeprefix("-r").strip()
            more = _of_file(posixpath.join(posixpath.dirname(path), included), read, (*trail, path))
            if more is None:
                return None
            lines += more
        elif text and not text.startswith(("#", "-")):
            lines.append(text)
    return tuple(lines)
