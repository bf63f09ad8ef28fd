"""Candidates of ordinary packages: the files of the default index, filtered for the environment, best first."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace
from packaging.specifiers import Specifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from envsolve.errors import IndexUnavailableError
from envsolve.facts.builds import Build
from envsolve.machine.model import Machine
from envsolve.packages.client import IndexClient
from envsolve.packages.links import hashed
from envsolve.packages.model import IndexFile, MetadataUnavailableError, PlaceholderError, read_version
from envsolve.packages.pages import Listing
from envsolve.packages.requirements import Need
from envsolve.rules.platform import Environment, libc_of
from envsolve.rules.verdict import Level
from envsolve.solve.family import Family, Option
from envsolve.solve.needs import Walk, only_for, parsed, within
from envsolve.solve.outcome import PlanWarning
from envsolve.solve.preferences import Preferences, in_front, too_late
from envsolve.system.limits import ODD_FILES
from envsolve.values import CudaVersion, PythonVersion

_ANY = SpecifierSet()
_PYTHONS = re.compile(r"(?:cp|py)(\d)(\d{0,2})")
_NEWEST_LIBC = 99  # the minor version of one that every wheel installs on
_SDIST = re.compile(r"\.(?:tar\.gz|zip|tar\.bz2|tgz)$")


class CandidateSelector(msgspec.Struct, eq=False):
    """The indexes' offer of each ordinary package, for one environment or for several that share versions.

    Attributes:
        environment: The one whose files are chosen.
        digests: Per package, the only files that may be taken, as ``sha256:...``; a package not named may be any file.
        others: Environments in which the same version must have a file, too.
        exclude_newer: First instant that is too late (:func:`parse_exclude_newer`).
        prereleases: Whether pre-releases are wanted even where no specifier names one.
        preferences: Versions to choose if the request and the machines allow them.
        visited: How many versions of all packages were looked at for a file.
        left_out: Why files are not taken that could have been.
    """

    client: IndexClient
    environment: Environment
    digests: Mapping[str, frozenset[str]]
    others: tuple[Environment, ...] = ()
    exclude_newer: str | None = None
    prereleases: bool = False
    preferences: Preferences = {}
    visited: int = 0
    left_out: list[MetadataUnavailableError] = []
    _listed: dict[str, tuple[Listing, Sequence[int]]] = {}
    _chosen: dict[tuple[str, int], IndexFile | None] = {}
    _takes: dict[tuple[str, Specifier], dict[int, bool]] = {}
    _walks: dict[tuple[str, SpecifierSet], Walk[tuple[Version, IndexFile]]] = {}

    def exists(self, name: str) -> bool:
        """Whether any index lists a file of the project that can be read at all."""
        return bool(self._published(name)[1])

    def versions(self, name: str) -> list[Version]:
        """Every version listed, newest first, whether or not it suits the environment."""
        listing, places = self._published(name)
        return [_version(listing, place) for place in places]

    def has(self, name: str, specifier: SpecifierSet) -> bool:
        """Whether an index that can be reached lists a version that a specifier takes."""
        with contextlib.suppress(IndexUnavailableError):
            return any(specifier.contains(version, prereleases=True) for version in self.versions(name))
        return False

    def leave_out(self, failure: MetadataUnavailableError) -> None:
        """Choose another file if the metadata of one cannot be read: one bad file must not end a plan.

        Raises:
            MetadataUnavailableError: The failure, if the file was not chosen here, or after too many.
        """
        found = [key for key, file in self._chosen.items() if file is not None and file is failure.file]
        if not found or len(self.left_out) >= ODD_FILES:
            raise failure
        self.left_out.append(failure)
        for key in found:
            del self._chosen[key]
            for walk in [walk for walk in self._walks if walk[0] == key[0]]:
                del self._walks[walk]

    def about_left_out(self) -> Iterator[PlanWarning]:
        """Warn about files that were left out."""
        for failure in self.left_out:
            hint = (
                failure.hint
                if isinstance(failure, PlaceholderError)
                else "delete the file, or report the fault to the project"
            )
            yield PlanWarning("file-left-out", f"{failure.message}; the plan does not use this file", hint)

    def refuse_unread(self, needs: Iterable[Need], family: Family) -> None:
        """Fail if a file, or a place of ``--find-links``, that cannot be read may be what no other place lists.

        Raises:
            IndexUnavailableError: Why it cannot be read.
        """
        for failure in self.left_out:
            if not (isinstance(failure, PlaceholderError) and self._has_others(failure)):
                raise failure
        for requirement in (need.requirement for need in needs):
            name, specifier = canonicalize_name(requirement.name), requirement.specifier
            known = family.owns(name) and family.knows(name, specifier)
            if not (known or requirement.url or self.has(name, specifier)):
                self.client.links.refuse_unread()

    def _has_others(self, failure: MetadataUnavailableError) -> bool:
        """Whether the project of a file that was left out has files that were not."""
        name = failure.file.filename.rsplit("-", 1)[0] if failure.file else ""
        return bool(name) and any(file not in [odd.file for odd in self.left_out] for file in self.client.project(name))

    def candidates(self, name: str, specifier: SpecifierSet) -> Iterator[tuple[Version, IndexFile]]:
        """Versions that the specifier takes, those kept first, then the newest; with the best file.

        A yanked version is taken only if it is pinned with ``==``, or kept from a lock, and nothing else fits: PEP 592.
        A wheel that runs here goes before an sdist, and before the sdists of newer versions whose wheels are all for
        newer Pythons or a newer libc. Pre-releases appear only on request, or where a project has published nothing
        else.
        """
        key = name, specifier
        if key not in self._walks:
            self._walks[key] = Walk(self._candidates(name, specifier))
        return iter(self._walks[key])

    def sources(self, name: str, specifier: SpecifierSet) -> Iterator[tuple[Version, IndexFile]]:
        """Versions that have a source distribution for the environment's Python, in the same order, with that file."""
        listing, _ = self._published(name)
        for place in self._taken(name, specifier):
            files = [f for f in listing.files(place) if self._may_be(name, f) and not f.filename.endswith(".whl")]
            file = _best(files, self.environment)
            if file is not None and file.yanked is None:
                yield _version(listing, place), file

    def served(self, name: str, specifier: SpecifierSet, python: str) -> bool:
        """Whether a version that the specifier takes has a file for another Python ``X.Y`` on the same platform."""
        other = Environment.of(Machine(platform=self.environment.platform), python)
        listing, _ = self._published(name)
        fitting = self._taken(name, specifier)
        return any(_best([f for f in listing.files(p) if self._may_be(name, f)], other) for p in fitting)

    def lacks_wheel(self, name: str, specifier: SpecifierSet, here: Environment, others: Sequence[Environment]) -> int:
        """0 if a version has a wheel for an environment or none for the others, 1 if only an sdist, 2 if no file."""
        if self.has_wheel(name, specifier, here) or not any(self.has_wheel(name, specifier, one) for one in others):
            return 0
        return 1 if self.served(name, specifier, here.python) else 2

    def has_wheel(self, name: str, specifier: SpecifierSet, environment: Environment) -> bool:
        """Whether a version that the specifier takes has a wheel for an environment."""
        listing, _ = self._published(name)
        wheels = (f for p in self._taken(name, specifier) for f in listing.files(p) if f.filename.endswith(".whl"))
        return any(_best([wheel], environment) for wheel in wheels if self._may_be(name, wheel))

    def _candidates(self, name: str, specifier: SpecifierSet) -> Iterator[tuple[Version, IndexFile]]:
        listing, _ = self._published(name)
        withdrawn: list[tuple[Version, IndexFile]] = []
        pinned = any(one.operator in ("==", "===") and not one.version.endswith(".*") for one in specifier)
        kept = self.preferences.get(name, ())
        untried: list[tuple[Version, IndexFile]] = []
        for place in self._taken(name, specifier):
            file = self._file(name, listing, place)
            if file is None:
                continue
            found = _version(listing, place), file
            if file.yanked is not None:
                withdrawn += [found] if pinned or found[0] in kept else []
            elif not file.filename.endswith(".whl") and (untried or self._is_for_newer(listing, place)):
                untried.append(found)
            else:
                yield found
        yield from (*untried, *withdrawn)

    def _is_for_newer(self, listing: Listing, place: int) -> bool:
        """Whether the wheels of a version are for newer Pythons, or for a newer libc than the environment's.

        Nobody has tried its sdist with this Python, or it takes newer compilers than such a system has.
        """
        wheels = [file.filename for file in listing.files(place) if file.filename.endswith(".whl")]
        kind, (major, _) = libc_of(self.environment.platform) or ("glibc", (2, 0))
        platform = replace(self.environment.platform, libc=f"{kind} {major}.{_NEWEST_LIBC}")
        later = Environment.of(Machine(platform=platform), self.environment.python)
        if any(later.rank(wheel) is not None for wheel in wheels):
            return True
        own, oldest = PythonVersion.parse(self.environment.python), [_oldest_python(wheel) for wheel in wheels]
        return bool(oldest) and all(python is not None and python > own for python in oldest)

    def _taken(self, name: str, specifier: SpecifierSet) -> Iterator[int]:
        """Places of the versions that a specifier takes, in the order of preference."""
        listing, places = self._published(name)
        wanted = self.prereleases or bool(specifier.prereleases) or listing.early.issuperset(places)
        singles = [(single, self._takes.setdefault((name, single), {})) for single in specifier]
        kept = self.preferences.get(name, ())
        near = within(places, specifier, lambda place: _version(listing, place))
        for place in in_front(near, kept, lambda place: _version(listing, place)):
            if wanted or place not in listing.early:
                for single, known in singles:
                    if place not in known:
                        known[place] = single.contains(_version(listing, place), prereleases=True)
                    if not known[place]:
                        break
                else:
                    yield place

    def _file(self, name: str, listing: Listing, place: int) -> IndexFile | None:
        """The best file of a version; None if it has none for every environment."""
        key = name, place
        if key not in self._chosen:
            self.visited += 1
            files = [file for file in listing.files(place) if self._may_be(name, file)]
            everywhere = all(_best(files, other) for other in self.others)
            self._chosen[key] = _best(files, self.environment) if everywhere else None
        return self._chosen[key]

    def _published(self, name: str) -> tuple[Listing, Sequence[int]]:
        """A project's page, and the places of its versions that have a file which may be taken, newest first."""
        if name not in self._listed:
            listing = self.client.listing(name)
            places: Sequence[int] = range(len(listing.versions) - 1, -1, -1)
            if self.exclude_newer is not None or name in self.digests:
                places = [p for p in places if any(self._may_be(name, file) for file in listing.files(p))]
            self._listed[name] = listing, places
        return self._listed[name]

    def _may_be(self, name: str, file: IndexFile) -> bool:
        if any(file == odd.file for odd in self.left_out):
            return False
        digests = self.digests.get(name)
        return not too_late(file.upload_time, self.exclude_newer) and taken(hashed(file) if digests else file, digests)


def taken(file: IndexFile, digests: frozenset[str] | None) -> bool:
    """Whether a file is one of those that a requirement file lists by hash; True if it lists none."""
    return not digests or any(f"{algorithm}:{digest}" in digests for algorithm, digest in file.hashes.items())


def _version(listing: Listing, place: int) -> Version:
    version = read_version(listing.versions[place])
    assert version is not None  # others are not among the versions of a listing
    return version


def _oldest_python(wheel: str) -> PythonVersion | None:
    """The oldest Python in the tags of a wheel's name: 3.7 of ``cp37-abi3``, 3.0 of ``py3-none``; None if in none."""
    found = _PYTHONS.findall(wheel.rsplit("-", 3)[1]) if wheel.count("-") > 2 else []
    return min((PythonVersion(int(major), int(minor or 0)) for major, minor in found), default=None)


def _best(files: Sequence[IndexFile], environment: Environment) -> IndexFile | None:
    """The most specific wheel, otherwise an sdist; not yanked before yanked."""
    ranked = []
    for file in files:
        if not environment.allows(file.requires_python):
            continue
        wheel = file.filename.endswith(".whl")
        rank = environment.rank(file.filename) if wheel else None
        if rank is None and (wheel or not _SDIST.search(file.filename)):
            continue
        ranked.append(((file.yanked is not None, not wheel, rank or 0, file.filename), file))
    return min(ranked, key=lambda pair: pair[0])[1] if ranked else None


# Wheels of extensions that are on no package index: on release pages and on pages of links.
#
# Each is made for one torch minor, one CUDA and one C++ ABI. Which is the right one is therefore a question that has
# an answer once torch is chosen; torch is bent only to one whose release is pinned.


Ready = Mapping[str, Sequence[Option]]
"""By package, its wheels, best first."""


def ready(package: str, torch: Build, family: Family) -> tuple[Option, ...]:
    """The wheels of a package that are compatible with a torch and fit the machines, best first.

    Args:
        package: A package that is compiled otherwise.
        torch: The torch of the plan.
        family: What is published, and the machines.
    """
    fitting = [option for option in _usable(package, family) if goes_with(option.build, torch)]
    # What a public list names is there; a workflow that should have made a wheel may have failed.
    fitting.sort(key=lambda option: option.build.evidence.rank)
    fitting.sort(key=lambda option: Version(option.version.public), reverse=True)
    return tuple(fitting)


def still_there(wheels: Ready, family: Family) -> Ready:
    """Wheels without those that no longer exist."""
    return {
        name: [o for o in options if not any(o.build.filename(p) in family.gone for p in o.build.pythons)]
        for name, options in wheels.items()
    }


def torches_served(package: str, family: Family, versions: SpecifierSet = _ANY) -> tuple[str, ...]:
    """The torch minors for which a package has wheels of some versions that fit the machines, oldest first."""
    found = {
        CudaVersion.parse(torch.build.version)
        for option in _usable(package, family)
        for torch in family.options("torch")
        if option.matches(versions) and goes_with(option.build, torch.build)
    }
    return tuple(f"{major}.{lesser}" for major, lesser in sorted(found))


def goes_with(build: Build, torch: Build) -> bool:
    """Rule 9: the torch minor, the CUDA and the C++ ABI that a wheel was made for.

    A wheel whose name states a whole variant (``+pt28cu129``) was made for that one, others for every CUDA of a major.
    """
    if build.cuda is None or torch.cuda is None or build.torch is None:
        return False
    if build.variant in build.local:
        same = build.variant == torch.variant
    else:
        same = CudaVersion.parse(build.cuda).major == CudaVersion.parse(torch.cuda).major
    abi = build.cxx11_abi is None or build.cxx11_abi == torch.cxx11_abi
    return same and abi and SpecifierSet(build.torch).contains(torch.version, prereleases=True)


def _usable(package: str, family: Family) -> Iterator[Option]:
    for option in family.judged_outside(package):
        known = option.build.code is not None and option.verdict.level is not Level.NONE
        if known and not option.version.is_prerelease:
            yield option


# Asking for pages before anybody knows that they are needed, on the word of releases that the catalogue knows.


_Wanted = tuple[str, str]  # a package, and an extra of it or ""


class Likely:
    """The pages of required packages and, if those are not in the cache, of packages that they are likely to require.

    Without it a cold plan waits once for each layer of dependencies. Likely are the requirements of the newest known
    need in this environment; the pages decide.
    """

    def __init__(self, client: IndexClient, environment: Environment, owned: Callable[[str], bool]) -> None:
        """Args: owned: Whether a package is of the family, whose pages are read only for files."""
        self._client = client
        self._environment = environment
        self._owned = owned
        self._seen: set[_Wanted] = set()

    def ask(self, needed: Iterable[_Wanted]) -> None:
        """Start asking for the pages of packages with their extras; what the cache has is read from there."""
        new = [wanted for wanted in needed if not self._owned(wanted[0])]
        if self._client.prefetch(sorted({name for name, _ in new})):
            self._client.prefetch(self._names_behind(new))

    def _names_behind(self, needed: Iterable[_Wanted]) -> list[str]:
        """Names in the order in which they were come upon, the nearest first."""
        found: dict[str, None] = {}
        queue = list(needed)
        for wanted in queue:
            if wanted not in self._seen:
                self._seen.add(wanted)
                following = [one for one in self._needed_by(wanted) if not self._owned(one[0])]
                found.update((name, None) for name, _ in following)
                queue += following
        return list(found)

    def _needed_by(self, wanted: _Wanted) -> Iterator[_Wanted]:
        name, extra = wanted
        for line in self._client.known.requires(name):
            only = only_for(line)
            if only is not None and only != extra:
                continue
            requirement = parsed(line)
            if requirement is not None and self._environment.wants(requirement.marker, extra):
                needed = canonicalize_name(requirement.name)
                yield needed, ""
                yield from ((needed, canonicalize_name(one)) for one in requirement.extras)
