"""What every check of a Dockerfile is given: the machines, the catalogue, and what is known of its images."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from msgspec.structs import replace
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from envsolve.catalogue.load import Catalogue
from envsolve.catalogue.model import Distribution, Image
from envsolve.compat.facts import Facts
from envsolve.compat.platform import libc_of
from envsolve.compat.versions import minor
from envsolve.dockerfiles.context import Context
from envsolve.dockerfiles.images import Name
from envsolve.dockerfiles.installs import Install
from envsolve.dockerfiles.model import Command, Stage
from envsolve.dockerfiles.offers import Offer, Within, found
from envsolve.dockerfiles.places import Places
from envsolve.machine.model import Machine, Platform

_ANOTHER_PYTHON = re.compile(r"(?i)(mini|ana)conda|mini(forge|mamba)|mambaforge|micromamba|pyenv|deadsnakes")


@dataclass(frozen=True, slots=True)
class Asked:
    """What every check is given.

    Attributes:
        machines: With what the driver's version implies.
        final: The stage that becomes the image.
        read: What pip and uv install by each command, by its identity: every check asks for it.
        offers: Every build of a package that the catalogue describes, newest first.
    """

    machines: tuple[Machine, ...]
    catalogue: Catalogue
    facts: Facts
    final: Stage
    context: Context
    read: Mapping[int, tuple[Install, ...]]
    offers: Callable[[str], tuple[Offer, ...]]

    @property
    def platform(self) -> Platform | None:
        """That of the machines, where they have one in common."""
        platforms = {machine.platform for machine in self.machines}
        return next(iter(platforms)) if len(platforms) == 1 else None

    def installs(self, commands: Iterable[Command]) -> tuple[Install, ...]:
        """What pip and uv install among commands."""
        return tuple(install for command in commands for install in self.read.get(id(command), ()))

    def image(self, stage: Stage) -> Image | None:
        """What is known of the image that a stage starts from in the end."""
        return Name.of(stage.root.image).image(self.catalogue.images)

    def distribution(self, stage: Stage) -> Distribution | None:
        """The distribution that it stands on."""
        image = self.image(stage)
        if image is not None and image.distribution:
            return self.catalogue.distributions.get(image.distribution)
        return Name.of(stage.root.image).distribution(self.catalogue.distributions)

    def python(self, stage: Stage) -> str | None:
        """The Python that ``pip`` is for in it; None where the image does not decide that, or a command brings one."""
        own = Name.of(stage.root.image).python()
        if own is None:
            distribution = self.distribution(stage)
            own = distribution.python if distribution else None
        return None if own is None or any(_brings_python(command, own) for command in stage.history()) else own

    def within(self, stage: Stage) -> Within:
        """The Python and the libc of a stage."""
        distribution = self.distribution(stage)
        return Within(self.python(stage), libc_of(Platform(libc=distribution.libc)) if distribution else None)

    def image_torch(self, stage: Stage) -> tuple[Offer, ...]:
        """The builds of torch that an image of PyTorch's brings; none where it is no such image, or not known."""
        name, image = Name.of(stage.root.image), self.image(stage)
        variant = re.search(r"-cuda(\d+)\.(\d+)-", name.tag)
        if image is None or image.repository != "pytorch/pytorch" or variant is None:
            return ()
        flavour = f"cu{variant[1]}{variant[2]}"
        return tuple(
            offer
            for offer in self.offers("torch")
            if offer.build.version == image.version and offer.build.variant == flavour
        )

    def taken(self, install: Install, package: str, within: Within) -> Offer | None:
        """The build of a package that an install takes, where it names it and its places are known."""
        looks = self.looks(install, package)
        for wanted in install.wanted:
            if wanted.name == package and not wanted.requirement.url and not looks.unknown:
                allowed = found(self.offers(package), wanted.requirement.specifier, looks, within, install.early)
                return max(allowed, key=lambda offer: (offer.version, offer.refused is None), default=None)
        return None

    def looks(self, install: Install, package: str) -> Places:
        """Where an install looks for a package."""
        return install.looks(any(offer.build.index != "default" for offer in self.offers(package)))


def in_container(machine: Machine) -> Machine:
    """A machine as it matters to an image: which brings a libc of its own, and is meant for a GPU, known or not."""
    if machine.platform:
        machine = replace(machine, platform=replace(machine.platform, libc=None))
    return machine if machine.gpus or machine.driver else replace(machine, gpus=None)


def with_compat(machine: Machine, cuda: str) -> Machine:
    """A machine in a container that puts the compat ``libcuda`` of a CUDA version first."""
    driver = machine.driver
    return (
        replace(machine, driver=replace(driver, compat_libcuda=".".join(map(str, minor(cuda))))) if driver else machine
    )


def pinned(specifier: SpecifierSet) -> str | None:
    """The one version that a specifier allows; None where it is a text that is no version (``===foo``)."""
    return next((s.version for s in specifier if s.operator in ("==", "===") and _is_version(s.version)), None)


def _is_version(text: str) -> bool:
    try:
        Version(text)
    except InvalidVersion:
        return False
    return True


def _brings_python(command: Command, own: str) -> bool:
    """Whether a command installs another Python than the image's, or makes an environment of one."""
    first = command.words[0].rsplit("/", 1)[-1]
    if first in ("conda", "mamba", "micromamba", "pyenv") or (first == "uv" and command.words[1:2] != ("pip",)):
        return True
    if first == "uv" and "--python" in command.words:
        return True
    for word in command.words:
        match = re.search(r"(?:^|/)(?:python|pip)[=@]?(3\.\d+)", word)
        if _ANOTHER_PYTHON.search(word) or (match and match[1] != own):
            return True
    return False
