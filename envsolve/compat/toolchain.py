"""Rule 10: what compiling CUDA code against a torch build takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from envsolve.catalogue.load import Catalogue
from envsolve.catalogue.model import Architecture, Build, CompilerPackages, CxxStandard, Toolkit, TorchExtension
from envsolve.compat.arch import parse_arch
from envsolve.compat.code import best_code, sass_level
from envsolve.compat.verdict import Level, Reason
from envsolve.compat.versions import minor
from envsolve.machine.cc import ComputeCapability


@dataclass(frozen=True, slots=True)
class CompilerFacts:
    """The tables of the catalogue that this rule reads."""

    toolkits: Sequence[Toolkit]
    architectures: Mapping[str, Architecture]
    extensions: Mapping[str, TorchExtension]
    standards: Mapping[int, CxxStandard]

    @classmethod
    def of(cls, catalogue: Catalogue) -> CompilerFacts:
        """Take the tables out of a catalogue."""
        return cls(catalogue.toolkits, catalogue.architectures, catalogue.torch_extensions, catalogue.cxx_standards)


@dataclass(frozen=True, slots=True)
class GccRange:
    """The gcc majors that compile extensions, both ends included; None for no bound that is known.

    Attributes:
        preferred: The one that compiled torch itself, where it is in the range, else the nearest in it.
        reasons: Which fact makes each bound.
    """

    first: int | None
    last: int | None
    preferred: int | None
    reasons: tuple[Reason, ...]

    def holds(self, major: int) -> bool:
        """Whether a gcc of that major is in the range."""
        return (self.first is None or self.first <= major) and (self.last is None or major <= self.last)

    @property
    def empty(self) -> bool:
        """Whether no gcc compiles it."""
        return self.first is not None and self.last is not None and self.first > self.last


def nvcc_for(torch: Build, cards: Iterable[ComputeCapability], facts: CompilerFacts) -> tuple[str | None, Reason]:
    """The nvcc to compile with: of torch's own CUDA version, since ``torch.utils.cpp_extension`` refuses another major.

    Returns:
        The CUDA version, ``12.8``, None for a build without CUDA; and whether that nvcc can make code for every card.
    """
    if torch.cuda is None:
        return None, Reason("toolchain", False, f"torch {torch.version} {torch.variant} has no CUDA to compile against")
    toolkit = _toolkit(torch.cuda, facts)
    if toolkit is None:
        return torch.cuda, Reason("toolchain", None, f"the GPUs that nvcc {torch.cuda} knows are not recorded")
    unknown = [str(cc) for cc in cards if not best_code(toolkit.archs, cc, facts.architectures)[0].usable]
    text = f"nvcc {torch.cuda} " + (f"cannot compile for cc {', '.join(unknown)}" if unknown else "knows every card")
    return torch.cuda, Reason("toolchain", not unknown, text, toolkit.evidence.value, toolkit.source)


def gcc_for(torch: Build, facts: CompilerFacts) -> GccRange:
    """The host compilers within nvcc's limit, torch's own limit for that CUDA, and its headers' C++ standard."""
    lower: list[tuple[int, Reason]] = []
    upper: list[tuple[int, Reason]] = []
    toolkit = _toolkit(torch.cuda, facts) if torch.cuda else None
    if toolkit is not None and toolkit.gcc_max is not None:
        upper.append((toolkit.gcc_max, _reason(f"nvcc {toolkit.version} takes gcc up to {toolkit.gcc_max}", toolkit)))
    extension = facts.extensions.get(torch.version)
    if extension is not None:
        if extension.gcc_min is not None:
            text = f"the headers of torch {torch.version} ask for gcc {extension.gcc_min} or newer"
            lower.append((extension.gcc_min, _reason(text, extension)))
        standard = facts.standards.get(extension.cxx_standard)
        if standard is not None:
            text = (
                f"the headers of torch {torch.version} ask for C++{standard.standard}: gcc {standard.gcc_min} or newer"
            )
            lower.append((standard.gcc_min, _reason(text, extension)))
        below = extension.gcc_below.get(torch.cuda or "")
        if below is not None:
            text = f"torch {torch.version} refuses gcc {below} and newer with CUDA {torch.cuda}"
            upper.append((below - 1, _reason(text, extension)))
    first = max(lower, key=lambda bound: bound[0], default=None)
    last = min(upper, key=lambda bound: bound[0], default=None)
    preferred = extension.gcc if extension else None
    if preferred is not None:
        preferred = max(preferred, first[0]) if first else preferred
        preferred = min(preferred, last[0]) if last else preferred
    reasons = tuple(bound[1] for bound in (first, last) if bound)
    return GccRange(first[0] if first else None, last[0] if last else None, preferred, reasons)


def arch_list(torch: Build, cards: Iterable[ComputeCapability], facts: CompilerFacts) -> tuple[str | None, Reason]:
    """The value of ``TORCH_CUDA_ARCH_LIST`` that serves the cards, each with SASS, lowest first.

    An entry must be in the table of this torch's ``torch.utils.cpp_extension`` and known to its nvcc. For a card that
    has none, the entry whose code runs on it (rule 3) stands in.

    Returns:
        ``8.0;9.0``, None where no card is known or one cannot be served; and why.
    """
    wanted = sorted(set(cards))
    if not wanted:
        return None, Reason("toolchain", None, "the GPUs are not known, so TORCH_CUDA_ARCH_LIST is not either")
    entries = _entries(torch, facts)
    if entries is None:
        return ";".join(map(str, wanted)), Reason(
            "toolchain", None, f"the entries that torch {torch.version} knows are not recorded"
        )
    found = [_serving(cc, entries, facts.architectures) for cc in wanted]
    unserved = [str(cc) for cc, entry in zip(wanted, found, strict=True) if entry is None]
    if unserved:
        text = f"torch {torch.version} with CUDA {torch.cuda} cannot be asked to compile for cc {', '.join(unserved)}"
        return None, Reason("toolchain", False, text)
    listed = ";".join(str(cc) for cc in sorted({cc for cc in found if cc}))
    return listed, Reason("toolchain", True, f"TORCH_CUDA_ARCH_LIST={listed} compiles for every card")


def covers(packages: CompilerPackages, cuda: str) -> bool:
    """Whether a compiler's packages are those of a CUDA version, ``12.8``."""
    return minor(packages.first) <= minor(cuda) and (packages.last is None or minor(cuda) <= minor(packages.last))


def ptxas_packages(cuda: str, compilers: Iterable[CompilerPackages]) -> CompilerPackages | None:
    """The packages of pip that hold the ptxas of a CUDA version."""
    return next((one for one in compilers if one.manager == "pip" and one.ptxas and covers(one, cuda)), None)


def _entries(torch: Build, facts: CompilerFacts) -> list[ComputeCapability] | None:
    """Compute capabilities that both torch's table and its nvcc know."""
    extension, toolkit = facts.extensions.get(torch.version), _toolkit(torch.cuda or "", facts)
    if extension is None or toolkit is None:
        return None
    known = {parse_arch(name).cc for name in toolkit.archs}
    plain = (ComputeCapability.parse(name) for name in extension.archs if name[-1].isdigit())
    return [cc for cc in plain if cc in known]


def _serving(
    card: ComputeCapability, entries: Iterable[ComputeCapability], architectures: Mapping[str, Architecture]
) -> ComputeCapability | None:
    """The entry nearest to a card of those whose SASS runs there."""
    usable = [cc for cc in entries if sass_level(parse_arch(cc.sm), card, architectures) is not Level.NONE]
    return max(usable, default=None)


def _toolkit(cuda: str, facts: CompilerFacts) -> Toolkit | None:
    return next((t for t in facts.toolkits if cuda and minor(t.version) == minor(cuda)), None)


def _reason(text: str, record: Toolkit | TorchExtension) -> Reason:
    return Reason("toolchain", True, text, record.evidence.value, record.source)
