"""The environment that is planned for: markers and wheel tags of the target machine and Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import msgspec
from packaging.markers import Marker
from packaging.tags import Tag, parse_tag

from envsolve.compat.platform import libc_of, wheel_tags
from envsolve.machine.model import Machine, Platform

_OS_MARKERS = {
    "linux": {"sys_platform": "linux", "os_name": "posix", "platform_system": "Linux"},
    "windows": {"sys_platform": "win32", "os_name": "nt", "platform_system": "Windows"},
}
_WINDOWS_ARCH = {"x86_64": "AMD64", "aarch64": "ARM64"}


class Environment(msgspec.Struct, frozen=True, dict=True):
    """CPython ``python`` on ``platform``, whatever machine does the planning.

    Attributes:
        python: ``3.12``.
        full_version: ``3.12.1`` where the interpreter is known, else ``3.12.0``.
        ranks: Every accepted wheel tag with its rank, 0 the most specific.
    """

    python: str
    full_version: str
    platform: Platform
    markers: Mapping[str, str]
    ranks: Mapping[Tag, int]

    @cached_property
    def _decided(self) -> dict[tuple[str, str], bool]:
        """Which markers hold, as far as it was asked."""
        return {}

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
        found = [p.version for p in machine.pythons or () if p.version.split(".")[:2] == python.split(".")]
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
        ranks = {tag: rank for rank, tag in enumerate(wheel_tags(python, platform))}
        return cls(python, full_version, platform, markers, ranks)

    def wants(self, marker: Marker | None, extra: str = "") -> bool:
        """Whether a requirement with this marker applies here, with one extra (or none) asked for."""
        if marker is None:
            return True
        key = (str(marker), extra)
        if key not in self._decided:
            self._decided[key] = marker.evaluate({**self.markers, "extra": extra})
        return self._decided[key]

    def rank(self, wheel: str) -> int | None:
        """How specifically a wheel's file name matches; None where it does not run here or is no wheel's name."""
        # Thousands of files share some dozens of tags.
        tags = "-".join(wheel.removesuffix(".whl").rsplit("-", 3)[1:])
        if tags not in self._ranked:
            found = parse_tag(tags) if tags.count("-") == 2 else ()
            self._ranked[tags] = min((self.ranks[tag] for tag in found if tag in self.ranks), default=None)
        return self._ranked[tags]


def environments_of(machines: Sequence[Machine], python: str) -> tuple[Environment, ...]:
    """One environment for each system (``linux-x86_64``) among machines, in their order.

    What installs on the oldest libc of a system installs on its other machines.
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
