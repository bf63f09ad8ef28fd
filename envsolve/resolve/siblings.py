"""The same project published under several names, one for each CUDA: ``cupy-cuda11x`` beside ``cupy-cuda12x``."""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec.structs import replace
from packaging.specifiers import SpecifierSet

from envsolve.resolve.family import Family
from envsolve.resolve.limits import Limits, best_of
from envsolve.resolve.outcome import Remedy

_CUDA = re.compile(r"(?<=-)(cuda|cu)\d+x?(?=-|$)")


def other_cuda(family: Family, limits: Limits) -> Iterator[Remedy]:
    """To ask for a package's sibling for another CUDA, the newest that has an answer."""
    for name in limits.asked:
        stem = _CUDA.sub("", name)
        if stem == name:
            continue
        found = []
        for sibling in family.catalogue.family:
            if sibling != name and _CUDA.sub("", sibling) == stem and family.options(sibling):
                rest = {other: specifier for other, specifier in limits.asked.items() if other != name}
                best = best_of(family, replace(limits, asked={**rest, sibling: SpecifierSet()}))
                option = next((o for o in best or () if o.build.package == sibling), None)
                if option is not None and option.verdict.level.usable:
                    found.append(option)
        if found:
            newest = max(found, key=lambda option: option.version)
            yield Remedy(f"ask for {newest.build.package} instead of {name}", newest.label)
