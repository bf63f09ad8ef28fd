"""Rules 1 and 2: which CUDA a driver runs, and which PTX it compiles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from envsolve.errors import UsageError
from envsolve.facts.catalogue import Catalogue
from envsolve.facts.gpu_names import find_gpu
from envsolve.facts.hardware import Architecture, DriverBranch, Floor, GpuModel, ImageRequirement, Toolkit, branch_of
from envsolve.machine.model import Driver, Gpu, Machine
from envsolve.rules.verdict import DriverMode, Reason
from envsolve.values import CudaVersion, DriverVersion


class DriverFit(msgspec.Struct, frozen=True):
    """Rule 1's answer: the reason, the oldest driver that would do, and the mode in which this one runs the code."""

    reason: Reason
    required: str | None
    mode: DriverMode | None


def driver_runs(
    cuda: str, driver: Driver | None, os: str | None, toolkits: Sequence[Toolkit], floors: Sequence[Floor]
) -> DriverFit:
    """Rule 1: a CUDA ``M.x`` runtime runs on the floor driver of family ``M`` or any newer one.

    Minor-version compatibility covers 11.1 and later; an earlier runtime needs the driver of its own toolkit. NVIDIA's
    "maximum driver" is not a cap. Source: CUDA Compatibility guide, "Minor Version Compatibility".
    """
    knows = driver is not None and driver.supports(cuda)
    fact = _oldest_driver(cuda, os, toolkits, floors)
    if fact is None:
        said = f"no driver floor is known for CUDA {cuda}"
        text = f"{said}; the driver supports CUDA {driver.cuda}" if knows and driver else said
        return DriverFit(Reason("driver-floor", True if knows else None, text), None, "full" if knows else None)
    required, evidence, source = fact
    said = f"CUDA {cuda} needs driver {required} or newer"

    def fit(ok: bool | None, rest: str, mode: DriverMode | None = None) -> DriverFit:
        return DriverFit(Reason("driver-floor", ok, f"{said}; {rest}", evidence, source), required, mode)

    if driver is None or (driver.version is None and driver.cuda is None):
        return fit(None, "the machine's driver is not known")
    # Before the floor: in full support PTX works as well, which the mode says and rule 2 needs.
    if knows:
        return fit(True, f"the driver supports CUDA {driver.cuda}", "full")
    # A branch without a patch level ("550") may lie on either side of a floor such as 550.54; the CUDA version
    # can still tell.
    ok = driver.release.reaches(required) if driver.release else None
    if ok is None and driver.cuda is not None:
        ok = _family_implies(driver.cuda, cuda)
    have = driver.version or f"for CUDA {driver.cuda}"
    if ok is None:
        return fit(None, f"the machine's driver version {have} is not precise enough to decide")
    return fit(ok, f"the machine has driver {have}", "minor-version" if ok else None)


def _oldest_driver(
    cuda: str, os: str | None, toolkits: Sequence[Toolkit], floors: Sequence[Floor]
) -> tuple[str, str, str] | None:
    version = CudaVersion.parse(cuda)
    for floor in floors:
        # An open floor ends with its major: minor-version compatibility never crosses a major.
        last = CudaVersion.parse(floor.last) if floor.last else (CudaVersion.parse(floor.first).major, 99)
        if CudaVersion.parse(floor.first) <= version <= last:
            driver = floor.windows if os == "windows" else floor.linux
            if driver:
                return driver, floor.evidence.value, floor.source
    for toolkit in toolkits:
        if toolkit.cuda_version == version:
            driver = toolkit.driver_windows if os == "windows" else toolkit.driver_linux
            if driver:
                return driver, toolkit.evidence.value, toolkit.source
    return None


def _family_implies(driver_cuda: str, cuda: str) -> bool | None:
    """What follows for the family's floor from the CUDA version of a driver.

    The first driver of 12.x and of 13.x is that family's floor. Of 11.x it is not: 11.0 came with 450.36.06 and the
    floor of the later ones is 450.80.02, so a driver "for CUDA 11.0" leaves it open.
    """
    have, need = CudaVersion.parse(driver_cuda), CudaVersion.parse(cuda)
    # Drivers are backward compatible without limit: a driver of a later family runs every earlier one.
    if have[0] != need[0]:
        return have[0] > need[0]
    if need < (11, 1):
        return False
    return None if have == (11, 0) else True


def ptx_loads(ptx_cuda: str, driver: Driver | None) -> Reason:
    """Rule 2: PTX written by a toolkit newer than the driver's CUDA version never JITs (CUDA error 222).

    Source: CUDA Compatibility guide, "Application Considerations for Minor Version Compatibility".
    """
    if driver is None or driver.cuda is None:
        return Reason("driver-ptx", None, f"whether the driver compiles PTX of CUDA {ptx_cuda} is not known")
    ok = driver.supports(ptx_cuda)
    verb = "compiles" if ok else "cannot compile"
    return Reason("driver-ptx", ok, f"a driver for CUDA {driver.cuda} {verb} PTX of CUDA {ptx_cuda}")


# Rule 7: the life of GPUs and drivers: which machines can exist at all.


def can_exist(
    gpu: Gpu, driver: Driver | None, architectures: Mapping[str, Architecture], drivers: Sequence[DriverBranch]
) -> Reason:
    """Rule 7: a GPU has a first driver that knows it, and may have a last branch.

    Where only the driver's CUDA version is known, the branches that support it decide. Source: release notes of the
    driver branches and NVIDIA's list of legacy GPUs.
    """
    known = architectures.get(gpu.compute_capability or "")
    if known is None:
        return Reason("life", None, f"no driver history is known for {gpu.label}")

    def say(ok: bool | None, text: str) -> Reason:
        return Reason("life", ok, text, known.evidence.value, known.source)

    if driver is None or (driver.version is None and driver.cuda is None):
        return say(None, "the machine's driver is not known")
    have = f"driver {driver.version}" if driver.version else f"a driver for CUDA {driver.cuda}"
    # The order matters for the message only: no driver is both too old and too new for a GPU.
    if known.first_driver and _before(driver, known.first_driver, drivers):
        return say(False, f"{gpu.label} needs driver {known.first_driver} or newer; {have} does not know the GPU")
    if known.last_branch and _after(driver, known.last_branch, drivers):
        return say(False, f"the R{known.last_branch} branch is the last that supports {gpu.label}; {have} dropped it")
    return say(True, f"{have} supports {gpu.label}")


def _before(driver: Driver, first: str, drivers: Sequence[DriverBranch]) -> bool:
    if driver.release:
        return driver.release.reaches(first) is False
    branch = branch_of(first, drivers)
    return branch is not None and driver.cuda_version is not None and driver.cuda_version < branch.cuda_version


def _after(driver: Driver, last: str, drivers: Sequence[DriverBranch]) -> bool:
    # By branch: support for an architecture ends with a branch, never within one.
    if driver.release:
        return driver.release.branch > DriverVersion.parse(last).branch
    branch = branch_of(last, drivers)
    return branch is not None and driver.cuda_version is not None and driver.cuda_version > branch.cuda_version


# Rule 8: whether a cuda-compat ``libcuda`` raises a driver's CUDA version on a machine.


# The container runtime's name for data-centre GPUs in NVIDIA_REQUIRE_CUDA.
_DATA_CENTRE = "tesla"


class ForwardFacts(msgspec.Struct, frozen=True):
    """Catalogue records for this rule, read on demand: few machines have a compat ``libcuda``."""

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
        """The model of a GPU, if its name identifies it."""
        try:
            return find_gpu(gpu.name, self.catalogue) if gpu.name else None
        except UsageError:
            return None

    def releases(self) -> Iterator[ImageRequirement]:
        """The toolkit releases of which is known with which older drivers their compat ``libcuda`` may be used."""
        return (r for r in self.catalogue.image_requirements.values() if r.or_drivers)


def compat_serves(machine: Machine, facts: ForwardFacts) -> Reason | None:
    """Rule 8: a compat ``libcuda`` supports data-centre GPUs on the driver branches that NVIDIA lists for its release.

    It must be newer than the driver (else CUDA error 803), every GPU must be one of a data centre or a Jetson (else
    error 804), and the branch that it was built from must still know the GPUs (rule 7). If it is not known whether
    all of that holds, the reason says so, and the driver is judged without it. Sources: CUDA Compatibility guide,
    "Forward Compatibility"; ``NVIDIA_REQUIRE_CUDA`` of NVIDIA's images, which names the branches.

    Args:
        machine: Its ``driver.compat_libcuda`` is the CUDA version of the library, its ``driver.cuda`` the driver's own.

    Returns:
        None without such a library or without a GPU.
    """
    driver = machine.driver
    if driver is None or driver.compat_libcuda is None or machine.gpus == ():
        return None
    library = f"the cuda-compat libcuda (CUDA {driver.compat_libcuda})"
    have = f"driver {driver.version}" if driver.version else f"a driver for CUDA {driver.cuda}"
    if machine.platform and machine.platform.os not in (None, "linux"):
        return Reason("forward", False, f"{library} is for Linux only")
    # Not merely of no use: the loader takes it all the same, and then every CUDA call fails.
    if driver.supports(driver.compat_libcuda):
        text = f"{library} is not newer than {have}, which supports CUDA {driver.cuda} itself"
        return Reason("forward", False, f"{text} (CUDA error 803)")
    # Eight equal GPUs of a node are one question.
    gpus = {(gpu.name, gpu.compute_capability): gpu for gpu in machine.gpus or ()}
    unfit = [reason for gpu in gpus.values() if (reason := _no_gpu_for_it(gpu, library, driver, facts))]
    if unfit:
        # A certain refusal first: one GPU that cannot use the library makes CUDA fail for all of them.
        return min(unfit, key=lambda reason: reason.ok is None)
    if not machine.gpus or driver.version is None or driver.cuda is None:
        lacking = "driver is" if machine.gpus else "GPUs are"
        return Reason("forward", None, f"whether {library} works here is not known, because the {lacking} not")
    return _listed(driver.compat_libcuda, driver.version, library, facts)


def compat_releases(facts: ForwardFacts) -> tuple[str, ...]:
    """The CUDA versions whose compat ``libcuda`` is known to work with older drivers, oldest first."""
    return tuple(
        sorted(
            {f"{major}.{part}" for major, part in (CudaVersion.parse(r.cuda) for r in facts.releases())},
            key=CudaVersion.parse,
        )
    )


def lifted(machine: Machine, facts: ForwardFacts) -> Driver | None:
    """The machine's driver as CUDA code finds it: with the CUDA version of a compat ``libcuda`` that works there."""
    reason = compat_serves(machine, facts)
    if machine.driver is None or reason is None or not reason.ok:
        return machine.driver
    return replace(machine.driver, cuda=machine.driver.compat_libcuda)


def through_compat(alone: DriverFit, cuda: str, driver: Driver | None, raised: Driver | None) -> DriverFit:
    """Rule 1's answer with the help of a compat ``libcuda``, which runs CUDA up to its own version, PTX included.

    Args:
        alone: What the driver supports without it.
        cuda: The CUDA version of the build.
        driver: The machine's driver.
        raised: The same as :func:`lifted` has it.
    """
    if alone.mode == "full" or raised is None or raised == driver or not raised.supports(cuda):
        return alone
    needs = f"CUDA {cuda} needs driver {alone.required} or newer; " if alone.required else ""
    text = f"{needs}the cuda-compat libcuda (CUDA {raised.cuda}) runs it on driver {raised.version}"
    reason = replace(alone.reason, ok=True, text=text)
    return DriverFit(reason, alone.required, "forward-compat")


def _no_gpu_for_it(gpu: Gpu, library: str, driver: Driver, facts: ForwardFacts) -> Reason | None:
    """Why a GPU cannot use the library, or that it is not known whether it can; None if it can."""
    model = facts.model(gpu)
    if model is None:
        text = f"{library} supports data-centre GPUs only; whether {gpu.label} is one is not known"
        return Reason("forward", None, text)
    if not model.data_centre:
        text = f"{library} supports data-centre GPUs only, and {gpu.label} is not one (CUDA error 804)"
        return Reason("forward", False, text, model.evidence.value, model.source)
    branch = next((b for b in facts.drivers if b.cuda_version == CudaVersion.parse(driver.compat_libcuda or "0")), None)
    # The library contains the user-mode half of its driver, which dropped the same GPUs as that driver did.
    built_from = Driver(branch.branch, branch.cuda) if branch else None
    life = can_exist(gpu, built_from, facts.architectures, facts.drivers)
    if built_from is not None and life.ok is False:
        text = f"{library} is of driver branch R{built_from.version}, which does not support {gpu.label}"
        return Reason("forward", False, text, life.evidence, life.source)
    return None


def _listed(cuda: str, version: str, library: str, facts: ForwardFacts) -> Reason:
    """Whether NVIDIA names the driver's branch for a compat ``libcuda`` of that CUDA."""
    own = DriverVersion.parse(version).branch
    named: dict[str, ImageRequirement] = {}
    for release in facts.releases():
        if CudaVersion.parse(release.cuda) == CudaVersion.parse(cuda):
            # Conditions for other brands say nothing here: the library runs on data-centre GPUs only.
            for allowed in release.or_drivers:
                if _DATA_CENTRE in allowed.brands:
                    named |= dict.fromkeys(allowed.branches, release)
    if not named:
        return Reason("forward", None, f"the catalogue does not record which drivers {library} supports")
    found = next((release for branch, release in named.items() if DriverVersion.parse(branch).branch == own), None)
    listed = ", ".join(f"R{branch}" for branch in sorted(named, key=DriverVersion.parse))
    if found is None:
        any_of_them = next(iter(named.values()))
        text = f"{library} is meant for driver branches {listed}; whether it works with driver {version} is not known"
        return Reason("forward", None, text, any_of_them.evidence.value, any_of_them.source)
    text = f"{library} works with driver {version} (it is meant for branches {listed})"
    return Reason("forward", True, text, found.evidence.value, found.source)


def overstated_cuda(driver: Driver | None, drivers: Sequence[DriverBranch]) -> DriverBranch | None:
    """The branch of a driver whose stated CUDA version is beyond what that branch supports; otherwise None.

    It is the version that nvidia-smi shows in a container with a cuda-compat ``libcuda``. It does not prove that such a
    library is there and works, so only the driver is judged.
    """
    if driver is None or driver.version is None or driver.cuda is None:
        return None
    # Only a higher version is a sign: a profile may state less than the branch supports.
    branch = branch_of(driver.version, drivers)
    return branch if branch and CudaVersion.parse(driver.cuda) > branch.cuda_version else None


def own_cuda(driver: Driver | None, drivers: Sequence[DriverBranch]) -> Driver | None:
    """A driver with the CUDA version of its branch if it states a newer one."""
    branch = overstated_cuda(driver, drivers)
    return replace(driver, cuda=branch.cuda) if driver and branch else driver
