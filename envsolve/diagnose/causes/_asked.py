"""Messages of installers about requests: packages that they did not find, and requirements that exclude each other."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Literal

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from envsolve.binaries.names import is_toolkit_package
from envsolve.diagnose.fixes import pair_with, with_another_python
from envsolve.diagnose.model import Fix
from envsolve.diagnose.scene import Scene
from envsolve.diagnose.signatures import Match, search_near
from envsolve.facts.builds import ANY, Build
from envsolve.facts.catalogue import nearest_variants, variants
from envsolve.machine.model import Platform
from envsolve.rules.platform import libc_needed, libc_of, libc_serves, python_fits, same_system

#: An index given in place of the default one, which has torch and a few more packages.
_TORCH_INDEX = re.compile(
    r"--(?:default-)?index(?:-url)?[= ](?:[\w-]+=)?(?P<url>https?://\S{1,100}?/whl/(?:test/|nightly/)?[a-z\d.]*[a-z\d])"
)

Why = Literal[
    "python-range", "mac", "pinned", "torch-index", "unknown", "libc", "never", "platform", "python", "another-index"
]


@dataclass(frozen=True, slots=True)
class Asked:
    """One package that was not found.

    Attributes:
        name: The normalised name.
        wanted: The versions that were requested, ``==2.9.1+cu124``; empty for any.
        known: The builds of that name that the catalogue has.
        meant: The Pythons of the requested versions.
        here: Those of them that are for the machine's system and architecture.
        fitting: Those of them that are for its Python, if that is known.
        libc: The oldest C library that a build of ``fitting`` runs on, if the machine's is older than all of them.
        ignored: The Pythons of the versions requested, as pip says that it ignores them.
        on_mac: Whether a variant of torch was requested on macOS, by its local version or by its index.
        torch_index: The URL of an index for torch only that was given in place of the default one.
        no_variant: The variant of that index, if torch was never published for it.
        of_torch: Whether torch requires it, and not the user.
        python: The Python that looked: the report's, otherwise inferred from the versions that the installer lists.
    """

    match: Match
    name: str
    wanted: str
    known: tuple[Build, ...]
    meant: tuple[Build, ...]
    here: tuple[Build, ...]
    fitting: tuple[Build, ...]
    libc: tuple[str, tuple[int, int]] | None
    ignored: str | None
    on_mac: bool
    torch_index: str | None
    about_torch: bool
    no_variant: str | None
    of_torch: bool
    python: str | None

    @property
    def words(self) -> str:
        """``torch==2.9.1+cu124``."""
        return f"{self.name}{self.wanted}"

    @property
    def why(self) -> Why:
        """Why the installer did not find it."""
        if self.ignored:
            return "python-range"
        if self.on_mac:
            return "mac"
        if self.no_variant and self.known:
            return "never"
        if self.of_torch and self.torch_index:
            return "torch-index"
        if is_toolkit_package(self.name) and self.about_torch:
            # Torch pins it exactly, and uv looks no further than the first index that has the name.
            return "pinned"
        if not self.known:
            return "torch-index" if self.torch_index else "unknown"
        if self.libc:
            return "libc"
        if not self.meant:
            return "never"
        return "platform" if not self.here else "python" if not self.fitting else "another-index"

    @property
    def lacks_local(self) -> bool:
        """Whether builds for this Python and system answer, and none has the requested local version in its name."""
        local = self.wanted.partition("+")[2]
        return bool(local and self.fitting) and not any(build.local == f"+{local}" for build in self.fitting)

    @property
    def pythons(self) -> list[str]:
        """The Pythons that the builds for the machine's system are for."""
        return sorted({python_of(tag) for build in self.here for tag in build.pythons}, key=Version)


def looked_up(scene: Scene) -> Asked | None:
    """The package or version that was not found; None if uv or pip gives the reason itself."""
    taken = scene.first("uv-from-index")
    if scene.first("conflict-unavailable", "uv-first-index"):
        return None
    if taken and not scene.catalogue.builds(taken.groups["package"].lower()):
        return None
    return asked_for(scene)


def asked_for(scene: Scene) -> Asked | None:
    """The first package that pip or uv did not find; None if there is none."""
    match = scene.first("pip-none", "uv-none", "poetry-none")
    if match is None:
        return None
    name = canonicalize_name(match.group("package", "name", "absent") or "")
    wanted = (match.group("specifier", "wanted") or "").rstrip(";,")
    if match.signature.id == "poetry-none":
        wanted = f"=={wanted}"
    known = scene.catalogue.builds(name)
    meant = tuple(build for build in known if _answers(build, wanted))
    here = tuple(build for build in meant if same_system(build.made_for, scene.platform))
    python = scene.python or _python_of_listed(scene, known, here)
    fitting = tuple(build for build in here if python is None or python_fits(build.pythons, python).ok)
    index = _TORCH_INDEX.search(scene.report.text)
    return Asked(
        match,
        name,
        wanted,
        tuple(known),
        meant,
        here,
        fitting,
        _too_new(fitting, scene.platform),
        _ignored(scene, wanted),
        scene.on_mac and bool(known) and ("+" in wanted or bool(index and "/cu" in index["url"])),
        index["url"] if index else None,
        scene.mentions("torch"),
        _unpublished(index["url"], scene, name, known) if index else None,
        name != "torch" and scene.mentions("(from torch)", "(from torch="),
        python,
    )


_LISTED = re.compile(r"\(from versions: (?P<versions>\d[^()\n]{1,4000})\)")
_VERSION = re.compile(r"\d+(?:\.\d+)*(?:\.post\d+)?")
_WITH_VARIANT = re.compile(r"(\d[\w.]*)\+(\w+)")


def _python_of_listed(scene: Scene, known: Sequence[Build], wanted: Sequence[Build]) -> str | None:
    """The Python of an installer that lists builds of an index, but not the requested one.

    It is one for which everything is published that is listed, and nothing that was requested.
    """
    match = search_near(scene.report.text, _LISTED, "(from versions: ")
    listed = set(_WITH_VARIANT.findall(match["versions"])) if match else set()
    there = [build for build in wanted if build.variant in {variant for _, variant in listed}]
    if not there:
        return _python_of_releases(scene, known, wanted)
    pythons = sorted({python_of(tag) for build in known for tag in build.pythons if tag.startswith("cp")}, key=Version)
    for python in reversed(pythons):
        serves = {(build.version, build.variant) for build in known if python_fits(build.pythons, python).ok}
        if listed <= serves and not any(python_fits(build.pythons, python).ok for build in there):
            return python
    return None


#: The source releases of torch that no installer builds: all that it sees if no wheel is for its Python.
_NO_WHEEL = re.compile(r"0\.1\.2(?:\.post\d)?(?:, 0\.1\.2\.post\d)*")


def _python_of_releases(scene: Scene, known: Sequence[Build], wanted: Sequence[Build]) -> str | None:
    """The Python of an installer that lists the releases of the default index: the first one of them tells it.

    None if the releases are those of several Pythons, and what was requested is published for some of them only.
    """
    match = search_near(scene.report.text, _LISTED, "(from versions: ")
    if match is None or "+" in match["versions"] or not _VERSION.match(match["versions"]):
        return None
    if _NO_WHEEL.fullmatch(match["versions"]):
        newest = max((Version(python_of(tag)) for build in wanted for tag in build.pythons), default=None)
        return f"{newest.major}.{newest.minor + 1}" if newest else None
    listed = {Version(one) for one in match["versions"].split(", ") if _VERSION.fullmatch(one)}
    here = [one for one in known if one.index == "default" and same_system(one.made_for, scene.platform)]
    found = [p for p, served in _releases(here).items() if listed and listed <= served and min(listed) == min(served)]
    serves = {any(python_fits(build.pythons, python).ok for build in wanted) for python in found}
    return found[-1] if len(serves) == 1 else None


def _releases(builds: Sequence[Build]) -> dict[str, set[Version]]:
    """The releases for each Python, the oldest Python first."""
    pythons = sorted({python_of(tag) for build in builds for tag in build.pythons if tag.startswith("cp")}, key=Version)
    served = {p: {Version(build.version) for build in builds if python_fits(build.pythons, p).ok} for p in pythons}
    return {python: versions for python, versions in served.items() if versions}


def _unpublished(url: str, scene: Scene, name: str, known: Sequence[Build]) -> str | None:
    """The variant of an index's URL, ``cu131``, if torch, or its requested companion, has no build for it."""
    variant = url.rpartition("/")[2]
    if not re.fullmatch(r"cu\d{2,3}", variant):
        return None
    of_torch = variant in variants(scene.catalogue)
    there = {build.variant for build in known if build.index == "pytorch"}
    close = scene.family.follows_torch(name) and there and not there & {variant, ANY}
    return variant if not of_torch or close else None


def _answers(build: Build, wanted: str) -> bool:
    return _takes(wanted, build.version) or _takes(wanted, f"{build.version}+{build.variant}")


# Several causes ask this of every build of a package.
@lru_cache(maxsize=4096)
def _takes(wanted: str, version: str) -> bool:
    specifier = _as_written(wanted)
    return specifier is not None and specifier.contains(version, prereleases=True)


@lru_cache(maxsize=64)
def _as_written(text: str) -> SpecifierSet | None:
    try:
        return SpecifierSet(text)
    except InvalidSpecifier:
        return None


def _ignored(scene: Scene, wanted: str) -> str | None:
    """The Pythons of the requested versions, if pip ignores those versions because of their Python."""
    match = scene.first("pip-ignored")
    text = match.groups["listed"] if match else ""
    listed = re.findall(r"([\w.+!]{1,40}) Requires-Python ([<>=!~][^ ;]{1,40})", text)
    ranges = [pythons for version, pythons in listed if _takes(wanted, version)]
    return ranges[-1] if ranges else None


def _too_new(builds: tuple[Build, ...], platform: Platform) -> tuple[str, tuple[int, int]] | None:
    """The libc that the builds require, if the machine's C library supports none of them."""
    have = libc_of(platform)
    needs = [need for build in builds if (need := _needed(build))]
    if have is None or len(needs) < len(builds) or any(libc_serves(have, need) for need in needs):
        return None
    return min(needs, key=lambda need: need[1], default=None)


def _needed(build: Build) -> tuple[str, tuple[int, int]] | None:
    """The newer of what a build's platform tag and its libraries require."""
    both = (libc_needed(build.platform), libc_of(Platform(libc=build.libc)))
    return max(filter(None, both), key=lambda need: need[1], default=None)


def python_of(tag: str) -> str:
    """``cp312`` as ``3.12``."""
    match = re.match(r"(?:cp|py)(\d)(\d*)", tag)
    return f"{match[1]}.{match[2] or 0}" if match else "0"


#: What uv says that it cannot install: the version in the lock, and the index that it was taken from.
_LOCKED = re.compile(
    r"Distribution .(?P<name>[\w.-]{1,60})==(?P<version>[\w.]{1,40}) @ registry\+\S{1,100}?/whl/(?P<variant>\w+)"
)


def is_locked(scene: Scene) -> bool:
    """Whether uv's lock has a version for other platforms only, although the index has its variant for this one.

    On PyTorch's indexes, the same release has a local part for some platforms and none for others.
    """
    listed = scene.first("uv-wheels")
    if listed is None or listed.groups["what"].lower() != "platform":
        return False
    match = search_near(scene.report.text, _LOCKED, " @ registry+")
    builds = scene.published(canonicalize_name(match["name"])) if match else []
    return any(match and b.version == match["version"] and b.variant == match["variant"] for b in builds)


def nearest(scene: Scene, name: str, wanted: str, variant: str | None = None) -> tuple[Fix, ...]:
    """The same version in a published variant, then the best build of any version.

    Args:
        variant: What was requested and does not exist: that of the nearest CUDA comes first.
    """
    version = re.search(r"\d+(?:\.\d+)+", wanted)
    texts = [f"=={version[0]}+{near}" for near in nearest_variants(variant or "", scene.catalogue) if version]
    texts += [f"=={version[0]}"] if version else []
    # What is installed by the same command has to be in the same variant.
    also = [one for one in ("torch", "torchvision", "torchaudio") if variant and one != name and scene.mentions(one)]
    beside = {one: SpecifierSet() for one in also} if scene.family.follows_torch(name) else {}
    found = (pair_with(scene, {**beside, name: SpecifierSet(text)}) for text in (*texts, ""))
    return tuple({remedy.command: remedy for remedy in found if remedy}.values())


def python_for(scene: Scene, range_: str) -> Fix:
    """An environment with a Python for which torch is published, otherwise with the one that a range names."""
    return with_another_python(scene) or another_python(range_)


def another_python(range_: str) -> Fix:
    """An environment with the Python that a range names."""
    version = re.search(r"3\.\d+", range_)
    python = version[0] if version else "3.12"
    return Fix(f"Make an environment with Python {python}.", f"uv venv --python {python}")


# Requirements that exclude each other, as pip, uv and Poetry print them.

_NAME = r"(?P<who>[A-Za-z][\w.-]{0,60})(?:\[[\w,]{0,60}\])?"
_WHAT = r"(?P<what>[A-Za-z][\w.-]{0,60})(?:\[[\w,]{0,60}\])?"
# pip and uv write torch==2.6.0, Poetry torch (2.6.0) and torch (>=2.6,<3.0).
_WANTED = r"(?: \((?P<range>[^()]{1,60})\)|(?P<specifier>[=<>~!][^\s;)]{1,60}))"
_RELEASE = r"(?:[ =]{1,3}(?P<version>\d[\w.+!-]{0,40})| \((?P<release>[^()]{1,60})\))"
_DEMAND = re.compile(rf"\b{_NAME}{_RELEASE} (?:depends on|requires) {_WHAT}{_WANTED}")
_REQUESTED = re.compile(
    r"(?:The user requested(?: \(constraint\))?|you require|your project (?:depends on|requires)|project depends on) "
    rf"{_WHAT}{_WANTED}"
)
_BOTH = re.compile(rf"depends on both {_WHAT}{_WANTED}")
#: Characters of a report that are searched for demands.
_MOST = 200_000


@dataclass(frozen=True, slots=True)
class Demand:
    """A requirement of a package, or of the user if it has no name.

    Attributes:
        ranges_over_local: Whether it is a range from a local version, as Poetry writes it: ``^2.0.0+cu118``. No exact
            version without one is in it.
    """

    who: str | None
    version: str | None
    what: str
    wanted: SpecifierSet
    ranges_over_local: bool


def disputed(scene: Scene) -> list[Demand]:
    """The conflicting requirements on the first package for which no release satisfies all of them."""
    demands = list(_demands(scene.report.text[:_MOST]))
    for what in dict.fromkeys(one.what for one in demands):
        same = [one for one in demands if one.what == what]
        if not _agree(scene, same):
            apart = [one for one in same if not all(_agree(scene, [one, other]) for other in same)]
            return apart or same
    return []


def _agree(scene: Scene, demands: Sequence[Demand]) -> bool:
    """Whether a published release satisfies all requirements; for unknown packages, whether they are equal."""
    if len({str(one.wanted) for one in demands}) < 2:
        return True
    together, known = all_of(demands), scene.catalogue.builds(demands[0].what)
    there = any(together.contains(build.version, prereleases=True) for build in known)
    return there and not any(one.ranges_over_local for one in demands)


def _demands(text: str) -> Iterator[Demand]:
    for pattern in (_DEMAND, _REQUESTED, _BOTH):
        for match in pattern.finditer(text):
            raw = (match["specifier"] or match["range"]).strip().rstrip(",.")
            wanted, named = _specifier(raw), match.groupdict()
            if wanted is not None:
                who = canonicalize_name(named["who"]) if named.get("who") else None
                version = named.get("version") or _exact(named.get("release"))
                yield Demand(who, version, canonicalize_name(match["what"]), wanted, bool(_OVER_LOCAL.match(raw)))


_OVER_LOCAL = re.compile(r"(?:\^|>=)\d[\d.]*\+")


def _specifier(text: str) -> SpecifierSet | None:
    """The versions of a requirement; Poetry's 2.6.0 is exact, and its ^2.6.0 ends before the next major."""
    if text.startswith("^"):
        low = text[1:].partition("+")[0]
        text = f">={low},<{int(re.sub(r'[^0-9].*', '', low) or 0) + 1}"
    elif text[:1].isdigit():
        text = f"=={text}"
    elif _OVER_LOCAL.match(text):
        text = re.sub(r"\+\w+", "", text)
    try:
        return SpecifierSet(re.sub(r"([\d*]) (?=[<>=!~])", r"\1,", text))
    except InvalidSpecifier:
        return None


def _exact(release: str | None) -> str | None:
    return release if release and release[0].isdigit() else None


def all_of(demands: Sequence[Demand]) -> SpecifierSet:
    return reduce(lambda one, other: one & other, (demand.wanted for demand in demands), SpecifierSet())
