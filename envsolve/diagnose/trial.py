"""Try a fix in the model before it is proposed: what its command changes, and whether that removes the cause.

A command of pip, uv or conda is parsed by :mod:`envsolve.packages.commands` and resolved, from the catalogue, as that
installer resolves it: its indexes, what is installed already, and what the chosen builds require. Packages that the
catalogue does not describe keep out of it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise

from msgspec.structs import replace
from packaging.markers import UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from envsolve._default_index import DEFAULT_INDEX
from envsolve.binaries.names import is_toolkit_package
from envsolve.diagnose.model import Finding, Fix, RuledOut, Seen, public
from envsolve.diagnose.scene import Scene, scene_of
from envsolve.facts.builds import Build
from envsolve.packages.commands import Command, Meaning, parse
from envsolve.packages.shell import simple_commands
from envsolve.rules.conda import CondaJudge
from envsolve.rules.judge import judge_of, worst
from envsolve.rules.platform import python_fits
from envsolve.rules.verdict import Level, Verdict
from envsolve.solve.preferences import DEFAULT

Weigh = Callable[[Scene], Iterable[Finding | RuledOut]]
Installed = dict[str, Seen[str]]

_WHERE = "the fix"
#: Meanings of arguments whose effect on an environment the model does not follow.
_UNKNOWN: tuple[Meaning, ...] = ("files", "editables", "find_links", "no_index", "target", "backend", "constraints")
_UNSET = re.compile(r"(?:^|&& *|; *)(?:unset|env -u) ((?:[A-Z_]{2,40} ?)+)")
_CONDA_TORCH = ("pytorch", "pytorch-gpu", "pytorch-cpu", "libtorch")


@dataclasses.dataclass(frozen=True)
class Trial:
    """A scene on which fixes are tried.

    Attributes:
        weigh: What weighs a scene.
    """

    scene: Scene
    weigh: Weigh

    def holds(self, cause: str, fix: Fix) -> bool:
        """Whether a fix removes a cause and brings nothing new; True if the model does not show its effect."""
        if self.scene.other_vendor:  # the catalogue has no builds of other vendors
            return True
        try:
            then = carried_out(self.scene, fix.command) if fix.command else None
        except _FailsError:
            return False
        if then is None:
            return True
        after = _faults(then, self.weigh)
        return cause not in after and (not after or after <= self._before)

    @cached_property
    def _before(self) -> set[str]:
        return _faults(_without_words(self.scene), self.weigh)


class _FailsError(Exception):
    """The installer would refuse the command."""


def carried_out(scene: Scene, command: str) -> Scene | None:
    """The scene after a command, without the words of the error; None if the model does not show its effect."""
    state = _State(scene, dict(scene.report.installed), scene.python)
    changed = False
    for words, _ in simple_commands(command, {}):
        changed |= state.run(words)
    taken = {str(name) for found in _UNSET.findall(command) for name in found.split()}
    variables = {name: seen for name, seen in scene.report.variables.items() if name not in taken}
    if not changed and len(variables) == len(scene.report.variables):
        return None
    python = Seen(state.python, _WHERE, command) if state.python else None
    report = dataclasses.replace(scene.report, installed=state.installed, variables=variables, python=python)
    if state.touches_torch:
        report = dataclasses.replace(report, cuda=None, arch_list=None)
    return _without_words(dataclasses.replace(scene, report=report))


def _without_words(scene: Scene) -> Scene:
    """The rules' answer on a scene, without an error text."""
    machine = replace(scene.machine, python=scene.python)
    report = dataclasses.replace(scene.report, text="", machine=machine, commands=(), images=())
    return scene_of(report, scene.machines[1:], scene.catalogue)


def _faults(scene: Scene, weigh: Weigh) -> set[str]:
    """The causes that follow from the rules, and ``does-not-run`` if the rules refuse the torch."""
    found = {answer.cause for answer in weigh(scene) if isinstance(answer, Finding)}
    build = scene.torch.build if scene.torch else None
    if build is not None and scene.machine.gpus:
        verdicts = list(_verdicts(build, scene))
        found |= {"does-not-run"} if worst(verdicts).level is Level.NONE else set()
    return found


def _verdicts(build: Build, scene: Scene) -> Iterator[Verdict]:
    for machine in scene.machines:
        if scene.by_conda:
            yield CondaJudge((machine,), scene.facts, ()).verdict(build)
        else:
            yield from judge_of(machine, scene.facts).verdicts(build, scene.python)


@dataclasses.dataclass
class _State:
    """The packages of an environment while commands change them.

    Attributes:
        touches_torch: Whether torch was installed anew or removed.
    """

    scene: Scene
    installed: Installed
    python: str | None
    touches_torch: bool = False

    def run(self, words: Sequence[str]) -> bool:
        """Apply a command to the model; False if the model cannot show its effect."""
        if tuple(words[:2]) == ("uv", "venv"):
            named = [word for flag, word in pairwise(words) if flag in ("--python", "-p")]
            self.python = named[-1] if named else self.python
            self.installed, self.touches_torch = {}, True
            return True
        command = parse(words)
        if command is None:
            return False
        verb = command.verb[-1:]
        if verb in (("uninstall",), ("remove",)):
            return self._remove(command.requirements)
        if verb not in (("install",), ("add",)) or command.has(*_UNKNOWN) or not command.requirements:
            return False
        urls = command.values("index_urls", "extra_index_urls", "indexes")
        if any(self._place(url.partition("=")[2] or url) is None for url in urls):
            return False  # what a mirror has is not known
        return self._conda(command) if command.installer == "conda" else self._wheels(command)

    def _remove(self, names: Iterable[str]) -> bool:
        gone = {canonicalize_name(name) for name in names}
        self.touches_torch |= bool(gone & {"torch", *_CONDA_TORCH})
        self.installed = {name: seen for name, seen in self.installed.items() if name not in gone}
        return True

    def _conda(self, command: Command) -> bool:
        specs = [re.split(r"[=<>! ]+", word.strip("\"'")) for word in command.requirements]
        pinned = {name: rest for name, *rest in specs if rest and rest[0]}
        cuda = next(iter(pinned.get("cuda-version", ())), None)
        for name, (version, *build) in pinned.items():
            text = build[0] if version == "*" and build else version
            if name in _CONDA_TORCH:
                made = re.match(r"cuda(\d{2})(\d)", build[0]) if build else None
                variant = f"+cu{made[1]}{made[2]}" if made else f"+cu{cuda.replace('.', '')}" if cuda else ""
                text, self.touches_torch = f"{version}{variant}", True
                old = {public(self.installed, other) for other in _CONDA_TORCH} - {None}
                if public(self.installed, "torch") in old:  # people call conda's package torch, too
                    del self.installed["torch"]
                # conda's solver moves the packages that go with torch.
                for other in (*_CONDA_TORCH, *filter(self.scene.family.follows_torch, list(self.installed))):
                    self.installed.pop(other, None)
            self.installed[name] = Seen(text, _WHERE, f"{name} {text}")
        return bool(pinned)

    def _wheels(self, command: Command) -> bool:
        """pip's and uv's resolution of what the catalogue describes."""
        wanted: dict[str, SpecifierSet] = {}
        for word in command.requirements:
            if (found := _requirement(word)) is not None and found.url is None:
                wanted[canonicalize_name(found.name)] = found.specifier
        built = command.has("no_build_isolation")  # from source, which wheels say nothing about
        known = [name for name in wanted if name == "torch" or (not built and self._describes(name, wanted[name]))]
        for name in wanted.keys() - set(known):
            self._pin(name, wanted[name])
        chosen: dict[str, Build] = {}
        for name in known:
            self._choose(name, wanted, command, chosen, requested=True)
        if not command.has("no_deps"):
            for name, build in list(chosen.items()):
                self._require(name, build, wanted, command, chosen)
        for name, build in chosen.items():
            text = build.version + build.local
            self.installed[name] = Seen(text, _WHERE, f"{name} {text}")
            self.touches_torch |= name == "torch"
        return bool(wanted)

    def _describes(self, name: str, specifier: SpecifierSet) -> bool:
        """Whether the catalogue has a version that is requested; of packages beside torch it may lack old ones."""
        return any(_matches(build, specifier) for build in self.scene.catalogue.builds(name))

    def _pin(self, name: str, specifier: SpecifierSet) -> None:
        exact = next((one.version for one in specifier if one.operator == "=="), None)
        if exact:
            self.installed[name] = Seen(exact, _WHERE, f"{name} {exact}")

    def _require(
        self, name: str, build: Build, wanted: dict[str, SpecifierSet], command: Command, chosen: dict[str, Build]
    ) -> None:
        """Apply the requirements of a chosen build: it stays if it satisfies them and nothing is to be reinstalled."""
        for line in build.requires or ():
            found = _requirement(line)
            if found is None or not self._applies(found):
                continue
            other = canonicalize_name(found.name)
            both = wanted.get(other, SpecifierSet()) & found.specifier
            if other in chosen:
                if not _matches(chosen[other], found.specifier):
                    raise _FailsError(f"{name} requires {found}")
            elif self.scene.catalogue.builds(other):
                self._choose(other, {other: both}, command, chosen, requested=False)
                if other in chosen:
                    self._require(other, chosen[other], wanted, command, chosen)
            elif is_toolkit_package(other):
                self._pin(other, found.specifier)

    def _applies(self, requirement: Requirement) -> bool:
        platform = self.scene.platform
        system = {"windows": ("Windows", "win32"), "linux": ("Linux", "linux")}.get(platform.os or "linux")
        names, sys_platform = system or ("Linux", "linux")
        python = self.python or "3.12"
        environment = {
            "platform_system": names,
            "sys_platform": sys_platform,
            "platform_machine": platform.arch or "x86_64",
            "python_version": python,
            "python_full_version": f"{python}.0",
            "extra": "",
        }
        try:
            return requirement.marker is None or requirement.marker.evaluate(environment)
        except UndefinedEnvironmentName:
            return True

    def _choose(
        self,
        name: str,
        wanted: Mapping[str, SpecifierSet],
        command: Command,
        chosen: dict[str, Build],
        *,
        requested: bool,
    ) -> None:
        """The build that the installer chooses, unless what is installed is enough."""
        have, specifier = self.installed.get(name), wanted[name]
        enough = have is not None and _contains(specifier, have.value)
        again = command.has("force_reinstall") or (requested and command.has("upgrade"))
        if enough and not again:
            return
        found = self._offered(name, specifier, command)
        if not found and not requested and name != "torch":
            # PyTorch's index has copies of what torch requires, which the catalogue does not list.
            everywhere = [b for b in self.scene.published(name) if _matches(b, specifier)]
            found = [b for b in everywhere if b.index == DEFAULT] or everywhere
            if not found:
                return
        if not found:
            raise _FailsError(f"no index has {name}{specifier}")
        chosen[name] = max(found, key=lambda build: Version(build.version + build.local))

    def _offered(self, name: str, specifier: SpecifierSet, command: Command) -> list[Build]:
        """The builds on a command's indexes; uv stays with the first index that has the name."""
        places = [built for place in self._places(command) if (built := self._on(name, place))]
        if command.installer == "uv":
            places = places[:1]
        offered = [build for place in places for build in place if _matches(build, specifier)]
        return [build for build in offered if not Version(build.version).is_prerelease] or offered

    def _places(self, command: Command) -> Iterator[tuple[str, str | None]]:
        """The indexes of a command as the catalogue names them, each with its variant, in the order of uv."""
        first = [url.partition("=")[2] or url for url in command.values("indexes")]
        own, more = command.value("index_urls"), command.values("extra_index_urls")
        for url in (*first, *more, own or DEFAULT_INDEX):
            if (place := self._place(url)) is not None:
                yield place

    def _place(self, url: str) -> tuple[str, str | None] | None:
        if url.rstrip("/") == DEFAULT_INDEX.rstrip("/"):
            return DEFAULT, None
        for name, place in self.scene.catalogue.indexes.items():
            pattern = re.escape(place.url).replace(re.escape("{variant}"), r"(?P<variant>\w+)")
            if (match := re.fullmatch(pattern, url.rstrip("/"))) and "variant" in match.groupdict():
                return name, match["variant"]
        return None

    def _on(self, name: str, place: tuple[str, str | None]) -> list[Build]:
        index, variant = place
        builds = [b for b in self.scene.published(name) if b.index == index and variant in (None, b.variant)]
        return [b for b in builds if self.python is None or python_fits(b.pythons, self.python).ok is not False]


def _requirement(text: str) -> Requirement | None:
    try:
        return Requirement(text)
    except InvalidRequirement:
        return None


def _matches(build: Build, specifier: SpecifierSet) -> bool:
    return specifier.contains(build.version + build.local, prereleases=True)


def _contains(specifier: SpecifierSet, version: str) -> bool:
    try:
        return specifier.contains(version, prereleases=True)
    except InvalidVersion:
        return False
