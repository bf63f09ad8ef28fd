"""Rule 10: what compiling CUDA code takes, against a torch build or without one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from envsolve.facts.builds import Build, CxxStandard, SourceProject, TorchExtension
from envsolve.facts.catalogue import Catalogue
from envsolve.facts.hardware import Architecture, CompilerPackages, Toolkit, toolkit_of
from envsolve.rules.nvidia.code import best_code, sass_level
from envsolve.rules.verdict import Level, Reason
from envsolve.values import Arch, ComputeCapability, CudaVersion


class CompilerFacts(msgspec.Struct, frozen=True):
    """The tables of the catalogue that this rule reads."""

    toolkits: Sequence[Toolkit]
    architectures: Mapping[str, Architecture]
    extensions: Mapping[str, TorchExtension]
    standards: Mapping[int, CxxStandard]

    @classmethod
    def of(cls, catalogue: Catalogue) -> CompilerFacts:
        """Take the tables out of a catalogue."""
        return cls(catalogue.toolkits, catalogue.architectures, catalogue.torch_extensions, catalogue.cxx_standards)


class GccRange(msgspec.Struct, frozen=True):
    """The gcc majors that compile extensions, both ends included; None for no bound that is known.

    Attributes:
        preferred: The one that compiled torch itself, if it is in the range, otherwise the nearest in it.
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

    def from_major(self, first: int, reason: Reason) -> GccRange:
        """The range without the compilers older than a major; itself where that leaves none out."""
        if self.first is not None and self.first >= first:
            return self
        # The C++ ABI of libstdc++ is stable across majors, so a newer gcc than torch's own is safe where its
        # own is too old.
        preferred = max(self.preferred, first) if self.preferred is not None else None
        return GccRange(first, self.last, preferred, (reason, *(self.reasons[1:] if self.first else self.reasons)))


def nvcc_for(torch: Build, cards: Iterable[ComputeCapability], facts: CompilerFacts) -> tuple[str | None, Reason]:
    """The nvcc to compile with: of torch's own CUDA version, since ``torch.utils.cpp_extension`` refuses another major.

    Returns:
        The CUDA version, ``12.8``, None for a build without CUDA; and whether that nvcc can make code for every GPU.
    """
    if torch.cuda is None:
        return None, Reason("toolchain", False, f"torch {torch.version} {torch.variant} has no CUDA to compile against")
    return torch.cuda, knows_cards(torch.cuda, cards, facts)


def nvcc_without_torch(
    driver_cuda: str | None, cards: Iterable[ComputeCapability], reach: Callable[[str], int], facts: CompilerFacts
) -> tuple[str | None, Reason]:
    """The nvcc to compile with where no torch decides: of a CUDA that the driver knows in full.

    So what it links runs on the driver, and so does PTX that it makes (rule 2); and it must know the GPUs. Of several
    the one that is nearest at hand, and of those the newest.

    Args:
        driver_cuda: The newest CUDA version that every driver knows, ``13.0``; None if it is not known.
        GPUs: Those to compile for.
        reach: The distance to the nvcc of a CUDA version, 0 for the nearest.
        facts: The tables.
    """
    if driver_cuda is None:
        return None, Reason("toolchain", None, "the driver is not known, so it is not known which nvcc fits")
    cards = tuple(cards)
    # Sorted before it is filtered: min() takes the first of equals, so of several toolkits that are equally near at
    # hand the newest wins.
    newest_first = sorted(facts.toolkits, key=lambda toolkit: toolkit.cuda_version, reverse=True)
    known = [t for t in newest_first if t.cuda_version <= CudaVersion.parse(driver_cuda)]
    fitting = [t for t in known if not _unknown_to(t, cards, facts)]
    # A toolkit that is installed beats a newer one that would have to be downloaded.
    chosen = min(fitting, key=lambda toolkit: reach(toolkit.version), default=None)
    if chosen is None:
        listed = ", ".join(map(str, cards))
        text = (
            f"no nvcc up to CUDA {driver_cuda}, the newest that the driver fully supports, can compile for cc {listed}"
        )
        return None, Reason("toolchain", False, text)
    version = str(chosen.cuda_version)
    text = f"the driver runs everything that nvcc {version} generates, including PTX, and this nvcc supports every GPU"
    return version, _reason(text, chosen)


def knows_cards(cuda: str, cards: Iterable[ComputeCapability], facts: CompilerFacts) -> Reason:
    """Whether the nvcc of a CUDA version can make code for every GPU."""
    toolkit = toolkit_of(cuda, facts.toolkits)
    if toolkit is None:
        return Reason("toolchain", None, f"the catalogue does not record which GPUs nvcc {cuda} supports")
    unknown = _unknown_to(toolkit, cards, facts)
    text = f"nvcc {cuda} " + (f"cannot compile for cc {', '.join(unknown)}" if unknown else "supports every GPU")
    return Reason("toolchain", not unknown, text, toolkit.evidence.value, toolkit.source)


def gcc_for(torch: Build, facts: CompilerFacts) -> GccRange:
    """The host compilers within nvcc's limit, torch's own limit for that CUDA, and its headers' C++ standard."""
    lower: list[_Bound] = []
    upper = _limit_of_nvcc(torch.cuda, facts)
    # A gcc that lacks the C++ standard fails inside torch's headers, with a message that names neither.
    extension = facts.extensions.get(torch.version)
    if extension is not None:
        if extension.gcc_min is not None:
            text = f"the headers of torch {torch.version} require gcc {extension.gcc_min} or newer"
            lower.append((extension.gcc_min, _reason(text, extension)))
        standard = facts.standards.get(extension.cxx_standard)
        if standard is not None:
            text = (
                f"the headers of torch {torch.version} require C++{standard.standard}: gcc {standard.gcc_min} or newer"
            )
            lower.append((standard.gcc_min, _reason(text, extension)))
        # torch refuses the compiler before nvcc sees it, so its limit counts even if that nvcc would accept a
        # newer gcc.
        below = extension.gcc_below.get(torch.cuda or "")
        if below is not None:
            text = f"torch {torch.version} refuses gcc {below} and newer with CUDA {torch.cuda}"
            upper.append((below - 1, _reason(text, extension)))
    return _within(lower, upper, extension.gcc if extension else None)


def gcc_without_torch(cuda: str | None, facts: CompilerFacts) -> GccRange:
    """The host compilers within the limit of the nvcc of a CUDA version."""
    return _within([], _limit_of_nvcc(cuda, facts), None)


def arch_list(torch: Build, cards: Iterable[ComputeCapability], facts: CompilerFacts) -> tuple[str | None, Reason]:
    """The value of ``TORCH_CUDA_ARCH_LIST`` for the GPUs, each with SASS, lowest first.

    An entry must be in the table of this torch's ``torch.utils.cpp_extension`` and known to its nvcc. For a GPU that
    has none, the entry whose code runs on it (rule 3) is used.

    Returns:
        ``8.0;9.0``, None if no GPU is known or one is not supported; and why.
    """
    wanted = sorted(set(cards))
    if not wanted:
        return None, Reason("toolchain", None, "the GPUs are not known, so TORCH_CUDA_ARCH_LIST cannot be set")
    # Not a failure: the GPUs themselves are the best guess, and the build refuses a name that it does not know.
    entries = _entries(torch, facts)
    if entries is None:
        return ";".join(map(str, wanted)), Reason(
            "toolchain",
            None,
            f"the catalogue does not record which architectures torch {torch.version} can be compiled for",
        )
    found = [_serving(cc, entries, facts.architectures) for cc in wanted]
    unserved = [str(cc) for cc, entry in zip(wanted, found, strict=True) if entry is None]
    if unserved:
        text = f"torch {torch.version} with CUDA {torch.cuda} cannot compile for cc {', '.join(unserved)}"
        return None, Reason("toolchain", False, text)
    listed = ";".join(str(cc) for cc in sorted({cc for cc in found if cc}))
    return listed, Reason("toolchain", True, f"TORCH_CUDA_ARCH_LIST={listed} compiles for every GPU")


def archs_known(
    version: str | None, cuda: str | None, cards: Iterable[ComputeCapability], facts: CompilerFacts
) -> tuple[str, ...] | None:
    """The entries of ``TORCH_CUDA_ARCH_LIST`` for the GPUs that a torch and an nvcc know.

    Args:
        version: That of torch; None if it is not known and does not limit them.
        cuda: The CUDA version of nvcc; None in the same case.
        GPU: The GPUs.
        facts: The tables.

    Returns:
        ``("8.0", "9.0")``; None if a GPU is not supported.
    """
    wanted = sorted(set(cards))
    extension, toolkit = facts.extensions.get(version or ""), toolkit_of(cuda, facts.toolkits)
    # Names with a suffix (9.0a) are left out: such code runs on that one GPU only.
    by_torch = {ComputeCapability.parse(name) for name in extension.archs if name[-1].isdigit()} if extension else None
    by_nvcc = {Arch.parse(name).cc for name in toolkit.archs} if toolkit else None
    known = [one for one in (by_torch, by_nvcc) if one is not None]
    entries = set.intersection(*known) if known else set(wanted)
    found = [_serving(cc, entries, facts.architectures) for cc in wanted]
    return None if None in found else tuple(str(cc) for cc in sorted({cc for cc in found if cc}))


def written_archs(project: SourceProject, cards: Iterable[ComputeCapability], facts: CompilerFacts) -> str | None:
    """The value of a project's own variable for the GPUs to compile for, in its own form.

    Returns:
        ``80;90``; None if no GPU is known, or one that it cannot be asked to compile for is among them.
    """
    wanted = sorted(set(cards))
    entries = [ComputeCapability.parse(name) for name in project.archs] or wanted
    found = [_serving(cc, entries, facts.architectures) for cc in wanted]
    if not wanted or None in found:
        return None
    listed = sorted({cc for cc in found if cc})
    # The form is an example of two entries, "80;90" or "8.0 9.0": what is between them is the separator.
    separator = project.arch_form.strip("0123456789.")
    return separator.join(str(cc) if "." in project.arch_form else cc.sm.removeprefix("sm_") for cc in listed)


def covers(packages: CompilerPackages, cuda: str) -> bool:
    """Whether a compiler's packages are those of a CUDA version, ``12.8``."""
    return CudaVersion.parse(packages.first) <= CudaVersion.parse(cuda) and (
        packages.last is None or CudaVersion.parse(cuda) <= CudaVersion.parse(packages.last)
    )


def ptxas_packages(cuda: str, compilers: Iterable[CompilerPackages]) -> CompilerPackages | None:
    """The packages of pip that hold the ptxas of a CUDA version."""
    return next((one for one in compilers if one.manager == "pip" and one.ptxas and covers(one, cuda)), None)


def _entries(torch: Build, facts: CompilerFacts) -> list[ComputeCapability] | None:
    """Compute capabilities that both torch's table and its nvcc know."""
    extension, toolkit = facts.extensions.get(torch.version), toolkit_of(torch.cuda, facts.toolkits)
    if extension is None or toolkit is None:
        return None
    known = {Arch.parse(name).cc for name in toolkit.archs}
    plain = (ComputeCapability.parse(name) for name in extension.archs if name[-1].isdigit())
    return [cc for cc in plain if cc in known]


def _serving(
    card: ComputeCapability, entries: Iterable[ComputeCapability], architectures: Mapping[str, Architecture]
) -> ComputeCapability | None:
    """The entry nearest to a GPU of those whose SASS runs there."""
    # SASS only: PTX would make the first start compile every kernel, and the driver may be too old to do that (rule 2).
    usable = [cc for cc in entries if sass_level(Arch.parse(cc.sm), card, architectures) is not Level.NONE]
    return max(usable, default=None)


_Bound = tuple[int, Reason]


def _limit_of_nvcc(cuda: str | None, facts: CompilerFacts) -> list[_Bound]:
    toolkit = toolkit_of(cuda, facts.toolkits)
    if toolkit is None or toolkit.gcc_max is None:
        return []
    return [(toolkit.gcc_max, _reason(f"nvcc {toolkit.version} supports gcc up to {toolkit.gcc_max}", toolkit))]


def _within(lower: Sequence[_Bound], upper: Sequence[_Bound], preferred: int | None) -> GccRange:
    """The range between the tightest of the bounds."""
    first = max(lower, key=lambda bound: bound[0], default=None)
    last = min(upper, key=lambda bound: bound[0], default=None)
    if preferred is not None:
        preferred = max(preferred, first[0]) if first else preferred
        preferred = min(preferred, last[0]) if last else preferred
    reasons = tuple(bound[1] for bound in (first, last) if bound)
    return GccRange(first[0] if first else None, last[0] if last else None, preferred, reasons)


def _unknown_to(toolkit: Toolkit, cards: Iterable[ComputeCapability], facts: CompilerFacts) -> list[str]:
    """The GPUs that a toolkit's nvcc cannot compile for."""
    return [str(cc) for cc in cards if not best_code(toolkit.archs, cc, facts.architectures)[0].usable]


def _reason(text: str, record: Toolkit | TorchExtension) -> Reason:
    return Reason("toolchain", True, text, record.evidence.value, record.source)
