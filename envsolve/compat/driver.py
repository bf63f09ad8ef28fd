"""Rules 1 and 2: which CUDA a driver runs, and which PTX it compiles."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from envsolve.catalogue.model import Floor, Toolkit
from envsolve.compat.verdict import DriverMode, Reason
from envsolve.compat.versions import minor, reaches
from envsolve.machine.model import Driver


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
    "maximum driver" is no cap. Source: CUDA Compatibility guide, "Minor Version Compatibility".
    """
    knows = driver is not None and driver.cuda is not None and minor(driver.cuda) >= minor(cuda)
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
    if knows:
        return fit(True, f"the driver supports CUDA {driver.cuda}", "full")
    ok = reaches(driver.version, required) if driver.version else None
    if ok is None and driver.cuda is not None:
        ok = _family_implies(driver.cuda, cuda)
    have = driver.version or f"for CUDA {driver.cuda}"
    if ok is None:
        return fit(None, f"the machine's driver is {have}, which is too imprecise to tell")
    return fit(ok, f"the machine has driver {have}", "minor-version" if ok else None)


def _oldest_driver(
    cuda: str, os: str | None, toolkits: Sequence[Toolkit], floors: Sequence[Floor]
) -> tuple[str, str, str] | None:
    version = minor(cuda)
    for floor in floors:
        last = minor(floor.last) if floor.last else (minor(floor.first)[0], 99)
        if minor(floor.first) <= version <= last:
            driver = floor.windows if os == "windows" else floor.linux
            if driver:
                return driver, floor.evidence.value, floor.source
    for toolkit in toolkits:
        if minor(toolkit.version) == version:
            driver = toolkit.driver_windows if os == "windows" else toolkit.driver_linux
            if driver:
                return driver, toolkit.evidence.value, toolkit.source
    return None


def _family_implies(driver_cuda: str, cuda: str) -> bool | None:
    """What the driver's CUDA version alone says of the family's floor.

    The first driver of 12.x and of 13.x is that family's floor. Of 11.x it is not: 11.0 came with 450.36.06 and the
    floor of the later ones is 450.80.02, so a driver "for CUDA 11.0" leaves it open.
    """
    have, need = minor(driver_cuda), minor(cuda)
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
    ok = minor(driver.cuda) >= minor(ptx_cuda)
    verb = "compiles" if ok else "cannot compile"
    return Reason("driver-ptx", ok, f"a driver for CUDA {driver.cuda} {verb} PTX of CUDA {ptx_cuda}")
