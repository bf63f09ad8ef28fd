"""The command lines of pip, uv and conda: parsed into one typed value, changed, and rendered again.

Each package manager is a module of this directory with an ``INSTALLER``; adding one is adding a module that satisfies
:class:`Installer`. Everything here is total: a word that a grammar does not know is kept as unknown, never an error.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Literal, Protocol

import msgspec

from envsolve.binaries.names import is_toolkit_package

Meaning = Literal[
    "backend",
    "channels",
    "constraints",
    "dry_run",
    "editables",
    "extra_index_urls",
    "files",
    "find_links",
    "force_reinstall",
    "hashes",
    "index_strategy",
    "index_urls",
    "indexes",
    "name",
    "no_build_isolation",
    "no_deps",
    "no_index",
    "other",
    "prefix",
    "prereleases",
    "python",
    "quiet",
    "requirements",
    "system",
    "target",
    "unknown",
    "upgrade",
    "yes",
]
"""The meaning of an argument, under one name for all package managers; ``other`` if nothing here depends on it."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One option or requirement of a command line.

    Attributes:
        name: As written, ``-r``; empty for a requirement.
        meaning: What it does; ``unknown`` for an option that the grammar does not know or that lacks its value.
        value: None for a flag.
    """

    name: str
    meaning: Meaning
    value: str | None = None

    @property
    def words(self) -> tuple[str, ...]:
        """The argument as words of a command line."""
        if self.value is None:
            return (self.name,)
        if not self.name:
            return (self.value,)
        if not _is_option(self.value):
            return self.name, self.value
        # conda and uv take a separate word that begins with a dash for the next option.
        return (f"{self.name}={self.value}" if self.name.startswith("--") else self.name + self.value,)


@dataclass(frozen=True, slots=True)
class Command:
    """A parsed command line of a package manager.

    Attributes:
        installer: Name of the package manager, ``pip``.
        program: The words that start it, ``("python", "-m", "pip")``.
        general: Options before the verb.
        verb: ``("install",)``, or ``("pip", "install")`` for uv; empty if it has none.
        arguments: Options and requirements after the verb, in order.
    """

    installer: str
    program: tuple[str, ...]
    general: tuple[Argument, ...] = ()
    verb: tuple[str, ...] = ()
    arguments: tuple[Argument, ...] = ()

    def values(self, *meanings: Meaning) -> tuple[str, ...]:
        """The values of all arguments of some meanings, in order."""
        everything = (*self.general, *self.arguments)
        return tuple(one.value for one in everything if one.meaning in meanings and one.value is not None)

    def value(self, *meanings: Meaning) -> str | None:
        """The last of :meth:`values`, which is the one that counts, or None."""
        return next(reversed(self.values(*meanings)), None)

    def has(self, *meanings: Meaning) -> bool:
        """Whether an argument of some meanings is given."""
        return any(one.meaning in meanings for one in (*self.general, *self.arguments))

    @property
    def requirements(self) -> tuple[str, ...]:
        """The words that are not options."""
        return self.values("requirements")

    @property
    def words(self) -> tuple[str, ...]:
        """The command line. Parsing it returns an equal command."""
        before = (word for one in self.general for word in one.words)
        return (*self.program, *before, *self.verb, *_rendered(self.arguments))

    def without(self, *meanings: Meaning) -> Command:
        """The same command without the arguments of some meanings."""
        return replace(self, arguments=tuple(one for one in self.arguments if one.meaning not in meanings))

    def adding(self, *options: Argument, requirements: Iterable[str] = ()) -> Command:
        """The same command with more options, before its own arguments, and more requirements behind them."""
        more = (Argument("", "requirements", word) for word in requirements)
        return replace(self, arguments=(*options, *self.arguments, *more))


def _rendered(arguments: Sequence[Argument]) -> Iterator[str]:
    # After -- every word is a requirement, so it is written only if the next word needs it.
    ended = False
    for one in arguments:
        if one.meaning == "requirements" and not ended and _is_option(one.value or ""):
            ended = True
            yield "--"
        yield from one.words


_FOLDED = 3  # so many libraries are counted instead of named


# ``envsolve.forecast/1`` was published with the older name of the variant.
class Change(msgspec.Struct, frozen=True, rename={"variant": "flavour"}):
    """The planned change of one package by an installer.

    Attributes:
        name: Normalised name.
        before: The installed version, local part included; None if it is not installed, or not known.
        after: The version that would be installed; None if the package would be removed.
        filename: The wheel, if the installer names it.
        build: The conda build string that would be installed; ``subdir`` is its platform, ``linux-64``.
        replaces: The conda build string that would be removed.
        variant: The variant of a torch that would be installed, as the catalogue knows it, ``cu132``.
    """

    name: str
    before: str | None
    after: str | None
    filename: str | None = None
    build: str | None = None
    subdir: str | None = None
    replaces: str | None = None
    variant: str | None = None

    @property
    def is_another(self) -> bool:
        """Whether the version or the build changes, removal and first installation included."""
        return (self.before, self.replaces) != (self.after, self.build)

    @property
    def text(self) -> str:
        """``torch 2.14.1+cu126 -> 2.15.0 (cu132)``."""
        more = self.build or self.variant
        after = f"{self.after} ({more})" if more and not (self.after or "").endswith(f"+{more}") else self.after
        before = f"{self.before} ({self.replaces})" if self.replaces else self.before
        if self.before is None:
            return f"{self.name} {after} (new)"
        if self.after is None:
            return f"{self.name} {before} (removed)"
        if not self.is_another:
            return f"{self.name} {before} (reinstalled)"
        return f"{self.name} {before} -> {after}"


def changes_in_words(changes: Sequence[Change]) -> str:
    """``torch 2.14.1 -> 2.15.0 (cu132), triton 3.5.1 -> 3.6.0 and 15 NVIDIA libraries``."""
    libraries = [change for change in changes if is_toolkit_package(change.name)]
    if len(libraries) < _FOLDED:
        libraries = []
    words = [change.text for change in changes if change not in libraries]
    if libraries:
        words.append(f"{len(libraries)} NVIDIA libraries")
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


class Installer(Protocol):
    """One package manager: its grammar as data, and its dry run.

    Attributes:
        name: The name that ``--manager`` uses.
        program: Matches the file name of its program.
        module: The module that ``python -m`` runs, if there is one.
        groups: First words of verbs with two words.
        valued: Options with a value, several names separated by blanks, the preferred one first.
        flags: Options without a value, in the same form.
        index: The option that names the index to install from, and its meaning.
    """

    name: str
    program: re.Pattern[str]
    module: str | None
    groups: frozenset[str]
    valued: Mapping[str, Meaning]
    flags: Mapping[str, Meaning]
    index: tuple[str, Meaning]

    def dry_run(self, command: Command) -> tuple[str, ...] | None:
        """The words of the same command as a dry run; None if the command changes no environment.

        Raises:
            UsageError: The command has no dry run; the hint says what to do instead.
        """

    def from_wheels(self, command: Command) -> Command | None:
        """The same install from wheels only; None if the installer builds nothing to learn what it would do."""

    def prefix(self, command: Command, environ: Mapping[str, str]) -> Path | None:
        """The environment that a command acts on; None if only its dry run shows it.

        Raises:
            UsageError: No environment is active or named, or it cannot be determined.
        """

    def read_dry_run(self, out: str, err: str) -> tuple[Path | None, tuple[Change, ...]]:
        """The environment, if the dry run names it, and what it installs and removes.

        Raises:
            ValueError: The text is not the output of a dry run.
        """

    def requested(self, word: str) -> str | None:
        """The normalised name of the package that a requirement names; None if it names none."""

    def pin(self, name: str, version: str) -> str:
        """A requirement for exactly this version (and build, for conda)."""


@cache
def installer(name: str) -> Installer:
    """The installer that a module of this directory defines."""
    found: Installer = importlib.import_module(f"{__name__}.{name}").INSTALLER
    return found


@cache
def installers() -> tuple[Installer, ...]:
    """All installers, by name."""
    return tuple(installer(module.name) for module in pkgutil.iter_modules(__path__))


def parse(words: Sequence[str]) -> Command | None:
    """Parse a command line; None if it does not start a known package manager."""
    # First match: no two installers share a program.
    for one in installers():
        length = _program_length(words, one)
        if length:
            return _parse(words, length, one)
    return None


def parse_options(words: Sequence[str], name: str) -> Command:
    """Parse a line of options and requirements, as in a requirement file, by the grammar of an installer."""
    return Command(name, (), arguments=_arguments(words, installer(name)))


def option_names(name: str) -> frozenset[str]:
    """Every spelling of every option of an installer."""
    valued, flags = _tables(name)
    return frozenset({*valued, *flags})


def translated(command: Command, name: str) -> Command:
    """The same install or uninstall for another pip-like installer: options under the names that it prefers.

    A flag whose meaning the other installer does not have, as ``--yes`` for uv, is dropped.
    """
    target = installer(name)
    # The first spelling of a table is the one that the installer's own documentation uses.
    names: dict[Meaning, str] = {}
    for spellings, meaning in (*target.valued.items(), *target.flags.items()):
        names.setdefault(meaning, spellings.split()[0])
    arguments: list[Argument] = []
    for one in command.arguments:
        # pip's --ignore-installed is the stronger form, for what it cannot uninstall.
        if one.meaning == "force_reinstall" and command.installer == name:
            arguments.append(one)
        elif one.name in ("-i", "--index-url", "--index"):
            arguments.append(Argument(*target.index, one.value))
        elif one.meaning in ("requirements", "other", "unknown"):
            arguments.append(one)
        elif one.meaning in names:
            arguments.append(replace(one, name=names[one.meaning]))
    return replace(command, installer=name, arguments=tuple(arguments))


_PYTHON = re.compile(r"python[\d.]*(?:\.exe)?")


def _program_length(words: Sequence[str], one: Installer) -> int:
    """How many words start an installer; 0 if they do not."""
    if not words:
        return 0
    # Words of a shell text keep their quotes, and Windows separates directories by backslashes.
    name = PurePosixPath(words[0].strip("'\"").replace("\\", "/")).name
    if one.program.fullmatch(name):
        return 1
    # Only flags may precede -m: with a script or -c, the rest is not pip's.
    if one.module and _PYTHON.fullmatch(name) and "-m" in words[1:-1]:
        at = words.index("-m")
        if words[at + 1] == one.module and all(word.startswith("-") for word in words[1:at]):
            return at + 2
    return 0


def _parse(words: Sequence[str], start: int, one: Installer) -> Command:
    verb: tuple[str, ...] = ()
    at, general = start, list[str]()
    valued, _ = _tables(one.name)
    while at < len(words) and (len(verb) < 1 or (len(verb) == 1 and verb[0] in one.groups)):
        if words[at] == "--" or not _is_option(words[at]):
            verb += (words[at],)
        else:
            # A general option takes the next word as its value, whether or not that begins with a dash.
            size = 2 if words[at] in valued else 1
            general += words[at : at + size]
            at += size - 1
        at += 1
    before, after = _arguments(general, one), _arguments(words[at:], one)
    return Command(one.name, tuple(words[:start]), before, verb, after)


def _is_option(word: str) -> bool:
    return word.startswith("-") and word != "-"


@cache
def _tables(name: str) -> tuple[Mapping[str, Meaning], Mapping[str, Meaning]]:
    """Meanings by single names: of the options with a value, and of the flags."""
    one = installer(name)
    valued = {option: meaning for names, meaning in one.valued.items() for option in names.split()}
    flags = {option: meaning for names, meaning in one.flags.items() for option in names.split()}
    return valued, flags


def _arguments(words: Sequence[str], one: Installer) -> tuple[Argument, ...]:
    """Options and requirements among words."""
    valued, flags = _tables(one.name)
    found: list[Argument] = []
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        if word == "--":
            found += (Argument("", "requirements", other) for other in rest)
        elif not _is_option(word):
            found.append(Argument("", "requirements", word))
        elif word in flags:
            found.append(Argument(word, flags[word]))
        elif equals and name in valued:
            found.append(Argument(name, valued[name], value))
        elif word in valued or not word.startswith("--"):
            found += _spelled_out(word, rest, valued, flags) or [Argument(word, "unknown")]
        else:
            found.append(Argument(word, "unknown"))
    return tuple(found)


def _spelled_out(
    word: str, rest: Iterator[str], valued: Mapping[str, Meaning], flags: Mapping[str, Meaning]
) -> list[Argument] | None:
    """The options that one word is: ``--requirement``, ``-r``, ``-rFILE``, ``-Ur``; None if one of them is unknown."""
    if word in valued:
        value = next(rest, None)
        return None if value is None else [Argument(word, valued[word], value)]
    options: list[Argument] = []
    for n, letter in enumerate(word[1:], 1):
        name = f"-{letter}"
        if name in valued:
            # clap (uv) and argparse (conda) accept -p=VALUE; optparse (pip) takes the sign for a part of the value.
            value = word[n + 1 :].removeprefix("=") or next(rest, None)
            return None if value is None else [*options, Argument(name, valued[name], value)]
        if name not in flags:
            return None
        options.append(Argument(name, flags[name]))
    return options
