"""From what a target or a partial reading says of a machine to a machine: what the catalogue knows is filled in."""

from __future__ import annotations

import re

from msgspec.structs import replace

from envsolve.errors import UsageError
from envsolve.facts.catalogue import Catalogue
from envsolve.facts.gpu_names import UnknownGpuError, find_gpu, split_machine_name
from envsolve.facts.hardware import DriverBranch
from envsolve.machine.model import Driver, Gpu, Machine, Platform
from envsolve.machine.target import Target, merged, parse_target, unreadable


def machine_from_target(target: Target, catalogue: Catalogue) -> Machine:
    """The machine that a target string names, completed from the catalogue.

    Fields that the target does not give, and the catalogue does not imply, are None.

    Raises:
        UsageError: A GPU name is unknown or ambiguous.
    """
    target = in_words_of_parts(target, catalogue)
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
        else tuple(gpu for count, name in target.gpus for gpu in count * (_targets_gpu(name, catalogue),)),
        python=target.python,
        sources=sources,
    )
    return complete(machine, catalogue, oldest=True)


def in_words_of_parts(target: Target, catalogue: Catalogue) -> Target:
    """Put the parts that the catalogue has for it in place of a name such as ``g5.xlarge`` or ``JetPack 6.2``."""
    gpus, meant = [], []
    cards = {name.lower() for model in catalogue.gpus for name in (model.name, *model.aliases)}
    for count, name in target.gpus or ():
        if name.lower() in cards:  # no machine is called like a GPU, and its pattern need not be compiled
            gpus.append((count, name))
            continue
        known = (one for one in catalogue.machine_names if re.fullmatch(one.words, name.lower()))
        if (found := next(known, None)) is None:
            gpus.append((count, name))
        else:
            meant.append((name, found.means))
    if not meant:
        return target
    result = replace(target, gpus=tuple(gpus) or None)
    for name, means in meant:
        result = merged(result, parse_target(means), name)
    return result


def complete(machine: Machine, catalogue: Catalogue, *, oldest: bool = False) -> Machine:
    """Fill in from the catalogue: the driver's CUDA version by its branch, a GPU's compute capability by its name.

    Known values are never changed; each filled field is noted in ``sources``. A name or branch that the
    catalogue does not know leaves its field None. With ``oldest``, a GPU of one system implies its oldest C library.
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
    platform, more = _on_only_system(machine, catalogue, oldest)
    return replace(machine, platform=platform, driver=driver, gpus=gpus, sources={**more, **sources})


def _on_only_system(machine: Machine, catalogue: Catalogue, oldest: bool) -> tuple[Platform | None, dict[str, str]]:
    """The platform with what its GPUs imply, if they exist only in machines with one system; what was filled in."""
    names = {gpu.name for gpu in machine.gpus or ()}
    models = [model for model in catalogue.gpus if names & {model.name, *model.aliases}]
    systems = {model.system for model in models}
    known, text = machine.platform or Platform(), systems.pop() if len(systems) == 1 else None
    if not text or len(models) != len(names):
        return machine.platform, {}
    only = parse_target(text)
    if (known.os or only.os, known.arch or only.arch) != (only.os, only.arch):
        return machine.platform, {}
    # An image has the C library of its own distribution.
    libc = only.libc if oldest and not (known.distro or known.container) else None
    found = {"os": only.os, "arch": only.arch, "libc": libc}
    filled = {name: value for name, value in found.items() if value and getattr(known, name) is None}
    return replace(known, **filled), {f"platform.{name}": f"catalogue ({models[0].name})" for name in filled}


def driver_branch(version: str, catalogue: Catalogue) -> DriverBranch | None:
    """The branch of a driver version, or the nearest older known one; None for a driver older than all of them.

    Windows numbers a branch's releases upward: 551.61 and 552.22 are R550. An unknown branch supports at least what the
    one before it did.
    """
    number = int(version.partition(".")[0])
    older = [branch for branch in catalogue.drivers if int(branch.branch) <= number]
    return max(older, key=lambda branch: int(branch.branch), default=None)


def _targets_gpu(text: str, catalogue: Catalogue) -> Gpu:
    try:
        model = find_gpu(text, catalogue)
    except UnknownGpuError as error:
        if parts := split_machine_name(text.split(), catalogue):
            raise unreadable(text, f"put commas between the parts: {', '.join(parts)}") from None
        if re.search(r"(?i)\b(?:[gr]tx|geforce|quadro|tesla)|\d{3}", text):
            raise
        nearest = f"{error.hint}; " if (error.hint or "").startswith("nearest") else ""
        hint = f"{nearest}a target is a list such as: RTX 4090, driver 580, python 3.12, linux-x86_64"
        raise UsageError(f'nothing in the catalogue is called "{text}"', hint=hint) from None
    named = model in catalogue.gpus
    return Gpu(name=model.name if named else None, compute_capability=None if named else model.compute_capability)


def _with_compute_capability(gpu: Gpu, catalogue: Catalogue) -> Gpu:
    if gpu.compute_capability is not None or gpu.name is None:
        return gpu
    try:
        return replace(gpu, compute_capability=find_gpu(gpu.name, catalogue).compute_capability)
    except UsageError:
        return gpu
