"""Torch compiled from source, for cards that no published build has code for (rule 10)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from envsolve.compat.code import libraries_serve
from envsolve.compat.facts import Facts
from envsolve.compat.judge import Judge
from envsolve.compat.toolchain import CompilerFacts, arch_list, gcc_for
from envsolve.machine.cc import ComputeCapability
from envsolve.resolve.family import Family, Option
from envsolve.resolve.limits import Limits
from envsolve.resolve.outcome import Remedy

# What a build of one's own is as bound by as a published one.
_BINDING = ("driver-floor", "life")


def source_build(family: Family, limits: Limits) -> Iterator[Remedy]:
    """The newest torch that can be asked to compile for every card, with a CUDA that it is published for.

    That CUDA's nvcc and libraries know the cards, and the drivers run it. Whether the sources do compile for them is
    known only to those who tried. Nothing where more than torch is asked.
    """
    specifier = limits.asked["torch"] if [*limits.asked] == ["torch"] else None
    cards = sorted({gpu.cc for machine in family.machines for gpu in machine.gpus or () if gpu.cc})
    if specifier is None or not cards:
        return
    compilers = CompilerFacts.of(family.catalogue)
    for option in family.judged("torch"):
        if not option.matches(specifier) or limits.flavour not in (None, option.build.variant):
            continue
        archs, listed = arch_list(option.build, cards, compilers)
        if listed.ok and _runs(option, cards, family):
            gcc = gcc_for(option.build, compilers).preferred
            tools = f"nvcc {option.build.cuda}" + (f", gcc {gcc}" if gcc else "")
            action = f"compile torch {option.build.version} from source: {tools}, TORCH_CUDA_ARCH_LIST={archs}"
            yield Remedy(action, f"code for {' '.join(cc.sm for cc in cards)}, if the sources still compile for it")
            return


def _runs(option: Option, cards: Sequence[ComputeCapability], family: Family) -> bool:
    """Whether, with code for the cards in it, a build would run on the machines."""
    facts: Facts = family.facts
    cuda = option.build.cuda or ""
    served = all(libraries_serve(cuda, cc, facts.toolkits, facts.architectures).ok for cc in cards)
    if not served:
        return False
    judges = (Judge(machine, facts) for machine in family.machines)
    verdicts = [v for judge in judges for v in judge.verdicts(option.build, None)]
    return all(reason.ok for verdict in verdicts for reason in verdict.reasons if reason.rule in _BINDING)
