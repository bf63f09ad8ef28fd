"""Contents of an image: the work of its publisher, and the requirements of installed packages."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from envsolve.dockerfile.conda import conda_install
from envsolve.dockerfile.image_names import Name
from envsolve.dockerfile.installs import Install, Wanted
from envsolve.dockerfile.model import Command, Finding, Stage, Unjudged, held, other_installer
from envsolve.dockerfile.offers import PYTORCH, Asked, Offer, Within, failure, found, pinned, running
from envsolve.errors import EnvsolveError
from envsolve.facts.builds import KnownMetadata
from envsolve.facts.evidence import GpuPart
from envsolve.facts.hardware import Image, Toolkit, toolkit_of
from envsolve.machine.model import one_line
from envsolve.packages.model import CoreMetadata
from envsolve.packages.source_trees import described as described_tree
from envsolve.packages.urls import Tree
from envsolve.rules.nvidia.code import best_code
from envsolve.rules.nvidia.driver import compat_serves, driver_runs
from envsolve.rules.platform import assumed
from envsolve.values import ComputeCapability, CudaVersion, DriverVersion

# Libraries of CUDA as wheels, and the packages that only list them: none of them requires torch.
_LIBRARIES = ("nvidia-", "cuda-")
_CUDA_WORDS = re.compile(r"(?i)cuda|cudnn|cublas")


def with_dependencies(stages: Sequence[Stage], asked: Asked) -> Mapping[int, tuple[Install, ...]]:
    """Complete :attr:`Asked.read` by the packages of torch's family that other packages bring.

    An installer keeps what is installed already, so a package counts only in the first install that brings it.
    """
    known: dict[str, list[KnownMetadata]] = {}
    for record in asked.catalogue.known_metadata:
        known.setdefault(record.package, []).append(record)
    brought = {name: record.brings for record in asked.catalogue.dependents for name in record.packages}
    made = dict(asked.read)
    there: dict[int, tuple[frozenset[str], tuple[Offer, ...]]] = {}
    for stage in stages:
        names, torch = there.get(id(stage.base), (asked.held(stage), asked.image_torch(stage)))
        within = asked.within(stage)
        for command in stage.commands:
            by_conda = conda_install(command, asked.context)
            if by_conda and by_conda.torch:
                names, torch = names | {"torch", "torchvision", "torchaudio", "triton"}, ()
            installs = []
            for install in made.get(id(command), ()):
                kept = _without_kept(install, torch)
                one = _Walk(kept, within, asked, known, brought, torch).install(names)
                names |= {wanted.name for wanted in one.wanted}
                torch = () if one.names("torch") else torch
                installs.append(one)
            if installs:
                made[id(command)] = tuple(installs)
        there[id(stage)] = names, torch
    return made


def _without_kept(install: Install, torch: Sequence[Offer]) -> Install:
    """An install without torch if the image's torch satisfies it: installers then keep that one."""

    if not torch or install.upgrade:
        return install
    named = (one for one in install.wanted if one.name != "torch" or not _is_kept(one.requirement, torch))
    return replace(install, wanted=tuple(named))


def _is_kept(requirement: Requirement, torch: Sequence[Offer]) -> bool:
    return not requirement.url and requirement.specifier.contains(torch[0].version, prereleases=True)


@dataclass(slots=True)
class _Walk:
    """The dependencies of one install, from requirement to requirement."""

    asked_for: Install
    within: Within
    asked: Asked
    known: Mapping[str, list[KnownMetadata]]
    brought: Mapping[str, tuple[str, ...]]
    torch: Sequence[Offer]
    brings: dict[str, str | None] = field(default_factory=dict)
    unknown: dict[str, None] = field(default_factory=dict)
    implied: dict[str, Wanted] = field(default_factory=dict)

    def install(self, there: frozenset[str]) -> Install:
        """The install, completed."""
        install = self.asked_for
        described = {source: read for source in install.sources if (read := self._tree(source))}
        named = {wanted.name for wanted in install.wanted}
        seen: set[tuple[str, frozenset[str]]] = set()
        queue = [*self._first(described if install.dependencies else {})]
        while queue:
            requirement, through = queue.pop(0)
            name = canonicalize_name(requirement.name)
            key = (name, frozenset(requirement.extras))
            if key in seen:
                continue
            seen.add(key)
            if through and name not in named and self._is_new(requirement, through, there):
                self.implied.setdefault(name, Wanted(requirement, through=through))
            queue += [(needed, through or name) for needed in self._needs(name, requirement, through)]
        # A constraint may choose another version of what is not named.
        implied = () if install.constrained else tuple(self.implied.values())
        return replace(
            install,
            wanted=(*install.wanted, *implied),
            brings=dict(self.brings),
            unknown=tuple(self.unknown),
            described=frozenset(described),
        )

    def _first(self, described: Mapping[str, CoreMetadata]) -> Iterator[tuple[Requirement, str]]:
        """Requirements of the command, and of the directories of the build context that it installs."""
        for wanted in self.asked_for.wanted:
            holds = wanted.holds(self.asked.platform, self.within.python)
            if not wanted.requirement.url and holds is not False:
                yield wanted.requirement, ""
        for source, read in described.items():
            extras = Requirement(f"x{source[source.index('[') :]}").extras if source.endswith("]") else ()
            yield from ((needed, read.name or source) for needed in self._holding(read.requires_dist, extras))

    def _needs(self, name: str, requirement: Requirement, through: str) -> Iterator[Requirement]:
        lines = self._lines(name, requirement)
        if lines is None:
            if not through or not name.startswith(_LIBRARIES):
                self.unknown[name] = None
        elif self.asked_for.dependencies:
            yield from self._holding(lines, requirement.extras)

    def _tree(self, source: str) -> CoreMetadata | None:
        """The metadata of a directory of the build context; None if only its build knows what it requires."""
        place, command = source.partition("[")[0], self.asked_for.command
        if "://" in source:
            return None

        def read(name: str) -> bytes | None:
            text = self.asked.context.text(posixpath.join(place, name), command)
            return text.encode() if text is not None else None

        try:
            found = described_tree("", Tree(folder=place), read)
            # uv takes these from another index, or from another place.
            sources = msgspec.toml.decode(read("pyproject.toml") or b"").get("tool", {}).get("uv", {}).get("sources")
        except (EnvsolveError, ValueError, AttributeError):
            return None
        by_uv = self.asked_for.program == "uv" and sources
        return found.metadata if found.metadata.exact and not by_uv else None

    def _is_new(self, requirement: Requirement, through: str, there: frozenset[str]) -> bool:
        """Whether an installer uses it from an index. The Triton that torch requires is judged as a part of torch."""
        name = canonicalize_name(requirement.name)
        # A companion that the image has goes with its torch.
        other = name == "torch" and through not in there and self.torch and not _is_kept(requirement, self.torch)
        if name in there and not other:
            return False
        looks, known = self.asked.looks(self.asked_for, name), self.asked.offers(name)
        return name != "triton" and bool(found(known, requirement.specifier, looks, self.within, self.asked_for.early))

    def _lines(self, name: str, requirement: Requirement) -> tuple[str, ...] | None:
        """Requires-Dist of the version that is installed, or the names in another version's; None if not known."""
        specifier, version = requirement.specifier, pinned(requirement.specifier)
        if offers := self.asked.offers(name):
            looks = self.asked.looks(self.asked_for, name)
            allowed = found(offers, specifier, looks, self.within, self.asked_for.early) or offers
            taken = max(allowed, key=lambda offer: offer.version)
            self.brings[name] = taken.build.version
            # Of a build without metadata only its torch is known.
            return taken.requires if taken.requires is not None else (f"torch{taken.build.torch or ''}",)
        records = self.known.get(name, ())
        fits = [record for record in records if specifier.contains(record.version, prereleases=True)]
        best = max(fits or records, key=lambda record: Version(record.version), default=None)
        if best is None and requirement.extras:
            self.brings[name] = None  # an extra may bring anything
        else:
            self.brings[name] = version or (best.version if fits and best else None)
        if best is not None:
            return best.requires if fits else tuple(map(_without_version, best.requires))
        lines = None if requirement.extras else self.brought.get(name)
        return tuple(map(_without_version, lines)) if lines and version else lines

    def _holding(self, lines: Iterable[str], extras: Iterable[str]) -> Iterator[Requirement]:
        # Which Python it is may not be known: then one of those that are maintained.
        pythons = (self.within.python,) if self.within.python else tuple(self.asked.catalogue.pythons)
        every = ("", *sorted(extras))
        for line in lines:
            if (requirement := held(line, self.asked.platform, pythons, every)) is not None:
                yield requirement


def _without_version(line: str) -> str:
    """Another version of a package requires the same packages, but other versions of them."""
    requirement = Requirement(line)
    requirement.specifier = SpecifierSet()
    return str(requirement)


# What the publisher of an image put there.


def torch(stage: Stage, asked: Asked) -> Iterator[Finding]:
    """The torch of the image, if no install replaces it, is judged for the final image only."""
    if stage is not asked.final:
        return
    brought = [offer for offer in asked.image_torch(stage) if offer.build.index != "default"]
    brought = brought or list(asked.image_torch(stage))
    named = any(install.names("torch") for install in asked.installs(stage.history()))
    refused = [offer.refused for offer in brought if offer.refused]
    if not brought or named or len(refused) < len(brought):
        return
    line, reasons, source = failure(refused)
    text = (
        f"{stage.root.image} contains torch {line.version} [{line.variant}], which does not run on "
        f"{line.gpu or 'the machine'}: {reasons}"
    )
    yield Finding(stage.root.line, "image-torch", "error", text, tuple(_another_torch(stage, asked)), source)


def contents(stage: Stage, asked: Asked) -> Iterator[Finding]:
    """The CUDA of an image whose publisher compiled what is in it: against each driver and GPU.

    Such images contain the compat ``libcuda`` and use it if it works.
    Source: NVIDIA's release notes of the framework containers, "Driver Requirements".
    """
    image, cuda = asked.image(stage), _cuda_of(stage, asked)
    if stage is not asked.final.root or cuda is None:
        return
    known, toolkits = asked.facts, asked.catalogue.toolkits
    # What a newer toolkit does not support, one that is older than all that are recorded does not support either.
    newer = (one for one in toolkits if one.cuda_version > CudaVersion.parse(cuda))
    toolkit = toolkit_of(cuda, toolkits) or min(newer, key=lambda one: one.cuda_version, default=None)
    for machine in asked.machines:
        fit = driver_runs(cuda, machine.driver, "linux", known.toolkits, known.floors)
        serves = compat_serves(machine.with_compat(cuda), known.forward)
        strange = [gpu for gpu in machine.gpus or () if toolkit and gpu.cc and not _knows(toolkit, gpu.cc, asked)]
        if fit.reason.ok is False and (serves is None or serves.ok is False):
            text, code, source = fit.reason.text, "image-driver", fit.reason.source
        elif strange:
            text = f"CUDA {cuda} does not support {strange[0].label}"
            code, source = "image-gpu", image.source if image else None
        else:
            continue
        text = f"{stage.root.image} contains CUDA {cuda}; on {one_line(machine)}: {text}"
        remedies = _another_release(image, stage, asked) if image else _another_torch(stage, asked)
        yield Finding(stage.root.line, code, "error", text, tuple(remedies), asked.title(source))


def _cuda_of(stage: Stage, asked: Asked) -> str | None:
    """The CUDA of what an image's publisher compiled; of PyTorch's first images, which nobody recorded, by the tag."""
    image, name = asked.image(stage), Name.of(stage.root.image)
    if image is not None:
        return image.cuda or None if image.repository != "nvidia/cuda" else None
    tag = re.search(r"-cuda(\d+(?:\.\d+)?)-", name.tag) if name.repository == PYTORCH else None
    return tag[1] if tag else None


def sets_variables(stage: Stage, asked: Asked) -> bool:
    """Whether an image sets variables that are not recorded: its publisher compiled its torch."""
    image = asked.image(stage)
    return image is not None and "torch" in image.holds


def _knows(toolkit: Toolkit, cc: ComputeCapability, asked: Asked) -> bool:
    return best_code(toolkit.archs, cc, asked.facts.architectures)[0].usable


def _another_release(image: Image, stage: Stage, asked: Asked) -> Iterator[str]:
    """The newest release of the same kind of the image that runs on every machine, otherwise of any kind."""
    good = [one for one in asked.catalogue.images if one.repository == image.repository and _serves(one, asked)]
    ranked = (
        (stage.root.image.endswith(f"-{kind}"), DriverVersion.parse(one.version), f"FROM {one.repository}:{tag}")
        for one in good
        for tag, kind in zip(one.tags, one.kinds, strict=True)
    )
    if best := max(ranked, default=None):
        yield best[-1]
    else:
        yield f"install a torch that runs on that machine: envsolve plan torch {asked.targets} --format dockerfile"


def _serves(image: Image, asked: Asked) -> bool:
    facts, toolkit = asked.facts, toolkit_of(image.cuda, asked.catalogue.toolkits)
    return bool(image.cuda) and all(
        driver_runs(image.cuda, machine.driver, "linux", facts.toolkits, facts.floors).reason.ok is not False
        and all(toolkit and gpu.cc and _knows(toolkit, gpu.cc, asked) for gpu in machine.gpus or ())
        for machine in asked.machines
    )


def _another_torch(stage: Stage, asked: Asked) -> Iterator[str]:
    """The first of PyTorch's images of the same kind, in the order of plans, whose torch runs on every machine."""
    # runtime or devel
    own = stage.root.image.rpartition("-")[2]
    tags = {
        (image.version, CudaVersion.parse(kind.removeprefix("cuda")).variant): f"{image.version}-{kind}"
        for image in asked.catalogue.images
        if image.repository == PYTORCH and not image.retired
        for kind in image.kinds
        if kind.endswith(own)
    }
    good = (offer.build for offer in running(asked.offers("torch"), Within()))
    best = next((tag for build in good if (tag := tags.get((build.version, build.variant)))), None)
    if best:
        yield f"FROM {PYTORCH}:{best}"
    yield f"install a torch that runs on that machine: envsolve plan torch {asked.targets} --format dockerfile"


# Packages that run on the CPU because nothing brings what they need for a GPU.


def gpu_parts(stage: Stage, asked: Asked) -> Iterator[Finding]:
    """Packages of the final image whose GPU code or libraries nothing installs."""
    for command, part, version in _lacking(stage, asked) if stage is asked.final else ():
        if _may_be_there(part, stage, asked) is False:
            text = f"{part.package} {version} does not use the GPU, because the image lacks {part.lacks}"
            remedy = "; ".join(filter(None, (f"install {part.ask}" if part.ask else None, part.note)))
            yield Finding(command.line, "gpu-unused", "warning", text, (remedy,), asked.title(part.source))


def parts_unjudged(stage: Stage, asked: Asked) -> Iterator[Unjudged]:
    """Packages that load libraries of which it is not known whether the image has them."""
    for command, part, _ in _lacking(stage, asked) if stage is asked.final else ():
        if _may_be_there(part, stage, asked):
            yield Unjudged(
                command.line, f"{part.package}: whether the image has {part.lacks.replace(', which it loads', '')}"
            )


def _lacking(stage: Stage, asked: Asked) -> Iterator[tuple[Command, GpuPart, str]]:
    """Packages that lack something they need, each with the command that installs it and its version."""
    there = _installed(stage, asked) if any(one.gpus or one.driver for one in asked.machines) else {}
    # jaxlib 0.4.26+cuda12.cudnn89 had the GPU code itself.
    whole = {name.removesuffix("lib") for name, one in there.items() if "+cuda" in (one[1] or "")}
    for name, (own, release, is_named) in there.items():
        parts = [one for one in _parts(name, release, asked) if is_named or not one.requested]
        if name not in whole and not any(other in there for part in parts for other in part.provided_by):
            # The first one that a machine runs, as plans recommend it.
            yield from [(own, part, release or "") for part in parts if _all_run(part.cuda, asked)][:1]


def _installed(stage: Stage, asked: Asked) -> dict[str, tuple[Command, str | None, bool]]:
    """Every package, with the command that installs it, its version, and whether a person names it."""
    found: dict[str, tuple[Command, str | None, bool]] = {}
    for command in stage.history():
        for install in asked.installs((command,)):
            # A file that a resolver wrote names everything.
            named = {wanted.name for wanted in install.wanted if not wanted.through and not wanted.file}
            found |= {name: (command, version, name in named) for name, version in install.brings.items()}
    return found


def _parts(name: str, release: str | None, asked: Asked) -> Iterator[GpuPart]:
    """Records of parts that a release lacks on Linux."""
    platform = f"linux-{assumed(asked.platform).arch}"
    for part in asked.catalogue.gpu_parts if release else ():
        if part.is_for(platform) and not part.source_build and part.is_about(name, release or ""):
            yield part


def _may_be_there(part: GpuPart, stage: Stage, asked: Asked) -> bool:
    """Whether the image may have what a package lacks: libraries of CUDA, which come in other ways as well."""
    if not all(name.startswith(_LIBRARIES) for name in part.provided_by):
        return False
    image = asked.image(stage)
    if not asked.knows(stage) or (image is not None and (image.cuda or image.repository == PYTORCH)):
        return True
    # What a requirement file is called brings nothing: requirements.cuda.txt.
    words = (w for command in stage.history() for w in command.words if not w.endswith((".txt", ".in", ".toml")))
    return any(map(_CUDA_WORDS.search, words)) or any(map(other_installer, stage.history()))


def _all_run(cuda: str | None, asked: Asked) -> bool:
    facts = asked.facts
    if cuda is None:
        return True
    fits = (driver_runs(cuda, machine.driver, "linux", facts.toolkits, facts.floors) for machine in asked.machines)
    return all(fit.reason.ok is not False for fit in fits)


CHECKS = (contents, torch, gpu_parts)
