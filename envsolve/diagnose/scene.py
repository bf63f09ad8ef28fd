"""Everything that causes are weighed on: the report, the machines as judged, the signatures found, and the facts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

from msgspec.structs import replace

from envsolve.diagnose.cause_files import signatures
from envsolve.diagnose.model import ReportFacts
from envsolve.diagnose.report.observation import cuda_of_number
from envsolve.diagnose.signatures import Match, find_matches
from envsolve.diagnose.torch_build import Torch, torch_of
from envsolve.facts.builds import Build
from envsolve.facts.catalogue import Catalogue
from envsolve.facts.hardware import Toolkit, VendorRoute, toolkit_of
from envsolve.machine.model import Driver, Gpu, Machine, Platform
from envsolve.rules.conda import as_build
from envsolve.rules.judge import as_judged
from envsolve.rules.nvidia import Facts
from envsolve.rules.nvidia.code import best_code, libraries_serve
from envsolve.rules.nvidia.driver import DriverFit, ForwardFacts, driver_runs, lifted, overstated_cuda, through_compat
from envsolve.rules.platform import same_system
from envsolve.rules.verdict import Level
from envsolve.solve.family import Family
from envsolve.values import ComputeCapability, CudaVersion, PythonVersion


@dataclass(frozen=True)
class Scene:
    """One report with what is needed to weigh it.

    Attributes:
        machines: The machines that the answer must support, as builds are judged on them; the report's own first.
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
        """CUDA version of a compat ``libcuda``: as read, or inferred from one that the driver's branch lacks."""
        told = self.report.machine.driver
        if told is None or told.compat_libcuda is not None:
            return told.compat_libcuda if told else None
        return told.cuda if overstated_cuda(told, self.catalogue.drivers) else None

    @property
    def platform(self) -> Platform:
        """The platform of the report's own machine, as far as it is known."""
        return self.machine.platform or Platform()

    @property
    def os(self) -> str | None:
        """``linux`` or ``windows``."""
        return self.platform.os

    @property
    def on_mac(self) -> bool:
        """Whether the report is from macOS, for which torch has no CUDA builds."""
        told, route = self.report.machine.platform, self.other_vendor
        if told is not None and told.os:  # the platform of self.machine is assumed if the report does not say
            return told.os == "darwin"
        return route is not None and route.vendor == "apple"

    @property
    def is_jetson(self) -> bool:
        """Whether one of the machines is a Jetson, whose driver and builds come with JetPack."""
        known = (self.facts.architectures.get(gpu.compute_capability or "") for gpu in self.gpus)
        stated = any(m.platform is not None and m.platform.jetson is not None for m in self.machines)
        return stated or any(chip.own_index for chip in known if chip)

    @property
    def in_container(self) -> bool:
        """Whether the report mentions a container."""
        words = ("docker", "container", "podman", "apptainer", "singularity")
        return self.platform.container is not None or bool(self.report.images) or self.mentions(*words)

    @property
    def mentions_conda(self) -> bool:
        """Whether the report mentions conda or a tool like it."""
        return self.mentions("conda", "mamba", "pixi") and not self.mentions("without conda", "no conda")

    @cached_property
    def other_vendor(self) -> VendorRoute | None:
        """The route of the vendor whose GPU the report names, if it shows none of NVIDIA's."""
        if self.gpus or self.driver or self.mentions("geforce", "rtx ", "gtx ", "nvidia-smi", "tesla ", "quadro"):
            return None
        present = {accelerator.vendor for accelerator in self.machine.accelerators or ()}
        fitting = [r for r in self.catalogue.vendor_routes if r.system in (None, self.os or "linux")]
        return next((r for r in fitting if r.vendor in present or re.search(r.words, self._lower)), None)

    @property
    def vendor_evidence(self) -> tuple[str, ...]:
        """The line that names a GPU of another vendor."""
        route = self.other_vendor
        named = enumerate(self.report.text.splitlines(), 1) if route else ()
        found = (f"line {n}: {one.strip()[:200]}" for n, one in named if route and re.search(route.words, one.lower()))
        return tuple(islice(found, 1))

    @property
    def about_torch(self) -> bool:
        """Whether the report concerns torch at all."""
        return self.torch is not None or self.mentions("torch") or self.first("kernel-plain") is not None

    @property
    def by_conda(self) -> bool:
        """Whether torch came from a conda channel."""
        # conda names the package pytorch, pip names it torch.
        installed = self.report.installed
        return ("pytorch" in installed or "pytorch-cuda" in installed) and "torch" not in installed

    @cached_property
    def gpus(self) -> tuple[Gpu, ...]:
        """The different GPUs of all machines whose compute capability is known."""
        every = (gpu for machine in self.machines for gpu in machine.gpus or () if gpu.compute_capability)
        # The rules judge a compute capability: one GPU stands for all of its kind.
        return tuple({gpu.compute_capability: gpu for gpu in every}.values())

    @property
    def gpu_count(self) -> int:
        """How many GPUs the report's own machine has; 0 if it shows none."""
        return len(self.machine.gpus or ())

    @property
    def visible_devices(self) -> str | None:
        """The value of CUDA_VISIBLE_DEVICES, without quotes; None if the report does not show the variable."""
        seen = self.report.variables.get("CUDA_VISIBLE_DEVICES")
        return seen.value.strip("\"' ") if seen else None

    @property
    def python(self) -> str | None:
        """The environment's Python, ``3.12``."""
        known = self.report.python.value if self.report.python else self.machine.python
        return str(PythonVersion.parse(known)) if known else None

    @cached_property
    def torch(self) -> Torch | None:
        """The torch of the report."""
        return torch_of(self.report, [*(self._of_channels if self.by_conda else ()), *self.published("torch")])

    @property
    def _of_channels(self) -> Iterator[Build]:
        """The catalogue's builds of conda channels, whose GPU code differs from that of wheels of the same version."""
        arm = self.report.installed.get("arm-variant")
        other = "sbsa" if self.is_jetson or (arm and "tegra" in arm.value) else "tegra"
        builds = (as_build(record) for record in self.catalogue.conda if record.arm != other)
        return (build for build in builds if same_system(build.made_for, self.platform))

    @property
    def usual_cuda(self) -> str:
        """The CUDA to take if neither torch nor the driver decides: the last one of the family before the newest.

        Drivers of both families run it, and it knows the GPUs that the newest family dropped.
        """
        newest = max(toolkit.cuda_version for toolkit in self.catalogue.toolkits)
        return str(max(t.cuda_version for t in self.catalogue.toolkits if t.cuda_version.major < newest.major))

    @property
    def toolkit(self) -> str | None:
        """The version of the toolkit that torch was built with."""
        return self.torch.cuda if self.torch else None

    @property
    def nvcc(self) -> str | None:
        """The toolkit version, ``12.4``, of the nvcc that the report shows."""
        return str(CudaVersion.parse(self.report.nvcc.value)) if self.report.nvcc else None

    def toolkit_known(self, version: str | None) -> Toolkit | None:
        """The catalogue's record of a toolkit, whatever its patch release."""
        return toolkit_of(version, self.catalogue.toolkits)

    def fit(self, toolkit: str) -> DriverFit:
        """How the driver runs what was built with a toolkit (rule 1)."""
        alone = driver_runs(toolkit, self.driver, self.os, self.facts.toolkits, self.facts.floors)
        if self.driver is None or self.driver.compat_libcuda is None:
            return alone
        return through_compat(alone, toolkit, self.driver, lifted(self.machine, ForwardFacts(self.catalogue)))

    def published(self, package: str) -> list[Build]:
        """The builds of a package for the machine's system."""
        builds, platform = self.catalogue.builds(package), self.platform
        tags = {tag for tag in {build.made_for for build in builds} if same_system(tag, platform)}
        return [build for build in builds if build.made_for in tags]

    @cached_property
    def family(self) -> Family:
        """The torch family on these machines and this Python."""
        return Family(self.catalogue, self.facts, self.machines, self.python)

    def on(self, **changes: object) -> Family:
        """The torch family with some fields of every machine replaced."""
        machines = tuple(replace(machine, **changes) for machine in self.machines)
        return Family(self.catalogue, self.facts, machines, self.python)

    def level(self, code: Sequence[str], gpu: Gpu) -> Level:
        """How GPU code runs on a GPU, by rules 3 and 4."""
        cc = gpu.cc
        return best_code(code, cc, self.facts.architectures)[0] if cc else Level.UNKNOWN

    def unserved(self, code: Sequence[str], cuda: str | None = None) -> tuple[Gpu, ...]:
        """The GPUs that code does not run on.

        PTX by itself counts only if the libraries of its CUDA are known to support the GPU (rule 5).
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
        # A driver object may hold nothing but a compat library.
        if driver is None or (driver.version is None and driver.cuda is None):
            return ()
        where = sources.get("driver.version") or sources.get("driver.cuda") or "the machine"
        what = f"driver {driver.version}" if driver.version else "a driver"
        return (f"{where}: {what}" + (f", which supports CUDA {driver.cuda}" if driver.cuda else ""),)

    @property
    def gpu_evidence(self) -> tuple[str, ...]:
        """Where the GPUs are known from."""
        where = self.machine.sources.get("gpus", "the machine")
        return (f"{where}: " + ", ".join(gpu.label for gpu in self.gpus),) if self.gpus else ()


def scene_of(report: ReportFacts, others: Sequence[Machine], catalogue: Catalogue) -> Scene:
    """Complete a report with the catalogue's facts, for the causes to judge.

    Args:
        report: What was read; its own machine comes first, because its error and its warning complete it.
        others: Further machines that the answer must support.
        catalogue: The facts.
    """
    matches = find_matches(report.text, signatures())
    own = _with_gpu_of_warning(_with_driver_of_error(report.machine, matches), matches)
    machines = tuple(as_judged(machine, None, catalogue.drivers) for machine in (own, *others))
    return Scene(report, machines, catalogue, Facts.of(catalogue), matches)


def _with_driver_of_error(machine: Machine, matches: Sequence[Match]) -> Machine:
    """The machine, with the driver of the error if no other is known: ``found version 12040`` is one for CUDA 12.4."""
    found = next((m.groups["found"] for m in matches if m.signature.id == "driver-old-found" and m.groups), None)
    driver = machine.driver
    if found is None or (driver is not None and (driver.version or driver.cuda)):
        return machine
    return replace(machine, driver=Driver(cuda=cuda_of_number(found[:6])))


def _with_gpu_of_warning(machine: Machine, matches: Sequence[Match]) -> Machine:
    """The machine, with the GPUs of torch's warning if no others are known."""
    if machine.gpus and any(gpu.compute_capability for gpu in machine.gpus):
        return machine
    gpus = {}
    for match in matches:
        if match.signature.id in ("arch-warning", "arch-range-warning"):
            cc = str(ComputeCapability.parse(match.groups.get("cc") or match.groups["sm"]))
            gpus[cc] = Gpu(match.groups["gpu"], cc)
    return replace(machine, gpus=tuple(gpus.values())) if gpus else machine
