"""All that the weighings look at: the report, the machines as judged, the signatures found, and the facts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from msgspec.structs import replace

from envsolve.catalogue.load import Catalogue
from envsolve.compat.code import best_code, libraries_serve
from envsolve.compat.facts import Facts
from envsolve.compat.settle import as_judged, overstated_cuda
from envsolve.compat.verdict import Level
from envsolve.diagnose.installed import Torch, torch_of
from envsolve.diagnose.model import Report
from envsolve.diagnose.signatures import Match, find_matches
from envsolve.machine.cc import ComputeCapability
from envsolve.machine.model import Driver, Gpu, Machine
from envsolve.resolve.family import Family


@dataclass(frozen=True)
class Scene:
    """One report with what is needed to weigh it.

    Attributes:
        machines: The machines that the answer must serve, as builds are judged on them; the report's own first.
        matches: The signatures that the text shows.
    """

    report: Report
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
        return ".".join(known.split(".")[:2]) if known else None

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


def scene_of(report: Report, others: Sequence[Machine], catalogue: Catalogue) -> Scene:
    """Prepare a report for the weighing.

    Args:
        report: What was read.
        others: Further machines that the answer must serve.
        catalogue: The facts.
    """
    matches = find_matches(report.text, catalogue.signatures)
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
