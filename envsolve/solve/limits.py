"""Limits on the choice of torch builds: the request, and machines that must share one; each limit can be lifted."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from envsolve.machine.model import Machine, Platform, told_apart
from envsolve.rules.judge import worst
from envsolve.rules.nvidia.code import cuda_in_name
from envsolve.rules.nvidia.driver import DriverFit, driver_runs, lifted
from envsolve.solve.family import Family, Option
from envsolve.solve.outcome import PlanWarning
from envsolve.solve.preferences import in_order
from envsolve.values import Arch, ComputeCapability

if TYPE_CHECKING:
    from envsolve.solve.resolver import Solution


class Limits(msgspec.Struct, frozen=True):
    """Limits on the choice of torch-family builds.

    Attributes:
        asked: Specifiers on family packages, by name.
        variant: A requested CUDA variant.
    """

    asked: Mapping[str, SpecifierSet]
    variant: str | None


class Limit(msgspec.Struct, frozen=True):
    """One limit, and the fact behind it in words.

    Attributes:
        kind: ``asked``, ``variant``, ``exclude_newer``, ``python``, ``libc``, ``driver`` or ``gpus``.
        name: The package of an ``asked`` limit, the driver, the GPU; otherwise the value that is allowed.
    """

    kind: str
    name: str
    fact: str


def limits_of(family: Family, limits: Limits) -> Iterator[Limit]:
    """The limits that a request and its machines set, the most informative last."""
    if limits.variant:
        yield Limit("variant", limits.variant, f"the CUDA variant {limits.variant} was requested")
    if family.exclude_newer:
        day = family.exclude_newer.partition("T")[0]
        yield Limit("exclude_newer", family.exclude_newer, f"--exclude-newer excludes files uploaded on {day} or later")
    several = len(family.machines) > 1
    have = "the machines have" if several else "the machine has"
    libcs = dict.fromkeys(m.platform.libc for m in family.machines if m.platform and m.platform.libc)
    if libcs:
        yield Limit("libc", "", f"{have} {' and '.join(libcs)}")
    if family.python:
        required = f", as requires-python is {family.requires_python}" if family.requires_python else ""
        yield Limit("python", family.python, f"the environment's Python is {family.python}{required}")
    yield from _of_accelerators(family, "a machine has" if several else "the machine has", have)
    for name, specifier in sorted(limits.asked.items(), key=lambda pair: pair[0] == "torch"):
        if str(specifier) or name != "torch":
            yield Limit("asked", name, f"{name}{specifier} was requested")


def _of_accelerators(family: Family, one_has: str, all_have: str) -> Iterator[Limit]:
    """The drivers and GPUs of the machines, or that they have no GPU."""
    for driver in sorted({name for machine in family.machines if (name := driver_name(machine))}):
        yield Limit("driver", driver, f"{one_has} driver {driver}")
    gpus = {gpu.label: gpu.cc for machine in family.machines for gpu in machine.gpus or () if gpu.cc}
    for label, cc in gpus.items():
        yield Limit("gpus", label, f"{one_has} {label}, which requires code for {cc.sm}")
    if not gpus and family.wants_cpu:
        yield Limit("gpus", "", f"{all_have} no NVIDIA GPU")


def best_under(family: Family, limits: Limits, kept: Sequence[Limit]) -> tuple[Option, ...] | None:
    """The best torch option under the kept limits, then the best matching one of every companion that was requested."""
    return best_of(*loosened(family, limits, kept))


def loosened(family: Family, limits: Limits, kept: Sequence[Limit]) -> tuple[Family, Limits]:
    """The family and the specifiers on it, under only the kept limits."""
    kinds = {limit.kind for limit in kept}
    limited = {(limit.kind, limit.name) for limit in kept}
    names = {limit.name for limit in kept if limit.kind == "asked"}
    loose = replace(
        family,
        python=family.python if "python" in kinds else None,
        exclude_newer=family.exclude_newer if "exclude_newer" in kinds else None,
        machines=tuple(_loosened(machine, limited) for machine in family.machines),
    )
    # Lifting a limit relaxes the specifier of a requirement; one that has none is given up, torch apart.
    asked = {
        name: specifier if name in names else SpecifierSet()
        for name, specifier in limits.asked.items()
        if name in names or str(specifier) or name == "torch"
    }
    return loose, Limits(asked, limits.variant if "variant" in kinds else None)


def best_of(family: Family, limits: Limits) -> tuple[Option, ...] | None:
    """The best torch option that the request allows, then the best matching one of every companion asked for.

    Of a request that torch has no part in, the best option of each package; none if nothing is requested any more.
    """
    if not family.needs_torch(limits.asked):
        return _each_alone(family, limits)
    pairings = family.pairings(limits.asked)
    return next((options for options in pairings if limits.variant in (None, options[0].build.variant)), None)


def _each_alone(family: Family, limits: Limits) -> tuple[Option, ...] | None:
    """The best option of each of several packages that do not need torch; None if one has none."""

    def allowed(option: Option) -> bool:
        variants = family.variants_with(option.build)
        return limits.variant is None or variants is None or limits.variant in variants

    found = [
        next((o for o in family.options(name) if o.matches(specifier) and allowed(o)), None)
        for name, specifier in limits.asked.items()
    ]
    options = tuple(option for option in found if option is not None)
    return options if len(options) == len(found) else None


def without_variant(specifier: SpecifierSet) -> SpecifierSet:
    """A specifier whose pin has only a version: ``==2.0.0`` for ``==2.0.0+cu121``."""
    return SpecifierSet(",".join(str(one).partition("+")[0] for one in specifier))


def driver_name(machine: Machine) -> str | None:
    """A machine's driver by its version, otherwise by its CUDA: ``550.54``, ``for CUDA 12.4``; None if not known."""
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


# Packages that machines exclude by a name or by documentation, since their builds are not in the catalogue.


def cuda_excluded(name: str, family: Family) -> DriverFit | None:
    """Why a machine runs nothing of the CUDA major in the name of a package; None if neither driver nor GPU says so.

    A GPU that is newer than the CUDA may run PTX of the package; one that the CUDA dropped runs nothing of it.
    """
    major, facts = cuda_in_name(name), family.facts
    first = next((one for one in facts.toolkits if major and one.version.startswith(f"{major}.")), None)
    for machine in family.machines if first else ():
        system, driver = machine.platform.os if machine.platform else None, lifted(machine, facts.forward)
        fit = driver_runs(f"{major}.0", driver, system, facts.toolkits, facts.floors)
        for cc in (gpu.cc for gpu in machine.gpus or () if gpu.cc):
            if fit.reason.ok is False:
                return fit
            if first and cc < Arch.parse(first.archs[0]).cc:
                return DriverFit(facts.libraries_serve(first.version, cc), None, None)
    return None


def gpu_excluded(name: str, version: Version, family: Family) -> str | None:
    """Why a release does not support a GPU of the machines, by its documentation; None if that does not say so."""
    for one in family.documented.get(name, ()):
        if not SpecifierSet(one.versions).contains(version, prereleases=True):
            continue
        for gpu in (gpu for machine in family.machines for gpu in machine.gpus or ()):
            below = gpu.cc and one.min_cc and gpu.cc < ComputeCapability.parse(one.min_cc)
            above = gpu.cc and one.max_cc and gpu.cc > ComputeCapability.parse(one.max_cc)
            if below or above:
                limit = f"below compute capability {one.min_cc}" if below else f"above compute capability {one.max_cc}"
                return f"{name} {version} does not support GPUs {limit}; the machine has {gpu.label}"
    return None


# Several machines: which of them planning cannot tell apart, and the torch that any part of them could share.


# What machines that bind together have in common, where none does so alone.
_TRAITS: tuple[Callable[[Machine], Hashable], ...] = (
    lambda machine: frozenset(gpu.compute_capability for gpu in machine.gpus or ()),
    lambda machine: machine.driver.version if machine.driver else None,
    lambda machine: ((machine.platform or Platform()).os, (machine.platform or Platform()).arch),
)


def kind_of(machine: Machine) -> Hashable:
    """The parts of a machine that judging sees: equal for machines that get the same plan."""
    platform = machine.platform or Platform()
    cards = None if machine.gpus is None else frozenset((g.name, g.compute_capability) for g in machine.gpus)
    return platform.os, platform.arch, platform.libc, machine.driver, cards, machine.python


def by_kind(machines: Iterable[Machine]) -> tuple[tuple[Machine, ...], ...]:
    """Groups of machines that planning treats alike, in the order of the first of each kind."""
    kinds: dict[Hashable, list[Machine]] = {}
    for machine in machines:
        kinds.setdefault(kind_of(machine), []).append(machine)
    return tuple(map(tuple, kinds.values()))


class Binding(msgspec.Struct, frozen=True):
    """Machines that hold the others back.

    Attributes:
        held: Their names.
        others: Those of the others.
        torch: What the others would share without them.
    """

    held: str
    others: str
    torch: Option


class Fleet:
    """The torch builds that each of several machines could have by itself, judged once, and those that parts share.

    It covers only the torch family. What it calls impossible is impossible; what it calls possible may still conflict
    with the rest of an environment.

    Args:
        family: The torch family on the machines, in their order.
        limits: The requirements on it.
    """

    def __init__(self, family: Family, limits: Limits) -> None:
        self._machines = family.machines
        self._alone: list[dict[tuple[str, str, str], Option]] = []
        self._best: dict[tuple[int, ...], Option | None] = {}
        for machine in family.machines:
            pairings = replace(family, machines=(machine,)).pairings(limits.asked)
            torches = (torch for torch, *_ in pairings if limits.variant in (None, torch.build.variant))
            self._alone.append({torch.identity: torch for torch in torches})

    def best(self, part: Sequence[int]) -> Option | None:
        """The best torch that runs on all machines of a part, given by their places; None if none does."""
        places = tuple(part)
        if places not in self._best:
            lists = [self._alone[place] for place in places]
            shared = [identity for identity in lists[0] if all(identity in other for other in lists)]
            together = [_merged([options[identity] for options in lists]) for identity in shared]
            self._best[places] = next(iter(in_order(together, "torch")), None)
        return self._best[places]

    def loss(self, part: Sequence[int]) -> int:
        """How many torch builds each machine of a part would have by itself before the best that they share."""
        best = self.best(part)
        return sum(list(self._alone[place]).index(best.identity) for place in part) if best else 0

    def bindings(self, better: Callable[[Option], bool]) -> Iterator[Binding]:
        """Machines that keep the others from a better torch: each by itself or, failing that, a kind.

        Args:
            better: Whether a torch is better than what all of them share.
        """
        names = told_apart(self._machines)
        for parts in self._parts():
            found = []
            for part in parts:
                others = [place for place in range(len(names)) if place not in part]
                without = self.best(others)
                if without is not None and better(without):
                    rest = names[others[0]] if len(others) == 1 else f"the other {len(others)} kinds of machines"
                    found.append(Binding(" and ".join(names[place] for place in part), rest, without))
            if found:
                yield from found
                return

    def _parts(self) -> Iterator[list[list[int]]]:
        """The machines to leave out, by their places: one by one, then all with the same GPUs, driver, system."""
        places = range(len(self._machines))
        yield [[place] for place in places]
        for trait in _TRAITS:
            kinds: dict[Hashable, list[int]] = {}
            for place in places:
                kinds.setdefault(trait(self._machines[place]), []).append(place)
            yield [kind for kind in kinds.values() if 1 < len(kind) < len(places)]


def _merged(options: Sequence[Option]) -> Option:
    """One build on several machines, from its options on each."""
    return Option(tuple(option.build for option in options), worst([option.verdict for option in options]))


# Which of several machines cost the others something, and what those would have without them.


def about_binding(solution: Solution, family: Family, limits: Limits) -> Iterator[PlanWarning]:
    """Machines without which a better torch would be chosen; nothing if something else decides."""
    torch = solution.chosen.get("torch")
    chosen = torch.candidate.option if torch else None
    if chosen is None or len(family.machines) < 2:
        return
    newest = max(Version(option.version.public) for option in family.judged("torch"))
    if chosen.verdict.triton and Version(chosen.version.public) == newest:
        return  # nobody could have more
    fleet = Fleet(family, limits)
    best = fleet.best(range(len(family.machines)))
    if best is None or best.identity != chosen.identity:
        return
    for binding in fleet.bindings(lambda other: _gain(chosen, other) is not None):
        text = f"without {binding.held}, {_gain(chosen, binding.torch)} would run on {binding.others}"
        yield PlanWarning("machine-binds", text, "plan for this machine separately")


def about_companions(solution: Solution, family: Family, limits: Limits) -> Iterator[PlanWarning]:
    """Companions that hold torch back because no build of them for the newest torch is known."""
    torch = solution.chosen.get("torch")
    chosen, wanted = torch.candidate.option if torch else None, limits.asked.get("torch", SpecifierSet())
    best = next(
        (o for o in family.options("torch") if o.matches(wanted) and limits.variant in (None, o.build.variant)), None
    )
    if chosen is None or best is None or Version(best.version.public) <= Version(chosen.version.public):
        return
    newest = SpecifierSet(f"=={best.version.public}")
    lacking = [
        name
        for name, specifier in limits.asked.items()
        if family.follows_torch(name) and next(family.pairings({"torch": newest, name: specifier}), None) is None
    ]
    if lacking:
        text = (
            f"{although_newer(chosen, best)}, because the catalogue has no build of {' or '.join(lacking)} for the "
            "newer torch"
        )
        hint = "you do not have to do anything; to look for newer builds: `envsolve index update`, then plan again"
        yield PlanWarning("torch-held-back", text, hint)


def although_newer(chosen: Option, newer: Option) -> str:
    """The beginning of an answer to the question why a plan has an older torch than the machine runs."""
    return f"the plan has {chosen.label} although {newer.label} is newer and also runs here"


def _gain(chosen: Option, other: Option) -> str | None:
    """The advantages of another torch over the chosen one; None if it has none, or differs only in its variant."""
    if in_order((chosen, other), "torch")[0] is not other:
        return None
    if Version(other.version.public) > Version(chosen.version.public):
        return other.label
    return f"{other.label} with its Triton" if other.verdict.triton and not chosen.verdict.triton else None
