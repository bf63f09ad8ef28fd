"""What limits the choice of torch-family builds, each limit one that can be lifted on its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace
from packaging.specifiers import SpecifierSet

from envsolve.machine.model import Machine, Platform
from envsolve.solve.family import Family, Option


class Limits(msgspec.Struct, frozen=True):
    """What limits the choice of torch-family builds.

    Attributes:
        asked: Specifiers on family packages, by name.
        flavour: A CUDA flavour that was asked for.
    """

    asked: Mapping[str, SpecifierSet]
    flavour: str | None


class Limit(msgspec.Struct, frozen=True):
    """One limit, and the fact behind it in words.

    Attributes:
        kind: ``asked``, ``flavour``, ``cutoff``, ``python``, ``libc``, ``driver`` or ``gpus``.
        name: The package of an ``asked`` limit, the driver, the card; else what is limited to.
    """

    kind: str
    name: str
    fact: str


def limits_of(family: Family, limits: Limits) -> Iterator[Limit]:
    """The limits that a request and its machines set, those most worth telling last."""
    if limits.flavour:
        yield Limit("flavour", limits.flavour, f"the CUDA flavour {limits.flavour} was asked for")
    if family.cutoff:
        yield Limit(
            "cutoff", family.cutoff, f"nothing published from {family.cutoff.partition('T')[0]} on is considered"
        )
    have = "the machine has" if len(family.machines) == 1 else "the machines have"
    libcs = dict.fromkeys(m.platform.libc for m in family.machines if m.platform and m.platform.libc)
    if libcs:
        yield Limit("libc", "", f"{have} {' and '.join(libcs)}")
    if family.python:
        required = f", as requires-python is {family.requires_python}" if family.requires_python else ""
        yield Limit("python", family.python, f"the environment's Python is {family.python}{required}")
    one = "the machine" if len(family.machines) == 1 else "a machine"
    for driver in sorted({name for machine in family.machines if (name := driver_name(machine))}):
        yield Limit("driver", driver, f"{one} has driver {driver}")
    cards = {gpu.label: gpu.cc for machine in family.machines for gpu in machine.gpus or () if gpu.cc}
    for label, cc in cards.items():
        yield Limit("gpus", label, f"{one} has {label}, which needs code that {cc.sm} runs")
    if not cards and family.wants_cpu:
        yield Limit("gpus", "", f"{have} no NVIDIA GPU")
    for name, specifier in sorted(limits.asked.items(), key=lambda pair: pair[0] == "torch"):
        if str(specifier) or name != "torch":
            yield Limit("asked", name, f"{name}{specifier} was asked for")


def best_under(family: Family, limits: Limits, kept: Sequence[Limit]) -> tuple[Option, ...] | None:
    """The best torch option under the kept limits, then the best matching one of every companion that was asked for."""
    return best_of(*loosened(family, limits, kept))


def loosened(family: Family, limits: Limits, kept: Sequence[Limit]) -> tuple[Family, Limits]:
    """The family and what is asked of it, with the kept limits alone."""
    kinds = {limit.kind for limit in kept}
    limited = {(limit.kind, limit.name) for limit in kept}
    names = {limit.name for limit in kept if limit.kind == "asked"}
    loose = replace(
        family,
        python=family.python if "python" in kinds else None,
        cutoff=family.cutoff if "cutoff" in kinds else None,
        machines=tuple(_loosened(machine, limited) for machine in family.machines),
    )
    # Lifting a limit relaxes the specifier of a requirement; one that has none is given up, torch apart.
    asked = {
        name: specifier if name in names else SpecifierSet()
        for name, specifier in limits.asked.items()
        if name in names or str(specifier) or name == "torch"
    }
    return loose, Limits(asked, limits.flavour if "flavour" in kinds else None)


def best_of(family: Family, limits: Limits) -> tuple[Option, ...] | None:
    """The best torch option that the request allows, then the best matching one of every companion asked for.

    Of a request that torch has no part in, the best option of each package; none where nothing is asked for any more.
    """
    if not family.needs_torch(limits.asked):
        return _each_alone(family, limits)
    pairings = family.pairings(limits.asked)
    return next((options for options in pairings if limits.flavour in (None, options[0].build.variant)), None)


def _each_alone(family: Family, limits: Limits) -> tuple[Option, ...] | None:
    """The best option of each of several packages that stand without torch; None where one has none."""

    def allowed(option: Option) -> bool:
        flavours = family.flavours_with(option.build)
        return limits.flavour is None or flavours is None or limits.flavour in flavours

    found = [
        next((o for o in family.options(name) if o.matches(specifier) and allowed(o)), None)
        for name, specifier in limits.asked.items()
    ]
    options = tuple(option for option in found if option is not None)
    return options if len(options) == len(found) else None


def driver_name(machine: Machine) -> str | None:
    """A machine's driver by its version, else by its CUDA: ``550.54``, ``for CUDA 12.4``; None where not known."""
    driver = machine.driver
    if driver is None or not (driver.version or driver.cuda):
        return None
    return driver.version or f"for CUDA {driver.cuda}"


def _loosened(machine: Machine, limited: set[tuple[str, str]]) -> Machine:
    platform = machine.platform or Platform()
    cards = tuple(gpu for gpu in machine.gpus or () if not gpu.cc or ("gpus", gpu.label) in limited)
    none = machine.gpus == () and ("gpus", "") in limited
    return replace(
        machine,
        platform=platform if ("libc", "") in limited else replace(platform, libc=None),
        driver=machine.driver if ("driver", driver_name(machine)) in limited else None,
        gpus=cards or (() if none else None),
    )
