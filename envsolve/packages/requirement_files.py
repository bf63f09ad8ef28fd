"""Requirement files, ``-r`` and ``-c``: requirements, nested files and pip's options, line by line."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NoReturn

from packaging.utils import canonicalize_name

from envsolve.packages.projects import ask_project, load_project
from envsolve.packages.requirements import (
    Asked,
    Need,
    combine,
    decode,
    expand,
    logical_lines,
    other_file,
    project_path,
    read_requirement,
    wrong,
)
from envsolve.system.files import MAX_BYTES, read_regular, real_path

if TYPE_CHECKING:
    from envsolve.packages.projects import Project


Role = Literal["needs", "constraints"]

_STDIN = Path("-")
# The hashes of a package with a hundred files are a tenth of it; what argparse takes grows with the square.
_LONGEST_LINE = 1 << 16
_LINES = "a line holds one requirement, or -r, -c, -e, --index-url, --extra-index-url with a value, or --pre"

# Options of pip that change nothing in a plan, each with the reason that its note gives.
_SET_ASIDE = {
    "--find-links": "plans are made from package indexes alone",
    "--no-index": "plans are made from package indexes; use --offline to plan without the network",
    "--require-hashes": "plans in the pylock and requirements formats always carry hashes",
    "--trusted-host": "certificates are always checked",
    "--no-binary": "the plan takes a wheel wherever one fits",
    "--only-binary": "the plan takes a wheel wherever one fits",
    "--prefer-binary": "the plan takes a wheel wherever one fits",
    "--use-feature": "it is a matter of pip's",
    "--config-settings": "it is a matter of the build",
    "--global-option": "it is a matter of the build",
}
# The strong hashes of pip, with the hexadecimal digits of each.
_DIGESTS = {"sha256": 64, "sha384": 96, "sha512": 128}
_WITHOUT_VALUE = ("--no-index", "--require-hashes", "--prefer-binary")
_SHORT = {"--find-links": ["-f"], "--config-settings": ["-C", "--config-setting"]}


def read_file(path: Path, role: Role = "needs", trail: tuple[Path, ...] = ()) -> Asked:
    """Read a requirement file and all that it names.

    Args:
        path: The file; ``-`` is standard input, a ``pyproject.toml`` is read as a project.
        role: Whether its requirements are needs or constraints.
        trail: The files that led here, each naming the next.

    Raises:
        UsageError: A file or a line cannot be read; the message names both.
    """
    if path.name == "pyproject.toml" and role == "needs":
        return ask_project(load_project(path), (), ())
    identity = real_path(path)
    if identity in trail:
        raise wrong(str(path), "the file names itself, directly or through the files that it names")
    text = decode(_content(path), str(path))
    if other := other_file(path, text):
        raise wrong(str(path), *other)
    return combine(
        part
        for number, line in logical_lines(text)
        for part in _read_line(line, f"{path} line {number}", path.parent, role, (*trail, identity))
    )


def _content(path: Path) -> bytes:
    if path == _STDIN:
        data = sys.stdin.buffer.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise wrong("standard input", f"it is larger than {MAX_BYTES // 2**20} MiB")
        return data
    if "://" in path.as_posix() or path.as_posix().startswith(("http:/", "https:/")):
        raise wrong(str(path), "requirement files are read from disk", "download the file first")
    try:
        return read_regular(path)
    except OSError as error:
        hint = "name a requirements file that is there; one named in another file is looked for beside that file"
        raise wrong(str(path), f"the file cannot be read: {error.strerror}", hint) from None


def _read_line(line: str, origin: str, folder: Path, role: Role, trail: tuple[Path, ...]) -> Iterator[Asked]:
    requirement, options = _parse(expand(line, os.environ, origin), origin)
    for name in options.requirement:
        yield read_file(folder / name, role, trail)
    for name in options.constraint:
        yield read_file(folder / name, "constraints", trail)
    hashes = tuple(_digest(text, origin) for text in options.hash)
    if hashes and not requirement:
        raise wrong(origin, "--hash stands without a requirement", "write it behind the requirement that it is of")
    if requirement:
        yield _ask(requirement, origin, role, hashes)
    for text in options.editable:
        yield _ask(text, origin, role)
    yield Asked(
        index_urls=tuple(options.index_url),
        extra_index_urls=tuple(options.extra_index_url),
        prereleases=options.pre,
        notes=tuple(
            f"{origin}: {option} is set aside: {reason}"
            for option, reason in _SET_ASIDE.items()
            if getattr(options, option.strip("-").replace("-", "_"))
        ),
    )


def _digest(text: str, origin: str) -> str:
    """``sha256:<digest>`` as pip takes it, in lower case."""
    name, _, digest = text.lower().partition(":")
    length = _DIGESTS.get(name)
    if length is None or not re.fullmatch(r"[0-9a-f]+", digest) or len(digest) != length:
        forms = ", ".join(f"{name}:<{length} hexadecimal digits>" for name, length in _DIGESTS.items())
        raise wrong(origin, f"--hash={text} is no digest", f"write one of {forms}")
    return f"{name}:{digest}"


def _ask(text: str, origin: str, role: Role, hashes: tuple[str, ...] = ()) -> Asked:
    if project := project_path(text):
        if role == "constraints":
            raise wrong(origin, "a project cannot be a constraint", "name packages and versions")
        if hashes:
            raise wrong(origin, "a project has no --hash", "leave the --hash out")
        path, extras = project
        return ask_project(load_project(path, origin), extras, ())
    need = Need(read_requirement(text, origin), origin, hashes)
    if role == "needs":
        return Asked(needs=(need,))
    if need.requirement.extras:
        raise wrong(origin, f"a constraint has no extras: {text}", "leave the [extras] out")
    if need.requirement.url is not None:
        hint = "constrain the version, or ask for the address as a requirement"
        raise wrong(origin, f"an address is not supported in constraints: {need.requirement.name}", hint)
    return Asked(constraints=(need,))


def _parse(line: str, origin: str) -> tuple[str, argparse.Namespace]:
    """Split a line into its requirement (perhaps empty) and its options, which come last."""
    if len(line) > _LONGEST_LINE:
        raise wrong(origin, f"a line of more than {_LONGEST_LINE} characters", _LINES)
    words = line.split(" ")
    first_option = next((at for at, word in enumerate(words) if word.startswith("-")), len(words))
    requirement, rest = " ".join(words[:first_option]), " ".join(words[first_option:])
    try:
        return requirement, _options().parse_args(shlex.split(rest))
    except _OptionError as error:
        raise wrong(origin, str(error), _LINES) from None
    except ValueError as error:
        raise wrong(origin, f"{rest}: {error}") from None


class _OptionError(Exception):
    """What argparse would print."""


class _LineParser(argparse.ArgumentParser):
    """An argument parser that raises its complaints."""

    def error(self, message: str) -> NoReturn:
        """Raise what argparse would print."""
        raise _OptionError(message)


@lru_cache(maxsize=1)
def _options() -> argparse.ArgumentParser:
    """The parser of all lines; making one takes longer than reading a hundred."""
    parser = _LineParser(add_help=False, allow_abbrev=False)
    for names in (
        ("-r", "--requirement"),
        ("-c", "--constraint"),
        ("-e", "--editable"),
        ("-i", "--index-url"),
        ("--extra-index-url",),
        ("--hash",),
    ):
        parser.add_argument(*names, action="append", default=[])
    parser.add_argument("--pre", action="store_true")
    for name in _SET_ASIDE:
        if name in _WITHOUT_VALUE:
            parser.add_argument(name, action="store_true")
        else:
            parser.add_argument(name, *_SHORT.get(name, ()), action="append", default=[])
    return parser


# Reading what is asked for, from every kind of input, into one value.
#
# The kinds live in :mod:`envsolve.solve.inputs`: one argument, a requirement file, a project.


__all__ = ["Asked", "Need", "read_requirements"]

_COMMAND_LINE = "command line"


def read_requirements(
    arguments: Sequence[str],
    files: Sequence[Path] = (),
    constraints: Sequence[Path] = (),
    *,
    projects: Sequence[Path] = (),
    extras: Sequence[str] = (),
    groups: Sequence[str] = (),
) -> Asked:
    """Read what is asked for.

    Args:
        arguments: PEP 508 requirements, ``name @ address``, addresses or paths of wheels and sdists,
            ``git+https://...#egg=name``, project folders (``.[extra]``) or paths of a ``pyproject.toml``.
        files: Requirement files (``-r``).
        constraints: Constraint files (``-c``).
        projects: Project folders or ``pyproject.toml`` files.
        extras: Extras of the projects, those among ``arguments`` included.
        groups: Dependency groups of the projects.

    Raises:
        UsageError: Something cannot be read; the message says where it stands and what is wrong.
    """
    parts: list[Asked] = []
    named: list[tuple[Path, tuple[str, ...], str | None]] = [(path, (), None) for path in projects]
    for argument in arguments:
        if found := project_path(argument):
            named.append((*found, _COMMAND_LINE))
        else:
            parts.append(Asked(needs=(Need(read_requirement(argument, _COMMAND_LINE), _COMMAND_LINE),)))
    if named or extras or groups:
        parts += _of_projects(named, extras, groups)
    if files or constraints:
        parts += [read_file(path) for path in files]
        parts += [read_file(path, "constraints") for path in constraints]
    return combine(parts)


def _of_projects(
    named: Sequence[tuple[Path, tuple[str, ...], str | None]], extras: Sequence[str], groups: Sequence[str]
) -> Iterator[Asked]:
    """What projects ask for.

    Args:
        named: The path of each, the extras that were written behind it, and where it was named if not as a project.
        extras: Extras that every project which has them shall have.
        groups: Likewise dependency groups.
    """
    from envsolve.packages.projects import ask_project, load_project

    loaded = [(load_project(path, place), own) for path, own, place in named]
    _check_names([project for project, _ in loaded], extras, groups)
    for project, own_extras in loaded:
        wanted = own_extras + tuple(extra for extra in extras if _has_extra(project, extra))
        yield ask_project(project, wanted, [g for g in groups if canonicalize_name(g) in project.group_names])


def _has_extra(project: Project, extra: str) -> bool:
    return canonicalize_name(extra) in project.extras or "optional-dependencies" in project.table.dynamic


def _check_names(projects: Sequence[Project], extras: Sequence[str], groups: Sequence[str]) -> None:
    """Every extra and group must be of at least one project; a misspelt one must not pass as an empty one."""
    from envsolve.packages.projects import known

    for extra in extras:
        if not any(_has_extra(project, extra) for project in projects):
            there = frozenset(name for project in projects for name in project.extras)
            raise wrong(_COMMAND_LINE, f"no project has an extra {extra!r}", known("extras", there))
    for group in groups:
        if not any(canonicalize_name(group) in project.group_names for project in projects):
            there = frozenset(name for project in projects for name in project.group_names)
            raise wrong(_COMMAND_LINE, f"no project has a dependency group {group!r}", known("groups", there))
