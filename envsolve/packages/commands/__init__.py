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
    "system",
    "target",
    "upgrade",
    "yes",
]
"""What an option does, under one name for all package managers; ``other`` if nothing here depends on it."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One option of a command line.

    Attributes:
        name: As written, ``-r``.
        meaning: What it does.
        value: None for a flag.
    """

    name: str
    meaning: Meaning
    value: str | None = None

    @property
    def words(self) -> tuple[str, ...]:
        """The option as words of a command line."""
        if self.value is None:
            return (self.name,)
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
        verb: ``("install",)``, or ``("pip", "install")`` for uv; empty if there is none.
        arguments: Options after the verb, in order.
        requirements: Words that are not options, in order.
        unknown: Options that the grammar does not know, and a last option whose value is missing.
    """

    installer: str
    program: tuple[str, ...]
    general: tuple[Argument, ...] = ()
    verb: tuple[str, ...] = ()
    arguments: tuple[Argument, ...] = ()
    requirements: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    def values(self, meaning: Meaning) -> tuple[str, ...]:
        """The values of all options of one meaning, in order."""
        options = (*self.general, *self.arguments)
        return tuple(option.value for option in options if option.meaning == meaning and option.value is not None)

    def value(self, *meanings: Meaning) -> str | None:
        """The value of the last option of some meanings; None if there is none."""
        options = (*self.general, *self.arguments)
        return next((o.value for o in reversed(options) if o.meaning in meanings and o.value is not None), None)

    def has(self, *meanings: Meaning) -> bool:
        """Whether an option of some meanings is given."""
        return any(option.meaning in meanings for option in (*self.general, *self.arguments))

    @property
    def words(self) -> tuple[str, ...]:
        """The command line. Parsing it returns an equal command."""
        names = self.requirements
        dashed = next((n for n, word in enumerate(names) if _is_option(word)), len(names))
        end = ("--", *names[dashed:]) if dashed < len(names) else ()
        return (
            *self.program,
            *(word for option in self.general for word in option.words),
            *self.verb,
            *(word for option in self.arguments for word in option.words),
            *names[:dashed],
            *self.unknown,
            *end,
        )

    def without(self, *meanings: Meaning) -> Command:
        """The same command without the options of some meanings."""
        return replace(self, arguments=tuple(o for o in self.arguments if o.meaning not in meanings))

    def adding(self, *options: Argument, requirements: Iterable[str] = ()) -> Command:
        """The same command with more options, before its own, and more requirements."""
        return replace(self, arguments=(*options, *self.arguments), requirements=(*self.requirements, *requirements))


@dataclass(frozen=True, slots=True)
class Change:
    """What an installer would do to one package.

    Attributes:
        name: Normalised name.
        before: The installed version, local part included; None if it is not installed, or not known.
        after: The version that would be installed; None if the package would be removed.
        filename: The wheel, if the installer names it.
        build: The conda build string that would be installed; ``subdir`` is its platform, ``linux-64``.
        replaces: The conda build string that would be removed.
        flavour: The variant of a torch that would be installed, as the catalogue knows it, ``cu132``.
    """

    name: str
    before: str | None
    after: str | None
    filename: str | None = None
    build: str | None = None
    subdir: str | None = None
    replaces: str | None = None
    flavour: str | None = None

    @property
    def is_another(self) -> bool:
        """Whether the version or the build changes, removal and first installation included."""
        return (self.before, self.replaces) != (self.after, self.build)

    @property
    def text(self) -> str:
        """``torch 2.14.1+cu126 would be replaced by 2.15.0 (cu132)``."""
        more = self.build or self.flavour
        after = f"{self.after} ({more})" if more and not (self.after or "").endswith(f"+{more}") else self.after
        before = f"{self.before} ({self.replaces})" if self.replaces else self.before
        if self.before is None:
            return f"{self.name} {after} would be installed"
        if self.after is None:
            return f"{self.name} {before} would be removed"
        if not self.is_another:
            return f"{self.name} {before} would be reinstalled"
        return f"{self.name} {before} would be replaced by {after}"


class Installer(Protocol):
    """One package manager: its grammar as data, and its dry run.

    Attributes:
        name: The name that ``--manager`` uses.
        program: Matches the file name of its program.
        module: The module that ``python -m`` runs, if there is one.
        groups: First words of verbs with two words.
        valued: Options with a value, several names separated by blanks, the preferred one first.
        flags: Options without a value, likewise.
        changes: Verbs that change an environment.
    """

    name: str
    program: re.Pattern[str]
    module: str | None
    groups: frozenset[str]
    valued: Mapping[str, Meaning]
    flags: Mapping[str, Meaning]
    changes: frozenset[tuple[str, ...]]

    def dry_run(self, command: Command) -> tuple[str, ...] | None:
        """The words of the same command as a dry run; None if the command changes no environment.

        Raises:
            UsageError: The command has no dry run; the hint says what to do instead.
        """

    def prefix(self, command: Command, environ: Mapping[str, str]) -> Path | None:
        """The environment that a command acts on; None if only its dry run tells.

        Raises:
            UsageError: There is none, or it cannot be determined.
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
    for one in installers():
        length = _program_length(words, one)
        if length:
            return _parse(words, length, one)
    return None


def parse_options(words: Sequence[str], name: str) -> Command:
    """Parse options and requirements alone, as in a line of a requirement file, by the grammar of an installer."""
    arguments, requirements, unknown = _options(words, installer(name))
    return Command(name, (), arguments=arguments, requirements=requirements, unknown=unknown)


def translated(command: Command, name: str) -> Command:
    """The same install or uninstall for another pip-like installer: options under the names that it prefers.

    A flag whose meaning the other installer does not have, as ``--yes`` for uv, is dropped.
    """
    target = installer(name)
    preferred: dict[Meaning, str] = {}
    for names, meaning in (*target.valued.items(), *target.flags.items()):
        preferred.setdefault(meaning, names.split()[0])
    preferred.setdefault("indexes", preferred["index_urls"])
    arguments = tuple(
        option if option.meaning == "other" else replace(option, name=preferred[option.meaning])
        for option in command.arguments
        if option.meaning in preferred
    )
    return replace(command, installer=name, arguments=arguments)


_PYTHON = re.compile(r"python[\d.]*(?:\.exe)?")


def _program_length(words: Sequence[str], one: Installer) -> int:
    """How many words start an installer; 0 if they do not."""
    if not words:
        return 0
    name = PurePosixPath(words[0].strip("'\"").replace("\\", "/")).name
    if one.program.fullmatch(name):
        return 1
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
    before, _, strange = _options(general, one)
    arguments, requirements, unknown = _options(words[at:], one)
    if strange:
        # Options that are not known stay where they are, for nobody knows whether they may follow the verb.
        before = (*before, *(Argument(word, "other") for word in strange))
    return Command(one.name, tuple(words[:start]), before, verb, arguments, requirements, unknown)


def _is_option(word: str) -> bool:
    return word.startswith("-") and word != "-"


@cache
def _tables(name: str) -> tuple[Mapping[str, Meaning], Mapping[str, Meaning]]:
    """Meanings by single names: of the options with a value, and of the flags."""
    one = installer(name)
    valued = {option: meaning for names, meaning in one.valued.items() for option in names.split()}
    flags = {option: meaning for names, meaning in one.flags.items() for option in names.split()}
    return valued, flags


def _options(words: Sequence[str], one: Installer) -> tuple[tuple[Argument, ...], tuple[str, ...], tuple[str, ...]]:
    """Options, requirements and unknown options among words."""
    valued, flags = _tables(one.name)
    options: list[Argument] = []
    requirements: list[str] = []
    unknown: list[str] = []
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        if word == "--":
            requirements += rest
        elif not _is_option(word):
            requirements.append(word)
        elif equals and name in valued:
            options.append(Argument(name, valued[name], value))
        elif word.startswith("--") and word not in valued:
            if word in flags:
                options.append(Argument(word, flags[word]))
            else:
                unknown.append(word)
        else:
            found = _spelled_out(word, rest, valued, flags)
            options += found or ()
            unknown += () if found else (word,)
    return tuple(options), tuple(requirements), tuple(unknown)


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
            value = word[n + 1 :].removeprefix("=") or next(rest, None)
            return None if value is None else [*options, Argument(name, valued[name], value)]
        if name not in flags:
            return None
        options.append(Argument(name, flags[name]))
    return options
