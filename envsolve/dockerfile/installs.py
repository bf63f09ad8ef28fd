"""What commands of pip and uv in a Dockerfile install, requirement files of the build context included."""

from __future__ import annotations

import argparse
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NoReturn

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from envsolve.dockerfile.context import FILES, Context, lines, option_words, written_in
from envsolve.dockerfile.model import Command, Copied
from envsolve.dockerfile.read import Places, of_backend, places

_PIP = re.compile(r"(?:\S*/)?pip[\d.]*")
_UV = re.compile(r"(?:\S*/)?uv")
_PYTHON = re.compile(r"(?:\S*/)?python[\d.]*")
# A file may name another; none does so more often than this.
_NESTED = 8


@dataclass(frozen=True, slots=True)
class Wanted:
    """One package that an install names.

    Attributes:
        file: Where it stands, ``requirements.txt:3``; empty on the command line.
    """

    requirement: Requirement
    file: str = ""

    @property
    def name(self) -> str:
        """Normalised."""
        return canonicalize_name(self.requirement.name)

    @property
    def place(self) -> str:
        """Where it stands, to begin a sentence with."""
        return f"{self.file}: " if self.file else ""


@dataclass(frozen=True, slots=True)
class Install:
    """One ``pip install``, or uv's form of it.

    Attributes:
        wanted: Those that name a package.
        unread: Names of packages whose version a variable says that the file does not set.
        strange: Words that are no requirement: a variable that the file does not set, or what pip does not read.
        sources: What is built from a folder or an address: ``.``, ``git+https://...``.
        files: Of ``-r``, those that are not in the build context.
        places: Where packages are looked for; ``backend`` where packages of PyTorch are, if elsewhere.
        constrained: Whether constraints are named, by option or by variable.
        isolated: Whether builds get an environment of their own.
        early: Whether versions before a release are taken.
        upgrade: Whether what is there is replaced by what is newer.
    """

    command: Command
    wanted: tuple[Wanted, ...]
    unread: frozenset[str]
    strange: tuple[str, ...]
    sources: tuple[str, ...]
    files: tuple[str, ...]
    places: Places
    backend: str | None
    constrained: bool
    isolated: bool
    dependencies: bool
    early: bool
    upgrade: bool

    def looks(self, from_pytorch: bool) -> Places:
        """Where it looks for a package.

        Args:
            from_pytorch: Whether PyTorch's indexes carry it.
        """
        return of_backend(self.backend) if self.backend and from_pytorch else self.places


_LISTS = {
    "-r --requirement --requirements": "requirement",
    "-c --constraint --constraints": "constraint",
    "-e --editable": "editable",
    "-i --index-url --default-index": "index_url",
    "--extra-index-url": "extra",
    "--index": "index",
    "-f --find-links": "links",
}
# Options of either with a value that must not be taken for a requirement.
_WITH_VALUE = (
    "-t --target --prefix --root --python -p --src --platform --python-version --implementation --abi --cache-dir "
    "--trusted-host --allow-insecure-host --timeout --retries --log --proxy --only-binary --no-binary -C "
    "--config-settings --config-setting --global-option --build-option --link-mode --no-build-isolation-package "
    "--override --overrides --build-constraint --build-constraints -b --upgrade-package -P --upgrade-strategy "
    "--progress-bar --use-feature --report --exclude-newer --prerelease --resolution --extra --group --keyring-provider"
)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(add_help=False, allow_abbrev=False)
    parser.add_argument("asked", nargs="*")
    for names, dest in _LISTS.items():
        parser.add_argument(*names.split(), dest=dest, action="append", default=[])
    parser.add_argument("-U", "--upgrade", "--force-reinstall", "--reinstall", dest="upgrade", action="store_true")
    for name in ("--torch-backend", "--index-strategy"):
        parser.add_argument(name)
    for name in ("--no-deps", "--no-build-isolation", "--no-index", "--pre"):
        parser.add_argument(name, action="store_true")
    for name in _WITH_VALUE.split():
        parser.add_argument(name, action="append", dest="other")
    return parser


_OPTIONS = _parser()


def installs(commands: Sequence[Command], context: Context) -> Iterator[Install]:
    """The installs among commands, in order."""
    for command in commands:
        options = _options(command.words)
        if options is None:
            continue
        read = _Read(partial(context.text, command=command))
        try:
            read.take(list(options), "", "")
        except (ValueError, TypeError, argparse.ArgumentError):
            continue
        yield read.install(command, bool(_UV.fullmatch(command.words[0])))


def _options(words: Sequence[str]) -> Sequence[str] | None:
    """What follows the verb of an install; None for another command."""
    head = list(words)
    if head and _PYTHON.fullmatch(head[0]) and "-m" in head[:4]:
        head = head[head.index("-m") + 1 :]
    elif head and _UV.fullmatch(head[0]) and head[1:2] == ["pip"]:
        head = head[1:]
    if not head or not _PIP.fullmatch(head[0]) or "install" not in head:
        return None
    return head[head.index("install") + 1 :]


class _Read:
    """An install as it is put together from its words and from the files that they name."""

    def __init__(self, text_of: Callable[[str], str | None]) -> None:
        self._text_of = text_of
        self._words: list[str] = []
        self._wanted: list[Wanted] = []
        self._unread: set[str] = set()
        self._strange: list[str] = []
        self._sources: list[str] = []
        self._files: list[str] = []
        self._seen: list[str] = []

    def take(self, words: Sequence[str], file: str, folder: str) -> None:
        """Add words of the command line, or those of an option in a file of a folder."""
        given, _ = _OPTIONS.parse_known_intermixed_args(list(words))
        self._words += words
        self._sources += given.editable
        for word in given.asked:
            self._word(word, file)
        for path in given.requirement:
            self._file(posixpath.normpath(posixpath.join(folder, path)))

    def install(self, command: Command, uv: bool) -> Install:
        """All of it, with the options of the files as if they stood on the command line, as pip has it."""
        given, _ = _OPTIONS.parse_known_intermixed_args(self._words)
        settings = {} if uv else self._settings(command)
        variables = {**settings, **command.variables}
        looks = places(given, variables, uv)
        if not settings and not uv and any(_is_configuration(copied) for copied in command.copied):
            self._files.append("pip.conf")
            looks = replace(looks, unknown=True)
        return Install(
            command,
            tuple(self._wanted),
            frozenset(self._unread),
            tuple(self._strange),
            tuple(self._sources),
            tuple(self._files),
            looks,
            (given.torch_backend or variables.get("UV_TORCH_BACKEND") or None) if uv else None,
            bool(given.constraint or variables.get("PIP_CONSTRAINT") or variables.get("UV_CONSTRAINT")),
            not (given.no_build_isolation or variables.get("PIP_NO_BUILD_ISOLATION")),
            not given.no_deps,
            given.pre,
            given.upgrade,
        )

    def _settings(self, command: Command) -> Mapping[str, str]:
        """What pip's configuration says, as far as files of the context make it up."""
        paths = (*FILES, *filter(None, (command.variables.get("PIP_CONFIG_FILE"),)))
        texts = [text for text in map(self._text_of, paths) if text is not None]
        return {name: value for text in texts for name, value in written_in(text).items()}

    def _word(self, word: str, file: str) -> None:
        try:
            requirement = Requirement(word)
        except InvalidRequirement:
            if word.startswith((".", "/")) or "://" in word:
                self._sources.append(word)
            elif match := re.match(r"([A-Za-z][\w.-]*)(\[[^]]*\])?\s*[=<>~!]=?.*\$", word):
                self._unread.add(canonicalize_name(match[1]))
            elif not word.endswith(".whl"):
                self._strange.append(word)
            else:
                self._sources.append(word)
            return
        if requirement.url:
            self._sources.append(word)
        self._wanted.append(Wanted(requirement, file))

    def _file(self, path: str) -> None:
        skipped = path in self._seen or len(self._seen) >= _NESTED or path.endswith(".toml")
        text = None if skipped else self._text_of(path)
        if text is None:
            self._files += [] if path in self._seen else [path]
            return
        self._seen.append(path)
        for number, line in lines(text):
            file = f"{path}:{number}"
            if line.startswith("-"):
                try:
                    self.take(option_words(line), file, posixpath.dirname(path))
                except (ValueError, TypeError, argparse.ArgumentError):
                    continue
            else:
                self._word(line, file)


def _is_configuration(copied: Copied) -> bool:
    return any(posixpath.basename(path) == "pip.conf" for path in (copied.target, *copied.sources))


def other_installer(command: Command) -> str | None:
    """What installs packages in a way that is not read: ``conda install``, ``uv sync``; None for other commands."""
    name, *rest = (command.words[0].rsplit("/", 1)[-1], *command.words[1:])
    verbs = [word for word in rest if not word.startswith("-")]
    known = {
        "conda": ("install", "create", "env"),
        "uv": ("sync", "add"),
        "poetry": ("install", "add"),
        "pdm": ("install", "sync", "add"),
        "pipenv": ("install", "sync"),
        "pixi": ("install", "add"),
    }
    known |= dict.fromkeys(("mamba", "micromamba"), known["conda"])
    return f"{name} {verbs[0]}" if verbs and verbs[0] in known.get(name, ()) else None
