"""Rule 7: the life of cards and drivers: which machines can exist at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from envsolve.catalogue.model import Architecture, DriverBranch
from envsolve.compat.verdict import Reason
from envsolve.compat.versions import minor, numbers, reaches
from envsolve.machine.model import Driver, Gpu


def can_exist(
    gpu: Gpu, driver: Driver | None, architectures: Mapping[str, Architecture], drivers: Sequence[DriverBranch]
) -> Reason:
    """Rule 7: a card has a first driver that knows it, and may have a last branch.

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
    if known.first_driver and _before(driver, known.first_driver, drivers):
        return say(False, f"{gpu.label} needs driver {known.first_driver} or newer; {have} does not know the card")
    if known.last_branch and _after(driver, known.last_branch, drivers):
        return say(False, f"the R{known.last_branch} branch is the last to serve {gpu.label}; {have} dropped it")
    return say(True, f"{have} serves {gpu.label}")


def _before(driver: Driver, first: str, drivers: Sequence[DriverBranch]) -> bool:
    if driver.version:
        return reaches(driver.version, first) is False
    cuda = _cuda_of(first, drivers)
    return cuda is not None and driver.cuda is not None and minor(driver.cuda) < minor(cuda)


def _after(driver: Driver, last: str, drivers: Sequence[DriverBranch]) -> bool:
    if driver.version:
        return numbers(driver.version)[:1] > numbers(last)[:1]
    cuda = _cuda_of(last, drivers)
    return cuda is not None and driver.cuda is not None and minor(driver.cuda) > minor(cuda)


def _cuda_of(version: str, drivers: Sequence[DriverBranch]) -> str | None:
    """The CUDA version of a driver's branch."""
    return next((branch.cuda for branch in drivers if numbers(branch.branch)[:1] == numbers(version)[:1]), None)
