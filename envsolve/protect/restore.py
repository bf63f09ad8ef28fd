"""The saved state of an environment, and restoring it through the environment's own installer."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec
from packaging.utils import InvalidName, canonicalize_name
from packaging.version import InvalidVersion, Version

from envsolve.diagnose.fixes import in_environment
from envsolve.environment.model import Distribution, Environment
from envsolve.environment.read import read_outline
from envsolve.errors import EnvsolveError, ImpossibleError, UsageError, VerificationError
from envsolve.facts.catalogue import Catalogue
from envsolve.install.errors import explained
from envsolve.install.interpreters import uv_program
from envsolve.packages.commands import Command
from envsolve.protect.dry_run import read_command
from envsolve.protect.keep import DIRECTORY
from envsolve.system.files import dump, from_json, read_regular, real_path, replace_file
from envsolve.system.progress import phase
from envsolve.system.streaming import stream

SCHEMA: Literal["envsolve.state/1"] = "envsolve.state/1"
_NAME = re.compile(r"state-(\d+)\.json")
# A limit, so that a damaged file cannot exhaust the memory.
_LARGEST_RECORD = 64 << 20


@dataclass(frozen=True, slots=True)
class Package:
    """One distribution as it was.

    Attributes:
        name: Normalised name.
        version: With its local part.
        files: sha256 over the paths and hashes in RECORD, without metadata and scripts. Two builds of one version
            differ in it. None without RECORD.
        source: The requirement for a package that is not from an index: ``name @ URL``, ``-e directory``.
    """

    name: str
    version: str | None
    files: str | None
    source: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The packages that an environment held.

    Attributes:
        prefix: Its root directory.
        cause: The cause that was fixed.
        commands: The commands that were run.
        packages: Every distribution of its own, by name.
    """

    schema: Literal["envsolve.state/1"] = SCHEMA
    prefix: str
    cause: str
    commands: tuple[str, ...]
    packages: tuple[Package, ...]


class _Vcs(msgspec.Struct, frozen=True):
    vcs: str
    commit_id: str


class _Directory(msgspec.Struct, frozen=True):
    editable: bool = False


class _Origin(msgspec.Struct, frozen=True):
    """https://packaging.python.org/en/latest/specifications/direct-url-data-structure/"""

    url: str
    vcs_info: _Vcs | None = None
    dir_info: _Directory | None = None


def packages_of(environment: Environment) -> tuple[Package, ...]:
    """The distributions that are installed in the environment itself, by name."""
    own = {site.path for site in environment.sites if site.origin == "environment"}
    found = (_package(d) for d in environment.distributions if d.site in own)
    return tuple(sorted(found, key=lambda package: package.name))


def save(state: State) -> Path:
    """Write a state into its environment, next to earlier ones.

    Raises:
        EnvsolveError: It cannot be written.
    """
    directory = Path(state.prefix) / DIRECTORY
    number = max((n for n, _ in _saved(directory)), default=0) + 1
    path = directory / f"state-{number}.json"
    try:
        directory.mkdir(exist_ok=True)
        replace_file(path, dump(state))
    except OSError as error:
        raise EnvsolveError(
            f"the state before the change cannot be saved at {path}: {error.strerror}", hint="nothing was changed"
        ) from error
    return path


def last(prefix: Path) -> tuple[Path, State]:
    """Return the most recently saved state of an environment.

    The file is in the environment, so anybody who made or copied the environment may have written it.

    Raises:
        UsageError: It is missing, cannot be read, belongs to another environment, or names something that no
            installer writes.
    """
    found = max(_saved(prefix / DIRECTORY), default=None)
    if found is None:
        raise UsageError(
            f"no earlier state of {prefix} is saved",
            hint="`envsolve diagnose --fix` saves the state before it changes an environment",
        )
    path = found[1]
    try:
        state = from_json(read_regular(path), State)
    except (OSError, msgspec.MsgspecError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    if real_path(Path(state.prefix)) != real_path(prefix):
        raise UsageError(
            f"{path} was saved in {state.prefix}, not in {prefix}: nothing was changed",
            hint="a copied environment has no saved state; restore the original environment",
        )
    if wrong := next((package for package in state.packages if not _is_restorable(package)), None):
        raise UsageError(f"{path} names a package that cannot be restored: {wrong.name!r}", hint=f"delete {path}")
    return path, state


def _is_restorable(package: Package) -> bool:
    """Return whether a package's texts name one package, and nothing else that a command line understands."""
    try:
        canonicalize_name(package.name, validate=True)
        Version(package.version or "0")
    except (InvalidName, InvalidVersion):
        return False
    source = package.source or ""
    return not source or source.startswith(("-e ", f"{package.name} @ "))


def _saved(directory: Path) -> Iterator[tuple[int, Path]]:
    for path in directory.glob("state-*.json"):
        if match := _NAME.fullmatch(path.name):
            yield int(match[1]), path


def _package(distribution: Distribution) -> Package:
    return Package(distribution.name, distribution.version, _digest(distribution), _source(distribution))


def _digest(distribution: Distribution) -> str | None:
    try:
        text = read_regular(Path(distribution.info) / "RECORD", _LARGEST_RECORD).decode("utf-8", "replace")
    except OSError:
        return None
    # Installers rewrite scripts, and write metadata such as INSTALLER of their own.
    rows = (line for line in text.splitlines() if line and "sha256=" in line)
    kept = sorted(row for row in rows if ".dist-info/" not in row and not row.startswith(("../", "/")))
    return hashlib.sha256("\n".join(kept).encode()).hexdigest()


def _source(distribution: Distribution) -> str | None:
    if distribution.direct_url is None:
        return None
    try:
        origin = from_json(read_regular(Path(distribution.info) / "direct_url.json"), _Origin)
    except (OSError, msgspec.MsgspecError):
        return None
    if origin.dir_info and origin.dir_info.editable:
        return f"-e {origin.url.removeprefix('file://')}"
    url = f"{origin.vcs_info.vcs}+{origin.url}@{origin.vcs_info.commit_id}" if origin.vcs_info else origin.url
    return f"{distribution.name} @ {url}"


# The command line of a fix as steps, each an installer's command on the environment; and running them.


_VARIABLE = re.compile(r"([A-Z_][A-Z0-9_]*)=(.*)", re.DOTALL)
# A fix with any of these but && is for a person to run.
_OPERATORS = "&|;<>()"


@dataclass(frozen=True, slots=True)
class Step:
    """One command, with the variables that are set before it."""

    command: Command
    variables: Mapping[str, str]


def steps_of(command: str, prefix: str, environ: Mapping[str, str]) -> tuple[Step, ...]:
    """Split the command line of a fix into steps.

    Args:
        command: One line of shell, ``A && B``.
        prefix: The environment that every step must name.
        environ: Where programs are looked for.

    Raises:
        ImpossibleError: pip and uv cannot run it in this environment.
    """
    lexer = shlex.shlex(command, posix=True, punctuation_chars=_OPERATORS)
    lexer.whitespace_split = True
    parts: list[list[str]] = [[]]
    for word in lexer:
        if word == "&&":
            parts.append([])
        else:
            parts[-1].append(word)
    steps = tuple(step for words in parts if (step := _step(words, prefix, environ)))
    if len(steps) != len(parts):
        raise ImpossibleError(
            "pip and uv cannot apply the first fix in this environment", hint=f"run it yourself: {command}"
        )
    return steps


def _step(words: list[str], prefix: str, environ: Mapping[str, str]) -> Step | None:
    """The step that words are; None if they are not an install or uninstall in the environment."""
    variables: dict[str, str] = {}
    while words and (match := _VARIABLE.fullmatch(words[0])):
        variables[match[1]] = match[2]
        words = words[1:]
    if words[:1] == ["uv"] and shutil.which("uv", path=environ.get("PATH", os.defpath)) is None:
        # An environment of uv has no pip, and the uv beside envsolve need not be on PATH.
        words[0] = uv_program() or words[0]
    try:
        command = read_command(words, environ)
    except UsageError:
        return None
    on_prefix = any(
        place and (place == prefix or place.startswith(f"{prefix}/"))
        for place in (command.program[0], command.value("python"), command.value("prefix"))
    )
    understood = command.verb[-1:] in (("install",), ("uninstall",)) and not any(
        set(word) <= set(_OPERATORS) for word in command.requirements
    )
    return Step(command, variables) if on_prefix and understood and command.installer != "conda" else None


def carry_out(steps: Sequence[Step], environ: Mapping[str, str], on_line: Callable[[str], None]) -> None:
    """Run steps to their end, one after the other.

    Raises:
        EnvsolveError: One fails. Later steps are not run.
    """
    for step in steps:
        phase(f"running {step.command.installer}")
        ended = stream(step.command.words, environ={**environ, **step.variables}, on_line=on_line)
        if ended.returncode != 0:
            raise explained(step.command.installer, ended.returncode, ended.stderr.splitlines())


# The restoring commands.


_VARIANT = re.compile(r"\+(cpu|cu\d+)$")
_INSTALLER = "pip"


def restoring(state: State, environment: Environment, catalogue: Catalogue) -> tuple[str, ...]:
    """The commands that restore a state; empty if the environment already has it."""
    now = {package.name: package for package in packages_of(environment)}
    then = {package.name: package for package in state.packages}
    # pip carries the commands out: an environment of uv had none when the state was saved.
    extra = [name for name in now if name not in then and name != _INSTALLER]
    groups: dict[str, list[str]] = {}
    for name, package in then.items():
        if now.get(name) != package:
            # A version with a variant, 2.14.1+cu126, is only on PyTorch's own index.
            groups.setdefault(_index(package, catalogue), []).append(
                shlex.quote(package.source or f"{name}=={package.version}")
            )
    commands = [f"pip uninstall -y {' '.join(map(shlex.quote, extra))}"] if extra else []
    # Without dependencies: the state lists every package, so none may come from a resolver.
    commands += [f"pip install --force-reinstall --no-deps {' '.join(n)}{index}" for index, n in groups.items()]
    return tuple(in_environment(command, environment) for command in commands)


def put_back(
    prefix: Path,
    state: State,
    catalogue: Catalogue,
    environ: Mapping[str, str],
    on_line: Callable[[str], None],
    confirm: Callable[[tuple[str, ...]], object] = bool,
) -> tuple[str, ...]:
    """Restore a state of the environment at a prefix, and check that the environment is in it.

    Args:
        prefix: The only environment that is changed.
        state: What it held.
        catalogue: The facts.
        environ: Of the installers.
        on_line: Called with each line that they print.
        confirm: Called with the commands before the first one runs, if there are any; it raises to stop.

    Returns:
        The names of the packages that were restored or removed.

    Raises:
        VerificationError: It could not be restored; the hint says exactly what to run.
    """
    environment = read_outline(prefix, environ)
    commands = restoring(state, environment, catalogue)
    if commands:
        confirm(commands)
    before = packages_of(environment)
    try:
        for command in commands:
            carry_out(steps_of(command, environment.prefix, environ), environ, on_line)
    except EnvsolveError as error:
        raise VerificationError(
            f"the earlier state of {prefix} could not be restored: {error.message}",
            hint=f"run: {' && '.join(commands)}",
        ) from error
    after = read_outline(prefix, environ)
    remain = restoring(state, after, catalogue)
    if remain:
        wrong = ", ".join(_differences(state, packages_of(after)))
        raise VerificationError(
            f"could not restore {prefix}: {wrong} still differ although the installer succeeded",
            hint=f"run: {' && '.join(remain)}",
        )
    return tuple(_differences(state, before))


def _differences(state: State, packages: tuple[Package, ...]) -> Iterator[str]:
    now, then = ({p.name: p for p in side} for side in (packages, state.packages))
    yield from (n for n in sorted({**now, **then}) if now.get(n) != then.get(n) and (n in then or n != _INSTALLER))


def _index(package: Package, catalogue: Catalogue) -> str:
    """The option for PyTorch's own index, for a package that only that index has."""
    match = _VARIANT.search(package.version or "")
    place = catalogue.indexes.get("pytorch")
    if match is None or place is None or package.source:
        return ""
    return f" --index-url {place.url.format(variant=match[1])}"
