"""Rule 7: the life of cards and drivers: which machines can exist at all."""

from __future__ import annotations

from collections.abc import Mapping

from envsolve.catalogue.model import Architecture
from envsolve.compat.verdict import Reason
from envsolve.compat.versions import numbers, reaches
from envsolve.machine.model import Driver, Gpu


def can_exist(gpu: Gpu, driver: Driver | None, architectures: Mapping[str, Architecture]) -> Reason:
    """Rule 7: a card has a first driver that knows it, and may have a last branch.

    Source: release notes of the driver branches and NVIDIA's list of legacy GPUs.
    """
    known = architectures.get(gpu.compute_capability or "")
    if known is None:
        return Reason("life", None, f"no driver history is known for {gpu.label}")
    if driver is None or driver.version is None:
        return Reason("life", None, "the machine's driver version is not known", known.evidence.value, known.source)
    if known.first_driver and reaches(driver.version, known.first_driver) is False:
        text = f"{gpu.label} needs driver {known.first_driver} or newer; driver {driver.version} does not know the card"
        return Reason("life", False, text, known.evidence.value, known.source)
    if serves_until(known) is not None and numbers(driver.version)[:1] > (serves_until(known),):
        text = f"the R{known.last_branch} branch is the last to serve {gpu.label}; driver {driver.version} dropped it"
        return Reason("life", False, text, known.evidence.value, known.source)
    return Reason("life", True, f"driver {driver.version} serves {gpu.label}", known.evidence.value, known.source)


def serves_until(architecture: Architecture) -> int | None:
    """The last driver branch that serves an architecture, or None where it is still served."""
    return numbers(architecture.last_branch)[0] if architecture.last_branch else None
