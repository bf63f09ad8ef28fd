"""What limits the choice of torch-family builds, each limit one that can be lifted on its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from packaging.specifiers import SpecifierSet

from envsolve.machine.model import Machine, Platform
from envsolve.resolve.family import Family, Option


@dataclass(frozen=True, slots=True)
class Limits:
    """What limits the choice of torch-family builds.

    Attributes:
        asked: Specifiers on family packages, by name.
        flavour: A CUDA flavour that was asked for.
    """

    asked: Mapping[str, SpecifierSet]
    flavour: str | None


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit, and the fact behind it in words.

    Attributes:
        kind: ``asked``, ``flavour``, ``python``, ``libc``, ``driver`` or ``gpus``.
        name: The package of an ``asked`` limit; else what is limited to.
    """

    kind: str
    name: str
    fact: str


def limits_of(family: Family, limits: Limits) -> Iterator[Limit]:
    """The limits that a request and its machines set, those most worth telling last."""
    if limits.flavour:
        yield Limit("flavour", limits.flavour, f"the CUDA flavour {limits.flavour} was asked for")
    for machine in family.machines:
        if machine.platform and machine.platform.libc:
            yield Limit("libc", "", f"the machine has {machine.platform.libc}")
            break
    if family.python:
        yield Limit("python", family.python, f"the environment's Python is {family.python}")
    drivers = {d.version or f"for CUDA {d.cuda}" for m in family.machines if (d := m.driver) and (d.version or d.cuda)}
    if drivers:
        yield Limit("driver", "", f"the machine has driver {', '.join(sorted(drivers))}")
    cards = dict.fromkeys(
        f"{gpu.label}, which needs code that {gpu.cc.sm} runs"
        for m in family.machines
        for gpu in m.gpus or ()
        if gpu.cc
    )
    if cards:
        yield Limit("gpus", "", "the machine has " + " and ".join(cards))
    elif family.wants_cpu:
        yield Limit("gpus", "", "the machine has no NVIDIA GPU")
    for name, specifier in sorted(limits.asked.items(), key=lambda pair: pair[0] == "torch"):
        if str(specifier) or name != "torch":
            yield Limit("asked", name, f"{name}{specifier} was asked for")


def best_under(family: Family, limits: Limits, kept: Sequence[Limit]) -> tuple[Option, ...] | None:
    """The best torch option under the kept limits, then the best matching one of every companion that was asked for."""
    kinds = {limit.kind for limit in kept}
    names = {limit.name for limit in kept if limit.kind == "asked"}
    loose = replace(
        family,
        python=family.python if "python" in kinds else None,
        machines=tuple(_loosened(machine, kinds) for machine in family.machines),
    )
    # Lifting a limit relaxes the specifier of a requirement; one that has none is given up.
    asked = {
        name: specifier if name in names else SpecifierSet()
        for name, specifier in limits.asked.items()
        if name in names or str(specifier)
    }
    for options in loose.pairings(asked):
        if "flavour" not in kinds or options[0].build.variant == limits.flavour:
            return options
    return None


def _loosened(machine: Machine, kinds: set[str]) -> Machine:
    platform = machine.platform or Platform()
    return replace(
        machine,
        platform=platform if "libc" in kinds else replace(platform, libc=None),
        driver=machine.driver if "driver" in kinds else None,
        gpus=machine.gpus if "gpus" in kinds else None,
    )
