"""Packages: lists that installers print, what installers did, and the plans of conda."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from packaging.utils import canonicalize_name

from envsolve.diagnose.model import Seen
from envsolve.diagnose.report.observation import (
    VERSION,
    Fact,
    Field,
    Observation,
    Package,
    Readers,
    Scalar,
    Trust,
    is_related,
    normalised,
)
from envsolve.diagnose.report.text import Line, Log
from envsolve.errors import UsageError
from envsolve.facts.catalogue import Catalogue
from envsolve.system.files import StrPath, items, path_of

READERS = Readers()

# One line of a package list, in the forms that installers print.

_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,80}"
_ANY_VERSION = r"v?\d[A-Za-z0-9.+!_]{0,60}"
_FROZEN = re.compile(
    rf"[\s+*\u2022-]{{0,8}}(?:-\s)?({_NAME})(?:\[[\w,.-]{{1,60}}\])?={{2,3}}({_ANY_VERSION})(?:\s{{0,8}}(?:;|--hash|#|\\).{{0,500}})?\s{{0,4}}$"
)
_EDITABLE = re.compile(rf"# Editable (?:Git |Hg |)install [^(]{{0,60}}\(({_NAME})==({_ANY_VERSION})\)")
_AT = re.compile(rf"({_NAME}) @ \S{{1,400}}/(?:[A-Za-z0-9_.]{{1,80}})-({_ANY_VERSION})-\S{{1,120}}\.whl\b")
_EXPORTED = re.compile(rf"\s*({_NAME})=({_ANY_VERSION})=([A-Za-z0-9_.]{{1,60}})\s*$")
_YAML = re.compile(
    rf"\s{{0,8}}-\s(?:[\w/.-]{{1,60}}::)?({_NAME})={{1,2}}({_ANY_VERSION})(?:=[A-Za-z0-9_.]{{1,60}})?\s*$"
)
_EXPLICIT = re.compile(
    r"\s*(?:https?|file)://\S{1,300}/(?:linux-64|linux-aarch64|win-64|osx-64|osx-arm64|noarch)/"
    r"([A-Za-z0-9_.-]{1,100})-([^-/\s]{1,60})-[^-/\s]{1,60}\.(?:conda|tar\.bz2)\b"
)
_TABLE = re.compile(rf"[\s*-]{{0,4}}({_NAME})(?:\s\(!\))?\s{{1,80}}({_ANY_VERSION})(?:\s{{1,80}}(\S.{{0,300}}))?")
_APART = re.compile(rf"[\s*-]{{0,4}}({_NAME})\s{{2,80}}({_ANY_VERSION})(?:\s{{1,80}}\S{{1,80}}){{0,3}}")
_HEADING = re.compile(r"[#\s]{0,4}(?:package|name)\s{1,80}version\b", re.IGNORECASE)
# Words that begin lines which look like a row of a table.
_SPOKEN = frozenset(
    {"version", "python", "line", "gpu", "cuda", "error", "step", "release", "warning", "ubuntu", "windows"}
)


def frozen_line(text: str) -> Package | None:
    """``torch==2.8.0+cu128``, with what pip freeze and uv add to it."""
    match = next((match for pattern in (_FROZEN, _EDITABLE, _AT) if (match := pattern.match(text))), None)
    return _package(match) if match else None


def _table_line(text: str) -> Package | None:
    """Name and version in columns, with or without build and channel after them."""
    match = _TABLE.fullmatch(text.rstrip())
    return _package(match) if match and match[1].lower() not in _SPOKEN and not match[1].isdigit() else None


def _any_line(text: str) -> Package | None:
    """A line of a file that is known to be a package list, in any form."""
    match = next((match for pattern in (_EXPLICIT, _EXPORTED, _YAML) if (match := pattern.match(text))), None)
    return _package(match) if match else frozen_line(text) or _table_line(text)


def _package(match: re.Match[str]) -> Package:
    # Lists have the names "torch" (pip) and "pytorch" (conda); "PyTorch" is how tools like collect_env call torch.
    name = "torch" if match[1] == "PyTorch" else normalised(match[1])
    return Package(name, match[2].removeprefix("v"))


# Lists that are given as such.

_HINT = 'give what "pip freeze", "pip list", "uv pip list" or "conda list" prints, or JSON: {"torch": "2.8.0+cu128"}'


def installed_versions(
    lock: StrPath | None = None,
    *,
    prefix: StrPath | None = None,
    installed: str | None = None,
    upgrade: Sequence[str] = (),
) -> tuple[tuple[str, str], ...]:
    """Return names and versions of a lock or an environment, for the ``keep`` of a :class:`envsolve.Request`.

    Args:
        lock: A pylock.toml; its versions take precedence over the others.
        prefix: An environment.
        installed: Text of ``pip freeze``, ``pip list`` or ``conda list``, or JSON.
        upgrade: Packages to leave out.

    Raises:
        UsageError: The lock or environment does not exist, or the text holds no package with a version.
    """
    if lock is None and prefix is None and installed is None:
        return ()
    # The installer's readers take 0.2 s to import, and a diagnosis of a text needs none of them.
    from envsolve.install import lock_classes

    found: list[tuple[str, str]] = []
    if lock is not None:
        found += lock_classes.locked(path_of(lock, "lock"))
    if prefix is not None:
        found += lock_classes.installed(path_of(prefix, "prefix"))
    if installed is not None:
        found += ((name, seen.value) for name, seen in read_installed(installed).items())
    moving = {canonicalize_name(name) for name in items(upgrade, str, "upgrade")}
    return tuple((name, version) for name, version in found if canonicalize_name(name) not in moving)


def read_installed(text: str, where: str = "--installed") -> Mapping[str, Seen[str]]:
    """The packages of a list, by normalised name; entries without a version are left out.

    Reads ``pip freeze``, ``pip list`` (columns or JSON), ``pip inspect``, ``uv pip list``, ``conda list`` (also
    ``--json``, ``--export``, ``--explicit``), an exported ``environment.yml``, ``pixi list``, and JSON such as
    ``{"torch": "2.8.0+cu128"}``.

    Args:
        text: The list.
        where: The origin to record with each version.

    Raises:
        UsageError: The text contains no package.
    """
    if text.lstrip()[:1] in ("{", "["):
        entries: Sequence[object] = (pairs := _entries(text))
        found = {
            normalised(name): Seen(version, where, f"{normalised(name)} {version}")
            for name, version in pairs
            if isinstance(name, str) and isinstance(version, str) and version
        }
    else:
        entries = lines = [line for line in Log(text).lines if line.text]
        listed = ((line, _any_line(line.text)) for line in lines if not _HEADING.match(line.text))
        found = {
            package.name: Seen(package.version, f"{where}, line {line.number}", line.quote)
            for line, package in listed
            if package and package.version
        }
    if entries and not found:
        raise UsageError("no package with a version in the list of what is installed", hint=_HINT)
    return found


def _entries(text: str) -> list[tuple[Any, Any]]:
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the list of what is installed is not JSON: {error}", hint=_HINT) from error
    if isinstance(value, dict) and isinstance(value.get("installed"), list):  # pip inspect
        value = [entry.get("metadata") for entry in value["installed"] if isinstance(entry, dict)]
    if isinstance(value, dict):
        return list(value.items())
    return [(entry.get("name"), entry.get("version")) for entry in value if isinstance(entry, dict)]


# Lists within a report.

_COLLECTED = re.compile(r"\s{0,8}\[(?:pip3?|conda|uv)\]\s{1,4}(.{3,200})")
_LISTING_COMMAND = re.compile(
    r"(?:pip3?|uv pip|conda|mamba|micromamba|pixi|poetry(?: run pip)?)\s(?:\S{1,40}\s){0,3}?(?:freeze|list|show)\b"
)
_REQUIREMENTS = re.compile(
    r"requirements?[\w-]{0,20}\.(?:txt|in)|environment\.ya?ml|pyproject|constraints?|dependencies|docker ?file",
    re.IGNORECASE,
)
_PARENTHESISED = re.compile(r"([A-Za-z0-9._-]{1,60}) \((\d[\w.+]{0,40})\)")
# "pip show" and "poetry show": the name, and the version on the next line.
_SHOWN = re.compile(r"\s{0,4}[Nn]ame\s{0,12}: ([A-Za-z0-9._-]{2,60})\s{0,4}$")
_SHOWN_VERSION = re.compile(r"\s{0,4}[Vv]ersion\s{0,12}: (\d[\w.+!-]{0,60})\s{0,4}")
_AFTER_COMMAND, _AFTER_HEADING = 60, 2000  # lines in which a table may begin, and go on


@READERS.log
def _collected(log: Log, catalogue: Catalogue) -> Iterator[Observation]:
    """Package versions in the list that collect_env repeats; older versions wrote ``torch (1.0.0)``."""
    for line in log.containing("[pip3]", "[pip]", "[conda]", "[uv]"):
        if match := _COLLECTED.match(line.text):
            old = _PARENTHESISED.fullmatch(match[1].strip())
            if package := _package(old) if old else frozen_line(match[1]) or _table_line(match[1]):
                yield from _listed(package, Trust.PRINTED, match[1], line)


@READERS.log
def _frozen(log: Log, catalogue: Catalogue) -> Iterator[Observation]:
    for line in log.containing("=="):
        if (package := frozen_line(line.text)) and is_related(package.name) and not _is_requirement(line, log):
            yield Observation(package, line, Trust.IMPLIED)


def _is_requirement(line: Line, log: Log) -> bool:
    """Whether the block around a ``name==version`` is a list of requirements."""
    for above in log.before(line, 40):
        if _REQUIREMENTS.search(above.text):
            return True
        if _LISTING_COMMAND.search(above.text) or ("==" not in above.text and above.index != line.index - 1):
            return False
    return False


@READERS.log
def _shown(log: Log, catalogue: Catalogue) -> Iterator[Observation]:
    for line in log.containing("name: ", "name  "):
        if (match := _SHOWN.match(line.text)) and (after := log.after(line, 1)):
            version = _SHOWN_VERSION.fullmatch(after[0].text)
            if version:
                yield Observation(Package(normalised(match[1]), version[1]), after[0], Trust.PRINTED)


@READERS.log
def _tables(log: Log, catalogue: Catalogue) -> Iterator[Observation]:
    """Columns of name and version, below a heading, below the command that prints them, or of known names."""
    until = -1
    for line in log.lines:
        text, package, trust = line.text, None, Trust.PRINTED
        if "ersion" in text and _HEADING.match(text):
            until = line.index + _AFTER_HEADING
        elif text[:1] in "$>!#(" and _LISTING_COMMAND.search(text):
            until = line.index + _AFTER_COMMAND
        elif line.index <= until:
            package = frozen_line(text) or (_table_line(text) if text[:1] != "|" else None)
            if not package and not text.startswith(("#", "-", " ")) and "  " not in text:
                until = line.index  # prose or the next command ends the table
        elif "  " in text and _APART.fullmatch(text) and (row := _table_line(text)) and is_related(row.name):
            package, trust = row, Trust.IMPLIED
        if package:
            yield from _listed(package, trust, text, line)


def _listed(package: Package, trust: Trust, row: str, line: Line) -> Iterator[Observation]:
    """A package, and the facts in the third column of its row if that is the build string of a conda package."""
    yield Observation(package, line, trust)
    words = row.split()
    if len(words) > 2:
        yield from _of_build(words[0], words[1], words[2], line)


# What the build string of a conda package tells: ``py3.11_cuda12.4_cudnn9.1.0_0``, ``cpu_mkl_py312h...``.

_TORCH = frozenset({"pytorch", "libtorch"})
_OF_A_PYTHON = _TORCH | {"torchvision", "torchaudio", "pytorch-gpu", "numpy"}
_PYTHON = re.compile(r"(?:^|_)py3\.?(\d{1,2})(?:h|_|$)")
_CUDA = re.compile(r"(?:^|_)(?:cuda_?(\d{2})\.?(\d)|cpu)(?=[_\d.]|$)")


def _of_build(name: str, version: str, build: str, line: Line) -> Iterator[Observation]:
    """The Python of a package, and the CUDA version of torch (``none`` for CPU builds)."""
    if name == "python" and (match := re.match(r"3\.\d{1,2}(?=\.|$)", version)):
        yield Observation(Scalar(Field.PYTHON, match[0]), line, Trust.PRINTED)
    if name in _OF_A_PYTHON and (match := _PYTHON.search(build)):
        yield Observation(Scalar(Field.PYTHON, f"3.{match[1]}"), line, Trust.IMPLIED)
    if name in _TORCH and (match := _CUDA.search(build)):
        cuda = f"{match[1]}.{match[2]}" if match[1] else "none"
        yield Observation(Scalar(Field.TORCH_CUDA, cuda), line, Trust.IMPLIED)


# What pip and uv did, and pip's complaints that name what is installed.

_DONE = re.compile(r"\b(Successfully (?:un)?installed)\s(.{1,2000})")
_DASHED = re.compile(rf"({_NAME}?)-({VERSION}|\d{{1,8}})(?=[\s,]|$)")
_UV = re.compile(rf"\s{{1,6}}([+~-])\s({_NAME})==({VERSION})(?:\s\(.{{0,300}})?\s{{0,4}}")
READERS.patterns("installers")


@READERS.text(Trust.PRINTED, "successfully ")
def _done(text: str) -> Iterator[Fact]:
    if match := _DONE.search(text):
        removed = "uninstalled" in match[1]
        for name, version in _DASHED.findall(match[2]):
            if name:
                yield Package(normalised(name), None if removed else version)


@READERS.text(Trust.PRINTED, " + ", " - ", " ~ ")
def _changes_of_uv(text: str) -> Iterator[Fact]:
    if match := _UV.fullmatch(text):
        yield Package(normalised(match[2]), None if match[1] == "-" else match[3])


# What a command installed, if nothing says otherwise: steps that people list.

_STEP = re.compile(rf"\bpip3? install\b(.{{0,300}}?\b(?:torch|torchvision|torchaudio)=={VERSION}.{{0,300}})")
_STEP_PIN = re.compile(rf"(?<![\w.-])(torch|torchvision|torchaudio)==({VERSION})")
_STEP_INDEX = re.compile(r"/whl/(cu\d{2,3}|cpu)\b")
_REFUSED = ("no matching distribution", "could not find a version", "no solution found", "resolutionimpossible")


@READERS.log
def _steps(log: Log, catalogue: Catalogue) -> Iterator[Observation]:
    if any(log.containing(*_REFUSED)):
        return
    found = ((line, _STEP.search(line.text)) for line in log.containing("pip install", "pip3 install"))
    steps = [(line, step[1]) for line, step in found if step and _STEP_INDEX.search(step[1])]
    failed = [line.index for line in log.containing("importerror", "modulenotfounderror", "runtimeerror") if steps]
    # Of several attempts, which was the last is not known; a program that ran afterwards shows that it ended well.
    if len(steps) == 1 and any(index > steps[0][0].index for index in failed):
        line, words = steps[0]
        index = _STEP_INDEX.search(words)
        for name, version in _STEP_PIN.findall(words):
            local = f"+{index[1]}" if index and "+" not in version else ""
            yield Observation(Package(name, version + local), line, Trust.HINTED)


# What conda and mamba plan, read as if they did it: what a later line prints wins.

_CONDA_NAME = r"[a-z0-9_][a-z0-9._-]{0,60}"
_PART = r"[^\s-]{1,60}"
_NEW = re.compile(
    rf"\s{{1,8}}({_CONDA_NAME}):?\s{{1,60}}(?:[\w./-]{{1,60}}::)?\1-({_PART})-({_PART})\s{{0,4}}(?:\S{{0,40}})?"
)
_CHANGED = re.compile(
    rf"\s{{1,8}}({_CONDA_NAME}):?\s{{1,60}}\S{{1,120}}(?:\s{{1,20}}\S{{1,40}})?\s{{1,40}}-->\s{{1,8}}"
    rf"(?:[\w./-]{{1,60}}::)?(?:{_CONDA_NAME}-)??(\d{_PART})-({_PART})\s{{0,4}}(?:\S{{0,40}})?"
)
_MAMBA = re.compile(
    rf"\s{{1,6}}([+-])\s({_CONDA_NAME})\s{{1,40}}(\d[^\s-]{{0,40}})\s{{1,40}}([\w.]{{1,60}})\s{{1,40}}\S{{2,60}}"
    r"(?:\s{1,20}\S{1,12})?"
)


@READERS.log
def _planned(log: Log, catalogue: Catalogue) -> Iterator[Observation]:
    for line in log.containing("::", " --> ", "  + ", "  - "):
        if match := _MAMBA.fullmatch(line.text):
            sign, name, version, build = match.groups()
        elif match := _CHANGED.fullmatch(line.text) or _NEW.fullmatch(line.text):
            sign, (name, version, build) = "+", match.groups()
        else:
            continue
        name = normalised(name)
        if is_related(name) or name == "python":
            yield Observation(Package(name, None if sign == "-" else version), line, Trust.IMPLIED)
            if sign == "+":
                yield from _of_build(name, version, build, line)
