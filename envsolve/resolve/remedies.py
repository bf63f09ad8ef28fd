"""What would make an impossible request fit: one limit changed at a time, each answer tried before it is given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from packaging.specifiers import SpecifierSet

from envsolve.compat.forward import compat_releases, compat_serves
from envsolve.compat.life import can_exist
from envsolve.compat.verdict import Level
from envsolve.compat.versions import reaches
from envsolve.machine.model import Driver, Machine, Platform
from envsolve.resolve.family import Family, Option
from envsolve.resolve.limits import Limit, Limits, best_under
from envsolve.resolve.outcome import Remedy

#: CPython versions that a remedy may propose: those that torch was ever published for.
_PYTHONS = tuple(f"3.{minor}" for minor in range(7, 16))
_GLIBC_OF_REMEDY = "glibc 2.28"


def remedies(family: Family, limits: Limits, every: Sequence[Limit], core: Sequence[Limit]) -> Iterator[Remedy]:
    """Changes to one limit of the conflict that let a build through, the cheapest first."""
    kinds = {limit.kind for limit in core}
    yield from _without_gpu(family, limits, every)
    yield from _relaxations(family, limits, every, core)
    if "python" in kinds:
        others = [(p, best) for p in _PYTHONS if (best := best_under(replace(family, python=p), limits, every))]
        if others:
            names = ", ".join(p for p, _ in others)
            yield Remedy(f"use another Python: {names}", _named(others[-1][1]))
    if "gpus" in kinds:
        yield from _fewer_cards(family, limits, every)
    if "driver" in kinds:
        yield from _compat_package(family, limits, every)
        yield from _driver_remedy(family, limits, every)
    if "libc" in kinds:
        newer = [replace(m, platform=replace(m.platform or Platform(), libc=_GLIBC_OF_REMEDY)) for m in family.machines]
        best = best_under(replace(family, machines=tuple(newer)), limits, every)
        if best is not None:
            yield Remedy(f"run in a container, or on a system, with {_GLIBC_OF_REMEDY} or newer", _named(best))


def _relaxations(family: Family, limits: Limits, every: Sequence[Limit], core: Sequence[Limit]) -> Iterator[Remedy]:
    """One demand of the request changed or, where one is not enough, all demands on the family together.

    A demand without a specifier can only be given up, which costs more than relaxing another.
    """
    own = [limit for limit in every if limit.kind in ("asked", "flavour")]
    single = sorted((limit for limit in own if limit in core), key=lambda limit: not _relaxable(limit, limits))
    remedies = [remedy for limit in single if (remedy := _without(family, limits, every, [limit]))]
    together = _without(family, limits, every, own) if own and not remedies else None
    yield from remedies or filter(None, [together])


def _without(family: Family, limits: Limits, every: Sequence[Limit], given_up: Sequence[Limit]) -> Remedy | None:
    best = best_under(family, limits, [limit for limit in every if limit not in given_up])
    if best is None:
        return None
    verb = "relax" if all(_relaxable(limit, limits) for limit in given_up) else "give up"
    return Remedy(f"{verb} " + " and ".join(_demand(limit, limits) for limit in given_up), _named(best))


def _relaxable(limit: Limit, limits: Limits) -> bool:
    return limit.kind == "flavour" or bool(str(limits.asked[limit.name]))


def _demand(limit: Limit, limits: Limits) -> str:
    return f"--cuda {limit.name}" if limit.kind == "flavour" else f"{limit.name}{limits.asked[limit.name]}"


def _fewer_cards(family: Family, limits: Limits, every: Sequence[Limit]) -> Iterator[Remedy]:
    """A plan for each of several kinds of cards alone."""
    cards = {gpu.compute_capability: gpu for machine in family.machines for gpu in machine.gpus or ()}
    for gpu in cards.values() if len(cards) > 1 else ():
        alone = tuple(replace(machine, gpus=(gpu,)) for machine in family.machines)
        best = best_under(replace(family, machines=alone), limits, every)
        if best is not None:
            yield Remedy(f"plan for {gpu.label} alone, and hide the others there (CUDA_VISIBLE_DEVICES)", _named(best))


def _without_gpu(family: Family, limits: Limits, every: Sequence[Limit]) -> Iterator[Remedy]:
    """An environment that uses no GPU, where only CPU builds were asked for."""
    without = replace(family, machines=tuple(replace(machine, gpus=()) for machine in family.machines))
    named = [o for o in family.judged("torch") if o.matches(limits.asked.get("torch", SpecifierSet()))]
    if named and all(option.build.variant == "cpu" for option in named):
        best = best_under(without, limits, every)
        if best is not None:
            yield Remedy("ask for an environment that uses no GPU: --cuda cpu", _named(best))


def _compat_package(family: Family, limits: Limits, every: Sequence[Limit]) -> Iterator[Remedy]:
    """The oldest cuda-compat package that lets a build through, on the machines that it may serve (rule 8)."""
    facts = family.facts.forward
    if not any(machine.gpus and machine.driver and machine.driver.version for machine in family.machines):
        return
    for cuda in compat_releases(facts):
        with_it = tuple(_with_compat(machine, cuda) for machine in family.machines)
        served = [(reason := compat_serves(machine, facts)) is not None and reason.ok for machine in with_it]
        machines = tuple(
            new if serves else old for old, new, serves in zip(family.machines, with_it, served, strict=True)
        )
        best = best_under(replace(family, machines=machines), limits, every) if any(served) else None
        if best is not None:
            package = f"cuda-compat-{cuda.replace('.', '-')}"
            yield Remedy(f"keep the driver and put the libcuda of {package} first on the loader path", _named(best))
            return


def _with_compat(machine: Machine, cuda: str) -> Machine:
    return replace(machine, driver=replace(machine.driver or Driver(), compat_libcuda=cuda))


def _driver_remedy(family: Family, limits: Limits, every: Sequence[Limit]) -> Iterator[Remedy]:
    """The oldest driver branch that lets a build through and drops none of the cards."""
    for branch in family.catalogue.drivers:
        driver = Driver(branch.first, branch.cuda)
        if any(m.driver and m.driver.version and not reaches(branch.first, m.driver.version) for m in family.machines):
            continue
        facts, cards = family.facts, [gpu for machine in family.machines for gpu in machine.gpus or ()]
        if any(can_exist(gpu, driver, facts.architectures, facts.drivers).ok is False for gpu in cards):
            continue
        best = best_under(
            replace(family, machines=tuple(replace(m, driver=driver) for m in family.machines)), limits, every
        )
        if best is not None:
            yield Remedy(f"install driver {branch.first} or newer (branch R{branch.branch})", _named(best))
            return


def _named(options: Sequence[Option]) -> str:
    torch, *companions = options
    level = "" if torch.verdict.level in (Level.NATIVE, Level.FAMILY) else f" ({torch.verdict.level.value})"
    others = ", ".join(f"{o.build.package} {o.build.version}" for o in companions)
    return f"torch {torch.build.version} [{torch.build.variant}]{level}" + (f" with {others}" if others else "")
