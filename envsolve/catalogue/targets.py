"""From what a person or a partial reading says of a machine to a machine: what the catalogue knows is filled in."""

from __future__ import annotations

from msgspec.structs import replace

from envsolve.catalogue.gpu_names import find_gpu
from envsolve.catalogue.load import Catalogue
from envsolve.catalogue.model import DriverBranch
from envsolve.errors import UsageError
from envsolve.machine.model import Driver, Gpu, Machine, Platform
from envsolve.machine.target import Target

__all__ = ["complete", "driver_branch", "find_gpu", "machine_from_target"]


def machine_from_target(target: Target, catalogue: Catalogue) -> Machine:
    """The machine that a target string names, completed from the catalogue.

    Fields that the target does not give, and the catalogue does not imply, are None.

    Raises:
        UsageError: A GPU name is unknown or ambiguous.
    """
    sources: dict[str, str] = {}
    given = {"os": target.os, "arch": target.arch, "libc": target.libc, "distro": target.distro}
    sources |= {f"platform.{name}": "target" for name, value in given.items() if value}
    sources |= {"driver.version": "target"} if target.driver else {}
    sources |= {"driver.cuda": "target"} if target.cuda else {}
    sources |= {"python": "target"} if target.python else {}
    sources |= {"gpus": "target"} if target.gpus is not None else {}
    machine = Machine(
        platform=Platform(target.os, target.arch, target.libc, target.distro) if any(given.values()) else None,
        driver=Driver(target.driver, target.cuda) if target.driver or target.cuda else None,
        gpus=None
        if target.gpus is None
        else tuple(gpu for count, name in target.gpus for gpu in count * (_gpu(name, catalogue),)),
        python=target.python,
        sources=sources,
    )
    return complete(machine, catalogue)


def complete(machine: Machine, catalogue: Catalogue) -> Machine:
    """Fill what the catalogue knows: the driver's CUDA version by its branch, a GPU's compute capability by its name.

    What is known already is never changed; each filled field is noted in ``sources``. A name or branch that the
    catalogue does not know leaves its field None.
    """
    sources = dict(machine.sources)
    driver = machine.driver
    if driver is not None and driver.version is not None and driver.cuda is None:
        branch = driver_branch(driver.version, catalogue)
        if branch is not None:
            driver = replace(driver, cuda=branch.cuda)
            sources["driver.cuda"] = f"catalogue (driver branch {branch.branch})"
    gpus = machine.gpus
    if gpus is not None:
        filled = tuple(_with_compute_capability(gpu, catalogue) for gpu in gpus)
        changed = [index for index, (old, new) in enumerate(zip(gpus, filled, strict=True)) if old != new]
        sources |= {f"gpus[{index}].compute_capability": "catalogue" for index in changed}
        gpus = filled
    return replace(machine, driver=driver, gpus=gpus, sources=sources)


def driver_branch(version: str, catalogue: Catalogue) -> DriverBranch | None:
    """The branch of a driver version, or the nearest older known one; None for a driver older than all of them.

    Only the first number counts: ``550``, ``550.54`` and ``550.54.15`` are one branch. Windows numbers a branch's
    releases upward (551.61 and 552.22 are R550), which the nearest older branch gets right; a branch that the catalogue
    does not know yet supports at least what the one before it did.
    """
    number = int(version.partition(".")[0])
    older = [branch for branch in catalogue.drivers if int(branch.branch) <= number]
    return max(older, key=lambda branch: int(branch.branch), default=None)


def _gpu(text: str, catalogue: Catalogue) -> Gpu:
    model = find_gpu(text, catalogue)
    named = model in catalogue.gpus
    return Gpu(name=model.name if named else None, compute_capability=None if named else model.compute_capability)


def _with_compute_capability(gpu: Gpu, catalogue: Catalogue) -> Gpu:
    if gpu.compute_capability is not None or gpu.name is None:
        return gpu
    try:
        return replace(gpu, compute_capability=find_gpu(gpu.name, catalogue).compute_capability)
    except UsageError:
        return gpu
