"""Rule 9: the torch family of one environment agrees on CUDA flavour and torch minor."""

from __future__ import annotations

from packaging.specifiers import SpecifierSet

from envsolve.catalogue.model import Build
from envsolve.compat.verdict import Reason

#: Variant of a package whose one build serves every flavour (triton).
ANY = "any"


def agrees(companion: Build, torch: Build) -> Reason:
    """Rule 9: a companion has torch's variant, and this torch is one that its ABI accepts.

    A companion's ``cpu`` build beside a CUDA torch shares torch's CPU ABI: it loads, without GPU code of its own.
    Source: METADATA of the companions, and PyTorch's compatibility table where METADATA is silent.
    """
    pair = f"{companion.package} {companion.version} [{companion.variant}] with torch {torch.version} [{torch.variant}]"
    if companion.variant not in (ANY, "cpu", torch.variant):
        return Reason("flavour", False, f"{pair}: different CUDA flavours", companion.evidence.value, companion.source)
    if companion.torch and not SpecifierSet(companion.torch).contains(torch.version, prereleases=True):
        text = f"{pair}: built against torch{companion.torch}"
        return Reason("flavour", False, text, companion.evidence.value, companion.source)
    return Reason("flavour", True, pair, companion.evidence.value, companion.source)
