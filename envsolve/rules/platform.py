"""Rule 11: Python, platform and libc tags, for the target machine and not for the one that plans."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache

import msgspec
from msgspec.structs import replace
from packaging.markers import Marker
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.tags import Tag, compatible_tags, cpython_tags, parse_tag

from envsolve.machine.model import Machine, Platform
from envsolve.rules.verdict import Reason
from envsolve.system.limits import TAGS
from envsolve.values import PythonVersion

#: glibc assumed where a Linux machine does not say: the oldest that torch's wheels of 2.7 and later accept.
ASSUMED_GLIBC = (2, 28)
#: Operating systems, and their architectures, that wheels with GPU code are published for.
SYSTEMS = {"linux": ("x86_64", "aarch64"), "windows": ("x86_64",)}
_LEGACY = {(2, 17): "manylinux2014", (2, 12): "manylinux2010", (2, 5): "manylinux1"}
_LEGACY_GLIBC = {alias: glibc for glibc, alias in _LEGACY.items()}
_LIBC_TAG = re.compile(r"^(many|musl)linux_(\d+)_(\d+)_\w+$")


def assumed(platform: Platform | None) -> Platform:
    """A platform with what it leaves open of system and architecture taken as Linux on x86_64."""
    known = platform or Platform()
    return replace(known, os=known.os or "linux", arch=known.arch or "x86_64")


def libc_of(platform: Platform | None) -> tuple[str, tuple[int, int]] | None:
    """A platform's libc as ``("glibc", (2, 35))``, or None if unknown."""
    match = re.match(r"^(glibc|musl)\D*(\d+)\.(\d+)", platform.libc) if platform and platform.libc else None
    return (match[1], (int(match[2]), int(match[3]))) if match else None


def platform_tags(platform: Platform) -> Iterator[str]:
    """Platform tags that a machine accepts, most specific first, as ``packaging.tags`` orders them."""
    arch = platform.arch or "x86_64"
    if platform.os == "windows":
        yield "win_amd64" if arch == "x86_64" else "win_arm64"
        return
    kind, version = libc_of(platform) or ("glibc", ASSUMED_GLIBC)
    if kind == "musl":
        yield from (f"musllinux_{version[0]}_{n}_{arch}" for n in range(version[1], -1, -1))
    else:
        oldest = 5 if arch == "x86_64" else 17
        for n in range(version[1], oldest - 1, -1):
            yield f"manylinux_{version[0]}_{n}_{arch}"
            if (2, n) in _LEGACY:
                yield f"{_LEGACY[(2, n)]}_{arch}"
    yield f"linux_{arch}"


def wheel_tags(python: str, platform: Platform) -> tuple[Tag, ...]:
    """Wheel tags that CPython ``python`` (``3.12``) accepts on a platform, most specific first."""
    major, minor = PythonVersion.parse(python)
    platforms = list(platform_tags(platform))
    interpreter = PythonVersion(major, minor).tag
    abis = [f"{interpreter}m"] if (major, minor) < (3, 8) else [interpreter]
    return (
        *cpython_tags((major, minor), abis=abis, platforms=platforms),
        *compatible_tags((major, minor), interpreter=interpreter, platforms=platforms),
    )


def libc_needed(platform_tag: str) -> tuple[str, tuple[int, int]] | None:
    """The libc that a wheel's platform tag asks for, as ``("glibc", (2, 28))``; None if it asks for none.

    Of a compressed tag (``a.b``) the lowest counts, since the wheel runs where any part fits. Source: PEP 600, PEP 656.
    """
    needed: list[tuple[str, tuple[int, int]]] = []
    for tag in platform_tag.split("."):
        match = _LIBC_TAG.match(tag)
        if match:
            needed.append(("glibc" if match[1] == "many" else "musl", (int(match[2]), int(match[3]))))
        elif tag.split("_")[0] in _LEGACY_GLIBC:
            needed.append(("glibc", _LEGACY_GLIBC[tag.split("_")[0]]))
    return min(needed, key=lambda need: need[1], default=None)


def platform_fits(platform_tag: str, platform: Platform | None) -> Reason:
    """Rule 11, the platform half: operating system, architecture and libc of a wheel against the machine's.

    Where the machine's libc is not known the tag's demand is stated, not failed. Source: PEP 600, PEP 656.
    """
    machine = platform or Platform()
    if platform_tag == "any":
        return Reason("platform", True, "the wheel is for any platform")
    if not same_system(platform_tag, machine):
        return Reason("platform", False, f"the wheel is for {platform_tag}, the machine is {machine.os} {machine.arch}")
    needed, have = libc_needed(platform_tag), libc_of(machine)
    if needed is None and have is not None and have[0] == "musl":
        return Reason(
            "platform", False, f"the wheel ({platform_tag}) is built for glibc; the machine has {libc_text(have)}"
        )
    if needed is None or machine.os == "windows":
        return Reason("platform", True, f"the wheel is for {platform_tag}")
    text = f"the wheel ({platform_tag}) needs {libc_text(needed)}"
    if have is None:
        return Reason("platform", True, f"{text}; the machine's libc is not known")
    return Reason("platform", libc_serves(have, needed), f"{text}; the machine has {libc_text(have)}")


def libc_fits(libc: str, platform: Platform | None) -> Reason:
    """Rule 11, if a build is known to need a newer libc than its platform tag says."""
    needed, have = libc_of(Platform(libc=libc)), libc_of(platform)
    text = f"its libraries need {libc}"
    if needed is None or have is None:
        return Reason("platform", True, f"{text}; the machine's libc is not known")
    return Reason("platform", libc_serves(have, needed), f"{text}; the machine has {libc_text(have)}")


def libc_serves(have: tuple[str, tuple[int, int]], need: tuple[str, tuple[int, int]]) -> bool:
    """Whether programs made for one libc run on another: the same kind, as new or newer."""
    return have[0] == need[0] and have[1] >= need[1]


def libc_text(libc: tuple[str, tuple[int, int]]) -> str:
    """``("glibc", (2, 28))`` as a machine file has it: ``glibc 2.28``."""
    kind, (major, minor) = libc
    return f"{kind} {major}.{minor}"


def same_system(platform_tag: str, machine: Platform) -> bool:
    """Whether a wheel's platform tag is for the machine's operating system and architecture, whatever its libc."""
    return _tag_serves(platform_tag, machine.os, machine.arch)


@lru_cache(maxsize=1024)
def _tag_serves(platform_tag: str, os: str | None, arch: str | None) -> bool:
    return any(_for_system(tag, os, arch) for tag in platform_tag.split("."))


def _for_system(tag: str, os: str | None, arch: str | None) -> bool:
    if tag == "any":
        return True
    if tag.startswith("win"):
        made_for = {"win_amd64": "x86_64", "win_arm64": "aarch64"}.get(tag)
        return os == "windows" and arch in (made_for, None)
    if "linux" not in tag:
        return False
    return os in ("linux", None) and (arch is None or tag.endswith(arch))


def python_fits(pythons: Sequence[str], python: str, requires_python: str | None = None) -> Reason:
    """Rule 11, the interpreter half: whether a build has a wheel for CPython ``python`` (``3.12``, ``3.13t``).

    Args:
        pythons: The tag parts of file names as the catalogue keeps them: ``cp312``, ``cp313t``, ``py3-none``,
            ``cp312-abi3``.
        python: The interpreter, by its minor version.
        requires_python: ``Requires-Python`` of its METADATA, if known: installers obey it whatever the tag says.
    """
    wanted = "cp" + python.replace(".", "")
    if python_tag(pythons, python) is None:
        return Reason("platform", False, f"no wheel for {wanted} (only {', '.join(pythons)})")
    if not admits_python(requires_python, python.rstrip("t")):
        return Reason("platform", False, f"its metadata requires Python {requires_python}, not {python}")
    return Reason("platform", True, f"a wheel for {wanted} exists")


# CPython 3.9, the longest series so far, ended at 3.9.25.
_PATCHES = 60


@lru_cache(maxsize=4096)
def admits_python(requires_python: str | None, python: str) -> bool:
    """Return whether a Python (``3.12.1``), or any patch release of one (``3.12``), satisfies ``Requires-Python``.

    A specifier that cannot be read forbids nothing, as for installers.
    """
    try:
        allowed = SpecifierSet(requires_python or "")
    except InvalidSpecifier:
        return True
    releases = [python] if python.count(".") > 1 else [f"{python}.{patch}" for patch in range(_PATCHES)]
    return any(allowed.contains(release, prereleases=True) for release in releases)


def python_tag(pythons: Sequence[str], python: str) -> str | None:
    """The most specific entry of ``pythons`` for CPython ``python``; None if there is none."""
    wanted = "cp" + python.replace(".", "")
    if wanted in pythons:
        return wanted
    for tag in pythons:
        interpreter, _, abi = tag.partition("-")
        if abi == "none" and interpreter in ("py3", "py2.py3", wanted):
            return tag
        # py39-none serves 3.9 and later, cp39-abi3 likewise but for free-threaded builds.
        oldest = re.match(r"^(?:py|cp)3(\d+)$", interpreter)
        forward = (abi == "none" and interpreter.startswith("py")) or (abi == "abi3" and not python.endswith("t"))
        if oldest and forward and int(oldest[1]) <= int(python.split(".")[1].rstrip("t")):
            return tag
    return None


# The environment that is planned for: markers and wheel tags of the target machine and Python.


_OS_MARKERS = {
    "linux": {"sys_platform": "linux", "os_name": "posix", "platform_system": "Linux"},
    "windows": {"sys_platform": "win32", "os_name": "nt", "platform_system": "Windows"},
}
_WINDOWS_ARCH = {"x86_64": "AMD64", "aarch64": "ARM64"}


class Environment(msgspec.Struct, frozen=True, dict=True):
    """CPython ``python`` on ``platform``, whatever machine does the planning.

    Attributes:
        python: ``3.12``.
        full_version: ``3.12.1`` if the interpreter is known, otherwise ``3.12.0``.
        is_exact: Whether the interpreter's patch release is known.
    """

    python: str
    full_version: str
    platform: Platform
    markers: Mapping[str, str]
    is_exact: bool = False

    @cached_property
    def _decided(self) -> dict[tuple[str, str], bool]:
        """Which markers hold, as far as it was asked."""
        return {}

    @cached_property
    def ranks(self) -> Mapping[Tag, int]:
        """Every accepted wheel tag with its rank, 0 the most specific."""
        return _ranks(self.python, self.platform)

    @cached_property
    def _ranked(self) -> dict[str, int | None]:
        """The rank of each group of wheel tags, as far as it was asked."""
        return {}

    @property
    def system(self) -> str:
        """``linux-x86_64``."""
        return f"{self.platform.os}-{self.platform.arch}"

    @classmethod
    def of(cls, machine: Machine, python: str) -> Environment:
        """The environment of a machine and a Python ``X.Y``; what the machine leaves open is taken as Linux x86_64."""
        known = machine.platform or Platform()
        platform = Platform(known.os or "linux", known.arch or "x86_64", known.libc)
        found = [
            p.version for p in machine.pythons or () if PythonVersion.parse(p.version) == PythonVersion.parse(python)
        ]
        full_version = max(found, default=f"{python}.0", key=lambda v: [int(n) for n in v.split(".") if n.isdigit()])
        windows = platform.os == "windows"
        arch = _WINDOWS_ARCH[platform.arch or "x86_64"] if windows else platform.arch or "x86_64"
        markers = {
            **_OS_MARKERS["windows" if windows else "linux"],
            "platform_machine": arch,
            "platform_release": "",
            "platform_version": "",
            "python_version": python,
            "python_full_version": full_version,
            "implementation_name": "cpython",
            "implementation_version": full_version,
            "platform_python_implementation": "CPython",
        }
        return cls(python, full_version, platform, markers, bool(found))

    def allows(self, requires_python: str | None) -> bool:
        """Return whether ``Requires-Python`` allows this Python.

        If its patch release is not known, any that is allowed is enough: installers take the newest.
        """
        if not requires_python:
            return True
        return admits_python(requires_python, self.full_version if self.is_exact else self.python)

    def wants(self, marker: Marker | None, extra: str = "") -> bool:
        """Whether a requirement with this marker applies here, with one extra (or none) asked for."""
        if marker is None:
            return True
        key = (str(marker), extra)
        if key not in self._decided:
            self._decided[key] = marker.evaluate({**self.markers, "extra": extra})
        return self._decided[key]

    def rank(self, wheel: str) -> int | None:
        """How specifically a wheel's file name matches; None if it does not run here or is not a wheel's name."""
        # Thousands of files share some dozens of tags.
        tags = "-".join(wheel.removesuffix(".whl").rsplit("-", 3)[1:])
        if tags not in self._ranked:
            self._ranked[tags] = min((self.ranks[tag] for tag in _tags(tags) if tag in self.ranks), default=None)
        return self._ranked[tags]


@lru_cache(maxsize=64)
def _ranks(python: str, platform: Platform) -> Mapping[Tag, int]:
    # A plan describes its machine several times, and the thousand tags take longer than all the rest of it.
    return {tag: rank for rank, tag in enumerate(wheel_tags(python, platform))}


def _tags(text: str) -> frozenset[Tag]:
    """The tags of a wheel's name; none for a name that nothing installs by."""
    parts = [part.count(".") + 1 for part in text.split("-")]
    if len(parts) != 3 or math.prod(parts) > TAGS:
        return frozenset()
    try:
        return parse_tag(text)
    except ValueError:
        return frozenset()


def environments_of(machines: Sequence[Machine], python: str) -> tuple[Environment, ...]:
    """One environment for each system (``linux-x86_64``) among machines, in their order.

    Files that install on the oldest libc of a system install on its other machines.
    """
    systems: dict[tuple[str | None, str | None], Machine] = {}
    for machine in machines:
        platform = machine.platform or Platform()
        key = (platform.os, platform.arch)
        if key not in systems or _older_libc(platform, systems[key].platform):
            systems[key] = machine
    return tuple(Environment.of(machine, python) for machine in systems.values())


def _older_libc(one: Platform, other: Platform | None) -> bool:
    first, second = libc_of(one), libc_of(other)
    return first is not None and (second is None or first < second)
