"""Several machines: which of them planning cannot tell apart, and the torch that any part of them could share."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

import msgspec
from msgspec.structs import replace

from envsolve.machine.describe import told_apart
from envsolve.machine.model import Machine, Platform
from envsolve.rules.judge import worst
from envsolve.solve.family import Family, Option, in_order
from envsolve.solve.limits import Limits

# What machines that bind together have in common, where none does so alone.
_TRAITS: tuple[Callable[[Machine], Hashable], ...] = (
    lambda machine: frozenset(gpu.compute_capability for gpu in machine.gpus or ()),
    lambda machine: machine.driver.version if machine.driver else None,
    lambda machine: ((machine.platform or Platform()).os, (machine.platform or Platform()).arch),
)


def kind_of(machine: Machine) -> Hashable:
    """What judging sees of a machine: equal for machines that get the same plan."""
    platform = machine.platform or Platform()
    cards = None if machine.gpus is None else frozenset((g.name, g.compute_capability) for g in machine.gpus)
    return platform.os, platform.arch, platform.libc, machine.driver, cards, machine.python


def by_kind(machines: Iterable[Machine]) -> tuple[tuple[Machine, ...], ...]:
    """Machines that planning cannot tell apart together, in the order of the first of each kind."""
    kinds: dict[Hashable, list[Machine]] = {}
    for machine in machines:
        kinds.setdefault(kind_of(machine), []).append(machine)
    return tuple(map(tuple, kinds.values()))


class Binding(msgspec.Struct, frozen=True):
    """Machines that cost the others something.

    Attributes:
        held: Their names.
        others: Those of the others.
        torch: What the others would share without them.
    """

    held: str
    others: str
    torch: Option


class Fleet:
    """The torch builds that each of several machines could have alone, judged once, and those that parts of them share.

    It speaks of the torch family alone: what it calls impossible is, what it calls possible the rest of an environment
    may still forbid.

    Args:
        family: The torch family on the machines, in their order.
        limits: What is asked of it.
    """

    def __init__(self, family: Family, limits: Limits) -> None:
        self._machines = family.machines
        self._alone: list[dict[tuple[str, str, str], Option]] = []
        self._best: dict[tuple[int, ...], Option | None] = {}
        for machine in family.machines:
            pairings = replace(family, machines=(machine,)).pairings(limits.asked)
            torches = (torch for torch, *_ in pairings if limits.flavour in (None, torch.build.variant))
            self._alone.append({torch.identity: torch for torch in torches})

    def best(self, part: Sequence[int]) -> Option | None:
        """The best torch that runs on all machines of a part, given by their places; None where none does."""
        places = tuple(part)
        if places not in self._best:
            lists = [self._alone[place] for place in places]
            shared = [identity for identity in lists[0] if all(identity in other for other in lists)]
            together = [_merged([options[identity] for options in lists]) for identity in shared]
            self._best[places] = next(iter(in_order(together, "torch")), None)
        return self._best[places]

    def loss(self, part: Sequence[int]) -> int:
        """How many torch builds the machines of a part would have, each alone, before the best that they share."""
        best = self.best(part)
        return sum(list(self._alone[place]).index(best.identity) for place in part) if best else 0

    def bindings(self, better: Callable[[Option], bool]) -> Iterator[Binding]:
        """Machines without which the others share something better: each alone or, where none binds alone, a kind.

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
        """The machines to leave out, by their places: each alone, then all with the same cards, driver, system."""
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
