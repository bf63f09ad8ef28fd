"""Verdicts by the thousand: the newest builds of torch, each judged on machines that differ in card and driver.

    python bench/verdicts.py MACHINES BUILDS

With no machines it loads what judging needs, and no more.
"""

from __future__ import annotations

import sys
from itertools import cycle, islice, product

from envsolve.facts.catalogue import Catalogue
from envsolve.machine.completed import machine_from_target
from envsolve.machine.model import Driver, Gpu, Machine, Platform
from envsolve.machine.target import parse_target
from envsolve.rules.judge import Judge
from envsolve.rules.nvidia import Facts

CARDS = ("H100", "A100", "RTX 4090", "L4", "T4", "RTX 5090", "B200", "A10", "V100", "GTX 1080", "RTX 3090", "GB200")


def machines(count: int, catalogue: Catalogue) -> list[Machine]:
    """Machines, no two alike: each card on each of as many drivers as it takes."""
    known = [machine_from_target(parse_target(f"{card}, linux-x86_64"), catalogue).gpus for card in CARDS]
    cards = [card for gpus in known for card in gpus or (Gpu(),)]
    drivers = [Driver(f"{branch}.{patch}.01", cuda) for patch in range(40, 60) for branch, cuda in BRANCHES]
    pairs = islice(cycle(product(drivers, cards)), count)
    place = Platform("linux", "x86_64", "glibc 2.35")
    return [Machine(platform=place, driver=driver, gpus=(card,)) for driver, card in pairs]


BRANCHES = (("535", "12.2"), ("550", "12.4"), ("570", "12.8"), ("580", "13.0"))


def main() -> None:
    """Print how many verdicts there were."""
    wanted, builds = map(int, sys.argv[1:])
    catalogue = Catalogue()
    facts = Facts.of(catalogue)
    newest = catalogue.builds("torch")[-builds:]
    count = 0
    for machine in machines(wanted, catalogue):
        judge = Judge(machine, facts)
        count += sum(len(judge.verdicts(build, "3.12")) for build in newest)
    print(count)


if __name__ == "__main__":
    main()
