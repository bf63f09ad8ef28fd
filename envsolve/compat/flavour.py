"""Rule 9: the torch family of one environment agrees on CUDA flavour and torch minor."""

from __future__ import annotations

from functools import lru_cache

from packaging.specifiers import SpecifierSet

from envsolve.catalogue.model import Build
from envsolve.compat.verdict import Reason
from envsolve.compat.versions import minor

#: Variant of a package whose one build serves every flavour (triton).
ANY = "any"


_specifier = lru_cache(maxsize=1024)(SpecifierSet)


def agrees(companion: Build, torch: Build, agrees_on: str) -> Reason:
    """Rule 9: a companion shares torch's variant or CUDA major, and this torch is one that its ABI accepts.

    Source: METADATA of the companions, and PyTorch's compatibility table where METADATA is silent.

    Args:
        companion: A build of another package of the family.
        torch: A build of torch.
        agrees_on: ``variant``, ``major`` or ``nothing``: see :class:`FamilyMember`.
    """
    pair = f"{companion.package} {companion.version} [{companion.variant}] with torch {torch.version} [{torch.variant}]"
    same = companion.variant in (ANY, torch.variant) or agrees_on == "nothing"
    if agrees_on == "major" and companion.cuda and torch.cuda:
        same = minor(companion.cuda)[0] == minor(torch.cuda)[0]
    if not same:
        return Reason("flavour", False, f"{pair}: different CUDA flavours", companion.evidence.value, companion.source)
    if companion.torch and not _specifier(companion.torch).contains(torch.version, prereleases=True):
        text = f"{pair}: built against torch{companion.torch}"
        return Reason("flavour", False, text, companion.evidence.value, companion.source)
    return Reason("flavour", True, pair, companion.evidence.value, companion.source)
