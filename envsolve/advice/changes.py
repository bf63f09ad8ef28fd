"""Changes that make an impossible request solvable: one limit at a time, each tried before it is proposed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice

from msgspec.structs import replace
from packaging.specifiers import SpecifierSet

from envsolve.advice.published import conda_forge, first_that_fits, for_a_gpu, newer_builds, other_cuda, source_build
from envsolve.machine.model import Driver, Gpu, Machine, Platform, told_apart
from envsolve.rules.nvidia import Facts
from envsolve.rules.nvidia.code import cuda_in_name
from envsolve.rules.nvidia.driver import can_exist, compat_releases, compat_serves
from envsolve.rules.verdict import Level
from envsolve.solve.candidate_selector import CandidateSelector
from envsolve.solve.family import Family, Option
from envsolve.solve.limits import Fleet, Limit, Limits, best_of, best_under, cuda_excluded, loosened, without_variant
from envsolve.solve.outcome import Fix
from envsolve.values import ComputeCapability, DriverVersion

#: What a remedy proposes in place of another C library: the oldest that torch's newer wheels accept.
GLIBC_OF_REMEDY = "glibc 2.28"

_WSL = "use Linux: WSL 2 on this machine can also use the GPU"

Answer = Callable[[Family], tuple[Option, ...] | None]
"""The answer for a family on other machines, best options first; None if nothing runs there."""


def remedies(family: Family, limits: Limits, every: Sequence[Limit], core: Sequence[Limit]) -> Iterator[Fix]:
    """Changes to one limit of the conflict that let a build through, the cheapest first; otherwise other hardware."""
    found = tuple(_changes(family, limits, every, core))
    yield from found
    if not any(remedy.unlocks for remedy in found):
        yield from _on_the_cpu(family, limits)
        yield from _on_x86_64(family, limits)
        yield from another_card(family, partial(best_of, limits=limits))


def _changes(family: Family, limits: Limits, every: Sequence[Limit], core: Sequence[Limit]) -> Iterator[Fix]:
    kinds = {limit.kind for limit in core}
    yield from for_a_gpu(family, limits)
    if "gpus" in kinds:
        yield from _own_index(family)
    yield from _without_gpu(family, limits)
    if "exclude_newer" in kinds and (best := best_of(replace(family, exclude_newer=None), limits)):
        yield Fix("leave out --exclude-newer", unlocks=named(best))
    yield from _relaxations(family, limits, every, core)
    yield from other_cuda(family, limits)
    if "python" in kinds:
        yield from another_python(family, limits)
    yield from _fewer_machines(family, limits)
    if "gpus" in kinds:
        yield from fewer_cards(family, partial(best_of, limits=limits))
    if "driver" in kinds:
        yield from _compat_package(family, limits)
        yield from driver_remedy(family, partial(best_of, limits=limits))
    yield from _on_linux(family, limits)
    if kinds & {"gpus", "driver", "libc"}:
        yield from conda_forge(family, limits)
    if "libc" in kinds:
        newer = [replace(m, platform=replace(m.platform or Platform(), libc=GLIBC_OF_REMEDY)) for m in family.machines]
        best = best_of(replace(family, machines=tuple(newer)), limits)
        if best is not None:
            yield Fix(f"use a container or a system with {GLIBC_OF_REMEDY} or newer", unlocks=named(best))
    if "gpus" in kinds:
        yield from newer_builds(family, limits)
        yield from source_build(family, limits)


def _own_index(family: Family) -> Iterator[Fix]:
    """The index with builds for the GPUs of all machines, such as a Jetson's, if no published torch supports them."""
    gpus = [gpu for machine in family.machines for gpu in machine.gpus or ()]
    known = [family.facts.architectures.get(gpu.compute_capability or "") for gpu in gpus]
    places = {one.own_index if one else None for one in known}
    if len(places) == 1 and (place := places.pop()):
        command = f"pip install --index-url {place} torch"
        # Nothing is known of what is there at the moment, so it unlocks nothing for certain.
        yield Fix(
            f"install torch from the index for {gpus[0].label} (envsolve cannot judge the builds there): {command}",
            command,
        )


def another_python(family: Family, limits: Limits) -> Iterator[Fix]:
    """Another Python that the projects allow or, if none helps, one that they would have to allow."""
    for free in (family, replace(family, requires_python=None)):
        others = [(p, best) for p in free.pythons if (best := best_of(replace(free, python=p), limits)) is not None]
        if others:
            pythons, unlocks = [p for p, _ in others], named(others[-1][1])
            allow = f"change requires-python {family.requires_python} to allow Python {', '.join(pythons)}"
            yield use_python(pythons, unlocks) if free is family else Fix(allow, unlocks=unlocks)
            return


def use_python(pythons: Sequence[str], unlocks: str) -> Fix:
    """Proposing other Pythons, oldest first."""
    return Fix(f"use another Python: {', '.join(pythons)}", unlocks=unlocks, pythons=tuple(pythons))


def _relaxations(family: Family, limits: Limits, every: Sequence[Limit], core: Sequence[Limit]) -> Iterator[Fix]:
    """Change one requirement of the request or, if one is not enough, all requirements on the torch family.

    A demand without a specifier can only be given up, which costs more than relaxing another.
    """
    own = [limit for limit in every if limit.kind in ("asked", "variant")]
    single = sorted((limit for limit in own if limit in core), key=lambda limit: not _relaxable(limit, limits))
    for name in [limit.name for limit in single if limit.kind == "asked" and "+" in str(limits.asked[limit.name])]:
        yield from first_that_fits(name, [str(without_variant(limits.asked[name]))], family, limits)
    remedies = [remedy for limit in single if (remedy := _without(family, limits, every, [limit]))]
    if remedies:
        yield from remedies
        return
    # What has no specifier stays if changing the others is enough.
    bounded = [limit for limit in own if _relaxable(limit, limits)]
    changes = (_without(family, limits, every, some) for some in (bounded, own) if some)
    yield from islice(filter(None, changes), 1)


def _without(family: Family, limits: Limits, every: Sequence[Limit], given_up: Sequence[Limit]) -> Fix | None:
    best = best_under(family, limits, [limit for limit in every if limit not in given_up])
    if not best:  # also where nothing would be left of the request
        return None
    verb = "relax" if all(_relaxable(limit, limits) for limit in given_up) else "leave out"
    text = f"{verb} " + " and ".join(demanded(limit, limits) for limit in given_up)
    names = tuple(limit.name for limit in given_up) if all(limit.kind == "asked" for limit in given_up) else ()
    return Fix(text, unlocks=named(best), relaxes=names)


def _relaxable(limit: Limit, limits: Limits) -> bool:
    return limit.kind == "variant" or bool(str(limits.asked[limit.name]))


def demanded(limit: Limit, limits: Limits) -> str:
    """A requirement of the request as the user wrote it."""
    return f"--cuda {limit.name}" if limit.kind == "variant" else f"{limit.name}{limits.asked[limit.name]}"


def _fewer_machines(family: Family, limits: Limits) -> Iterator[Fix]:
    """Machines without which there would be a plan for the others."""
    if len(family.machines) > 1 and family.needs_torch(limits.asked):
        for binding in Fleet(family, limits).bindings(lambda _: True):
            yield Fix(
                f"plan separately for {binding.held} (--allow-groups)",
                unlocks=f"{binding.torch.label} on {binding.others}",
            )


def fewer_cards(family: Family, answer: Answer) -> Iterator[Fix]:
    """A plan for one of several kinds of GPUs in a machine, with the others hidden."""
    mixed = [m.gpus for m in family.machines if m.gpus and len({gpu.compute_capability for gpu in m.gpus}) > 1]
    cards = {gpu.compute_capability: gpu for gpus in mixed for gpu in gpus}
    for gpu in cards.values():
        alone = tuple(replace(machine, gpus=(gpu,)) for machine in family.machines)
        best = answer(replace(family, machines=alone))
        if best is not None:
            yield Fix(
                f"plan only for {gpu.label}, and hide the other GPUs of the machine (CUDA_VISIBLE_DEVICES)",
                unlocks=named(best),
            )


def _without_gpu(family: Family, limits: Limits) -> Iterator[Fix]:
    """An environment that uses no GPU, if the request matches only CPU builds."""
    without = replace(family, machines=tuple(replace(machine, gpus=()) for machine in family.machines))
    matching = [o for o in family.judged("torch") if o.matches(limits.asked.get("torch", SpecifierSet()))]
    only_cpu = matching and all(option.build.variant == "cpu" for option in matching)
    if only_cpu and family.needs_torch(limits.asked):
        best = best_of(without, limits)
        if best is not None:
            yield Fix("plan an environment that does not use the GPU: --cuda cpu", unlocks=named(best))


def another_card(family: Family, answer: Answer) -> Iterator[Fix]:
    """The oldest GPU generation after the machine's own for which an answer exists, otherwise the newest before it."""
    own = [gpu.cc for machine in family.machines for gpu in machine.gpus or () if gpu.cc]
    if len(family.machines) > 1 or len(own) != 1:
        return
    (machine,) = family.machines
    known = sorted(family.catalogue.gpus, key=lambda model: bool(model.data_centre))
    models = {model.compute_capability: model.name for model in known}  # those of data centres go before others
    ordered = sorted(map(ComputeCapability.parse, models))
    for cc in (*(cc for cc in ordered if cc > own[0]), *(cc for cc in reversed(ordered) if cc < own[0])):
        gpu = Gpu(models[str(cc)], str(cc))
        exists = can_exist(gpu, machine.driver, family.facts.architectures, family.facts.drivers).ok
        if exists is False or family.facts.architectures[str(cc)].island:
            continue
        best = answer(replace(family, machines=(replace(machine, gpus=(gpu,)),)))
        if best is not None and all(_known(option) for option in best):
            yield Fix(f"use another GPU, such as {gpu.label}", unlocks=named(best))
            return


def _on_linux(family: Family, limits: Limits) -> Iterator[Fix]:
    """The same GPU under Linux, if Windows has no build."""
    linux = _under_linux(family)
    best = best_of(linux, limits) if linux else None
    if best is not None:
        yield Fix(_WSL, unlocks=named(best))


def linux_instead(name: str, family: Family) -> Iterator[Fix]:
    """Linux on the same machines, if a package has a build for that and none for Windows."""
    linux = _under_linux(family)
    found = next(iter(linux.options(name)), None) if linux else None
    if found is not None:
        yield Fix(_WSL, unlocks=found.label)


def _under_linux(family: Family) -> Family | None:
    """The family on the same machines under Linux; None if not all of them run Windows."""
    if not all(machine.platform and machine.platform.os == "windows" for machine in family.machines):
        return None
    linux = (replace(m, platform=Platform("linux", "x86_64", wsl=True)) for m in family.machines)
    return replace(family, machines=tuple(linux))


def _on_x86_64(family: Family, limits: Limits) -> Iterator[Fix]:
    """The x86_64 architecture, for which more builds are published."""
    if not all(machine.platform and machine.platform.arch == "aarch64" for machine in family.machines):
        return
    others = tuple(replace(m, platform=replace(m.platform or Platform(), arch="x86_64")) for m in family.machines)
    best = best_of(replace(family, machines=others), limits)
    if best is not None:
        yield Fix("use a machine with an x86_64 processor", unlocks=named(best))


def _on_the_cpu(family: Family, limits: Limits) -> Iterator[Fix]:
    """An environment that does not use the GPUs."""
    without = replace(family, machines=tuple(replace(machine, gpus=()) for machine in family.machines))
    best = best_of(without, limits) if limits.variant is None and family.needs_torch(limits.asked) else None
    if best is not None:
        yield Fix("compute on the CPU: --cuda cpu", unlocks=named(best))


def _compat_package(family: Family, limits: Limits) -> Iterator[Fix]:
    """The oldest cuda-compat package that lets a build through, on the machines that it supports (rule 8)."""
    facts = family.facts.forward
    if not any(machine.gpus and machine.driver and machine.driver.version for machine in family.machines):
        return
    for cuda in compat_releases(facts):
        with_it = tuple(machine.with_compat(cuda) for machine in family.machines)
        served = [bool((reason := compat_serves(machine, facts)) and reason.ok) for machine in with_it]
        best = _best_with(family, with_it, served, partial(best_of, limits=limits))
        if best is not None and all(_known(option) for option in best):
            package = f"cuda-compat-{cuda.replace('.', '-')}"
            where = _where(family.machines, served)
            yield Fix(
                f"keep the driver, install {package} and put its libcuda first on the loader path{where}",
                unlocks=named(best),
            )
            return


def _known(option: Option) -> bool:
    """Whether a package's code is known to run, or is not judged by the rules."""
    return option.verdict.level.usable or not option.build.cuda


def driver_remedy(family: Family, answer: Answer) -> Iterator[Fix]:
    """The oldest driver that lets a build through and drops none of the GPUs of the machines that need it."""
    facts = family.facts
    for driver in known_drivers(facts):
        older = [_is_older(machine, driver) for machine in family.machines]
        cards = [
            gpu
            for machine, is_older in zip(family.machines, older, strict=True)
            if is_older
            for gpu in machine.gpus or ()
        ]
        if any(can_exist(gpu, driver, facts.architectures, facts.drivers).ok is False for gpu in cards):
            continue
        best = _best_with(family, [replace(m, driver=driver) for m in family.machines], older, answer)
        if best is not None:
            where = _where(family.machines, older)
            branch = (driver.version or "").partition(".")[0]
            yield Fix(f"install driver {driver.version} or newer (branch R{branch}){where}", unlocks=named(best))
            return


def driver_for(family: Family, wanted: Option) -> Fix | None:
    """The oldest driver with which a torch and its Triton run."""

    def answer(newer: Family) -> tuple[Option, ...] | None:
        found = (o for o in newer.options("torch") if o.identity == wanted.identity and o.verdict.triton)
        return next(((option,) for option in found), None)

    return next(driver_remedy(family, answer), None)


def known_drivers(facts: Facts) -> Sequence[Driver]:
    """The first driver of every branch, and the floors of the CUDA families, which lie within one; oldest first."""
    first = {branch.branch: branch for branch in facts.drivers}
    within = [floor.linux for floor in facts.floors]
    floors = [Driver(version, first[name].cuda) for version in within if (name := version.partition(".")[0]) in first]
    # What came before the floor in its branch was a beta.
    later = {version.partition(".")[0] for version in within}
    firsts = [Driver(branch.first, branch.cuda) for branch in facts.drivers if branch.branch not in later]
    return sorted((*firsts, *floors), key=lambda driver: DriverVersion.parse(driver.version or ""))


def _is_older(machine: Machine, driver: Driver) -> bool:
    """Whether a driver would be an upgrade; also where the machine's driver is not known."""
    have = machine.driver.version if machine.driver else None
    return not have or bool(DriverVersion.parse(driver.version or "").reaches(have) and have != driver.version)


def _best_with(
    family: Family, changed: Sequence[Machine], which: Sequence[bool], answer: Answer
) -> tuple[Option, ...] | None:
    """The best options after changing some of the machines; None if there are none, or if nothing changes."""
    pairs = zip(family.machines, changed, which, strict=True)
    machines = tuple(new if taken else old for old, new, taken in pairs)
    return answer(replace(family, machines=machines)) if any(which) else None


def _where(machines: Sequence[Machine], which: Sequence[bool]) -> str:
    """On which of several machines a change must be made."""
    names = [name for name, chosen in zip(told_apart(machines), which, strict=True) if chosen]
    return f" on {' and on '.join(names)}" if len(machines) > 1 else ""


def named(options: Sequence[Option]) -> str:
    """The effect of a change, in words."""
    if not options:
        return ""
    first, *others = options
    level = "" if first.verdict.level in (Level.NATIVE, Level.FAMILY) else f" ({first.verdict.level.value})"
    rest = ", ".join(f"{o.build.package} {o.build.version}" for o in others)
    return first.label + level + (f" with {rest}" if rest else "")


# Where no single change helps: the limits that must be lifted together, the dearest of them kept where they can be.


# What costs most to change comes first: a GPU, a driver; and what was asked for before the place where it runs.
_DEAREST = ("gpus", "driver", "asked", "variant", "exclude_newer", "libc", "python")


def combined_change(family: Family, limits: Limits, every: Sequence[Limit]) -> Fix | None:
    """The smallest set of changes that help together; None if no changes help.

    Args:
        family: The torch family on the machines.
        limits: The requirements of the request on it.
        every: All limits, under which nothing fits.
    """
    kept: list[Limit] = []
    for limit in sorted(every, key=lambda limit: _DEAREST.index(limit.kind)):
        if best_under(family, limits, [*kept, limit]):
            kept.append(limit)
    best = best_under(family, limits, kept)
    # Nothing that was asked for may be left; what runs on an unknown GPU or driver is no promise.
    if not best or not all(map(_known, best)):
        return None
    given_up = sorted((limit for limit in every if limit not in kept), key=lambda limit: -_DEAREST.index(limit.kind))
    loose, rest = loosened(family, limits, kept)
    changes = dict.fromkeys(_change(limit, loose, rest, limits) for limit in given_up)
    return Fix("make all of these changes: " + "; ".join(changes), unlocks=named(best))


def _change(limit: Limit, loose: Family, rest: Limits, limits: Limits) -> str:
    """The effect of lifting one limit if the others are also lifted."""
    if limit.kind in ("asked", "variant"):
        return f"relax {demanded(limit, limits)}"
    if limit.kind == "exclude_newer":
        return "leave out --exclude-newer"
    if limit.kind == "libc":
        return f"use a container or a system with {GLIBC_OF_REMEDY} or newer"
    if limit.kind == "python":
        return f"use Python {', '.join(p for p in loose.pythons if best_of(replace(loose, python=p), rest))}"
    if limit.kind == "driver":
        remedy = next(driver_remedy(loose, partial(best_of, limits=rest)), None)
        return remedy.text if remedy else "use another driver"
    return "use another GPU" if limit.name else "plan for a machine with a GPU"


def for_another_driver(name: str, family: Family, selector: CandidateSelector) -> Iterator[Fix]:
    """The same package for an older CUDA, or a driver for its CUDA, if the machine cannot run the one in its name."""
    fit, major = cuda_excluded(name, family), cuda_in_name(name)
    for older in range((major or 0) - 1, 10, -1) if fit else ():
        sibling = re.sub(rf"(-cu(?:da)?){major}", rf"\g<1>{older}", name)
        found = None if cuda_excluded(sibling, family) else next(selector.candidates(sibling, SpecifierSet()), None)
        if found:
            yield Fix(f"request {sibling} instead of {name}", unlocks=f"{sibling} {found[0]}", replaces=(name, sibling))
            break
    drivers, gpus = family.facts.drivers, [gpu for machine in family.machines for gpu in machine.gpus or ()]
    newer = Driver(version=fit.required) if fit and fit.required else None
    if newer and all(can_exist(gpu, newer, family.facts.architectures, drivers).ok for gpu in gpus):
        yield Fix(f"install driver {newer.version} or newer", unlocks=name)
