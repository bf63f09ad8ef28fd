"""The input of every check of a Dockerfile: the machines, the published builds, and facts about images."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from shlex import quote
from typing import TypeAlias

from msgspec.structs import replace
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from envsolve.advice.torch import preference
from envsolve.dockerfile.context import Context
from envsolve.dockerfile.image_names import Name
from envsolve.dockerfile.installs import Install, Places, Wanted
from envsolve.dockerfile.model import Command, Stage
from envsolve.facts.builds import IndexPlace
from envsolve.facts.catalogue import Catalogue
from envsolve.facts.hardware import Distribution, Image
from envsolve.machine.known import target_of
from envsolve.machine.model import Machine, Platform
from envsolve.planning.builds import BuildLine, list_builds
from envsolve.rules.nvidia import Facts
from envsolve.rules.platform import libc_needed, libc_of, libc_serves, python_tag
from envsolve.solve.family import Family
from envsolve.solve.preferences import published_version
from envsolve.values import CudaVersion

_DEFAULT = "default"
PYTORCH = "pytorch/pytorch"
"""The repository of PyTorch's own images."""
Libc: TypeAlias = tuple[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Within:
    """The environment that an installer runs in. It finds only the wheels that fit.

    Attributes:
        python: ``3.12``; None if it is not known.
        libc: The libc of the image, whatever the machine's; None if it is not known.
    """

    python: str | None = None
    libc: Libc | None = None


@dataclass(frozen=True, slots=True)
class Offer:
    """One build, with its verdict for each GPU.

    Attributes:
        lines: The verdicts.
        place: Its place in the order in which ``envsolve plan`` tries builds.
        requires: Requires-Dist lines, if they are known.
    """

    lines: tuple[BuildLine, ...]
    place: int
    requires: tuple[str, ...] | None = None

    @property
    def build(self) -> BuildLine:
        """The build itself."""
        return self.lines[0]

    @property
    def version(self) -> Version:
        """With the local part of its file name."""
        return published_version(self.build.version + self.build.local)

    @property
    def refused(self) -> BuildLine | None:
        """The first GPU that it does not run on."""
        return next((line for line in self.lines if line.verdict == "none"), None)

    @property
    def without_triton(self) -> BuildLine | None:
        """The first GPU that kernels of its Triton do not run on."""
        return next((line for line in self.lines if line.triton is False), None)

    @property
    def libc(self) -> Libc:
        """The libc that its wheel requires; the oldest glibc if its tag names none, since it was built on one."""
        return libc_needed(self.build.platform) or ("glibc", (2, 0))

    def for_python(self, python: str | None) -> bool:
        """Whether it has a wheel for a Python; True if the Python is not known."""
        return python is None or python_tag(self.build.pythons, python) is not None

    def fits(self, within: Within) -> bool:
        """Whether it has a wheel for a Python and a libc; True if one of them is not known."""
        return self.for_python(within.python) and (within.libc is None or libc_serves(within.libc, self.libc))

    def needs(self, package: str) -> SpecifierSet | None:
        """The versions of another package that it requires; None if that is not known."""
        if package == "torch" and self.build.torch:
            return SpecifierSet(self.build.torch)
        for line in self.requires or ():
            needed = Requirement(line)
            if canonicalize_name(needed.name) == package and "extra" not in str(needed.marker):
                return needed.specifier
        return None

    def command(self, indexes: Mapping[str, IndexPlace]) -> str:
        """The command that installs exactly this build."""
        place = indexes.get(self.build.index)
        where = f" --index-url {place.url.format(variant=self.build.variant)}" if place else ""
        return f"pip install {self.build.package}=={self.version}{where}"


def offers(package: str, machines: Sequence[Machine], catalogue: Catalogue) -> tuple[Offer, ...]:
    """Every build of a package that an installer finds by its name, newest first."""
    if package not in catalogue.packages() or not catalogue.builds(package):
        return ()
    simple = {_DEFAULT, *(name for name, place in catalogue.indexes.items() if place.kind == "simple")}
    requires = {
        (build.version, build.local, build.variant, build.index, build.platform): build.requires
        for build in catalogue.builds(package)
    }
    together: dict[tuple[tuple[str, str, str, str, str], tuple[str, ...]], list[BuildLine]] = {}
    for line in list_builds(package, machines, None, catalogue).builds:
        if line.index in simple:
            # One build is listed once for each GPU.
            key = (line.version, line.local, line.variant, line.index, line.platform)
            together.setdefault((key, line.pythons), []).append(line)
    place = preference(Family(catalogue, Facts.of(catalogue), tuple(machines), None), package)
    return tuple(Offer(tuple(lines), place(key[0], key[2]), requires.get(key)) for (key, _), lines in together.items())


def found(
    known: Sequence[Offer], specifier: SpecifierSet, places: Places, within: Within, early: bool = False
) -> list[Offer]:
    """The builds that a specifier allows, in the places where an installer looks.

    Args:
        known: Builds of one package.
        specifier: The versions.
        places: Where the installer looks.
        within: What it runs in.
        early: Whether pre-releases are taken.
    """
    early = early or bool(specifier.prereleases)
    here = [offer for offer in known if offer.fits(within) and _is_in(offer, places)]
    # uv takes all versions from the first index that has the name, and looks at the default index last.
    if not places.merges and any(offer.build.index != _DEFAULT for offer in here):
        here = [offer for offer in here if offer.build.index != _DEFAULT]
    return [offer for offer in here if specifier.contains(offer.version, prereleases=early)]


def _is_in(offer: Offer, places: Places) -> bool:
    if offer.build.index == _DEFAULT:
        return places.default
    # A companion with one build for all variants is on the index of each.
    return places.every or offer.build.variant in (*places.variants, *(("any",) if places.variants else ()))


def running(known: Iterable[Offer], within: Within) -> Iterator[Offer]:
    """The builds that run on every machine, in the order in which ``envsolve plan`` tries them.

    Of one build on two indexes, the one whose file name contains the variant comes first.
    """
    good = (offer for offer in known if offer.refused is None and offer.fits(within))
    return iter(sorted(good, key=lambda offer: (offer.place, not offer.build.local)))


def failure(lines: Iterable[BuildLine]) -> tuple[BuildLine, str, str | None]:
    """The reasons and the source of a failing verdict, preferably that for the machine's own platform."""

    def strange(line: BuildLine) -> int:
        return sum(reason.ok is False and reason.rule == "platform" for reason in line.reasons)

    line = min(lines, key=strange)
    failed = [reason for reason in line.reasons if reason.ok is False]
    # Without torch.compile Triton does not decide; if nothing else fails, it does.
    reasons = [reason for reason in failed if not reason.rule.startswith("triton")] or failed
    source = next((reason.source for reason in reasons if reason.source), None)
    return line, "; ".join(reason.text for reason in reasons), source


@dataclass(frozen=True, slots=True)
class Asked:
    """The input of every check.

    Attributes:
        machines: With what the driver's version implies.
        final: The stage that becomes the image.
        read: What pip and uv install by each command, by its identity: every check needs it.
        offers: Every build of a package that the catalogue describes, newest first.
    """

    machines: tuple[Machine, ...]
    catalogue: Catalogue
    facts: Facts
    final: Stage
    context: Context
    read: Mapping[int, tuple[Install, ...]]
    offers: Callable[[str], tuple[Offer, ...]]
    _taken: dict[tuple[object, ...], Offer | None] = field(default_factory=dict)
    _images: dict[str, Image | None] = field(default_factory=dict)

    @property
    def platform(self) -> Platform | None:
        """The platform of the machines, if they have one in common."""
        platforms = {machine.platform for machine in self.machines}
        return next(iter(platforms)) if len(platforms) == 1 else None

    @property
    def targets(self) -> str:
        """The options of a command of envsolve that name the machines."""
        return " ".join(f"--target {quote(target_of(machine))}" for machine in self.machines)

    def title(self, source: str | None) -> str | None:
        """The title of a source of the catalogue."""
        found = self.catalogue.source(source)
        return found.title if found else None

    def installs(self, commands: Iterable[Command]) -> tuple[Install, ...]:
        """Packages that pip and uv install among commands."""
        return tuple(install for command in commands for install in self.read.get(id(command), ()))

    def followed(self, stage: Stage) -> Iterator[tuple[Install, bool]]:
        """The installs that led to a stage, and whether each is of the stage itself."""
        for command, own in stage.followed():
            yield from ((install, own) for install in self.installs((command,)))

    def image(self, stage: Stage) -> Image | None:
        """Facts about the image that a stage is finally based on."""
        name = stage.root.image
        if name not in self._images:  # every check needs it, and a repository has hundreds of images
            self._images[name] = Name.of(name).image(self.catalogue.images)
        return self._images[name]

    def distribution(self, stage: Stage) -> Distribution | None:
        """The distribution of that image."""
        image = self.image(stage)
        if image is not None and image.distribution:
            return self.catalogue.distributions.get(image.distribution)
        return Name.of(stage.root.image).distribution(self.catalogue.distributions)

    def knows(self, stage: Stage) -> bool:
        """Whether the contents of its image are known. Images of toolkits, Pythons and distributions have no torch."""
        name = Name.of(stage.root.image)
        # python:3.12-slim names no distribution, and contains a Python alone. Of an image of somebody else, the tag
        # may name the distribution that it is built on.
        official = name.python() is not None or "/" not in name.repository
        return self.image(stage) is not None or (official and (bool(name.python()) or bool(self.distribution(stage))))

    def within(self, stage: Stage) -> Within:
        """The Python that ``pip`` is for in a stage, and its libc; None for what the image does not determine."""
        distribution = self.distribution(stage)
        image = self.image(stage)
        own = (image.python if image else None) or Name.of(stage.root.image).python()
        own = own or (distribution.python if distribution else None)
        # Which pip is first on PATH afterwards is not known.
        if own is not None and any(_brings_python(command, own) for command in stage.history()):
            own = None
        return Within(own, libc_of(Platform(libc=distribution.libc)) if distribution else None)

    def image_torch(self, stage: Stage) -> tuple[Offer, ...]:
        """The builds of torch in an image of PyTorch's; none for other images, or if they are not known."""
        name, image = Name.of(stage.root.image), self.image(stage)
        version = re.search(r"-cuda(\d+\.\d+)-", name.tag)
        if image is None or image.repository != PYTORCH or version is None or _leaves_own_python(stage):
            return ()
        variant = CudaVersion.parse(version[1]).variant
        return tuple(
            offer
            for offer in self.offers("torch")
            if offer.build.version == image.version and offer.build.variant == variant
        )

    def held(self, stage: Stage) -> frozenset[str]:
        """Packages that the image of a stage has; pip keeps what satisfies a requirement."""
        image = self.image(stage)
        if _leaves_own_python(stage):
            return frozenset()
        if image is not None and image.repository == PYTORCH:
            return frozenset({"torch", "torchvision", "torchaudio", "triton"})
        return frozenset(image.holds) if image is not None else frozenset()

    def taken(self, install: Install, package: str, within: Within) -> Offer | None:
        """The build of a package that an install chooses, if it names the package and the indexes are known."""
        looks = self.looks(install, package)
        for wanted in install.wanted:
            if wanted.name == package and not wanted.requirement.url and not looks.unknown:
                # Each stage asks it again for all the commands that led to it.
                specifier = wanted.requirement.specifier
                key = package, specifier, looks, within, install.early
                if key not in self._taken:
                    allowed = found(self.offers(package), specifier, looks, within, install.early)
                    best = max(allowed, key=lambda offer: (offer.version, offer.refused is None), default=None)
                    self._taken[key] = best
                return self._taken[key]
        return None

    def torch_at(self, stage: Stage, until: Command) -> Offer | None:
        """The torch that a stage has when a command runs; None if it has none, or if that is not known."""
        brought, within = self.image_torch(stage), self.within(stage)
        torch = brought[0] if brought else None
        for command in stage.history():
            for install in self.installs((command,)):
                # A torch whose build is not known ends what is known of the torch before it.
                torch = self.taken(install, "torch", within) if install.names("torch") else torch
            if command is until:
                break
        return torch

    def is_judged(self, install: Install) -> Callable[[Wanted], bool]:
        """Whether the builds of what an install names are known, and where it comes from."""

        def judged(wanted: Wanted) -> bool:
            known = not wanted.requirement.url and bool(self.offers(wanted.name))
            return known and not self.looks(install, wanted.name).unknown

        return judged

    def looks(self, install: Install, package: str) -> Places:
        """Where an install looks for a package."""
        return install.looks(any(offer.build.index != _DEFAULT for offer in self.offers(package)))


def pinned(specifier: SpecifierSet) -> str | None:
    """The one version that a specifier allows; None also for a text that is not a version (``===foo``)."""
    for one in specifier:
        # === compares texts, so it accepts words that are not versions.
        if one.operator in ("==", "==="):
            try:
                return str(one.version) if Version(one.version) else None
            except InvalidVersion:
                continue
    return None


def in_container(machine: Machine) -> Machine:
    """A machine as an image sees it: with the image's own libc, and with a GPU even if that is not known."""
    if machine.platform:
        machine = replace(machine, platform=replace(machine.platform, libc=None))
    return machine if machine.gpus or machine.driver else replace(machine, gpus=None)


def _leaves_own_python(stage: Stage) -> bool:
    """Whether a stage makes an environment without the packages of its image, and puts it first on PATH."""
    for command in stage.history():
        words = [word for word in command.words if not word.startswith("-")]
        makes = "venv" in words[1:3] or command.program == "virtualenv"
        if makes and "--system-site-packages" not in command.words:
            place = posixpath.normpath(posixpath.join(command.directory, words[-1]))
            path = stage.variables.get("PATH", "").split(":")
            if f"{place}/bin" in path or stage.variables.get("VIRTUAL_ENV") == place:
                return True
    return False


_ANOTHER_PYTHON = re.compile(r"(?i)(mini|ana)conda|mini(forge|mamba)|mambaforge|micromamba|pyenv|deadsnakes")


def _brings_python(command: Command, own: str) -> bool:
    """Whether a command installs another Python than the image's, or makes an environment with one."""
    if command.program in ("conda", "mamba", "micromamba", "pyenv"):
        return True
    if command.program == "uv" and (command.words[1:2] != ("pip",) or "--python" in command.words):
        return True
    for word in command.words:
        match = re.search(r"(?:^|/)(?:python|pip)[=@]?(3\.\d+)", word)
        if _ANOTHER_PYTHON.search(word) or (match and match[1] != own):
            return True
    return False
