"""The operating system: distribution, architecture, C library, WSL, Jetson, containers and their images."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envsolve.diagnose.report.observation import (
    VERSION,
    Fact,
    Field,
    Image,
    Observation,
    Package,
    Readers,
    Scalar,
    Trust,
    normalised,
    sentences,
    shape,
)
from envsolve.diagnose.report.text import Log
from envsolve.facts.catalogue import Catalogue
from envsolve.values import processor

READERS = Readers()

_LINUX = Scalar(Field.OS, "linux")
_WINDOWS = Scalar(Field.OS, "windows")
_DISTRO = shape("{{DISTRO}}")
_IDS = {
    "red hat enterprise linux": "rhel", "amazon linux": "amzn", "arch linux": "arch", "linux mint": "linuxmint",
    "pop!_os": "pop", "oracle linux": "ol", "alibaba cloud linux": "alinux", "opensuse leap": "opensuse-leap",
}  # fmt: skip
_DISTRO_WORDS = (
    "ubuntu", "debian", "centos", "rocky", "almalinux", "rhel", "red hat", "fedora", "tencentos", "amazon linux",
    "alpine", "opensuse", "sles", "arch linux", "manjaro", "mint", "pop!_os", "dgx os", "openeuler", "oracle linux",
    "alibaba",
)  # fmt: skip
_ALWAYS_VERSIONED = frozenset({"alpine", "debian", "fedora", "rhel", "ubuntu", "centos", "rocky"})
# "gcc (Debian 12.2.0-14)": the package's version. "(Ubuntu 11.4.0-1ubuntu1~22.04)": the release at the end.
_COMPILER_BUILD = re.compile(r"\((?:Ubuntu|Debian|SUSE|Linaro)[^)]{0,40}\d-(?:[^)~]{0,30}~(\d\d\.\d\d))?")
_ARCH = re.compile(r"\b(x86[-_]64|aarch64|arm64|amd64)\b", re.IGNORECASE)
_ARCH_ALONE = re.compile(r"\s{0,4}(x86_64|aarch64|arm64)\s{0,4}")
_KERNEL = re.compile(r"\bLinux[- ](?:\S{1,60} )?\d\.\d{1,2}\.\d{1,3}")
_UV_ON = re.compile(
    r"You're on (?P<os>Linux|Windows|macOS) \(\W?[\w]{1,40}?_?(?P<arch>x86_64|aarch64|arm64|amd64)?\W?\)", re.IGNORECASE
)
_LABELS = ("os:", "os version", "os |", "os :", "os**", "pretty_name", "description:", "platform:", "operating system")
_SUBDIR = re.compile(r"\bplatform\s{0,6}[:=] (linux|win|osx)-(64|aarch64|arm64)\b|/(osx)-(64|arm64)\b", re.IGNORECASE)


@READERS.text(Trust.PRINTED, *_LABELS, "linux-", "linux ")
def _printed(text: str) -> Iterator[Fact]:
    """A line that a program or a form devotes to the system."""
    label = text.lstrip(" *-_|").lower()
    if label.startswith(_LABELS):
        if match := _DISTRO.search(text):
            yield from _distro(match)
        if "windows" in label:
            yield _WINDOWS
        if "macos" in label or "darwin" in label:
            yield Scalar(Field.OS, "darwin")
        yield from _arch(text)
    if _KERNEL.search(text) and ("GNU/Linux" in text or "-with-glibc" in text):
        yield _LINUX
        yield from _arch(text)


@READERS.text(Trust.PRINTED, "platform", "/osx-")
def _subdir(text: str) -> Iterator[Fact]:
    """conda's name of a platform."""
    if match := _SUBDIR.search(text):
        name = (match[1] or match[3]).lower()
        yield {"win": _WINDOWS, "linux": _LINUX}.get(name, Scalar(Field.OS, "darwin"))
        yield Scalar(Field.ARCH, "x86_64" if (match[2] or match[4]) == "64" else "aarch64")


@READERS.text(Trust.PRINTED, "you're on ")
def _by_uv(text: str) -> Iterator[Fact]:
    """The platform that uv says it is on; the tags after it are those of the files that exist."""
    if match := _UV_ON.search(text):
        system = match["os"].lower()
        yield Scalar(Field.OS, {"macos": "darwin"}.get(system, system))
        if match["arch"]:
            yield Scalar(Field.ARCH, processor(match["arch"].lower()))


@READERS.log
def _distributions(log: Log, catalogue: Catalogue) -> Iterator[Observation]:
    for line in log.containing(*_DISTRO_WORDS):
        for sentence in sentences(line.text):
            if match := _COMPILER_BUILD.search(sentence):
                yield Observation(_LINUX, line, Trust.IMPLIED)
                if match[1]:
                    yield Observation(Scalar(Field.DISTRO, f"ubuntu {match[1]}"), line, Trust.HINTED)
            elif match := _DISTRO.search(sentence):
                yield from (Observation(fact, line, Trust.STATED) for fact in _distro(match))


@READERS.log
def _architectures(log: Log, catalogue: Catalogue) -> Iterator[Observation]:
    for line in log.containing("x86_64", "x86-64", "aarch64", "arm64", "amd64"):
        if _ARCH_ALONE.fullmatch(line.text):
            yield from (Observation(fact, line, Trust.PRINTED) for fact in _arch(line.text))
        elif "://" not in line.text:
            archs = {processor(found.replace("-", "_")) for s in sentences(line.text) for found in _ARCH.findall(s)}
            yield from (Observation(Scalar(Field.ARCH, arch), line, Trust.STATED) for arch in archs if len(archs) == 1)


def _arch(text: str) -> Iterator[Fact]:
    if match := _ARCH.search(text):
        yield Scalar(Field.ARCH, processor(match[1].replace("-", "_")))


def _distro(match: re.Match[str]) -> Iterator[Fact]:
    name = re.sub(r"\s(?:release|server|stream)$", "", match[1].lower())
    name = _IDS.get(name) or _IDS.get(name.removesuffix(" server")) or re.sub(r"(?: gnu/linux| linux)$", "", name)
    yield _LINUX
    if match[2] or name not in _ALWAYS_VERSIONED:
        yield Scalar(Field.DISTRO, f"{name} {match[2]}" if match[2] else name)


READERS.patterns("system")

_WHEEL = re.compile(
    rf"([A-Za-z0-9][\w.]{{0,60}})-({VERSION}|\d{{1,8}})(?:-\d\w{{0,20}})?-cp3(\d{{1,2}})"
    r"-(cp3\d{1,2}t?|abi3|none)-([\w.]{3,80})\.whl"
)
_FETCHED = re.compile(r"downloading|using cached|collecting", re.IGNORECASE)


@READERS.log
def _wheels(log: Log, catalogue: Catalogue) -> Iterator[Observation]:
    """Names of wheels: package, Python and platform."""
    for line in log.containing(".whl"):
        if shape("{{FOREIGN}}").search(line.text):
            continue
        fetched = _FETCHED.search(line.text) is not None
        for name, version, python, abi, platform in _WHEEL.findall(line.text):
            facts: list[Fact] = [] if fetched else [Package(normalised(name), version)]
            if abi != "abi3":  # a wheel for that Python and all later ones
                facts.append(Scalar(Field.PYTHON, f"3.{python}"))
            facts.append(_WINDOWS if platform.startswith("win") else _LINUX)
            if match := re.search("x86_64|aarch64|amd64", platform):
                facts.append(Scalar(Field.ARCH, processor(match[0])))
            yield from (Observation(fact, line, Trust.IMPLIED if fetched else Trust.HINTED) for fact in facts)


# Containers and their images.

_KNOWN = shape("{{KNOWN}}")
_NAMED = shape("{{NAMED}}")
_IMAGE_DISTRO = shape("{{IMAGE_DISTRO}}")
# Code names in tags, as the distributions' release pages give them.
_CODE_NAMES = {
    "bionic": "ubuntu 18.04", "focal": "ubuntu 20.04", "jammy": "ubuntu 22.04", "noble": "ubuntu 24.04",
    "bullseye": "debian 11", "bookworm": "debian 12", "trixie": "debian 13",
}  # fmt: skip
_IMAGE_NAMES = {"rockylinux": "rocky", "ubi": "rhel"}
_IMAGE_PYTHON = re.compile(r"(?:^|/)python:(3\.\d{1,2})\b")


@READERS.log
def _images(log: Log, catalogue: Catalogue) -> Iterator[Observation]:
    """Images with a tag, or after FROM."""
    for line in log.containing(":", "from ", "image", "docker"):
        if line.text.lstrip().startswith(("http", "Traceback", "File ")):
            continue
        found = (match[1] for pattern in (_KNOWN, _NAMED) for match in pattern.finditer(line.text))
        for reference in dict.fromkeys(found):
            if ":" not in reference and "/" not in reference:
                continue
            yield Observation(Image(reference), line, Trust.PRINTED)
            yield Observation(Scalar(Field.CONTAINER, "docker"), line, Trust.HINTED)
            if match := _IMAGE_DISTRO.search(reference):
                distro = _CODE_NAMES.get(match[3]) or f"{_IMAGE_NAMES.get(match[1], match[1])} {match[2]}"
                yield Observation(Scalar(Field.DISTRO, distro), line, Trust.HINTED)
            if match := _IMAGE_PYTHON.search(reference):
                yield Observation(Scalar(Field.PYTHON, match[1]), line, Trust.STATED)


READERS.patterns("containers")
