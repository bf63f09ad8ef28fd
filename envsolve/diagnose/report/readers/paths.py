"""What paths and file names give away: the Python, the operating system, the architecture."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envsolve.diagnose.report.observation import Fact, Field, Observation, Package, Scalar, Trust
from envsolve.diagnose.report.readers._words import VERSION, normalised
from envsolve.diagnose.report.text import Log
from envsolve.facts.catalogue import Catalogue

_PYTHON = re.compile(
    r"[\\/]python(3\.\d{1,2})t?[\\/](?:site|dist)-packages|[\\/]Python(3)(\d{1,2})[\\/](?:lib|site-packages)"
    r"|\.(?:cpython-|cp)(3)(\d{1,2})t?-(?:x86_64|aarch64|win_amd64)",
    re.IGNORECASE,
)
_WHEEL = re.compile(
    rf"([A-Za-z0-9][\w.]{{0,60}})-({VERSION}|\d{{1,8}})(?:-\d\w{{0,20}})?-cp(3)(\d{{1,2}})-(cp3\d{{1,2}}t?|abi3|none)-([\w.]{{3,80}})\.whl"
)
_ARCH = re.compile(
    r"\b(?:linux[-_/]|manylinux\w{0,12}_|libc6,|/lib/|cpython-3\d{1,2}-)(x86[-_]64|aarch64|amd64|arm64)\b|\b(x86_64|aarch64)-(?:conda-)?linux-gnu\b"
)
_WINDOWS = re.compile(
    r"(?:^|[\s\"'(])[A-Z]:[\\/]{1,2}(?:Users|Program|Windows|ProgramData|\w{1,30}\\)|win_amd64|\\site-packages\\|Scripts\\",
    re.IGNORECASE,
)
_LINUX = re.compile(r"(?:^|[\s\"'(=:])/(?:usr|home|opt|root|workspace|mnt|lib|lib64|proc|etc)/")
_FOREIGN = re.compile(r"https?://|looking|skipping|index of|not a supported wheel", re.IGNORECASE)
_FETCHED = re.compile(r"downloading|using cached|collecting", re.IGNORECASE)


def read(log: Log, catalogue: Catalogue) -> Iterator[Observation]:
    """What each path implies; what follows from an address or a listing of other files is left out."""
    for line in log.containing("python3", "cpython-3", ".cp3"):
        if match := _PYTHON.search(line.text):
            version = match[1] or f"{match[2] or match[4]}.{match[3] or match[5]}"
            yield Observation(Scalar(Field.PYTHON, version), line, Trust.IMPLIED)
    for line in log.containing("linux-gnu", "linux_", "linux-", "libc6,", "/lib/x86", "/lib/aarch"):
        if (match := _ARCH.search(line.text)) and not _FOREIGN.search(line.text):
            arch = "aarch64" if (match[1] or match[2]) in {"aarch64", "arm64"} else "x86_64"
            yield Observation(Scalar(Field.ARCH, arch), line, Trust.IMPLIED)
    for line in log.containing(":\\", ":/", "win_amd64", "\\site-packages\\", "scripts\\"):
        if _WINDOWS.search(line.text) and not _FOREIGN.search(line.text):
            yield Observation(Scalar(Field.OS, "windows"), line, Trust.IMPLIED)
    for line in log.containing(
        "/usr/", "/home/", "/opt/", "/root/", "/workspace/", "/lib/", "/lib64/", "/proc/", "/etc/"
    ):
        if _LINUX.search(line.text):
            yield Observation(Scalar(Field.OS, "linux"), line, Trust.IMPLIED)
    for line in log.containing(".whl"):
        if not _FOREIGN.search(line.text):
            trust = Trust.IMPLIED if _FETCHED.search(line.text) else Trust.HINTED
            yield from (Observation(fact, line, trust) for fact in _wheel(line.text))


def _wheel(text: str) -> Iterator[Fact]:
    """A wheel that the text names by its file: package, Python and platform."""
    for name, version, major, rest, abi, platform in _WHEEL.findall(text):
        if not _FETCHED.search(text):
            yield Package(normalised(name), version)
        if abi != "abi3":  # such a wheel is for that Python and all later ones
            yield Scalar(Field.PYTHON, f"{major}.{rest}")
        yield Scalar(Field.OS, "windows" if platform.startswith("win") else "linux")
        if match := re.search(r"x86_64|aarch64|amd64", platform):
            yield Scalar(Field.ARCH, "aarch64" if match[0] == "aarch64" else "x86_64")
