"""Rules 3, 4 and 5: which GPU code runs on which card."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from envsolve.catalogue.model import Architecture, Toolkit
from envsolve.compat.arch import Arch, parse_arch
from envsolve.compat.verdict import Level, Reason
from envsolve.compat.versions import minor
from envsolve.machine.cc import ComputeCapability

Architectures = Mapping[str, Architecture]


def sass_level(arch: Arch, cc: ComputeCapability, architectures: Architectures) -> Level:
    """Rule 3: ``sm_XY`` runs on cc ``X.Z`` with ``Z >= Y``, same major only.

    ``a`` forms run on exactly their card, ``f`` forms on their family. Tegra parts are islands: their code serves no
    desktop part and none serves them. Source: CUDA C++ Programming Guide, "Binary Compatibility" and "Family-Specific
    Features".
    """
    made_for = _current_name(arch.cc, architectures)
    card = _current_name(cc, architectures)
    if made_for == card:
        return Level.NATIVE
    if arch.suffix == "a" or made_for.major != card.major or made_for.minor > card.minor:
        return Level.NONE
    if _is_island(made_for, architectures) or _is_island(card, architectures):
        return Level.NONE
    return Level.FAMILY


def ptx_level(arch: Arch, cc: ComputeCapability, architectures: Architectures) -> Level:
    """Rule 4: ``compute_XY`` compiles for any cc >= X.Y; ``a`` forms never forward.

    Source: CUDA C++ Programming Guide, "PTX Compatibility".
    """
    made_for, card = _current_name(arch.cc, architectures), _current_name(cc, architectures)
    if arch.suffix == "a":
        return Level.PTX if made_for == card else Level.NONE
    if arch.suffix == "f":
        return Level.PTX if made_for.major == card.major and made_for <= card else Level.NONE
    return Level.PTX if made_for <= card else Level.NONE


def best_code(names: Iterable[str], cc: ComputeCapability, architectures: Architectures) -> tuple[Level, Arch | None]:
    """The piece of SASS, else of PTX, that a card runs, and at which level; ``(NONE, None)`` where there is none."""
    best: tuple[Level, Arch | None] = (Level.NONE, None)
    for name in names:
        arch = parse_arch(name)
        level = (sass_level if arch.kind == "sass" else ptx_level)(arch, cc, architectures)
        newer = best[1] is not None and level == best[0] and arch.cc > best[1].cc
        if level.rank < best[0].rank or newer:
            best = (level, arch)
    return best


def libraries_serve(
    cuda: str, cc: ComputeCapability, toolkits: Sequence[Toolkit], architectures: Architectures
) -> Reason:
    """Rule 5: cuBLAS, cuDNN, NCCL and NVRTC of a toolkit carry code only for the GPUs which that toolkit knew.

    So PTX in torch alone saves neither a card younger than the toolkit nor one that the toolkit dropped. The toolkit
    serves a card if SASS that it can make runs there (rule 3). Source: release notes of each toolkit.
    """
    toolkit = next((t for t in toolkits if minor(t.version) == minor(cuda)), None)
    if toolkit is None:
        return Reason("libraries", None, f"the GPUs that CUDA {cuda} serves are not known")
    level, _ = best_code(toolkit.archs, cc, architectures)
    verb = "serve" if level.usable else "do not serve"
    known = f"{toolkit.archs[0]} to {toolkit.archs[-1]}"
    text = f"the libraries of CUDA {toolkit.version} ({known}) {verb} cc {cc}"
    return Reason("libraries", level.usable, text, toolkit.evidence.value, toolkit.source)


def _current_name(cc: ComputeCapability, architectures: Architectures) -> ComputeCapability:
    """The name that newer toolkits use: Thor was 10.1 in CUDA 12 and is 11.0 in CUDA 13."""
    known = architectures.get(str(cc))
    return ComputeCapability.parse(known.alias_of) if known and known.alias_of else cc


def _is_island(cc: ComputeCapability, architectures: Architectures) -> bool:
    known = architectures.get(str(cc))
    return known is not None and known.island
