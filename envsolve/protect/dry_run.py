"""An installer's dry run, from wheels only if that gives the same answer.

pip and uv learn what a source archive requires by building it, which runs its code, also in a dry run.
"""

from __future__ import annotations

import logging
import os
import platform
import shlex
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from envsolve.diagnose.signatures import cause_of
from envsolve.environment.read import read_outline
from envsolve.errors import EnvsolveError, UsageError
from envsolve.facts.catalogue import Catalogue
from envsolve.packages.client import IndexClient
from envsolve.packages.commands import Change, Command, installer, parse
from envsolve.packages.model import IndexFile, version_in
from envsolve.packages.requirement_files import read_requirements
from envsolve.packages.requirements import Asked, Need
from envsolve.packages.settings import read_settings
from envsolve.planning.request import check_names
from envsolve.rules.platform import admits_python
from envsolve.system.processes import capture
from envsolve.system.progress import phase

_Found = tuple[Path | None, tuple[Change, ...]]
_log = logging.getLogger("envsolve.protect")
_SHOWN_LINES = 12
_SOURCES = (".tar.gz", ".zip", ".tar.bz2", ".tgz", ".tar.xz")


def read_command(words: Sequence[str], environ: Mapping[str, str]) -> Command:
    """Parse a command line whose program exists.

    Raises:
        UsageError: It is not a command of a known installer, or the program does not exist.
    """
    command = parse(words)
    if command is None:
        raise UsageError(
            f"{shlex.join(words)!r} is not a command of pip, uv, conda or mamba",
            hint="write the complete install command after the two dashes: envsolve guard -- pip install X",
        )
    if shutil.which(words[0], path=environ.get("PATH", os.defpath)) is None:
        raise UsageError(f"there is no program {words[0]}")
    return command


def check_names_of(command: Command, catalogue: Catalogue) -> None:
    """Refuse the names that a plan refuses, before the dry run asks an index for them.

    Raises:
        UsageError: There is such a name.
    """
    # conda has its own names (torch is pytorch there), and uninstalling is the way out of an earlier mistake.
    if command.installer == "conda" or "uninstall" in command.verb:
        return
    needs = [Need(one, "command line") for one in _requirements(command.requirements)]
    check_names((*needs, *_asked(command).needs), catalogue)


def run_dry(command: Command, environ: Mapping[str, str], *, may_build: bool = True) -> _Found:
    """Run the dry run of a command that changes an environment; return the environment that it names, and the changes.

    Wheels are tried alone first. If the command itself would choose a source archive, the answer is not the same: then
    a warning says so before the installer may build one.

    Args:
        command: The command.
        environ: Its environment variables.
        may_build: Whether the installer may run the code of source archives.

    Raises:
        EnvsolveError: It fails, its output is not understood, or it has to build and may not.
    """
    one = installer(command.installer)
    # Installers of ready packages (conda) and commands that forbid builds have nothing to try first.
    wheels = one.from_wheels(command)
    if wheels is None:
        return _run(command, environ)
    failure, asked = None, _asked(command)
    source = next(_named_sources(command, asked), None)
    if source is None:
        try:
            found = _run(wheels, environ)
        except EnvsolveError as error:
            if cause_of(error.message) == "index-unreachable":
                raise  # building would change nothing, and its warning would distract from the cause
            failure = error
        else:
            source = _newer_source(found, command, asked, environ)
            if source is None:
                return found
    if not may_build:
        what = f"{one.name} must build {source} to read its requirements, and a build runs code of the package"
        hint = "add --run to allow the build, or install only wheels: --only-binary :all:"
        raise EnvsolveError(failure.message if failure else what, hint=f"only wheels were tried; {hint}")
    told = "%s may build source archives to learn what they require, which runs their code%s"
    _log.warning(told, one.name, f": {source}" if source else "")
    return _run(command, environ)


def _run(command: Command, environ: Mapping[str, str]) -> _Found:
    one = installer(command.installer)
    words = one.dry_run(command)
    assert words is not None  # callers ask first whether the command changes an environment
    phase(f"running {one.name} --dry-run to see what it would install")
    # uv colours its list of changes if FORCE_COLOR is set, and the escape codes would end up in the names.
    done = capture(words, {**environ, "NO_COLOR": "1"})
    printed = done.stdout.decode("utf-8", "replace")
    if done.returncode == 0:
        try:
            return one.read_dry_run(printed, done.stderr)
        except ValueError as error:
            raise EnvsolveError(
                f"envsolve cannot read the output of {one.name}'s dry run: {error}",
                hint=f"see what the dry run prints: {shlex.join(words)}",
            ) from error
    # The end, not the beginning: pip prints the reason last, after hundreds of lines of backtracking.
    shown = "\n".join(f"  {line}" for line in (done.stderr or printed).strip().splitlines()[-_SHOWN_LINES:])
    message = f"{one.name} cannot do this (exit status {done.returncode}):\n{shown}"
    hint = None
    if "no such option" in done.stderr:
        hint = "pip supports dry runs since 22.2, with a report since 22.3"
    elif cause_of(message) == "index-unreachable":
        hint = "check the network, the proxy and the URL of the index; nothing was changed"
    raise EnvsolveError(message, hint=hint)


def _asked(command: Command) -> Asked:
    """The requirements in the files of a command; empty for files that the installer itself refuses."""
    try:
        # The same reader as for a plan, so that both see the same names in a file.
        return read_requirements((), tuple(map(Path, command.values("files"))))
    except EnvsolveError:
        return Asked()


def _named_sources(command: Command, asked: Asked) -> Iterator[str]:
    """The requirements that are source trees or archives whatever an index has."""
    yield from command.values("editables")
    # Whatever it names: which packages a command reaches is known only after a dry run.
    yield from (one.name for one in (*command.general, *command.arguments) if one.name.startswith("--no-binary"))
    for word in command.requirements:
        try:
            url = Requirement(word).url
        except InvalidRequirement:
            url = word
        if url and not url.partition("#")[0].endswith(".whl"):
            yield word
    for need in asked.needs:
        if need.requirement.url and not need.requirement.url.partition("#")[0].endswith(".whl"):
            yield str(need.requirement)


def _newer_source(found: _Found, command: Command, asked: Asked, environ: Mapping[str, str]) -> str | None:
    """A source archive of a changed package that the command itself may choose, because it is newer than all wheels.

    None is certain. An index that cannot be read may have one.
    """
    settings = read_settings(
        environ,
        index_url=command.value("index_urls") or next(reversed(asked.index_urls), None),
        extra_index_urls=(*command.values("extra_index_urls", "indexes"), *asked.extra_index_urls),
        find_links=(*command.values("find_links"), *asked.find_links),
    )
    place, changes = found
    prefix = place or installer(command.installer).prefix(command, environ)
    choice = _Choice.of(prefix, command, asked, environ)
    asks_indexes = not (command.has("no_index") or asked.no_index)
    with IndexClient(settings) as client:
        for change in changes:
            if change.after is None:
                continue
            try:
                files = [*client.linked(change.name)]
                for index in (settings.default, *settings.extras) if asks_indexes else ():
                    files += client.listing(change.name, index)
            # Taken for a source archive: the other way round, code would be run without the warning.
            except EnvsolveError as error:
                return f"{change.name} ({error.message})"
            if (source := choice.newest_source(change.name, files, change.after)) is not None:
                return source
    return None


@dataclass(frozen=True)
class _Choice:
    """The files of a project that an installer uses.

    Attributes:
        python: The environment's; of one that cannot be read, the running one.
        specifiers: The command's own requirements on each package.
    """

    python: str
    tags: frozenset[Tag]
    specifiers: Mapping[str, SpecifierSet]
    prereleases: bool

    @classmethod
    def of(cls, prefix: Path | None, command: Command, asked: Asked, environ: Mapping[str, str]) -> _Choice:
        python = (read_outline(prefix, environ).python if prefix else None) or platform.python_version()
        minor = tuple(map(int, python.split(".")[:2]))
        interpreter = f"cp{minor[0]}{minor[1]}"
        tags = frozenset((*cpython_tags(minor), *compatible_tags(minor, interpreter)))
        specifiers: dict[str, SpecifierSet] = {}
        for one in (*_requirements(command.requirements), *(need.requirement for need in asked.needs)):
            name = canonicalize_name(one.name)
            specifiers[name] = specifiers.get(name, SpecifierSet()) & one.specifier
        return cls(python, tags, specifiers, command.has("prereleases") or asked.prereleases)

    def newest_source(self, name: str, files: Iterable[IndexFile], chosen: str) -> str | None:
        """The source archive of the newest version above the chosen one that has no wheel for the environment."""
        versions: dict[Version, list[IndexFile]] = {}
        for file in files:
            text = version_in(file.filename)
            # As pip chooses: a yanked release or one for another Python is never its answer to an open requirement.
            if text and file.yanked is None and admits_python(file.requires_python, self.python):
                try:
                    versions.setdefault(Version(text), []).append(file)
                except InvalidVersion:
                    continue
        allowed = self.specifiers.get(name, SpecifierSet())
        for version in sorted(versions, reverse=True):
            # Sorted downwards, so nothing older can follow.
            if version <= Version(chosen):
                return None
            source = next((one.filename for one in versions[version] if one.filename.endswith(_SOURCES)), None)
            wheel = any(map(self._runs, versions[version]))
            taken = allowed.contains(version, prereleases=True) and (self.prereleases or not version.is_prerelease)
            if source and taken and not wheel:
                return source
        return None

    def _runs(self, file: IndexFile) -> bool:
        try:
            return not self.tags.isdisjoint(parse_wheel_filename(file.filename)[3])
        except InvalidWheelFilename:
            return False


def _requirements(words: Iterable[str]) -> Iterator[Requirement]:
    for word in words:
        with suppress(InvalidRequirement):
            yield Requirement(word)
