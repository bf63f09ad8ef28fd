"""The packages that a Dockerfile's pip and uv commands install, and from where; requirement files included."""

from __future__ import annotations

import configparser
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from envsolve.dockerfile.context import Context
from envsolve.dockerfile.model import Command, marker_holds
from envsolve.machine.model import Platform
from envsolve.packages import commands as grammar
from envsolve.packages.commands import Meaning
from envsolve.packages.requirement_files import read_lines

# Forty files that each name the next one twice would be read 2**40 times.
_MOST_FILES = 64


@dataclass(frozen=True, slots=True)
class Wanted:
    """One package that an install names.

    Attributes:
        requirement: What is required of it.
        file: Where it is written, ``requirements.txt:3``; empty for the command line.
        through: The named package that requires it; empty if it is named itself.
    """

    requirement: Requirement
    file: str = ""
    through: str = ""

    @property
    def name(self) -> str:
        """Normalised."""
        return canonicalize_name(self.requirement.name)

    @property
    def place(self) -> str:
        """The place of the requirement and why it is installed, as the beginning of a sentence."""
        why = f"{self.through} requires {self.requirement}: " if self.through else ""
        return (f"{self.file}: " if self.file else "") + why

    def holds(self, platform: Platform | None, python: str | None) -> bool | None:
        """Whether its marker holds on a machine; None if that is not known."""
        return marker_holds(self.requirement.marker, platform, python)


@dataclass(frozen=True, slots=True)
class Places:
    """Where an installer looks for packages.

    Attributes:
        default: Whether on the default index.
        variants: On PyTorch's indexes of these variants.
        every: On PyTorch's page of all variants.
        unknown: Also somewhere else: a nightly index, a company's own, one that a variable names.
        merges: Whether the best version of all places is taken, as pip does. uv takes the first place that has the
            name, and looks at the default index last.
    """

    default: bool = True
    variants: tuple[str, ...] = ()
    every: bool = False
    unknown: bool = False
    merges: bool = True

    @property
    def text(self) -> str:
        """In words."""
        named = [f"the index of {variant}" for variant in self.variants]
        named += ["PyTorch's page of all variants"] if self.every else []
        named += ["the default index"] if self.default else []
        return " or ".join(named)


@dataclass(frozen=True, slots=True)
class Install:
    """One ``pip install``, ``pip wheel`` or ``uv pip install``.

    Attributes:
        command: The command.
        wanted: The requirements that name a package.
        unread: Names of packages whose version is in a variable that the file does not set.
        strange: Words that are not a requirement, or are a variable that the file does not set.
        sources: What is built from a directory or a URL: ``.``, ``git+https://...``.
        files: Files that are not in the build context.
        places: Where packages are looked for; ``backend`` for packages of PyTorch, if that differs.
        constrained: Whether there are constraints, by an option or a variable.
        isolated: Whether packages are built in an environment of their own.
        dependencies: Whether dependencies are installed.
        early: Whether pre-releases are taken.
        upgrade: Whether installed packages are replaced by newer ones.
        brings: Every package that it installs, dependencies included, with its version if that is known.
        unknown: Those of them whose dependencies are not known.
        described: Directories of the build context whose dependencies were read.
        misplaced: Options behind a requirement in a requirement file, each as its place and its name.
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
    brings: Mapping[str, str | None] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    described: frozenset[str] = frozenset()
    misplaced: tuple[tuple[str, str], ...] = ()

    @property
    def program(self) -> str:
        """``pip`` or ``uv``."""
        return "uv" if self.command.program == "uv" else "pip"

    def names(self, package: str) -> bool:
        """Whether a package is named."""
        return any(wanted.name == package for wanted in self.wanted)

    def looks(self, from_pytorch: bool) -> Places:
        """Where it looks for a package.

        Args:
            from_pytorch: Whether PyTorch's indexes have it.
        """
        if not self.backend or not from_pytorch:
            return self.places
        known = self.backend == "cpu" or re.fullmatch(r"cu\d+", self.backend)
        return Places(default=False, variants=(self.backend,) if known else (), unknown=not known)


_INSTALLING = (("pip", ("install",)), ("pip", ("wheel",)), ("uv", ("pip", "install")))


def installs(commands: Sequence[Command], context: Context) -> Iterator[Install]:
    """The installs among commands, in order."""
    for command in commands:
        parsed = grammar.parse(command.words)
        # What pip wheel makes is for an install to come, often in another stage.
        if parsed and (parsed.installer, parsed.verb) in _INSTALLING and not parsed.has("dry_run"):
            yield _install(command, parsed, context)


def _install(command: Command, parsed: grammar.Command, context: Context) -> Install:
    parsed, words, files, misplaced = _with_files(command, parsed, context)
    is_uv, prefix = parsed.installer == "uv", parsed.installer.upper()
    # uv reads configuration of its own, of which an image rarely has any.
    settings = {} if is_uv else _settings(command, context)
    variables = {**settings, **command.variables}
    places = _places(parsed, variables)
    copied = (path for one in command.copied for path in (one.target, *one.sources))
    if not settings and not is_uv and any(posixpath.basename(path) == "pip.conf" for path in copied):
        files.append("pip.conf")
        places = replace(places, unknown=True)
    wanted, unread, strange, sources = _sorted(words)
    backend = parsed.value("backend") or variables.get("UV_TORCH_BACKEND")
    return Install(
        command=command,
        wanted=tuple(wanted),
        unread=frozenset(unread),
        strange=tuple(strange),
        sources=(*parsed.values("editables"), *sources),
        files=tuple(files),
        places=places,
        backend=backend or None if is_uv else None,
        constrained=parsed.has("constraints") or bool(variables.get(f"{prefix}_CONSTRAINT")),
        isolated=not parsed.has("no_build_isolation") and not variables.get(f"{prefix}_NO_BUILD_ISOLATION"),
        dependencies=not parsed.has("no_deps"),
        early=parsed.has("prereleases"),
        upgrade=parsed.has("upgrade", "force_reinstall"),
        misplaced=tuple(misplaced),
    )


def _with_files(
    command: Command, parsed: grammar.Command, context: Context
) -> tuple[grammar.Command, list[tuple[str, str]], list[str], list[tuple[str, str]]]:
    """The command with the options of its requirement files; each requirement and its place; files that are not there.

    The last are the lines with an option behind a requirement.

    Options in a file count as if they were on the command line, as in pip.
    """
    opened: list[PurePosixPath] = []

    def read(path: PurePosixPath) -> str | None:
        opened.append(path)
        return context.text(str(path), command) if len(opened) <= _MOST_FILES else None

    named = (PurePosixPath(file) for file in parsed.values("files"))
    lines = [line for path in named for line in read_lines(path, read) if line.role == "needs"]
    words = [(word, "") for word in parsed.requirements]
    for line in lines:
        if not line.requirement:  # behind one, pip ignores them
            parsed = parsed.adding(*(one for one in line.options.arguments if one.meaning != "requirements"))
        if line.number and line.requirement:
            words.append((line.requirement, f"{line.path}:{line.number}"))
    # A file that names itself has lines, and one without a number that says so.
    there = {line.path for line in lines if line.number}
    missing = dict.fromkeys(str(line.path) for line in lines if not line.number and line.path not in there)
    misplaced = [(f"{line.path}:{line.number}", line.misplaced) for line in lines if line.misplaced]
    return parsed, words, list(missing), misplaced


def _sorted(words: Sequence[tuple[str, str]]) -> tuple[list[Wanted], list[str], list[str], list[str]]:
    """Requirements, names without a known version, words that are not requirements, and sources."""
    wanted: list[Wanted] = []
    unread: list[str] = []
    strange: list[str] = []
    sources: list[str] = []
    for word, file in words:
        try:
            requirement = Requirement(word)
        except InvalidRequirement:
            # pip takes a word with a slash that is no requirement for a path.
            if "$" not in word and (word.startswith(".") or "/" in word):
                sources.append(word)
            elif match := re.match(r"([A-Za-z][\w.-]*)(\[[^]]*\])?\s*[=<>~!]=?.*\$", word):
                unread.append(canonicalize_name(match[1]))
            else:
                (sources if word.endswith(".whl") else strange).append(word)
            continue
        if requirement.url:
            sources.append(word)
        wanted.append(Wanted(requirement, file))
    return wanted, unread, strange, sources


# Places.


_DEFAULT = "default"
# PyTorch's own indexes and pages of links, and mirrors that keep its layout: /whl/cu126, /whl/torch_stable.html.
_VARIANT = re.compile(r"/(?:whl|pytorch-wheels)/(cu\d+|cpu)(?:/.*)?/?$")
_EVERY_VARIANT = re.compile(r"/(?:whl|pytorch-wheels)(?:/torch_stable\.html)?/?$")
# Mirrors of the default index, whose URLs end as its own does.
_MIRROR = re.compile(r"//[^/]*pypi[^/]*/|/pypi(?:/[\w-]+)*/simple/?$|/pypi/?$")
# An option replaces its variable.
_VARIABLES: Mapping[str, Mapping[Meaning, tuple[str, ...]]] = {
    "pip": {
        "index_urls": ("PIP_INDEX_URL",),
        "extra_index_urls": ("PIP_EXTRA_INDEX_URL",),
        "find_links": ("PIP_FIND_LINKS",),
    },
    "uv": {
        "index_urls": ("UV_DEFAULT_INDEX", "UV_INDEX_URL"),
        "extra_index_urls": ("UV_EXTRA_INDEX_URL",),
        "indexes": ("UV_INDEX",),
        "find_links": ("UV_FIND_LINKS",),
    },
}


def _places(parsed: grammar.Command, variables: Mapping[str, str]) -> Places:
    """Read them from options and variables."""
    urls = {
        meaning: parsed.values(meaning) or next((variables[name].split() for name in names if variables.get(name)), ())
        for meaning, names in _VARIABLES[parsed.installer].items()
    }
    base = () if parsed.has("no_index") else urls.pop("index_urls") or (_DEFAULT,)
    urls.pop("index_urls", None)
    found = [_kind(url) for url in (*(url for more in urls.values() for url in more), *base)]
    strategy = parsed.value("index_strategy") or variables.get("UV_INDEX_STRATEGY") or "first-index"
    return Places(
        default=_DEFAULT in found,
        variants=tuple(dict.fromkeys(kind for kind in found if kind not in (_DEFAULT, "every", "unknown"))),
        every="every" in found,
        unknown="unknown" in found,
        merges=parsed.installer == "pip" or strategy != "first-index",
    )


def _kind(url: str) -> str:
    """``default``, a variant, ``every`` or ``unknown``."""
    url = url.rpartition("=")[2] if "=http" in url else url  # uv: NAME=URL
    if url == _DEFAULT or _MIRROR.search(url):
        return _DEFAULT
    if match := _VARIANT.search(url):
        return match[1]
    return "every" if _EVERY_VARIANT.search(url) else "unknown"


# pip's configuration in an image, as the variables that would say the same.
#
# Source: pip documentation, "Configuration": files of the system and of the user, and one that PIP_CONFIG_FILE names.


_FILES = ("/etc/pip.conf", "/etc/xdg/pip/pip.conf", "/root/.pip/pip.conf", "/root/.config/pip/pip.conf")
_SECTIONS = ("global", "install")


def set_by(words: Sequence[str]) -> Mapping[str, str]:
    """The settings of ``pip config set global.index-url URL``; empty for another command."""
    parsed = grammar.parse(words)
    if parsed is None or parsed.installer != "pip" or parsed.verb != ("config",):
        return {}
    verb, key, *values = (*parsed.requirements, "", "")
    section, dot, name = key.partition(".")
    known = verb == "set" and dot and section in _SECTIONS
    return {_variable(name): " ".join(values).strip()} if known else {}


def _settings(command: Command, context: Context) -> Mapping[str, str]:
    """The settings of pip's configuration, as far as it comes from files of the context."""
    found: dict[str, str] = {}
    for path in (*_FILES, *filter(None, (command.variables.get("PIP_CONFIG_FILE"),))):
        parser = configparser.RawConfigParser(strict=False)
        try:
            parser.read_string(context.text(path, command) or "")
        except configparser.Error:
            continue
        sections = (parser[section] for section in _SECTIONS if parser.has_section(section))
        found |= {_variable(name): value for section in sections for name, value in section.items()}
    return found


def _variable(name: str) -> str:
    return f"PIP_{name.upper().replace('-', '_')}"
