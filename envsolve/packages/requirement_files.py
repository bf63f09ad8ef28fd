"""Requirement files, ``-r`` and ``-c``: requirements, nested files and pip's options, line by line."""

from __future__ import annotations

import os
import posixpath
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Literal, TypeVar

import msgspec
from msgspec.structs import replace

from envsolve.errors import UsageError
from envsolve.packages.requirement_text import decode, expand, logical_lines
from envsolve.packages.requirements import (
    COMMAND_LINE,
    PROJECT_FILES,
    Asked,
    Need,
    combine,
    digest_of,
    other_file,
    project_path,
    read_requirement,
    variant_sources,
    wrong,
)
from envsolve.system.files import MAX_BYTES, read_regular, real_path
from envsolve.system.limits import REQUIREMENT_DEPTH, REQUIREMENT_FILES

if TYPE_CHECKING:
    # Late in the functions below: most lines have no options, and most requests name no project.
    from envsolve.packages.commands import Command, Meaning

Role = Literal["needs", "constraints"]
AnyPath = TypeVar("AnyPath", bound=PurePath)

_STDIN = Path("-")
_FIRST_OPTION = re.compile(r"(?<!\S)-")
_LINES = "a line holds one requirement, or -r, -c, -e, --index-url, --extra-index-url with a value, or --pre"

# What pip takes behind a requirement (pip documentation, "Requirements File Format": per-requirement options).
_BEHIND = frozenset({"--hash", "--config-settings", "--config-setting", "-C", "--global-option", "--install-option"})
# Options of pip that a plan takes from a file.
_PLACES: frozenset[Meaning] = frozenset({"index_urls", "extra_index_urls", "find_links", "no_index"})
_TAKEN: frozenset[Meaning] = _PLACES | {"files", "constraints", "editables", "hashes", "prereleases"}
# Options of pip that change nothing in a plan, each with the reason that its note gives.
_SET_ASIDE = {
    "--require-hashes": "plans in the pylock and requirements formats always contain hashes",
    "--trusted-host": "certificates are always checked",
    "--no-binary": "the plan uses a wheel if one fits",
    "--only-binary": "the plan uses a wheel if one fits",
    "--prefer-binary": "the plan uses a wheel if one fits",
    "--use-feature": "it is an option of pip only",
    "--config-settings -C --config-setting": "it affects only the build",
    "--global-option": "it affects only the build",
}


class Line(msgspec.Struct, frozen=True):
    """One logical line of a requirement file, or of a file that it names.

    Attributes:
        path: The file that the line is in.
        number: From 1; 0 if the whole file is meant.
        role: Whether the file's requirements are needs or constraints.
        requirement: The text in front of the options; may be empty.
        parsed: The options, parsed as on pip's command line; None if there are none.
        problem: Why the line, or the file, cannot be read; the other attributes then say what could be.
    """

    path: PurePath
    number: int
    role: Role
    requirement: str = ""
    parsed: Command | None = None
    problem: UsageError | None = None

    @property
    def options(self) -> Command:
        """The options, also if there are none."""
        from envsolve.packages.commands import Command

        return self.parsed or Command("pip", ())

    @property
    def origin(self) -> str:
        """The place of the line, for messages."""
        return f"{self.path} line {self.number}" if self.number else str(self.path)

    @property
    def misplaced(self) -> str | None:
        """The first option behind a requirement that counts only on a line of its own; tried with pip 23.3 and 26.3."""
        named = (one.name for one in self.options.arguments if self.requirement and self.parsed)
        return next((name for name in named if name and name not in _BEHIND), None)


def read_lines(
    path: AnyPath,
    read: Callable[[AnyPath], str | None],
    role: Role = "needs",
    *,
    variables: Mapping[str, str] | None = None,
    trail: tuple[PurePath, ...] = (),
    left: list[int] | None = None,
) -> Iterator[Line]:
    """Every line of a requirement file and of the files that it names, in pip's order.

    Args:
        path: The file. A ``pyproject.toml`` or ``setup.cfg`` is one line of its own, with the path as its requirement.
        read: Returns the text of a file, or None if it does not exist; may raise UsageError.
        role: Whether its requirements are needs or constraints.
        variables: Values for ``${NAME}``; None leaves them as they are.
        trail: The files that led here, each naming the next.
        left: How many more files may be read, shared by all of them.
    """
    # Forty files that each name the next one twice would be read 2^40 times.
    left = [REQUIREMENT_FILES] if left is None else left
    left[0] -= 1
    if left[0] == -1 or len(trail) >= REQUIREMENT_DEPTH:
        what = (
            f"more than {REQUIREMENT_FILES} files are included, or the files are nested more than {REQUIREMENT_DEPTH} "
            "levels deep"
        )
        yield Line(path, 0, role, problem=wrong(str(path), what, "include fewer files"))
    if left[0] < 0 or len(trail) >= REQUIREMENT_DEPTH:
        return
    if path.name in PROJECT_FILES and role == "needs":
        yield Line(path, 0, role, str(path))
        return
    # On disk a link may give one file many names; elsewhere there are no links.
    identity: PurePath
    if isinstance(path, Path):
        identity = real_path(path)
    else:
        identity = path = type(path)(posixpath.normpath(path))
    try:
        if identity in trail:
            raise wrong(str(path), "the file includes itself, directly or through other files")
        text = read(path)
        if text is None:
            raise wrong(str(path), "the file does not exist")
        if other := other_file(path, text):
            raise wrong(str(path), *other)
    except UsageError as problem:
        yield Line(path, 0, role, problem=problem)
        return
    for number, content in logical_lines(text):
        line = _parsed(content, Line(path, number, role), variables)
        roles: tuple[tuple[Meaning, Role], ...] = (("files", role), ("constraints", "constraints"))
        for meaning, inner in roles if line.parsed else ():
            for name in line.options.values(meaning):
                inside, led = path.parent / name, (*trail, identity)
                yield from read_lines(inside, read, inner, variables=variables, trail=led, left=left)
        yield line


def _parsed(content: str, line: Line, variables: Mapping[str, str] | None) -> Line:
    """The line with its content: the requirement (perhaps empty), and the options, which come last."""
    try:
        content = content if variables is None else expand(content, variables, line.origin)
    except UsageError as problem:
        return replace(line, requirement=content, problem=problem)
    # As pip: the first word with a dash begins the options.
    match = _FIRST_OPTION.search(content)
    requirement, rest = (content[: match.start()], content[match.start() :]) if match else (content, "")
    line = replace(line, requirement=requirement.strip())
    if not rest:
        return line
    from envsolve.packages.commands import option_names, parse_options

    try:
        line = replace(line, parsed=parse_options(shlex.split(rest), "pip"))
    except ValueError as error:
        return replace(line, problem=wrong(line.origin, f"{rest}: {error}"))
    for one in line.options.arguments:
        if one.meaning == "unknown" and one.name in option_names("pip"):
            return replace(line, problem=wrong(line.origin, f"{one.name} has no value", _LINES))
        known = one.meaning in _TAKEN or any(one.name in names.split() for names in _SET_ASIDE)
        if one.name and not known:
            what = f"{one.name} is not an option of a requirement file"
            return replace(line, problem=wrong(line.origin, what, _LINES))
    return line


def read_file(path: Path, role: Role = "needs", text: str | None = None) -> Asked:
    """Read a requirement file and all that it names.

    Args:
        path: The file; ``-`` is standard input, a ``pyproject.toml`` is read as a project.
        role: Whether its requirements are needs or constraints.
        text: The content of ``path``, if it is not a file of its own.

    Raises:
        UsageError: A file or a line cannot be read; the message names both.
    """

    def content(one: Path) -> str:
        return _content(one) if text is None or one != path else text

    lines = read_lines(path, content, role, variables=os.environ)
    return combine(part for line in lines for part in _asked(line))


def _content(path: Path) -> str:
    if path == _STDIN:
        data = sys.stdin.buffer.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise wrong("standard input", f"it is larger than {MAX_BYTES // 2**20} MiB")
        return decode(data, str(path))
    if "://" in path.as_posix() or path.as_posix().startswith(("http:/", "https:/")):
        raise wrong(str(path), "requirement files are read from disk", "download the file first")
    try:
        return decode(read_regular(path), str(path))
    except OSError as error:
        hint = "check the path; a file that another file includes is searched in the directory of that file"
        raise wrong(str(path), f"the file cannot be read: {error.strerror}", hint) from None


def _asked(line: Line) -> Iterator[Asked]:
    if line.problem is not None:
        raise line.problem
    options, origin = line.parsed, line.origin
    if options is None:
        if line.requirement:
            yield _ask(line.requirement, origin, line.role)
        return
    hashes = tuple(digest_of(text, origin) for text in options.values("hashes"))
    if hashes and not line.requirement:
        raise wrong(origin, "--hash without a requirement", "write it after its requirement, on the same line")
    if line.requirement:
        yield _ask(line.requirement, origin, line.role, hashes)
    yield from (_ask(text, origin, line.role) for text in options.values("editables"))
    links: tuple[str, ...] = ()
    missing: list[str] = []
    if texts := options.values("find_links"):
        from envsolve.packages.links import places_of  # imports what reads index pages; most files name none

        links, missing = places_of(texts, Path(line.path).parent)
    yield Asked(
        index_urls=options.values("index_urls"),
        extra_index_urls=options.values("extra_index_urls"),
        find_links=links,
        no_index=options.has("no_index"),
        prereleases=options.has("prereleases"),
        notes=(*(f"{origin}: --find-links: {what}" for what in missing), *_set_aside(line)),
        sources=variant_sources(options.values("index_urls"), options.values("extra_index_urls"), origin),
    )


def _set_aside(line: Line) -> Iterator[str]:
    """A note for each option that changes nothing in a plan, and for what pip does not read."""
    given = {one.name for one in line.options.arguments}
    for word in (one.value for one in line.options.arguments if not one.name):
        yield f"{line.origin}: {word} is ignored, as in pip, because it follows an option; write it on a separate line"
    if name := line.misplaced:
        yield f"{line.origin}: pip ignores {name} after a requirement, and uv refuses it; write it on a separate line"
    for names, reason in _SET_ASIDE.items():
        if not given.isdisjoint(names.split()):
            yield f"{line.origin}: {names.split()[0]} is ignored: {reason}"


def _tree_instead(text: str, extras: Sequence[str] = ()) -> str | None:
    """``name @ URL`` for a repository or a directory without a ``[project]`` table; None for all other requirements.

    Only here, not wherever a requirement is read: a repository is fetched for its name.
    """
    found = project_path(text)
    if found is None and not text.startswith(("git+", "hg+", "svn+", "bzr+")):
        return None
    # Late: it starts git, and most requests name no directory.
    from envsolve.packages.tree_names import named, tree_instead

    return tree_instead(*found, extras) if found else named(text)


def _ask(text: str, origin: str, role: Role, hashes: tuple[str, ...] = ()) -> Asked:
    project = project_path(text)
    if role == "needs" and not hashes and (tree := _tree_instead(text)):
        text, project = tree, None
    if project:
        if role == "constraints":
            raise wrong(origin, "a project cannot be a constraint", "use package names and versions")
        if hashes:
            raise wrong(origin, "a local project cannot have a --hash", "leave the --hash out")
        from envsolve.packages.project_files import load_project
        from envsolve.packages.projects import ask_project

        path, extras = project
        return ask_project(load_project(path, origin), extras, ())
    need = Need(read_requirement(text, origin), origin, hashes)
    if role == "needs":
        return Asked(needs=(need,))
    if need.requirement.extras:
        raise wrong(origin, f"a constraint has no extras: {text}", "leave the [extras] out")
    if need.requirement.url is not None:
        hint = "constrain the version, or request the URL as a requirement"
        raise wrong(origin, f"a URL is not supported in constraints: {need.requirement.name}", hint)
    return Asked(constraints=(need,))


def read_requirements(
    arguments: Sequence[str],
    files: Sequence[Path] = (),
    constraints: Sequence[Path] = (),
    *,
    projects: Sequence[Path] = (),
    extras: Sequence[str] = (),
    groups: Sequence[str] = (),
) -> Asked:
    """Read the requirements.

    Args:
        arguments: PEP 508 requirements, ``name @ address``, URLs or paths of wheels and sdists,
            ``git+https://...#egg=name``, project directories (``.[extra]``) or paths of a ``pyproject.toml``.
        files: Requirement files (``-r``).
        constraints: Constraint files (``-c``).
        projects: Project directories or ``pyproject.toml`` files.
        extras: Extras of the projects, those among ``arguments`` included.
        groups: Dependency groups of the projects.

    Raises:
        UsageError: Something cannot be read; the message gives the place and the fault.
    """
    parts: list[Asked] = []
    named: list[tuple[Path, tuple[str, ...], str | None]] = [(path, (), None) for path in projects]
    for argument in arguments:
        tree = _tree_instead(argument, extras)
        if tree is None and (found := project_path(argument)):
            named.append((*found, COMMAND_LINE))
        else:
            parts.append(Asked(needs=(Need(read_requirement(tree or argument, COMMAND_LINE), COMMAND_LINE),)))
    if named or extras or groups:
        from envsolve.packages.projects import ask_projects

        of_trees = {extra for part in parts for need in part.needs for extra in need.requirement.extras}
        parts += ask_projects(named, extras, groups, of_trees)
    if files or constraints:
        parts += [read_file(path) for path in files]
        parts += [read_file(path, "constraints") for path in constraints]
    return combine(parts)
