"""Checks of the torch family's builds that installs choose: published, runnable, and not replaced later."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from packaging.version import Version

from envsolve.dockerfile.installs import Install, Places, Wanted
from envsolve.dockerfile.model import Finding, Severity, Stage, other_installer
from envsolve.dockerfile.offers import Asked, Offer, Within, failure, found, pinned, running
from envsolve.packages.commands import installer

COMPLETE = ("torch", "torchvision", "torchaudio")
"""Packages of which the catalogue has every release since the first one that it has."""


@dataclass(frozen=True, slots=True)
class _Case:
    """One package that an install names.

    Attributes:
        wanted: The package.
        install: The install.
        looks: Where it is looked for.
        torch: The torch that is there or is installed with it, if known.
        within: The Python and the libc, if known.
        new: Whether the image certainly does not have it yet.
        with_torch: Whether a torch is named up to here.
        asked: The rest.
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
        """The version that is pinned."""
        return pinned(self.wanted.requirement.specifier)

    def finding(
        self, code: str, level: Severity, text: str, near: Iterable[Offer], source: str | None = None
    ) -> Finding:
        """A finding that proposes the best of some builds that run, then the best of all."""
        fits = [offer for offer in self.known if self.wanted.name == "torch" or _goes_with(offer, self.torch)]
        best = [next(running(some, self.within), None) for some in (near, fits)]
        commands = dict.fromkeys(offer.command(self.asked.catalogue.indexes) for offer in best if offer)
        targets = self.asked.targets
        remedies = tuple(commands) or (f"to see what would fit: envsolve plan {self.wanted.name} {targets}",)
        if self.wanted.through:
            # What requires it would replace another version by its own.
            holds = any(self.wanted.requirement.specifier.contains(offer.version) for offer in best if offer)
            why = "add before this line: RUN" if holds else f"change what {self.wanted.through} requires, then:"
            remedies = tuple(f"{why} {remedy}" for remedy in remedies if remedy.startswith("pip ")) or remedies
        if self.wanted.name == "triton":
            remedies = ("do not request it: torch itself requires the matching Triton",)
        return Finding(self.install.command.line, code, level, self.wanted.place + text, remedies, source)


@dataclass(slots=True)
class _Sofar:
    """The state of a stage before an install.

    Attributes:
        torch: Its torch, if it is known.
        there: Builds of the family by package.
        named: Packages that were named, or that the image has.
        unread: Whether something was installed that could not be read.
    """

    torch: Offer | None
    there: dict[str, Offer]
    named: set[str]
    unread: bool = False


def builds(stage: Stage, asked: Asked) -> Iterator[Finding]:
    """Judge the builds that each install would choose. Consequences of a refused torch are not reported again."""
    within = asked.within(stage)
    brought = asked.image_torch(stage)
    there = {offer.build.package: offer for offer in brought}
    sofar = _Sofar(brought[0] if brought else None, there, {*there, *asked.held(stage)})
    passing = _replaced_later(stage, within, asked)
    for install, own in asked.followed(stage):
        sofar.named |= {wanted.name for wanted in install.wanted}
        sofar.torch = asked.taken(install, "torch", within) or sofar.torch
        findings = list(_of_install(install, stage, sofar, asked)) if own else []
        sofar.there |= {w.name: taken for w in install.wanted if (taken := asked.taken(install, w.name, within))}
        sofar.unread = sofar.unread or bool(install.files) or not install.described.issuperset(install.sources)
        findings = [one for one in findings if (id(install), one[0]) not in passing]
        # Companions fail for the same reason as their torch.
        about_torch = [finding for name, finding in findings if name == "torch"]
        yield from about_torch or [finding for _, finding in findings]


def _of_install(install: Install, stage: Stage, sofar: _Sofar, asked: Asked) -> Iterator[tuple[str, Finding]]:
    """The findings about each package of an install."""
    within, held = asked.within(stage), asked.held(stage)
    for wanted in filter(asked.is_judged(install), install.wanted):
        looks = asked.looks(install, wanted.name)
        # What could not be read may have brought another one.
        unlike = wanted.name not in held or (wanted.name == "torch" and sofar.torch is not None)
        new = asked.knows(stage) and unlike and not (wanted.through and sofar.unread)
        case = _Case(wanted, install, looks, sofar.torch, within, new, "torch" in sofar.named, asked)
        if wanted.holds(asked.platform, within.python) is True and not _stays(case, sofar.there, held):
            finding = _judged(case)
            yield from [(wanted.name, finding)] if finding else []


def _replaced_later(stage: Stage, within: Within, asked: Asked) -> frozenset[tuple[int, str]]:
    """The installs of a stage, by identity, each with a package of it that a later one certainly replaces."""
    found: set[tuple[int, str]] = set()
    before: list[tuple[Install, str, Offer | None]] = []
    for install in asked.installs(stage.commands):
        for own in (one for one in install.wanted if not one.through):
            if install.upgrade or pinned(own.requirement.specifier):
                admits = own.requirement.specifier.contains
                same = [(one, taken) for one, name, taken in before if name == own.name]
                other = (one for one, taken in same if taken and not admits(taken.version, prereleases=True))
                found |= {(id(one), own.name) for one in (other if not install.upgrade else (one for one, _ in same))}
        names = [wanted.name for wanted in install.wanted if asked.offers(wanted.name)]
        before += [(install, name, asked.taken(install, name, within)) for name in names]
    return frozenset(found)


def _stays(case: _Case, there: dict[str, Offer], held: frozenset[str]) -> bool:
    """Whether the installed version satisfies the requirement, so that nothing is installed."""
    # pip keeps an installed version that satisfies the requirement, unless it is told to upgrade.
    if case.install.upgrade:
        return False
    installed = there.get(case.wanted.name)
    if installed is not None:
        return case.wanted.requirement.specifier.contains(installed.version, prereleases=True)
    if case.wanted.name not in held:
        return False
    # The image has it, in a version that goes with its torch and that the catalogue does not record.
    same = [offer for offer in case.known if offer.build.version == case.version]
    return case.version is None or (case.torch is not None and any(_goes_with(offer, case.torch) for offer in same))


def _judged(case: _Case) -> Finding | None:
    allowed = found(case.known, case.wanted.requirement.specifier, case.looks, case.within, case.install.early)
    if not allowed:
        return _unpublished(case)
    taken = _taken(case, allowed)
    if not taken:
        return None
    name = case.wanted.name
    other_ptxas = any(variable.startswith("TRITON_PTXAS") for variable in case.asked.final.variables)
    # With another ptxas than its own, Triton's own does not decide what it runs on.
    if name == "triton" and other_ptxas:
        return None
    if all(offer.refused for offer in taken):
        # Beside torch, Triton is what torch.compile needs; alone it is the package that is meant to run.
        return _without_triton(case, taken[0]) if name == "triton" and case.with_torch else _refused(case, taken)
    runs = next((offer for offer in taken if offer.refused is None and offer.without_triton), None)
    return _without_triton(case, runs) if runs is not None and name == "torch" and not other_ptxas else None


def _taken(case: _Case, allowed: list[Offer]) -> list[Offer]:
    """The builds of the version that the installer chooses; empty if that is not known."""
    if case.wanted.name != "torch" and case.version is None:
        # Constraints and unknown versions of torch decide which companion pip backtracks to.
        if case.install.constrained or "torch" in case.install.unread:
            return []
        if case.install.dependencies:
            allowed = [offer for offer in allowed if _goes_with(offer, case.torch)]
    newest = max((offer.version for offer in allowed), default=None)
    return [offer for offer in allowed if offer.version == newest]


def _goes_with(offer: Offer, torch: Offer | None) -> bool:
    """Whether it is compatible with the torch that an installer chose; True if its metadata is not known."""
    if torch is None:
        return True
    needed, given = offer.needs("torch"), torch.needs(offer.build.package)
    return (needed is None or needed.contains(torch.build.version, prereleases=True)) and (
        given is None or given.contains(offer.build.version, prereleases=True)
    )


def _unpublished(case: _Case) -> Finding | None:
    """A version that the used indexes do not have: the indexes that have it, and in which variants.

    None if the catalogue may not know the version, and if no wheel is compatible with the image's libc, which is a
    finding of its own.
    """
    python, libc, same = case.within.python, case.within.libc, _same_version(case)
    if same is None or (same and libc and not any(offer.fits(Within(libc=libc)) for offer in same)):
        return None
    text = f"{case.looks.text} has no {case.wanted.requirement}{f' for Python {python}' if python else ''}"
    variants = sorted({offer.build.variant for offer in same}, key=_shorter)
    pythons = sorted({key for offer in same for key in offer.build.pythons if key.startswith("cp")}, key=_shorter)
    local = (case.version or "").partition("+")[2]
    elsewhere = [offer for offer in same if offer.build.variant == local]
    if not variants:
        text += ": the release does not exist"
    elif python and not any(offer.for_python(python) for offer in same):
        text += f"; its wheels are for {', '.join(pythons)}"
    elif elsewhere:
        text += f"; that build is on the {local} index"
        same = elsewhere
    else:
        text += f"; that version was published only as {', '.join(variants)}"
    return case.finding("unpublished-build", "error", text, same)


def _same_version(case: _Case) -> list[Offer] | None:
    """All builds of the versions that are requested, on any index; None if the catalogue may not know them."""
    specifier, version = case.wanted.requirement.specifier, case.version
    complete = case.wanted.name in COMPLETE
    first, last = Version(case.known[-1].build.version), Version(case.known[0].build.version)
    if version is None:
        # A range may contain later releases, of which nothing is known.
        named = [offer for offer in case.known if specifier.contains(offer.build.version)]
        return named if named and complete and not specifier.contains(f"{last.major + 99}") else None
    # The catalogue knows no pre-releases.
    if Version(version).is_prerelease:
        return None
    same = [offer for offer in case.known if offer.build.version == Version(version).public]
    return same if same or (complete and first < Version(version) < last) else None


def _shorter(name: str) -> tuple[int, str]:
    return len(name), name


def _refused(case: _Case, taken: Sequence[Offer]) -> Finding:
    line, reasons, source = failure(offer.refused or offer.build for offer in taken)
    same = [offer for offer in case.known if offer.build.version == line.version]
    text = f"{line.package} {taken[0].version} [{line.variant}] is installed, "
    if line.variant == "cpu" and (case.looks.variants == ("cpu",) or line.local == "+cpu"):
        return case.finding("cpu-build", "warning", f"{text}which does not use {line.gpu or 'a GPU'}", ())
    text += f"which does not run on {line.gpu or 'the machine'}: {reasons}"
    # Without a pin, pip keeps a torch that an unknown image may have.
    if case.version is None and not case.new:
        text = f"if the image has no {line.package} yet, {text}"
        return case.finding("build-does-not-run", "warning", text, same, source)
    return case.finding("build-does-not-run", "error", text, same, source)


def _without_triton(case: _Case, taken: Offer) -> Finding | None:
    line = taken.without_triton or taken.refused
    reasons = [r for r in line.reasons if r.ok is False and r.rule.startswith("triton")] if line else []
    if line is None or not reasons:
        return None
    whose = "but its Triton (torch.compile) does" if line.package == "torch" else "but its kernels (torch.compile) do"
    where = line.gpu or "the machine"
    text = f"{line.package} {taken.version} [{line.variant}] is installed, {whose} not run on {where}: "
    text += "; ".join(reason.text for reason in reasons)
    return case.finding("triton-does-not-run", "warning", text, (), reasons[0].source)


# A later install that can replace the torch that was chosen.


_COMPANIONS = ("torchvision", "torchaudio")
_HOLD = (
    "add before this line: RUN pip list --format=freeze | grep -E '^(torch|triton)' > /held.txt; and add to this "
    "line: -c /held.txt",
    "or request torch, with its index, in this line as well",
)


def replaced(stage: Stage, asked: Asked) -> Iterator[Finding]:
    """Follow the installs of a stage and of the stages that it is built on."""
    image = "torch" in asked.held(stage)
    before = f"the torch of {stage.root.image}" if image else None
    brought = asked.image_torch(stage)
    version, within = brought[0].build.version if brought else None, asked.within(stage)
    for command, later in stage.followed():
        by_conda = (other_installer(command) or "").endswith(("conda install", "mamba install"))
        if by_conda and any(installer("conda").requested(word) == "pytorch" for word in command.words):
            before, version, image = f"the torch of line {command.line}", None, False
        for install in asked.installs((command,)):
            own = [wanted for wanted in install.wanted if wanted.name == "torch"]
            chosen = any(not wanted.file and not wanted.through for wanted in own)
            if before and later and not chosen and install.dependencies and not install.constrained:
                yield from _replacing(before, version, install, asked, image=image)
            if own:
                image = False
                taken = asked.taken(install, "torch", within)
                before = f"{own[0].requirement} of line {command.line}"
                version = taken.build.version if taken else pinned(own[0].requirement.specifier)


def _replacing(before: str, version: str | None, install: Install, asked: Asked, *, image: bool) -> Iterator[Finding]:
    line = install.command.line
    for wanted in install.wanted:
        if image and not install.upgrade and _in_image(wanted, version, asked):
            continue
        # pip pins the torch that is there before it looks for what it must go with.
        if wanted.through and pinned(wanted.requirement.specifier) is None:
            continue
        text = _how(wanted, before, version, asked)
        if text:
            yield Finding(line, "torch-replaced", "warning", wanted.place + text, _HOLD)
            return
    if install.files:
        text = (
            f"a requirement in {', '.join(install.files)} can replace {before}, "
            f"because the command has no constraint on torch"
        )
        yield Finding(line, "torch-unheld", "warning", text, _HOLD[:1])


def _in_image(wanted: Wanted, version: str | None, asked: Asked) -> bool:
    """Whether an image of pytorch/pytorch has this companion already: pip keeps it if the requirement admits it."""
    if wanted.name not in _COMPANIONS or version is None:
        return False
    admitted = (o for o in asked.offers(wanted.name) if wanted.requirement.specifier.contains(o.build.version))
    needs = (offer.needs("torch") for offer in admitted)
    return any(needed is not None and needed.contains(version, prereleases=True) for needed in needs)


def _how(wanted: Wanted, before: str, version: str | None, asked: Asked) -> str | None:
    """How one requirement replaces a torch; None if it does not."""
    if wanted.name == "torch":
        asks = pinned(wanted.requirement.specifier)
        other = asks is not None and version is not None and asks.partition("+")[0] != version
        return f"this line requests {wanted.requirement}, which replaces {before}" if other else None
    allowed = [o for o in asked.offers(wanted.name) if wanted.requirement.specifier.contains(o.build.version)]
    newest = max(allowed, key=lambda offer: offer.version, default=None)
    needed = newest.needs("torch") if newest else None
    if newest is None or needed is None or (version is not None and needed.contains(version, prereleases=True)):
        return None
    # A range would be satisfied by most versions; only an exact pin is likely to differ from an unknown torch.
    if version is None and not any(s.operator == "==" for s in needed):
        return None
    unless = f"unless that is {before}" if version is None else f"{before} is {version}, so"
    text = f"{wanted.requirement} ({newest.build.version}) requires torch{needed}: {unless}"
    return f"{text}{',' if version is None else ''} pip replaces it with the default index's build"


# Options and variables of an install.


def argument_scope(stage: Stage, asked: Asked) -> Iterator[Finding]:
    """A variable that ARG declares only before the first FROM is empty in a stage.

    Source: Dockerfile reference, "Understand how ARG and FROM interact".
    """
    for install in asked.installs(stage.commands):
        named = re.findall(r"\$\{?(\w+)", " ".join(install.command.words))
        for name in sorted(stage.outside.intersection(named) - set(install.command.variables)):
            text = f"{name} is declared only before the first FROM, so it is empty in this stage"
            # `torch==` is an error of pip's; `certifi` alone only loses its pin.
            fails = re.search(rf"[=<>~]\$\{{?{name}\b", " ".join(install.command.words))
            level: Severity = "error" if fails else "warning"
            yield Finding(
                install.command.line,
                "argument-scope",
                level,
                text,
                (f"repeat ARG {name} after the FROM of this stage",),
            )


def backend_auto(stage: Stage, asked: Asked) -> Iterator[Finding]:
    """``--torch-backend auto`` takes CPU builds if it sees no driver. Source: uv's guide "Using uv with PyTorch"."""
    for install in asked.installs(stage.commands):
        if install.backend == "auto" and any(asked.offers(wanted.name) for wanted in install.wanted):
            best = next(running(asked.offers("torch"), asked.within(stage)), None)
            remedy = f"--torch-backend {best.build.variant}" if best else "choose a variant: --torch-backend cu126"
            text = (
                "uv chooses the variant by the host's driver; an image build sees no driver, so uv installs CPU builds"
            )
            yield Finding(install.command.line, "backend-auto", "error", text, (remedy,))


def mistaken_names(stage: Stage, asked: Asked) -> Iterator[Finding]:
    """Names that belong to another project on the index, or to a placeholder: sklearn, pytorch, cv2."""
    mistakes = {name: group for group in asked.catalogue.package_names if group.means for name in group.names}
    for install in asked.installs(stage.commands):
        for name in (wanted.name for wanted in install.wanted if not wanted.through and not wanted.requirement.url):
            if (group := mistakes.get(name)) and not asked.offers(name):
                text = f"the package is called {group.means}, not {name}"
                yield Finding(install.command.line, "package-name", "warning", text, (f"install {group.means}",))


CHECKS = (argument_scope, backend_auto, builds, mistaken_names, replaced)
