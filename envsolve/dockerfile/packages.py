"""What every check of a Dockerfile is given: the machines, the catalogue, and what is known of its images."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from envsolve.dockerfile.context import Context
from envsolve.dockerfile.installs import Install
from envsolve.dockerfile.model import Command, Stage
from envsolve.dockerfile.offers import Name, Offer, Within, found
from envsolve.dockerfile.read import Places
from envsolve.facts.builds import SourceProject
from envsolve.facts.catalogue import Catalogue
from envsolve.facts.channels import Distribution, Image, ImageRequirement
from envsolve.machine.model import Machine, Platform
from envsolve.rules.nvidia import Facts
from envsolve.rules.nvidia.driver import compat_serves
from envsolve.rules.platform import libc_of
from envsolve.values import CudaVersion, DriverVersion

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
    return replace(machine, driver=replace(driver, compat_libcuda=str(CudaVersion.parse(cuda)))) if driver else machine


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


# What of an install compiles CUDA code, as far as its words, the catalogue and the build context tell.


ARCH_LIST = "TORCH_CUDA_ARCH_LIST"


@dataclass(frozen=True, slots=True)
class Compiled:
    """Something that is compiled against torch.

    Attributes:
        variable: What it takes the GPUs from; None where it has a list of its own, or takes none.
        defaults: Whether it compiles for a list of its own where that is not set.
        told: Variables that its build must be told where no GPU is in sight.
        sure: Whether it has CUDA code; else it only may.
    """

    name: str
    variable: str | None
    defaults: bool
    told: tuple[tuple[str, str], ...] = ()
    sure: bool = True


def compiled(install: Install, asked: Asked) -> Iterator[Compiled]:
    """What an install compiles; nothing of which a ready wheel may be taken."""
    for wanted in install.wanted:
        project = _project(wanted.name, pinned(wanted.requirement.specifier), asked)
        places = asked.looks(install, wanted.name)
        if project is None or wanted.requirement.url or places.unknown:
            continue
        if not found(asked.offers(wanted.name), wanted.requirement.specifier, places, Within(), early=True):
            yield _of(project, wanted.name)
    for source in install.sources:
        name = canonicalize_name(source.partition("#")[0].rstrip("/").rsplit("/", 1)[-1].partition("@")[0])
        project = _project(name.removesuffix("-git"), None, asked)
        if project is not None:
            yield _of(project, source)
        elif not install.isolated and "://" not in source:
            setup = asked.context.text(posixpath.join(source.partition("[")[0], "setup.py"), install.command)
            if setup is None or "CUDAExtension" in setup:
                yield Compiled(source, ARCH_LIST, defaults=False, sure=setup is not None)


def _of(project: SourceProject, name: str) -> Compiled:
    told = tuple((key, value) for key, value in project.variables.items() if key.startswith("FORCE_"))
    return Compiled(name, project.arch_variable, bool(project.archs), told)


def _project(name: str, version: str | None, asked: Asked) -> SourceProject | None:
    """What is known of a package that has nvcc compile it as it is installed."""
    known = [
        project
        for project in asked.catalogue.source_projects
        if project.package == name and (version is None or SpecifierSet(project.versions).contains(version, True))
    ]
    project = known[-1] if known else None
    return project if project and project.compiles != "use" and "nvcc" in project.tools else None


# What nvcc and cmake are told to compile for. Pure.


_ARCH = re.compile(r"(?:sm|compute)_\d{2,3}[af]?\b")
_ASKS = frozenset({"-V", "--version", "-h", "--help", "--list-gpu-arch", "--list-gpu-code", "-arch-ls", "-code-ls"})
NATIVE = "native"
"""In place of code: that of the GPUs which are there as it compiles."""
EVERY = "every"
"""In place of code: all that its toolkit can make."""


def nvcc_code(command: Command) -> tuple[str, ...] | None:
    """The code that an nvcc command makes, ``("sm_75", "compute_75")``; None for another command.

    Empty where it names none, and takes its own default. Source: CUDA Compiler Driver NVCC, "Options for Steering GPU
    Code Generation": ``-arch=sm_NN`` alone is short for its SASS and its PTX.
    """
    words = command.words
    if not words or words[0].rsplit("/", 1)[-1] != "nvcc" or _ASKS & set(words):
        return None
    if not any(word.endswith(".cu") for word in words) and "cu" not in words:
        return None
    text = " ".join(words[1:])
    made: list[str] = []
    for arch, codes in re.findall(r"(?:-gencode|--generate-code)[= ]arch=([\w-]+)(?:,code=(\S+))?", text):
        made += _ARCH.findall(codes) if codes else _short(arch.replace("compute_", "sm_"))
    alone = re.search(r"(?:-arch|--gpu-architecture)[= ](\S+)", text)
    code = re.search(r"(?:^| )(?:-code|--gpu-code)[= ](\S+)", text)
    if code:
        made += _ARCH.findall(code[1])
    elif alone:
        made += _short(alone[1])
    return tuple(dict.fromkeys(made))


def cmake_code(command: Command) -> tuple[str, ...] | None:
    """Likewise for cmake's ``-DCMAKE_CUDA_ARCHITECTURES``; None where it is not given.

    Source: CMake documentation, ``CUDA_ARCHITECTURES``: a number alone is SASS and PTX, ``-real`` and ``-virtual`` one.
    """
    if not command.words or command.words[0].rsplit("/", 1)[-1] != "cmake":
        return None
    found = re.findall(r"-D ?CMAKE_CUDA_ARCHITECTURES(?::\w+)?=(\S+)", " ".join(command.words))
    if not found:
        return None
    made: list[str] = []
    for word in re.split(r"[;,]", found[-1]):
        match = re.fullmatch(r"(\d{2,3}[af]?)(?:-(real|virtual))?", word)
        if match:
            kinds = {"real": ("sm",), "virtual": ("compute",)}.get(match[2], ("sm", "compute"))
            made += [f"{kind}_{match[1]}" for kind in kinds]
        elif word in ("native", "all", "all-major"):
            made += _short(word)
        else:
            return None
    return tuple(dict.fromkeys(made))


def torch_code(value: str) -> tuple[str, ...] | None:
    """The code that ``TORCH_CUDA_ARCH_LIST`` makes; None where not every word of it is a number.

    Source: torch/utils/cpp_extension.py: numbers with ``+PTX``, between semicolons or blanks.
    """
    made: list[str] = []
    for word in filter(None, re.split(r"[;\s]+", value)):
        match = re.fullmatch(r"(\d{1,2})\.(\d)([af]?)(\+PTX)?", word)
        if match is None:
            return None
        number = f"{match[1]}{match[2]}{match[3]}"
        made += [f"sm_{number}", *([f"compute_{number}"] if match[4] else [])]
    return tuple(made) or None


def _short(value: str) -> Sequence[str]:
    if value == "native":
        return (NATIVE,)
    if value in ("all", "all-major"):
        return (EVERY,)
    return (value, value.replace("sm_", "compute_")) if _ARCH.fullmatch(value) else ()


# Images like the one that a stage starts from: of the same kind, on another distribution or of a newer release.


def like(stage: Stage, asked: Asked, serves: Callable[[Distribution], bool]) -> Iterator[str]:
    """The nearest one on a distribution that serves: the same release before newer ones of its CUDA major.

    Args:
        serves: Whether a distribution does.
    """
    image, tag = asked.image(stage), Name.of(stage.root.image).tag
    kind = next((k for k in image.kinds if f"-{k}-" in tag), None) if image else None
    if image is None or kind is None:
        return
    found = []
    for other in asked.catalogue.images:
        distribution = asked.catalogue.distributions.get(other.distribution)
        if _succeeds(other, image, kind) and distribution and serves(distribution) and starts(other, asked):
            alike = other.distribution.rstrip("0123456789.") == image.distribution.rstrip("0123456789.")
            release = DriverVersion.parse(other.version)
            rank = (other.version != image.version, not alike, release, DriverVersion.parse(distribution.python or ""))
            found.append((rank, f"FROM {other.repository}:{other.version}-{kind}-{other.distribution}"))
    yield from (text for _, text in sorted(found)[:1])


def starts(image: Image, asked: Asked) -> bool:
    """Whether the container runtime starts it on every machine."""
    requirement = asked.catalogue.image_requirements.get(image.version) if image.cuda else None
    return requirement is None or all(started(requirement, machine, asked) for machine in asked.machines)


def started(requirement: ImageRequirement, machine: Machine, asked: Asked) -> bool:
    """Whether the container runtime starts what asks for that on a machine; what is not known does not count as no.

    The older driver branches are named with the brands whose cards the compat ``libcuda`` serves.
    """
    driver = machine.driver
    if driver is None or driver.cuda is None or CudaVersion.parse(driver.cuda) >= CudaVersion.parse(requirement.cuda):
        return True
    branch = (driver.version or "").partition(".")[0]
    if not any(branch in older.branches for older in requirement.or_drivers):
        return False
    serves = compat_serves(with_compat(machine, requirement.cuda), asked.facts.forward)
    return serves is None or serves.ok is not False


def _succeeds(other: Image, image: Image, kind: str) -> bool:
    """Whether an image is of the same release and kind, or of a newer one that is kept."""
    same = other.version == image.version
    newer = (
        DriverVersion.parse(other.version) > DriverVersion.parse(image.version)
        and CudaVersion.parse(other.version).major == CudaVersion.parse(image.version).major
    )
    return other.repository == image.repository and kind in other.kinds and (same or (newer and not other.retired))
