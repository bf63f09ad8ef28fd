"""Slurm: features that only nodes of a plan have, or the nodes of the others excluded.

Nodes that did not answer do not count: they may be of any class, and the job itself finds out which.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations

from envsolve.facts.catalogue import Catalogue
from envsolve.fleet.model import Inventory, names_folded
from envsolve.planning.lock import Assumptions


def requirements(assumes: Assumptions, nodes: Sequence[str], inventory: Inventory, _: Catalogue) -> tuple[str, ...]:
    """Return options of ``sbatch`` and ``srun``."""
    return tuple(_options(set(nodes), inventory, uses_gpus=bool(assumes.gpus)))


def _options(nodes: set[str], inventory: Inventory, *, uses_gpus: bool) -> Iterator[str]:
    labels = inventory.labels
    known = inventory.class_of.keys()
    others = {node for node in known if node not in nodes}
    if not labels:
        return
    if uses_gpus and any(labels[node].gres for node in nodes if node in labels):
        yield "--gres=gpu:1"
    if not others:
        return
    choices = _telling(nodes, known, inventory)
    chosen, left = [], set(nodes)
    while left and (best := max(choices, key=lambda name: (len(choices[name] & left), name), default=None)):
        if not choices[best] & left:
            break
        chosen.append(best)
        left -= choices[best]
    if left:
        # No features tell them apart, and a job must not start on the others.
        yield f"--exclude={names_folded(others)}"
    else:
        yield f'--constraint="{"|".join(sorted(chosen))}"'


def _telling(nodes: set[str], known: Collection[str], inventory: Inventory) -> Mapping[str, set[str]]:
    """Features, and pairs of them, that no known node outside has, each with the nodes that have it."""
    having: dict[str, set[str]] = {}
    for node in known:
        for feature in inventory.labels[node].features if node in inventory.labels else ():
            having.setdefault(feature, set()).add(node)
    alone = {name: own for name, own in having.items() if own <= nodes}
    rest = sorted(having.keys() - alone.keys())
    pairs = {f"({one}&{other})": having[one] & having[other] for one, other in combinations(rest, 2)}
    return alone | {name: own for name, own in pairs.items() if own and own <= nodes}
