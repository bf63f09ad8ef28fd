"""All that the weighings look at: the report, the machines as judged, the signatures found, and the facts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from msgspec.structs import replace

from envsolve.diagnose.cause_files import signatures
from envsolve.diagnose.model import ReportFacts, Seen
from envsolve.diagnose.signatures import Match, find_matches
from envsolve.facts.builds import Build
from envsolve.facts.catalogue import Catalogue
from envsolve.machine.model import Driver, Gpu, Machine, Platform
from envsolve.rules.judge import as_judged
from envsolve.rules.nvidia import Facts
from envsolve.rules.nvidia.code import best_code, libraries_serve
from envsolve.rules.nvidia.driver import overstated_cuda
from envsolve.rules.platform import same_system
from envsolve.rules.verdict import Level
from envsolve.solve.family import DEFAULT, Family
from envsolve.values import ComputeCapability, CudaVersion, PythonVersion

# The torch at hand: what the report says of it, and what the catalogue knows of that build.


#: Names under which torch is installed, the most telling first; ``libtorch`` is its C++ distribution.
_NAMES = ("torch", "pytorch", "pytorch-gpu", "libtorch", "pytorch-cpu")
_VARIANT = re.compile(r"cpu|cu\d{2,3}")
_MINOR = re.compile(r"\d+\.\d+")


@dataclass(frozen=True, slots=True)
class Torch:
    """The torch of a report.

    Attributes:
        version: Public version; None where only its CUDA or its code is known.
        variant: ``cu126`` or ``cpu``; None where unknown.
        cuda: The toolkit inside, ``12.6``.
        code: GPU code that it carries.
        code_from: Where ``code`` was learnt.
        build: The catalogue's record of it.
        evidence: Where the report shows it.
    """

    version: str | None
    variant: str | None
    cuda: str | None
    code: tuple[str, ...] | None
    code_from: str | None
    build: Build | None
    evidence: tuple[str, ...]

    @property
    def label(self) -> str:
        """``torch 2.8.0 [cu128]``."""
        return f"torch {self.version or ''}".rstrip() + (f" [{self.variant}]" if self.variant else "")


def torch_of(report: ReportFacts, machine: Machine, catalogue: Catalogue) -> Torch | None:
    """The torch that a report speaks of; None where it speaks of none."""
    name = next((n for n in _NAMES if n in report.installed), None)
    seen = report.installed[name] if name else None
    if seen is None and report.cuda is None and report.arch_list is None:
        return None
    version, _, local = seen.value.partition("+") if seen else (None, "", "")
    stated = _VARIANT.match(local)
    variant = stated[0] if stated else _variant_of(report, name)
    build = _build(version, variant, bool(local), machine, catalogue) if version and name != "libtorch" else None
    variant = variant or (build.variant if build else None)
    code, code_from = _code(report, build)
    if code is None and version is None and variant is not None:
        code, code_from = _code_of_flavour(variant, machine, catalogue)
    cuda = _MINOR.match(report.cuda.value) if report.cuda else None
    return Torch(
        version,
        variant,
        cuda[0] if cuda else (build.cuda if build else _cuda_of(variant)),
        code,
        code_from,
        build,
        tuple(shown(s) for s in (seen, report.cuda, report.arch_list) if s is not None),
    )


def shown(seen: Seen[str] | Seen[tuple[str, ...]]) -> str:
    """A fact as evidence: ``line 12: torch==2.8.0+cu128``."""
    return f"{seen.where}: {seen.quote}" if seen.quote else seen.where


def public(installed: Mapping[str, Seen[str]], package: str) -> str | None:
    """The public version of an installed package, without its local part."""
    seen = installed.get(package)
    return seen.value.partition("+")[0] if seen else None


def _variant_of(report: ReportFacts, name: str | None) -> str | None:
    toolkit = report.cuda or (report.installed.get("pytorch-cuda") if name != "torch" else None)
    match = _MINOR.match(toolkit.value) if toolkit else None
    if match:
        return CudaVersion.parse(match[0]).variant
    return "cpu" if name == "pytorch-cpu" or (toolkit is not None and toolkit.value == "none") else None


def _cuda_of(variant: str | None) -> str | None:
    return f"{variant[2:-1]}.{variant[-1]}" if variant and variant.startswith("cu") else None


def _build(version: str, variant: str | None, local: bool, machine: Machine, catalogue: Catalogue) -> Build | None:
    """The catalogue's build; a version without a local part that names no variant is the default index's."""
    platform = machine.platform or Platform()
    builds = [b for b in catalogue.builds("torch") if b.version == version and same_system(b.platform, platform)]
    if variant is None:
        builds = [b for b in builds if b.index == DEFAULT]
    else:
        builds = [b for b in builds if b.variant == variant]
        builds.sort(key=lambda b: (b.index == DEFAULT) is local)
    return builds[0] if builds else None


def _code_of_flavour(variant: str, machine: Machine, catalogue: Catalogue) -> tuple[tuple[str, ...] | None, str | None]:
    """All code that builds of a flavour carry: what is not among it, no version of the flavour has."""
    platform = machine.platform or Platform()
    builds = [b for b in catalogue.builds("torch") if b.variant == variant and same_system(b.platform, platform)]
    if not builds or any(not build.code for build in builds):
        return None, None
    every = tuple(dict.fromkeys(code for build in builds for code in build.code or ()))
    return every, f"the catalogue: no torch build of {variant} carries more than {' '.join(every)}"


def _code(report: ReportFacts, build: Build | None) -> tuple[tuple[str, ...] | None, str | None]:
    if report.arch_list is not None:
        return report.arch_list.value, shown(report.arch_list)
    if build is not None and build.code is not None:
        return build.code, f"the catalogue: torch {build.version} [{build.variant}] carries {' '.join(build.code)}"
    return None, None


@dataclass(frozen=True)
class Scene:
    """One report with what is needed to weigh it.

    Attributes:
        machines: The machines that the answer must serve, as builds are judged on them; the report's own first.
        matches: The signatures that the text shows.
    """

    report: ReportFacts
    machines: tuple[Machine, ...]
    catalogue: Catalogue
    facts: Facts
    matches: tuple[Match, ...]

    def found(self, *ids: str) -> tuple[Match, ...]:
        """The matches of some signatures, in the order of the ids."""
        return tuple(m for name in ids for m in self.matches if m.signature.id == name)

    def first(self, *ids: str) -> Match | None:
        """The first match of the first of these signatures that the text shows."""
        return next(iter(self.found(*ids)), None)

    def mentions(self, *words: str) -> bool:
        """Whether the text holds one of these lower-case words."""
        return any(word in self._lower for word in words)

    @cached_property
    def _lower(self) -> str:
        return self.report.text.lower()

    @property
    def machine(self) -> Machine:
        """The report's own machine."""
        return self.machines[0]

    @property
    def driver(self) -> Driver | None:
        """The driver of the report's own machine."""
        return self.machine.driver

    @property
    def compat_libcuda(self) -> str | None:
        """CUDA version of a compat ``libcuda``: as read, or as a CUDA beyond the driver's branch gives it away."""
        told = self.report.machine.driver
        if told is None or told.compat_libcuda is not None:
            return told.compat_libcuda if told else None
        return told.cuda if overstated_cuda(told, self.catalogue.drivers) else None

    @property
    def os(self) -> str | None:
        """``linux`` or ``windows``."""
        return self.machine.platform.os if self.machine.platform else None

    @property
    def is_jetson(self) -> bool:
        """Whether one of the machines is a Jetson, whose driver and builds come with JetPack."""
        return any(m.platform is not None and m.platform.jetson is not None for m in self.machines)

    @property
    def in_container(self) -> bool:
        """Whether the report tells of a container."""
        platform = self.machine.platform
        known = platform is not None and platform.container is not None
        return known or bool(self.report.images) or self.mentions("docker", "container", "podman", "apptainer")

    @property
    def about_torch(self) -> bool:
        """Whether torch has a part in the report at all."""
        return self.torch is not None or self.mentions("torch")

    @property
    def by_conda(self) -> bool:
        """Whether torch came from a conda channel."""
        installed = self.report.installed
        return ("pytorch" in installed or "pytorch-cuda" in installed) and "torch" not in installed

    @cached_property
    def gpus(self) -> tuple[Gpu, ...]:
        """The different cards of all machines whose compute capability is known."""
        every = (gpu for machine in self.machines for gpu in machine.gpus or () if gpu.compute_capability)
        return tuple({gpu.compute_capability: gpu for gpu in every}.values())

    @property
    def python(self) -> str | None:
        """The environment's Python, ``3.12``."""
        known = self.report.python.value if self.report.python else self.machine.python
        return str(PythonVersion.parse(known)) if known else None

    @cached_property
    def torch(self) -> Torch | None:
        """The torch at hand."""
        return torch_of(self.report, self.machine, self.catalogue)

    @cached_property
    def family(self) -> Family:
        """The torch family on these machines and this Python."""
        return Family(self.catalogue, self.facts, self.machines, self.python)

    def on(self, **changes: object) -> Family:
        """The torch family with some fields of every machine replaced."""
        machines = tuple(replace(machine, **changes) for machine in self.machines)
        return Family(self.catalogue, self.facts, machines, self.python)

    def level(self, code: Sequence[str], gpu: Gpu) -> Level:
        """How GPU code reaches a card, by rules 3 and 4."""
        cc = gpu.cc
        return best_code(code, cc, self.facts.architectures)[0] if cc else Level.UNKNOWN

    def unserved(self, code: Sequence[str], cuda: str | None = None) -> tuple[Gpu, ...]:
        """The cards that code does not reach.

        PTX alone counts only where the libraries of its CUDA are known to serve the card (rule 5).
        """
        return tuple(gpu for gpu in self.gpus if not self._reaches(code, gpu, cuda))

    def _reaches(self, code: Sequence[str], gpu: Gpu, cuda: str | None) -> bool:
        level = self.level(code, gpu)
        if level is not Level.PTX:
            return level.usable
        cc, facts = gpu.cc, self.facts
        return bool(cuda and cc and libraries_serve(cuda, cc, facts.toolkits, facts.architectures).ok)

    @property
    def driver_evidence(self) -> tuple[str, ...]:
        """Where the driver is known from."""
        driver, sources = self.machine.driver, self.machine.sources
        if driver is None or (driver.version is None and driver.cuda is None):
            return ()
        where = sources.get("driver.version") or sources.get("driver.cuda") or "the machine"
        what = f"driver {driver.version}" if driver.version else "a driver"
        return (f"{where}: {what}" + (f", which supports CUDA {driver.cuda}" if driver.cuda else ""),)

    @property
    def gpu_evidence(self) -> tuple[str, ...]:
        """Where the cards are known from."""
        where = self.machine.sources.get("gpus", "the machine")
        return (f"{where}: " + ", ".join(gpu.label for gpu in self.gpus),) if self.gpus else ()


def scene_of(report: ReportFacts, others: Sequence[Machine], catalogue: Catalogue) -> Scene:
    """Prepare a report for the weighing.

    Args:
        report: What was read.
        others: Further machines that the answer must serve.
        catalogue: The facts.
    """
    matches = find_matches(report.text, signatures())
    own = _with_gpu_of_warning(_with_driver_of_error(report.machine, matches), matches)
    machines = tuple(as_judged(machine, None, catalogue.drivers) for machine in (own, *others))
    return Scene(report, machines, catalogue, Facts.of(catalogue), matches)


def _with_driver_of_error(machine: Machine, matches: Sequence[Match]) -> Machine:
    """A machine whose driver only the error names: ``found version 12040`` is a driver for CUDA 12.4."""
    found = next((m.groups["found"] for m in matches if m.signature.id == "driver-old-found" and m.groups), None)
    driver = machine.driver
    if found is None or (driver is not None and (driver.version or driver.cuda)):
        return machine
    number = int(found[:6])
    return replace(machine, driver=Driver(cuda=f"{number // 1000}.{number % 1000 // 10}"))


def _with_gpu_of_warning(machine: Machine, matches: Sequence[Match]) -> Machine:
    """A machine whose cards only torch's warning names."""
    if machine.gpus and any(gpu.compute_capability for gpu in machine.gpus):
        return machine
    cards = {}
    for match in matches:
        if match.signature.id in ("arch-warning", "arch-range-warning"):
            cc = match.groups.get("cc") or f"{match.groups['sm'][:-1]}.{match.groups['sm'][-1]}"
            cards[cc] = Gpu(match.groups["gpu"], str(ComputeCapability.parse(cc)))
    return replace(machine, gpus=tuple(cards.values())) if cards else machine
