"""Cards that came after every published torch: what to look for instead."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace
from packaging.specifiers import SpecifierSet

from envsolve.compat.code import best_code
from envsolve.compat.versions import minor
from envsolve.machine.cc import ComputeCapability
from envsolve.resolve.family import Family
from envsolve.resolve.limits import Limits, best_of
from envsolve.resolve.outcome import Remedy

_MEASURE = "envsolve index measure URL reads which GPUs its wheel has code for"


def newer_builds(family: Family, limits: Limits) -> Iterator[Remedy]:
    """A pre-release for each such card, with the first CUDA that knows it; they are in no catalogue, and not judged."""
    family = replace(family, cutoff=None)
    newest = max((minor(option.build.cuda) for option in family.judged("torch") if option.build.cuda), default=None)
    if newest is None or not family.needs_torch(limits.asked):
        return
    toolkits = family.facts.toolkits
    for cc in _unserved(family):
        knows = (t for t in toolkits if best_code(t.archs, cc, family.facts.architectures)[0].usable)
        first = next(knows, None)
        if first is None:
            text = f"no CUDA up to {toolkits[-1].version} knows {cc.sm}: look for newer facts (envsolve index update)"
            yield Remedy(f"{text}, or for a pre-release of torch; {_MEASURE}", "")
        elif minor(first.version) > newest:
            built = f"built with CUDA {first.version} or newer, the first that knows {cc.sm}"
            yield Remedy(f"look for a pre-release of torch {built}; {_MEASURE}", "")


def _unserved(family: Family) -> Iterator[ComputeCapability]:
    """The compute capabilities that no torch serves, whatever the driver, the Python and the request."""
    told: set[ComputeCapability] = set()
    for machine in family.machines:
        for gpu in machine.gpus or ():
            if gpu.cc is not None and gpu.cc not in told:
                told.add(gpu.cc)
                alone = replace(machine, gpus=(gpu,), driver=None)
                if (
                    best_of(replace(family, machines=(alone,), python=None), Limits({"torch": SpecifierSet()}, None))
                    is None
                ):
                    yield gpu.cc
