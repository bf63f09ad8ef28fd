"""The resolvelib provider: the only place where index, catalogue and verdicts meet the solver."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from msgspec import structs
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version
from resolvelib import AbstractProvider
from resolvelib.structs import Matches, RequirementInformation

from envsolve.errors import IndexUnavailableError
from envsolve.packages.client import IndexClient
from envsolve.packages.model import CoreMetadata, IndexFile
from envsolve.packages.urls import UNREAD
from envsolve.rules.platform import Environment
from envsolve.solve.candidate_selector import CandidateSelector, Likely, Ready
from envsolve.solve.claims import claims_of, made_for
from envsolve.solve.family import Family, Option
from envsolve.solve.files import DirectReferences, FamilyFiles
from envsolve.solve.limits import cuda_excluded, gpu_excluded
from envsolve.solve.needs import (
    CUDA_MAJOR,
    PYTHON,
    VARIANT,
    AnyCandidate,
    AnyNeed,
    Candidate,
    ClaimCandidate,
    ClaimNeed,
    Conjunctions,
    Learnt,
    PackageNeed,
    PairedNeed,
    PythonNeed,
    SameNeed,
    VariantCandidate,
    VariantNeed,
    Walk,
    only_for,
    parsed,
)

if TYPE_CHECKING:
    from envsolve.packages.sdists import MetadataBuilds
    from envsolve.solve.search import Budget

#: Which claims of candidates count: none, those that nothing makes good, or the CUDA major of libraries as well.
Claimed = Literal["nothing", "files", "all"]
_Information = RequirementInformation[AnyNeed, AnyCandidate]


class Provider(AbstractProvider[AnyNeed, AnyCandidate, str]):
    """Candidates and dependencies for one environment.

    Torch-family packages come from :class:`Family`, so only from the index that the catalogue names for a build; all
    others from :class:`CandidateSelector`, so only from the default index. Neither looks where the other does. If a
    package has ready wheels elsewhere, these go first; the files of their version on the index name their dependencies.
    """

    def __init__(
        self,
        environment: Environment,
        family: Family,
        selector: CandidateSelector,
        files: FamilyFiles,
        direct: DirectReferences,
        client: IndexClient,
        constraints: Mapping[str, SpecifierSet],
        ready: Ready,
    ) -> None:
        self._environment = environment
        self.family = family
        self._selector = selector
        self._files = files
        self._direct = direct
        self._client = client
        self._constraints = constraints
        self._ready = ready
        self._likely = Likely(client, environment, family.owns)
        self._wanted: dict[tuple[str | Requirement, str], bool] = {}
        self._needs: dict[Candidate, tuple[AnyNeed, ...]] = {}
        self._claims: dict[Candidate, tuple[ClaimNeed, ...]] = {}
        self._walks: dict[tuple[str, SpecifierSet], Walk[Option]] = {}
        self._conjunctions = Conjunctions()
        self.overrides: Mapping[str, Sequence[Requirement]] = {}  # in place of what anything requires of a package
        self.stand_ins: Mapping[str, str] = {}  # by name, the package that replaces a required one
        self.learnt = Learnt()  # by a search
        self.claimed: Claimed = "nothing"
        self.budget: Budget  # of the searches; each solve sets its own
        self.builds: MetadataBuilds | None = None  # of metadata that source archives do not state, if allowed

    def identify(self, requirement_or_candidate: AnyNeed | AnyCandidate) -> str:
        """The solver's name: a package, one extra of it, or the variant."""
        return requirement_or_candidate.key

    def get_preference(
        self,
        identifier: str,
        resolutions: Mapping[str, AnyCandidate],
        candidates: Mapping[str, Iterator[AnyCandidate]],
        information: Mapping[str, Iterator[_Information]],
        backtrack_causes: Sequence[_Information],
    ) -> tuple[object, ...]:
        """Torch first, then the variant and the family, then what is in a conflict, pinned, or requested directly."""
        caused = any(cause.requirement.key == identifier for cause in backtrack_causes)
        return self.preference(identifier, self.standing(identifier, list(information[identifier])), 0, caused)

    def standing(self, identifier: str, needs: Collection[_Information]) -> tuple[object, ...]:
        """The part of a preference that its needs decide: whether it is of the family, pinned, requested or bounded."""
        operators = {
            s.operator for n in needs if isinstance(n.requirement, PackageNeed) for s in n.requirement.specifier
        }
        pinned, bounded = "==" in operators, bool(operators & {"==", "<", "<=", "~="})
        name = identifier.partition("[")[0]
        family = identifier == VARIANT or self.family.owns(name)
        # As in pip: what has an upper bound first, since what has none can give way to it by an older release.
        return (name != "torch", not family, not pinned, all(n.parent for n in needs), not bounded)

    @staticmethod
    def preference(identifier: str, standing: tuple[object, ...], dead_ends: int, caused: bool) -> tuple[object, ...]:
        """Sort key of a package: the least is tried first.

        Args:
            identifier: The solver's name.
            standing: What its needs settle.
            dead_ends: How often earlier searches came to a dead end at it.
            caused: Whether it takes part in the conflict that the search comes back from.
        """
        return (*standing[:2], -dead_ends, not caused, *standing[2:], identifier)

    def find_matches(
        self,
        identifier: str,
        requirements: Mapping[str, Iterator[AnyNeed]],
        incompatibilities: Mapping[str, Iterator[AnyCandidate]],
    ) -> Matches[AnyCandidate]:
        """Candidates that satisfy all requirements so far, best first, created only on demand."""
        needs = list(requirements[identifier])
        # As of now: what a criterion was made with may be barred later, but never comes to be empty.
        bad = self.learnt.barred.union(incompatibilities[identifier])
        if (stand_ins := self._stand_ins(identifier, needs)) is not None:
            return [candidate for candidate in stand_ins if candidate not in bad]
        name, _, extra = identifier.rstrip("]").partition("[")
        fixed = self._fixed(needs, extra or None)
        if fixed is not None:
            fits = fixed not in bad and self._is_allowed(fixed) and all(self.is_satisfied_by(n, fixed) for n in needs)
            return [fixed] if fits else []
        published = self._published(name, extra or None, needs)
        return lambda: (c for c in published() if c not in bad)

    def _stand_ins(self, identifier: str, needs: Sequence[AnyNeed]) -> Sequence[AnyCandidate] | None:
        """The candidates for virtual packages: the variant, the Python, the owner of files; None for a real one."""
        if identifier == VARIANT:
            common = frozenset.intersection(*(n.variants for n in needs if isinstance(n, VariantNeed)))
            return [c for c in map(VariantCandidate, self.family.variants) if c.variant in common]
        if identifier == PYTHON:
            return ()
        holders = {ClaimCandidate(need.holder, need.key) for need in needs if isinstance(need, ClaimNeed)}
        # Two holders of one thing exclude each other.
        return (tuple(holders) if len(holders) == 1 else ()) if holders else None

    def _fixed(self, needs: Sequence[AnyNeed], extra: str | None) -> Candidate | None:
        """The candidate that a need names outright: the one that an extra extends, or a direct reference."""
        for need in needs:
            if isinstance(need, SameNeed):
                return need.candidate
        for need in needs:
            if isinstance(need, PackageNeed) and need.url:
                return self._direct.candidate(need.name, need.url, extra)
        return None

    def _is_allowed(self, candidate: Candidate) -> bool:
        """Whether the constraints let a candidate be that a need names outright, as far as its version is known."""
        constraint = self._constraints.get(candidate.name)
        if constraint is None or candidate.url is None or candidate.version == UNREAD:
            return True
        return constraint.contains(candidate.version, prereleases=True)

    def _published(self, name: str, extra: str | None, needs: Sequence[AnyNeed]) -> Callable[[], Iterator[Candidate]]:
        specifier = self._conjunctions.of(name, needs, self._constraints.get(name, SpecifierSet()))
        paired = [need for need in needs if isinstance(need, PairedNeed)]

        def family() -> Iterator[Candidate]:
            for option in self._options(name, specifier):
                if all(option.identity in need.options for need in paired):
                    yield Candidate(name, option.version, extra, option=option)
            others = () if paired else self._not_judged(name, specifier)
            yield from (Candidate(name, version, extra, file) for version, file in others)

        def ordinary() -> Iterator[Candidate]:
            offered = False
            yield from self._ready_made(name, extra, specifier)
            for version, file in self._selector.candidates(name, specifier):
                if gpu_excluded(name, version, self.family):
                    continue
                candidate = Candidate(name, version, extra, file)
                # An extra that newer versions have is not given up by going back to one from before it.
                offers = not extra or self._offers(candidate, extra)
                if offered and not offers:
                    return
                offered = offered or offers
                yield candidate

        if self.family.owns(name):
            return family
        if cuda_excluded(name, self.family):
            return lambda: iter(())
        if extra is None and (first := next(ordinary(), None)) and first.file:
            self._client.prefetch_metadata([first.file])
        return ordinary

    def _options(self, name: str, specifier: SpecifierSet) -> Walk[Option]:
        """The options of a family package that a specifier takes."""
        key = name, specifier
        if key not in self._walks:
            self._walks[key] = Walk(option for option in self.family.options(name) if option.matches(specifier))
        return self._walks[key]

    def _not_judged(self, name: str, specifier: SpecifierSet) -> Iterator[tuple[Version, IndexFile]]:
        """Releases of a family package that the index has and the catalogue lacks.

        They are taken if they are requested and nothing else is, or if they are newer than all that is known: that a
        machine runs none of the known builds says that it runs no older one either.
        """
        known = {Version(build.version) for build in self.family.catalogue.builds(name)}
        newer = SpecifierSet(f">{max(known)}")
        if self.family.knows(name, specifier) and (name == "torch" or not self.family.options(name)):
            return
        limits = specifier & newer if self.family.knows(name, specifier) else specifier
        # The catalogue answers for a family package if the index is out of reach.
        with contextlib.suppress(IndexUnavailableError):
            for version, file in self._selector.candidates(name, limits):
                if Version(version.public) not in known:
                    yield version, file

    def _ready_made(self, name: str, extra: str | None, specifier: SpecifierSet) -> Iterator[Candidate]:
        for option in self._ready.get(name, ()):
            same = SpecifierSet(f"=={option.version.public}")
            _, file = next(self._selector.candidates(name, same), (None, None))
            if file is not None and option.matches(specifier):
                yield Candidate(name, option.version, extra, file, option)

    def _offers(self, candidate: Candidate, extra: str) -> bool:
        return extra in {str(canonicalize_name(name)) for name in self.metadata(candidate).provides_extra}

    def is_satisfied_by(self, requirement: AnyNeed, candidate: AnyCandidate) -> bool:
        """Whether a candidate satisfies a requirement."""
        if isinstance(requirement, VariantNeed):
            return isinstance(candidate, VariantCandidate) and candidate.variant in requirement.variants
        if isinstance(requirement, ClaimNeed):
            return isinstance(candidate, ClaimCandidate) and candidate.holder == requirement.holder
        if not isinstance(candidate, Candidate) or isinstance(requirement, PythonNeed):
            return False
        if isinstance(requirement, PairedNeed):
            return candidate.option is not None and candidate.option.identity in requirement.options
        if isinstance(requirement, SameNeed):
            return structs.replace(candidate, extra=None) == requirement.candidate
        if requirement.url:
            return candidate.url == requirement.url
        if candidate.option is not None:
            return candidate.option.matches(requirement.specifier)
        # What only its build knows the version of may be any.
        return candidate.version == UNREAD or requirement.specifier.contains(candidate.version, prereleases=True)

    def claims(self, candidate: Candidate) -> tuple[ClaimNeed, ...]:
        """All claims of a candidate; whether they count in a search is ``claimed``."""
        if candidate not in self._claims:
            self._claims[candidate] = () if candidate.extra else tuple(claims_of(candidate, self.family))
        return self._claims[candidate]

    def get_dependencies(self, candidate: AnyCandidate) -> Iterator[AnyNeed]:
        """The needs of a candidate, for the environment's markers."""
        if not isinstance(candidate, Candidate):
            return
        # Before the metadata is read: most versions of a package may be ruled out by what they claim.
        if self.claimed != "nothing":
            yield from (claim for claim in self.claims(candidate) if self.claimed == "all" or claim.key != CUDA_MAJOR)
        if candidate not in self._needs:
            if candidate.option is not None and candidate.option.build.index == "default":
                self._client.prefetch([candidate.name])  # its file is looked up there once everything is chosen
            self._needs[candidate] = needs = tuple(self._needs_of(candidate))
            self._likely.ask((n.name, n.extra or "") for n in needs if isinstance(n, PackageNeed) and not n.url)
        yield from self._needs[candidate]

    def _needs_of(self, candidate: Candidate) -> Iterator[AnyNeed]:
        if candidate.extra:
            yield SameNeed(structs.replace(candidate, extra=None))
        elif candidate.option is not None and candidate.file is None:
            build = candidate.option.build
            variants = self.family.variants_with(build)
            if variants is not None:
                yield VariantNeed(variants)
            if build.torch:
                limit = build.torch if build.needs_its_torch else ""
                yield PackageNeed("torch", None, SpecifierSet(limit), None, f"torch{limit}", candidate.label)
        elif candidate.file is not None and not candidate.file.index and not self.family.owns(candidate.name):
            yield from made_for(candidate.name, candidate.file.url, self.family)
        metadata = self.metadata(candidate)
        # A page of links and a direct reference do not state it, and METADATA is only read for what may be chosen.
        if not self._environment.allows(metadata.requires_python):
            yield PythonNeed(metadata.requires_python or "")
        undeclared = self.family.undeclared(candidate.name, candidate.version)
        origin = candidate.label
        for line in (*metadata.requires_dist, *undeclared):
            for need in self.needs_in(line, candidate.extra or "", origin):
                # What a candidate meets itself is no need: as one it would forbid all its other versions.
                if not (isinstance(need, PackageNeed) and _met_by_itself(need, candidate)):
                    yield need

    def metadata(self, candidate: Candidate) -> CoreMetadata:
        """The candidate's core metadata: from the catalogue for family builds, otherwise from its index."""
        if candidate.url is not None:
            found = self._direct.metadata(candidate.name, candidate.url)
            return self._built(self._direct.asked_for(candidate.url), found)
        if candidate.file is not None:
            return self._built(candidate.file, self._client.metadata(candidate.file))
        if candidate.option is not None:
            build = candidate.option.build
            if build.requires is not None:
                return CoreMetadata(build.package, build.version, build.requires, build.requires_python)
            return self._client.metadata(self._files.file(build))
        raise AssertionError(f"{candidate.label} stands for nothing")

    def _built(self, file: IndexFile | None, found: CoreMetadata) -> CoreMetadata:
        if found.exact or self.builds is None or file is None:
            return found
        started = time.monotonic()
        exact = self.builds.exact(file, found)
        self.budget.pause(time.monotonic() - started)
        return exact

    def _wants(self, line: str | Requirement, requirement: Requirement, extra: str) -> bool:
        """Whether a requirement holds in the environment, for an extra if one is given, and not without it."""
        if requirement.marker is None:
            return not extra
        key = line, extra
        if key not in self._wanted:
            wants = self._environment.wants
            self._wanted[key] = wants(requirement.marker, extra) and not (extra and wants(requirement.marker))
        return self._wanted[key]

    def paired_torch(self, roots: Sequence[AnyNeed]) -> list[PairedNeed]:
        """Needs for a torch that matches the companions among the roots: first only the best, then any that does.

        Left to itself the solver gives up the torch that it has for a companion that it likes better.
        """
        asked: dict[str, SpecifierSet] = {}
        for need in roots:
            if isinstance(need, PackageNeed) and self.family.owns(need.name):
                limits = need.specifier & self._constraints.get(need.name, SpecifierSet())
                asked[need.name] = asked.get(need.name, SpecifierSet()) & limits
        companions = [name for name in asked if self.family.follows_torch(name)]
        wanted = "torch" in asked or any(self.family.brings_torch(name, asked[name]) for name in companions)
        options = [torch.identity for torch, *_ in self.family.pairings(asked)] if companions and wanted else []
        text = f"torch for {', '.join(companions)}"
        return [PairedNeed(frozenset(some), text) for some in (options[:1], options) if some]

    def needs_in(self, line: str | Requirement, extra: str, origin: str) -> Iterator[PackageNeed]:
        """The needs of one requirement line; none if its marker does not hold for the environment and extra."""
        if isinstance(line, str) and (only := only_for(line)) is not None and only != extra:
            return
        requirement = parsed(line) if isinstance(line, str) else line
        if requirement is None or not self._wants(line, requirement, extra):
            return
        name = self.stand_ins.get(own := canonicalize_name(requirement.name), own)
        overrides = self.overrides.get(name)
        instead = [requirement] if overrides is None else [o for o in overrides if self._environment.wants(o.marker)]
        for one in instead:
            words = f"{one.name}{_bracket(requirement.extras)}{one.specifier}"
            text = f"{one.name} @ {one.url}" if one.url else words
            for named in (None, *sorted({*requirement.extras, *one.extras})):
                wanted = canonicalize_name(named) if named else None
                yield PackageNeed(name, wanted, one.specifier, one.url, text, origin)

    def overridden(self, candidate: Candidate, versions: Mapping[str, Version]) -> Iterator[str]:
        """The requirements of a candidate that chosen versions do not satisfy because overrides replace them."""
        for line in self.metadata(candidate).requires_dist if self.overrides else ():
            requirement = parsed(line)
            name = canonicalize_name(requirement.name) if requirement else ""
            if requirement is None or name not in self.overrides or name not in versions:
                continue
            fits = requirement.specifier.contains(versions[name], prereleases=True)
            if not fits and self._wants(line, requirement, candidate.extra or ""):
                yield f"{requirement.name}{requirement.specifier}"


def _bracket(extras: Iterable[str]) -> str:
    return f"[{names}]" if (names := ",".join(sorted(extras))) else ""


def _met_by_itself(need: PackageNeed, candidate: Candidate) -> bool:
    own = (need.name, need.extra) in ((candidate.name, None), (candidate.name, candidate.extra))
    return own and need.url is None and need.specifier.contains(candidate.version, prereleases=True)
