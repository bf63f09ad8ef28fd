"""Rule 9: the torch family of one environment agrees on CUDA flavour and torch minor."""

from __future__ import annotations

import re
from functools import lru_cache

from packaging.specifiers import SpecifierSet

from envsolve.catalogue.model import Build
from envsolve.compat.verdict import Reason
from envsolve.compat.versions import minor

#: Variant of a package whose one build serves every flavour (triton).
ANY = "any"


_specifier = lru_cache(maxsize=1024)(SpecifierSet)


_CUDA_SUFFIX = re.compile(r"^(nvidia-[a-z0-9-]+)-cu(\d+)\b")


def cuda_suffix(requirement: str) -> tuple[str, int] | None:
    """A library of the CUDA runtime and the CUDA major that its name says: ``nvidia-cublas-cu12`` as (stem, 12)."""
    match = _CUDA_SUFFIX.match(requirement)
    return (match[1], int(match[2])) if match else None


def serves_cuda(companion: Build, cuda: str | None) -> bool:
    """Whether a companion that chooses by torch's CUDA version serves this one; None is a CPU build's."""
    return cuda is not None and companion.torch_cuda is not None and _specifier(companion.torch_cuda).contains(cuda)


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
    if companion.torch_cuda:
        same = serves_cuda(companion, torch.cuda)
    elif agrees_on == "major" and companion.cuda and torch.cuda:
        same = minor(companion.cuda)[0] == minor(torch.cuda)[0]
    if not same:
        return Reason("flavour", False, f"{pair}: different CUDA flavours", companion.evidence.value, companion.source)
    if companion.torch and not _specifier(companion.torch).contains(torch.version, prereleases=True):
        text = f"{pair}: built against torch{companion.torch}"
        return Reason("flavour", False, text, companion.evidence.value, companion.source)
    return Reason("flavour", True, pair, companion.evidence.value, companion.source)
