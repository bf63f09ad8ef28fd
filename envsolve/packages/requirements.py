"""Requirements as people write them, and the value that every kind of input is read into."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from itertools import chain
from pathlib import Path, PurePath
from typing import TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit, urlunsplit

import msgspec
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import InvalidSdistFilename, InvalidWheelFilename, parse_sdist_filename, parse_wheel_filename

from envsolve.errors import UsageError
from envsolve.packages.urls import redact, without_logins
from envsolve.system.files import is_file, is_folder, real_path

Item = TypeVar("Item")

COMMAND_LINE = "command line"  # the origin of what is written there


class Need(msgspec.Struct, frozen=True):
    """One requirement and who asks for it.

    Attributes:
        requirement: Its marker is kept: only the resolver knows the target.
        origin: ``command line``, ``requirements.txt line 3``, ``pyproject.toml [project]``, ...
        hashes: ``--hash`` of the line, ``sha256:<digest>``: a file of the package must have one of them. Empty where
            none is given.
    """

    requirement: Requirement
    origin: str
    hashes: tuple[str, ...] = ()


class Asked(msgspec.Struct, frozen=True):
    """All that the inputs ask for.

    Attributes:
        needs: What must be in the plan, in the order of the inputs.
        constraints: What holds for a package only if something else brings it into the plan.
        index_urls: ``--index-url`` lines in order; the last one is the default index, as in pip.
        extra_index_urls: ``--extra-index-url`` lines in order.
        requires_python: The specifiers of all projects together (``>=3.10,<3.14``), or None.
        notes: Lines that were understood and set aside, in words.
        prereleases: Whether a file says ``--pre``.
    """

    needs: tuple[Need, ...] = ()
    constraints: tuple[Need, ...] = ()
    index_urls: tuple[str, ...] = ()
    extra_index_urls: tuple[str, ...] = ()
    requires_python: str | None = None
    notes: tuple[str, ...] = ()
    prereleases: bool = False


def combine(parts: Iterable[Asked]) -> Asked:
    """Everything that several inputs ask for, in their order."""
    parts = tuple(parts)
    pythons = [SpecifierSet(part.requires_python) for part in parts if part.requires_python]
    return Asked(
        needs=_joined(part.needs for part in parts),
        constraints=_joined(part.constraints for part in parts),
        index_urls=_joined(part.index_urls for part in parts),
        extra_index_urls=_joined(part.extra_index_urls for part in parts),
        requires_python=_specifier(pythons),
        notes=_joined(part.notes for part in parts),
        prereleases=any(part.prereleases for part in parts),
    )


def wrong(origin: str, what: str, hint: str | None = None) -> UsageError:
    """The error for a bad piece of input: where it stands, what is wrong, and what to write instead."""
    return UsageError(without_logins(f"{origin}: {what}"), hint=hint and without_logins(hint))


def _joined(parts: Iterable[tuple[Item, ...]]) -> tuple[Item, ...]:
    return tuple(chain.from_iterable(parts))


def _specifier(pythons: list[SpecifierSet]) -> str | None:
    if not pythons:
        return None
    together = SpecifierSet()
    for python in pythons:
        together &= python
    return str(together)


# Files of other tools that are named where a requirements file is meant: what each is, and what takes it. Pure.


_OWN = "name a requirements file, a pyproject.toml or an environment.yml"


def other_file(path: PurePath, text: str = "") -> tuple[str, str] | None:
    """What a file is and what to do with it, where that can be told by its name or by a line of it; else None."""
    installed = f"install it: envsolve install {path} --prefix DIR"
    if "\n@EXPLICIT" in f"\n{text}" or (path.name.startswith("conda-") and path.suffix == ".lock"):
        return "it is an explicit lock of conda packages, not a list of requirements", installed
    if path.suffix == ".toml" and path.name.startswith("pylock."):
        return "it is a lock, not a list of requirements", installed
    if path.name == "uv.lock":
        return "it is uv's lock, not a list of requirements", f"uv export writes one; or {_OWN}"
    if path.name == "poetry.lock":
        return "it is Poetry's lock, not a list of requirements", f"poetry export writes one; or {_OWN}"
    if path.suffix == ".toml":
        return "it is no list of requirements", _OWN
    return None


# One requirement as people write it: PEP 508, an address, a path; or a project whose dependencies are meant.
#
# Relative paths are relative to the working folder, wherever they are written, as pip has it.


_ADDRESS = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*://")
_REPOSITORY = r"^(?:git|hg|svn|bzr)\+"
_SCP = re.compile(r"git\+(?P<host>[\w.-]+@[\w.-]+):(?P<path>[^/\s][^\s]*)")
# No run of white space can be shared out between two parts of a pattern, or begin in its middle: a long one would be
# looked through once for every character of it.
_NAMED = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*\s*(?:\[[^\]]*\]\s*)?@")
_MARKER = re.compile(r"(?<!\s)\s+;\s*|;\s+")
_EXTRAS = r"^(?P<path>.*?)(?:\[(?P<extras>[^\[\]]*)\])?$"
_SINGLE_EQUALS = r"^(?P<name>[A-Za-z0-9._\[\],-]+?)\s*(?<![=<>!~])=(?!=)\s*(?P<version>[0-9][^\s=]*)"
_NAME_VERSION = r"^(?P<name>[A-Za-z0-9._\[\],-]+)\s+(?P<version>[0-9][^\s;]*)"


def read_requirement(text: str, origin: str) -> Requirement:
    """Read one requirement.

    Args:
        text: PEP 508, ``name @ address``, a wheel's or sdist's address or path, or ``git+https://...#egg=name``.
        origin: Where it stands, for messages.

    Raises:
        UsageError: It is none of these, or an address that does not tell the package's name.
    """
    text = text.strip()
    if _ADDRESS.match(text):
        return _from_address(text, origin)
    if _is_path(text):
        return _from_path(text, origin)
    return _from_pep508(text, origin)


def project_path(text: str) -> tuple[Path, tuple[str, ...]] | None:
    """The ``pyproject.toml`` and the extras that ``./folder[extra]`` or ``pyproject.toml`` means; None for all else."""
    match = re.match(_EXTRAS, text.strip())
    assert match is not None  # every part of the pattern may be empty
    path = _home(match["path"])
    extras = tuple(extra.strip() for extra in (match["extras"] or "").split(",") if extra.strip())
    if path.name == "pyproject.toml":
        return path, extras
    if _is_path(match["path"]) and is_folder(path):
        return path / "pyproject.toml", extras
    return None


def _is_path(text: str) -> bool:
    """Whether a text is meant as a path: a plain word never is, even where a folder has that name (as in pip)."""
    if _ADDRESS.match(text) or _NAMED.match(text):
        return False
    body = _MARKER.split(text, maxsplit=1)[0]
    return body.startswith((".", "~")) or "/" in body or os.sep in body or body.endswith(".whl")


def _from_pep508(text: str, origin: str) -> Requirement:
    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        reason = str(error).splitlines()[0]
        raise wrong(origin, f"{text!r} is not a requirement: {reason}", _spelling(text)) from None
    if requirement.name.lower().endswith((".txt", ".in")) and requirement.url is None:
        raise wrong(origin, f"{text!r} is the name of a file, not of a package", f"write -r {text}")
    if requirement.url is not None and (short := _SCP.fullmatch(requirement.url)):
        hint = f"write `{requirement.name} @ git+ssh://{short['host']}/{short['path']}`"
        raise wrong(origin, f"{requirement.url} is git's own short form, which no installer takes", hint)
    if requirement.url is not None and not _ADDRESS.match(re.sub(_REPOSITORY, "", requirement.url)):
        requirement.url = _existing(requirement.url.removeprefix("file:"), origin).as_uri()
    return requirement


def _spelling(text: str) -> str | None:
    """What was probably meant: conda's and everyday spelling (``torch=2.9``, ``torch 2.9``), or a path with blanks."""
    name, at, place = text.partition("@")
    if at and " " in place.strip() and (is_folder(path := _home(place.strip())) or is_file(path)):
        return f"write '{name.strip()} @ {real_path(path).as_uri()}': a blank ends an address"
    match = re.match(_SINGLE_EQUALS, text) or re.match(_NAME_VERSION, text)
    return f"write {match['name']}=={match['version']}" if match else None


def _from_address(text: str, origin: str) -> Requirement:
    address, *marker = _MARKER.split(text, maxsplit=1)
    try:
        parts = urlsplit(address)
    except ValueError as error:
        raise wrong(origin, f"{address} is not an address: {error}") from None
    fragment = parse_qsl(parts.fragment, keep_blank_values=True)
    name = next((value for key, value in fragment if key == "egg"), None)
    rest = "&".join(f"{key}={value}" for key, value in fragment if key != "egg")
    address = urlunsplit(parts._replace(fragment=rest))
    if name is None and re.match(_REPOSITORY, address):
        raise wrong(origin, f"{redact(address)} does not say which package it is", f"write `name @ {redact(address)}`")
    name = name or _name_in(unquote(parts.path.rpartition("/")[2]))
    if name is None:
        what = f"{redact(address)} does not tell a package's name by its file name"
        raise wrong(origin, what, f"write `name @ {redact(address)}`")
    return _from_pep508(_direct(name, address, marker), origin)


def _from_path(text: str, origin: str) -> Requirement:
    location, *marker = _MARKER.split(text, maxsplit=1)
    match = re.match(_EXTRAS, location)
    assert match is not None  # every part of the pattern may be empty
    path = _existing(match["path"], origin)
    name = _name_in(path.name)
    if name is None:
        if other := other_file(Path(match["path"])):
            raise wrong(origin, f"{location}: {other[0]}", other[1])
        hint = f"write -r {location}" if path.suffix in (".txt", ".in") else None
        raise wrong(origin, f"{location} is no wheel, sdist, pyproject.toml or project folder", hint)
    extras = f"[{match['extras']}]" if match["extras"] else ""
    return _from_pep508(_direct(name + extras, path.as_uri(), marker), origin)


def _existing(text: str, origin: str) -> Path:
    path = _home(text)
    if not (is_file(path) or is_folder(path)):
        hint = "check the path; paths are relative to the working folder"
        raise wrong(origin, f"there is no file or folder {text}", hint)
    return real_path(path)


def _home(text: str) -> Path:
    """The path with ``~`` resolved; as it stands where it names no user that there is."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        return Path(text)


def _direct(name: str, address: str, marker: list[str]) -> str:
    return " ; ".join([f"{name} @ {address}", *marker])


def _name_in(filename: str) -> str | None:
    """The package's name in a wheel's or sdist's file name."""
    try:
        if filename.endswith(".whl"):
            return parse_wheel_filename(filename)[0]
        return parse_sdist_filename(filename)[0]
    except (InvalidWheelFilename, InvalidSdistFilename):
        return None
