"""Rule 8: whether a cuda-compat ``libcuda`` raises a driver's CUDA version on a machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from envsolve.catalogue.gpu_names import find_gpu
from envsolve.catalogue.load import Catalogue
from envsolve.catalogue.model import Architecture, DriverBranch, GpuModel, ImageRequirement
from envsolve.compat.driver import DriverFit
from envsolve.compat.life import can_exist
from envsolve.compat.verdict import Reason
from envsolve.compat.versions import minor, numbers
from envsolve.errors import UsageError
from envsolve.machine.model import Driver, Gpu, Machine

# The container runtime's name for data-centre cards in NVIDIA_REQUIRE_CUDA.
_DATA_CENTRE = "tesla"


class ForwardFacts(msgspec.Struct, frozen=True):
    """What this rule reads of the catalogue, and only when it is asked: few machines have a compat ``libcuda``."""

    catalogue: Catalogue

    @property
    def drivers(self) -> Sequence[DriverBranch]:
        """Driver branches, oldest first."""
        return self.catalogue.drivers

    @property
    def architectures(self) -> Mapping[str, Architecture]:
        """Architectures by compute capability."""
        return self.catalogue.architectures

    def model(self, gpu: Gpu) -> GpuModel | None:
        """The model of a card, where its name tells it."""
        try:
            return find_gpu(gpu.name, self.catalogue) if gpu.name else None
        except UsageError:
            return None

    def releases(self) -> Iterator[ImageRequirement]:
        """The toolkit releases of which is known with which older drivers their compat ``libcuda`` may be used."""
        return (r for r in self.catalogue.image_requirements.values() if r.or_drivers)


def compat_serves(machine: Machine, facts: ForwardFacts) -> Reason | None:
    """Rule 8: a compat ``libcuda`` serves data-centre cards on the driver branches that NVIDIA lists for its release.

    It must be newer than the driver (else CUDA error 803), every card must be one of a data centre or a Jetson (else
    error 804), and the branch that it was built from must still know the cards (rule 7). Where it is not known whether
    all of that holds, the reason says so, and the driver is to be judged alone. Sources: CUDA Compatibility guide,
    "Forward Compatibility"; ``NVIDIA_REQUIRE_CUDA`` of NVIDIA's images, which names the branches.

    Args:
        machine: Its ``driver.compat_libcuda`` is the CUDA version of the library, its ``driver.cuda`` the driver's own.

    Returns:
        None where there is no such library, or no GPU.
    """
    driver = machine.driver
    if driver is None or driver.compat_libcuda is None or machine.gpus == ():
        return None
    library = f"the cuda-compat libcuda (CUDA {driver.compat_libcuda})"
    have = f"driver {driver.version}" if driver.version else f"a driver for CUDA {driver.cuda}"
    if machine.platform and machine.platform.os not in (None, "linux"):
        return Reason("forward", False, f"{library} is for Linux alone")
    if driver.cuda is not None and minor(driver.compat_libcuda) <= minor(driver.cuda):
        text = f"{library} is not newer than {have}, which supports CUDA {driver.cuda} itself"
        return Reason("forward", False, f"{text} (CUDA error 803)")
    cards = {(gpu.name, gpu.compute_capability): gpu for gpu in machine.gpus or ()}
    unfit = [reason for gpu in cards.values() if (reason := _no_card_for_it(gpu, library, driver, facts))]
    if unfit:
        return min(unfit, key=lambda reason: reason.ok is None)
    if not machine.gpus or driver.version is None or driver.cuda is None:
        lacking = "driver is" if machine.gpus else "GPUs are"
        return Reason("forward", None, f"whether {library} serves here is not known, since the {lacking} not")
    return _listed(driver.compat_libcuda, driver.version, library, facts)


def compat_releases(facts: ForwardFacts) -> tuple[str, ...]:
    """The CUDA versions whose compat ``libcuda`` is known to serve older drivers, oldest first."""
    return tuple(sorted({f"{major}.{part}" for major, part in (minor(r.cuda) for r in facts.releases())}, key=minor))


def lifted(machine: Machine, facts: ForwardFacts) -> Driver | None:
    """The machine's driver as CUDA code finds it: with the CUDA version of a compat ``libcuda`` that serves there."""
    reason = compat_serves(machine, facts)
    if machine.driver is None or reason is None or not reason.ok:
        return machine.driver
    return replace(machine.driver, cuda=machine.driver.compat_libcuda)


def through_compat(alone: DriverFit, cuda: str, driver: Driver | None, raised: Driver | None) -> DriverFit:
    """Rule 1's answer with the help of a compat ``libcuda``, which runs CUDA up to its own version, PTX included.

    Args:
        alone: What the driver does without it.
        cuda: The CUDA version of the build.
        driver: The machine's driver.
        raised: The same as :func:`lifted` has it.
    """
    if alone.mode == "full" or raised is None or raised == driver or minor(raised.cuda or "0") < minor(cuda):
        return alone
    needs = f"CUDA {cuda} needs driver {alone.required} or newer; " if alone.required else ""
    text = f"{needs}the cuda-compat libcuda (CUDA {raised.cuda}) runs it on driver {raised.version}"
    reason = replace(alone.reason, ok=True, text=text)
    return DriverFit(reason, alone.required, "forward-compat")


def _no_card_for_it(gpu: Gpu, library: str, driver: Driver, facts: ForwardFacts) -> Reason | None:
    """Why a card cannot use the library, or that it is not known whether it can; None where it can."""
    model = facts.model(gpu)
    if model is None:
        text = f"{library} serves data-centre cards alone; whether {gpu.label} is one is not known"
        return Reason("forward", None, text)
    if not model.data_centre:
        text = f"{library} serves data-centre cards alone, and {gpu.label} is none (CUDA error 804)"
        return Reason("forward", False, text, model.evidence.value, model.source)
    branch = next((b for b in facts.drivers if minor(b.cuda) == minor(driver.compat_libcuda or "0")), None)
    built_from = Driver(branch.branch, branch.cuda) if branch else None
    life = can_exist(gpu, built_from, facts.architectures, facts.drivers)
    if built_from is not None and life.ok is False:
        text = f"{library} is of driver branch R{built_from.version}, which does not serve {gpu.label}"
        return Reason("forward", False, text, life.evidence, life.source)
    return None


def _listed(cuda: str, version: str, library: str, facts: ForwardFacts) -> Reason:
    """Whether NVIDIA names the driver's branch for a compat ``libcuda`` of that CUDA."""
    own = numbers(version)[:1]
    named: dict[str, ImageRequirement] = {}
    for release in facts.releases():
        if minor(release.cuda) == minor(cuda):
            for allowed in release.or_drivers:
                if _DATA_CENTRE in allowed.brands:
                    named |= dict.fromkeys(allowed.branches, release)
    if not named:
        return Reason("forward", None, f"which drivers {library} may serve is not recorded")
    found = next((release for branch, release in named.items() if numbers(branch)[:1] == own), None)
    listed = ", ".join(f"R{branch}" for branch in sorted(named, key=numbers))
    if found is None:
        any_of_them = next(iter(named.values()))
        text = f"{library} is meant for driver branches {listed}; whether it serves driver {version} is not known"
        return Reason("forward", None, text, any_of_them.evidence.value, any_of_them.source)
    text = f"{library} serves driver {version} (it is meant for branches {listed})"
    return Reason("forward", True, text, found.evidence.value, found.source)
