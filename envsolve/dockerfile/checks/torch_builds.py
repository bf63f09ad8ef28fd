"""The builds of torch and its family that an install takes: whether they were published, and run on the machines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from packaging.version import Version

from envsolve.dockerfile.context import holds
from envsolve.dockerfile.installs import Install, Wanted
from envsolve.dockerfile.model import Finding, Stage
from envsolve.dockerfile.offers import Offer, Within, found, running
from envsolve.dockerfile.packages import Asked, pinned
from envsolve.dockerfile.read import Places

# Of these the catalogue has every release that came after the first one that it has.
_WHOLE = ("torch", "torchvision", "torchaudio")


@dataclass(frozen=True, slots=True)
class _Case:
    """One package that an install names.

    Attributes:
        looks: Where it is looked for.
        torch: The torch that is there or comes along, where known.
        within: The Python and the libc that it is for, where known.
        new: Whether the image surely does not have it yet.
        with_torch: Whether a torch is named up to here.
    """

    wanted: Wanted
    install: Install
    looks: Places
    torch: Offer | None
    within: Within
    new: bool
    with_torch: bool
    asked: Asked

    @property
    def known(self) -> tuple[Offer, ...]:
        return self.asked.offers(self.wanted.name)

    @property
    def version(self) -> str | None:
        """The one that is asked for."""
        return pinned(self.wanted.requirement.specifier)

    @property
    def local(self) -> str:
        """Its local part, ``+cu126``."""
        return "".join((self.version or "").partition("+")[1:])

    def finding(
        self, code: str, level: Literal["error", "warning"], text: str, near: Iterable[Offer], source: str | None = None
    ) -> Finding:
        """A finding with the best of some builds that run, then the best of all, in place of what is taken."""
        fits = [offer for offer in self.known if self.wanted.name == "torch" or _goes_with(offer, self.torch)]
        best = [next(running(some, self.within), None) for some in (near, fits)]
        commands = dict.fromkeys(offer.command(self.asked.catalogue.indexes) for offer in best if offer)
        remedies = tuple(commands) or ("envsolve plan torch --target ... says what would make it fit",)
        if self.wanted.name == "triton":
            remedies = ("leave it out: torch brings the Triton that goes with it",)
        return Finding(self.install.command.line, code, level, self.wanted.place + text, remedies, source)


def check(stage: Stage, asked: Asked) -> Iterator[Finding]:
    """Judge what each install would take; what follows from a torch that is refused is not told again."""
    within = asked.within(stage)
    brought = asked.image_torch(stage)
    torch = brought[0] if brought else None
    there = {offer.build.package: offer for offer in brought}
    named: set[str] = set(there)
    mine = set(map(id, stage.commands))
    for install in asked.installs(stage.history()):
        named |= {wanted.name for wanted in install.wanted}
        torch = asked.taken(install, "torch", within) or torch
        found_here = []
        for case in _cases(install, torch, within, _is_known(stage, asked), "torch" in named, asked):
            if _stays(case, there.get(case.wanted.name), bool(brought)):
                continue
            finding = _judged(case)
            if finding is not None and id(install.command) in mine:
                found_here.append((case.wanted.name, finding))
        there |= {w.name: taken for w in install.wanted if (taken := asked.taken(install, w.name, within))}
        about_torch = [finding for name, finding in found_here if name == "torch"]
        yield from about_torch or [finding for _, finding in found_here]


def _is_known(stage: Stage, asked: Asked) -> bool:
    """Whether it is known what the image has, as of images of CUDA, Python and distributions: no torch."""
    return asked.image(stage) is not None or asked.distribution(stage) is not None


def _cases(
    install: Install, torch: Offer | None, within: Within, new: bool, with_torch: bool, asked: Asked
) -> Iterator[_Case]:
    for wanted in install.wanted:
        looks = asked.looks(install, wanted.name)
        if not asked.offers(wanted.name) or wanted.requirement.url or looks.unknown:
            continue
        if holds(wanted.requirement, asked.platform, within.python) is True:
            yield _Case(wanted, install, looks, torch, within, new, with_torch, asked)


def _stays(case: _Case, there: Offer | None, of_pytorch: bool) -> bool:
    """Whether what is there already serves, so that nothing is taken."""
    if case.install.upgrade:
        return False
    if there is not None:
        return case.wanted.requirement.specifier.contains(there.version, prereleases=True)
    return of_pytorch and case.wanted.name in _WHOLE and case.version is None


def _judged(case: _Case) -> Finding | None:
    specifier = case.wanted.requirement.specifier
    allowed = found(case.known, specifier, case.looks, case.within, case.install.early)
    if not allowed:
        return _unpublished(case)
    if case.wanted.name != "torch" and case.version is None:
        if case.install.constrained or "torch" in case.install.unread:
            return None
        if case.install.dependencies:
            allowed = [offer for offer in allowed if _goes_with(offer, case.torch)]
    newest = max((offer.version for offer in allowed), default=None)
    taken = [offer for offer in allowed if offer.version == newest]
    if case.wanted.name in ("torch", "triton") and _other_ptxas(case.asked):
        taken = [offer for offer in taken if case.wanted.name == "torch"]
    elif case.wanted.name == "triton" and case.with_torch and taken and all(offer.refused for offer in taken):
        return _without_triton(case, taken[0])
    if taken and all(offer.refused for offer in taken):
        return _refused(case, taken)
    alone = next((offer for offer in taken if offer.refused is None and offer.without_triton), None)
    told = case.wanted.name != "torch" or _other_ptxas(case.asked)
    return _without_triton(case, alone) if alone is not None and not told else None


def _other_ptxas(asked: Asked) -> bool:
    """Whether Triton is told to take another ptxas than its own, so that its own decides nothing."""
    return any(name.startswith("TRITON_PTXAS") for name in asked.final.variables)


def _goes_with(offer: Offer, torch: Offer | None) -> bool:
    """Whether an installer would put it beside a torch that it has chosen; what is not known does not count as no."""
    if torch is None:
        return True
    needed, given = offer.needs("torch"), torch.needs(offer.build.package)
    return (needed is None or needed.contains(torch.build.version, prereleases=True)) and (
        given is None or given.contains(offer.build.version, prereleases=True)
    )


def _unpublished(case: _Case) -> Finding | None:
    """No index that is looked at has it; say where the version is, and in which variants.

    None where the catalogue may not know the version: one before a release, or one that came after its facts; and where
    no wheel goes with the image's libc, which is told for itself.
    """
    python, libc, same = case.within.python, case.within.libc, _same_version(case)
    if same is None or (same and libc and not any(offer.fits(Within(libc=libc)) for offer in same)):
        return None
    text = f"{case.looks.text} has no {case.wanted.requirement}{f' for Python {python}' if python else ''}"
    variants = sorted({offer.build.variant for offer in same}, key=_shorter)
    pythons = sorted({key for offer in same for key in offer.build.pythons if key.startswith("cp")}, key=_shorter)
    elsewhere = [offer for offer in same if f"+{offer.build.variant}" == case.local]
    if not variants:
        text += ": there is no such release"
    elif python and not any(offer.for_python(python) for offer in same):
        text += f"; its wheels are for {', '.join(pythons)}"
    elif elsewhere:
        text += f": that build is on the index of {elsewhere[0].build.variant}"
        same = elsewhere
    else:
        text += f"; that version was published as {', '.join(variants)} alone"
    return case.finding("unpublished-build", "error", text, same)


def _same_version(case: _Case) -> list[Offer] | None:
    """What is published of the versions that are asked for, wherever; None where the catalogue may not know them."""
    specifier, version = case.wanted.requirement.specifier, case.version
    first, last = Version(case.known[-1].build.version), Version(case.known[0].build.version)
    if version is None:
        # Of a range, which later releases may be in, nothing is said.
        named = [offer for offer in case.known if specifier.contains(offer.build.version)]
        return named if named and case.wanted.name in _WHOLE and not specifier.contains(f"{last.major + 99}") else None
    if Version(version).is_prerelease:
        return None
    same = [offer for offer in case.known if offer.build.version == Version(version).public]
    return same if same or (case.wanted.name in _WHOLE and first < Version(version) < last) else None


def _shorter(name: str) -> tuple[int, str]:
    return len(name), name


def _refused(case: _Case, taken: Sequence[Offer]) -> Finding:
    """The build for the machine's platform says why, where there is one."""

    def strange(offer: Offer) -> int:
        return sum(reason.ok is False and reason.rule == "platform" for reason in offer.build.reasons)

    line = min(taken, key=strange).refused or taken[0].build
    failed = [reason for reason in line.reasons if reason.ok is False]
    reasons = [reason for reason in failed if not reason.rule.startswith("triton")] or failed
    same = [offer for offer in case.known if offer.build.version == line.version]
    text = f"{line.package} {taken[0].version} [{line.variant}] is taken, "
    if line.variant == "cpu" and (case.looks.variants == ("cpu",) or line.local == "+cpu"):
        return case.finding("cpu-build", "warning", f"{text}which makes no use of {line.gpu or 'a GPU'}", ())
    text += f"which does not run on {line.gpu or 'the machine'}: " + "; ".join(reason.text for reason in reasons)
    source = next((reason.source for reason in reasons if reason.source), None)
    if case.version is None and not case.new:
        text = f"if {case.install.command.words[0]} finds none in the image, {text}"
        return case.finding("build-does-not-run", "warning", text, same, source)
    return case.finding("build-does-not-run", "error", text, same, source)


def _without_triton(case: _Case, taken: Offer) -> Finding | None:
    line = taken.without_triton or taken.refused
    reasons = [r for r in line.reasons if r.ok is False and r.rule.startswith("triton")] if line else []
    if line is None or not reasons:
        return None
    whose = "whose Triton (torch.compile) does" if line.package == "torch" else "whose kernels (torch.compile) do"
    text = f"{line.package} {taken.version} [{line.variant}] is taken, {whose} not run on {line.gpu or 'the machine'}: "
    text += "; ".join(reason.text for reason in reasons)
    return case.finding("triton-does-not-run", "warning", text, (), reasons[0].source)
