"""The machine that builds are judged on: what a description leaves open is assumed, what contradicts itself is settled.

Each of these steps is told to the user by :mod:`envsolve.planner.cautions`.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from envsolve.catalogue.model import DriverBranch
from envsolve.compat.platform import assumed
from envsolve.compat.versions import minor, numbers
from envsolve.machine.model import Driver, Machine


def as_judged(machine: Machine, flavour: str | None, drivers: Sequence[DriverBranch]) -> Machine:
    """A machine with a system, with its driver's own CUDA, and without GPUs where a CPU flavour is asked for."""
    gpus = () if flavour == "cpu" else machine.gpus
    return replace(machine, platform=assumed(machine.platform), driver=_own_cuda(machine.driver, drivers), gpus=gpus)


def python_of(machines: Sequence[Machine]) -> str | None:
    """The Python that builds are judged for where none is asked for: the first that a machine says, ``3.12``."""
    return next((".".join(machine.python.split(".")[:2]) for machine in machines if machine.python), None)


def overstated_cuda(driver: Driver | None, drivers: Sequence[DriverBranch]) -> DriverBranch | None:
    """The branch of a driver whose stated CUDA version is beyond what that branch supports; else None.

    It is what nvidia-smi shows in a container with a cuda-compat ``libcuda``. That such a library is there, and serves,
    does not follow: the driver alone is judged.
    """
    if driver is None or driver.version is None or driver.cuda is None:
        return None
    branch = next((b for b in drivers if numbers(b.branch)[:1] == numbers(driver.version or "")[:1]), None)
    return branch if branch and minor(driver.cuda) > minor(branch.cuda) else None


def _own_cuda(driver: Driver | None, drivers: Sequence[DriverBranch]) -> Driver | None:
    branch = overstated_cuda(driver, drivers)
    return replace(driver, cuda=branch.cuda) if driver and branch else driver
